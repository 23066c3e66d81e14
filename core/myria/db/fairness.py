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
        self._waiting: dict[Caller, dict[asyncio.Future[None], None]] = {}
        """Who waits, in the order of their turns; of each its waiting blocks, in the order of asking."""
        self.waits = 0

    @property
    def waiting(self) -> int:
        """How many blocks wait for their turn."""
        return sum(map(len, self._waiting.values()))

    async def begin(self, asker: Caller) -> None:
        """Wait for a caller's turn; the caller must call `end` when its block is over.

        Raises:
            Overloaded: its turn did not come in time.
        """
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asker, {})[turn] = None
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
            elif turn in (turns := self._waiting.get(asker, {})):
                del turns[turn]
                if not turns:
                    del self._waiting[asker]
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
        # Each step looks at the callers that wait, never at all of their blocks: one may have thousands.
        while self._running.total() < self._at_once:
            ready = [asker for asker in self._waiting if self._running[asker] < self._per_caller]
            if not ready:
                return
            by_tenant: Counter[str] = Counter()
            for (tenant, _), running in self._running.items():
                by_tenant[tenant] += running
            asker = min(ready, key=lambda asker: (by_tenant[asker[0]], self._running[asker]))
            turns = self._waiting.pop(asker)
            turn = next(iter(turns))
            del turns[turn]
            if turns:
                self._waiting[asker] = turns  # at the end: of callers who have as much at work, each has its turn
            if not turn.done():  # cancelled, where whoever waited is about to leave
                turn.set_result(None)
                self._running[asker] += 1
