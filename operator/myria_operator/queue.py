"""A queue of names: each is in it at most once, is worked on by one task at a time, and is retried after a failure.

The queue holds only names, not what happened to them: the work on a name observes everything again.
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
"""The longest wait after a failure during an outage, which bounds the time until its end is noticed."""
_OUTAGE_PER_S: Final = 4.0
"""About how many attempts a second all names together make during an outage: the more wait, the longer each waits."""
_OUTAGE: Final = 5
"""UnavailableErrors in a row, whatever their names, that count as an outage of everything."""
_RELEASED_PER_S: Final = 20.0
"""Names released per second once an outage has ended."""


@dataclass(slots=True)
class _Entry:
    due: float
    """When to work on the name, by the monotonic clock; infinity while it is worked on and was not added again."""
    running: bool = False
    failures: int = 0
    outage: bool = False
    """Whether the last failure was an UnavailableError, which is not the name's fault."""


class Queue:
    """Calls `work` with each name, at most `workers` at once. `work` returns the seconds until the next call, or None.

    A name that is added while it is worked on is worked on again afterwards. A failure is logged, and the name is tried
    again after a wait that doubles up to half a minute; a new `add` does not shorten that wait. In an outage
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
        """When the queue last looked for due names, by the monotonic clock: every second, whatever fails."""

    def add(self, name: str) -> None:
        """Make a name due now, unless it waits after a failure."""
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
        """Work on one name; then schedule it again, or forget it if nothing more is due."""
        delay_s: float | None = None
        try:
            delay_s = await self._work(name)
            entry.failures, entry.outage = 0, False
            if self._unavailable >= _OUTAGE:
                self._release()
            self._unavailable = 0
        except Exception as error:
            is_outage = isinstance(error, UnavailableError)
            # Another kind of failure restarts the count: a starting API server is first away, then refuses for a while.
            entry.failures = entry.failures + 1 if is_outage == entry.outage else 1
            entry.outage = is_outage
            self._unavailable = self._unavailable + 1 if is_outage else 0
            # An `add` during the work must not shorten the wait.
            entry.due, delay_s = math.inf, self._backoff(entry, error)
            is_expected = isinstance(error, (MyriaError, OSError, TimeoutError))
            logger.log(
                logging.WARNING if is_expected else logging.ERROR,
                "%s waits %.1f s: %s",
                name,
                delay_s,
                str(error) or type(error).__name__,
                exc_info=None if is_expected else error,
                extra={"action": "reconcile_waits", "key": name, "failures": entry.failures},
            )
        finally:
            self._slots.release()
            entry.running = False
            if delay_s is not None:
                entry.due = min(entry.due, time.monotonic() + delay_s)
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
