"""Run a test on a clock that jumps: whoever sleeps is woken at once, and the clock says how long it would have been.

For code that waits on nothing but time. What it measures is exact and the same on every machine.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits: it tells by how much the clock is to be put on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; put the clock on when nothing is."""
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which time is what its sleepers waited for."""

    def __init__(self) -> None:
        self._clock = _Jumping()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the seconds since the loop was made."""
        return self._clock.now


def in_virtual_time(module: ModuleType) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Make a test run in virtual time, `module` included, which reads the clock as `time.monotonic()`."""

    def decorate(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                clock: Mapping[str, Any] = {"monotonic": runner.get_loop().time}
                with mock.patch.object(module, "time", SimpleNamespace(**clock)):
                    runner.run(test())

        return run

    return decorate
