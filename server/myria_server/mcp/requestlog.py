"""One line per call in the log at level debug: whose it was, how long it took and how it ended, never what was said.

A request that reaches no tool (a handshake, a list of tools, one that is refused) has a line too. Lines of one HTTP
request share its id: the header X-Request-ID, or one made here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria.log.ids import new_id

_log = logging.getLogger("myria.requests")

_SESSION_ARGUMENTS: Final = ("session_id", "sessionId", "context_id", "contextId")
_TURN_ARGUMENTS: Final = ("turn_id", "turnId")
_MAX_NAME_CHARACTERS: Final = 100
"""Characters that are logged of a name that a caller gives."""


@dataclass(slots=True)
class NotedRequest:
    """An HTTP request while it is answered; `lines` counts the log lines that its calls wrote."""

    request_id: str
    face: str
    began: float
    tenant: str | None = None
    method: str | None = None
    code: str | None = None
    status: int = 0
    lines: int = 0

    def watching(self, send: Send) -> Send:
        """Return a `send` that notes the status."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            await send(message)

        return noting


_current: ContextVar[NotedRequest | None] = ContextVar("request", default=None)


def is_on() -> bool:
    """Tell whether the log takes these lines, at level debug."""
    return _log.isEnabledFor(logging.DEBUG)


@contextmanager
def noting(headers: Mapping[bytes, bytes], api: str) -> Iterator[NotedRequest]:
    """Note the request that the block answers; if none of its calls wrote a log line, write one at the end."""
    client_id = _shorten_printable(headers.get(b"x-request-id", b"").decode("latin-1"))
    noted = NotedRequest(client_id or new_id("req"), api, time.perf_counter())
    token = _current.set(noted)
    try:
        yield noted
    finally:
        _current.reset(token)
        if not noted.lines:
            code = noted.code or ("ok" if noted.status < 400 else f"http_{noted.status}")
            seconds = time.perf_counter() - noted.began
            _write(
                noted.request_id,
                seconds,
                tenant=noted.tenant,
                face=api,
                tool=noted.method,
                code=code,
                naming_arguments={},
            )


class RequestLog:
    """Notes the requests to an API, where lines are wanted."""

    def __init__(self, app: ASGIApp, *, face: str) -> None:
        self._app = app
        self._api = face

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if not is_on():
            await self._app(scope, receive, send)
            return
        with noting(dict(scope["headers"]), self._api) as noted:
            await self._app(scope, receive, noted.watching(send))


def current() -> NotedRequest | None:
    """Return the request that is being answered; None outside of one, or where the log takes no lines."""
    return _current.get()


def refused(code: str) -> None:
    """Note with which code the present request is refused."""
    if (noted := _current.get()) is not None:
        noted.code = code


def called(tenant: str | None, api: str, tool: str, arguments: Any, *, seconds: float, code: str) -> None:
    """Write the log line of a call; of its arguments it holds only the ids of session and turn."""
    if not is_on():
        return
    request_id = None
    if (noted := _current.get()) is not None:
        noted.lines += 1
        request_id, tenant = noted.request_id, tenant or noted.tenant
    naming_arguments = arguments if isinstance(arguments, dict) else {}
    _write(request_id, seconds, tenant=tenant, face=api, tool=tool, code=code, naming_arguments=naming_arguments)


def _write(
    request_id: str | None, seconds: float, *, naming_arguments: Mapping[str, Any], code: str, **more_fields: str | None
) -> None:
    fields = {
        "request_id": request_id or new_id("req"),
        **more_fields,
        "session": _first_name(naming_arguments, _SESSION_ARGUMENTS),
        "turn": _first_name(naming_arguments, _TURN_ARGUMENTS),
        "ms": round(seconds * 1000, 1),
        "code": code,
    }
    line = " ".join(f"{name}={'-' if field is None else field}" for name, field in fields.items())
    _log.debug("%s", line, extra={"action": "request", **fields})


def _first_name(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((_shorten_printable(value) for name in names if isinstance(value := arguments.get(name), str)), None)


def _shorten_printable(name: str) -> str | None:
    return name[:_MAX_NAME_CHARACTERS] if name.isprintable() and name.strip() else None
