"""Fair turns: few callers at work at once, and next comes the one whose tenant, and who itself, has the least at work.

Without them, connections are lent in the order of asking: a credential that sends forty questions at once makes the
next question of everybody else wait for all forty.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import ContextVar
from typing import Final

from myria import errors

Caller = tuple[str, str]
"""A tenant, and which of its credentials asks."""

caller: Final[ContextVar[Caller]] = ContextVar("caller", default=("", ""))
"""On whose behalf this task works."""


class FairTurns:
    """Lets at most `at_once` blocks run; the waiting get their turns fairly.

    Next is, of those who wait, the caller whose tenant has the fewest blocks running; of several, the one with the
    fewest of its own, and then each in turn.

    Args:
        each: blocks that one caller runs at most; with fewer than `at_once`, another's first block begins at once.
        patience: seconds that a block waits for its turn.
    """

    def __init__(self, at_once: int, *, each: int, patience: float) -> None:
        self._at_once = at_once
        self._each = each
        self._patience = patience
        self._running: Counter[Caller] = Counter()
        self._waiting: list[tuple[Caller, asyncio.Future[None]]] = []
        self.waits = 0

    @property
    def waiting(self) -> int:
        """How many blocks wait for their turn."""
        return len(self._waiting)

    async def begin(self, asker: Caller) -> None:
        """Return when it is a caller's turn; call `end` when its block is over.

        Raises:
            Overloaded: its turn did not come in time.
        """
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((asker, turn))
        self._serve()
        if turn.done():
            return
        self.waits += 1
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            if not turn.cancelled():
                self.end(asker)  # the turn came, and nobody is there any more to take it
            elif (asker, turn) in self._waiting:
                self._waiting.remove((asker, turn))
            if isinstance(error, TimeoutError):
                raise errors.Overloaded("other requests took too long; slow down and retry") from error
            raise

    def end(self, asker: Caller) -> None:
        """End a block of a caller, and let those begin whose turn it is."""
        self._running[asker] -= 1
        if not self._running[asker]:
            del self._running[asker]
        self._serve()

    def _serve(self) -> None:
        while self._running.total() < self._at_once:
            ready = [waits for waits in self._waiting if self._running[waits[0]] < self._each]
            if not ready:
                return
            asker, turn = min(ready, key=lambda waits: (self._of_tenant(waits[0][0]), self._running[waits[0]]))
            self._waiting.remove((asker, turn))
            # Its other blocks go behind everybody else's: of callers who have as much at work, each has its turn.
            self._waiting.sort(key=lambda waits: waits[0] == asker)
            if not turn.done():  # cancelled, where whoever waited is about to leave
                turn.set_result(None)
                self._running[asker] += 1

    def _of_tenant(self, tenant: str) -> int:
        return sum(running for caller_of, running in self._running.items() if caller_of[0] == tenant)
