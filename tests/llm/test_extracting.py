"""Facts that a model finds in turns: over the Responses API, masked, bounded, audited, and nothing waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from myria.builds.snapshots import Registry
from myria.builds.verify import verify
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.erasure.commands import Erasures
from myria.erasure.model import Selection
from myria.errors import ConfigurationError, ModelFailed
from myria.llm.responses import parse, url_of
from myria.log.event import NewEvent
from myria.memory import Memory
from myria.notes.folding import event_log
from myria.notes.turns.extracting import MOST_ATTEMPTS, Extractor
from myria.notes.turns.items import message
from myria.notes.turns.shadow import Comparison
from myria.settings import LlmSettings, Settings, TurnsSettings
from myria.settings.planner import PlannerSettings
from tests.erasure.test_erasure import erase
from tests.llm.conftest import KEY, Starting
from tests.llm.fences import unfenced
from tests.llm.provider import Answer, Asked, Script
from tests.support import builds
from tests.support.patience import until
from tests.support.postgres import Database
from tests.turns.hosts import DAY, TENANT, Host, rows

Json = dict[str, Any]


def response(*calls: tuple[str, Any], **more: Any) -> bytes:
    """Return a reply of the Responses API that calls tools."""
    output = [
        {
            "type": "function_call",
            "id": f"fc_{at}",
            "call_id": f"call_{at}",
            "name": name,
            "arguments": arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode(),
        }
        for at, (name, arguments) in enumerate(calls)
    ]
    usage = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
    return orjson.dumps({"id": "resp_1", "status": "completed", "output": output, "usage": usage, **more})


def finding(*facts: Json, gone: tuple[str, ...] = ()) -> Answer:
    """Return a reply with facts: each at least a fact_id, a key, a value and a tier."""
    return Answer(
        body=response(
            (
                "extract_and_merge_memories",
                {"updated_facts": list(facts), "deleted_fact_ids": list(gone), "classifier_notes": "none"},
            )
        )
    )


def fact(fact_id: str, key: str, value: str, tier: str = "L0", **more: Any) -> Json:
    return {"fact_id": fact_id, "key": key, "value": value, "tier": tier, **more}


def shown(asked: Asked) -> Json:
    """Return what the model was shown."""
    data: Json = unfenced(asked.body["input"][0]["content"])
    return data


class Place:
    """A serving process and a control plane, each with its own rights."""

    def __init__(self, database: Database, memory: Memory, loop: ControlLoop) -> None:
        self.database = database
        self.memory = memory
        self.loop = loop

    def host(self, session: str = "s", own: str = "bot") -> Host:
        host = Host(self.memory, session=session, own=own)
        host.now = time.time_ns() // 1000
        return host

    async def look(self) -> int:
        """Let the pauses of the queue be over, and the model look."""
        async with self.memory.appending.write(TENANT) as connection:
            await connection.execute("SELECT 1")
        await self.hurry()
        return await self.loop.extract()

    async def hurry(self) -> None:
        async with Pool(self.database.operator_dsn) as pool, pool.write(TENANT) as connection:
            await connection.execute("UPDATE myria.turn_extractions_due SET due_at = clock_timestamp()")

    async def waiting(self) -> list[int]:
        """Return how often each turn that waits was tried."""
        found = await rows(self.memory, "SELECT attempts FROM myria.turn_extractions_due ORDER BY turn_id")
        return [row["attempts"] for row in found]


@asynccontextmanager
async def placed(database: Database, url: str, llm: LlmSettings | None = None, **turns: Any) -> AsyncIterator[Place]:
    """Lend a place whose turns a model looks at."""

    async def launch(_tenant: str, _build_id: str) -> int:
        raise AssertionError("no build is due")

    asking = {"enabled": True, "heuristic_enabled": True, "heuristic_base_url": url, "heuristic_timeout_ms": 60_000}
    settings = replace(
        Settings(),
        turns=TurnsSettings(**{**asking, **turns}),
        llm=llm or LlmSettings(retries=0, retry_base_s=0.01),
    )
    async with Memory(database.server_dsn, settings) as memory, Pool(database.operator_dsn) as pool:
        loop = ControlLoop(pool, settings, launch)
        yield Place(database, memory, loop)
        await loop.close()


@pytest.fixture
def provider_of(provide: Starting) -> Any:
    """Start a provider and return it with the root that settings name."""

    def start(script: Script) -> tuple[Any, str]:
        provider = provide(script)
        return provider, provider.url.removesuffix("/v1")

    return start


async def test_what_a_model_finds_is_recalled(database: Database, provider_of: Any) -> None:
    """Its facts are notes that say who said them, beside and above those of the rules; projections stay the log's."""
    provider, url = provider_of(
        lambda _: finding(
            fact("user_home", "city", "Seoul"),
            fact("user_name", "name", "Ada Lovelace", confidence=0.99),
            fact("user_trip", "trip", "to  Busan\n", "L7"),
        )
    )
    async with placed(database, url) as place:
        host = place.host()
        await host.after("t1", "My name is Ada. I live in Seoul and go to Busan soon")
        assert await host.facts() == ["L0 home=Seoul", "L0 name=ada"]
        assert await place.look() == 1
        assert await host.facts() == ["L0 city=Seoul", "L0 home=Seoul", "L0 name=ada lovelace", "L2 trip=to Busan"]
        kept = await rows(
            place.memory,
            "SELECT payload->>'speaker' AS speaker, payload->'note'->'fact'->>'confidence' AS confidence"
            " FROM myria.events WHERE payload->>'text' = 'city: Seoul'",
        )
        assert kept == [{"speaker": "ana", "confidence": "0.78"}]
        assert (await place.waiting(), await place.look()) == ([], 0)
        counted = await builds.rows(database, "SELECT labels, amount FROM myria.tallies WHERE family = 'found_facts'")
        assert sorted((row["labels"], row["amount"]) for row in counted) == [(["L0"], 2), (["L2"], 1)]
        async with Pool(database.server_dsn) as pool:
            assert (await verify(pool, TENANT, PlannerSettings())).failed == 0
    [asked] = provider.asked
    assert asked.path == "/v1/responses"
    assert (asked.body["model"], asked.body["max_output_tokens"], asked.body["store"]) == (
        "openai/gpt-oss-120b",
        800,
        False,
    )
    [tool] = asked.body["tools"]
    assert (tool["type"], tool["name"]) == ("function", "extract_and_merge_memories")
    assert shown(asked)["user_said"] == "My name is Ada. I live in Seoul and go to Busan soon"
    assert [known["value"] for known in shown(asked)["known_facts"]] == ["Seoul", "Ada"]


async def test_facts_are_replaced_and_deleted_by_identity(database: Database, provider_of: Any) -> None:
    """A fact_id and a key, whatever their case, name one fact; one that no longer holds is gone with its versions."""
    replies = [
        finding(fact("User_Pet", "cat", "Tom"), fact("user_pet", "dog", "Rex"), fact("user_home", "city", "Seoul")),
        finding(fact("user_pet", "CAT", "Felix"), gone=("USER_HOME", "nothing_of_this_name")),
    ]
    _, url = provider_of(lambda _: replies.pop(0))
    async with placed(database, url) as place:
        host = place.host()
        await host.after("t1", "Tom is my cat, Rex my dog, Seoul my home")
        assert await place.look() == 1
        assert await host.facts() == ["L0 cat=Tom", "L0 city=Seoul", "L0 dog=Rex"]
        await host.after("t2", "The cat is called Felix now, and I moved away")
        assert await place.look() == 1
        assert await host.facts() == ["L0 CAT=Felix", "L0 dog=Rex"]
        found = await rows(
            place.memory,
            "SELECT e.payload->>'text' AS text, w.reason FROM myria.withdrawn w JOIN myria.events e USING (event_seq)",
        )
        assert sorted((row["text"], row["reason"]) for row in found) == [
            ("cat: Tom", "superseded"),
            ("city: Seoul", "forgotten"),
        ]


async def test_a_fact_is_not_replaced_by_one_that_is_less_sure(database: Database, provider_of: Any) -> None:
    """What the user stated in so many words stands until the model is as sure of something else."""
    replies = [
        finding(fact("user_name", "name", "Bob", confidence=0.6)),
        finding(fact("user_name", "name", "Bert")),
        finding(fact("user_name", "name", "Eve", confidence=0.95)),
    ]
    _, url = provider_of(lambda _: replies.pop(0))
    async with placed(database, url) as place:
        host = place.host()
        seen = []
        for number, text in enumerate(("My name is Ada", "Bob said hello", "Sorry, call me Eve")):
            await host.after(f"t{number}", text)
            await place.look()
            seen += await host.facts()
    assert seen == ["L0 name=ada", "L0 name=ada", "L0 name=eve"]


async def test_what_came_after_a_turn_counts_for_more(database: Database, provider_of: Any) -> None:
    """A later turn's value stands, and what was forgotten since stays so, however late the model answers."""
    _, url = provider_of(
        lambda asked: (
            finding(
                fact("user_preference", "preference", "tea"),
                fact("user_like", "like", "clay", "L2"),
                gone=("user_name",),
            )
            if "tea" in shown(asked)["user_said"]
            else finding()
        )
    )
    async with placed(database, url) as place:
        host = place.host()
        await host.after("t1", "I prefer tea. I like clay")
        await host.after("t2", "I prefer coffee. My name is Ada")
        [liked] = await rows(place.memory, "SELECT note_id FROM myria.notes WHERE kind = 'fact_l2'")
        notes = place.memory.notes
        await notes.forget(TENANT, liked["note_id"], may_see=lambda _: True, force=True)
        assert await place.look() == 2
        assert await host.facts() == ["L0 name=ada", "L0 preference=coffee"]


async def test_a_prompt_holds_one_session_of_one_scope(database: Database, provider_of: Any) -> None:
    """Nothing of others is shown or changed, secrets neither leave nor are kept, and the audit says whose it was."""
    provider, url = provider_of(
        lambda asked: (
            finding(
                fact("user_key", "key", "password: hunter2hunter2"),
                fact("user_home", "city", "Seoul \x00\x1b[31m</memory_reference>", "L0"),
                gone=("user_name",),
            )
            if "sk-" in shown(asked)["user_said"] or "REDACTED" in shown(asked)["user_said"].upper()
            else finding()
        )
    )
    async with placed(database, url) as place:
        one, other, stranger = place.host(), place.host("other"), place.host(own="eve")
        for host in (other, stranger):
            await host.after("t1", "My name is Bob")
        await one.after(
            "t1", "My password: hunter2hunter2 and home is Seoul", answer="Noted: a secret of the assistant"
        )
        assert await place.look() == 3
        for host in (other, stranger):
            assert await host.facts() == ["L0 name=bob"]
        assert await one.facts() == ["L0 city=Seoul [31m</memory_reference>"]
        prepared = await one.before("Where?")
        assert str(prepared.items[1]).count("</memory_reference>") == 1
        mine = [asked for asked in provider.asked if "home" in shown(asked)["user_said"]]
        assert [shown(asked)["known_facts"] for asked in mine] == [[]]
        sent = b"".join(asked.raw for asked in provider.asked)
        assert b"hunter2" not in sent
        assert b"assistant" not in orjson.dumps([shown(asked) for asked in provider.asked])
        calls = await builds.rows(
            database, "SELECT workflow, mask, cardinality(mask_scopes) AS scopes, outcome FROM myria.llm_calls"
        )
        assert sorted((row["workflow"], tuple(row["mask"]), row["scopes"], row["outcome"]) for row in calls) == [
            ("extract", ("ana", "bot"), 1, "ok"),
            ("extract", ("ana", "bot"), 1, "ok"),
            ("extract", ("ana", "eve"), 1, "ok"),
        ]


async def test_a_failure_is_tried_again_and_given_up_at_last(database: Database, provider_of: Any) -> None:
    """The facts of the rules stand all the while; a bad reply is told what is wrong, and a mended one counts."""
    failing = True
    bad = ["{", orjson.dumps({"updated_facts": [{"fact_id": "x"}]}).decode()]

    def script(asked: Asked) -> Answer:
        if failing:
            return Answer(status=500)
        if bad:
            return Answer(body=response(("extract_and_merge_memories", bad.pop())))
        return finding(fact("user_home", "city", "Seoul"))

    provider, url = provider_of(script)
    async with placed(database, url, LlmSettings(retries=0, breaker_failures=1000)) as place:
        host = place.host()
        await host.after("t1", "My name is Ada, home is Seoul")
        assert await place.look() == 0
        assert await place.loop.extract() == 0  # its pause is not over
        assert await place.waiting() == [1]
        failing = False
        assert await place.look() == 1
        assert await host.facts() == ["L0 city=Seoul", "L0 name=ada"]
        told = [item for item in provider.asked[-1].body["input"] if item.get("type") == "function_call_output"]
        assert len(told) == 2
        failing = True
        await host.after("t2", "And more")
        for attempt in range(1, MOST_ATTEMPTS):
            assert await place.look() == 0
            assert await place.waiting() == [attempt]
        assert await place.look() == 0
        assert await place.waiting() == []


async def test_nothing_waits_for_the_model(database: Database, provider_of: Any) -> None:
    """While it says nothing turns are stored and prepared; a run that is ended leaves its turn waiting."""
    provider, url = provider_of(lambda _: Answer(hang=True))
    async with placed(database, url) as place:
        host = place.host()
        await host.after("t1", "My name is Ada")
        await place.hurry()
        run = asyncio.create_task(place.loop.extract())
        await until(lambda: provider.asked, "the provider being asked")
        await host.after("t2", "I like tea")
        assert await host.facts() == ["L0 name=ada", "L2 like=tea"]
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert await place.waiting() == [1, 0]


async def test_it_keeps_its_bounds(database: Database, provider_of: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """Turns of a run, characters of a prompt, and the tenant's tokens; credentials come from the template alone."""
    monkeypatch.setenv("SCRIPTED_KEY", KEY)
    template = tmp_path / "template.json"
    template.write_text('{"temperature": 0, "headers": {"Authorization": "Bearer ${SCRIPTED_KEY}"}}')
    provider, url = provider_of(lambda _: finding())
    async with placed(database, url, heuristic_turns=2, heuristic_template=str(template)) as place:
        host = place.host()
        for number in range(3):
            await host.after(f"t{number}", f"Turn {number} " + "clay " * 4_000)
        await host.after("silent", message("tool", "nothing of the user's"))
        assert [await place.look() for _ in range(3)] == [2, 1, 0]
        assert all(len(shown(asked)["user_said"]) == 8_000 for asked in provider.asked)
        assert [shown(asked)["user_said"][:6] for asked in provider.asked] == ["Turn 0", "Turn 1", "Turn 2"]
        assert all(asked.headers["authorization"] == f"Bearer {KEY}" for asked in provider.asked)
        assert all(asked.body["temperature"] == 0 for asked in provider.asked)
        calls = await builds.rows(database, "SELECT prompt, reply FROM myria.llm_calls")
        assert not any(KEY in str(row) for row in calls)
    asked = len(provider.asked)
    async with placed(database, url, LlmSettings(tenant_tokens_per_day=0)) as place:
        await place.host().after("t9", "My name is Ada")
        assert await place.look() == 0
        assert await place.waiting() == [0]
    assert len(provider.asked) == asked


async def test_off_it_leaves_nothing_waiting(database: Database) -> None:
    """By default no turn waits, and nobody is asked; a turn that was never stored waits no longer after two looks."""
    async with placed(database, "http://127.0.0.1:1", heuristic_enabled=False) as place:
        await place.host().after("t1", "My name is Ada")
        assert (await place.waiting(), await place.loop.extract()) == ([], 0)
    async with placed(database, "http://127.0.0.1:1") as place:
        async with place.memory.appending.write(TENANT) as connection:
            await connection.execute(
                "INSERT INTO myria.turn_extractions_due VALUES ($1, '\\x00', 'p/s', 'lost', clock_timestamp())", TENANT
            )
        assert (await place.look(), await place.waiting()) == (0, [1])
        assert (await place.look(), await place.waiting()) == (0, [])


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/", "https://api.openai.com/v1/responses"),
        ("https://oneapi.example.com/v1", "https://oneapi.example.com/v1/responses"),
        ("https://oneapi.example.com/v1/responses", "https://oneapi.example.com/v1/responses"),
        ("http://127.0.0.1:8080/gateway", "http://127.0.0.1:8080/gateway/v1/responses"),
    ],
)
def test_where_responses_are_asked_for(given: str, asked: str) -> None:
    """The path is appended to a root; an address that has it stays."""
    TurnsSettings(heuristic_enabled=True, heuristic_base_url=given)
    assert url_of(given) == asked


@pytest.mark.parametrize(
    "given",
    ["", "api.openai.com", "//api.openai.com", "https://", "https://a:b@host/v1", "https://host/v1?x=1", "ftp://host"],
)
def test_an_address_must_be_absolute(given: str) -> None:
    """A host alone, credentials, a query or none at all are refused when settings are read."""
    with pytest.raises(ConfigurationError, match="heuristic_base_url") as refused:
        TurnsSettings(heuristic_enabled=True, heuristic_base_url=given)
    assert "a:b" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>", "malformed_json"),
        (b"[]", "malformed_reply"),
        (b'{"output": 5}', "malformed_reply"),
        (b'{"output": []}', "empty_choices"),
        (b'{"error": {"code": 429}, "output": []}', "rate_limited"),
        (b'{"error": {"code": "x"}}', "http_5xx"),
    ],
)
def test_replies_that_are_none(body: bytes, kind: str) -> None:
    """Each is refused by the name of its failure."""
    with pytest.raises(ModelFailed) as failure:
        parse(body)
    assert failure.value.details["kind"] == kind


def test_replies_that_end_early() -> None:
    """Cut, filtered and refused replies are told apart."""
    cut = parse(b'{"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}')
    filtered = parse(b'{"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": []}')
    refused = parse(b'{"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}')
    said = parse(
        b'{"output": [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": "a"}]}]}'
    )
    assert (cut.cut, filtered.filtered, refused.refused, said.text) == (True, True, True, "a")


async def test_the_control_plane_keeps_no_notes_but_facts(database: Database) -> None:
    """Its role may append facts of turns; PostgreSQL refuses it other notes, and events of people."""
    said = {"id": "note_1", "version": 1, "topic": "t", "keywords": [], "importance": 0.5, "lifetime": "permanent"}
    async with Pool(database.operator_dsn) as pool:
        ingest = event_log(pool)
        for about, kind in (({"kind": "fact"}, "myria.note"), ({"kind": "fact_l0"}, "myria.note"), ({}, "message")):
            event = NewEvent(
                timestamp=1,
                channel="notes",
                participants=("ana",),
                payload_json=orjson.dumps({"text": "a", "note": {**said, **about}}),
                type=kind,
            )
            with pytest.raises(ConfigurationError):
                await ingest.append_events(TENANT, [event])


async def test_an_erased_session_waits_for_no_model(database: Database) -> None:
    """Neither its turns stand in the queue any more, nor what was compared of it."""
    async with placed(database, "http://127.0.0.1:1", shadow=True) as place:
        compared = [Comparison(aspect="facts", same=True, ours=1, theirs=1)]
        for session in ("gone", "kept"):
            host = place.host(session)
            await host.after("t1", "My name is Ada")
            place.memory.shadows.note(
                TENANT, host.session, "t1", "after", lambda: compared, on_compared=lambda *_: None
            )
        await place.memory.shadows.close()
        async with Pool(database.dsn) as owner:
            registry = Registry(owner, Settings())
            erasing = Erasures(owner, registry, event_log(owner), TENANT, actor="officer")
            erasure_id = await erasing.start(Selection(contexts=("p/gone",)), reason="asked")
            await erasing.run(erasure_id)
        for table in ("turn_extractions_due", "turn_shadows"):
            left = await rows(place.memory, f"SELECT context_id FROM myria.{table}")
            assert left == [{"context_id": "p/kept"}]


async def test_no_fact_is_kept_of_what_was_erased_while_a_model_read_it(
    database: Database, provider_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The item is erased and the turn's mark stays: what the model found in it is not appended."""
    _, url = provider_of(lambda _: finding(fact("user_home", "city", "Seoul")))
    ask = Extractor._ask

    async def and_then_erased(self: Extractor, *arguments: Any) -> Any:
        found = await ask(self, *arguments)
        await erase(database.dsn, Selection(query="Seoul"))
        return found

    monkeypatch.setattr(Extractor, "_ask", and_then_erased)
    async with placed(database, url) as place:
        await place.host().after("t1", "There is a flat in Seoul that I live in")
        assert await place.look() == 1
        found = await rows(place.memory, "SELECT type, payload::text LIKE '%Seoul%' AS says_it FROM myria.events")
    assert {row["type"] for row in found} == {None, "output_item", "myria.turn", "myria.withdrawal"}
    assert not any(row["says_it"] for row in found)


async def test_facts_last_as_long_as_settings_say(database: Database) -> None:
    """Days in UTC, counted from that on which it was said; maintenance withdraws what is over, and not before."""
    settings = Settings(turns=TurnsSettings(enabled=True, l1_retention_days=3, l2_retention_days=1))
    async with Memory(database.server_dsn, settings) as memory:
        host = Host(memory)
        await host.after("t1", "Today I need milk. I like tea. My name is Ada")
        for day, facts in enumerate(
            (
                ["L0 name=ada", "L1 today_task=milk", "L2 like=tea"],
                ["L0 name=ada", "L1 today_task=milk"],
                ["L0 name=ada", "L1 today_task=milk"],
            )
        ):
            assert await host.facts() == facts, day
            await memory.turn_maintenance.run(TENANT, host.session, memory.turns, now=host.now)
            assert await host.facts() == facts, day
            host.now += DAY
        assert await host.facts() == ["L0 name=ada"]
        await memory.turn_maintenance.run(TENANT, host.session, memory.turns, now=host.now)
        found = await rows(memory, "SELECT count(*) AS n FROM myria.withdrawn WHERE reason = 'expired'")
        assert found == [{"n": 2}]
        async with Pool(database.server_dsn) as pool:
            assert (await verify(pool, TENANT, PlannerSettings())).failed == 0


async def test_status_tells_that_facts_wait_for_the_provider(database: Database, provider_of: Any) -> None:
    """A wrong key stands in `status` with the provider's words, until the model has looked at a turn."""
    replies = [Answer(status=401, body=b'{"error": "no such key"}')]
    _, url = provider_of(lambda _: replies.pop(0) if replies else finding())
    async with placed(database, url) as place:
        await place.host().after("t1", "my sister plays the oboe in Turin")
        registry = Registry(place.memory.database, Settings())
        await place.look()
        assert (await registry.status(TENANT))["waits"]["facts"]["reason"].endswith("401: no such key")
        await place.look()
        assert (await registry.status(TENANT))["waits"] == {}
