"""Stores with the tenant why background work (other than builds) waits, until it succeeds again; `status` shows it.

Only failures of the model's provider are stored. A reply that cannot be used concerns one note or one text, so the rest
of the work does not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from myria.db.database import ALL_TENANTS, Database
from myria.db.queries import sql
from myria.errors import ModelFailed
from myria.llm.failures import TOLD, kind_of


class Work(StrEnum):
    """Background work that uses a model."""

    VECTORS = "vectors"
    RATINGS = "ratings"
    FACTS = "facts"


async def note_outcome(database: Database, tenant: str, work: Work, failure: ModelFailed | None) -> None:
    """Store why some work waits, with the time of the first failure; or, after a success, that it does not wait.

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
    """Delete, for all tenants, why these kinds of work wait: they are switched off."""
    async with database.write(ALL_TENANTS) as connection:
        await connection.execute(sql("triggers.forget_waits"), [work.value for work in unused])
