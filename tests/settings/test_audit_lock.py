"""The audit of the lock: which advisories concern which of its packages, and that it says when it has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def audited(data: Path | None) -> tuple[int, str]:
    """Run the audit; return its status and what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "OSV_DATA"}
    environment |= {} if data is None else {"OSV_DATA": str(data)}
    ended = subprocess.run(
        [sys.executable, "scripts/audit_lock.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def advisory(name: str, **affected: Any) -> dict[str, Any]:
    """Return an advisory in OSV's form about one package."""
    return {"id": "PYSEC-1", "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **affected}]}


def events(*given: dict[str, str]) -> list[dict[str, Any]]:
    """Return one range."""
    return [{"type": "ECOSYSTEM", "events": list(given)}]


@pytest.mark.parametrize(
    ("content", "concerns"),
    [
        (advisory("AsyncPG", ranges=events({"introduced": "0"})), True),
        (advisory("asyncpg", ranges=events({"introduced": "0"}, {"fixed": "0.0.1"})), False),
        (advisory("asyncpg", ranges=events({"introduced": "0"}, {"last_affected": "999"})), True),
        (advisory("asyncpg", ranges=events({"introduced": "998"})), False),
        (advisory("nobody-locks-this", ranges=events({"introduced": "0"})), False),
        (advisory("asyncpg", ranges=events({"introduced": "0"})) | {"withdrawn": "2020-01-01T00:00:00Z"}, False),
    ],
)
def test_an_advisory_concerns_the_versions_of_its_range(
    tmp_path: Path, content: dict[str, Any], concerns: bool
) -> None:
    """Names as PyPI compares them; what was fixed before, begins later or was withdrawn is no finding."""
    (tmp_path / "one.json").write_text(json.dumps(content), encoding="utf-8")
    status, said = audited(tmp_path)
    assert status == int(concerns)
    assert ("PYSEC-1" in said) is concerns
    assert "1 advisories" in said


def test_the_export_is_read_as_it_comes(tmp_path: Path) -> None:
    """A zip file of all advisories, one of which names exact versions."""
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(advisory("asyncpg", versions=["0.0.0"])))
    assert audited(tmp_path / "all.zip")[0] == 0


def test_without_advisories_it_says_aloud_that_nothing_was_audited() -> None:
    """And fails nothing."""
    status, said = audited(None)
    assert status == 0
    assert "SKIPPED" in said
