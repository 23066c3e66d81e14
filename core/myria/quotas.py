"""What a tenant may use of one serving process: events appended per second, by the settings or by its own row.

A tenant's row is read once in `FRESH_S`, by the first append that finds what is known too old, so that a quota costs an
append nothing. A quota of a tenant is of each process: with N processes behind a Service it may append N times as much.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from myria.access.limits import BURST_S, TokenBucket
from myria.errors import QuotaExceeded
from myria.store.database import Database
from myria.store.queries import sql

FRESH_S = 5.0
"""Seconds for which a tenant's quota that was read is good."""

MAX_REMEMBERED = 10_000
"""Tenants remembered by one process; the one seen longest ago goes first."""


@dataclass(slots=True)
class _Use:
    read_at: float
    bucket: TokenBucket | None = None


class TenantQuotas:
    """Holds tenants to their quotas.

    Args:
        database: where the rows of tenants are.
        events_per_s: of a tenant whose row says nothing; None for any number.
        ticks: a steady clock, in seconds.
    """

    def __init__(
        self, database: Database, events_per_s: float | None, *, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._events_per_s = events_per_s
        self._ticks = ticks
        self._uses: OrderedDict[str, _Use] = OrderedDict()

    async def append(self, tenant: str, events: int) -> None:
        """Count events that are about to be appended.

        More events than two seconds allow pass when nothing was appended for two seconds, and are waited out after.

        Raises:
            QuotaExceeded: they are too many for now; none was counted. The detail `retry_after_s` says when they pass.
            DatabaseUnavailable: nobody can tell now.
        """
        use = self._uses.get(tenant)
        if use is None or self._ticks() - use.read_at >= FRESH_S:
            use = await self._read(tenant)
        if use.bucket is None:
            return
        wait_s = use.bucket.take(events, self._ticks())
        if wait_s:
            raise QuotaExceeded(
                f"the tenant may append {use.bucket.rate:g} events per second; wait, and send them again",
                quota="events_per_s",
                limit=use.bucket.rate,
                retry_after_s=max(1, math.ceil(wait_s)),
            )

    async def _read(self, tenant: str) -> _Use:
        async with self._database.read(tenant) as connection:
            own: float | None = await connection.fetchval(sql("access.events_per_s"), tenant)
        now = self._ticks()
        use = self._uses.setdefault(tenant, _Use(now))
        self._uses.move_to_end(tenant)
        if len(self._uses) > MAX_REMEMBERED:
            self._uses.popitem(last=False)
        use.read_at = now
        rate = own if own is not None else self._events_per_s
        if rate is None:
            use.bucket = None
        elif use.bucket is None or use.bucket.rate != rate:
            use.bucket = TokenBucket(rate, max(1.0, rate * BURST_S), now)
        return use
