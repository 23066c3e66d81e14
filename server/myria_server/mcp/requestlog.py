"""One line per call in the log at level debug: whose it was, how long it took and how it ended, never what was said.

A request that reaches no tool (a handshake, a list of tools, one that is refused) has a line too. Lines of one HTTP
request share its id: the header X-Request-ID, or one made here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
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
    tenant: str | None = None
    method: str | None = None
    code: str | None = None
    lines: int = 0


_current: ContextVar[NotedRequest | None] = ContextVar("request", default=None)


def is_on() -> bool:
    """Tell whether the log takes these lines, at level debug."""
    return _log.isEnabledFor(logging.DEBUG)


@dataclass(frozen=True, slots=True)
class RequestLog:
    """Notes the requests to an API, where lines are wanted; writes a line for one whose calls wrote none."""

    app: ASGIApp
    api: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if not is_on():
            await self.app(scope, receive, send)
            return
        client_id = _shorten_printable(dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1"))
        noted, began, status = NotedRequest(client_id or new_id("req")), time.perf_counter(), 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        token = _current.set(noted)
        try:
            await self.app(scope, receive, send_noted)
        finally:
            _current.reset(token)
            if not noted.lines:
                _write(
                    noted.request_id,
                    time.perf_counter() - began,
                    tenant=noted.tenant,
                    face=self.api,
                    tool=noted.method,
                    code=noted.code or ("ok" if status < 400 else f"http_{status}"),
                    naming_arguments={},
                )


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
