"""Output: tables and trees on a terminal, one JSON document for a program, one line per error.

Standard output carries the answer; progress, log lines and errors go to standard error. Text that came in as events is
shown without its control characters, so that no event can steer a terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from myria.errors import DatabaseUnavailable, MyriaError

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, which has no width of its own."""

LOG_EVERY_S = 5.0
"""Seconds between two progress lines where there is no terminal for a bar."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def out() -> Console:
    """Return the console of standard output."""
    return _console(stderr=False)


def err() -> Console:
    """Return the console of standard error."""
    return _console(stderr=True)


def shown(text: str) -> str:
    """Return text without the characters that steer a terminal: control characters and marks of writing direction."""
    return _CONTROL.sub("�", text)


def one_line(text: str, limit: int = 0) -> str:
    """Return text on one line, cut at `limit` characters where that is not 0."""
    line = " ".join(shown(text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def write_json(document: Any) -> None:
    """Write one JSON document to standard output: indented on a terminal, on one line for a program."""
    sys.stdout.write(json_text(document, indent=2 if sys.stdout.isatty() else None) + "\n")
    sys.stdout.flush()


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output as they are, for a program."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Return JSON text in UTF-8 characters."""
    separators = None if indent else (",", ":")
    return json.dumps(document, ensure_ascii=False, indent=indent, separators=separators)


def write(renderable: RenderableType) -> None:
    """Write a table, a tree or a text to standard output."""
    out().print(renderable)


def say(sentence: str, style: str = "") -> None:
    """Write a sentence about the work, not the answer, to standard error."""
    err().print(Text(sentence, style=style))


def report(error: MyriaError, *, as_json: bool = False) -> None:
    """Write an error to standard error: `error[code]: message`, or its JSON."""
    if as_json:
        sys.stderr.write(json_text({"error": error.to_json()}) + "\n")
        return
    line = Text()
    line.append(f"error[{error.code}]", style="bold red")
    line.append(f": {shown(error.message)}")
    if isinstance(error, DatabaseUnavailable):
        line.append("; see that PostgreSQL runs where --dsn or MYRIA_POSTGRES_DSN says")
    err().print(line, soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> Table:
    """Return a table; columns named in `right` hold numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(columns))
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(_cell(cell)) for cell in row))
    return made


def to_the_second(timestamp: str | None) -> str:
    """Return an RFC 3339 timestamp in UTC without its fraction, as 2026-03-19T20:00:00Z; "" for None."""
    return f"{timestamp[:19]}Z" if timestamp else ""


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shown(str(value))


class ProgressMeter(Protocol):
    """The progress of a piece of work."""

    def advance(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """Show that `done` of `total` steps are done, and what is being worked on."""
        ...


@contextmanager
def meter(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[ProgressMeter]:
    """Show progress for the block on standard error: a bar on a terminal, else a line every five seconds."""
    if quiet:
        yield _Silence()
    elif sys.stderr.isatty():
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=err(), transient=True) as progress:
            yield _Bar(progress, what, total)
    else:
        yield _Lines(what, total)


class _Silence:
    def advance(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """Show nothing."""


class _Bar:
    def __init__(self, progress: Progress, what: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total)

    def advance(self, done: int, total: int | None = None, what: str | None = None) -> None:
        self._progress.update(self._task, completed=done)
        if total is not None:
            self._progress.update(self._task, total=total)
        if what is not None:
            self._progress.update(self._task, description=what)


class _Lines:
    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._last = time.monotonic()

    def advance(self, done: int, total: int | None = None, what: str | None = None) -> None:
        self._what = what or self._what
        self._total = total if total is not None else self._total
        if time.monotonic() - self._last >= LOG_EVERY_S:
            self._last = time.monotonic()
            of = f" of {self._total:,}" if self._total else ""
            say(f"{self._what}: {done:,}{of}")


def write_fields(fields: Mapping[str, Any]) -> None:
    """Write names and values below each other; what is empty is left out."""
    table = Table(show_header=False, box=None)
    for name, value in fields.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        if text not in (None, ""):
            table.add_row(Text(name.replace("_", " "), style="dim"), shown(str(text)))
    write(table)
