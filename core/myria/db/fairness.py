"""Fair turns: limits how many requests work at once, and lets those callers go next that have the fewest at work.

Without them, connections are lent in the order of asking: a credential that sends forty requests at once makes the next
request of every other caller wait for all forty.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import ContextVar
from typing import Final

from myria import errors

Caller = tuple[str, str]
"""A tenant, and the credential of it that asks."""

caller: Final[ContextVar[Caller]] = ContextVar("caller", default=("", ""))
"""On whose behalf this task works."""


class FairTurns:
    """Lets at most `at_once` blocks run at the same time, and gives the waiting ones their turns fairly.

    The next turn goes to the caller whose tenant has the fewest blocks running; among several, to the one with the
    fewest running itself; among equals, to each in turn.

    Args:
        each: how many blocks one caller may run; below `at_once`, another caller's first block can begin at once.
        patience: seconds that a block waits for its turn.
    """

    def __init__(self, at_once: int, *, each: int, patience: float) -> None:
        self._at_once = at_once
        self._per_caller = each
        self._patience = patience
        self._running: Counter[Caller] = Counter()
        self._waiting: list[tuple[Caller, asyncio.Future[None]]] = []
        self.waits = 0

    @property
    def waiting(self) -> int:
        """How many blocks wait for their turn."""
        return len(self._waiting)

    async def begin(self, asker: Caller) -> None:
        """Wait for a caller's turn; the caller must call `end` when its block is over.

        Raises:
            Overloaded: its turn did not come in time.
        """
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((asker, turn))
        self._grant_turns()
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
        """Count a caller's block as ended, and let the next ones begin."""
        self._running[asker] -= 1
        if not self._running[asker]:
            del self._running[asker]
        self._grant_turns()

    def _grant_turns(self) -> None:
        """Let waiting blocks begin while there is room, the fairest first."""
        while self._running.total() < self._at_once:
            ready = [entry for entry in self._waiting if self._running[entry[0]] < self._per_caller]
            if not ready:
                return
            asker, turn = min(ready, key=lambda entry: (self._running_of_tenant(entry[0][0]), self._running[entry[0]]))
            self._waiting.remove((asker, turn))
            # Its other blocks go behind everybody else's: of callers who have as much at work, each has its turn.
            self._waiting.sort(key=lambda entry: entry[0] == asker)
            if not turn.done():  # cancelled, where whoever waited is about to leave
                turn.set_result(None)
                self._running[asker] += 1

    def _running_of_tenant(self, tenant: str) -> int:
        return sum(running for caller_of, running in self._running.items() if caller_of[0] == tenant)
