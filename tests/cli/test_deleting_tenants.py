"""`myria tenant delete`: never by accident, never without a copy unless told so, and all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call


@pytest.fixture
def filled(myria: Call, sample_file: Path) -> Call:
    """The command on a database whose tenant `gone` holds the sample."""
    assert myria("tenant", "create", "gone").status == 0
    assert myria("import", sample_file, "--tenant", "gone").status == 0
    return myria


@pytest.mark.parametrize(
    "arguments", [(), ("--confirm", "other"), ("--confirm", "gone", "--export", "f", "--no-export")]
)
def test_nothing_is_deleted_without_its_name(filled: Call, arguments: tuple[str, ...]) -> None:
    """Without a terminal to ask on, or with another name, or with contradicting options, nothing is changed."""
    refused = filled("tenant", "delete", "gone", *arguments)
    assert refused.status == 2
    assert "invalid_argument" in refused.err
    assert filled("tenant", "show", "gone", "--json").json["state"] == "active"


def test_a_deleted_tenant_can_be_brought_back_from_its_export(filled: Call, tmp_path: Path) -> None:
    """The export that comes first holds every event; after it `tenant show` says that nothing is left."""
    copy = tmp_path / "gone.jsonl"
    answer = filled("tenant", "delete", "gone", "--confirm", "gone", "--export", copy, "--json").json
    assert answer["state"] == "deleted"
    assert answer["events_exported"] == answer["removed"]["events"] == 60
    shown = filled("tenant", "show", "gone")
    assert shown.status == 3
    assert "nothing of it is left" in shown.err
    again = filled("import", copy, "--tenant", "gone", "--json").json
    assert again["imported"] == 60


def test_an_export_never_replaces_a_file(filled: Call, tmp_path: Path) -> None:
    """A file that is there is left as it is, and so is the tenant."""
    copy = tmp_path / "gone.jsonl"
    copy.write_text("precious")
    refused = filled("tenant", "delete", "gone", "--confirm", "gone", "--export", copy)
    assert refused.status == 2
    assert copy.read_text() == "precious"
    assert filled("tenant", "show", "gone", "--json").json["state"] == "active"


def test_without_an_export_nothing_is_written(filled: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--no-export deletes at once; by default a file named after the tenant is beside."""
    monkeypatch.chdir(tmp_path)
    sample = set(tmp_path.iterdir())
    assert filled("tenant", "delete", "gone", "--confirm", "gone", "--no-export").status == 0
    assert set(tmp_path.iterdir()) == sample
    assert filled("tenant", "create", "gone").status == 0
    assert filled("tenant", "delete", "gone", "--confirm", "gone").status == 0
    (export,) = set(tmp_path.iterdir()) - sample
    assert export.name.startswith("gone-")
    assert export.suffix == ".jsonl"


def test_an_export_before_deletion_is_complete(filled: Call, tmp_path: Path) -> None:
    """What was forgotten is in it with its withdrawal, unless --no-withdrawn is given: nothing else is left."""
    shown = filled("events", "--tenant", "gone", "--limit", "1", "--json").json
    line = {"timestamp": "2026-01-01T00:00:00Z", "channel": "myria", "type": "myria.withdrawal", "internal": True}
    line |= {"participants": shown["participants"], "event_id": "evt_" + "f" * 32}
    line["payload"] = {"reason": "forgotten", "events": [shown["event_id"]]}
    file = tmp_path / "withdrawal.jsonl"
    file.write_text(json.dumps(line) + "\n")
    assert filled("import", file, "--tenant", "gone").status == 0
    assert filled("export", tmp_path / "shown.jsonl", "--tenant", "gone").status == 0
    assert shown["event_id"] not in (tmp_path / "shown.jsonl").read_text()
    copy = tmp_path / "gone.jsonl"
    answer = filled("tenant", "delete", "gone", "--confirm", "gone", "--export", copy, "--json").json
    assert answer["events_exported"] == answer["removed"]["events"] == 61
    assert shown["event_id"] in copy.read_text()
