"""What every answer of this server carries, whoever gives it; and which pages of other sites may call from a browser.

The latter is cross-origin resource sharing (Fetch standard). Credentials travel in a header that a page sets itself,
never in cookies, so `Access-Control-Allow-Credentials` is not sent. Starlette's middleware for it answers a page that
may not call in plain text, and repeats whatever a page names as headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria.errors import ConfigurationError
from myria_server.mcp.answers import in_pieces
from myria_server.readiness import Readiness

Header = tuple[bytes, bytes]

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer that does not name them itself: no browser guesses its type, no cache keeps it."""

_SECURITY_NAMES = frozenset(name for name, _ in SECURITY_HEADERS)

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^:/?#@\[\]\s*]+)(:[0-9]{1,5})?")
_METHODS = b"GET, POST, PUT, PATCH, DELETE, OPTIONS"
_MAX_AGE = b"600"
_EXPOSED = (
    b"WWW-Authenticate, Mcp-Session-Id, Retry-After, RateLimit, RateLimit-Policy, RateLimit-Limit, "
    b"RateLimit-Remaining, RateLimit-Reset"
)
_ANY_HEADERS = b"Authorization, Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
_HEADER_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+(\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_MAX_HEADER_NAMES = 2000


class CrossOrigins:
    """The origins whose pages may call.

    Args:
        origins: each `scheme://host[:port]`, or `*` for every origin.

    Raises:
        ConfigurationError: one of them is no origin.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        normalized = [origin.strip().lower().removesuffix("/") for origin in origins]
        for origin in normalized:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ConfigurationError(
                    f"mcp.cors_origins holds {origin!r}, which is no origin; write `https://app.example.com`, without "
                    "a path, or `*`",
                    field="mcp.cors_origins",
                )
        self._any = "*" in normalized
        self._names = frozenset(origin.encode() for origin in normalized)

    def __bool__(self) -> bool:
        return bool(self._names)

    def allows(self, origin: bytes) -> bool:
        """Tell whether pages of an origin may call."""
        return self._any or origin.lower() in self._names

    def headers(self, scope: Scope) -> tuple[Header, ...]:
        """Return the headers that let an allowed page read the answer; for other requests only Vary, for caches."""
        origin = _single(scope["headers"], b"origin")
        if origin is None or not self.allows(origin):
            return ((b"vary", b"Origin"),)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        )

    def preflight(self, scope: Scope) -> tuple[Header, ...] | None:
        """Return the headers that answer a preflight request of an allowed origin; None for any other request."""
        if scope["method"] != "OPTIONS":
            return None
        origin = _single(scope["headers"], b"origin")
        if (
            origin is None
            or _single(scope["headers"], b"access-control-request-method") is None
            or not self.allows(origin)
        ):
            return None
        requested_headers = _single(scope["headers"], b"access-control-request-headers") or b""
        are_names = (
            len(requested_headers) <= _MAX_HEADER_NAMES and _HEADER_NAMES.fullmatch(requested_headers) is not None
        )
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", requested_headers if are_names else _ANY_HEADERS),
            (b"access-control-max-age", _MAX_AGE),
            (b"vary", b"Origin, Access-Control-Request-Headers"),
        )


class AnswerHeaders:
    """Adds headers for security and for pages of other origins, and answers such pages' preflight requests.

    While `readiness.draining`, every answer asks its client to close the connection and connect to another process.
    """

    def __init__(self, app: ASGIApp, *, origins: CrossOrigins, readiness: Readiness) -> None:
        self._app = app
        self._origins = origins
        self._has_origins = bool(origins)
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        extra: tuple[Header, ...] = SECURITY_HEADERS
        if self._has_origins:
            if (preflight := self._origins.preflight(scope)) is not None:
                await send({"type": "http.response.start", "status": 204, "headers": [*extra, *preflight]})
                await send({"type": "http.response.body", "body": b""})
                return
            extra += self._origins.headers(scope)
        if self._readiness.draining:
            extra += ((b"connection", b"close"),)
        await self._app(scope, receive, _with_added_headers(in_pieces(send), extra))


def _with_added_headers(send: Send, extra: tuple[Header, ...]) -> Send:
    """Return a `send` that adds headers to the answer, except security headers that the answer sets itself."""

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            present_names = {name for name, _ in headers} & _SECURITY_NAMES
            headers += [header for header in extra if header[0] not in present_names] if present_names else extra
            message = {**message, "headers": headers}
        await send(message)

    return send_with


def _single(headers: Iterable[Header], wanted_name: bytes) -> bytes | None:
    """Return the value of a header; None where the request lacks it or repeats it."""
    values = [value.strip(b" \t") for name, value in headers if name == wanted_name]
    return values[0] if len(values) == 1 else None
