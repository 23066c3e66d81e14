"""Deadlines of very many short pieces of work, all as long: one timer serves them.

`asyncio.timeout` makes one for each, which costs some ten microseconds to set and to take back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class Deadlines:
    """Ends pieces of work that take longer than `seconds`. For one event loop at a time."""

    __slots__ = ("_at_work", "_loop", "_timer", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at_work: deque[Deadline] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def within(self) -> Deadline:
        """Return a context for the task that enters it: a late block is cancelled, and TimeoutError raised.

        As with `asyncio.timeout`, a block that does not wait for anything is not interrupted.
        """
        return Deadline(self)

    def begin(self, deadline: Deadline) -> None:
        """Watch over a block, the last one to be late."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer = loop, None
            self._at_work.clear()
        at_work = self._at_work
        while at_work and at_work[0].task is None:
            at_work.popleft()
        deadline.at = loop.time() + self.seconds
        at_work.append(deadline)
        if self._timer is None:
            self._timer = loop.call_at(at_work[0].at, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what is late, and look again when the next piece of work may be."""
        self._timer = None
        at_work, now = self._at_work, loop.time()
        while at_work and (at_work[0].task is None or at_work[0].at <= now):
            at_work.popleft().expire()
        if at_work:
            self._timer = loop.call_at(at_work[0].at, self._look, loop)


class Deadline:
    """One block of work, and the task that does it while it does."""

    __slots__ = ("_cancelled_before", "_deadlines", "_is_late", "at", "task")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._is_late = False
        self._cancelled_before = 0
        self.at = 0.0
        self.task: asyncio.Task[object] | None = None

    def __enter__(self) -> None:
        self.task = asyncio.current_task()
        if self.task is None:
            raise RuntimeError("a deadline is for work in a task")
        self._cancelled_before = self.task.cancelling()
        self._deadlines.begin(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self.task = self.task, None
        if not self._is_late or task is None:
            return
        if task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel the block, where it is not over."""
        if self.task is not None:
            self._is_late = True
            self.task.cancel()
