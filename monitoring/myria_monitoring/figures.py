"""The memory's figures, read from PostgreSQL at a cost that does not grow with the log.

A reader remembers how far it has counted a long tail, and continues from there at the next look. A few
statements read everything: at most every few seconds however many clients scrape, and less often when they take long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import asyncpg

from myria import errors
from myria.db.database import ALL_TENANTS, Connection, Database
from myria.db.queries import Statements

logger = logging.getLogger(__name__)

sql = Statements("myria_monitoring.sql", "myria.db.sql")
"""The statements that read figures, beside the core's, by subject and name."""

LOOK_S: Final = (5.0, 60.0)
"""Least and most seconds between two looks. In between, the pause is 100 times as long as the last look took."""

PATIENCE_S: Final = 2.0
"""How long a scrape waits for a look; the look itself may go on."""

COUNTED_AT_ONCE: Final = 200_000
"""Most new events that one look counts, over all tenants."""

_LEAST_COUNTED: Final = 500
"""New events that one look counts of each tenant, however many tenants share `COUNTED_AT_ONCE`."""
_SETTLED: Final = timedelta(seconds=60)
"""Age of an event after which no append with a lower number can still commit: appends are given up long before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantFigures:
    """One tenant's memory. Times are seconds; `succeeded_at` is Unix time, 0 before the first success.

    `tail_events` is a lower bound for a minute or so when a tail is longer than one look counts. `snapshot_age_s` is
    None without an active snapshot, `paused_reason` None while automatic builds are not paused, `stored_bytes` those of
    payloads. `held_notes` wait for a review, counted up to 1,000, the oldest for `held_s`.
    """

    tenant: str
    tail_events: int
    lag_s: float
    snapshot_age_s: float | None
    paused_reason: str | None
    paused_s: float
    failures: int
    succeeded_at: float
    stored_bytes: int
    held_notes: int
    held_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """All that one look found.

    `queued` and `running` count builds, `gauges` are those of the catalogue that have no labels, by name. `totals` are
    sums by family and labels that only grow.
    """

    tenants: tuple[TenantFigures, ...]
    last_event_seq: int
    queued: int
    running: int
    gauges: Mapping[str, float]
    snapshots: Mapping[str, int]
    totals: Mapping[tuple[str, tuple[str, ...]], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Counted:
    """How far one tenant's tail was counted: `counted` events after `cutoff`, up to event number `upto`.

    `first_at` is when the first of them was appended.
    """

    cutoff: int
    upto: int
    counted: int = 0
    first_at: datetime | None = None


class FigureReader:
    """Reads the figures of all tenants; its database role must be allowed to name them together."""

    def __init__(self, database: Database) -> None:
        self.up = False
        """Whether the database answered when it was last asked."""
        self._database = database
        self._counted: dict[str, _Counted] = {}
        self._figures: Figures | None = None
        self._again_at = float("-inf")
        self._looking: asyncio.Task[Figures | None] | None = None

    async def latest(self) -> Figures | None:
        """Return the newest figures (see `LOOK_S`), or None when the database does not answer.

        Waits for at most `PATIENCE_S`, and does not raise for an outage.
        """
        if self._looking is None and time.monotonic() < self._again_at:
            return self._figures
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="figures")
        look_task = self._looking
        done, _ = await asyncio.wait({look_task}, timeout=PATIENCE_S)
        if not done:
            self.up = False
            return None
        if self._looking is look_task:
            self._looking = None
        self._figures = None if look_task.cancelled() else look_task.result()
        return self._figures

    async def close(self) -> None:
        """End a look that is under way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def read(self) -> Figures:
        """Read everything now.

        Raises:
            MyriaError: the database is away, or not as it should be.
        """
        async with self._database.read(ALL_TENANTS) as connection:
            tenants = await connection.fetch(sql("monitoring.tenants"))
            tails = await self._tails(connection, tenants)
            gauges = dict((await connection.fetch(sql("monitoring.gauges")))[0])
            snapshots = await connection.fetch(sql("monitoring.snapshots"))
            totals = await connection.fetch(sql("monitoring.totals"))
        return Figures(
            tenants=tuple(_tenant(row, *tails[row["tenant"]]) for row in tenants),
            last_event_seq=max((row["last_seq"] for row in tenants), default=0),
            queued=gauges.pop("queued"),
            running=gauges.pop("running"),
            gauges={f"myria_{name}": value for name, value in gauges.items()},
            snapshots={row["status"]: row["snapshots"] for row in snapshots},
            totals={(row["family"], tuple(row["labels"])): row["amount"] for row in totals},
        )

    async def _look(self) -> Figures | None:
        """Read the figures, None if that fails, and set the time of the next look."""
        started = time.monotonic()
        figures = None
        try:
            figures = await self.read()
            self.up = True
        except errors.MyriaError as error:
            self.up = not isinstance(error, errors.UnavailableError)
            logger.info("no figures: %s", error.message, extra={"action": "figures_unread"})
        except Exception:
            self.up = False
            logger.exception("the figures cannot be read", extra={"action": "figures_failed"})
        now = time.monotonic()
        pause = LOOK_S[0] if figures is None else min(max(LOOK_S[0], 100 * (now - started)), LOOK_S[1])
        self._again_at = now + pause
        return figures

    async def _tails(
        self, connection: Connection, tenants: Sequence[asyncpg.Record]
    ) -> dict[str, tuple[int, datetime | None]]:
        """Return by tenant how many events its tail has, and when the oldest of them was appended.

        Only events past the last count are read. A count that stopped at the limit is kept for the next look, once its
        events are `_SETTLED`; others are counted again.
        """
        counted_tails: dict[str, _Counted] = {}
        for row in tenants:
            last_count = self._counted.get(row["tenant"])
            if last_count is None or last_count.cutoff != row["cutoff"]:
                last_count = _Counted(cutoff=row["cutoff"], upto=row["cutoff"])
            counted_tails[row["tenant"]] = last_count
        tails = {tenant: (state.counted, state.first_at) for tenant, state in counted_tails.items()}
        grown_tenants = {
            row["tenant"]: row["now"] for row in tenants if row["last_seq"] > counted_tails[row["tenant"]].upto
        }
        if grown_tenants:
            limit = max(_LEAST_COUNTED, COUNTED_AT_ONCE // len(grown_tenants))
            counted_up_to = [counted_tails[tenant].upto for tenant in grown_tenants]
            for row in await connection.fetch(sql("monitoring.tails"), list(grown_tenants), counted_up_to, limit):
                tenant = row["tenant_id"]
                last_count = counted_tails[tenant]
                counted, first_at = last_count.counted + row["counted"], last_count.first_at or row["first_at"]
                tails[tenant] = (counted, first_at)
                if row["looked_at"] == limit and row["last_at"] < grown_tenants[tenant] - _SETTLED:
                    counted_tails[tenant] = replace(
                        last_count, upto=row["last_seq"], counted=counted, first_at=first_at
                    )
        self._counted = counted_tails
        return tails


def _tenant(row: asyncpg.Record, tail: int, first_at: datetime | None) -> TenantFigures:
    """Return a tenant's figures from its row, the length of its tail, and when the tail's first event was appended."""
    names = (
        *("tenant", "snapshot_age_s", "paused_reason", "paused_s", "failures", "succeeded_at", "stored_bytes"),
        *("held_notes", "held_s"),
    )
    lag_s = max(0.0, (row["now"] - first_at).total_seconds()) if tail and first_at is not None else 0.0
    return TenantFigures(tail_events=tail, lag_s=lag_s, **{name: row[name] for name in names})
