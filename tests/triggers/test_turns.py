"""Turns of builders: in which order tenants get them when some fail, hang or never end. Time is the test's own."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from myria.builds.queue import BuilderSlot, BuilderSlots
from tests.support.patience import PATIENCE_S

FOR_EVER = 10**6


class Clock:
    """A steady clock that a test moves."""

    at = 0.0

    def __call__(self) -> float:
        return self.at


class Place:
    """Builders that do nothing until they are told to end, or their turn is over."""

    def __init__(self, slots: int, turn_s: float) -> None:
        self.clock = Clock()
        self.turns = BuilderSlots(slots, turn_s, ticks=self.clock)
        self.order: list[str] = []
        self.held: dict[str, tuple[BuilderSlot, asyncio.Event]] = {}
        self.working: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *tenants: str) -> None:
        """Ask for a builder of each, and see who gets one."""
        for tenant in tenants:
            self.working[tenant] = asyncio.create_task(self._work(tenant))
        await settle()

    async def _work(self, tenant: str) -> None:
        while True:
            async with self.turns.slot(tenant) as turn:
                ended = asyncio.Event()
                self.order.append(tenant)
                self.held[tenant] = turn, ended
                waits = [asyncio.create_task(event.wait()) for event in (ended, turn.over)]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
                    del self.held[tenant]
            if ended.is_set():
                return

    async def end(self, tenant: str, *, well: bool = True) -> None:
        """End a tenant's builder."""
        self.held[tenant][1].set()
        await self.working.pop(tenant)
        self.turns.ended(tenant, well=well)
        await settle()

    async def pass_(self, seconds: float) -> None:
        """Let time pass; the alarm of the loop is called as if it had rung."""
        self.clock.at += seconds
        self.turns._give_slots()
        await settle()

    async def close(self) -> None:
        """Give up all that work or wait."""
        for task in self.working.values():
            task.cancel()
        await asyncio.gather(*self.working.values(), return_exceptions=True)


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def place() -> Place:
    """Four slots, turns of 10 s."""
    return Place(4, 10)


async def test_four_that_hang_leave_a_slot_to_the_others(place: Place) -> None:
    """They have all slots for one turn; from then on one is free of them, and everybody else is built at once."""
    await place.ask("h1", "h2", "h3", "h4", "quiet")
    assert set(place.held) == {"h1", "h2", "h3", "h4"}
    await place.pass_(10)
    assert "quiet" in place.held
    for _ in range(6):
        await place.end("quiet")
        await place.pass_(100)
        await place.ask("quiet")
        assert "quiet" in place.held
        assert len(place.held) == 4
    assert place.order.count("quiet") == 7
    await place.close()


async def test_who_hangs_keeps_its_slot_while_nobody_waits(place: Place) -> None:
    """A long build is not cut into turns where there is room for all."""
    await place.ask("long", "b")
    await place.pass_(FOR_EVER)
    assert place.order == ["long", "b"]
    await place.end("long")
    assert not place.turns.is_slow("long")
    await place.close()


@pytest.mark.parametrize("hanging", [1, 3])
async def test_with_one_slot_a_build_waits_for_one_turn_at_most(hanging: int) -> None:
    """Between two builds of a quiet tenant at most one turn goes to those that hang, however many they are."""
    place = Place(1, 10)
    await place.ask(*(f"h{number}" for number in range(hanging)), "quiet")
    for _ in range(12):
        while "quiet" not in place.held:
            await place.pass_(80)
        await place.end("quiet")
        await place.ask("quiet")
    builds = [position for position, tenant in enumerate(place.order) if tenant == "quiet"]
    assert builds[0] <= hanging
    assert max(later - earlier for earlier, later in pairwise(builds)) <= 2
    assert len(set(place.order)) == hanging + 1, "nobody waits for ever"
    await place.close()


async def test_a_tenant_whose_builds_fail_does_not_have_the_last_slot(place: Place) -> None:
    """Those that failed wait while three of them work; one that ends well is like all others again."""
    for number in range(4):
        await place.ask(f"f{number}")
        await place.end(f"f{number}", well=False)
    await place.ask("f0", "f1", "f2", "f3")
    assert set(place.held) == {"f0", "f1", "f2"}
    await place.ask("quiet")
    assert "quiet" in place.held
    await place.end("f0")
    assert set(place.held) == {"f1", "f2", "f3", "quiet"}
    await place.end("quiet")
    await place.ask("f0")
    assert "f0" in place.held
    await place.close()


async def test_work_that_cannot_be_divided_gets_longer_turns() -> None:
    """Each turn that was not enough is followed by one twice as long, up to eight times."""
    place = Place(1, 10)
    lengths: list[float] = []
    await place.ask("long")
    for _ in range(6):
        lengths.append(place.held["long"][0].seconds)
        await place.ask("quiet")
        await place.pass_(lengths[-1])
        await place.end("quiet")
    assert lengths == [10, 20, 40, 80, 80, 80]
    await place.close()


async def test_who_gives_up_waiting_takes_no_slot(place: Place) -> None:
    """A builder that is cancelled while it waits, or just as it gets its turn, leaves the slot to the next."""
    await place.ask("a", "b", "c", "d", "e", "f")
    place.working["e"].cancel()
    await settle()
    await place.end("a")
    assert "f" in place.held
    place.turns._give_slots()
    asked = asyncio.create_task(place._work("g"))
    await settle()
    place.held["b"][1].set()
    asked.cancel()
    await settle()
    await place.ask("h")
    assert "h" in place.held
    await place.close()


async def test_the_alarm_of_a_turn_rings_by_itself() -> None:
    """Nobody has to look: a turn that is over is given back on the loop's own clock."""
    turns = BuilderSlots(1, 0.01)
    order: list[str] = []

    async def hang() -> None:
        async with turns.slot("h") as turn:
            order.append("h")
            await turn.over.wait()

    async def work() -> None:
        async with turns.slot("q"):
            order.append("q")

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(hang(), work())
    assert order == ["h", "q"]
