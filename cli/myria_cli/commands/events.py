"""`myria events`, `import` and `export`: the log itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.text import Text

from myria.db import schema
from myria.db.clock import to_datetime
from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import InvalidArgument
from myria.log.fields import parse_timestamp
from myria.log.scopes import canonical_participants
from myria_cli import console
from myria_cli.draw import payload_text
from myria_cli.options import Options, command
from myria_cli.place import database_of, opened

if TYPE_CHECKING:
    from myria_cli.importers.importing import Importing

PANEL = "Read and write"
MANY = 1_000
"""Imported events after which the planner's statistics are renewed at once."""

BY_LINE = ("memento", "memory-tools", "memtrace")
"""Systems whose exports are read as they stream in, from standard input too."""

WHOLE = (
    *("chatgpt", "claude", "slack", "whatsapp", "telegram", "mem0", "zep"),
    *("basic-memory", "memory-server", "csv"),
)
"""Systems whose exports are files and folders, as in `myria_cli.importers.run`, which takes long to import."""

SYSTEMS = ", ".join(WHOLE + BY_LINE)

SPEAKERS = 50
"""Speakers that a dry run names; --json names all."""

SOME_REFUSED = 2
"""Exit status of an import that refused a line."""

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "events")
async def events(
    options: Options,
    *,
    as_: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="NAME", help="Only what this participant may see; repeat for several."),
    ] = None,
    channel: Annotated[str | None, typer.Option(help="Only this channel.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only this event type.")] = None,
    context: Annotated[str | None, typer.Option(help="Only this context_id.")] = None,
    since: Annotated[str | None, typer.Option(help="Only at or after this RFC 3339 time.")] = None,
    until: Annotated[str | None, typer.Option(help="Only before this RFC 3339 time.")] = None,
    internal: Annotated[
        bool | None, typer.Option("--internal/--no-internal", help="Only internal events, or none of them.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many of the newest.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is appended.")] = False,
) -> None:
    """List the newest events of the log, oldest first, as an administrator sees them (internal ones too).

    Examples:
        myria events --limit 5
        myria events --as mika --channel slack --since 2026-03-01T00:00:00Z
        myria events --follow --json
    """
    from myria.builds.browse import EventFilter, event_json, follow_events, newest_events

    event_filter = EventFilter(
        participants=canonical_participants(as_) if as_ else (),
        channel=channel,
        type=type_,
        context_id=context,
        since=_parse_time(since, "since"),
        until=_parse_time(until, "until"),
        internal=internal,
    )
    async with database_of(options) as database:
        rows, newest = await newest_events(database, options.tenant, event_filter, limit=limit)
        if options.json:
            console.write_lines(console.json_text(event_json(row)) for row in rows)
        elif rows:
            console.write(_listing(rows))
        elif not follow:
            console.say("no events")
        if follow:
            async for row in follow_events(database, options.tenant, event_filter, after=newest):
                if options.json:
                    console.write_lines([console.json_text(event_json(row))])
                else:
                    console.write(_follow_line(row))


@command(app, "import")
async def import_(
    options: Options,
    *,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="JSON lines, or - for standard input; with --from, what that system exports (file, ZIP, folder).",
        ),
    ],
    ignore_field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Drop this field instead of refusing the line; repeat for several."),
    ] = None,
    allow_future: Annotated[
        bool, typer.Option("--allow-future", help="Take timestamps beyond ingest.future_limit_s too.")
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SYSTEM",
            help=f"Whose export it is: {SYSTEMS}. Chats become events; what a memory kept, notes.",
        ),
    ] = None,
    as_: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="NAME", help="Whose memories they are; repeat for several. With --from alone."),
    ] = None,
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Project of the sessions. With --from memory-tools alone.")
    ] = None,
    people: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="YAML or JSON: participants by names or ids of the export."),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Time zone of times that name none, such as Europe/Lisbon; else UTC."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check all of it, store nothing, and say who speaks in it.")
    ] = False,
) -> int:
    """Append the events of a JSON lines file; run it again, and nothing is there twice.

    Each line is the arguments of append_event, with an event_id to restore if it has one. A bad line is reported
    with its number, code and reason, the others go in; the exit status is then 2. An import that was cut off is
    resumed by running it again.

    Examples:
        myria import examples/workshop.jsonl
        myria import conversations.jsonl --ignore-field conversation
        myria export --data-dir OLD | myria import - --data-dir NEW
        myria import fragments.jsonl --from memento --as me
        myria import /var/lib/memory --from memory-tools --as me --as agent
        myria import events.jsonl --from memtrace --as me
        myria import chatgpt-export.zip --from chatgpt --as me --dry-run
        myria import export.zip --from slack --as team --people people.yaml
    """
    from myria.log import transfer
    from myria.log.limits import limits_of
    from myria_cli.importers.run import Import, Refusals, people_in, run_import, zone_named

    settings = options.settings()
    _check_system(from_, as_=as_, project=project, of_files=people is not None or zone is not None, dry_run=dry_run)
    refusals = Refusals(as_json=options.json)
    with _open_source(file, folder=from_ == "memory-tools" or from_ in WHOLE) as (source, size):
        plan = Import(
            tenant=options.tenant,
            system=from_,
            file=file,
            source=source,
            size=size,
            own=canonical_participants(as_ or list(settings.auth.local_participants), field="as"),
            project=project,
            people=people_in(people),
            zone=zone_named(zone),
            ignore=tuple(ignore_field or ()),
            limits=limits_of(settings, any_time=allow_future),
            dry_run=dry_run,
        )
        async with (
            opened(options, settings, create=True) as place,
            Database(place.serving, pool_options(settings)) as database,
        ):
            await schema.check(database)
            outcome, speakers = await run_import(plan, settings, database, on_refused=refusals, quiet=options.json)
            refusals.finish(may_ignore=from_ is None)
            if outcome.count.imported >= MANY:
                await transfer.analyze(place.owner)
    document = _outcome_json(outcome, speakers, from_, dry_run=dry_run)
    options.answer(document, *_outcome_sentences(outcome, speakers, from_, dry_run=dry_run))
    return SOME_REFUSED if outcome.count.refused else 0


@command(app, "export")
async def export(
    options: Options,
    *,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to write; - or nothing for standard output.")
    ] = "-",
    withdrawn: Annotated[
        bool, typer.Option("--withdrawn", help="Also what was withdrawn, and the withdrawals: the whole log.")
    ] = False,
) -> None:
    """Write every event as JSON lines, in event_seq order, with its event_id.

    All that was acknowledged before the export began is in it, but what was withdrawn. A file appears whole or not
    at all.

    Examples:
        myria export > memory.jsonl
        myria export memory.jsonl --tenant team_a
    """
    from myria_cli.exporting import write_export

    async with database_of(options) as database:
        written = await write_export(database, options.tenant, file, withdrawn=withdrawn)
    if options.json and file != "-":
        console.write_json({"events": written, "file": file})
    else:
        console.say(f"{written:,} events exported")


def _check_system(
    system: str | None, *, as_: list[str] | None, project: str | None, of_files: bool, dry_run: bool
) -> None:
    """Refuse options that do not go together; `of_files` is whether one is given that exports of `WHOLE` alone take."""
    if system not in (None, *BY_LINE, *WHOLE):
        raise InvalidArgument(f"--from takes {SYSTEMS}; leave it out for what Myria exports", field="from")
    if system in BY_LINE and (of_files or dry_run):
        raise InvalidArgument(f"--people, --zone and --dry-run do not go with --from {system}", field="from")
    if project is not None and system != "memory-tools":
        raise InvalidArgument("--project goes with --from memory-tools", field="project")
    if as_ and system is None:
        raise InvalidArgument("--as goes with --from; events name their participants themselves", field="as")
    if of_files and system is None:
        raise InvalidArgument("--people and --zone go with --from; lines of events say both themselves", field="from")


@contextmanager
def _open_source(file: str, *, folder: bool = False) -> Iterator[tuple[IO[bytes], int | None]]:
    """Open an import's source for the block; yield it and its size in bytes, None if unknown.

    For a folder, where one is allowed, the source is empty: the importer reads the folder by its path.
    """
    if folder and Path(file).is_dir():
        yield BytesIO(), None
        return
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115 - closed below; the block's own errors are not about opening
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}", field="file") from error
    with source:
        yield source, os.fstat(source.fileno()).st_size or None


def _outcome_json(
    outcome: Importing, speakers: Mapping[str, int], system: str | None, *, dry_run: bool
) -> dict[str, Any]:
    """Return an import's counts as the document of --json."""
    document: dict[str, Any] = outcome.count.to_json()
    if system is not None:
        document["edited"] = outcome.count.edited
    if system in WHOLE:
        document |= {"left_out": outcome.left_out, "remarks": outcome.remarks, "speakers": speakers}
    return {**document, "dry_run": True} if dry_run else document


def _outcome_sentences(
    outcome: Importing, speakers: Mapping[str, int], system: str | None, *, dry_run: bool
) -> Iterator[str]:
    """Yield what an import stored, left out and refused, and after a dry run who speaks in the export."""
    count = outcome.count
    if system is None and count.refused and not count.imported + count.already_there:
        yield f"no line is an event of Myria; of another system's export say --from: {SYSTEMS}"
    edited = "" if system is None else f"{count.edited:,} edited since, "
    yield (
        f"{count.imported:,} {'would be imported' if dry_run else 'imported'}, {edited}{count.already_there:,} already "
        f"there, {count.refused:,} refused of {count.lines - count.blank:,} "
        f"{'messages and statements' if system in WHOLE else 'lines'}"
    )
    for reason, times in sorted(outcome.left_out.items()):
        yield f"left out: {times:,} {reason}"
    for remark, times in sorted(outcome.remarks.items()):
        yield f"note: {times:,} {remark}"
    if dry_run and speakers:
        yield "who speaks (a people file maps these names to participants, `name: participant`):"
        for name, times in sorted(speakers.items(), key=lambda speaker: (-speaker[1], speaker[0]))[:SPEAKERS]:
            yield f"  {name}: {times:,} messages"
    if count.redacted:
        yield f"of {count.redacted:,} lines something was taken out that must not be kept (redaction.kinds)"


def _parse_time(text: str | None, name: str) -> datetime | None:
    return None if text is None else to_datetime(parse_timestamp(text, name))


def _listing(rows: list[Any]) -> Any:
    columns: dict[str, console.Column] = {
        "seq": "event_seq",
        "when": _when,
        "channel": "channel",
        "participants": lambda row: list(row["participants"]),
        "type": "type",
        "what": _event_text,
        "event_id": "event_id",
    }
    return console.table(columns, rows, right=("seq",))


def _follow_line(row: Any) -> Text:
    line = Text(f"{row['event_seq']:>8} {_when(row)} ", style="dim")
    line.append(console.one_line(f"{row['channel']} [{', '.join(row['participants'])}] "), style="dim")
    line.append(_event_text(row))
    return line


def _when(row: Any) -> str:
    return str(row["occurred_at"].isoformat(" ", "seconds")[:19])


def _event_text(row: Any) -> str:
    text = console.one_line(payload_text(orjson.loads(row["payload"])), 100)
    return f"(internal) {text}" if row["internal"] else text
