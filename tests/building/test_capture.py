"""The exact cutoff (rule 2 of docs/architecture.md), and the beginning of a build."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import asyncpg
import pytest

from myria import errors
from myria.builds.capture import start_build
from myria.builds.model import Outcome, RunningBuild
from myria.builds.snapshots import Registry
from myria.builds.versions import fingerprint
from myria.db.database import Database as Pool
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.log.high_water import high_water_mark
from myria.notes.folding import event_log
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Database

FINGERPRINT = fingerprint(builds.DEFAULTS.planner)


class InFlight:
    """An append that has its numbers and has not committed yet."""

    def __init__(self, connection: Any, scope_id: int) -> None:
        self._connection = connection
        self._scope_id = scope_id
        self._transaction = connection.transaction()

    async def insert(self, event_id: str) -> int:
        """Take the lock and a number, as an append does; return the number."""
        await self._transaction.start()
        await self._connection.execute(sql("session.name_tenant"), TENANT, "30s")
        await self._connection.execute("SELECT pg_advisory_xact_lock_shared($1)", lock_key("append", TENANT))
        seq: int = await self._connection.fetchval("SELECT nextval('myria.event_seq')")
        await self._connection.execute(
            "INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, payload) "
            "VALUES ($1, $2, $3, $4, now(), 'test', '{}')",
            TENANT,
            seq,
            event_id,
            self._scope_id,
        )
        return seq

    async def commit(self) -> None:
        """End it well."""
        await self._transaction.commit()

    async def rollback(self) -> None:
        """End it badly."""
        await self._transaction.rollback()


async def test_cutoff_waits_for_appends_in_flight(database: Database) -> None:
    """An append that took its number before a later one committed is never passed over: the cutoff waits for it."""
    await append(database.server_dsn, [event(1, "first")])
    scope_id = await builds.value(database, "SELECT scope_id FROM myria.scopes")
    async with Pool(database.server_dsn) as pool, pool.connection() as connection:
        late = InFlight(connection, scope_id)
        late_seq = await late.insert("evt_late")
        (later,) = await append(database.server_dsn, [event(2, "later")])
        capturing = asyncio.create_task(high_water_mark(pool, TENANT))
        await asyncio.sleep(0.5)
        assert not capturing.done()
        await late.commit()
        mark = await capturing

    assert late_seq < later.event_seq <= mark.cutoff
    seen = await builds.value(database, "SELECT count(*) FROM myria.events WHERE event_seq <= $1", mark.cutoff)
    assert seen == 3


async def test_cutoff_does_not_wait_for_ever(database: Database) -> None:
    """An append that fails in flight leaves a gap below the cutoff and nothing else."""
    await append(database.server_dsn, [event(1, "first")])
    scope_id = await builds.value(database, "SELECT scope_id FROM myria.scopes")
    async with Pool(database.server_dsn) as pool, pool.connection() as connection:
        late = InFlight(connection, scope_id)
        await late.insert("evt_late")
        capturing = asyncio.create_task(high_water_mark(pool, TENANT))
        await asyncio.sleep(0.1)
        await late.rollback()
        mark = await capturing

    assert mark.cutoff == 1


async def test_nothing_arrives_below_a_cutoff_and_the_bound_holds(database: Database) -> None:
    """While appends with new and old scopes run at once, no cutoff is ever passed from below, nor its xid bound."""
    chosen = random.Random(5)
    marks: list[tuple[Any, int]] = []
    async with Pool(database.server_dsn) as pool, Pool(database.builder_dsn) as other:
        ingest = event_log(pool, writers=4)

        async def client(number: int) -> None:
            turn = 0
            while turn < 40 or len(marks) < 5:
                turn += 1
                pair = ["ana", f"p{chosen.randrange(60)}"]
                await ingest.append_events(
                    TENANT, [event(turn, f"{number} {turn}", participants=pair) for _ in range(chosen.randint(1, 4))]
                )

        clients = [asyncio.create_task(client(number)) for number in range(8)]
        while not all(task.done() for task in clients):
            mark = await high_water_mark(other, TENANT)
            below = await builds.value(database, "SELECT count(*) FROM myria.events WHERE event_seq <= $1", mark.cutoff)
            marks.append((mark, below))
            await asyncio.sleep(0.005)
        await asyncio.gather(*clients)
        await ingest.close()

    for mark, below in marks:
        now = await builds.value(database, "SELECT count(*) FROM myria.events WHERE event_seq <= $1", mark.cutoff)
        early = await builds.value(
            database,
            "SELECT count(*) FROM myria.events WHERE event_seq > $1 AND xid < $2::text::xid8",
            mark.cutoff,
            mark.tail_xid,
        )
        assert (now, early) == (below, 0)


async def test_capture_is_done_once(database: Database) -> None:
    """Any number of workers that start a build at once find one cutoff, one snapshot, one task per scope."""
    await append(database.server_dsn, conversation(30))
    build_id = await builds.queue(database)
    async with Pool(database.builder_dsn) as pool:
        started = await asyncio.gather(*(start_build(pool, TENANT, build_id, FINGERPRINT) for _ in range(5)))

    assert isinstance(started[0], RunningBuild)
    assert all(one == started[0] for one in started)
    assert await builds.value(database, "SELECT count(*) FROM myria.snapshots") == 1
    assert await builds.value(database, "SELECT count(*) FROM myria.build_tasks") == 1


async def test_two_builds_of_a_tenant_are_refused(database: Database) -> None:
    """Of builds that are queued at once one is taken, and none beside it, nor by hand; another tenant's can be."""
    tries = await asyncio.gather(*(builds.queue(database) for _ in range(8)), return_exceptions=True)

    assert sorted(isinstance(one, AssertionError) for one in tries) == [False] + [True] * 7
    connection = await asyncpg.connect(database.superuser_dsn)
    with pytest.raises(asyncpg.UniqueViolationError, match="builds_one_unfinished"):
        await connection.execute(
            "INSERT INTO myria.builds (tenant_id, build_id, status, trigger) VALUES ($1, 'bld_2', 'queued', 'manual')",
            TENANT,
        )
    await connection.close()
    await builds.queue(database, tenant="other")


async def test_an_unknown_build_is_an_error(database: Database) -> None:
    """Starting a build that is not queued names it."""
    async with Pool(database.builder_dsn) as pool:
        with pytest.raises(errors.BuildNotFound, match="bld_nowhere"):
            await start_build(pool, TENANT, "bld_nowhere", FINGERPRINT)


async def test_an_automatic_build_queued_before_a_rollback_is_aborted(database: Database) -> None:
    """A rollback also stops the automatic build that is queued already; a manual one goes on."""
    for part in range(2):
        await append(database.server_dsn, conversation(10, seed=part, start=part * 9000))
        await builds.build(database)
    await append(database.server_dsn, conversation(10, seed=7, start=50_000))
    build_id = await builds.queue(database, trigger="inactivity")
    async with Pool(database.operator_dsn) as pool:
        await Registry(pool, builds.DEFAULTS).rollback(TENANT)
    async with Pool(database.builder_dsn) as pool:
        assert await start_build(pool, TENANT, build_id, FINGERPRINT) is Outcome.ABORTED

    built = await builds.build(database)

    assert built.outcome is Outcome.SUCCEEDED
