"""Connections: what each costs, and what is left of one whose transaction could not begin, or not end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio
import asyncpg
import pytest

from myria.db.database import Database as Pool
from myria.db.database import PoolOptions, TransactionBounds
from myria.db.locks import lock_key
from myria.errors import DatabaseUnavailable, DeadlineExceeded
from tests.support.events import TENANT
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database


@pytest.mark.parametrize("conforming", ["on", "off"])
async def test_a_name_never_becomes_sql(database: Database, conforming: str) -> None:
    """Quotes, backslashes and other scripts arrive as they are."""
    setting = f"?options=-c%20standard_conforming_strings%3D{conforming}"
    assert "?" in database.server_dsn
    dsn = database.server_dsn.replace("?", f"{setting}&", 1)
    async with Pool(dsn, PoolOptions(size=1)) as pool:
        for name in ("", "*", "it's", "x'; ROLLBACK; SELECT '", "a\\", "\\'; ROLLBACK; --", "E'\\x27", "日本 $1 $2"):
            async with pool.write(name) as connection:
                assert await connection.fetchval("SHOW standard_conforming_strings") == conforming
                assert await connection.fetchval("SELECT current_setting('myria.tenant')") == name


async def test_a_transaction_that_could_not_begin_leaves_a_sound_connection(database: Database) -> None:
    """An append that waits too long for its lock is refused, and the next has the same connection."""
    bounds = TransactionBounds(lock=0.05)
    async with Pool(database.server_dsn, PoolOptions(size=1, bounds=bounds)) as pool:
        builder = await asyncpg.connect(database.builder_dsn)
        try:
            async with builder.transaction():
                await builder.execute("SELECT pg_advisory_xact_lock($1)", lock_key("append", TENANT))
                with pytest.raises(DeadlineExceeded):
                    async with pool.append(TENANT):
                        pass
        finally:
            await builder.close()
        async with pool.append(TENANT) as connection:
            assert await connection.fetchval("SELECT current_setting('myria.tenant')") == TENANT
        async with pool.connection() as connection:
            assert await connection.fetchval("SELECT coalesce(current_setting('myria.tenant', true), '')") == ""


async def test_a_connection_that_comes_back_is_the_next_callers(database: Database) -> None:
    """Also one that waits for it; one that PostgreSQL ended is replaced; and closing leaves none behind."""

    async def pid(pool: Pool) -> int:
        async with pool.connection() as connection:
            number: int = await connection.fetchval("SELECT pg_backend_pid()")
            return number

    watching = await asyncpg.connect(database.superuser_dsn)
    try:
        async with Pool(database.server_dsn, PoolOptions(size=2)) as pool:
            first = await pid(pool)
            assert await pid(pool) == first
            assert pool.in_use == 0
            several = await asyncio.wait_for(asyncio.gather(*(pid(pool) for _ in range(20))), PATIENCE_S)
            assert len(set(several)) <= 2
            assert pool.in_use == 0
            ended = await pid(pool)
            await watching.fetchval("SELECT pg_terminate_backend($1, 60000)", ended)
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    with suppress(DatabaseUnavailable):
                        if await pid(pool) != ended:
                            break
        left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        async with asyncio.timeout(PATIENCE_S):
            while await watching.fetchval(left):
                await asyncio.sleep(0.01)
    finally:
        await watching.close()


async def test_a_cancelled_task_ends_though_its_connection_is_closed(database: Database) -> None:
    """A connection that is lost in the same moment does not turn the cancellation into an outage to be waited for."""
    began = asyncio.Event()

    async def works(pool: Pool) -> None:
        async with pool.read(TENANT) as connection:
            connection.terminate()
            began.set()
            await asyncio.Event().wait()

    async with Pool(database.server_dsn, PoolOptions(size=1)) as pool:
        task = asyncio.create_task(works(pool))
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


@pytest.mark.parametrize("at", ["statement", "commit"])
async def test_whoever_is_cancelled_again_and_again_leaves_a_sound_connection(
    database: Database, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    """As where a browser goes away: anyio cancels the clean-up, too. Nothing stays open, and no error is logged."""
    async with Pool(database.server_dsn, PoolOptions(size=1)) as pool:
        async with anyio.create_task_group() as group, pool.read(TENANT) as connection:
            asyncio.get_running_loop().call_soon(group.cancel_scope.cancel)
            if at == "statement":
                await connection.execute("SELECT pg_sleep(1000)")
        assert group.cancel_scope.cancelled_caught
        async with pool.connection() as connection:
            assert not connection.is_in_transaction()
            assert await connection.fetchval("SELECT coalesce(current_setting('myria.tenant', true), '')") == ""
    assert not [record for record in caplog.records if record.name == "asyncio"]
