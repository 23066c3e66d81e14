"""The exact end of a tenant's log, read while no append is in flight; builds, exports and erasures need it."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from myria import errors
from myria.db.database import Database
from myria.db.locks import lock_key
from myria.db.queries import sql

_LOCK_WAIT = "200ms"
_LOCK_HELD = "2000ms"
GIVE_UP_AFTER_S = 60.0
"""Seconds after which waiting for the append lock fails; only a hanging process holds the lock that long."""

_PAUSE_S = (0.02, 0.3)


@dataclass(frozen=True, kw_only=True, slots=True)
class HighWaterMark:
    """The log's end: no event at or below `cutoff` can still arrive; later ones have at least `tail_xid`."""

    cutoff: int
    first_event_seq: int | None
    tail_xid: str


async def high_water_mark(database: Database, tenant: str) -> HighWaterMark:
    """Return the exact end of the log.

    While this owns the append lock, no append of the tenant is in flight, so the next statement, which reads the
    maximum, sees all of them. Waiting for the lock makes new appends queue behind it, so each wait is short, and
    repeated. A process that hangs while it has the lock loses it (`TransactionBounds.idle`).

    Raises:
        LogBusy: no lock within `GIVE_UP_AFTER_S`; the details name the backends that hold it.
    """
    deadline = time.monotonic() + GIVE_UP_AFTER_S
    while True:
        try:
            async with database.write(tenant) as connection:
                await connection.execute(sql("session.hold_briefly"), _LOCK_WAIT, _LOCK_HELD)
                await connection.execute(sql("session.own_append_lock"), lock_key("append", tenant))
                row = await connection.fetchrow(sql("builds.high_water_mark"), tenant)
        except errors.DeadlineExceeded as error:
            if time.monotonic() > deadline:
                raise await _log_busy(database, tenant, GIVE_UP_AFTER_S) from error
            await asyncio.sleep(random.uniform(*_PAUSE_S))  # noqa: S311 - jitter
            continue
        if row is None:
            raise errors.InternalError("the high-water mark gave no row")
        return HighWaterMark(
            cutoff=row["last_event_seq"] or 0, first_event_seq=row["first_event_seq"], tail_xid=row["tail_xid"]
        )


async def _log_busy(database: Database, tenant: str, waited_s: float) -> errors.LogBusy:
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("session.lock_holders"), lock_key("append", tenant))
    pids = [row["pid"] for row in rows]
    holders = f"backends {', '.join(map(str, pids))} hold" if pids else "something held"
    return errors.LogBusy(
        f"appends did not leave the log alone for {waited_s:g} s: {holders} the tenant's append lock; end them with "
        "pg_terminate_backend if they stand still, and build again",
        waited_s=waited_s,
        pids=pids,
    )
