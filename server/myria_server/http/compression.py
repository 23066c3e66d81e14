"""Compressing large answers for clients that accept it, outside the event loop.

Only answers that are whole are compressed, never streams. An answer holds nothing that its caller may not see and no
secret of the server's, so its compressed size tells an onlooker nothing that its plain size would not (BREACH needs a
secret beside text of the attacker's choice).
"""

from __future__ import annotations

import asyncio
import gzip
import re
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LEVEL = 1
"""The fastest level: even it shrinks JSON to a fifth."""

_REFUSED = re.compile(rb"gzip\s*;\s*q=0(\.0*)?\s*(,|$)")


@dataclass(frozen=True, slots=True)
class Compression:
    """Compresses answers of at least `least_bytes` for clients that accept gzip; 0 switches compression off."""

    app: ASGIApp
    least_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if self.least_bytes and _accepts_gzip(scope):
            send = _compressing(send, self.least_bytes)
        await self.app(scope, receive, send)


def _accepts_gzip(scope: Scope) -> bool:
    """Tell whether a request accepts gzip."""
    offered = b",".join([value for name, value in scope["headers"] if name == b"accept-encoding"]).lower()
    return b"gzip" in offered and (b"=0" not in offered or _REFUSED.search(offered) is None)


def _compressing(send: Send, least_bytes: int) -> Send:
    """Return a `send` that compresses an answer of at least so many bytes if it comes in one piece."""
    held_start: list[Message] = []  # empty or one message: an answer's start, until its body tells whether to compress

    async def send_compressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            held_start.append(message)
            return
        if not held_start or message["type"] != "http.response.body":
            await send(message)
            return
        start = held_start.pop()
        body = message.get("body", b"")
        is_encoded = any(name.lower() == b"content-encoding" for name, _ in start["headers"])
        # With more to come it is a stream, whose parts must reach the client as they are made.
        if message.get("more_body", False) or len(body) < least_bytes or is_encoded:
            await send(start)
            await send(message)
            return
        # mtime=0: else gzip writes the current time into its header, and equal answers would differ.
        compressed = await asyncio.to_thread(gzip.compress, body, _LEVEL, mtime=0)
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        headers += [
            (b"content-length", b"%d" % len(compressed)),
            (b"content-encoding", b"gzip"),
            (b"vary", b"accept-encoding"),
        ]
        await send({**start, "headers": headers})
        await send({**message, "body": compressed})

    return send_compressed
