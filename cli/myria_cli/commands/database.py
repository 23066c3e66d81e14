"""`myria migrate`, `verify` and `version`: the database's schema and soundness, and what this program is."""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import orjson
import typer
from rich.text import Text

from myria.db import schema
from myria.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    DeadlineExceeded,
    InvalidArgument,
    SchemaOutdated,
)
from myria.versions import PLANNER_VERSION, RANKING_VERSION, SEARCH_VERSION
from myria_cli import console
from myria_cli.options import Options, Shown, command
from myria_cli.place import Place, database_of, opened
from myria_embedded import grant_roles
from myria_migrations import migrations, roles_sql

if TYPE_CHECKING:
    from myria.builds.verify import Report

PANEL = "Keep it well"
T = TypeVar("T")
CHECK_FAILED = 1
WAIT_S = 1.0
"""Seconds between two looks while `migrate --wait` waits."""

app = typer.Typer(rich_help_panel=PANEL)


@command(app, "migrate")
async def migrate(
    options: Options,
    *,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 6 when migrations are missing.")] = False,
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

    Examples:
        myria migrate --dsn postgresql://owner@db/myria
        myria migrate --check
        myria migrate --print-roles | psql postgresql://postgres@db/myria
        myria migrate --grant --wait 300 --dsn postgresql://owner@db/myria
    """
    if print_roles:
        console.write_lines(roles_sql().splitlines())
        return
    settings = options.settings()
    async with opened(options, settings, create=not check) as place:
        done, adopted = await _retry(lambda: _bring_up_to_date(place, check=check, grant=grant), wait)
    restored = f"a dump of another server: the transaction numbers of {adopted or 0:,} events are renewed"
    options.answer(
        {"applied": done, "schema": migrations()[-1].version, "adopted_events": adopted},
        f"applied {', '.join(done)}" if done else "the schema is current",
        restored if adopted is not None else None,
    )


@command(app, "verify")
async def verify(
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
        typer.Option(metavar="FILE", help="Only prove that what this receipt names is gone."),
    ] = None,
) -> int:
    """Prove the invariants: everything stored is recomputed from the log and compared. Nothing is written.

    One state of the database is examined, whatever goes on meanwhile. Exit 1 when a check fails.

    Examples:
        myria verify
        myria verify --deep --tenant team_a
        myria verify --receipt receipt.json
        myria verify --json | jq '.checks[] | select(.failed > 0)'
    """
    if receipt is not None:
        return await _prove_receipt(options, receipt)
    from myria.builds.verify import verify as examine

    planner = options.settings().planner
    async with database_of(options) as database:
        with console.meter("verifying", quiet=options.json) as progress:
            report = await examine(
                database,
                options.tenant,
                planner,
                deep=deep,
                all_snapshots=all_snapshots,
                progress=lambda name, done, total: progress.advance(done, total or None, f"verifying {name}"),
            )
    options.answer(report.to_json(), *_findings(report))
    return CHECK_FAILED if report.failed else 0


@command(app, "version")
async def version(options: Options) -> None:
    """Say which versions this is: program, schema, planner, search blocks, ranking, Python.

    Examples:
        myria version --json
    """
    versions = {
        "myria": metadata.version("myria"),
        "schema": migrations()[-1].version,
        "planner": PLANNER_VERSION,
        "search": SEARCH_VERSION,
        "ranking": RANKING_VERSION,
        "python": platform.python_version(),
    }
    options.answer(
        versions,
        Text(f"myria {versions['myria']}"),
        f"schema {versions['schema']}, planner {versions['planner']}, search {versions['search']}, "
        f"ranking {versions['ranking']}, Python {versions['python']}",
    )


async def _prove_receipt(options: Options, file: Path) -> int:
    """Check that everything a receipt names is gone, print the result, and return the exit status."""
    from myria.erasure.model import Receipt
    from myria.erasure.receipts import verify_receipt

    try:
        receipt = Receipt.of(orjson.loads(await asyncio.to_thread(file.read_bytes)))
    except (OSError, orjson.JSONDecodeError) as error:
        raise InvalidArgument(f"{file} cannot be read as a receipt: {error}", field="receipt") from error
    async with database_of(options, "owner") as database:
        proof = await verify_receipt(database, options.tenant, receipt)
    if options.json:
        console.write_json(proof.to_json())
    for problem in proof.problems:
        console.say(problem, "red")
    if not proof.problems:
        places = ", ".join(f"{count:,} {place}" for place, count in sorted(proof.examined.items()))
        console.say(f"the receipt holds: nothing of it is left ({places} examined)")
    return CHECK_FAILED if proof.problems else 0


async def _bring_up_to_date(place: Place, *, check: bool, grant: bool) -> tuple[list[str], int | None]:
    """Migrate the schema, or with `check` only refuse one that is not up to date.

    Return the migrations that were applied, and the number of events that `schema.adopt` changed, which is None if it
    had nothing to do.
    """
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


async def _retry(work: Callable[[], Awaitable[T]], patience_s: float) -> T:
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
            if error.message != last_message:
                console.say(f"waiting: {error.message}", "dim")
                last_message = error.message
        await asyncio.sleep(WAIT_S)


def _findings(report: Report) -> Iterator[Shown]:
    """Yield the result of each check, with the failures that it found."""
    columns: dict[str, console.Column] = {
        "": lambda check: Text("FAILED", style="bold red") if check.failed else Text("ok", style="green"),
        "check": lambda check: check.name,
        "examined": lambda check: f"{check.examined:,}",
        "failed": lambda check: f"{check.failed:,}",
        "took": lambda check: f"{check.seconds:.2f} s",
    }
    yield console.table(columns, report.checks, right=("examined", "failed", "took"))
    for check in report.checks:
        unnamed = check.failed - len(check.failures)
        for failure in (*check.failures, *([f"and {unnamed:,} more"] if unnamed > 0 else [])):
            yield Text(f"{check.name}: {console.shown(failure)}", style="red")
    if report.unreachable:
        yield f"{report.unreachable:,} renderings belong to no snapshot and wait for garbage collection", "dim"
    if not report.snapshots:
        yield "no snapshot yet: only the log was examined", "dim"
