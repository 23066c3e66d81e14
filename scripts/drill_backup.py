"""Drill: back a memory up, lose its server, restore it into an empty one, and compare everything.

Usage: drill_backup.py [--dump FILE]

Without arguments it makes a memory out of the sample on a throw-away PostgreSQL: builds, a rollback, a held snapshot,
a fresh tail. It is dumped as docs/backup.md says, restored on another throw-away server, and compared: every row of
every table, the pointer's history, the bytes of every answer. Then it goes on there: appended events are found, a
build takes them up, a rollback works. And the log alone is exported, imported and built: the same topics come out.

With --dump, a dump of your own is restored on a throw-away server of this machine and examined: only a restore proves
that a backup can be used. Exit status 1 when anything differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from myria_embedded import RoleDsns, role_dsns
from scripts.drilling import (
    SETTINGS,
    TENANT,
    Drill,
    Portrait,
    build,
    fetch,
    myria,
    portrait,
    postgres_program,
    run,
    sample_events,
    sample_questions,
    throw_away_server,
    tree,
    without_trace,
)

OLDER = "DO $$ BEGIN FOR i IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
"""Advances a server's transaction numbers past those of a new one, as months of use would."""
LATER = {
    "timestamp": "2026-04-30T08:00:00Z",
    "channel": "slack",
    "participants": ["ines", "jonas", "mika"],
    "payload": {"text": "After the restore: the zeppelin is moored at the harbour.", "speaker": "Mika"},
}


def main(arguments: Sequence[str]) -> int:
    """Do the drill; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--dump", type=Path, help="restore this dump and examine it, instead of the whole drill")
    options = parser.parse_args(arguments)
    drill = Drill()
    with (
        tempfile.TemporaryDirectory(prefix="myria-drill-", ignore_cleanup_errors=True) as folder,
        without_trace(RuntimeError),
    ):
        if options.dump is not None:
            asyncio.run(examine(drill, Path(folder), options.dump))
        else:
            asyncio.run(backup_and_restore(drill, Path(folder)))
    return drill.result()


async def backup_and_restore(drill: Drill, folder: Path) -> None:
    """Make a memory, back it up, restore it, compare."""
    questions = sample_questions()
    dump, log = folder / "myria.dump", folder / "memory.jsonl"
    drill.step("make a memory: appends, builds, a rollback, a held snapshot, a fresh tail")
    async with throw_away_server(folder / "first") as (server, dsns):
        await fetch(dsns.superuser, OLDER)
        myria("migrate", "--grant", "--dsn", dsns.owner)
        await live_through(dsns)
        before = await portrait(dsns, questions)

        drill.step("back it up: pg_dump as the owner, and the log alone")
        back_up(dsns.owner, dump)
        myria("export", log, "--dsn", dsns.owner)
        await build(dsns, full=True)
        topics = await tree(dsns.owner)

    drill.step("the first server is gone; restore on an empty one")
    async with throw_away_server(folder / "second") as (server, dsns):
        await restored(drill, dsns, dump)
        await compared(drill, before, await portrait(dsns, questions))
        await going_on(drill, dsns)

        drill.step("the log alone: import it into an empty memory, and build it")
        await fetch(dsns.superuser, "CREATE DATABASE imported OWNER myria_owner")
        other = role_dsns(server, "imported")
        myria("migrate", "--grant", "--dsn", other.owner)
        myria("import", log, "--dsn", other.owner)
        await build(other)
        drill.same("node and rendering of every topic", topics, await tree(other.owner))
        again = folder / "again.jsonl"
        myria("export", again, "--dsn", other.owner)
        drill.same("the log, to the byte", log.read_bytes(), again.read_bytes())


async def live_through(dsns: RoleDsns) -> None:
    """Make what a memory contains after a while of use."""
    events = sample_events()
    part = len(events) // 5
    async with Memory(dsns.server, SETTINGS) as memory:
        for number in range(5):
            await memory.log.append_events(TENANT, events[number * part : (number + 1) * part if number < 4 else None])
            if number < 4:
                await build(dsns, hold=number == 3)
            if number == 1:
                await memory.registry.rollback(TENANT, reason="drill")


def back_up(owner: str, dump: Path) -> None:
    """Dump a database as docs/backup.md says."""
    run(
        postgres_program("pg_dump"),
        "--format=custom",
        "--enable-row-security",
        f"--file={dump}",
        f"--dbname={owner}",
        env={"PGOPTIONS": "-c myria.tenant=*"},
    )


async def restored(drill: Drill, dsns: RoleDsns, dump: Path) -> None:
    """Restore a dump into an empty database and make it this server's own."""
    run(postgres_program("pg_restore"), "--exit-on-error", "--no-owner", f"--dbname={dsns.owner}", dump)
    first, second = (json.loads(myria("migrate", "--grant", "--json", "--dsn", dsns.owner)) for _ in range(2))
    drill.holds(f"`myria migrate` renewed the transaction numbers of {first['adopted_events']} events", True)
    drill.holds("a second time it finds nothing to do", second["adopted_events"] is None and not second["applied"])
    drill.verifies(dsns)


async def compared(drill: Drill, before: Portrait, after: Portrait) -> None:
    """Compare two portraits, part by part."""
    for table in sorted({*before.tables, *after.tables}):
        rows = before.tables.get(table, (0, ""))[0]
        drill.same(f"{table}: {rows} rows", before.tables.get(table), after.tables.get(table))
    drill.same("history of the pointer", before.pointer, after.pointer)
    drill.same("answers, to the byte", before.answers, after.answers)


async def going_on(drill: Drill, dsns: RoleDsns) -> None:
    """Use the restored memory: append, ask, build, roll back."""
    drill.step("go on with it: append, ask, build, roll back")
    async with Memory(dsns.server, SETTINGS) as memory:
        event_id = (await memory.log.append_events(TENANT, [parse_event(LATER, Limits())]))[0].event_id
        question = EventNodesQuery(participants=("mika",), query="Where is the zeppelin?")

        async def is_found() -> bool:
            answer = await memory.retrieval.query_event_nodes(TENANT, question)
            return event_id in {child["event_id"] for child in answer["root"]["children"]}

        active = await memory.registry.active_snapshot(TENANT)
        drill.holds("an event appended after the restore is found in the fresh tail", await is_found())
        drill.holds("a build takes it up", await build(dsns) == "succeeded")
        drill.holds("and it is found in its topic", await is_found())
        drill.verifies(dsns, "--deep")  # every older snapshot was proven above
        await memory.registry.rollback(TENANT, reason="drill")
        now = await memory.registry.active_snapshot(TENANT)
        drill.same("a rollback leads back to", active["snapshot"]["snapshot_id"], now["snapshot"]["snapshot_id"])
        drill.holds("and the event is found again in the fresh tail", await is_found())


async def examine(drill: Drill, folder: Path, dump: Path) -> None:
    """Restore somebody's dump and say what is in it."""
    drill.step(f"restore {dump}")
    async with throw_away_server(folder / "server") as (_, dsns):
        await restored(drill, dsns, dump)
        for tenant in await fetch(dsns.owner, "SELECT DISTINCT tenant_id FROM myria.scopes ORDER BY 1"):
            [totals] = await fetch(
                dsns.owner,
                "SELECT count(*) AS events, max(ingested_at) AS newest FROM myria.events WHERE tenant_id = $1",
                tenant["tenant_id"],
            )
            drill.holds(f"{tenant['tenant_id']}: {totals['events']:,} events, the newest of {totals['newest']}", True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
