"""A tenant's quotas (events per second, bytes of payloads) and its kinds of redaction, as its row in the database says.

The row is cached for `FRESH_S` and read again by the first append after that, so that most appends pay nothing for it.
Each process counts the rate alone: with N processes behind a Service, a tenant may append N times as much. Stored bytes
are those of all processes; each adds its own appends to the value it last read, so N processes may exceed the limit by
what they admit within `FRESH_S`.
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
from myria.settings.database import Kind
from myria.settings.serving import TurnsMode

FRESH_S = 5.0
"""Seconds for which a tenant's row is cached."""

BURST_S = 2.0
"""A bucket holds the tokens of this many seconds, which may be used at once."""

MAX_REMEMBERED = 10_000
"""Tenants remembered by one process; the one seen longest ago goes first."""

_ROUNDING = 1e-9


class TokenBucket:
    """A budget of tokens that refills by `rate` a second, up to `burst`.

    A request for more than `burst` passes if the bucket is full, and leaves it in debt.
    """

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._at = now

    def take(self, count: int, now: float) -> float:
        """Take `count` tokens and return 0; or take none, and return the seconds until there are enough."""
        self._refill(now)
        missing = min(count, self.burst) - self._tokens
        if missing > _ROUNDING:
            return missing / self.rate
        self._tokens -= count
        return 0.0

    def left(self, now: float) -> int:
        """Return how many whole tokens are left now."""
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
    """What one tenant may use, and what it uses.

    Sizes are in bytes: `most` is the limit, `stored` the value last read, `added` what this process admitted since.
    `under_way` is the size of appends in progress, so it may or may not be part of `stored`. `redacted` None follows
    the settings.
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
    """Enforces the tenants' quotas.

    Args:
        database: where the rows of tenants are.
        events_per_s: default for a tenant whose row has none; None for no limit.
        bytes_stored: default for a tenant whose row has none; None for no limit.
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
        self._reads: dict[str, asyncio.Task[TenantUse]] = {}

    @asynccontextmanager
    async def append(self, tenant: str, events: int, size: int = 0) -> AsyncIterator[TenantUse]:
        """Check and count events that are appended within the block; `size` is the bytes of their payloads.

        More events than `BURST_S` allows pass if the bucket is full; later appends then wait longer.

        Raises:
            QuotaExceeded: too many events for now; none was counted. The detail `retry_after_s` says when to retry.
            StorageQuotaExceeded: the events would exceed the tenant's bytes; none was counted.
            DatabaseUnavailable: the tenant's row cannot be read now.
        """
        use = await self.of(tenant)
        if use.most is not None and use.stored + use.added + size > use.most and use.added:
            # Read the real value before refusing: appends admitted here may have failed, or been duplicates.
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
        """Return the cached use of a tenant, read again if it is too old; concurrent callers share one read.

        Raises:
            DatabaseUnavailable: the tenant's row cannot be read now.
        """
        use = self._uses.get(tenant)
        if use is not None and self._ticks() - use.read_at < FRESH_S:
            return use
        reading = self._reads.get(tenant)
        if reading is None:
            reading = self._reads[tenant] = asyncio.create_task(self._read(tenant))
            reading.add_done_callback(lambda done: self._was_read(tenant, done))
        return await asyncio.shield(reading)

    def _was_read(self, tenant: str, reading: asyncio.Task[TenantUse]) -> None:
        del self._reads[tenant]
        if not reading.cancelled():
            reading.exception()  # those who wait get it; perhaps nobody does any more

    async def _read(self, tenant: str) -> TenantUse:
        """Read a tenant's row into its cached use; a bucket whose rate is unchanged keeps its tokens."""
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
        rate, byte_limit, use.stored = (
            (row["events_per_s"], row["bytes_stored"], row["stored"]) if row else (None, None, 0)
        )
        rate = self._events_per_s if rate is None else rate
        use.most = self._bytes_stored if byte_limit is None else byte_limit
        use.added = use.under_way  # `stored` may lack these appends; counting them twice is the safe side
        if rate is None:
            use.bucket = None
        elif use.bucket is None or use.bucket.rate != rate:
            use.bucket = TokenBucket(rate, max(1.0, rate * BURST_S), now)
        return use
