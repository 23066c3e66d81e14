"""A queue of keys: each waits there at most once, is worked on by one task at a time, and comes back after a failure.

The queue remembers only keys, not what happened: the work on a key reads everything again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from myria.errors import MyriaError, UnavailableError

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)

_FIRST_BACKOFF_S: Final = 0.2
_LONGEST_BACKOFF_S: Final = 30.0
_LONGEST_OUTAGE_WAIT_S: Final = 5.0
"""The longest wait after a failure during an outage, and so the longest time until its end is noticed."""
_OUTAGE_PER_S: Final = 4.0
"""About how many attempts a second are made during an outage; the more keys wait, the longer each waits."""
_OUTAGE: Final = 5
"""UnavailableErrors in a row, of any keys, that count as an outage of everything."""
_RELEASED_PER_S: Final = 20.0
"""Keys released per second once an outage has ended."""


@dataclass(slots=True)
class _Entry:
    due: float
    """When to work on the key, by the monotonic clock; infinity while it is worked on and was not added again."""
    running: bool = False
    failures: int = 0
    outage: bool = False
    """Whether the last failure was an UnavailableError, which says nothing about the key."""


class Queue(Generic[Key]):
    """Works on keys with `work`, at most `workers` of them at once.

    A key that is added while it is worked on is worked on again afterwards. A failure is logged, and the key is tried
    again after a wait that doubles up to half a minute; a new `add` does not shorten it. In an outage
    (UnavailableError) the waits stay shorter, so that its end is noticed soon; the first success releases all keys.
    """

    def __init__(self, work: Callable[[Key], Awaitable[float | None]], *, workers: int) -> None:
        self._work = work
        self._slots = asyncio.Semaphore(workers)
        self._entries: dict[Key, _Entry] = {}
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._outage = 0
        self.ticked_at = time.monotonic()
        """When the queue last looked for something to do: it does so every second, whatever fails."""

    def add(self, key: Key, *, after_s: float = 0.0) -> None:
        """Have a key worked on, now or later."""
        due = time.monotonic() + after_s
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(due=due)
        elif not entry.failures or entry.running:
            entry.due = min(entry.due, due)
        self._wake.set()

    def __len__(self) -> int:
        """How many keys wait or are worked on."""
        return len(self._entries)

    async def run(self) -> None:
        """Work until cancelled; then cancel all work under way."""
        try:
            while True:
                self.ticked_at = now = time.monotonic()
                for key, entry in list(self._entries.items()):
                    if not entry.running and entry.due <= now and not self._slots.locked():
                        await self._slots.acquire()
                        entry.running, entry.due = True, float("inf")
                        task = asyncio.create_task(self._work_on(key, entry))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
                self._wake.clear()
                waiting = (
                    [] if self._slots.locked() else [entry.due for entry in self._entries.values() if not entry.running]
                )
                wait = min([1.0, *(max(0.0, due - now) for due in waiting)])
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work_on(self, key: Key, entry: _Entry) -> None:
        again: float | None = None
        try:
            again = await self._work(key)
            entry.failures, entry.outage = 0, False
            self._reached()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            is_outage = isinstance(error, UnavailableError)
            # Another kind of failure resets the count: an API server that has just started refuses what it soon allows.
            entry.failures = entry.failures + 1 if is_outage == entry.outage else 1
            entry.outage = is_outage
            self._outage = self._outage + 1 if entry.outage else 0
            again = self._wait(entry, error)
            entry.due = float("inf")
            known = isinstance(error, (MyriaError, OSError, TimeoutError))
            logger.log(
                logging.WARNING if known else logging.ERROR,
                "%s waits %.1f s: %s",
                key,
                again,
                str(error) or type(error).__name__,
                exc_info=None if known else error,
                extra={"action": "reconcile_waits", "key": str(key), "failures": entry.failures},
            )
        finally:
            self._slots.release()
            entry.running = False
            if again is not None:
                entry.due = min(entry.due, time.monotonic() + again)
            if entry.due == float("inf"):
                self._entries.pop(key, None)
            self._wake.set()

    def _wait(self, entry: _Entry, error: Exception) -> float:
        """Return how long a key waits after a failure."""
        longest = _LONGEST_BACKOFF_S
        if entry.outage:
            waiting = sum(other.outage for other in self._entries.values())
            longest = min(longest, max(_LONGEST_OUTAGE_WAIT_S, waiting / _OUTAGE_PER_S))
        wait = min(longest, _FIRST_BACKOFF_S * 2.0 ** min(entry.failures - 1, 20))
        wait *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        retry_after = error.details.get("retry_after_s") if isinstance(error, MyriaError) else None
        return max(wait, retry_after) if isinstance(retry_after, int) else wait

    def _reached(self) -> None:
        """Note a success; if it ends an outage of everything, release the waiting keys a few at a time."""
        if self._outage >= _OUTAGE:
            now = time.monotonic()
            waiting = [entry for entry in self._entries.values() if entry.outage and not entry.running]
            for number, entry in enumerate(sorted(waiting, key=lambda entry: entry.due)):
                entry.due = min(entry.due, now + number / _RELEASED_PER_S)
        self._outage = 0
