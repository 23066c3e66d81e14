"""Removes the vectors of models that are no longer in use, some at a time; one that comes back computes anew."""

from __future__ import annotations

from typing import Final

from myria.db.database import ALL_TENANTS, Database
from myria.db.locks import lock_key
from myria.db.queries import sql

AT_ONCE: Final = 5_000
"""Events, and texts, whose vectors one transaction removes."""

MOST_STEPS: Final = 100
"""Such transactions of one call; the rest comes with the next."""


async def remove_former(database: Database, model: str | None, *, after_s: float) -> int:
    """Remove vectors that nothing has used for a while, a bounded number; return how many rows.

    Args:
        database: connects as a role that may remove vectors of every tenant.
        model: the one in use, None where none is.
        after_s: seconds for which vectors of another one stay, as far as an hour.

    Raises:
        UnavailableError: the rest is left for another time.
    """
    async with database.write(ALL_TENANTS) as connection:
        if model is not None:
            await connection.execute(sql("vectors.use"), model)
        rows = await connection.fetch(sql("vectors.former"), model, after_s)
    removed = 0
    left = MOST_STEPS
    for row in rows:
        while left:
            left -= 1
            gone = await _remove_some(database, row["tenant_id"], row["model"])
            removed += gone
            if not gone:
                break
    return removed


async def _remove_some(database: Database, tenant: str, model: str) -> int:
    async with database.write(tenant) as connection:
        await connection.execute(sql("vectors.lock"), lock_key("vectors", tenant))
        gone: int = await connection.fetchval(sql("vectors.remove_some"), tenant, model, AT_ONCE)
        if not gone:
            await connection.execute(sql("vectors.forget"), tenant, model)
    return gone
