"""What `myria import --from` does with the memories of other systems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import IO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from myria.db.database import Database
from myria.errors import ConfigurationError, InvalidArgument
from myria.log import transfer
from myria.log.append import Ingest
from myria.log.limits import Limits, limits_of
from myria.log.redaction.redactor import PayloadRedactor
from myria.notes.commands import Notes
from myria.notes.folding import event_log
from myria.notes.memories.commands import Keeping, Memories
from myria.notes.memories.sharing import shared_participant
from myria.settings import Settings
from myria.settings.yaml_files import read_yaml
from myria_cli import console
from myria_cli.importers import memento, memory_tools, memtrace
from myria_cli.importers.files import Source
from myria_cli.importers.formats import FORMATS
from myria_cli.importers.records import People, people_of
from myria_cli.importers.storing import Imported, store
from myria_cli.importing import redactor_of
from myria_cli.options import Options
from myria_cli.refusals import Refusals


async def adopt(
    from_: str,
    options: Options,
    settings: Settings,
    database: Database,
    *,
    file: str,
    source: IO[bytes],
    size: int | None,
    own: tuple[str, ...],
    project: str | None,
    refused: Refusals,
) -> transfer.ImportCount:
    """Take over what `myria import --from` names.

    Args:
        file: what to read, a folder or a file of memory-tools; `source` is the opened file.
    """
    if from_ == "memento":
        return await _import_fragments(options, settings, database, source, size=size, own=own, refused=refused)
    if from_ == "memtrace":
        return await _import_memories(options, settings, database, source, size=size, own=own, refused=refused)
    files = memory_tools.files_of(file, source, project)
    return await _import_sessions(options, settings, database, files, own=own, refused=refused)


async def _import_fragments(
    options: Options,
    settings: Settings,
    database: Database,
    source: IO[bytes],
    *,
    size: int | None,
    own: tuple[str, ...],
    refused: Refusals,
) -> transfer.ImportCount:
    """Keep what Memento exported as notes, with what the agent's face takes out of them taken out."""
    ingest = event_log(database, deadline=settings.mcp.append_deadline_s)
    longest = transfer.longest_line(limits_of(settings))
    notes = await _notes(options, settings, database, ingest)
    with console.meter("importing bytes", size, quiet=options.json) as progress:
        try:
            return await memento.import_fragments(
                notes,
                database,
                options.tenant,
                transfer.read_lines(source.readline, longest),
                own,
                on_refused=refused,
                on_progress=lambda count: progress.advance(count.bytes_read, what=f"{count.imported:,} notes imported"),
            )
        finally:
            await ingest.close()


async def _notes(options: Options, settings: Settings, database: Database, ingest: Ingest) -> Notes:
    return Notes(
        database,
        ingest.append_events,
        await redactor_of(settings, database, options.tenant, beside=settings.agent.redaction_kinds),
        content_characters=settings.notes.content_characters,
        payload_bytes=settings.ingest.payload_bytes,
        session_idle_s=settings.notes.session_idle_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """How `myria import --from` reads an export of one of `FORMATS`.

    Args:
        people: participants by names or ids of the export.
        zone: of times that do not name their own.
        dry_run: read and check everything, store nothing.
    """

    from_: str
    people: Mapping[str, str]
    zone: tzinfo
    dry_run: bool

    @classmethod
    def of_options(cls, from_: str, people: str | None, zone: str | None, *, dry_run: bool) -> Elsewhere:
        """Return what the options of the command say.

        Raises:
            InvalidArgument: the people file is none, or the zone is unknown.
        """
        try:
            named = {} if people is None else people_of(read_yaml(Path(people), "The people file"))
            known = UTC if zone is None else ZoneInfo(zone)
        except ConfigurationError as error:
            raise InvalidArgument(error.message, field="people") from error
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise InvalidArgument(
                f"{zone!r} is no time zone; name one as Europe/Lisbon or UTC", field="zone"
            ) from error
        return cls(from_=from_, people=named, zone=known, dry_run=dry_run)


async def import_elsewhere(
    elsewhere: Elsewhere,
    options: Options,
    settings: Settings,
    database: Database,
    *,
    file: str,
    own: tuple[str, ...],
    limits: Limits,
    refused: Refusals,
) -> tuple[Imported, People]:
    """Take over an export of another system; return what became of it, and who speaks in it."""
    ingest = event_log(database, deadline=settings.mcp.append_deadline_s)
    people = People(own, elsewhere.people)

    try:
        with console.meter("importing", None, quiet=options.json) as progress:
            outcome = await store(
                FORMATS[elsewhere.from_].records(Source(Path(file)), elsewhere.zone),
                ingest=ingest,
                notes=await _notes(options, settings, database, ingest),
                tenant=options.tenant,
                people=people,
                limits=limits,
                redactor=await redactor_of(settings, database, options.tenant),
                dry_run=elsewhere.dry_run,
                on_refused=refused,
                on_progress=lambda count: progress.advance(count.lines, what=f"{count.imported:,} imported"),
            )
    except InvalidArgument as error:
        if error.details.get("field") != "file":
            raise
        raise InvalidArgument(f"{error.message} (--from takes {', '.join(FORMATS)})", field="file") from error
    finally:
        await ingest.close()
    return outcome, people


async def _import_memories(
    options: Options,
    settings: Settings,
    database: Database,
    source: IO[bytes],
    *,
    size: int | None,
    own: tuple[str, ...],
    refused: Refusals,
) -> transfer.ImportCount:
    """Keep what Memtrace kept as memories, shared with the organisation as those of REST are."""
    ingest = event_log(database, deadline=settings.mcp.append_deadline_s)
    redactor = await redactor_of(settings, database, options.tenant)

    async def redactor_of_tenant(_: str) -> PayloadRedactor:
        return redactor

    memories = Memories(
        database, ingest.append_events, redactor_of_tenant, window_s=0, payload_bytes=settings.ingest.payload_bytes
    )
    with console.meter("importing bytes", size, quiet=options.json) as progress:
        try:
            return await memtrace.import_memories(
                memories,
                options.tenant,
                transfer.read_lines(source.readline, memtrace.LONGEST_LINE),
                Keeping(own=own, shared=shared_participant(settings.rest)),
                on_refused=refused,
                on_progress=lambda count: progress.advance(
                    count.bytes_read, what=f"{count.imported:,} memories imported"
                ),
            )
        finally:
            await ingest.close()


async def _import_sessions(
    options: Options,
    settings: Settings,
    database: Database,
    files: Iterable[memory_tools.SessionFile],
    *,
    own: tuple[str, ...],
    refused: Refusals,
) -> transfer.ImportCount:
    """Store the turns that memory-tools kept, with what every turn is without taken out of them."""
    ingest = event_log(database, deadline=settings.mcp.append_deadline_s)
    with console.meter("importing turns", None, quiet=options.json) as progress:
        try:
            return await memory_tools.import_sessions(
                database,
                ingest.append_events,
                options.tenant,
                files,
                own,
                redactor=await redactor_of(settings, database, options.tenant),
                settings=settings.turns,
                payload_bytes=settings.ingest.payload_bytes,
                on_refused=refused,
                on_progress=lambda count: progress.advance(count.imported, what=f"{count.imported:,} turns imported"),
            )
        finally:
            await ingest.close()
