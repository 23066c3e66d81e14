"""Decoding what clients send, so that nothing they send keeps others waiting or fills the memory.

A small body is decoded at once. A big one is scanned first and refused if it exceeds a limit, then decoded in steps
(`log.jsonslices`), between which the event loop goes on; while small ones are being answered, big ones get a fifth of
the time. Only a few big ones are held at a time, from decoding to answer; further ones wait, fairly between callers.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from myria.db.fairness import Caller, FairTurns
from myria.errors import MyriaError
from myria.log import jsontext
from myria.log.jsonslices import SLICE, JsonBounds, Refused, decode
from myria.search.steps import STEP_S

REST = 4.0
"""How many times a step's time the decoding of a big body rests while small ones are being answered: one of those needs
the loop ten times and more, and would wait for a step each time."""

BIG_AT_ONCE = 2
"""Big bodies held at a time."""

SMALL_BYTES = 128 * 1024
"""A body up to this size is small: whatever it holds, it is decoded in one to three milliseconds. A batch of a hundred
events is; in steps its decoding takes nine times as long."""

_ESCAPED_BYTES = 6
"""Bytes that one byte of text may take as JSON."""


class Bodies:
    """The bodies of one server.

    Args:
        values: most members and elements of one JSON text.
        payload_bytes: largest payload; a single text of JSON may be as long as that one escaped.
        wait_s: seconds for which a big body waits for its turn.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        *,
        values: int,
        payload_bytes: int,
        wait_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        # A body has a value for two of its bytes at most.
        self._small_bytes = max(SLICE, min(SMALL_BYTES, 2 * values))
        self._bounds = JsonBounds(values=values, text=max(SLICE, _ESCAPED_BYTES * payload_bytes))
        self._turns = FairTurns(BIG_AT_ONCE, each=1, patience=wait_s)
        self._stepping = asyncio.Lock()
        self._in_hand = 0
        self._small = 0

    def in_hand(self, body: bytes, asker: Caller) -> AbstractAsyncContextManager[None]:
        """Lend the right to work on a body for the block.

        Raises:
            Overloaded: too many big bodies wait before it.
        """
        return _Small(self) if len(body) <= self._small_bytes else self._big(asker)

    def count_small(self, more: int) -> None:
        """Count small bodies in hand."""
        self._small += more

    @asynccontextmanager
    async def _big(self, asker: Caller) -> AsyncIterator[None]:
        await self._turns.begin(asker)
        # A decoded text has no cycles but many objects, which the garbage collector would scan for nothing.
        self._in_hand += 1
        gc.disable()
        try:
            yield
        finally:
            self._in_hand -= 1
            if not self._in_hand:
                gc.enable()
            self._turns.end(asker)

    async def decode(self, body: bytes) -> Any:
        """Return the value of a body.

        Raises:
            Refused: it is not strict JSON, or holds too much.
        """
        if len(body) > self._small_bytes:
            return await self._decode(body)
        try:
            return jsontext.decode(body)
        except MyriaError as error:
            raise Refused(error, jsontext.outline(body)) from error

    async def _decode(self, body: bytes) -> Any:
        """Decode a big body, resting after each step while small ones are being answered."""
        steps = decode(body, self._bounds)
        try:
            while True:
                async with self._stepping:
                    began = time.perf_counter()
                    while (took := time.perf_counter() - began) < STEP_S:
                        next(steps)
                    await self._sleep(REST * took if self._small else 0)
        except StopIteration as end:
            return end.value


class _Small(AbstractAsyncContextManager[None]):
    """The block in which a small body is worked on: nearly every request has one."""

    __slots__ = ("_bodies",)

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies

    async def __aenter__(self) -> None:
        self._bodies.count_small(1)

    async def __aexit__(self, *_: object) -> None:
        self._bodies.count_small(-1)
