"""Decoding what clients send, so that nothing they send keeps others waiting or fills the memory.

A body that holds too much is refused before it is decoded. All but tiny ones are decoded in a thread, two at a time, in
the order in which they came. Only a few big ones are held at a time, from decoding to answer; further ones wait, fairly
between callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from myria.db.fairness import Caller, FairTurns
from myria.errors import BodyTooLarge, MyriaError
from myria.log import jsontext

BIG_AT_ONCE = 2
"""Big bodies held at a time, and threads that decode."""

SMALL_BYTES = 256 * 1024
"""A body up to this size waits for no turn."""

TINY_BYTES = 64 * 1024
"""A body up to this size is decoded at once: some .3 ms, or 2 ms where it is read twice. A thread costs a batch of 100
events a sixth of its rate."""


class Refused(Exception):
    """A text is refused: the error, and the outline of the text (`jsontext.outline`), which holds the request's id."""

    def __init__(self, error: MyriaError, outline: Any) -> None:
        super().__init__(error.message)
        self.error = error
        self.outline = outline


class Bodies:
    """The bodies of one server.

    Args:
        values: most members and elements of one JSON text.
        wait_s: seconds for which a big body waits for its turn.
    """

    def __init__(self, *, values: int, wait_s: float) -> None:
        self._max_values = values
        self._big_turns = FairTurns(BIG_AT_ONCE, each=1, patience=wait_s)
        self._threads = asyncio.Semaphore(BIG_AT_ONCE)

    @asynccontextmanager
    async def slot_for(self, body: bytes, caller: Caller) -> AsyncIterator[None]:
        """Wait until a body may be worked on, and keep that right for the block; small bodies need not wait.

        Raises:
            Overloaded: too many big bodies wait before it.
        """
        if len(body) <= SMALL_BYTES:
            yield
            return
        await self._big_turns.begin(caller)
        try:
            yield
        finally:
            self._big_turns.end(caller)

    async def decode(self, body: bytes) -> Any:
        """Return the value of a body.

        Raises:
            Refused: it is not strict JSON, or holds too much.
        """
        if len(body) <= TINY_BYTES:
            return self._decode_checked(body)
        async with self._threads:
            return await asyncio.to_thread(self._decode_checked, body)

    def _decode_checked(self, body: bytes) -> Any:
        """Decode a body; what is refused comes with its outline."""
        if jsontext.holds_more(body, self._max_values):
            raise self._refusal_of_values(jsontext.envelope(body, self._max_values))
        try:
            return jsontext.decode(body)
        except MyriaError as error:
            raise Refused(error, jsontext.outline(body)) from error

    def _refusal_of_values(self, outline: Any) -> Refused:
        text = f"the JSON text holds more than {self._max_values} values; send fewer events at once"
        params = outline.get("params") if isinstance(outline, dict) else None
        if isinstance(params, dict) and "arguments" in params:
            where = "params.arguments"
            return Refused(BodyTooLarge(f"{text} (in {where})", limit=self._max_values, path=where), outline)
        return Refused(BodyTooLarge(text, limit=self._max_values), outline)
