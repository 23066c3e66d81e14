"""The command line in tests: called in this process where that proves enough, as a program where it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from myria_cli.app import app
from tests.support.postgres import Database


@dataclass(frozen=True, slots=True)
class Called:
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Call = Callable[..., Called]


def call(*arguments: str | Path, stdin: bytes | None = None) -> Called:
    """Run a command in this process, with what `myria` itself imports for it."""
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, words, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Called(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def myria(database: Database, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a command on a fresh, migrated database."""
    monkeypatch.setenv("COLUMNS", "200")

    def on_database(*arguments: str | Path, stdin: bytes | None = None) -> Called:
        return call(*arguments, "--dsn", database.dsn, stdin=stdin)

    return on_database


def write_sample(path: Path) -> None:
    """Write a small conversation of two scopes as JSON lines."""
    lines = []
    for number in range(60):
        scope = ["ana", "ben"] if number % 3 else ["ana", "chloé", "ben"]
        subject = "sourdough bread oven" if number % 20 < 10 else "mountain trail tent"
        lines.append(
            {
                "timestamp": f"2026-03-{1 + number // 10:02d}T10:{number % 60:02d}:00Z",
                "channel": "slack" if number % 2 else "email",
                "participants": scope,
                "source_event_key": f"k{number}",
                "payload": {"text": f"{subject} number {number}", "speaker": scope[0]},
            }
        )
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def sample_file(tmp_path: Path) -> Path:
    """The same in a file of the test's own."""
    write_sample(tmp_path / "sample.jsonl")
    return tmp_path / "sample.jsonl"
