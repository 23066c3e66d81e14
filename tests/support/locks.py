"""Wait until somebody waits for a lock, instead of sleeping and hoping that they do."""

from __future__ import annotations

import asyncio

import asyncpg

from tests.support.patience import PATIENCE_S


async def somebody_waits(connection: asyncpg.Connection, *, count: int = 1) -> None:
    """Return once `count` other sessions of the connection's database wait for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(PATIENCE_S):
        while await connection.fetchval(waiting) < count:
            await asyncio.sleep(0.01)
