"""Deadlines of many pieces of work: each is ended when it is late, and what is in time is left alone."""

from __future__ import annotations

import asyncio

import pytest

from myria.deadlines import Deadlines
from tests.support.patience import PATIENCE_S


async def test_what_is_late_is_ended_and_its_task_goes_on() -> None:
    """The block is interrupted where it waits; afterwards the same task waits for other things as before."""
    deadlines = Deadlines(0.01)
    with pytest.raises(TimeoutError), deadlines.within():
        await asyncio.Event().wait()
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_what_is_in_time_is_left_alone_after_its_deadline() -> None:
    """A block that is over is not interrupted later, though others of its time are."""
    deadlines = Deadlines(0.05)
    with deadlines.within():
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), deadlines.within():
        await asyncio.Event().wait()


async def test_each_of_many_is_ended_by_itself() -> None:
    """Of a hundred at the same time those that wait for ever are ended, and the others give what they have."""
    deadlines = Deadlines(0.1)

    async def work(number: int) -> int:
        with deadlines.within():
            if number % 2:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            return number

    ended = await asyncio.wait_for(
        asyncio.gather(*(work(number) for number in range(100)), return_exceptions=True), PATIENCE_S
    )
    assert [number for number in ended if isinstance(number, int)] == list(range(0, 100, 2))
    assert all(isinstance(one, TimeoutError) for one in ended[1::2])


async def test_whoever_cancels_a_task_is_not_mistaken_for_a_deadline() -> None:
    """A task that somebody else cancels ends cancelled, however many deadlines it is within."""
    outer, inner = Deadlines(PATIENCE_S), Deadlines(PATIENCE_S)
    begun = asyncio.Event()

    async def work() -> None:
        with outer.within(), inner.within():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_inner_of_two_deadlines_is_caught_within_the_outer() -> None:
    """Its block may catch the error and go on; the outer one ends what is late for that."""
    outer, inner = Deadlines(PATIENCE_S), Deadlines(0.01)
    with outer.within():
        with pytest.raises(TimeoutError), inner.within():
            await asyncio.Event().wait()
        await asyncio.sleep(0)


async def test_a_catch_that_cuts_a_block_short_counts_nothing_twice() -> None:
    """A block that ends by an error of its own raises that error, and is never late afterwards."""
    deadlines = Deadlines(0.01)
    with pytest.raises(ValueError, match="mine"), deadlines.within():
        raise ValueError("mine")
    with pytest.raises(TimeoutError), deadlines.within():
        await asyncio.Event().wait()
