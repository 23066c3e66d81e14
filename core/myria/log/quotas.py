"""What a tenant may append (events per second, bytes of payloads), and what is taken out of it, where its row says so.

A tenant's row is read once in `FRESH_S`, by the first append that finds what is known too old, so that a quota costs an
append nothing. The rate is of each process: with N processes behind a Service a tenant may append N times as much. The
bytes are of all together, and each process adds its own to what it last read: N of them may pass the limit by what they
admit within `FRESH_S`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import QuotaExceeded, StorageQuotaExceeded
from myria.settings.redaction_kinds import Kind
from myria.settings.serving import TurnsMode

FRESH_S = 5.0
"""Seconds for which a tenant's quota that was read is good."""

BURST_S = 2.0
"""Seconds of a rate that may come at once."""

MAX_REMEMBERED = 10_000
"""Tenants remembered by one process; the one seen longest ago goes first."""

_ROUNDING = 1e-9


class TokenBucket:
    """A budget that refills steadily: `rate` a second, up to `burst` at once.

    Something larger than the bucket passes when the bucket is full, and leaves it in debt.
    """

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = now

    def take(self, count: int, now: float) -> float:
        """Take so many tokens and return 0, or take none and return the seconds until they are there."""
        self._refill(now)
        missing = min(count, self.burst) - self._tokens
        if missing > _ROUNDING:
            return missing / self.rate
        self._tokens -= count
        return 0.0

    def left(self, now: float) -> int:
        """Return how many may come at once now."""
        self._refill(now)
        return max(0, math.floor(self._tokens + _ROUNDING))

    def full_in(self, now: float) -> float:
        """Return the seconds until the bucket is full."""
        self._refill(now)
        return (self.burst - self._tokens) / self.rate

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
            self._at = now


@dataclass(slots=True)
class TenantUse:
    """What one tenant may use, and uses.

    Sizes are bytes: `stored` as last read, `added` what was admitted here since, `under_way` what of that, or of
    before, is not known to be committed. `redacted` is None where what is taken out is what the settings say.
    """

    read_at: float
    bucket: TokenBucket | None = None
    most: int | None = None
    stored: int = 0
    added: int = 0
    under_way: int = 0
    redacted: tuple[Kind, ...] | None = None
    turns: TurnsMode | None = None


class TenantQuotas:
    """Holds tenants to their quotas.

    Args:
        database: where the rows of tenants are.
        events_per_s: of a tenant whose row says nothing; None for any number.
        bytes_stored: of a tenant whose row says nothing; None for any number.
        ticks: a steady clock, in seconds.
    """

    def __init__(
        self,
        database: Database,
        events_per_s: float | None = None,
        bytes_stored: int | None = None,
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._events_per_s = events_per_s
        self._bytes_stored = bytes_stored
        self._ticks = ticks
        self._uses: OrderedDict[str, TenantUse] = OrderedDict()
        self._reading: dict[str, asyncio.Task[TenantUse]] = {}

    @asynccontextmanager
    async def append(self, tenant: str, events: int, size: int = 0) -> AsyncIterator[TenantUse]:
        """Count events that are appended in the block; `size` is that of their payloads in bytes.

        More events than two seconds allow pass when nothing was appended for two seconds, and are waited out after.

        Raises:
            QuotaExceeded: they are too many for now; none was counted. The detail `retry_after_s` says when they pass.
            StorageQuotaExceeded: they would take more room than the tenant has; none was counted.
            DatabaseUnavailable: nobody can tell now.
        """
        use = await self.of(tenant)
        if use.most is not None and use.stored + use.added + size > use.most and use.added:
            # What was admitted here may have been a repetition, or have failed.
            use = await self._read(tenant)
        if use.most is not None and use.stored + use.added + size > use.most:
            raise StorageQuotaExceeded(
                f"the tenant stores {use.stored + use.added:,} bytes and may store {use.most:,}; nothing was appended: "
                f"an administrator gives it more by `myria tenant set {tenant} bytes_stored=...`",
                quota="bytes_stored",
                limit=use.most,
                used=use.stored + use.added,
            )
        if use.bucket is not None:
            wait_s = use.bucket.take(events, self._ticks())
            if wait_s:
                raise QuotaExceeded(
                    f"the tenant may append {use.bucket.rate:g} events per second; wait, and send them again",
                    quota="events_per_s",
                    limit=use.bucket.rate,
                    retry_after_s=max(1, math.ceil(wait_s)),
                )
        use.added += size
        use.under_way += size
        try:
            yield use
        finally:
            use.under_way -= size

    async def of(self, tenant: str) -> TenantUse:
        """Return what is known of a tenant, read again if that is too old: once for all who ask meanwhile.

        Raises:
            DatabaseUnavailable: nobody can tell now.
        """
        use = self._uses.get(tenant)
        if use is not None and self._ticks() - use.read_at < FRESH_S:
            return use
        reading = self._reading.get(tenant)
        if reading is None:
            reading = self._reading[tenant] = asyncio.create_task(self._read(tenant))
            reading.add_done_callback(lambda done: self._was_read(tenant, done))
        return await asyncio.shield(reading)

    def _was_read(self, tenant: str, reading: asyncio.Task[TenantUse]) -> None:
        del self._reading[tenant]
        if not reading.cancelled():
            reading.exception()  # those who wait get it; perhaps nobody does any more

    async def _read(self, tenant: str) -> TenantUse:
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("access.quotas"), tenant)
        now = self._ticks()
        use = self._uses.setdefault(tenant, TenantUse(now))
        self._uses.move_to_end(tenant)
        if len(self._uses) > MAX_REMEMBERED:
            self._uses.popitem(last=False)
        use.read_at = now
        use.redacted = None if row is None or row["redacted"] is None else tuple(row["redacted"])
        use.turns = None if row is None else row["turns_mode"]
        rate, most, use.stored = (row["events_per_s"], row["bytes_stored"], row["stored"]) if row else (None, None, 0)
        rate = self._events_per_s if rate is None else rate
        use.most = self._bytes_stored if most is None else most
        use.added = use.under_way
        if rate is None:
            use.bucket = None
        elif use.bucket is None or use.bucket.rate != rate:
            use.bucket = TokenBucket(rate, max(1.0, rate * BURST_S), now)
        return use
