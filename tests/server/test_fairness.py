"""What one caller asks for at once does not make another wait for all of it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from myria.access.store import AccessStore
from myria.db.fairness import Caller, FairTurns, caller
from myria.errors import Overloaded
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.mcp.bodies import SMALL_BYTES, Bodies
from tests.server.wire import call, headers, serving
from tests.support.keys import make_key
from tests.support.patience import PATIENCE_S

NOISY, QUIET = ("noisy", "a"), ("quiet", "b")
NAME = "myria_query_event_nodes"


class Desk:
    """Blocks of callers that begin when it is their turn, and end when the test says so."""

    def __init__(self, at_once: int) -> None:
        self.turns = FairTurns(at_once, each=max(1, at_once - 1), patience=PATIENCE_S)
        self.began: list[Caller] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, *callers: Caller) -> None:
        """Ask for a turn for each, in this order, and see who gets one."""
        self.tasks += [asyncio.create_task(self._begin(asker)) for asker in callers]
        await settle()

    async def _begin(self, asker: Caller) -> None:
        await self.turns.begin(asker)
        self.began.append(asker)

    async def end(self, asker: Caller) -> None:
        """End a block of a caller, and see who begins."""
        self.turns.end(asker)
        await settle()


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_caller_leaves_one_turn_free() -> None:
    """However many blocks it has, another's first begins at once."""
    desk = Desk(at_once=3)
    await desk.ask(*[NOISY] * 10)
    assert desk.began == [NOISY] * 2
    await desk.ask(QUIET)
    assert desk.began == [NOISY] * 2 + [QUIET]
    assert desk.turns.waiting == 8


async def test_next_is_who_has_the_least_at_work() -> None:
    """Not who asked first; of those who have as little, each in turn."""
    desk = Desk(at_once=3)
    others = [(f"tenant-{number}", "c") for number in range(3)]
    await desk.ask(*[NOISY] * 10, QUIET, *others, QUIET)
    assert desk.began == [NOISY, NOISY, QUIET]
    for ended in (NOISY, QUIET, *others):
        await desk.end(ended)
    assert desk.began[3:] == [*others, QUIET, NOISY]


async def test_credentials_of_one_tenant_share_what_it_gets() -> None:
    """A tenant with twenty keys gets no more turns than one with a single key."""
    desk = Desk(at_once=2)
    keys = [("noisy", f"key-{number}") for number in range(20)]
    await desk.ask(*keys, QUIET, QUIET)
    assert desk.began == keys[:2]
    await desk.end(keys[0])
    assert desk.began[2] == QUIET
    await desk.end(keys[1])
    assert desk.began[3] == keys[2]
    await desk.end(QUIET)
    assert desk.began[4] == QUIET


class CountedCaller(tuple[str, str]):
    """A caller that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self) -> int:
        """Count, and return the hash of the plain caller."""
        CountedCaller.lookups += 1
        return super().__hash__()


@pytest.mark.parametrize("others", [0, 5])
async def test_a_turn_costs_the_same_however_much_one_caller_asks_for(others: int) -> None:
    """Whoever floods a server with requests must not make each turn of everybody slower."""
    lookups = []
    for waiting in (10, 1_000):
        desk = Desk(at_once=2)
        noisy = CountedCaller(NOISY)
        await desk.ask(*[noisy] * (waiting + 1), *[(f"tenant-{number}", "c") for number in range(others)])
        before = CountedCaller.lookups
        desk.turns.end(noisy)
        lookups.append(CountedCaller.lookups - before)
        for task in desk.tasks:
            task.cancel()
    assert lookups[0] == lookups[1]


async def test_who_gives_up_takes_nobodys_turn() -> None:
    """Cancelled while it waits, in the moment in which its turn comes, or out of patience."""
    desk = Desk(at_once=1)
    await desk.ask(NOISY, NOISY, NOISY, QUIET)
    desk.tasks[1].cancel()
    await settle()
    assert desk.turns.waiting == 2
    desk.turns.end(NOISY)  # the third block's turn comes, and it is cancelled before it begins
    desk.tasks[2].cancel()
    await settle()
    assert desk.began == [NOISY, QUIET]
    impatient = FairTurns(1, each=1, patience=0)
    await impatient.begin(NOISY)
    with pytest.raises(Overloaded):
        await impatient.begin(QUIET)
    impatient.end(NOISY)
    await impatient.begin(QUIET)
    assert impatient.waiting == 0


async def test_a_question_is_answered_before_those_that_another_key_asked_at_once(
    memory: Memory, store: AccessStore
) -> None:
    """While the reads of one key stand still, the questions of others are answered, and its own wait."""
    noisy, quiet = await make_key(store, "ada"), await make_key(store, "ada")
    settings = Settings(auth=AuthSettings(mode="keys"))
    asked = 20

    async with serving(memory, settings) as served, AsyncExitStack() as standing, asyncio.TaskGroup() as group:

        async def ask(text: str) -> int:
            sent = headers(NAME) | {"authorization": f"Bearer {text}"}
            return (await served.post(call(NAME, {}), sent)).status_code

        assert await ask(quiet) == 200
        token = caller.set(("default", noisy.split("_")[1]))
        for _ in range(settings.retrieval.reads_at_once - 1):
            await standing.enter_async_context(memory.database.connection())
        caller.reset(token)
        noise = [group.create_task(ask(noisy)) for _ in range(asked)]
        async with asyncio.timeout(PATIENCE_S):
            while memory.database.waiting < asked:
                await asyncio.sleep(0.01)
        for _ in range(5):
            assert await ask(quiet) == 200
        assert memory.database.waiting == asked
        assert not any(task.done() for task in noise)
        await standing.aclose()
        assert {await task for task in noise} == {200}


async def test_a_big_body_keeps_no_small_one_waiting() -> None:
    """What comes after it is decoded meanwhile, and both are what was sent."""
    bodies = Bodies(values=10**6, wait_s=PATIENCE_S)
    async with asyncio.TaskGroup() as group:
        big = group.create_task(bodies.decode(b"[" + b"1," * 400_000 + b"1]"))
        await asyncio.sleep(0)
        assert await bodies.decode(b"{}") == {}
        assert not big.done()
    assert big.result() == [1] * 400_001


async def test_one_caller_has_one_big_body_in_hand() -> None:
    """The place beside it is another's."""
    bodies = Bodies(values=10, wait_s=0)
    body = b" " * (SMALL_BYTES + 1)
    async with bodies.slot_for(body, NOISY):
        with pytest.raises(Overloaded):
            async with bodies.slot_for(body, NOISY):
                pass
        async with bodies.slot_for(body, QUIET):
            pass
