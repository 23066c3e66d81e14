"""One HTTP exchange: what is served at its address, what its headers say, and how it is answered or refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import orjson
from starlette.types import Message, Scope, Send

from myria.db.fairness import Caller
from myria.errors import MyriaError
from myria_server.http.authentication import CREDENTIALS
from myria_server.mcp import requestlog
from myria_server.mcp.answers import SMALL_BYTES, Answers
from myria_server.mcp.messages import code_of, rpc_error
from myria_server.mcp.toolbox import Toolbox

Header = tuple[bytes, bytes]

OK = 200
JSON, EVENTS = b"application/json", b"text/event-stream"

_HEADERS_KEY = "myria.headers"
_WHITE = b" \t"
_REFUSED_RANGE = re.compile(rb";\s*q=0(\.0*)?\s*$")
_JOINED = frozenset({*CREDENTIALS, b"accept", b"host"})
"""Headers whose values count together where they stand twice: two credentials are none, and two hosts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedApi:
    """An API at an address.

    `refuses` is how it says that a request is refused there: as MCP does, as the API's contract has it, or in the one
    member `error`. `body_bytes` is the largest request body. Answers of a stream last until the client leaves.
    """

    toolbox: Toolbox
    body_bytes: int
    is_stream: bool = False
    refuses: Literal["mcp", "contract", "error"] = "mcp"

    def refusal(self, error: MyriaError, request_id: int | str | None = None, code: int | None = None) -> bytes:
        """Return the body of a refusal.

        Args:
            code: that of JSON-RPC, where the error alone does not say.
        """
        requestlog.refused(error.code)
        if self.refuses == "mcp":
            return rpc_error(request_id, code_of(error) if code is None else code, error.message, error.to_json())
        if self.refuses == "contract":
            return self.toolbox.refusal(error).body
        return orjson.dumps({"error": error.to_json()}, default=str)

    def status_of(self, error: MyriaError) -> int:
        """Return the HTTP status of a refusal."""
        return self.toolbox.refusal(error).status if self.refuses == "contract" else error.http_status


def headers_of(scope: Scope) -> Mapping[bytes, bytes]:
    """Return a request's headers: trimmed values by lower-case name. A repeated header has its first value, one of
    `_JOINED` all values."""
    # Each check of a request asks for some, and Starlette's Headers look through the whole list each time.
    values: dict[bytes, bytes] | None = scope.get(_HEADERS_KEY)
    if values is None:
        values = scope[_HEADERS_KEY] = {}
        for name, value in scope["headers"]:
            if name not in values:
                values[name] = value.strip(_WHITE)
            elif name in _JOINED:
                values[name] += b", " + value.strip(_WHITE)
    return values


def with_headers(scope: Scope, headers: Sequence[Header]) -> Scope:
    """Return a copy of a request's scope with other headers, without those cached by `headers_of`."""
    return {**{key: value for key, value in scope.items() if key != _HEADERS_KEY}, "headers": headers}


async def respond(
    send: Send, status: int, body: bytes, *, content_type: bytes | None = JSON, extra: Sequence[Header] = ()
) -> None:
    """Send a whole answer."""
    headers = [(b"content-length", b"%d" % len(body)), *extra]
    if content_type is not None:
        headers.append((b"content-type", content_type))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def respond_held(send: Send, answers: Answers, caller: Caller, body: bytes, *, status: int = OK) -> None:
    """Send an answer to its caller; a large one counts as held in memory until the client has read it."""
    if len(body) <= SMALL_BYTES:
        await respond(send, status, body)
        return
    with answers.held(caller) as held:
        held.add(len(body))
        await respond(send, status, body)


async def refuse(
    send: Send,
    api: ServedApi,
    error: MyriaError,
    *,
    request_id: int | str | None = None,
    status: int | None = None,
    code: int | None = None,
    extra: Sequence[Header] = (),
) -> None:
    """Answer a request with an error, in the form of its API."""
    body = api.refusal(error, request_id, code)
    await respond(send, api.status_of(error) if status is None else status, body, extra=extra)


def unusual_headers(headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Return the HTTP status and text of a refusal where a POST is not declared JSON or accepts no answer of ours."""
    if not headers.get(b"content-type", b"").lower().startswith(JSON):
        return 400, "Invalid Content-Type header"
    if answer_type(headers.get(b"accept", b"")) is None:
        return 406, "send Content-Type and Accept headers that say application/json"
    return None


@lru_cache(maxsize=256)
def answer_type(accept: bytes) -> bytes | None:
    """Return an MCP answer's media type: JSON where the client accepts it, else an event stream of one message.

    A client without an Accept header takes anything (RFC 9110, 12.5.1). None: it accepts neither.
    """
    if not accept:
        return JSON
    ranges = accept.lower().split(b",")
    accepted = {
        media_range.partition(b";")[0].strip() for media_range in ranges if not _REFUSED_RANGE.search(media_range)
    }
    for answer_type in (JSON, EVENTS):
        if not accepted.isdisjoint((answer_type, answer_type.partition(b"/")[0] + b"/*", b"*/*")):
            return answer_type
    return None


def as_event_stream(send: Send) -> Send:
    """Return a `send` that sends a JSON answer as the only event of an event stream; errors pass unchanged."""
    start: Message = {}
    parts: list[bytes] = []

    async def send_event(message: Message) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        parts.append(message.get("body", b""))
        if message.get("more_body", False):
            return
        body, headers = b"".join(parts), dict(start["headers"])
        if start["status"] != OK or not headers.get(b"content-type", b"").startswith(JSON):
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        other_headers = [
            (name, value) for name, value in start["headers"] if name not in (b"content-type", b"content-length")
        ]
        # JSON as it is written here has no line breaks.
        event = b"event: message\ndata: " + body + b"\n\n"
        await respond(send, OK, event, content_type=EVENTS, extra=other_headers)

    return send_event
