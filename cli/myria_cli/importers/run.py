"""What `myria import` stores: events as Myria exports them, and what other systems export."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import IO, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from myria.db.database import Database
from myria.errors import ConfigurationError, InvalidArgument, UnknownField
from myria.log import transfer
from myria.log.limits import Limits
from myria.notes.commands import Notes
from myria.notes.folding import event_log
from myria.notes.memories.commands import Memories
from myria.notes.memories.sharing import Keeping, shared_participant
from myria.notes.turns.storing import TurnStore
from myria.settings import Settings
from myria.settings.yaml_files import read_yaml
from myria_cli import console
from myria_cli.importers import assistants, memento, memories, memory_tools, memtrace, messengers, tables
from myria_cli.importers.files import Source
from myria_cli.importers.importing import Importing
from myria_cli.importers.records import People, Record, people_of
from myria_cli.importers.storing import store

SHOWN: Final = 10
"""Most refused lines reported one by one for one reason; further ones are only counted."""

_REASONS: Final = 1_000
"""Most reasons that are counted, which bounds memory; every line refused for a further reason is reported."""

_STORED = {None: "events", "memento": "notes", "memtrace": "memories", "memory-tools": "turns"}
"""What is stored from each system's export; exports of other systems become events and notes."""


@dataclass(frozen=True, slots=True)
class Format:
    """An export format. `takes` describes FILE in words; with `is_local` its times are local, and need a zone."""

    read: Callable[..., Iterator[Record]]
    takes: str
    is_local: bool = False

    def records(self, source: Source, zone: tzinfo = UTC) -> Iterator[Record]:
        """Yield what a source holds.

        Raises:
            InvalidArgument: it is not of this format.
        """
        try:
            yield from self.read(source, zone) if self.is_local else self.read(source)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            # Readers check what they use; a shape that no release has exported must still end in a sentence.
            raise InvalidArgument(f"the file is not what is expected: {self.takes} ({error})", field="file") from error


FORMATS: Mapping[str, Format] = {
    "chatgpt": Format(assistants.chatgpt, "conversations.json, or the ZIP that ChatGPT sends"),
    "claude": Format(assistants.claude, "conversations.json, or the ZIP that Claude sends"),
    "slack": Format(messengers.slack, "the ZIP of a workspace's export, or its folder"),
    "whatsapp": Format(messengers.whatsapp, "a chat exported as text, or its ZIP", is_local=True),
    "telegram": Format(messengers.telegram, "result.json of Telegram Desktop", is_local=True),
    "mem0": Format(memories.mem0, "what get_all returns, as JSON"),
    "zep": Format(memories.zep, "edges, facts, episodes or messages of the API, as JSON"),
    "basic-memory": Format(memories.basic_memory, "a project's folder of Markdown files, or its ZIP"),
    "memory-server": Format(memories.memory_server, "memory.jsonl of MCP's reference memory server"),
    "csv": Format(tables.table, "a table with columns for time and text", is_local=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What is imported, and how.

    `system` is the program that wrote the export, None for Myria. `source` is the opened file, empty if `file` is a
    folder, and `size` its length in bytes, if known. `own` are the canonical participants of everything that names
    none. `people` maps names or ids of the export to participants; `zone` is the zone of times without one. `ignore`
    are fields to drop. With `dry_run` everything is read and checked, and nothing is stored.
    """

    tenant: str
    system: str | None
    file: str
    source: IO[bytes]
    size: int | None
    own: tuple[str, ...]
    project: str | None
    people: Mapping[str, str]
    zone: tzinfo
    ignore: tuple[str, ...]
    limits: Limits
    dry_run: bool


def people_in(file: str | None) -> Mapping[str, str]:
    """Read a people file: participants by names or ids of the export; empty if `file` is None.

    Raises:
        InvalidArgument: the file is no people file.
    """
    try:
        return {} if file is None else people_of(read_yaml(Path(file), "The people file"))
    except ConfigurationError as error:
        raise InvalidArgument(error.message, field="people") from error


def zone_named(name: str | None) -> tzinfo:
    """Return the time zone of this name, UTC for None.

    Raises:
        InvalidArgument: there is none of this name.
    """
    try:
        return UTC if name is None else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidArgument(f"{name!r} is no time zone; name one as Europe/Lisbon or UTC", field="zone") from error


async def run_import(
    plan: Import, settings: Settings, database: Database, *, on_refused: Refusals, quiet: bool
) -> tuple[Importing, Mapping[str, int]]:
    """Store an export; safe to rerun. Return what became of it, and the number of messages of each speaker."""
    log = event_log(database, settings, deadline=settings.mcp.append_deadline_s)
    tenant, own = plan.tenant, plan.own
    people = People(own, plan.people)
    stored_kind = _STORED.get(plan.system, "")

    notes = Notes(
        log,
        content_characters=settings.notes.content_characters,
        redaction_kinds=settings.agent.redaction_kinds,
        session_idle_s=settings.notes.session_idle_s,
    )

    def lines(longest: int) -> Iterable[bytes]:
        return transfer.read_lines(plan.source.readline, longest)

    with console.meter("importing", plan.size, quiet=quiet) as progress:

        def on_progress(count: transfer.ImportCount) -> None:
            done = count.lines if plan.size is None else count.bytes_read
            progress.advance(done, what=f"{count.imported:,} {stored_kind} imported")

        importing = Importing(on_refused=on_refused, on_progress=on_progress)
        try:
            if plan.system is None:
                importing.count = await transfer.import_lines(
                    log,
                    tenant,
                    lines(transfer.longest_line(plan.limits)),
                    plan.limits,
                    ignore=plan.ignore,
                    dry_run=plan.dry_run,
                    on_refused=on_refused,
                    on_progress=on_progress,
                )
            elif plan.system == "memento":
                fragments = lines(transfer.longest_line(plan.limits))
                await memento.import_fragments(notes, database, tenant, fragments, own, importing=importing)
            elif plan.system == "memtrace":
                # window_s=0 turns off the check for duplicates: what Memtrace kept twice stays two memories.
                memories = Memories(log, notes, window_s=0)
                keeping = Keeping(own=own, shared=shared_participant(settings.rest))
                await memtrace.import_memories(memories, tenant, lines(memtrace.LONGEST_LINE), keeping, importing)
            elif plan.system == "memory-tools":
                files = memory_tools.files_of(plan.file, plan.source, plan.project)
                await memory_tools.import_sessions(
                    TurnStore(log, notes, settings.turns), tenant, files, own, importing=importing
                )
            else:
                await store(
                    FORMATS[plan.system].records(Source(Path(plan.file)), plan.zone),
                    importing,
                    log=log,
                    notes=notes,
                    tenant=tenant,
                    people=people,
                    limits=plan.limits,
                    dry_run=plan.dry_run,
                )
            return importing, people.seen
        except InvalidArgument as error:
            if plan.system not in FORMATS or error.details.get("field") != "file":
                raise
            raise InvalidArgument(f"{error.message} (--from takes {', '.join(FORMATS)})", field="file") from error
        finally:
            await log.close()


class Refusals:
    """Reports refused lines, as JSON or as sentences; of many with one reason, the first ones, and then a number."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, line: transfer.RefusedLine) -> None:
        """Report one refused line."""
        if self._as_json:
            sys.stderr.write(console.json_text({"line": line.line, "code": line.code, "message": line.message}) + "\n")
            return
        reason = line.code, line.message
        if reason in self._counts or len(self._counts) < _REASONS:
            self._counts[reason] += 1
        if self._counts[reason] <= SHOWN:
            console.say(f"line {line.line}: error[{line.code}]: {line.message}", "red")

    def finish(self, *, may_ignore: bool) -> None:
        """Report the lines that were only counted, and what helps.

        Args:
            may_ignore: whether --ignore-field can be given.
        """
        for (code, message), count in self._counts.items():
            if count > SHOWN:
                console.say(f"{count - SHOWN:,} more lines: error[{code}]: {message}", "red")
        if may_ignore and any(code == UnknownField.code for code, _ in self._counts):
            console.say("--ignore-field NAME imports such lines without that field")
