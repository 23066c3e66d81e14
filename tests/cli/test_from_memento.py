"""`myria import --from memento`: fragments become notes, once, of those whose they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Call

WHOLE = {
    "id": "frag-00112233aabbccdd",
    "content": "We deploy on Tuesdays, mail ops@example.com before",
    "topic": "deployment",
    "type": "procedure",
    "keywords": ["Deploy", "tuesday"],
    "importance": 0.7,
    "source": "session:42",
    "agent_id": "default",
    "created_at": "2026-04-20T10:11:12.345Z",
    "is_anchor": True,
    "case_id": None,
    "idempotency_key": None,
    "goal": None,
    "outcome": None,
    "phase": None,
    "resolution_status": None,
    "assertion_status": "observed",
}


def export(tmp_path: Path, *lines: Any) -> Path:
    file = tmp_path / "fragments.jsonl"
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    file.write_text("\ufeff" + text, encoding="utf-8")
    return file


def notes_of(myria: Call) -> dict[str, Any]:
    return {line["payload"]["text"]: line for line in myria("events", "--limit", "100", "--json").lines}


def test_fragments_become_notes(myria: Call, tmp_path: Path) -> None:
    """What a note has is kept, with its time; an agent's fragments are that agent's; a repeat adds nothing."""
    mine = WHOLE | {"id": "frag-1", "content": "Quiet hours are nights", "agent_id": "planner", "is_anchor": False}
    sparse = {"id": "frag-2", "content": "The pump was replaced", "created_at": "2026-01-02T03:04:05+00:00"}
    file = export(tmp_path, WHOLE, mine, sparse, "")
    first = myria("import", file, "--from", "memento", "--as", "me", "--as", "home", "--json")
    assert first.json | {"redacted": 1} == first.json
    assert (first.json["imported"], first.json["refused"], first.json["blank"]) == (3, 0, 1)
    again = myria("import", file, "--from", "memento", "--as", "me", "--as", "home", "--json").json
    assert (again["imported"], again["already_there"]) == (0, 3)
    notes = notes_of(myria)
    assert len(notes) == 3
    whole = next(note for text, note in notes.items() if text.startswith("We deploy"))
    assert "ops@example.com" not in whole["payload"]["text"]
    assert whole["timestamp"].startswith("2026-04-20T10:11:12.345")
    assert whole["participants"] == ["home", "me"]
    assert whole["payload"]["note"] | {"version": 1} == {
        "id": whole["payload"]["note"]["id"],
        "version": 1,
        "kind": "procedure",
        "topic": "deployment",
        "keywords": ["deploy", "tuesday"],
        "importance": 0.7,
        "lifetime": "permanent",
        "anchor": True,
        "source": "session:42",
        "details": {"assertion_status": "observed"},
    }
    assert notes["Quiet hours are nights"]["participants"] == ["home", "me", "planner"]
    assert notes["Quiet hours are nights"]["payload"]["speaker"] == "planner"
    assert notes["The pump was replaced"]["payload"]["note"]["source"] == "memento"


def test_lines_that_are_no_fragments_are_named(myria: Call, tmp_path: Path) -> None:
    """Each with its number and reason; the good ones go in."""
    bad = [
        "{",
        "[]",
        {"id": "x", "created_at": WHOLE["created_at"]},
        {"id": "x", "content": "no time"},
        WHOLE | {"type": "opinion"},
        WHOLE | {"importance": 7},
        WHOLE | {"keywords": "one"},
        WHOLE | {"valid_to": "2026-05-01T00:00:00Z"},
        WHOLE | {"content": "x" * 20_000},
        WHOLE | {"agent_id": "a\u200bb"},
    ]
    answer = myria("import", export(tmp_path, *bad, WHOLE), "--from", "memento", "--json")
    assert answer.status == 2
    assert (answer.json["imported"], answer.json["refused"]) == (1, len(bad))
    told = [json.loads(line) for line in answer.err.splitlines() if line.startswith("{")]
    assert sorted(line["line"] for line in told) == list(range(1, len(bad) + 1))


def test_options_that_do_not_go_together(myria: Call, tmp_path: Path) -> None:
    """Other formats, and --as for events, are refused before anything is read."""
    file = export(tmp_path, WHOLE)
    assert "memento" in myria("import", file, "--from", "elsewhere").err
    assert "--from" in myria("import", file, "--as", "me").err
