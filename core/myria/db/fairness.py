"""Fair turns: few callers at work at once, and next comes the one whose tenant, and who itself, has the least at work.

Without them, connections are lent in the order of asking: a credential that sends forty questions at once makes the
next question of everybody else wait for all forty.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
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
        self._running = 0
        self._tenants: Counter[str] = Counter()
        self._callers: Counter[Caller] = Counter()
        self._waiting: OrderedDict[Caller, deque[asyncio.Future[None]]] = OrderedDict()
        self.waits = 0

    @property
    def waiting(self) -> int:
        """How many blocks wait for their turn."""
        return sum(map(len, self._waiting.values()))

    async def begin(self, asker: Caller) -> None:
        """Return when it is a caller's turn; call `end` when its block is over.

        Raises:
            Overloaded: its turn did not come in time.
        """
        if self._may_run(asker):
            self._begin(asker)
        else:
            await self._wait(asker)

    def _may_run(self, asker: Caller) -> bool:
        return self._running < self._at_once and self._callers[asker] < self._each

    def _begin(self, asker: Caller) -> None:
        self._running += 1
        self._tenants[asker[0]] += 1
        self._callers[asker] += 1

    def end(self, asker: Caller) -> None:
        """End a block of a caller, and let those begin whose turn it is."""
        self._running -= 1
        self._tenants[asker[0]] -= 1
        self._callers[asker] -= 1
        if not self._tenants[asker[0]]:
            del self._tenants[asker[0]]
        if not self._callers[asker]:
            del self._callers[asker]
        self._serve()

    def _serve(self) -> None:
        while self._running < self._at_once:
            askers = [asker for asker in self._waiting if self._callers[asker] < self._each]
            if not askers:
                return
            asker = min(askers, key=lambda asker: (self._tenants[asker[0]], self._callers[asker]))
            queue = self._waiting[asker]
            turn = queue.popleft()
            if queue:
                self._waiting.move_to_end(asker)
            else:
                del self._waiting[asker]
            if not turn.done():  # cancelled, where whoever waited is about to leave
                turn.set_result(None)
                self._begin(asker)

    async def _wait(self, asker: Caller) -> None:
        self.waits += 1
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asker, deque()).append(turn)
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            if turn.cancelled():
                self._leave(asker, turn)
            else:
                self.end(asker)  # the turn came, and nobody is there any more to take it
            if isinstance(error, TimeoutError):
                raise errors.Overloaded("other requests took too long; slow down and retry") from error
            raise

    def _leave(self, asker: Caller, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(asker, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[asker]
