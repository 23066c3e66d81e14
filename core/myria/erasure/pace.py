"""Rests between small pieces of work, so that those who append and ask meanwhile wait little longer than alone."""

from __future__ import annotations

import asyncio
import time

_REST = 2.5
"""Seconds of rest for each second of work."""

_LEAST_S = 0.001
_MOST_S = 0.5


class Pace:
    """Takes turns with everybody else: after each piece of work `rest` waits for 2.5 times what it took."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def rest(self) -> None:
        """Rest for the work since the last rest; where it was next to nothing, go on with it."""
        worked_s = time.monotonic() - self._since
        if worked_s >= _LEAST_S:
            await asyncio.sleep(min(_MOST_S, worked_s * _REST))
            self._since = time.monotonic()
