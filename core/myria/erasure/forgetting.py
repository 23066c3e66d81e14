"""Forgetting, in every process, what it keeps of a tenant in which something was erased.

Reads show nothing of it from the withdrawal on; here it leaves the process's memory, too. The tenants' epochs move with
each transaction that erases, and are read twice a second.
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
    """Watches the epochs of erasures for one process.

    Args:
        database: where they are read; a pool of which reads cannot take all connections.
        forget: forgets what is kept of a tenant.
        again_s: seconds after which that is done once more: a read that had begun before may have kept something since.
    """

    def __init__(self, database: Database, forget: Callable[[str], None], *, again_s: float) -> None:
        self._database = database
        self._forget = forget
        self._again_s = again_s
        self._epochs: dict[str, int] = {}
        self._again: dict[str, float] = {}

    async def run(self) -> None:
        """Look at the epochs until cancelled. A database that is away erases nothing meanwhile."""
        while True:
            try:
                await self.look()
            except MyriaError as error:
                logger.debug("the epochs of erasures were not read: %s", error)
            except Exception:
                logger.exception("the epochs of erasures were not read", extra={"action": "forgetting_failed"})
            await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Forget what is kept of the tenants whose epoch has moved."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(sql("erasures.epochs"), timeout=_STATEMENT_S)
        epochs = {row["tenant_id"]: row["epoch"] for row in rows}
        now = time.monotonic()
        for tenant in [tenant for tenant, epoch in epochs.items() if self._epochs.get(tenant) != epoch]:
            self._forget(tenant)
            self._again[tenant] = now + self._again_s
        for tenant in [tenant for tenant, at in self._again.items() if at <= now]:
            self._forget(tenant)
            del self._again[tenant]
        self._epochs = epochs
