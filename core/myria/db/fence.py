"""What keeps late writers out: words that were read before an erasure are not written after it.

Whoever writes what was made of events takes a lock that it shares with other writers, in the transaction that writes,
and looks whether its work still counts. An abort, and an erasure, own the lock for a moment: what was written before is
seen by them, and what comes later is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from myria import errors
from myria.db.database import Connection, Database
from myria.db.queries import sql


@asynccontextmanager
async def adding_to(database: Database, tenant: str, build_id: str) -> AsyncIterator[Connection]:
    """Lend a connection inside a transaction that adds to a build: until it ends, the build does not.

    Raises:
        LeaseLost: it has ended already: its worker stood still meanwhile.
    """
    async with database.write(tenant, sharing="build") as connection:
        if not await connection.fetchval(sql("builds.is_running"), tenant, build_id):
            raise errors.LeaseLost(f"build {build_id} has ended; nothing more is written for it", build_id=build_id)
        yield connection
