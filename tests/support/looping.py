"""A control loop that counts its looks, so that a test can tell that it looked and started nothing."""

from __future__ import annotations

import asyncio

from myria.control import ControlLoop
from tests.support.patience import PATIENCE_S


class CountedLoop(ControlLoop):
    """A control loop; `ended` and `failed` are its looks so far."""

    ended = 0
    failed = 0

    async def step(self) -> None:
        """Look, and count."""
        try:
            await super().step()
        except Exception:
            self.failed += 1
            raise
        self.ended += 1

    async def looks(self, count: int = 3) -> None:
        """Return once `count` looks have ended; the first of them may have begun before now."""
        wanted = self.ended + count
        async with asyncio.timeout(PATIENCE_S):
            while self.ended < wanted:
                await asyncio.sleep(0.01)

    async def fails(self, count: int = 3) -> None:
        """Return once `count` looks have failed."""
        wanted = self.failed + count
        async with asyncio.timeout(PATIENCE_S):
            while self.failed < wanted:
                await asyncio.sleep(0.01)
