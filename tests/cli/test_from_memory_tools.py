"""`myria import --from memory-tools`: sessions of both layouts become turns with their facts, once, in order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import orjson

from myria.memory import Memory
from myria.notes.turns.items import message
from myria.notes.turns.model import Session
from myria.notes.turns.preparing import Before
from myria.notes.turns.storing import FinishedTurn
from myria.settings import Settings, TurnsSettings
from tests.cli.conftest import Call
from tests.support.postgres import Database

DAY = 86_400 * 10**6
NOW = 20_620 * DAY
"""A day in 2026, well after what is imported."""

MARK = "\ufeff"


def said(turn: str, place: int, text: str, *, end: str = "in", ts: str = "2026-02-03T10:00:00Z") -> dict[str, Any]:
    role, part = ("user", "input_text") if end == "in" else ("assistant", "output_text")
    return {
        "id": f"{turn}-{end}-{place}",
        "ts": ts,
        "type": "input_item" if end == "in" else "output_item",
        "turn_id": turn,
        "user_id": "ana",
        "item": {"type": "message", "role": role, "content": [{"type": part, "text": text}]},
    }


def fact(turn: str, key: str, value: str, *, kind: str = "fact_upsert", ts: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{turn}-{kind}-{key}",
        "ts": ts,
        "type": kind,
        "fact_id": f"user_{key}",
        "key": key,
        "value": value,
        "confidence": 0.95,
        "tier": "L0",
        "source_turn_id": turn,
        **more,
    }


def write(path: Path, *records: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records), encoding="utf-8")


FIRST, SECOND = "2026-02-03T10:00:00Z", "2026-02-04T10:00:00+00:00"
LOG = (
    said("t1", 0, "My name is Ada, password: hunter2hunter2"),
    said("t1", 0, "Hello Ada", end="out"),
    said("t2", 1, "and more", ts=SECOND),
    said("t2", 0, "Call me Eve", ts=SECOND),
    said("t2", 0, "Hello Eve", end="out", ts=SECOND),
)
FACTS = (
    fact("t1", "name", "ada", ts=FIRST),
    fact("t1", "secret", "a thing", ts=FIRST),
    fact("t2", "name", "ada", kind="fact_supersede", state="superseded", ts=SECOND),
    fact("t2", "name", "eve", ts=SECOND),
    fact("t2", "secret", "a thing", kind="fact_delete", state="deleted", ts=SECOND),
    fact("t2", "task", "bake", ts=SECOND, tier="L1", expires_at="2026-02-05T00:00:00Z"),
)


def store(tmp_path: Path) -> Path:
    """Return the folder of all projects: a session as it is written today, and one of the old layout."""
    session = tmp_path / "store" / "proj" / "memory" / "s1"
    write(session / "log.jsonl", *LOG)
    write(session / "events/raw/2026/02/03/log-20260203.jsonl", *LOG[:2])
    write(session / "runtime/context/current.jsonl", *LOG[2:], {"id": "c", "ts": SECOND, "type": "compact_summary"})
    write(session / "memory_facts.jsonl", *FACTS)
    write(session / "memory_tiers/L0/2026/02/facts-202602.jsonl", *FACTS[:5])
    write(session / "indexes/active_facts.json", {"updated_at": SECOND, "facts": {"user_name::name": FACTS[3]}})
    write(session / "meta/state.json", {"version": 1, "processed_turn_ids": ["t1", "t2"]})
    (session / "events/archive/2026/02/01").mkdir(parents=True, exist_ok=True)
    (session / "events/archive/2026/02/01/log-20260201.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    (session / ".abstract").write_text("This folder holds much.")
    old = tmp_path / "store" / "proj" / "memory" / "old"
    write(old / "legacy_log.json", MARK + json.dumps([LOG[0], LOG[1]]))
    write(old / "legacy_memory_facts.json", json.dumps({"facts": [FACTS[0]]}, indent=1))
    return tmp_path / "store"


def imported(myria: Call, file: Path, *more: str) -> dict[str, Any]:
    answer = myria("import", file, "--from", "memory-tools", "--as", "me", "--json", *more)
    counts: dict[str, Any] = answer.json
    return counts | {"status": answer.status, "told": answer.err}


def prompt(database: Database, session_id: str, project: str = "proj") -> tuple[list[str], dict[str, str]]:
    """Return the texts of what goes before the next turn of a session, and its facts."""
    return asyncio.run(_prompt(database.server_dsn, session_id, project))


async def _prompt(dsn: str, session_id: str, project: str) -> tuple[list[str], dict[str, str]]:
    settings = Settings(turns=TurnsSettings(enabled=True))
    async with Memory(dsn, settings) as memory:
        session = Session(own=("me",), participants=("me",), project=project, session_id=session_id)
        asked = Before(
            session=session,
            history=(),
            current=[{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Who?"}]}],
            max_input_tok=120_000,
        )
        prepared = await memory.before_turns.prepare("default", asked, now=NOW)
    texts = [part["text"] for item in prepared.items for part in item["content"]]
    facts = {}
    if prepared.fact_ids:
        facts = {known["key"]: known["value"] for known in orjson.loads(texts[1].split("\n")[1])["facts"]}
        texts = texts[2:]
    return texts, facts


def test_both_layouts_become_turns(myria: Call, database: Database, tmp_path: Path) -> None:
    """What was said is in order and once, the newest facts stand, deleted and expired ones do not; a repeat is none."""
    first = imported(myria, store(tmp_path))
    assert {name: first[name] for name in ("status", "lines", "imported", "refused")} == {
        "status": 0,
        "lines": 3,
        "imported": 3,
        "refused": 0,
    }
    assert first["redacted"] == 2
    again = imported(myria, store(tmp_path))
    assert (again["imported"], again["already_there"]) == (0, 3)
    texts, facts = prompt(database, "s1")
    assert texts == [
        "My name is Ada, password: [REDACTED_PWD]",
        "Hello Ada",
        "Call me Eve",
        "and more",
        "Hello Eve",
        "Who?",
    ]
    assert facts == {"name": "eve"}
    assert (prompt(database, "old"))[1] == {"name": "ada"}
    lines = myria("events", "--limit", "100", "--json").lines
    assert {line["timestamp"][:10] for line in lines} == {"2026-02-03", "2026-02-04"}
    assert {tuple(line["participants"]) for line in lines} == {("ana", "me")}


def test_a_fact_that_is_said_anew_replaces_the_imported_one(myria: Call, database: Database, tmp_path: Path) -> None:
    """Each rule's fact has the identity under which memory-tools keeps it, so one value of it is recalled."""
    said_before = [
        ("user_name", "name", "L0", "My name is Eve"),
        ("user_preference", "preference", "L0", "I prefer clay"),
        ("user_like", "like", "L2", "I like clay"),
        ("today_task", "today_task", "L1", "Today I need clay"),
        ("weekly_task", "weekly_task", "L2", "This week I need clay"),
    ]
    at = "2026-06-16T00:00:00Z"
    write(
        tmp_path / "memory/s1/memory_facts.jsonl",
        *(fact("t1", key, "old", ts=at, fact_id=name, tier=tier) for name, key, tier, _ in said_before),
    )
    assert imported(myria, tmp_path, "--project", "proj")["imported"] == 1
    asyncio.run(_say(database.server_dsn, ". ".join(words for *_, words in said_before)))
    expected = {key: "eve" if key == "name" else "clay" for _, key, _, _ in said_before}
    assert prompt(database, "s1")[1] == expected


async def _say(dsn: str, text: str) -> None:
    """Keep a turn of the session, of the participants of the import, on the day of `NOW`."""
    async with Memory(dsn, Settings(turns=TurnsSettings(enabled=True))) as memory:
        session = Session(own=("me",), participants=("me",), project="proj", session_id="s1")
        turn = FinishedTurn(session=session, turn_id="t2", given=[message("user", text)], came_out=[], is_current=True)
        await memory.turns.store("default", turn, now=NOW)


def test_a_dump_and_a_session_of_its_own(myria: Call, database: Database, tmp_path: Path) -> None:
    """The rows of the files' table as JSON lines, and the folder of one session, say the same as the whole store."""
    folder = store(tmp_path) / "proj"
    dump = tmp_path / "dump.jsonl"
    files = sorted(path for path in folder.rglob("*.json*") if path.suffix != ".zst")
    write(
        dump,
        *(
            {"project": "other", "path": f"/{path.relative_to(folder)}", "content": path.read_text(encoding="utf-8")}
            for path in files
        ),
    )
    assert imported(myria, dump)["imported"] == 3
    assert imported(myria, folder / "memory" / "s1")["imported"] == 2
    assert imported(myria, folder, "--project", "third")["imported"] == 3
    for project in ("other", "default", "third"):
        assert (prompt(database, "s1", project))[1] == {"name": "eve"}


def test_what_cannot_be_read_is_named(myria: Call, database: Database, tmp_path: Path) -> None:
    """A torn line, a turn that no tool takes, a compressed shard: each is told, and the rest goes in."""
    session = tmp_path / "memory" / "s1"
    write(session / "context.jsonl", LOG[0], said("t7", 0, "zero\x00"), '{"id": "t9-in-0", "ts": "20', "[]")
    write(session / "events/archive/2026/02/01/log-20260201.jsonl.zst", "x")
    write(session / "memory_facts.jsonl", fact("t1", "name", "ada", ts="yesterday"))
    write(session / "notes.txt", "nothing of ours")
    answer = imported(myria, tmp_path, "--project", "p")
    assert (answer["status"], answer["imported"], answer["refused"]) == (2, 1, 4)
    assert "zstd -d" in answer["told"]
    assert "context.jsonl" in answer["told"]
    assert "hunter2" not in answer["told"]
    assert (prompt(database, "s1", "p"))[0][0].startswith("My name is Ada")


def test_options_that_do_not_go_together(myria: Call, tmp_path: Path) -> None:
    """A project without sessions, a folder that is none, and a file that is no dump are refused."""
    assert "--project" in myria("import", tmp_path, "--project", "p").err
    assert "cannot be read" in myria("import", tmp_path / "none", "--from", "memory-tools").err
    write(tmp_path / "events.jsonl", {"timestamp": FIRST})
    assert "dump" in myria("import", tmp_path / "events.jsonl", "--from", "memory-tools").err
