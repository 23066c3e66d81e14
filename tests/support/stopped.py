"""A serving process that is stopped in the middle of a transaction, while it has a lock that others want."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

import asyncpg

from myria.db.locks import Purpose, lock_key
from myria.db.queries import sql
from myria.log.payloads import dedupe_key
from tests.support.events import TENANT
from tests.support.patience import PATIENCE_S

APPENDING = """
import asyncio
from myria.memory import Memory
from myria.settings import Settings
from tests.support.events import TENANT, event

async def main():
    settings = Settings.load()
    async with Memory(settings.postgres.dsn, settings) as memory:
        await memory.log.append_events(TENANT, [event(5, "of the stopped process", source_event_key="stopped")])

asyncio.run(main())
"""

ROLLING_BACK = """
import asyncio
from myria.memory import Memory
from myria.settings import Settings
from tests.support.events import TENANT

async def main():
    settings = Settings.load()
    async with Memory(settings.postgres.dsn, settings) as memory:
        await memory.registry.rollback(TENANT)

asyncio.run(main())
"""


@asynccontextmanager
async def stopped_once_waiting(
    program: str,
    dsn: str,
    holder: asyncpg.Connection,
    watcher: asyncpg.Connection,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Run a program until it waits for what `holder`'s transaction has, stop it, and let it have that."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program),
        env={**os.environ, "MYRIA_POSTGRES_DSN": dsn, "MYRIA_POSTGRES_IDLE_TIMEOUT_S": "3", **environment},
    )
    pid = await holder.fetchval("SELECT pg_backend_pid()")
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await watcher.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))", pid
            ):
                assert process.returncode is None
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGSTOP)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def uncommitted_event(holder: asyncpg.Connection, beside: str) -> AsyncIterator[None]:
    """Have an uncommitted row of the key that `APPENDING` appends, for the block: that append waits in its middle."""
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute(
        "INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, payload,"
        " source_event_key, dedupe_key) SELECT tenant_id, nextval('myria.event_seq'), 'evt_in_flight', scope_id,"
        " occurred_at, channel, payload, 'stopped', $2 FROM myria.events WHERE event_id = $1",
        beside,
        dedupe_key("test", "stopped"),
    )
    yield
    await transaction.rollback()


async def holders(connection: asyncpg.Connection, purpose: Purpose) -> list[int]:
    rows = await connection.fetch(sql("session.lock_holders"), lock_key(purpose, TENANT))
    return [row["pid"] for row in rows]
