"""What `myria import` stores: events as Myria exports them, and what other systems export."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
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
from myria.settings import Settings
from myria.settings.yaml_files import read_yaml
from myria_cli import console
from myria_cli.importers import memento, memory_tools, memtrace
from myria_cli.importers.files import Source
from myria_cli.importers.formats import FORMATS
from myria_cli.importers.frame import Importing
from myria_cli.importers.records import People, people_of
from myria_cli.importers.storing import store

SHOWN: Final = 10
"""Lines refused for the same reason that are named one by one; the others are counted."""

_REASONS: Final = 1_000
"""Different reasons that are counted, so that memory stays bounded; lines of further ones are all named."""

_STORED = {None: "events", "memento": "notes", "memtrace": "memories", "memory-tools": "turns"}
"""What the export of a system becomes; of all others messages and statements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What is imported, and how.

    `system` is whose export it is, None for events of Myria; `source` the opened file, unless `file` is a folder, and
    `size` its bytes where they are known. `own` are canonical participants of all that names none. `people` are
    participants by names or ids of the export; `zone` is that of times that name none. `ignore` are fields that are
    dropped. With `dry_run` everything is read and checked, and nothing stored.
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
    """Return what a people file says; nothing where there is none.

    Raises:
        InvalidArgument: it is none.
    """
    try:
        return {} if file is None else people_of(read_yaml(Path(file), "The people file"))
    except ConfigurationError as error:
        raise InvalidArgument(error.message, field="people") from error


def zone_named(name: str | None) -> tzinfo:
    """Return a time zone; UTC where none is named.

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
    """Store an export; run again, it adds nothing twice. Return what became of it, and how often each speaker spoke."""
    log = event_log(database, settings, deadline=settings.mcp.append_deadline_s)
    tenant, own = plan.tenant, plan.own
    people = People(own, plan.people)
    what = _STORED.get(plan.system, "")

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
            progress.advance(done, what=f"{count.imported:,} {what} imported")

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
                # Without a window: what was kept twice there is kept twice here.
                memories = Memories(log, notes, window_s=0)
                keeping = Keeping(own=own, shared=shared_participant(settings.rest))
                await memtrace.import_memories(memories, tenant, lines(memtrace.LONGEST_LINE), keeping, importing)
            elif plan.system == "memory-tools":
                files = memory_tools.files_of(plan.file, plan.source, plan.project)
                await memory_tools.import_sessions(
                    log, tenant, files, own, importing=importing, settings=settings.turns
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
    """Tells of each refused line, as JSON, or as sentences: of many refused for one reason, how many more there are."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, line: transfer.RefusedLine) -> None:
        """Tell of a line."""
        if self._as_json:
            sys.stderr.write(console.json_text({"line": line.line, "code": line.code, "message": line.message}) + "\n")
            return
        reason = line.code, line.message
        if reason in self._counts or len(self._counts) < _REASONS:
            self._counts[reason] += 1
        if self._counts[reason] <= SHOWN:
            console.say(f"line {line.line}: error[{line.code}]: {line.message}", "red")

    def finish(self, *, may_ignore: bool) -> None:
        """Say how many lines were not named, and what helps.

        Args:
            may_ignore: whether fields can be left out by an option.
        """
        for (code, message), count in self._counts.items():
            if count > SHOWN:
                console.say(f"{count - SHOWN:,} more lines: error[{code}]: {message}", "red")
        if may_ignore and any(code == UnknownField.code for code, _ in self._counts):
            console.say("--ignore-field NAME imports such lines without that field")
