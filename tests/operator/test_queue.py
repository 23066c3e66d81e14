"""The queue of keys: once each, one at a time, again after a failure."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from myria.errors import ClusterRefused, ClusterUnavailable
from myria_operator import queue as queue_module
from myria_operator.queue import Queue
from tests.support.virtual_time import in_virtual_time


@asynccontextmanager
async def running(work: Callable[[str], Awaitable[float | None]], *, workers: int = 4) -> AsyncIterator[Queue]:
    """A queue at work."""
    queue = Queue(work, workers=workers)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)


@in_virtual_time(queue_module)
async def test_a_key_waits_once() -> None:
    """However often a waiting key is added, it is worked on once."""
    seen: Counter[str] = Counter()

    async def work(key: str) -> None:
        seen[key] += 1

    queue = Queue(work, workers=1)
    for _ in range(50):
        queue.add("a")
    task = asyncio.create_task(queue.run())
    await until(lambda: not len(queue))
    task.cancel()
    assert seen == {"a": 1}


@in_virtual_time(queue_module)
async def test_a_key_is_worked_on_by_one() -> None:
    """A key that is added while it is worked on is worked on again afterwards, never at once."""
    at_work: Counter[str] = Counter()
    done = 0
    gate = asyncio.Event()

    async def work(key: str) -> None:
        nonlocal done
        at_work[key] += 1
        assert at_work[key] == 1
        await gate.wait()
        at_work[key] -= 1
        done += 1

    async with running(work) as queue:
        queue.add("a")
        await until(lambda: at_work["a"] == 1)
        for _ in range(5):
            queue.add("a")
        gate.set()
        await until(lambda: done == 2)
        await asyncio.sleep(0.05)
    assert done == 2


@in_virtual_time(queue_module)
async def test_a_failure_comes_back_ever_later() -> None:
    """A failing key is tried again with growing waits, others go on, and events do not shorten its wait."""
    tries: list[float] = []
    others = 0

    async def work(key: str) -> None:
        nonlocal others
        if key == "bad":
            tries.append(asyncio.get_running_loop().time())
            raise ClusterUnavailable("away")
        others += 1

    async with running(work) as queue:
        queue.add("bad")
        for _ in range(100):
            queue.add("bad")
            queue.add("good")
            await asyncio.sleep(0.01)
    # Half of each wait is chosen at random: 0.1 to 0.2 s, then 0.2 to 0.4 s, then 0.4 to 0.8 s.
    assert 3 <= len(tries) <= 4
    waits = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert waits == sorted(waits)
    assert others == 100


@in_virtual_time(queue_module)
async def test_a_key_may_ask_to_come_back() -> None:
    """What `work` returns is when to look again, and an `add` meanwhile is sooner."""
    times: list[float] = []

    async def work(_key: str) -> float | None:
        times.append(asyncio.get_running_loop().time())
        return 0.2 if len(times) == 1 else None

    async with running(work) as queue:
        queue.add("a")
        await until(lambda: len(times) == 2)
        assert times[1] - times[0] >= 0.2
        await asyncio.sleep(0.05)
        assert len(queue) == 0


@in_virtual_time(queue_module)
async def test_workers_are_bounded_and_the_queue_ticks() -> None:
    """No more keys at once than workers, and a full house does not stop the tick that liveness looks at."""
    at_once = most = 0
    gate = asyncio.Event()

    async def work(_key: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await gate.wait()
        at_once -= 1

    async with running(work, workers=3) as queue:
        for number in range(10):
            queue.add(str(number))
        await until(lambda: at_once == 3)
        before = queue.ticked_at
        await asyncio.sleep(1.2)
        assert queue.ticked_at > before
        gate.set()
        await until(lambda: len(queue) == 0)
    assert most == 3


@in_virtual_time(queue_module)
async def test_the_end_of_an_outage_is_noticed_soon() -> None:
    """While nobody can be reached few attempts are made; the first that succeeds lets all keys go on."""
    random.seed(9)  # of the jitter
    away, attempts = True, 0
    done: set[str] = set()

    async def work(key: str) -> None:
        nonlocal attempts
        attempts += 1
        if away:
            raise ClusterUnavailable("away")
        done.add(key)

    async with running(work) as queue:
        for number in range(40):
            queue.add(f"k{number}")
        await asyncio.sleep(2.0)
        before = attempts
        await asyncio.sleep(1.0)
        assert attempts - before <= 60  # each waits four seconds and more by then
        away = False
        began = asyncio.get_running_loop().time()
        await until(lambda: len(done) == 40, within_s=60.0)
        assert asyncio.get_running_loop().time() - began < 6.0


@in_virtual_time(queue_module)
async def test_the_api_server_says_how_long_to_wait() -> None:
    """A refusal that names a wait is not asked again before."""
    at: list[float] = []

    async def work(_key: str) -> None:
        at.append(asyncio.get_running_loop().time())
        if len(at) == 1:
            raise ClusterUnavailable("too many", retry_after_s=1)

    async with running(work) as queue:
        queue.add("a")
        await until(lambda: len(at) == 2)
    assert at[1] - at[0] >= 1.0


@in_virtual_time(queue_module)
async def test_a_refusal_after_an_outage_is_a_first_failure() -> None:
    """An API server that begins refuses for a moment what it will allow: how long it was away does not count then."""
    at: list[float] = []

    async def work(_key: str) -> None:
        at.append(asyncio.get_running_loop().time())
        if len(at) <= 4:
            raise ClusterUnavailable("away")
        if len(at) == 5:
            raise ClusterRefused("forbidden, the roles are not read yet", status=403)

    async with running(work) as queue:
        queue.add("a")
        await until(lambda: len(at) == 6)
    assert at[5] - at[4] < 1.5  # it would be 1.6 and more
