"""`myria import --from memtrace`: rows of Arc, and answers of Memtrace's API, become memories, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Call

ROW = {
    "time": "2026-02-07T20:15:00.123456789Z",
    "org_id": "org_default",
    "agent_id": "crawler",
    "session_id": "sess_00112233445566778899aabb",
    "memory_type": "decision",
    "event_type": "page_crawled",
    "content": "Crawled https://example.com",
    "metadata_json": '{"pages": 3}',
    "tags_csv": "web,v1.2",
    "dedup_key": "00112233445566778899aabbccddeeff",
    "importance": 0.7,
    "parent_id": "",
}
ANSWER = {
    "memories": [{"time": "2026-02-07T20:16:00Z", "agent_id": "crawler", "content": "Rate limited", "tags": ["web"]}],
    "count": 1,
    "has_more": False,
}
ARC = {"columns": ["time", "agent_id", "content"], "data": [["2026-02-07T20:17:00Z", "crawler", "Done"]]}


def export(tmp_path: Path, *lines: Any) -> Path:
    file = tmp_path / "events.jsonl"
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    file.write_text("\ufeff" + text, encoding="utf-8")
    return file


def test_rows_become_memories(myria: Call, tmp_path: Path) -> None:
    """With their time and all that the contract has, twice what was kept twice; a repeat adds nothing."""
    file = export(tmp_path, ROW, ROW, ANSWER, "", ARC)
    first = myria("import", file, "--from", "memtrace", "--as", "me", "--json").json
    assert (first["imported"], first["refused"], first["blank"]) == (4, 0, 1)
    again = myria("import", file, "--from", "memtrace", "--as", "me", "--json").json
    assert (again["imported"], again["already_there"]) == (0, 4)
    kept = myria("events", "--limit", "100", "--json").lines
    assert len(kept) == 4
    whole = next(line for line in kept if line["payload"]["text"].startswith("Crawled"))
    assert whole["participants"] == ["me", "org"]
    assert whole["timestamp"].startswith("2026-02-07T20:15:00.123456")
    assert whole["payload"]["speaker"] == "crawler"
    note = whole["payload"]["note"]
    assert (note["kind"], note["topic"], note["importance"]) == ("decision", "page_crawled", 0.7)
    assert note["memory"] == {
        "agent_id": "crawler",
        "event_type": "page_crawled",
        "tags": ["web", "v1.2"],
        "metadata": {"pages": 3},
        "importance": 0.7,
        "dedup_key": ROW["dedup_key"],
        "dedup_within_s": 0,
        "shared_with": "org",
    }


def test_rows_that_are_no_memories_are_named(myria: Call, tmp_path: Path) -> None:
    """Each by its line and reason; the good ones go in."""
    bad = [
        "{",
        "3",
        {"agent_id": "bot", "content": "no time"},
        ROW | {"content": ""},
        ROW | {"agent_id": "1 bot"},
        ROW | {"importance": 7},
        ROW | {"metadata_json": "[1]"},
        ROW | {"time": "yesterday"},
    ]
    answer = myria("import", export(tmp_path, *bad, ROW), "--from", "memtrace", "--json")
    assert answer.status == 2
    assert (answer.json["imported"], answer.json["refused"]) == (1, len(bad))
