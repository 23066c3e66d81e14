"""Decoding what clients send, so that nothing they send keeps others waiting or fills the memory.

A small body is decoded at once. A big one is scanned first and refused if it exceeds a limit, then decoded in steps
(`myria.jsonslices`), between which the event loop goes on. Only a few big ones are held at a time, from decoding to
answer; further ones wait.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from myria import jsontext
from myria.errors import MyriaError, Overloaded
from myria.jsonslices import SLICE, JsonBounds, Refused, decode

STEP_S = 0.002
"""Seconds of work after which the event loop gets its turn."""

BIG_AT_ONCE = 2
"""Big bodies held at a time."""

_ESCAPED_BYTES = 6
"""Bytes that one byte of text may take as JSON."""

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


class Bodies:
    """The bodies of one server.

    Args:
        values: most members and elements of one JSON text.
        payload_bytes: largest payload; a single text of JSON may be as long as that one escaped.
        wait_s: seconds for which a big body waits for its turn.
    """

    def __init__(self, *, values: int, payload_bytes: int, wait_s: float) -> None:
        self._bounds = JsonBounds(values=values, text=max(SLICE, _ESCAPED_BYTES * payload_bytes))
        self._turns = asyncio.Semaphore(BIG_AT_ONCE)
        self._wait_s = wait_s
        self._in_hand = 0

    @asynccontextmanager
    async def in_hand(self, body: bytes) -> AsyncIterator[None]:
        """Lend the right to work on a body for the block.

        Raises:
            Overloaded: too many big bodies wait before it.
        """
        if len(body) <= SLICE:
            yield
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await self._turns.acquire()
        except TimeoutError as error:
            raise Overloaded("too many large requests are being worked on; slow down and retry") from error
        # A decoded text has no cycles but many objects, which the garbage collector would scan for nothing.
        self._in_hand += 1
        gc.disable()
        try:
            yield
        finally:
            self._in_hand -= 1
            if not self._in_hand:
                gc.enable()
            self._turns.release()

    async def decode(self, body: bytes) -> Any:
        """Return the value of a body.

        Raises:
            Refused: it is not strict JSON, or holds too much.
        """
        if len(body) > SLICE:
            return await in_steps(decode(body, self._bounds))
        try:
            return jsontext.decode(body)
        except MyriaError as error:
            raise Refused(error, jsontext.outline(body)) from error
