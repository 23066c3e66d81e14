"""The lean view and the text format of the core tools, over HTTP: what they say, how much they cost, how they go on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from myria.text.model_tokens import token_counter
from myria_server.api.answers import LeanTree
from myria_server.api.tools import TOOLS, output_schema
from tests.server.wire import LEGACY, MODERN, Served, call, event, headers
from tests.support.building import build_now
from tests.support.postgres import Database

Json = dict[str, Any]

WHO = ["user_42"]
TOOLS_ASKED = ("query_event_nodes", "query_references")
HANDLE = re.compile(r"\[(e:[0-9A-Z]{7,13})\]")


async def ask(served: Served, name: str, *, version: str = MODERN, **arguments: Any) -> tuple[str, Json]:
    """Return a call's text and its structured content, which fits the tool's schema."""
    message = call(f"myria.{name}", {"participants": WHO, **arguments}, version=version)
    response = await served.post(message, headers(f"myria.{name}", version=version))
    result = response.json()["result"]
    assert not result["isError"], result
    schema = output_schema(next(tool for tool in TOOLS if tool.name == name))
    jsonschema.Draft202012Validator(schema).validate(result["structuredContent"])
    return result["content"][0]["text"], result["structuredContent"]


def events(node: Json) -> Iterator[Json]:
    for child in node["children"]:
        if child["kind"].startswith("event"):
            yield child
        else:
            yield from events(child)


async def converse(served: Served, database: Database, *, texts: list[str]) -> list[str]:
    """Append a conversation, the last quarter of it after a build, and return the ids."""
    stored: list[Json] = []
    for number, text in enumerate(texts):
        if number == len(texts) * 3 // 4:
            await build_now(database.builder_dsn)
        at = f"2026-03-{number // 6 + 1:02}T10:{number % 6 * 5:02}:00Z"
        payload = {"text": text, "speaker": "Inês" if number % 2 else "Ben"}
        stored.append((await served.call("append_event", event(timestamp=at, payload=payload))).content)
    return [one["event_id"] for one in stored]


GARDEN = [f"The tomatoes in bed {number} want water, said the neighbour of garden {number}" for number in range(40)]
SCRIPTS = [
    *(f"トマトは水をほしがっています。庭の{number}番のベッドです。" for number in range(14)),
    *(f"🍅🌱💧👩‍🌾 bed {number} 🧑🏽‍🌾 waters 🍅🍅" for number in range(13)),
    *(f"def water(bed_{number}): return {{'tomato': [0x{number:04x}, *range({number})]}}" for number in range(13)),
]


async def test_every_reference_names_its_speaker(served: Served, database: Database) -> None:
    """In the full view as well, with snippets and with payloads; where a payload names nobody it is null."""
    await converse(served, database, texts=GARDEN)
    await served.call("append_event", event(payload={"text": "tomatoes without a speaker"}))
    for whole in (False, True):
        _, content = await ask(served, "query_references", query="tomatoes", include_payload=whole)
        found = [node for node in events(content["root"]) if node["kind"] == "event_ref"]
        assert found
        assert {node["speaker"] for node in found} <= {"Ben", "Inês"}
    _, content = await ask(served, "query_references", query="speaker", order="newest")
    assert None in [node["speaker"] for node in events(content["root"])]


@pytest.mark.parametrize("name", TOOLS_ASKED)
async def test_json_without_a_view_stays_full(served: Served, database: Database, name: str) -> None:
    """Who names neither gets what was always answered; lean is a part of it, in the same order."""
    await converse(served, database, texts=GARDEN)
    text, full = await ask(served, name, query="tomatoes in bed 3")
    assert json.loads(text) == full
    assert {"constraints", "counts"} < full.keys()
    _, again = await ask(served, name, query="tomatoes in bed 3", view="full", format="json")
    # A cursor says which transactions had ended, and those of other databases of the server are counted, too.
    assert again | {"next_cursor": None} == full | {"next_cursor": None}
    lean_text, lean = await ask(served, name, query="tomatoes in bed 3", view="lean")
    LeanTree.model_validate(lean)
    assert json.loads(lean_text) == lean
    assert len(lean_text) < len(text) * 0.7
    same = list(zip(events(full["root"]), events(lean["root"]), strict=True))
    assert same
    for known, shown in same:
        assert shown["event_id"] == known["event_id"]
        assert shown["speaker"] in ("Ben", "Inês")
        assert shown["text"] == (known["payload"]["text"] if "payload" in known else known["snippet"])
        assert not {"score", "participants", "event_seq"} & shown.keys()


@pytest.mark.parametrize("version", [MODERN, LEGACY[-1]])
@pytest.mark.parametrize("name", TOOLS_ASKED)
async def test_text_is_a_line_for_each_memory(served: Served, database: Database, name: str, version: str) -> None:
    """Date, time where a day has several, speaker, words, handle; full text says ids and participants as well."""
    await converse(served, database, texts=GARDEN)
    text, content = await ask(served, name, query="tomatoes in bed 3", format="text", version=version)
    LeanTree.model_validate(content)
    found = list(events(content["root"]))
    assert len(HANDLE.findall(text)) == len(found) > 3
    for node in found:
        assert re.search(
            rf"^2026-03-\d\d( \d\d:\d\d)? {node['speaker']}: {re.escape(node['text'])}.* \[e:", text, re.MULTILINE
        )
    assert "user_42" not in text
    assert "evt_" not in text
    full, _ = await ask(served, name, query="tomatoes in bed 3", format="text", view="full", version=version)
    assert all(node["event_id"] in full for node in found)
    assert "user_42" in full


@pytest.mark.parametrize("name", TOOLS_ASKED)
@pytest.mark.parametrize("texts", [GARDEN, SCRIPTS], ids=["english", "scripts"])
async def test_pages_of_text_keep_their_bound(served: Served, database: Database, name: str, texts: list[str]) -> None:
    """No page of text has more tokens than asked for, whatever the script, and all pages hold each event once."""
    ids = await converse(served, database, texts=texts)
    counter = token_counter()
    for budget in (400, 700):
        seen: list[str] = []
        cursor = None
        for _ in range(2 * len(ids)):
            text, content = await ask(served, name, format="text", max_tokens=budget, cursor=cursor)
            assert counter.count(text) <= budget
            shown = [node["event_id"] for node in events(content["root"])]
            assert len(HANDLE.findall(text)) == len(shown)
            seen += shown + content.get("skipped", {}).get("event_ids", [])
            cursor = content.get("next_cursor")
            if cursor is None:
                break
            assert cursor in text
        assert sorted(seen) == sorted(ids)


async def test_a_tiny_bound_is_kept_too(served: Served, database: Database) -> None:
    """Where not one line fits, the event is named as skipped, and the text stays within the bound."""
    await converse(served, database, texts=GARDEN[:4])
    for name in TOOLS_ASKED:
        for budget in (1, 8, 40, 100):
            text, content = await ask(served, name, format="text", max_tokens=budget)
            assert token_counter().count(text) <= budget
            assert content.get("skipped") or content["root"]["children"]


async def test_handles_stand_for_ids(served: Served, database: Database) -> None:
    """A handle of a text is taken where an id is: to look up, to replace, to forget, to restore."""
    ids = await converse(served, database, texts=GARDEN[:4])
    text, content = await ask(served, "query_event_nodes", format="text", order="oldest")
    handles = dict(zip([node["event_id"] for node in events(content["root"])], HANDLE.findall(text), strict=True))
    found = await served.call("get_event", {"participants": WHO, "event_id": handles[ids[0]].lower()})
    assert found.content["event"]["event_id"] == ids[0]
    new = await served.call("append_event", event(text="Replaced", supersedes=[handles[ids[1]]]))
    assert not new.is_error
    forgotten = await served.call("withdraw_events", {"participants": WHO, "event_ids": [handles[ids[2]], ids[3]]})
    assert forgotten.content["event_ids"] == [ids[2], ids[3]]
    restored = await served.call("restore_events", {"participants": WHO, "event_ids": [handles[ids[2]]]})
    assert restored.content["event_ids"] == [ids[2]]
    assert (await served.call("get_event", {"event_id": "e:nonsense!", "participants": WHO})).code == "invalid_argument"


async def test_handles_of_others_say_nothing(served: Served) -> None:
    """One that stands for what the caller may not see is refused as one that stands for nothing, in the same words."""
    await served.call("append_event", event())
    text, _ = await ask(served, "query_event_nodes", format="text")
    (theirs,) = HANDLE.findall(text)
    absent = "e:999999999"
    mallory = {"participants": ["mallory"]}
    calls: list[tuple[str, Json, Json]] = [
        ("get_event", {"event_id": theirs}, {"event_id": absent}),
        ("withdraw_events", {"event_ids": [theirs]}, {"event_ids": [absent]}),
        ("restore_events", {"event_ids": [theirs]}, {"event_ids": [absent]}),
    ]
    for name, of_others, of_nothing in calls:
        forbidden = await served.call(name, mallory | of_others)
        nothing = await served.call(name, mallory | of_nothing)
        assert forbidden.code == nothing.code == "event_not_found"
        assert json.dumps(forbidden.content).replace(theirs, absent) == json.dumps(nothing.content)
    append = event(participants=["mallory"])
    forbidden = await served.call("append_event", append | {"supersedes": [theirs]})
    nothing = await served.call("append_event", append | {"supersedes": [absent]})
    assert json.dumps(forbidden.content).replace(theirs, absent) == json.dumps(nothing.content)


@pytest.mark.parametrize(
    ("stored", "asked"),
    [("user:ada", "Ada"), ("ada", "user:ada"), ("Ada Lovelace", "ada_lovelace"), ("ada", "ADA"), ("@ada", "ada")],
)
async def test_other_spellings_are_pointed_out(served: Served, stored: str, asked: str) -> None:
    """Where nothing is visible under a name, the answer names the spelling under which there is something."""
    await served.call("append_event", event(participants=[stored, "bot"]))
    for name in TOOLS_ASKED:
        _, content = await ask(served, name, participants=[asked, "bot"])
        assert content["other_spellings"] == {asked: [stored]}
        text, lean = await ask(served, name, participants=[asked, "bot"], format="text")
        assert lean["other_spellings"] == {asked: [stored]}
        assert stored in text
        _, nothing = await ask(served, name, participants=[asked, "someone"])
        assert "other_spellings" not in nothing
        _, found = await ask(served, name, participants=[stored], query="xylophone")
        assert "other_spellings" not in found
