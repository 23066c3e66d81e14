"""`myria erase` and `myria verify --receipt`: a dry run first, then a receipt that proves itself."""

from __future__ import annotations

import stat
from pathlib import Path

import orjson

from tests.cli.conftest import Call, call
from tests.support.postgres import Database, Databases

EVENT = {
    "timestamp": "2026-01-01T00:00:00Z",
    "channel": "mail",
    "source_event_key": "m-1",
    "participants": ["eva"],
    "payload": {"text": "The quokka of Zanzibar calls 77810"},
}


def test_an_erasure_is_tried_done_proved_and_refused_again(myria: Call, tmp_path: Path) -> None:
    """Without --yes nothing changes; with it a receipt is written that only its owner reads; the event stays out."""
    events, receipt = tmp_path / "events.jsonl", tmp_path / "receipt.json"
    events.write_bytes(orjson.dumps(EVENT) + b"\n")
    assert myria("import", str(events)).status == 0
    planned = myria("erase", "--participant", "eva", "--json").json
    assert (planned["dry_run"], planned["counts"]["events"]) == (True, 1)
    assert "Zanzibar" in myria("events").out

    asked = ("erase", "--participant", "eva", "--yes")
    assert myria(*asked).status == 2
    done = myria(*asked, "--reason", "request 17", "--receipt", str(receipt), "--vacuum")
    assert done.status == 0
    assert "VACUUM went through" in done.err
    (listed,) = myria("erase", "--list", "--json").json["erasures"]
    assert (listed["state"], listed["events"], listed["erased"], listed["reason"]) == ("done", 1, 1, "request 17")
    assert "request 17" in myria("erase", "--list").out
    assert stat.S_IMODE(receipt.stat().st_mode) == 0o600
    assert "Zanzibar" not in myria("events").out
    assert myria("verify", "--receipt", str(receipt)).status == 0
    assert myria("import", str(events)).status != 0
    assert [entry["action"] for entry in myria("audit", "--access", "--json").json["access"]] == [
        "erase.done",
        "erase.start",
        "erase.plan",
    ]

    assert myria("erase", "--admit", "--source", "mail=m-1").status == 0
    assert myria("import", str(events)).status == 0
    proof = myria("verify", "--receipt", str(receipt), "--json")
    assert proof.status == 1
    assert "erased words are in events" in " ".join(proof.json["problems"])


def test_what_was_erased_is_erased_again_after_a_restore(
    myria: Call, databases: Databases, database: Database, tmp_path: Path
) -> None:
    """The ids that an erasure prints choose the same events in a copy from before, whatever else is there by now."""
    events, ids = tmp_path / "events.jsonl", tmp_path / "ids.txt"
    events.write_bytes(b"".join(orjson.dumps(EVENT | {"source_event_key": f"m-{n}"}) + b"\n" for n in range(3)))
    assert myria("import", str(events)).status == 0
    backup = databases.copy(database)
    try:
        assert myria("erase", "--source", "mail=m-1", "--source", "mail=m-2", "--reason", "r", "--yes").status == 0
        (listed,) = myria("erase", "--list", "--json").json["erasures"]
        ids.write_text("evt_not_there\n" + myria("erase", "--ids", listed["erasure_id"]).out)
        assert len(ids.read_text().split()) == 3
        again = call("erase", "--event-file", ids, "--json", "--dsn", backup.dsn).json
        assert again["counts"]["events"] == 2
    finally:
        databases.drop(backup)
    assert myria("erase", "--event-file", str(tmp_path / "none.txt")).status == 2
    assert myria("erase", "--ids", "era_1").status == 3


def test_what_is_no_receipt_or_erasure_is_refused(myria: Call, tmp_path: Path) -> None:
    """Wrong input is told, and an unknown erasure is not found."""
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert myria("verify", "--receipt", str(other)).status == 2
    assert myria("erase", "--source", "mail").status == 2
    assert myria("erase", "--event", "evt_1", "--receipt", str(other)).status == 2
    assert myria("erase", "--resume", "era_1").status == 3
    assert myria("erase").status == 2
