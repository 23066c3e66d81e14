"""A process that is stopped in the middle of a transaction: PostgreSQL takes its locks from it, and others go on."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

import asyncpg
import pytest

from myria import errors
from myria.builds.model import Outcome
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.db.database import PoolOptions, TransactionBounds
from myria.db.locks import lock_key
from myria.db.options import build_options, pool_options
from myria.log.high_water import high_water_mark
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database
from tests.support.stopped import APPENDING, ROLLING_BACK, holders, stopped_once_waiting, uncommitted_event

pytestmark = pytest.mark.processes


async def test_a_build_goes_on_though_a_server_is_stopped_in_an_append(database: Database) -> None:
    """A serving process that is stopped inside an append loses the tenant's append lock, and the build ends well."""
    (first, *_) = await append(database.server_dsn, conversation(10))
    holder, watcher = [await asyncpg.connect(database.superuser_dsn) for _ in range(2)]
    try:
        async with AsyncExitStack() as stack:
            async with uncommitted_event(holder, first.event_id):
                await stack.enter_async_context(stopped_once_waiting(APPENDING, database.server_dsn, holder, watcher))
                assert await holders(watcher, "append")

            built = await builds.build(database)

            assert built.outcome is Outcome.SUCCEEDED
            assert await holders(watcher, "append") == []
    finally:
        await holder.close()
        await watcher.close()


async def test_a_publish_goes_on_though_a_server_is_stopped_in_a_rollback(database: Database) -> None:
    """A serving process that is stopped while it moves the pointer loses the publish lock, and a build publishes."""
    for part in range(2):
        await append(database.server_dsn, conversation(10, seed=part, start=part * 9000))
        await builds.build(database)
    await append(database.server_dsn, conversation(10, seed=3, start=30_000))
    holder, watcher = [await asyncpg.connect(database.superuser_dsn) for _ in range(2)]
    try:
        pointer = holder.transaction()
        await pointer.start()
        await holder.execute("SELECT FROM myria.active_snapshots FOR UPDATE")
        async with stopped_once_waiting(ROLLING_BACK, database.server_dsn, holder, watcher):
            assert await holders(watcher, "publish")
            await pointer.rollback()

            built = await builds.build(database)

            assert built.outcome is Outcome.SUCCEEDED
            assert await holders(watcher, "publish") == []
    finally:
        await holder.close()
        await watcher.close()


async def test_a_lock_that_nobody_gives_back_ends_the_build_with_a_reason(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that is not ours keeps the append lock: the build fails, and names the backend that has it."""
    await append(database.server_dsn, conversation(10))
    monkeypatch.setattr("myria.log.high_water.GIVE_UP_AFTER_S", 0.5)
    holder = await asyncpg.connect(database.server_dsn)
    try:
        await holder.execute("SELECT pg_advisory_lock_shared($1)", lock_key("append", TENANT))
        pid = await holder.fetchval("SELECT pg_backend_pid()")

        built = await builds.build(database)

        assert built.outcome is Outcome.FAILED
        assert built.error is not None
        assert (built.error["code"], built.error["details"]["pids"]) == ("log_busy", [pid])
        async with Pool(database.builder_dsn) as pool:
            with pytest.raises(errors.LogBusy, match=str(pid)):
                await high_water_mark(pool, TENANT)
    finally:
        await holder.close()


_BOUNDED = ("statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout", "transaction_timeout")


async def test_every_transaction_of_every_plane_is_bounded(database: Database) -> None:
    """Whatever begins a transaction: PostgreSQL knows an end for its statements, its waiting and all of it."""
    planes = {
        database.server_dsn: pool_options(builds.DEFAULTS),
        database.operator_dsn: pool_options(builds.DEFAULTS, size=2),
        database.builder_dsn: build_options(builds.DEFAULTS, size=2),
        database.dsn: PoolOptions(),
    }
    for dsn, options in planes.items():
        for bouncer in (False, True):
            async with Pool(dsn, replace(options, pgbouncer=bouncer)) as pool:
                for lend in (pool.read, pool.write, pool.append):
                    async with lend(TENANT) as connection:
                        limits = {name: await connection.fetchval(f"SHOW {name}") for name in _BOUNDED}
                    assert "0" not in limits.values(), (dsn, lend, limits)
                async with pool.connection() as connection:
                    idle = await connection.fetchval("SHOW idle_in_transaction_session_timeout")
                    # Behind PgBouncer a session is somebody else's next.
                    assert (idle == "0") is bouncer


async def test_bounds_may_be_given_for_long_reads(database: Database) -> None:
    """A read that is long on purpose brings bounds of its own."""
    async with (
        Pool(database.server_dsn) as pool,
        pool.read(TENANT, TransactionBounds(statement=77.0, idle=66.0)) as connection,
    ):
        assert await connection.fetchval("SHOW statement_timeout") == "77s"
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "66s"


async def test_a_rollback_gives_up_a_publish_lock_that_is_never_free(database: Database) -> None:
    """Who waits for the publish lock waits for a bounded time, and is told so."""
    await append(database.server_dsn, conversation(10))
    await builds.build(database)
    holder = await asyncpg.connect(database.server_dsn)
    options = PoolOptions(bounds=TransactionBounds(lock=0.3))
    try:
        await holder.execute("SELECT pg_advisory_lock($1)", lock_key("publish", TENANT))
        async with Pool(database.operator_dsn, options) as pool:
            with pytest.raises(errors.DeadlineExceeded):
                await Registry(pool, builds.DEFAULTS).rollback(TENANT)
    finally:
        await holder.close()
