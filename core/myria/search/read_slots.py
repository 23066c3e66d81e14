"""Slots for heavy reads: a few at a time, so that they cannot starve appends and small reads of CPU and connections.

And while others are served, a slot stays empty after each read in proportion to its work, so that heavy reads get a
bounded share of the process however many wait. Nobody waits for that where nobody else asks.

A read that needs something slow from outside the database, its question's vector or a second look, gives back its
connection and its slot as well, waits, and begins again with what it waited for.

A read is heavy when it must resolve very many scopes or rank very many events. Callers whose last read was heavy are
remembered and wait for a slot before they take a connection. A read that turns out to be heavy gives its connection
back, waits, and begins again; what it has read by then is cached.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from myria import errors
from myria.db.database import Connection, Database
from myria.log.masks import Masks

HEAVY_SCOPES: Final = 1_000
"""New scopes to resolve beyond which a read is heavy."""

HEAVY_EVENTS: Final = 20_000
"""Events to rank beyond which a read is heavy: up to there ranking takes a few milliseconds."""

MOST_WAITING: Final = 128
"""Heavy reads that may wait for a slot; further ones are refused."""

PATIENCE_S: Final = 10.0
"""Seconds that a heavy read waits for a slot before it is refused."""

REST: Final = 4.0
"""How many times its work a slot rests while others are served: heavy reads get a fifth of the time."""

LONGEST_REST_S: Final = 0.25
"""Seconds that a slot rests at most."""

_KNOWN = 10_000

T = TypeVar("T")
Asker = tuple[str, Masks]
"""A tenant, and under which masks somebody asks."""


class HeavyRead(Exception):
    """Raised when a read is heavy and has no slot."""


class Awaited(Exception):
    """Raised when a read needs something slow from outside the database, such as a vector.

    The read gives back its connection, awaits `wait`, and begins again with the result in `ReadSlot.found[key]`.
    `wait` gets the seconds that this read has waited before; it never raises, and returns None for nothing usable.
    """

    def __init__(self, key: tuple[str, str], wait: Callable[[float], Awaitable[Any]]) -> None:
        super().__init__(key)
        self.key = key
        self.wait = wait


class ReadSlot:
    """The weight of one read so far, whether it holds a slot, and in `found` what it has waited for (see `Awaited`)."""

    def __init__(self, *, held: bool, found: dict[tuple[str, str], Any] | None = None) -> None:
        self.held = held
        self.found = {} if found is None else found
        self.was_heavy = False
        self._scopes = 0

    def weigh(self, *, scopes: int = 0, events: int = 0) -> None:
        """Announce how much is about to be read; scopes add up.

        Raises:
            HeavyRead: it is too much without a slot.
        """
        self._scopes += scopes
        if self._scopes > HEAVY_SCOPES or events > HEAVY_EVENTS:
            self.was_heavy = True
            if not self.held:
                raise HeavyRead


class ReadSlots:
    """Lets heavy reads begin, at most `at_once` of them, in the order in which they came."""

    def __init__(self, database: Database, *, at_once: int, patience: float | None = None) -> None:
        self._database = database
        self._free = asyncio.Semaphore(at_once)
        self._patience = PATIENCE_S if patience is None else patience
        self._waiting = 0
        self._resting = 0
        self._others_served = 0
        self._heavy: OrderedDict[Asker, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many heavy reads wait for a slot."""
        return self._waiting

    @property
    def resting(self) -> int:
        """How many slots rest."""
        return self._resting

    def count_other(self) -> None:
        """Count a request beside which heavy reads are to go gently: an append."""
        self._others_served += 1

    async def read(self, asker: Asker, work: Callable[[Connection, ReadSlot], Awaitable[T]]) -> T:
        """Return what `work` reads in one transaction; it may be begun several times.

        Raises:
            Overloaded: it is heavy, and no slot was free in time, or too many wait already.
        """
        loop = asyncio.get_running_loop()
        found: dict[tuple[str, str], Any] = {}
        waited_s = 0.0
        while True:
            try:
                return await self._run_once(asker, work, found)
            except Awaited as raised:
                needed = raised
            wait_began = loop.time()
            found[needed.key] = await needed.wait(waited_s)
            waited_s += loop.time() - wait_began

    async def _run_once(
        self, asker: Asker, work: Callable[[Connection, ReadSlot], Awaitable[T]], found: dict[tuple[str, str], Any]
    ) -> T:
        """Run a read once, without a slot if its asker's last one was not heavy; if it proves heavy, again with one."""
        if asker not in self._heavy:
            try:
                answer = await self._read(asker, work, ReadSlot(held=False, found=found))
                self._others_served += 1
                return answer
            except HeavyRead:
                self._remember_heavy(asker)
        async with self._hold_slot():
            slot = ReadSlot(held=True, found=found)
            answer = await self._read(asker, work, slot)
            if not slot.was_heavy:
                self._heavy.pop(asker, None)
            return answer

    async def _read(self, asker: Asker, work: Callable[[Connection, ReadSlot], Awaitable[T]], slot: ReadSlot) -> T:
        async with self._database.read(asker[0]) as connection:
            return await work(connection, slot)

    def _remember_heavy(self, asker: Asker) -> None:
        """Remember that an asker's last read was heavy; of more than `_KNOWN` askers the earliest is forgotten."""
        self._heavy[asker] = None
        if len(self._heavy) > _KNOWN:
            self._heavy.popitem(last=False)

    @asynccontextmanager
    async def _hold_slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it; if others were served meanwhile, let it rest before it is free again.

        Raises:
            Overloaded: no slot was free in time, or too many wait already.
        """
        if self._waiting >= MOST_WAITING:
            raise errors.Overloaded("too many heavy reads wait for their turn; slow down and retry")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError as error:
            raise errors.Overloaded("other heavy reads took too long; retry, or raise retrieval.heavy_reads") from error
        finally:
            self._waiting -= 1
        loop = asyncio.get_running_loop()
        began, others_before = loop.time(), self._others_served
        try:
            yield
        finally:
            if self._others_served == others_before:
                self._free.release()
            else:
                self._resting += 1
                loop.call_later(min(REST * (loop.time() - began), LONGEST_REST_S), self._free_rested_slot)

    def _free_rested_slot(self) -> None:
        self._resting -= 1
        self._free.release()
