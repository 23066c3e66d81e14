"""What a tenant's builds and walks may still use of language models today."""

from __future__ import annotations

from myria.db.database import Database
from myria.db.queries import sql


async def tokens_left(database: Database, tenant: str, most: int | None) -> int | None:
    """Return how many tokens a tenant may still use on this day (UTC), None for any number.

    Calls that are under way, here or elsewhere, are not counted yet.

    Args:
        database: any plane's.
        tenant: whose builds or walks.
        most: tokens per day of a tenant whose row says nothing (`llm.tenant_tokens_per_day`).

    Raises:
        DatabaseUnavailable: nobody can tell now.
    """
    async with database.read(tenant) as connection:
        row = await connection.fetchrow(sql("access.model_tokens"), tenant)
    if row is None:
        return most
    most = most if row["most"] is None else row["most"]
    return None if most is None else max(0, most - row["used"])
