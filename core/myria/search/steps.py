"""Long work in the event loop, done in steps: others get their turn between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any, TypeVar

STEP_S = 0.001
"""Seconds of work after which the event loop gets its turn."""

T = TypeVar("T")


async def in_steps(steps: Generator[Any, None, T]) -> T:
    """Run a generator to its end and return its value, giving way to others every few milliseconds."""
    turn_ends = time.perf_counter() + STEP_S
    try:
        while True:
            next(steps)
            if time.perf_counter() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = time.perf_counter() + STEP_S
    except StopIteration as end:
        value: T = end.value
        return value
