"""The build queue: how a waiting request becomes its tenant's one unfinished build, and who may have a builder now.

A unique index guards the queue, so any number of processes may ask at any time.

There are few slots for builders, and nobody's build waits long for those that fail, hang or never end. A tenant has one
builder at most, and waits for it in the order in which it asked. Nobody loses a builder while nobody waits. While
somebody does, whoever has had one for longer than its turn gives it back and asks again behind the others: what its
build has done is kept. From then on, and after a build that failed, the tenant is slow, until a builder of it ends
well: slow tenants come after the others, three times out of four, and never have the last slot.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg

from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.log.ids import new_id

logger = logging.getLogger(__name__)

SCHEDULED = "schedule:"
"""Prefix of the causes that come from a schedule: manual builds, which wait while automatic ones pause."""

_LONGEST_TURN = 3
"""How often the turn of a slow tenant doubles: work that cannot be divided must have an end some time."""

_PASSED_OVER = 3
"""Slots in a row that go to others while a slow tenant waits."""


async def take_up(database: Database, tenant: str, *, only_resources: bool = False) -> asyncpg.Record | None:
    """Turn the next request into the tenant's build, with all others that the same build satisfies.

    Args:
        database: connects as the control plane.
        tenant: whose queue.
        only_resources: skip requests that have no resource of an outside control plane yet.

    Returns:
        The tenant's unfinished build (`builds.unfinished`), whoever queued it; None when nothing waits.
    """
    async with database.write(tenant) as connection:
        is_paused = await automatic_builds_pause(connection, tenant)
        request = await connection.fetchrow(sql("builds.oldest_waiting"), tenant, is_paused, only_resources)
        if request is None:
            return None
        build_id = await connection.fetchval(
            sql("builds.enqueue"),
            tenant,
            new_id("bld"),
            request["trigger"],
            request["is_full"],
            request["hold"],
            request["reason"],
            request["request_id"],
        )
        if build_id is not None:
            await connection.execute(
                sql("builds.take_up"),
                tenant,
                build_id,
                request["request_id"],
                request["is_full"],
                request["hold"],
            )
            logger.info(
                "queued a build: %s",
                request["trigger"],
                extra={"action": "build_queued", "tenant": tenant, "build_id": build_id},
            )
        return await connection.fetchrow(sql("builds.unfinished"), tenant)


async def automatic_builds_pause(connection: Connection, tenant: str) -> bool:
    """Tell whether only manual builds may start now: after a rollback, or while a held snapshot waits."""
    state = await connection.fetchrow(sql("snapshots.pause_state"), tenant)
    if state is not None and state["auto_paused_at"] is not None:
        return True
    return await connection.fetchrow(sql("snapshots.publishable_held"), tenant) is not None


@dataclass(eq=False, slots=True)
class BuilderSlot:
    """A slot that a tenant has: since when, for how many seconds at least, and whether it is to give it back."""

    tenant: str
    began: float
    seconds: float
    over: asyncio.Event = field(default_factory=asyncio.Event)


class BuilderSlots:
    """Gives out a few slots.

    Args:
        slots: builders at once.
        turn_s: seconds after which a builder is given back while somebody waits.
        ticks: a steady clock, in seconds.
    """

    def __init__(self, slots: int, turn_s: float, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._turn_s = turn_s
        self._ticks = ticks
        self._held: list[BuilderSlot] = []
        self._waiting: dict[asyncio.Future[BuilderSlot], str] = {}
        """Who waits, by what it waits for, in the order in which they asked."""
        self._slow: dict[str, int] = {}
        self._passed_over = 0
        self._alarm: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[BuilderSlot]:
        """Wait for a slot, and have it for the block. The block ends soon once `over` of the slot is set."""
        given: asyncio.Future[BuilderSlot] = asyncio.get_running_loop().create_future()
        self._waiting[given] = tenant
        self._give()
        try:
            yield await given
        finally:
            self._waiting.pop(given, None)
            if given.done() and not given.cancelled():
                slot = given.result()
                self._held.remove(slot)
                if slot.over.is_set():
                    self._slow[tenant] = self._slow.get(tenant, 0) + 1
            self._give()

    def ended(self, tenant: str, *, well: bool) -> None:
        """Say how a tenant's builder ended; one that ended well is slow no longer."""
        if well:
            self._slow.pop(tenant, None)
        else:
            self._slow.setdefault(tenant, 0)
        self._give()

    def is_slow(self, tenant: str) -> bool:
        """Tell whether a tenant has overrun its turn, or failed, and no builder of it has ended well since."""
        return tenant in self._slow

    def _give(self) -> None:
        """Give free slots to those who may have them, and see to it that those who still wait get one."""
        while len(self._held) < self._slots and (given := self._next()) is not None:
            tenant = self._waiting.pop(given)
            others_wait = any(map(self.is_slow, self._waiting.values()))
            self._passed_over = self._passed_over + 1 if others_wait and not self.is_slow(tenant) else 0
            seconds = self._turn_s * 2 ** min(self._slow.get(tenant, 0), _LONGEST_TURN)
            slot = BuilderSlot(tenant, self._ticks(), seconds)
            self._held.append(slot)
            given.set_result(slot)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        holder = self._longest_over()
        if holder is not None:
            left = holder.began + holder.seconds - self._ticks()
            if left <= 0:
                holder.over.set()
            else:
                self._alarm = asyncio.get_running_loop().call_later(left, self._give)

    def _next(self) -> asyncio.Future[BuilderSlot] | None:
        """Return what of those who wait gets the next free slot; who was cancelled is about to leave."""
        usual = [given for given, tenant in self._waiting.items() if not given.done() and not self.is_slow(tenant)]
        slow = [given for given, tenant in self._waiting.items() if not given.done() and self.is_slow(tenant)]
        if sum(self.is_slow(slot.tenant) for slot in self._held) >= max(1, self._slots - 1):
            slow = []
        first, then = (slow, usual) if self._passed_over >= _PASSED_OVER else (usual, slow)
        return next(iter([*first, *then]), None)

    def _longest_over(self) -> BuilderSlot | None:
        """Return whose slot those who wait get next, None where nobody waits or somebody is giving one back."""
        waiting = [tenant for given, tenant in self._waiting.items() if not given.done()]
        if not waiting or any(slot.over.is_set() for slot in self._held):
            return None
        usual_waits = not all(map(self.is_slow, waiting))
        # A slow tenant gets the slot of another slow one: the last slot is not for it.
        holders = [slot for slot in self._held if usual_waits or self._slots == 1 or self.is_slow(slot.tenant)]
        return min(holders or self._held, key=lambda slot: slot.began + slot.seconds, default=None)
