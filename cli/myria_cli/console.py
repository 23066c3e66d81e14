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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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


def shown(text: str) -> str:
    """Return text without the characters that steer a terminal: control characters and marks of writing direction."""
    return _CONTROL.sub("�", text)


def one_line(text: str, limit: int = 0) -> str:
    """Return text on one line, cut at `limit` characters where that is not 0."""
    line = " ".join(shown(text).split())
    return line if not limit or len(line) <= limit else line[: limit - 1].rstrip() + "…"


def count(number: int, noun: str) -> str:
    """Return `1 event`, `2 events`, `12,000 events`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Return JSON text in UTF-8 characters."""
    separators = None if indent else (",", ":")
    return json.dumps(document, ensure_ascii=False, indent=indent, separators=separators)


def write_json(document: Any) -> None:
    """Write one JSON document to standard output: indented on a terminal, on one line for a program."""
    write_lines([json_text(document, indent=2 if sys.stdout.isatty() else None)])


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output as they are, for a program."""
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def write(renderable: RenderableType) -> None:
    """Write a table, a tree or a text to standard output."""
    _console(stderr=False).print(renderable)


def say(sentence: str, style: str = "") -> None:
    """Write a sentence about the work, not the answer, to standard error."""
    _console(stderr=True).print(Text(shown(sentence), style=style))


def report(error: MyriaError, *, as_json: bool = False) -> None:
    """Write an error to standard error: `error[code]: message`, or its JSON."""
    if as_json:
        sys.stderr.write(json_text({"error": error.to_json()}) + "\n")
        return
    line = Text.assemble((f"error[{error.code}]", "bold red"), f": {shown(error.message)}")
    if isinstance(error, DatabaseUnavailable):
        line.append("; see that PostgreSQL runs where --dsn or MYRIA_POSTGRES_DSN says")
    _console(stderr=True).print(line, soft_wrap=True)


Column = str | Callable[[Any], object]
"""What a column shows of each record: a field by its name, or what a function returns."""


def table(columns: Mapping[str, Column], records: Iterable[Any], *, right: Sequence[str] = ()) -> Table:
    """Return a table of records; columns named in `right` hold numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in columns:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for record in records:
        made.add_row(*(_cell(what(record) if callable(what) else record[what]) for what in columns.values()))
    return made


def fields(values: Mapping[str, object] | Iterable[tuple[str, object]]) -> Table:
    """Return a table of two columns, names and values, without empty values."""
    new_table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    new_table.add_column(style="dim")
    new_table.add_column(overflow="fold")
    for name, value in values.items() if isinstance(values, Mapping) else values:
        if value not in (None, "", []):
            new_table.add_row(name.replace("_", " "), _cell(value))
    return new_table


def to_the_second(timestamp: str | None) -> str:
    """Return an RFC 3339 timestamp in UTC without its fraction, as 2026-03-19T20:00:00Z; "" for None."""
    return f"{timestamp[:19]}Z" if timestamp else ""


def outcome(word: str) -> Text:
    """Return how something ended, in green where it ended well and in red otherwise."""
    return Text(shown(word), style="green" if word == "ok" else "red")


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    if value is None:
        return Text("-")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    return Text(shown(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)))


class ProgressMeter:
    """Shows on standard error how far some work is: a bar on a terminal, else a line every five seconds."""

    def __init__(self, bar: Progress, what: str, total: int | None, *, speaks: bool) -> None:
        self._bar, self._task = bar, bar.add_task(what, total=total)
        self._speaks, self._spoke_at = speaks, time.monotonic()

    def advance(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """Show that `done` of `total` steps are done, and what is being worked on."""
        self._bar.update(self._task, completed=done, total=total, description=what)
        if self._speaks and time.monotonic() - self._spoke_at >= LOG_EVERY_S:
            self._spoke_at = time.monotonic()
            task = self._bar.tasks[0]
            say(f"{task.description}: {done:,}{f' of {task.total:,.0f}' if task.total else ''}")


@contextmanager
def meter(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[ProgressMeter]:
    """Show the progress of a piece of work for the block, unless `quiet`."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    has_bar = sys.stderr.isatty() and not quiet
    with Progress(*columns, console=_console(stderr=True), transient=True, disable=not has_bar) as bar:
        yield ProgressMeter(bar, what, total, speaks=not has_bar and not quiet)
