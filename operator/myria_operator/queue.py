"""A queue of names: each waits there at most once, is worked on by one task at a time, and comes back after a failure.

The queue remembers only names, not what happened: the work on one observes everything anew.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from myria.errors import MyriaError, UnavailableError

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_S: Final = 0.2
_LONGEST_BACKOFF_S: Final = 30.0
_LONGEST_OUTAGE_WAIT_S: Final = 5.0
"""The longest wait after a failure during an outage, and so the longest time until its end is noticed."""
_OUTAGE_PER_S: Final = 4.0
"""About how many attempts a second are made during an outage; the more names wait, the longer each waits."""
_OUTAGE: Final = 5
"""UnavailableErrors in a row, of any names, that count as an outage of everything."""
_RELEASED_PER_S: Final = 20.0
"""Names released per second once an outage has ended."""


@dataclass(slots=True)
class _Entry:
    due: float
    """When to work on the name, by the monotonic clock; infinity while it is worked on and was not added again."""
    running: bool = False
    failures: int = 0
    outage: bool = False
    """Whether the last failure was an UnavailableError, which says nothing about the name."""


class Queue:
    """Works on names with `work`, at most `workers` of them at once; `work` returns when to work on the name again.

    A name that is added while it is worked on is worked on again afterwards. A failure is logged, and the name is tried
    again after a wait that doubles up to half a minute; a new `add` does not shorten it. In an outage
    (UnavailableError) the waits stay shorter, so that its end is noticed soon; the first success releases all names.
    """

    def __init__(self, work: Callable[[str], Awaitable[float | None]], *, workers: int) -> None:
        self._work = work
        self._slots = asyncio.Semaphore(workers)
        self._entries: dict[str, _Entry] = {}
        self._wake = asyncio.Event()
        self._unavailable = 0
        """UnavailableErrors in a row, of any names."""
        self.ticked_at = time.monotonic()
        """When the queue last looked for something to do: it does so every second, whatever fails."""

    def add(self, name: str) -> None:
        """Have a name worked on."""
        now = time.monotonic()
        entry = self._entries.setdefault(name, _Entry(due=now))
        if not entry.failures or entry.running:
            entry.due = min(entry.due, now)
        self._wake.set()

    def __len__(self) -> int:
        """How many names wait or are worked on."""
        return len(self._entries)

    async def run(self) -> None:
        """Work until cancelled; then cancel all work under way."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self.ticked_at = now = time.monotonic()
                waiting = {name: entry for name, entry in self._entries.items() if not entry.running}
                for name, entry in waiting.items():
                    if entry.due <= now and not self._slots.locked():
                        await self._slots.acquire()
                        entry.running, entry.due = True, math.inf
                        group.create_task(self._work_on(name, entry))
                next_due = min((entry.due for entry in waiting.values()), default=math.inf)
                wait = 1.0 if self._slots.locked() else min(1.0, max(0.0, next_due - now))
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    async def _work_on(self, name: str, entry: _Entry) -> None:
        again: float | None = None
        try:
            again = await self._work(name)
            entry.failures, entry.outage = 0, False
            if self._unavailable >= _OUTAGE:
                self._release()
            self._unavailable = 0
        except Exception as error:
            is_outage = isinstance(error, UnavailableError)
            # Another kind of failure resets the count: an API server that has just started refuses what it soon allows.
            entry.failures = entry.failures + 1 if is_outage == entry.outage else 1
            entry.outage = is_outage
            self._unavailable = self._unavailable + 1 if is_outage else 0
            # Whoever added the name meanwhile waits as well.
            entry.due, again = math.inf, self._backoff(entry, error)
            known = isinstance(error, (MyriaError, OSError, TimeoutError))
            logger.log(
                logging.WARNING if known else logging.ERROR,
                "%s waits %.1f s: %s",
                name,
                again,
                str(error) or type(error).__name__,
                exc_info=None if known else error,
                extra={"action": "reconcile_waits", "key": name, "failures": entry.failures},
            )
        finally:
            self._slots.release()
            entry.running = False
            if again is not None:
                entry.due = min(entry.due, time.monotonic() + again)
            if math.isinf(entry.due):
                self._entries.pop(name, None)
            self._wake.set()

    def _backoff(self, entry: _Entry, error: Exception) -> float:
        """Return how long a name waits after a failure."""
        longest = _LONGEST_BACKOFF_S
        if entry.outage:
            waiting = sum(other.outage for other in self._entries.values())
            longest = min(longest, max(_LONGEST_OUTAGE_WAIT_S, waiting / _OUTAGE_PER_S))
        wait = min(longest, _FIRST_BACKOFF_S * 2.0 ** min(entry.failures - 1, 20))
        wait *= random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        retry_after = error.details.get("retry_after_s") if isinstance(error, MyriaError) else None
        return max(wait, retry_after) if isinstance(retry_after, int) else wait

    def _release(self) -> None:
        """Let the names that wait for the end of an outage go on, a few at a time."""
        now = time.monotonic()
        waiting = [entry for entry in self._entries.values() if entry.outage and not entry.running]
        for number, entry in enumerate(sorted(waiting, key=lambda entry: entry.due)):
            entry.due = min(entry.due, now + number / _RELEASED_PER_S)
