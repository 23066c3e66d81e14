"""Keeps late writers out: words that were read before an erasure must not be written after it.

A writer of rows made from events takes the build lock shared with other writers, in the transaction that writes, and
checks that its work still counts. An abort or an erasure owns the lock for a moment: it sees what was written before,
and what comes later is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from myria import errors
from myria.db.database import Connection, Database
from myria.db.queries import sql


@asynccontextmanager
async def adding_to(database: Database, tenant: str, build_id: str) -> AsyncIterator[Connection]:
    """Lend a connection inside a transaction that adds rows to a build; the build cannot end before the transaction.

    Raises:
        LeaseLost: the build has ended already, as when its worker stood still meanwhile.
    """
    async with database.write(tenant, sharing="build") as connection:
        if not await connection.fetchval(sql("builds.is_running"), tenant, build_id):
            raise errors.LeaseLost(f"build {build_id} has ended; nothing more is written for it", build_id=build_id)
        yield connection
