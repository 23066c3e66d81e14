"""`myria migrate` and `verify`: the database's schema and soundness."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import orjson
import typer
from rich.text import Text

from myria.db import schema
from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    MyriaError,
    SchemaOutdated,
)
from myria.program import importing
from myria_cli import console
from myria_cli.options import Options, command
from myria_cli.place import Place, opened
from myria_embedded import grant_roles
from myria_migrations import migrations, roles_sql

if TYPE_CHECKING:
    from myria.builds.verify import Report
    from myria.settings import Settings

PANEL = "Keep it well"
T = TypeVar("T")
CHECK_FAILED = 1
WAIT_S = 1.0
"""Seconds between two looks while `migrate --wait` waits."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""

    @command(
        app,
        "migrate",
        panel=PANEL,
        examples="""
myria migrate --dsn postgresql://owner@db/myria

myria migrate --check

myria migrate --print-roles | psql postgresql://postgres@db/myria

myria migrate --grant --wait 300 --dsn postgresql://owner@db/myria
""",
    )
    async def migrate(
        options: Options,
        *,
        check: Annotated[
            bool, typer.Option("--check", help="Change nothing; exit 6 when migrations are missing.")
        ] = False,
        print_roles: Annotated[
            bool, typer.Option("--print-roles", help="Print the SQL that makes the planes' roles, and do no more.")
        ] = False,
        grant: Annotated[
            bool, typer.Option("--grant", help="Then grant the planes' roles what they need; the roles must exist.")
        ] = False,
        wait: Annotated[
            float,
            typer.Option(
                min=0, metavar="SECONDS", help="Wait so long for the database; with --check, for its migration too."
            ),
        ] = 0.0,
    ) -> None:
        """Bring the database's schema up to this program, each step in a transaction, under one lock.

        In a database restored from a dump it also renews the transaction numbers, which another server gave out: run
        it before anything else works there.

        Migrations never create roles: an administrator runs the SQL of --print-roles (once, and after upgrades). The
        embedded server has them by itself.
        """
        if print_roles:
            console.out().file.write(roles_sql())
            return
        settings = options.settings()
        async with opened(options, settings, create=not check) as place:
            done, adopted = await _patiently(lambda: _current(place, check=check, grant=grant), wait)
        if options.json:
            console.write_json({"applied": done, "schema": migrations()[-1].version, "adopted_events": adopted})
        else:
            console.say(f"applied {', '.join(done)}" if done else "the schema is current")
            if adopted is not None:
                console.say(f"a dump of another server: the transaction numbers of {adopted:,} events are renewed")

    @command(
        app,
        "verify",
        panel=PANEL,
        examples="""
myria verify

myria verify --deep --tenant team_a

myria verify --receipt receipt.json

myria verify --json | jq '.checks[] | select(.failed > 0)'
""",
    )
    async def verify_(
        options: Options,
        *,
        deep: Annotated[
            bool,
            typer.Option("--deep", help="Also plan every scope anew in memory and compare the root renderings."),
        ] = False,
        all_snapshots: Annotated[
            bool, typer.Option("--all-snapshots", help="The trees of archived snapshots too.")
        ] = False,
        receipt: Annotated[
            Path | None,
            typer.Option("--receipt", metavar="FILE", help="Only prove that what this receipt names is gone."),
        ] = None,
    ) -> int:
        """Prove the invariants: everything stored is recomputed from the log and compared. Nothing is written.

        One state of the database is examined, whatever goes on meanwhile. Exit 1 when a check fails.
        """
        with importing():
            from myria.builds.verify import verify  # noqa: PLC0415 - takes long to import, and help need not

        settings = options.settings()
        if receipt is not None:
            return await _prove(options, settings, receipt)
        async with opened(options, settings) as place, Database(place.serving, pool_options(settings)) as database:
            await schema.check(database)
            with console.meter("verifying", quiet=options.json) as progress:
                report = await verify(
                    database,
                    options.tenant,
                    settings.planner.for_planner(),
                    deep=deep,
                    all_snapshots=all_snapshots,
                    progress=lambda name, done, total: progress.advance(done, total or None, f"verifying {name}"),
                )
        if options.json:
            console.write_json(report.to_json())
        else:
            _show(report)
        return CHECK_FAILED if report.failed else 0


async def _prove(options: Options, settings: Settings, file: Path) -> int:
    """Prove a receipt, say what was found, and return the exit status."""
    from myria.erasure.commands import verify_receipt  # noqa: PLC0415 - these take long to import, and help need not
    from myria.erasure.model import Receipt  # noqa: PLC0415

    try:
        receipt = Receipt.of(orjson.loads(await asyncio.to_thread(file.read_bytes)))
    except (OSError, orjson.JSONDecodeError) as error:
        raise InvalidArgument(f"{file} cannot be read as a receipt: {error}", field="receipt") from error
    async with opened(options, settings) as place, Database(place.owner, pool_options(settings, size=1)) as database:
        await schema.check(database)
        proof = await verify_receipt(database, options.tenant, receipt)
    if options.json:
        console.write_json(proof.to_json())
    for problem in proof.problems:
        console.say(problem, "red")
    if not proof.problems:
        places = ", ".join(f"{count:,} {place}" for place, count in sorted(proof.examined.items()))
        console.say(f"the receipt holds: nothing of it is left ({places} examined)")
    return CHECK_FAILED if proof.problems else 0


async def _current(place: Place, *, check: bool, grant: bool) -> tuple[list[str], int | None]:
    """Bring the schema up to date, or refuse one that is not; return what was applied, and what `adopt` says."""
    if check:
        missing = await schema.pending(place.owner)
        if missing:
            raise SchemaOutdated(f"the schema lacks {', '.join(missing)}; run `myria migrate`", missing=missing)
        return [], None
    done = await schema.migrate(place.owner)
    adopted = await schema.adopt(place.owner)
    if place.embedded is not None:
        await grant_roles(place.embedded)
    elif grant:
        await schema.grant(place.owner)
    return done, adopted


async def _patiently(work: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """Retry `work` until it succeeds or the time is over; print what it waits for whenever the reason changes.

    A refused login is retried as well: when several parts start at once, the role may be made a moment later.
    """
    deadline = time.monotonic() + patience_s
    last_message = ""
    while True:
        try:
            return await work()
        except (DatabaseUnavailable, DeadlineExceeded, SchemaOutdated, ConfigurationError) as error:
            if time.monotonic() + WAIT_S > deadline:
                raise
            last_message = _say_once(error, last_message)
        await asyncio.sleep(WAIT_S)


def _say_once(error: MyriaError, last_message: str) -> str:
    if error.message != last_message:
        console.say(f"waiting: {error.message}", "dim")
    return error.message


def _show(report: Report) -> None:
    rows = []
    for check in report.checks:
        verdict = Text("FAILED", style="bold red") if check.failed else Text("ok", style="green")
        rows.append((verdict, check.name, f"{check.examined:,}", f"{check.failed:,}", f"{check.seconds:.2f} s"))
    console.write(
        console.table(("", "check", "examined", "failed", "took"), rows, right=("examined", "failed", "took"))
    )
    for check in report.checks:
        for failure in check.failures:
            console.write(Text(f"{check.name}: {console.shown(failure)}", style="red"))
        if check.failed > len(check.failures):
            console.write(Text(f"{check.name}: and {check.failed - len(check.failures):,} more", style="red"))
    if report.unreachable:
        console.say(f"{report.unreachable:,} renderings belong to no snapshot and wait for garbage collection", "dim")
    if not report.snapshots:
        console.say("no snapshot yet: only the log was examined", "dim")
