"""What the work beside builds waits for: kept with the tenant until it goes well again, so that `status` can tell it.

Only what the provider of a model did or said is kept. A reply that cannot be used is of one note or one text, and no
reason why the rest waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from myria.db.database import ALL_TENANTS, Database
from myria.db.queries import sql
from myria.errors import ModelFailed
from myria.llm.failures import TOLD, kind_of


class Work(StrEnum):
    """Work that asks a model, and that nobody waits for."""

    VECTORS = "vectors"
    RATINGS = "ratings"
    FACTS = "facts"


async def note_outcome(database: Database, tenant: str, work: Work, failure: ModelFailed | None) -> None:
    """Keep why some work waits, from the first failure on, or that it went well.

    Args:
        database: connects as the control plane or a builder.
        tenant: whose work it is.
        work: what was tried.
        failure: why it was not done; None for success.
    """
    if failure is not None and kind_of(failure) not in TOLD:
        return
    async with database.write(tenant) as connection:
        if failure is None:
            await connection.execute(sql("triggers.end_wait"), tenant, work.value)
        else:
            await connection.execute(sql("triggers.note_wait"), tenant, work.value, failure.message)


async def forget(database: Database, unused: Iterable[Work]) -> None:
    """Forget, for all tenants, what work waits for that nobody does any more, as it was switched off."""
    async with database.write(ALL_TENANTS) as connection:
        await connection.execute(sql("triggers.forget_waits"), [work.value for work in unused])
