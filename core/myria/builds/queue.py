"""The build queue: turns a waiting request into its tenant's one unfinished build, and gives out slots for builders.

A unique index guards the queue, so any number of processes may ask at any time.

There are few slots, and no tenant's build should wait long for builds that fail, hang or never end. A tenant has one
builder at most, and tenants get slots in the order in which they asked. No tenant loses its slot while none waits.
While one waits, a tenant that has had a slot for longer than its turn gives it back and asks again behind the others;
what its build has done is kept. From then on, or after a failed build, the tenant counts as slow until one of its
builders ends well. Slow tenants come after the others three times out of four, and never have the last slot.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg

from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.log.ids import new_id

logger = logging.getLogger(__name__)

SCHEDULED = "schedule:"
"""Prefix of the cause keys of a schedule. Such builds are manual ones, but wait while automatic builds pause."""

WAITS_FOR: Mapping[str, str] = {
    "permission": "for leave: this tenant may run none (`concurrent_builds=0`)",
    "suspend": "until `suspend` of its MyriaRebuild is false",
    "build": "for the build before it to end",
    "pause": "for automatic builds to go on, which are paused",
    "builder": "for a builder: no `myria up` and no operator has begun it yet",
    "slot": "for a slot (`operator.max_builds`), or for an operator to work",
    "pod": "for a pod of its Job; `kubectl describe mrb` says what keeps it",
}
"""What a build that has not begun waits for, in words that go on from "it waits"."""

_MAX_DOUBLINGS = 3
"""How often the turn of a slow tenant doubles at most, so that work that cannot be interrupted can end some time."""

_PASSED_OVER = 3
"""How many slots in a row go to other tenants while a slow one waits."""


async def take_up(database: Database, tenant: str, *, only_resources: bool = False) -> asyncpg.Record | None:
    """Queue a build for the tenant's oldest waiting request, and for all others that the same build satisfies.

    Args:
        database: connects as the control plane.
        tenant: whose queue.
        only_resources: consider only requests that have a resource of an outside control plane.

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
    """A slot that a tenant has had since `began`, for a turn of `seconds`; `over` is set when it must give it back."""

    tenant: str
    began: float
    seconds: float
    over: asyncio.Event = field(default_factory=asyncio.Event)


class BuilderSlots:
    """Gives out a few slots for builders, in the order that the module describes.

    Args:
        slots: how many builders may work at the same time.
        turn_s: seconds after which a tenant must give its slot back when another tenant waits.
        ticks: a steady clock, in seconds.
    """

    def __init__(self, slots: int, turn_s: float, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._turn_s = turn_s
        self._ticks = ticks
        self._held: list[BuilderSlot] = []
        self._waiting: dict[asyncio.Future[BuilderSlot], str] = {}
        """Waiting tenants, in the order in which they asked, each by the future that its slot will resolve."""
        self._slow: dict[str, int] = {}
        """Slow tenants, each with how often it has overrun its turn."""
        self._passed_over = 0
        """How many slots in a row went to other tenants while a slow one waited."""
        self._alarm: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def slot(self, tenant: str) -> AsyncIterator[BuilderSlot]:
        """Wait for a slot and hold it for the block, which should end soon once the slot's `over` is set."""
        future: asyncio.Future[BuilderSlot] = asyncio.get_running_loop().create_future()
        self._waiting[future] = tenant
        self._give_slots()
        try:
            yield await future
        finally:
            self._waiting.pop(future, None)
            if future.done() and not future.cancelled():
                slot = future.result()
                self._held.remove(slot)
                if slot.over.is_set():
                    self._slow[tenant] = self._slow.get(tenant, 0) + 1
            self._give_slots()

    def ended(self, tenant: str, *, well: bool) -> None:
        """Record how a tenant's builder ended: the tenant is slow unless the builder ended well."""
        if well:
            self._slow.pop(tenant, None)
        else:
            self._slow.setdefault(tenant, 0)
        self._give_slots()

    def is_slow(self, tenant: str) -> bool:
        """Tell whether a tenant has overrun its turn, or failed, and no builder of it has ended well since."""
        return tenant in self._slow

    def _give_slots(self) -> None:
        """Give free slots to waiting tenants; for those that still wait, end the turn that has lasted too long.

        Where no turn has, a timer calls this again when the first one does.
        """
        while len(self._held) < self._slots and (future := self._next_in_line()) is not None:
            tenant = self._waiting.pop(future)
            others_wait = any(map(self.is_slow, self._waiting.values()))
            self._passed_over = self._passed_over + 1 if others_wait and not self.is_slow(tenant) else 0
            seconds = self._turn_s * 2 ** min(self._slow.get(tenant, 0), _MAX_DOUBLINGS)
            slot = BuilderSlot(tenant, self._ticks(), seconds)
            self._held.append(slot)
            future.set_result(slot)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        holder = self._holder_to_end()
        if holder is not None:
            seconds_left = holder.began + holder.seconds - self._ticks()
            if seconds_left <= 0:
                holder.over.set()
            else:
                self._alarm = asyncio.get_running_loop().call_later(seconds_left, self._give_slots)

    def _next_in_line(self) -> asyncio.Future[BuilderSlot] | None:
        """Return the future of the tenant that gets the next free slot; None where none may have it.

        Skips futures that are done: their waiters have a slot, or were cancelled and are about to leave.
        """
        usual_futures = [
            future for future, tenant in self._waiting.items() if not future.done() and not self.is_slow(tenant)
        ]
        slow_futures = [
            future for future, tenant in self._waiting.items() if not future.done() and self.is_slow(tenant)
        ]
        if sum(self.is_slow(slot.tenant) for slot in self._held) >= max(1, self._slots - 1):
            slow_futures = []
        first, second = (
            (slow_futures, usual_futures) if self._passed_over >= _PASSED_OVER else (usual_futures, slow_futures)
        )
        return next(iter([*first, *second]), None)

    def _holder_to_end(self) -> BuilderSlot | None:
        """Return the slot to pass on next, that whose turn ends first.

        None where no tenant waits, or one is giving a slot back already.
        """
        waiting_tenants = [tenant for future, tenant in self._waiting.items() if not future.done()]
        if not waiting_tenants or any(slot.over.is_set() for slot in self._held):
            return None
        usual_tenant_waits = not all(map(self.is_slow, waiting_tenants))
        # Where only slow tenants wait, another slow one gives up its slot: the last slot is not for slow tenants.
        holders = [slot for slot in self._held if usual_tenant_waits or self._slots == 1 or self.is_slow(slot.tenant)]
        return min(holders or self._held, key=lambda slot: slot.began + slot.seconds, default=None)
