"""Every process clears its caches of a tenant after something of that tenant was erased.

Since the withdrawal, reads show none of it; this clears it from the process's memory, too. Each transaction that erases
raises the tenant's epoch; processes read the epochs twice a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import MyriaError

logger = logging.getLogger(__name__)

POLL_S = 0.5
"""Seconds between two looks at the epochs."""

_STATEMENT_S = 5.0


class Forgetting:
    """Watches the tenants' erasure epochs for one process.

    Args:
        database: where the epochs are read; a pool whose connections reads cannot all take.
        forget: clears the caches of a tenant.
        again_s: seconds until the caches are cleared once more: a read that began before the erasure may have filled
            them again.
    """

    def __init__(self, database: Database, forget: Callable[[str], None], *, again_s: float) -> None:
        self._database = database
        self._forget = forget
        self._again_s = again_s
        self._epochs: dict[str, int] = {}
        self._second_clearing_at: dict[str, float] = {}

    async def run(self) -> None:
        """Check the epochs until cancelled. Failed checks are harmless: an unreachable database erases nothing."""
        while True:
            try:
                await self.look()
            except MyriaError as error:
                logger.debug("the epochs of erasures were not read: %s", error)
            except Exception:
                logger.exception("the epochs of erasures were not read", extra={"action": "forgetting_failed"})
            await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Clear the caches of tenants whose epoch has changed, and of those whose second clearing is due."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(sql("erasures.epochs"), timeout=_STATEMENT_S)
        epochs = {row["tenant_id"]: row["epoch"] for row in rows}
        now = time.monotonic()
        for tenant in [tenant for tenant, epoch in epochs.items() if self._epochs.get(tenant) != epoch]:
            self._forget(tenant)
            self._second_clearing_at[tenant] = now + self._again_s
        for tenant in [tenant for tenant, due_at in self._second_clearing_at.items() if due_at <= now]:
            self._forget(tenant)
            del self._second_clearing_at[tenant]
        self._epochs = epochs
