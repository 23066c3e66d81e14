"""Rests between small pieces of background work, so that appends and queries meanwhile are hardly slowed."""

from __future__ import annotations

import asyncio
import time

REST_RATIO = 2.5
"""Seconds of rest for each second of work."""

_LEAST_WORK_S = 0.001
_LONGEST_REST_S = 0.5


class Pace:
    """Paces background work: after each piece of work, `rest` sleeps 2.5 times as long as the piece took."""

    def __init__(self) -> None:
        self._worked_since = time.monotonic()

    async def rest(self) -> None:
        """Sleep in proportion to the work since the last rest.

        Work of less than a millisecond earns no rest yet, and counts towards the next.
        """
        worked_s = time.monotonic() - self._worked_since
        if worked_s >= _LEAST_WORK_S:
            await asyncio.sleep(min(_LONGEST_REST_S, worked_s * REST_RATIO))
            self._worked_since = time.monotonic()
