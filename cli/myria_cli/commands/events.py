"""`myria events`, `import` and `export`: the log itself."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import IO, Annotated, Any

import orjson
import typer
from rich.text import Text

from myria.db import schema
from myria.db.clock import rfc3339_of, to_datetime
from myria.db.database import Database
from myria.db.options import pool_options
from myria.db.queries import sql
from myria.errors import InvalidArgument
from myria.log.fields import parse_timestamp
from myria.log.limits import limits_of
from myria.log.scopes import canonical_participants
from myria.program import importing
from myria_cli import console
from myria_cli.commands.querying import PANEL
from myria_cli.draw import payload_text
from myria_cli.options import Options, command
from myria_cli.place import opened
from myria_cli.refusals import Refusals

FOLLOW_EVERY_S = 0.5
LATE_COMMITS_S = 30.0
"""Seconds for which a follower looks again for events that were committed after events of higher numbers."""

MANY = 1_000
"""Imported events after which the planner's statistics are renewed at once."""

BY_LINE = ("memento", "memory-tools", "memtrace")
"""Systems whose exports are read as they stream in, from standard input too."""

WHOLE = (
    "chatgpt",
    "claude",
    "slack",
    "whatsapp",
    "telegram",
    "mem0",
    "zep",
    "basic-memory",
    "memory-server",
    "csv",
)
"""Systems whose exports are files and folders: `myria_cli.importers.formats` knows them, and takes long to import."""

SPEAKERS = 50
"""Speakers that a dry run names; --json names all."""

SOME_REFUSED = 2
"""Exit status of an import that refused a line."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""

    @command(
        app,
        "events",
        panel=PANEL,
        examples="""
myria events --limit 5

myria events --as mika --channel slack --since 2026-03-01T00:00:00Z

myria events --follow --json
""",
    )
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
        """List the newest events of the log, oldest first, as an administrator sees them (internal ones too)."""
        filters = (
            list(canonical_participants(as_)) if as_ else [],
            channel,
            type_,
            context,
            _moment(since, "since"),
            _moment(until, "until"),
            internal,
        )
        settings = options.settings()
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            async with database.read(options.tenant) as connection:
                rows = await connection.fetch(sql("browse.events"), options.tenant, 2**62, *filters, limit)
                newest = await connection.fetchval(sql("transfer.newest_event_seq"), options.tenant)
            rows.reverse()
            if options.json:
                for row in rows:
                    _write_line(row)
            elif rows:
                console.write(_listing(rows))
            elif not follow:
                console.say("no events")
            if follow:
                async for row in _newer(database, options.tenant, newest, filters):
                    if options.json:
                        _write_line(row)
                    else:
                        console.write(_follow_line(row))

    @command(
        app,
        "import",
        panel=PANEL,
        examples="""
myria import examples/workshop.jsonl

myria import conversations.jsonl --ignore-field conversation

myria export --data-dir OLD | myria import - --data-dir NEW

myria import fragments.jsonl --from memento --as me

myria import /var/lib/memory --from memory-tools --as me --as agent

myria import events.jsonl --from memtrace --as me

myria import chatgpt-export.zip --from chatgpt --as me --dry-run

myria import export.zip --from slack --as team --people people.yaml
""",
    )
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
                help=f"Whose export it is: {_systems()}. Chats become events; what a memory kept, notes.",
            ),
        ] = None,
        as_: Annotated[
            list[str] | None,
            typer.Option(
                "--as", metavar="NAME", help="Whose memories they are; repeat for several. With --from alone."
            ),
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
        """
        with importing():
            from myria.log import transfer  # noqa: PLC0415 - these take long to import, and help need not
            from myria_cli.importing import import_events  # noqa: PLC0415

        settings = options.settings()
        if from_ not in (None, *BY_LINE, *WHOLE):
            raise InvalidArgument(f"--from takes {_systems()}; leave it out for what Myria exports", field="from")
        if from_ in BY_LINE and (people is not None or zone is not None or dry_run):
            raise InvalidArgument(f"--people, --zone and --dry-run do not go with --from {from_}", field="from")
        if project is not None and from_ != "memory-tools":
            raise InvalidArgument("--project goes with --from memory-tools", field="project")
        if as_ and from_ is None:
            raise InvalidArgument("--as goes with --from; events name their participants themselves", field="as")
        if (people is not None or zone is not None) and from_ not in WHOLE:
            raise InvalidArgument(
                "--people and --zone go with --from; lines of events say both themselves", field="from"
            )
        left_out: dict[str, int] = {}
        remarks: dict[str, int] = {}
        speakers: dict[str, int] = {}
        with _input(file, folder=from_ == "memory-tools" or from_ in WHOLE) as (source, size):
            async with (
                opened(options, settings, create=True) as place,
                Database(place.serving, pool_options(settings)) as database,
            ):
                await schema.check(database)
                limits = limits_of(settings, any_time=allow_future)
                ignore = tuple(ignore_field or ())
                refused = Refusals(as_json=options.json)
                own = canonical_participants(as_ or list(settings.auth.local_participants), field="as")
                if from_ is None:
                    count = await import_events(
                        options,
                        settings,
                        database,
                        source,
                        size=size,
                        limits=limits,
                        ignore=ignore,
                        dry_run=dry_run,
                        refused=refused,
                    )
                elif from_ in WHOLE:
                    from myria_cli.adopting import Elsewhere, import_elsewhere  # noqa: PLC0415 - as below

                    elsewhere = Elsewhere.of_options(from_, people, zone, dry_run=dry_run)
                    outcome, known = await import_elsewhere(
                        elsewhere, options, settings, database, file=file, own=own, limits=limits, refused=refused
                    )
                    count, speakers = outcome.count, known.seen
                    left_out, remarks = dict(outcome.left_out), dict(outcome.remarks)
                else:
                    from myria_cli.adopting import adopt  # noqa: PLC0415 - a third of a second that few imports need

                    count = await adopt(
                        from_,
                        options,
                        settings,
                        database,
                        file=file,
                        source=source,
                        size=size,
                        own=own,
                        project=project,
                        refused=refused,
                    )
                refused.finish(may_ignore=from_ is None)
                if from_ is None and count.refused and not (count.imported + count.already_there or options.json):
                    console.say(f"no line is an event of Myria; of another system's export say --from: {_systems()}")
                if count.imported >= MANY:
                    await transfer.analyze(place.owner)
        if options.json:
            beside: dict[str, Any] = {} if from_ is None else {"edited": count.edited}
            if from_ in WHOLE:
                beside |= {"left_out": left_out, "remarks": remarks, "speakers": speakers}
            console.write_json({**count.to_json(), **beside, **({"dry_run": True} if dry_run else {})})
        else:
            what = "lines" if from_ not in WHOLE else "messages and statements"
            console.say(
                f"{count.imported:,} {'would be imported' if dry_run else 'imported'}, "
                + (f"{count.edited:,} edited since, " if from_ is not None else "")
                + f"{count.already_there:,} already there, {count.refused:,} refused of "
                f"{count.lines - count.blank:,} {what}"
            )
            for reason, times in sorted(left_out.items()):
                console.say(f"left out: {times:,} {reason}")
            for remark, times in sorted(remarks.items()):
                console.say(f"note: {times:,} {remark}")
            if dry_run and speakers:
                console.say("who speaks (a people file maps these names to participants, `name: participant`):")
                for name, times in sorted(speakers.items(), key=lambda speaker: (-speaker[1], speaker[0]))[:SPEAKERS]:
                    console.say(f"  {name}: {times:,} messages")
            if count.redacted:
                console.say(
                    f"of {count.redacted:,} lines something was taken out that must not be kept (redaction.kinds)"
                )
        return SOME_REFUSED if count.refused else 0

    @command(
        app,
        "export",
        panel=PANEL,
        examples="""
myria export > memory.jsonl

myria export memory.jsonl --tenant team_a
""",
    )
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
        """
        from myria_cli.exporting import write_export  # noqa: PLC0415 - takes long to import, and help need not

        settings = options.settings()
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            written = await write_export(database, options.tenant, file, withdrawn=withdrawn)
        if options.json and file != "-":
            console.write_json({"events": written, "file": file})
        else:
            console.say(f"{written:,} events exported")


@contextmanager
def _input(file: str, *, folder: bool = False) -> Iterator[tuple[IO[bytes], int | None]]:
    """Open what an import reads for the block; of a folder, where one is allowed, there is nothing to open."""
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


def _systems() -> str:
    return ", ".join(WHOLE + BY_LINE)


def _moment(text: str | None, name: str) -> datetime | None:
    return None if text is None else to_datetime(parse_timestamp(text, name))


async def _newer(database: Database, tenant: str, after: int, filters: tuple[Any, ...]) -> AsyncIterator[Any]:
    """Yield events as they are committed; a number may be committed after a later one, so the follower looks back."""
    seen: dict[int, float] = {}
    while True:
        async with database.read(tenant) as connection:
            rows = await connection.fetch(sql("browse.newer_events"), tenant, after, list(seen), *filters)
        now = time.monotonic()
        for row in rows:
            seen[row["event_seq"]] = now
            yield row
        old = [seq for seq, at in seen.items() if now - at > LATE_COMMITS_S]
        if old:
            after = max(old)
            seen = {seq: at for seq, at in seen.items() if seq > after}
        if len(rows) < 1000:
            await asyncio.sleep(FOLLOW_EVERY_S)


def _listing(rows: list[Any]) -> Any:
    return console.table(
        ("seq", "when", "channel", "participants", "type", "what", "event_id"),
        (
            (
                row["event_seq"],
                f"{row['occurred_at'].isoformat(' ', 'seconds')[:19]}",
                row["channel"],
                ", ".join(row["participants"]),
                row["type"],
                _said(row),
                row["event_id"],
            )
            for row in rows
        ),
        right=("seq",),
    )


def _follow_line(row: Any) -> Text:
    line = Text(f"{row['event_seq']:>8} {row['occurred_at'].isoformat(' ', 'seconds')[:19]} ", style="dim")
    line.append(console.one_line(f"{row['channel']} [{', '.join(row['participants'])}] "), style="dim")
    line.append(_said(row))
    return line


def _said(row: Any) -> str:
    text = console.one_line(payload_text(orjson.loads(row["payload"])), 100)
    return f"(internal) {text}" if row["internal"] else text


def _write_line(row: Any) -> None:
    sys.stdout.write(
        console.json_text(
            {
                "event_id": row["event_id"],
                "event_seq": row["event_seq"],
                "timestamp": rfc3339_of(row["occurred_at"], row["utc_offset"]),
                "ingested_at": rfc3339_of(row["ingested_at"]),
                "channel": row["channel"],
                "participants": list(row["participants"]),
                "source_event_key": row["source_event_key"],
                "type": row["type"],
                "context_id": row["context_id"],
                "internal": row["internal"],
                "topic_hints": orjson.loads(row["topic_hints"]),
                "payload": orjson.loads(row["payload"]),
            }
        )
        + "\n"
    )
    sys.stdout.flush()
