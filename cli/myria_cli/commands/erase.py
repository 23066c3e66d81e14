"""`myria erase`: events and everything made of them, gone for good, with a receipt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson
import typer

from myria.db import schema
from myria.db.database import Database
from myria.db.options import pool_options
from myria.erasure.model import SHARED_POLICIES, ErasurePlan, ErasureStatus, Selection, SharedPolicy
from myria.errors import InvalidArgument
from myria.log.scopes import canonical_participants
from myria_cli import console
from myria_cli.commands.database import PANEL
from myria_cli.options import Options, actor, command
from myria_cli.place import opened

if TYPE_CHECKING:
    from myria.erasure.commands import Erasures

Names = list[str] | None

_LISTED = 50
"""Most erasures that --list shows."""

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "erase")
async def erase(
    options: Options,
    *,
    event: Annotated[Names, typer.Option(metavar="ID", help="An event. Repeatable.")] = None,
    event_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Events, one id per line, as --ids prints.")
    ] = None,
    note: Annotated[
        Names, typer.Option(metavar="ID", help="Every version of a note, and its links. Repeatable.")
    ] = None,
    participant: Annotated[
        Names, typer.Option(metavar="NAME", help="What a participant was told alone. Repeatable.")
    ] = None,
    context: Annotated[Names, typer.Option(metavar="ID", help="All of a context, or session. Repeatable.")] = None,
    source: Annotated[
        Names, typer.Option(metavar="CHANNEL=KEY", help="An event by its source key. Repeatable.")
    ] = None,
    query: Annotated[str, typer.Option(metavar="WORDS", help="Events that say these words in this order.")] = "",
    policy: Annotated[
        str, typer.Option(metavar="|".join(SHARED_POLICIES), help="Events a participant shares.")
    ] = "keep",
    after: Annotated[int, typer.Option(metavar="N", help="Next page of the dry run.")] = 0,
    reason: Annotated[str, typer.Option(metavar="WHY", help="Why, for the receipt; no names.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Erase; without it this only says what would go.")] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with an erasure, or fetch its receipt.")
    ] = None,
    admit: Annotated[
        bool, typer.Option("--admit", help="Erase nothing: let the events of --source be appended again.")
    ] = False,
    receipt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the receipt goes; else standard output.")
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="Erase nothing: show erasures, newest first, and how far they are.")
    ] = False,
    ids: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Erase nothing: print the ids of the events of an erasure."),
    ] = None,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Afterwards, or alone: let PostgreSQL remove the dead rows (VACUUM).")
    ] = False,
) -> None:
    """Erase events and all that was made of them, in every snapshot; without --yes only say what would go.

    It cannot be undone. From the first moment on nothing of it is read. If it is killed, the control plane of a
    running Myria goes on with it, and `--resume` follows it or goes on by itself. The receipt holds a key that
    nobody else has: keep the file.

    Examples:
        myria erase --participant eva --policy keep
        myria erase --participant eva --policy keep --reason 'request 17' --yes --receipt receipt.json
        myria erase --query '+351 912 345 678' --json
        myria erase --resume era_0193 --receipt receipt.json
        myria erase --list
    """
    from myria.builds.snapshots import Registry
    from myria.erasure.commands import Erasures
    from myria.erasure.execution import WITHDRAWN_WITHIN_S
    from myria.notes.folding import event_log

    if receipt is not None and receipt.exists():
        raise InvalidArgument(f"{receipt} exists already; name a new file", field="receipt")
    settings = options.settings()
    selected: dict[str, Any] = {
        "events": (*(event or ()), *_read_ids(event_file)),
        "notes": tuple(note or ()),
        "participants": canonical_participants(participant, field="participant") if participant else (),
        "contexts": tuple(context or ()),
        "query": query.strip(),
        "sources": tuple(_channel_and_key(text) for text in source or ()),
    }
    async with (
        opened(options, settings) as place,
        Database(place.owner, pool_options(settings, size=4)) as database,
    ):
        await schema.check(database)
        erasures = Erasures(
            database,
            Registry(database, settings),
            event_log(database, settings, deadline=WITHDRAWN_WITHIN_S),
            options.tenant,
            actor=actor(),
            lease_s=settings.erasure.lease_s,
        )
        if listing:
            _show_erasures(options, await erasures.newest(_LISTED))
            return
        if ids is not None:
            console.write_lines(await erasures.event_ids(ids))
            return
        if admit:
            await erasures.admit(list(selected["sources"]))
            console.say(f"{len(selected['sources'])} source keys are accepted again")
            return
        if vacuum and resume is None and not any(selected.values()):
            _show_vacuumed(await schema.vacuum_erased(place.owner))
            return
        if resume is None:
            selection = Selection(**selected, shared=cast("SharedPolicy", policy))
            if not yes:
                _show_plan(options, await erasures.plan(selection, after=after))
                return
            if not reason.strip():
                raise InvalidArgument("say why with --reason: it stands in the receipt", field="reason")
            resume = await erasures.start(selection, reason=reason)
            console.say(f"erasure {resume} has begun; if it is killed: myria erase --resume {resume}")
        with console.meter("rows erased", quiet=options.json) as progress:
            await erasures.run(resume, progress=lambda counts: progress.advance(sum(counts.values())))
        await _hand_over(erasures, resume, receipt)
        if vacuum:
            _show_vacuumed(await schema.vacuum_erased(place.owner))


async def _hand_over(erasures: Erasures, erasure_id: str, file: Path | None) -> None:
    """Write the receipt to the file or standard output, then mark it as delivered, so that its key is forgotten.

    The file is synced to the disk first: the key exists nowhere else afterwards.
    """
    new_receipt = await erasures.receipt(erasure_id)
    if file is None:
        console.write_json(new_receipt.to_json())
    else:
        text = orjson.dumps(new_receipt.to_json(), option=orjson.OPT_INDENT_2)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened_file:
            opened_file.write(text + b"\n")
            opened_file.flush()
            os.fsync(opened_file.fileno())
        console.say(f"the receipt is in {file}: `myria verify --receipt {file}` proves it")
    await erasures.handed_over(erasure_id)


def _show_plan(options: Options, plan: ErasurePlan) -> None:
    shared = f"shared with others: {plan.shared_events:,} events; --policy says what becomes of them"
    columns: dict[str, console.Column] = {
        "event": "event_id",
        "when": "timestamp",
        "participants": lambda event: list(event["participants"]),
    }
    options.answer(
        plan.to_json(),
        f"a dry run: nothing was changed; --yes erases {plan.counts['events']:,} events",
        *(f"{place}: {count:,}" for place, count in plan.counts.items()),
        shared if plan.shared_events else None,
        console.table(columns, plan.events),
        f"there are more: --after {plan.next_after}" if plan.next_after is not None else None,
    )


def _show_erasures(options: Options, erasures: Sequence[ErasureStatus]) -> None:
    columns: dict[str, console.Column] = {
        "erasure": lambda erasure: erasure.erasure_id,
        "state": lambda erasure: erasure.state + (", in progress" if erasure.is_worked_on else ""),
        "events": lambda erasure: f"{erasure.events:,}",
        "erased": lambda erasure: f"{erasure.erased:,}",
        "asked at": lambda erasure: console.to_the_second(erasure.asked_at),
        "by": lambda erasure: erasure.by,
        "reason": lambda erasure: console.one_line(erasure.reason, 60),
        "failure": lambda erasure: None if erasure.failure is None else erasure.failure["code"],
    }
    options.answer(
        {"erasures": [erasure.to_json() for erasure in erasures]},
        console.table(columns, erasures, right=("events", "erased")),
    )


def _show_vacuumed(tables: Sequence[schema.Vacuumed]) -> None:
    """Print what a VACUUM did, which dead rows it had to leave, and where older pages still exist."""
    if not tables:
        console.say(
            "nothing was vacuumed: before PostgreSQL 17 only the owner of the tables may. Run `myria erase --vacuum` "
            "with that login; autovacuum will remove the dead rows otherwise",
            "yellow",
        )
        return
    size = sum(table.bytes_now for table in tables)
    console.say(f"VACUUM went through {len(tables)} tables, which take {size / 1e6:,.1f} MB")
    for table in tables:
        if table.dead_rows:
            console.say(
                f"{table.dead_rows:,} dead rows of {table.table} stay while a transaction may read them; run it again",
                "yellow",
            )
    console.say("WAL, archives and backups keep older pages; docs/erasure.md says until when, and how to end it")


def _read_ids(file: Path | None) -> list[str]:
    """Return the words in a file, which are ids of events, one a line; none if `file` is None."""
    if file is None:
        return []
    try:
        return file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file} cannot be read as lines of text: {error}", field="event-file") from error


def _channel_and_key(text: str) -> tuple[str, str]:
    channel, is_pair, key = text.partition("=")
    if not is_pair:
        raise InvalidArgument("--source wants CHANNEL=KEY", field="source")
    return channel, key
