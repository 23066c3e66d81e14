"""Answers on their way out: how large one may be, how much of them a process holds, and whose turn it is to make one.

An answer is made at once but taken as slowly as its client reads. Without a bound, a client that asks for much and
reads nothing fills the memory; and one that asks for much all the time leaves nobody else the event loop. So what is
held is counted, by tenant too, and a caller whose answers are large makes them in turn with others, with a rest after
each while anybody else is served. Small answers are neither counted nor kept waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from starlette.types import Message, Send

from myria.db.fairness import Caller, FairTurns
from myria.errors import AnswerTooLarge, Overloaded
from myria.settings import Settings

COPIES = 4
"""How many times a page's bytes one request may be answered: MCP sends a page as text too, whose quotes are escaped."""

ANSWERS_AT_ONCE = 16
"""How many answers of the largest size a process holds at once."""

SMALL_BYTES = 64 * 1024
"""An answer up to this size is small: what the HTTP server buffers of a connection holds it anyway."""

LARGE_BYTES = 128 * 1024
"""From this size on an answer takes its turn: it costs some milliseconds of the event loop."""

LARGE_AT_ONCE = 2
"""Large answers that are made at a time, one of each caller."""

PATIENCE_S = 10.0
"""Seconds that a large answer waits for its turn."""

REST_FACTOR = 4.0
"""How many times its time a turn rests while others are served: one caller's large answers get a fifth of the time."""

LONGEST_REST_S = 0.25
"""Seconds that a turn rests at most."""

MOST_REMEMBERED = 10_000
"""Callers whose last answer was large, and to what."""

PIECE_BYTES = 64 * 1024
"""Bytes of an answer that are handed over at a time; the next ones wait until the client has taken them."""

_TENANT_SHARE = 2
"""One tenant may hold one part in so many of what the process may."""


class Answers:
    """The answers of one process, over all its APIs.

    Args:
        page_bytes: largest page as JSON.
    """

    def __init__(self, page_bytes: int) -> None:
        self.most_bytes = COPIES * page_bytes
        self._max_held = ANSWERS_AT_ONCE * self.most_bytes
        self._held = 0
        self._of_tenants: Counter[str] = Counter()
        self._turns = FairTurns(LARGE_AT_ONCE, each=1, patience=PATIENCE_S)
        self._large_calls: OrderedDict[tuple[Caller, str], None] = OrderedDict()
        self._small_answers = 0

    @classmethod
    def within(cls, settings: Settings) -> Answers:
        """Return the answers of a process with these settings."""
        return cls(max(settings.retrieval.answer_bytes, settings.ingest.payload_bytes))

    def check(self, caller: Caller, size: int) -> None:
        """Check that an answer of `size` bytes may be sent.

        Raises:
            AnswerTooLarge: it is larger than one request may be answered.
            Overloaded: too many bytes are held already, of all tenants or of the caller's.
        """
        if size > self.most_bytes:
            raise AnswerTooLarge(
                f"the answer would take {size} bytes, and one request is answered at most {self.most_bytes}; ask for "
                "less at once: fewer items, a smaller budget, or a narrower question",
                limit=self.most_bytes,
            )
        if size > SMALL_BYTES and (
            self._held + size > self._max_held or self._of_tenants[caller[0]] + size > self._max_held // _TENANT_SHARE
        ):
            raise Overloaded("too many large answers wait to be taken; read them, ask for less at once, or retry")

    @contextmanager
    def held(self, caller: Caller) -> Iterator[Held]:
        """Count the answers to one request as held until the block ends."""
        held = Held(self, caller[0])
        try:
            yield held
        finally:
            self.hold(caller[0], -held.size)

    def hold(self, tenant: str, size: int) -> None:
        """Add to the bytes that are held; a negative `size` releases them."""
        self._held += size
        self._of_tenants[tenant] += size
        if not self._of_tenants[tenant]:
            del self._of_tenants[tenant]

    @asynccontextmanager
    async def slot_for(self, caller: Caller, name: str) -> AsyncIterator[Outgoing]:
        """Make the answer to a call in the block; it first waits for a turn if the caller's last such answer was large.

        Args:
            name: of the tool or route.

        Raises:
            Overloaded: the turn did not come within `PATIENCE_S`.
        """
        has_turn = (caller, name) in self._large_calls
        if has_turn:
            await self._turns.begin(caller)
        loop = asyncio.get_running_loop()
        began, small_before = loop.time(), self._small_answers
        outgoing = Outgoing()
        try:
            yield outgoing
        finally:
            is_large = outgoing.size >= LARGE_BYTES
            self._remember_size((caller, name), is_large=is_large)
            if not has_turn:
                self._small_answers += not is_large
            # Others were served meanwhile: the turn rests before it ends, so one caller cannot take all the time.
            elif is_large and small_before != self._small_answers:
                loop.call_later(min(REST_FACTOR * (loop.time() - began), LONGEST_REST_S), self._turns.end, caller)
            else:
                self._turns.end(caller)

    def _remember_size(self, call: tuple[Caller, str], *, is_large: bool) -> None:
        """Remember a call whose answer was large as the newest of `_large_calls`; forget it otherwise."""
        self._large_calls.pop(call, None)
        if is_large:
            self._large_calls[call] = None
            if len(self._large_calls) > MOST_REMEMBERED:
                self._large_calls.popitem(last=False)


@dataclass(slots=True)
class Outgoing:
    """An answer that is being made; `size` is its bytes, once they are known."""

    size: int = 0


class Held:
    """Counts the bytes of the answers to one request that are held."""

    __slots__ = ("_answers", "_tenant", "most_bytes", "size")

    def __init__(self, answers: Answers, tenant: str) -> None:
        self._answers = answers
        self._tenant = tenant
        self.most_bytes = answers.most_bytes
        self.size = 0

    def add(self, size: int) -> None:
        """Hold so many bytes more."""
        self.size += size
        self._answers.hold(self._tenant, size)

    @property
    def is_full(self) -> bool:
        """Whether it has reached the most that one request may be answered."""
        return self.size >= self.most_bytes


def in_pieces(send: Send) -> Send:
    """Return a `send` that hands a large body over in pieces, each when the client has taken those before."""

    async def send_pieces(message: Message) -> None:
        body = message.get("body", b"")
        if len(body) <= PIECE_BYTES:
            await send(message)
            return
        whole, more = memoryview(body), message.get("more_body", False)
        for start in range(0, len(body), PIECE_BYTES):
            piece = bytes(whole[start : start + PIECE_BYTES])
            await send({**message, "body": piece, "more_body": more or start + PIECE_BYTES < len(body)})

    return send_pieces
