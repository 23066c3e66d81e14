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
from collections.abc import Callable
from dataclasses import dataclass

from myria.access.limits import BURST_S, TokenBucket
from myria.access.principal import TurnsMode
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import QuotaExceeded, StorageQuotaExceeded
from myria.settings.redaction_kinds import Kind

FRESH_S = 5.0
"""Seconds for which a tenant's quota that was read is good."""

MAX_REMEMBERED = 10_000
"""Tenants remembered by one process; the one seen longest ago goes first."""


@dataclass(slots=True)
class Use:
    """What one tenant may use, and uses.

    Sizes are bytes: `stored` as last read, `added` what was admitted here since, `under_way` what of that, or of
    before, is not known to be committed.
    """

    read_at: float
    bucket: TokenBucket | None = None
    most: int | None = None
    stored: int = 0
    added: int = 0
    under_way: int = 0
    redacted: tuple[Kind, ...] | None = None
    turns: TurnsMode | None = None


class Admission:
    """Appends of a tenant that are being admitted, and are under way in the block; see `TenantQuotas.append`."""

    __slots__ = ("_events", "_quotas", "_size", "_tenant", "_use")

    def __init__(self, quotas: TenantQuotas, tenant: str, events: int, size: int) -> None:
        self._quotas = quotas
        self._tenant = tenant
        self._events = events
        self._size = size
        self._use: Use | None = None

    async def __aenter__(self) -> tuple[Kind, ...] | None:
        self._use = await self._quotas.admit(self._tenant, self._events, self._size)
        return self._use.redacted

    async def __aexit__(self, *_: object) -> None:
        if self._use is not None:
            self._use.under_way -= self._size


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
        events_per_s: float | None,
        bytes_stored: int | None = None,
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._events_per_s = events_per_s
        self._bytes_stored = bytes_stored
        self._ticks = ticks
        self._uses: OrderedDict[str, Use] = OrderedDict()
        self._reading: dict[str, asyncio.Task[Use]] = {}

    def append(self, tenant: str, events: int, size: int = 0) -> Admission:
        """Count events that are appended in the block; `size` is that of their payloads in bytes.

        It gives what is taken out of the tenant's payloads; None where that is what the settings say.

        More events than two seconds allow pass when nothing was appended for two seconds, and are waited out after.

        Raises:
            QuotaExceeded: they are too many for now; none was counted. The detail `retry_after_s` says when they pass.
            StorageQuotaExceeded: they would take more room than the tenant has; none was counted.
            DatabaseUnavailable: nobody can tell now.
        """
        return Admission(self, tenant, events, size)

    async def admit(self, tenant: str, events: int, size: int) -> Use:
        """Return what is known of a tenant, with what it appends counted; see `append`."""
        use = await self._fresh(tenant)
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
        return use

    async def redacted(self, tenant: str) -> tuple[Kind, ...] | None:
        """Return what is taken out of a tenant's payloads; None where that is what the settings say.

        Raises:
            DatabaseUnavailable: nobody can tell now.
        """
        return (await self._fresh(tenant)).redacted

    async def _fresh(self, tenant: str) -> Use:
        """Return what is known of a tenant, read again if that is too old: once for all who ask meanwhile."""
        use = self._uses.get(tenant)
        if use is not None and self._ticks() - use.read_at < FRESH_S:
            return use
        reading = self._reading.get(tenant)
        if reading is None:
            reading = self._reading[tenant] = asyncio.create_task(self._read(tenant))
            reading.add_done_callback(lambda done: self._was_read(tenant, done))
        return await asyncio.shield(reading)

    def _was_read(self, tenant: str, reading: asyncio.Task[Use]) -> None:
        del self._reading[tenant]
        if not reading.cancelled():
            reading.exception()  # those who wait get it; perhaps nobody does any more

    async def turns(self, tenant: str) -> TurnsMode | None:
        """Return whether turns are served to a tenant; None where that is what the settings say.

        Raises:
            DatabaseUnavailable: nobody can tell now.
        """
        return (await self._fresh(tenant)).turns

    async def _read(self, tenant: str) -> Use:
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("access.quotas"), tenant)
        now = self._ticks()
        use = self._uses.setdefault(tenant, Use(now))
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
