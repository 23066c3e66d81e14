"""The agent's face: each tool with its parameters, for clients that read structured content and those that do not."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import jsonschema
import orjson
import pytest

from myria.log.limits import Limits
from myria.memory import Memory
from myria.notes.kinds import kinds_of
from myria.settings import AgentSettings, AuthSettings, Settings
from myria.text.model_tokens import token_counter
from myria_server.api.memento.input_schemas import CONTRACT, KINDS
from myria_server.api.tools import TOOLS, input_schema, output_schema
from myria_server.paths import PATH_OF
from tests.server import agent_rows
from tests.server.wire import MODERN, Served, call, event, headers, listed, serving
from tests.support.counts import some
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

AGENT = PATH_OF["agent"]
SCHEMAS = {tool.name: output_schema(tool) for tool in TOOLS if "agent" in tool.apis}


async def raw(served: Served, tool: str, arguments: Any, *, version: str | None = MODERN) -> dict[str, Any]:
    """Return the result of a call as it is sent."""
    sent = headers(tool, version=version)
    response = await served.post(call(tool, arguments, version=version), sent, path=AGENT)
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()["result"]
    return result


async def ask(served: Served, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return the structured content of a call; it fits the tool's schema, and only refusals are errors."""
    result = await raw(served, tool, arguments)
    content: dict[str, Any] = result["structuredContent"]
    jsonschema.Draft202012Validator(SCHEMAS[tool]).validate(content)
    assert result["isError"] == ("retryable" in content)
    return content


async def keep(served: Served, content: str, **more: Any) -> str:
    """Remember something, and return its id."""
    kept = await ask(served, "remember", content=content, **more)
    assert kept["created"], kept
    note_id: str = kept["id"]
    return note_id


async def found(served: Served, text: str, **more: Any) -> list[str]:
    """Return what a question recalls."""
    return [fragment["content"] for fragment in (await ask(served, "recall", text=text, **more))["fragments"]]


async def test_a_key_says_whether_its_text_is_json(database: Database, memory: Memory) -> None:
    """Old clients read JSON out of the text: of a key that says so it is that, and lines where a call asks for them."""
    async with (
        access_store(database) as store,
        serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served,
    ):
        texts = {}
        for text_format in (None, "json"):
            key = await make_key(store, "ana", text_format=text_format)
            for chosen in (None, "text", "json"):
                arguments = {"text": "the bakery", "format": chosen}
                sent = headers("recall", version=MODERN) | {"authorization": f"Bearer {key}"}
                answer = await served.post(call("recall", arguments, version=MODERN), sent, path=AGENT)
                result = answer.json()["result"]
                text = result["content"][0]["text"]
                texts[text_format, chosen] = text.startswith("{") and orjson.loads(text) == result["structuredContent"]
    assert texts == {
        (None, None): False,
        (None, "text"): False,
        (None, "json"): True,
        ("json", None): True,
        ("json", "text"): False,
        ("json", "json"): True,
    }


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"timeRange": {"from": "yesterday"}}, "timeRange.from"),
        ({"timeRange": {"to": "2026-02-30"}}, "timeRange.to"),
        ({"asOf": 7}, "asOf"),
        ({"pageSize": 2, "tokenBudget": 40}, "tokenBudget"),
    ],
)
async def test_a_refusal_of_recall_names_what_the_caller_wrote(served: Served, arguments: Any, field: str) -> None:
    """The parameter as it is called on the wire; a page whose budget holds nothing is one, for it would never end."""
    for number in range(3):
        await keep(served, f"The bakery of street {number} opens on Monday", agentId=f"refused-{field}")
    refusal = await ask(served, "recall", text="bakery", agentId=f"refused-{field}", **arguments)
    assert refusal["details"]["field"] == field
    assert field.rsplit(".", maxsplit=1)[-1] in refusal["error"]


async def test_the_list_of_tools_is_short(served: Served) -> None:
    """A model reads names, descriptions and input schemas with every conversation: at most 2,500 tokens of them."""
    shown = [
        {name: tool[name] for name in ("name", "description", "inputSchema")}
        for tool in await listed(served, path=AGENT)
    ]
    counter = token_counter()
    assert counter.name == "o200k"
    assert counter.count(orjson.dumps(shown).decode()) <= 2_500
    assert {tool["name"] for tool in shown} == set(SCHEMAS)


def test_the_kinds_are_those_of_the_contract() -> None:
    """What the schemas offer is what the rules of notes know."""
    assert kinds_of(CONTRACT) == KINDS


async def by_text(served: Served, tool: str, arguments: Any) -> dict[str, Any]:
    """Call as a plain HTTP client does that names no protocol version and reads JSON out of the text."""
    result = await raw(served, tool, arguments, version=None)
    content: dict[str, Any] = orjson.loads(result["content"][0]["text"])
    assert content == result["structuredContent"]
    return content


async def test_every_row_of_the_table(served: Served) -> None:
    """Each tool with each parameter, called over plain HTTP: the text is the contract's JSON."""
    assert await agent_rows.run(partial(by_text, served), some(agent_rows.ROWS)) == {}


def test_every_parameter_has_a_row() -> None:
    """What a tool takes is in the table, also where its schema leaves it out."""
    named = {(row.tool, parameter) for row in agent_rows.ROWS for parameter in row.parameters}
    published = {
        (tool.name, parameter)
        for tool in TOOLS
        if "agent" in tool.apis
        for parameter in {*input_schema(tool, Limits())["properties"], *tool.arguments.model_fields} - {"format"}
    }
    assert published | {("recall", "format")} <= named


async def test_remember_needs_content_alone(served: Served) -> None:
    """Kind, topic, keywords and importance are inferred, and the answer says so; the same again is the same note."""
    kept = await ask(served, "remember", content="We decided that the kiln opens on Friday")
    assert kept["success"]
    assert kept["created"]
    assert (kept["type"], kept["ttl_tier"], kept["scope"]) == ("decision", "permanent", "permanent")
    assert kept["inferred"] == ["type", "topic", "keywords", "importance"]
    again = await ask(served, "remember", content="We decided that the kiln opens on Friday")
    assert (again["id"], again["created"]) == (kept["id"], False)
    assert await found(served, "When does the kiln open?") == ["We decided that the kiln opens on Friday"]


async def test_an_agent_hears_what_the_pool_says_already(served: Served) -> None:
    """A note that is like one of the pool names it; one of another agent is not named, and not asked for again."""
    pooled = await ask(served, "remember", content="The kiln opens on Friday at nine")
    await ask(served, "remember", content="The kiln opens on Sunday at nine", agentId="critic")
    for _ in range(2):  # the second time it was there already
        kept = await ask(served, "remember", content="The kiln opens on Monday at nine", agentId="planner")
        assert [conflict["existing_id"] for conflict in kept["conflicts"]] == [pooled["id"]]


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ({"content": ""}, "invalid_text", "content"),
        ({"content": "  "}, "invalid_argument", "content"),
        ({}, "invalid_argument", "content is required"),
        ({"content": "x" * 10_001}, "invalid_argument", "10000"),
        ({"content": "x", "type": "guess"}, "invalid_argument", "preference"),
        ({"content": "x", "importance": 2}, "invalid_argument", "importance"),
        ({"content": "x", "scope": "session"}, "invalid_argument", "sessionId"),
        ({"content": "x", "supersedes": ["note_absent"]}, "note_not_found", "note_absent"),
        ({"content": "x", "subject": "y"}, "unknown_field", "subject"),
        ({"content": "x", "agentId": "a\u200bb"}, "invalid_participants", "agentId"),
    ],
)
async def test_what_cannot_be_remembered(served: Served, given: dict[str, Any], code: str, says: str) -> None:
    """The refusal has the contract's form, a code, and what to do; nothing is kept."""
    refused = await ask(served, "remember", **given)
    assert (refused["success"], refused["code"]) == (False, code)
    assert says in refused["error"]
    assert (await ask(served, "recall"))["count"] == 0


async def test_what_must_not_be_kept_is_taken_out(served: Served) -> None:
    """Addresses, telephone numbers and passwords, also out of topic and keywords; the answer counts them."""
    kept = await ask(
        served,
        "remember",
        content="Inês: ines@example.com, +49 151 23456789, password: hunter2",
        keywords=["ines@example.com"],
    )
    assert kept["redacted"] == {"email": 2, "phone": 1, "password": 1}
    (text,) = await found(served, "Inês")
    assert text == "Inês: [REDACTED_EMAIL], [REDACTED_PHONE], password: [REDACTED_PWD]"
    amended = await ask(served, "amend", id=kept["id"], content="Inês: ines@example.com")
    assert amended["redacted"] == {"email": 1}


async def test_a_key_makes_a_retry_one_note(served: Served) -> None:
    """A repeat with the idempotencyKey answers the first note, for another agent it is another one."""
    first = await ask(served, "remember", content="one", idempotencyKey="k")
    again = await ask(served, "remember", content="one", idempotencyKey="k")
    assert (again["id"], again["created"]) == (first["id"], False)
    differs = await ask(served, "remember", content="another", idempotencyKey="k")
    assert (differs["code"], differs["details"]["note_id"]) == ("idempotency_key_reused", first["id"])
    other = await ask(served, "remember", content="another", idempotencyKey="k", agentId="planner")
    assert other["created"]
    old = await keep(served, "old")
    newer = await ask(served, "remember", content="newer", idempotencyKey="n", supersedes=[old])
    repeat = await ask(served, "remember", content="newer", idempotencyKey="n", supersedes=[old])
    assert (repeat["id"], repeat["created"]) == (newer["id"], False)


async def test_a_key_of_a_forgotten_note_keeps_nothing(served: Served) -> None:
    """The repeat says that its note is gone, and by which name it can be restored."""
    first = await ask(served, "remember", content="one", idempotencyKey="k")
    await ask(served, "forget", id=first["id"], force=True)
    again = await ask(served, "remember", content="one", idempotencyKey="k")
    assert (again["code"], again["details"]["note_id"]) == ("note_not_found", first["id"])
    assert await found(served, "one") == []


async def test_a_note_that_is_there_already_replaces_too(served: Served) -> None:
    """A text that is kept already takes the place of what supersedes names; a repeat answers the same note."""
    old = await keep(served, "The kiln opens on Friday")
    there = await keep(served, "The kiln opens on Monday")
    for _ in range(2):
        kept = await ask(served, "remember", content="The kiln opens on Monday", supersedes=[old])
        assert (kept["id"], kept["created"]) == (there, False)
        assert await found(served, "kiln") == ["The kiln opens on Monday"]
    itself = await ask(served, "remember", content="The kiln opens on Monday", supersedes=[there])
    assert (itself["id"], itself["created"]) == (there, False)
    assert await found(served, "kiln") == ["The kiln opens on Monday"]


async def test_a_repeat_of_a_replacement_answers_the_first(served: Served) -> None:
    """A retry without a key, whose first try was kept, names that note; something else is refused."""
    old = await keep(served, "The kiln opens on Friday")
    newer = await keep(served, "The kiln opens on Monday", supersedes=[old])
    again = await ask(served, "remember", content="The kiln opens on Monday", supersedes=[old])
    assert (again["id"], again["created"]) == (newer, False)


async def test_a_newer_note_replaces_older_ones(served: Served) -> None:
    """What supersedes names is no longer recalled; naming it again is refused."""
    old = await keep(served, "The kiln opens on Friday")
    await keep(served, "The kiln opens on Monday", supersedes=[old])
    assert await found(served, "kiln") == ["The kiln opens on Monday"]
    refused = await ask(served, "remember", content="The kiln opens on Sunday", supersedes=[old])
    assert refused["code"] == "note_not_found"


async def test_a_batch_keeps_each_by_itself(served: Served) -> None:
    """One that is refused, or is there, does not refuse the others; 200 are the most."""
    await keep(served, "known")
    items = [{"content": "new", "topic": "t"}, {"content": "known"}, {"content": ""}, "no", {"agentId": "x"}]
    answer = await ask(served, "batch_remember", items=items)
    assert (answer["inserted"], answer["skipped"]) == (1, 4)
    assert [(item["index"], item["success"], item.get("created")) for item in answer["results"]] == [
        (0, True, True),
        (1, True, False),
        (2, False, None),
        (3, False, None),
        (4, False, None),
    ]
    assert set(await found(served, "")) == {"new", "known"}
    dry = await ask(served, "batch_remember", items=[{"content": "later"}], dryRun=True)
    assert (dry["dryRun"], dry["inserted"]) == (True, 0)
    most = [{"content": f"note number {number}"} for number in range(200)]
    assert (await ask(served, "batch_remember", items=most))["inserted"] == 200
    assert (await ask(served, "batch_remember", items=[*most, most[0]]))["code"] == "invalid_argument"


async def test_a_text_forgets_what_says_it_and_nothing_beside(served: Served) -> None:
    """recall also shows what was kept near a memory; forget leaves that, and lists each note on a line of its own."""
    await keep(served, "The glaze has pinholes", type="fact")
    await keep(served, "def ramp(t):\n    return t", type="fact")
    await keep(served, "pinholes in other glazes", type="preference")
    assert len(await found(served, "pinholes")) == 2
    dry = await raw(served, "forget", {"text": "the pinholes", "dryRun": True})
    listed = {item["content"] for item in dry["structuredContent"]["fragments"]}
    assert listed == {"The glaze has pinholes", "pinholes in other glazes"}
    assert [line.split(" ")[0] for line in dry["content"][0]["text"].splitlines()[::3]] == ["Would", "1"]
    assert (await ask(served, "forget", text="pinholes glaze ramp"))["deleted"] == 0
    assert (await ask(served, "forget", text="pinholes"))["deleted"] == 1
    assert set(await found(served, "")) == {"def ramp(t):\n    return t", "pinholes in other glazes"}


async def test_a_type_that_there_is_none_of_is_pointed_out(served: Served) -> None:
    """Where nothing is found, a model hears whether that is for want of memories or of such a type."""
    await keep(served, "The glaze has pinholes", type="fact")
    said = {}
    for kind in ("bug", "decision", "entity"):
        said[kind] = (await raw(served, "recall", {"type": kind}))["content"][0]["text"]
    nothing = "Nothing is remembered of that."
    assert said == {
        "bug": f"No memory has this type. Types are {', '.join(KINDS)}.",
        "decision": nothing,
        "entity": nothing,
    }


async def test_the_loser_of_two_amendments_hears_of_the_note(served: Served) -> None:
    """The refusal names the note, as its caller knows it, and says what to do."""
    note_id = await keep(served, "one")
    answers = await asyncio.gather(*[ask(served, "amend", id=note_id, content=f"two {n}") for n in range(8)])
    refused = [answer for answer in answers if not answer["success"]]
    assert all(answer["details"] == {"note_id": note_id} for answer in refused)
    assert all(
        answer["code"] == "already_superseded" and "amend what it says now" in answer["error"] for answer in refused
    )
    assert (await ask(served, "fragment_history", id=note_id))["count"] == 1 + len(answers) - len(refused)


@pytest.mark.parametrize("budget", [1, 60, 300, 800])
async def test_the_budget_bounds_both_forms(served: Served, budget: int) -> None:
    """Neither the text nor the structured content of an answer costs more tokens than were asked for."""
    for number, word in enumerate(["kiln", "窯", "🔥🏺", "kiln_open(x)[0]"] * 8):
        await keep(served, f"{number}: {word} " * (number + 1))
    result = await raw(served, "recall", {"tokenBudget": budget})
    count = token_counter().count
    assert count(result["content"][0]["text"]) <= max(budget, 10)
    content = result["structuredContent"]
    assert not content["fragments"] or count(orjson.dumps(content).decode()) <= budget
    assert content["totalTokens"] <= budget
    assert bool(content["fragments"]) == (budget >= 300)
    assert (result["content"][0]["text"] == "tokenBudget is too small to show anything.") == (budget == 1)


async def test_forgetting_by_id_handle_topic_and_text(served: Served) -> None:
    """Each names notes; a dry run lists them; what is permanent needs force; restore undoes."""
    one = await keep(served, "kiln one", topic="kiln", type="fact")
    await keep(served, "kiln two", topic="kiln", type="preference")
    await keep(served, "glaze three", topic="glaze", type="fact")
    dry = await ask(served, "forget", topic="kiln", dryRun=True)
    assert (dry["deleted"], dry["protected"], dry["dryRun"]) == (0, 1, True)
    assert {(item["content"], item["protected"]) for item in dry["fragments"]} == {
        ("kiln one", False),
        ("kiln two", True),
    }
    gone = await ask(served, "forget", topic="kiln")
    assert (gone["deleted"], gone["protected"]) == (1, 1)
    assert "force" in gone["reason"]
    assert gone["ids"] == [one]
    assert set(await found(served, "")) == {"kiln two", "glaze three"}
    assert (await ask(served, "restore", id=one)) == {"success": True, "id": one, "restored": True}
    assert set(await found(served, "")) == {"kiln one", "kiln two", "glaze three"}
    both = await ask(served, "forget", topic="kiln", force=True)
    for name in both["ids"]:
        await ask(served, "restore", id=name)
    assert set(await found(served, "")) == {"kiln one", "kiln two", "glaze three"}
    assert (await ask(served, "forget", topic="kiln", force=True))["deleted"] == 2
    (fragment,) = (await ask(served, "recall"))["fragments"]
    assert (await ask(served, "forget", id=f"[{fragment['handle']}]"))["deleted"] == 1
    assert (await ask(served, "recall"))["count"] == 0
    for wrong in ({}, {"id": one, "topic": "kiln"}):
        assert (await ask(served, "forget", **wrong))["code"] == "invalid_argument"


async def test_absent_and_anothers_are_answered_alike(served: Served) -> None:
    """Whatever names a note of another agent gets the same bytes as what names none."""
    theirs = await keep(served, "the critic's secret", agentId="critic")
    absent = "note_" + "0" * 32
    for tool, more in (("forget", {}), ("restore", {}), ("amend", {"content": "x"})):
        for agent in ({}, {"agentId": "planner"}):
            answers = [
                orjson.dumps(await raw(served, tool, {"id": name, **more, **agent})).replace(name.encode(), b"")
                for name in (theirs, absent)
            ]
            assert answers[0] == answers[1]
    assert await found(served, "secret", agentId="critic") == ["the critic's secret"]
    for agent in ({}, {"agentId": "planner"}, {"agentId": "default"}):
        assert await found(served, "secret", **agent) == []


async def test_a_strict_server_keeps_no_pool(memory: Memory) -> None:
    """Each call names its agent, and reads that agent's alone."""
    async with serving(memory, Settings(agent=AgentSettings(pool=False))) as strict:
        assert (await ask(strict, "remember", content="x"))["code"] == "invalid_argument"
        assert (await ask(strict, "recall", agentId="default"))["code"] == "invalid_argument"
        await keep(strict, "planner's", agentId="planner")
        assert await found(strict, "planner", agentId="planner") == ["planner's"]
    async with serving(memory) as pooled:
        await keep(pooled, "of the pool")
        assert set(await found(pooled, "", agentId="planner")) == {"of the pool", "planner's"}
    async with serving(memory, Settings(agent=AgentSettings(pool=False))) as strict:
        assert await found(strict, "", agentId="planner") == ["planner's"]


@pytest.mark.parametrize(
    ("version", "given", "is_json"),
    [
        (MODERN, None, False),
        (MODERN, "json", True),
        (MODERN, "text", False),
        ("2025-11-25", None, False),
        ("2025-06-18", None, False),
        ("2025-03-26", None, True),
        ("2025-03-26", "text", False),
        ("2024-11-05", None, True),
        (None, None, True),
    ],
)
async def test_the_text_is_for_models_or_for_programs(
    served: Served, version: str | None, given: str | None, is_json: bool
) -> None:
    """Clients of versions without structured content find the contract's JSON in the text, others lines."""
    arguments = {"content": "The kiln opens on Friday", **({} if given is None else {"format": given})}
    asking = {name: value for name, value in arguments.items() if name == "format"}
    for tool, sent in (("remember", arguments), ("recall", asking)):
        result = await raw(served, tool, sent, version=version)
        text = result["content"][0]["text"]
        if is_json:
            assert orjson.loads(text) == result["structuredContent"]
        else:
            assert not text.startswith("{")
    assert is_json or "kiln opens on Friday" in text


async def test_the_settings_choose_the_text(memory: Memory) -> None:
    """Where agent.text is json, the text is JSON for everybody who does not ask for lines."""
    async with serving(memory, Settings(agent=AgentSettings(text="json"))) as served:
        result = await raw(served, "recall", {})
        assert orjson.loads(result["content"][0]["text"]) == result["structuredContent"]
        lines = await raw(served, "recall", {"format": "text"})
        assert not lines["content"][0]["text"].startswith("{")


async def test_a_switch_takes_the_face_away(memory: Memory) -> None:
    """Then nothing is served at its path."""
    async with serving(memory, Settings(agent=AgentSettings(enabled=False))) as served:
        response = await served.post(call("recall", {}), headers("recall"), path=AGENT)
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "path_not_found"


async def test_what_pictures_show_is_recalled_and_shown(memory: Memory, served: Served) -> None:
    """Of events that only a caption tells apart each is found by its own words."""
    for at, caption in enumerate(("a painting of a sunset over a lake", "a heron in the reeds", "")):
        shown = {"text": "Look at this!", "speaker": "me", **({"media": [{"caption": caption}]} if caption else {})}
        sent = event(participants=["agent", "me"], timestamp=f"2026-05-01T10:0{at}:00Z", payload=shown)
        await served.call("append_event", sent)
    expected = "Look at this!\n[a painting of a sunset over a lake]"
    assert (await found(served, "the photo of the sunset painting"))[0] == expected
    asked = {"participants": ["me"], "query": "heron photo", "view": "lean"}
    lean = (await served.call("query_event_nodes", asked)).content
    assert lean["root"]["children"][0]["text"] == "Look at this!\n[a heron in the reeds]"


async def test_raw_events_are_recalled_and_forgotten_too(memory: Memory, served: Served) -> None:
    """What the core face appended for the same people is recalled by its handle, and forgotten by it; not by others."""
    await served.call("append_event", event(participants=["agent", "me"], text="The kiln was repaired"))
    (fragment,) = (await ask(served, "recall", text="kiln"))["fragments"]
    assert (fragment["content"], fragment["id"][:2]) == ("The kiln was repaired", "e:")
    listed = await ask(served, "forget", id=fragment["id"], dryRun=True)
    assert [item["id"] for item in listed["fragments"]] == [fragment["id"]]
    async with serving(memory, Settings(agent=AgentSettings(pool=False))) as strict:
        refused = await ask(strict, "forget", id=fragment["id"], agentId="planner")
        assert (refused["deleted"], refused["code"]) == (0, "event_not_found")
        absent = await ask(strict, "forget", id="e:000000000", agentId="planner")
        assert refused["error"].replace(fragment["id"], "") == absent["error"].replace("e:000000000", "")
    assert (await ask(served, "forget", id=f"[{fragment['id']}]"))["deleted"] == 1
    assert (await ask(served, "recall", text="kiln"))["count"] == 0
    async with serving(memory, Settings(agent=AgentSettings(pool=False))) as strict:
        refused = await ask(strict, "restore", id=fragment["id"], agentId="planner")
        absent = await ask(strict, "restore", id="e:000000000", agentId="planner")
        assert refused["code"] == absent["code"] == "event_not_found"
        assert refused["error"].replace(fragment["id"], "") == absent["error"].replace("e:000000000", "")
    restored = await ask(served, "restore", id=f"[{fragment['id']}]")
    assert restored["restored"]
    assert await found(served, "kiln") == ["The kiln was repaired"]
    for name in (restored["id"], fragment["id"]):
        assert (await ask(served, "restore", id=name))["id"] == restored["id"]  # a repeat changes nothing
        assert (await ask(served, "forget", id=name))["deleted"] == 1
        assert await found(served, "kiln") == []
        await ask(served, "restore", id=name)
        assert await found(served, "kiln") == ["The kiln was repaired"]
