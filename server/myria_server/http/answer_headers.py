"""What every answer of this server carries, whoever gives it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria_server.http.cors import CrossOrigins
from myria_server.mcp.answers import in_pieces
from myria_server.readiness import Readiness

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer that does not name them itself: no browser guesses its type, no cache keeps it."""

_SECURITY_NAMES = frozenset(name for name, _ in SECURITY_HEADERS)


class AnswerHeaders:
    """Adds headers for security and for pages of other origins, and answers such pages' preflight requests.

    While `readiness.draining`, every answer asks its client to close the connection and connect to another process.
    """

    def __init__(self, app: ASGIApp, *, origins: CrossOrigins, readiness: Readiness) -> None:
        self._app = app
        self._origins = origins
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        extra: tuple[tuple[bytes, bytes], ...] = SECURITY_HEADERS
        if self._origins:
            if (preflight := self._origins.preflight(scope)) is not None:
                await send({"type": "http.response.start", "status": 204, "headers": [*extra, *preflight]})
                await send({"type": "http.response.body", "body": b""})
                return
            extra += self._origins.headers(scope)
        if self._readiness.draining:
            extra += ((b"connection", b"close"),)
        await self._app(scope, receive, _adding(in_pieces(send), extra))


def _adding(send: Send, extra: tuple[tuple[bytes, bytes], ...]) -> Send:
    """Return a `send` that adds headers to the answer: of those for security the ones that it does not name itself."""

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            own = {name for name, _ in headers} & _SECURITY_NAMES
            headers += [header for header in extra if header[0] not in own] if own else extra
            message = {**message, "headers": headers}
        await send(message)

    return send_with
