"""Who may have one of a few builders now, so that nobody's build waits long for those that fail, hang or never end.

A tenant has one builder at most, and waits for it in the order in which it asked. Nobody loses a builder while nobody
waits. While somebody does, whoever has had one for longer than its turn gives it back and asks again behind the others:
what its build has done is kept. From then on, and after a build that failed, the tenant is slow, until a builder of it
ends well: slow tenants come after the others, three times out of four, and never have the last slot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_LONGEST_TURN = 3
"""How often the turn of a slow tenant doubles: work that cannot be divided must have an end some time."""

_PASSED_OVER = 3
"""Slots in a row that go to others while a slow tenant waits."""


@dataclass(eq=False, slots=True)
class BuilderTurn:
    """One tenant's builder: since when it has it, for how many seconds, and whether it is to give it back."""

    tenant: str
    began: float
    seconds: float
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class _AskedTurn:
    tenant: str
    given: asyncio.Future[BuilderTurn]


class BuilderTurns:
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
        self._held: list[BuilderTurn] = []
        self._asked: list[_AskedTurn] = []
        self._slow: dict[str, int] = {}
        self._passed_over = 0
        self._alarm: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[BuilderTurn]:
        """Wait for a slot, and have it for the block. The block ends soon once `over` of the turn is set."""
        asked = _AskedTurn(tenant, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        self._give()
        turn: BuilderTurn | None = None
        try:
            turn = await asked.given
            yield turn
        finally:
            if asked in self._asked:
                self._asked.remove(asked)
            turn = turn or (asked.given.result() if asked.given.done() and not asked.given.cancelled() else None)
            if turn is not None:
                self._held.remove(turn)
                if turn.over.is_set():
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
        while len(self._held) < self._slots and (asked := self._next()) is not None:
            self._asked.remove(asked)
            others_wait = any(self.is_slow(other.tenant) for other in self._asked)
            self._passed_over = self._passed_over + 1 if others_wait and not self.is_slow(asked.tenant) else 0
            seconds = self._turn_s * 2 ** min(self._slow.get(asked.tenant, 0), _LONGEST_TURN)
            turn = BuilderTurn(asked.tenant, self._ticks(), seconds)
            self._held.append(turn)
            asked.given.set_result(turn)
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

    def _next(self) -> _AskedTurn | None:
        """Return who gets the next free slot."""
        waiting = [asked for asked in self._asked if not asked.given.done()]
        usual = [asked for asked in waiting if not self.is_slow(asked.tenant)]
        slow = [asked for asked in waiting if self.is_slow(asked.tenant)]
        if sum(self.is_slow(turn.tenant) for turn in self._held) >= max(1, self._slots - 1):
            slow = []
        first, then = (slow, usual) if self._passed_over >= _PASSED_OVER else (usual, slow)
        return next(iter([*first, *then]), None)

    def _longest_over(self) -> BuilderTurn | None:
        """Return whose slot those who wait get next, None where nobody waits or somebody is giving one back."""
        waiting = [asked for asked in self._asked if not asked.given.done()]
        if not waiting or any(turn.over.is_set() for turn in self._held):
            return None
        usual_waits = any(not self.is_slow(asked.tenant) for asked in waiting)
        # A slow tenant gets the slot of another slow one: the last slot is not for it.
        holders = [turn for turn in self._held if usual_waits or self._slots == 1 or self.is_slow(turn.tenant)]
        return min(holders or self._held, key=lambda turn: turn.began + turn.seconds, default=None)
