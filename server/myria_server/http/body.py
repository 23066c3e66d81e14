"""Reading request bodies within bounds: how large one may be, how long it may take, and how much all may take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria.db.fairness import Caller
from myria.errors import BodyTooLarge, DeadlineExceeded, Overloaded
from myria_server.http.exchange import ServedApi, headers_of, refuse
from myria_server.mcp.bodies import SMALL_BYTES, Bodies
from myria_server.mcp.server import PRINCIPAL_KEY

BODIES_AT_ONCE = 12
"""How many bodies of the largest size may be held in memory at once."""

_REQUEST_TIMEOUT = 408


class BodyReader:
    """Reads the bodies of one process.

    Args:
        bodies: decodes what was read; a big body waits for its turn there.
        body_bytes: largest request body.
        timeout_s: seconds within which a body must have arrived.
    """

    def __init__(self, bodies: Bodies, *, body_bytes: int, timeout_s: float) -> None:
        self.bodies = bodies
        self._max_held_bytes = BODIES_AT_ONCE * body_bytes
        self._held_bytes = 0
        self._timeout_s = timeout_s

    @asynccontextmanager
    async def read(self, scope: Scope, receive: Receive, limit: int, caller: Caller) -> AsyncIterator[bytes | None]:
        """Read the body of a request and hold it for the block; yield None where the client has gone.

        Nearly all bodies come in one piece, and a timer would cost more than reading one: the HTTP server's sweep ends
        connections whose first piece never comes. Bodies in pieces share bounded memory.

        Raises:
            BodyTooLarge, DeadlineExceeded, Overloaded.
        """
        declared = headers_of(scope).get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise _too_large(limit)
        message = await receive()
        if message["type"] != "http.request":
            yield None
            return
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False) and len(body) <= min(limit, SMALL_BYTES):
            yield body
            return
        pieces: list[bytes] = []
        try:
            if await self._read_pieces(message, receive, pieces, limit):
                body = b"".join(pieces)
                async with self.bodies.slot_for(body, caller):
                    yield body
            else:
                yield None
        finally:
            self._held_bytes -= sum(map(len, pieces))

    async def _read_pieces(self, message: Message, receive: Receive, pieces: list[bytes], limit: int) -> bool:
        """Add a body's pieces to `pieces`, from `message` on; return False where the client leaves before the end."""
        size = 0
        try:
            async with asyncio.timeout(self._timeout_s):
                while message["type"] == "http.request":
                    piece = message.get("body", b"")
                    pieces.append(piece)
                    size += len(piece)
                    self._held_bytes += len(piece)
                    if size > limit:
                        raise _too_large(limit)
                    if self._held_bytes > self._max_held_bytes:
                        raise Overloaded("too many large request bodies at once; slow down and retry")
                    if not message.get("more_body", False):
                        return True
                    message = await receive()
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"the request body did not arrive within {self._timeout_s:g} s", deadline_s=self._timeout_s
            ) from error
        return False


@dataclass(frozen=True, slots=True)
class WholeBody:
    """Hands requests on with their whole body in one message."""

    app: ASGIApp
    api: ServedApi
    reader: BodyReader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        # A stream has no body: it would be held, with its turn among the big ones, for as long as the stream is open.
        opens_stream = self.api.is_stream or (self.api.refuses == "mcp" and scope["method"] == "GET")
        limit = 0 if opens_stream else self.api.body_bytes
        try:
            async with self.reader.read(scope, receive, limit, scope[PRINCIPAL_KEY].caller) as body:
                if body is not None:
                    await self.app(scope, replaying(body, receive), send)
        except (BodyTooLarge, DeadlineExceeded, Overloaded) as error:
            self.api.toolbox.metrics.refused(error.code)
            # Closed only when the body has stalled. Else the rest is read and dropped: a reset could discard the
            # answer.
            is_late = isinstance(error, DeadlineExceeded)
            status = _REQUEST_TIMEOUT if is_late else error.http_status
            extra = ((b"connection", b"close"),) if is_late else ()
            await refuse(send, self.api, error, status=status, extra=extra)


def replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns an already read body first, and afterwards whatever `receive` returns."""
    was_given = False

    async def replay() -> Message:
        nonlocal was_given
        if was_given:
            return await receive()
        was_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is larger than {limit} bytes; send less at once", limit=limit)
