"""The HTTP+SSE transport of protocol version 2024-11-05, for old clients of an agent's memory; off unless it is set.

`GET /sse` opens a stream, whose first event says where messages go; `POST /message?sessionId=` takes one, and its
answer comes on the stream. The old clients bring their key as `accessKey` in the address. Addresses are written into
logs by whatever stands in between, which is why the transport is off; this process writes none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

import anyio
import mcp_types
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.lowlevel.server import Server
from mcp.shared.message import SessionMessage
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria.access.limits import CredentialLimits, retry_headers
from myria.access.principal import Face, Principal
from myria.db.fairness import Caller
from myria.errors import (
    AccessError,
    BodyTooLarge,
    DeadlineExceeded,
    HostNotAllowed,
    InvalidArgument,
    MethodNotAllowed,
    MyriaError,
    OriginNotAllowed,
    Overloaded,
    PathNotFound,
    RateLimited,
    UnavailableError,
)
from myria_server.http.authentication import ACCESS_KEY, CREDENTIALS, Authentication, Headers
from myria_server.http.failure_limiter import Door
from myria_server.http.gate import HostList
from myria_server.mcp import requestlog
from myria_server.mcp.answers import Unanswered
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.messages import code_of, fault, id_of, rpc_error
from myria_server.mcp.server import ADDRESS_KEY, PRINCIPAL_KEY

STREAM_PATH = "/sse"
MESSAGE_PATH = "/message"

MAX_STREAMS = 256
"""Streams that may be open at once in a process: each holds a task and a connection."""

HTTP_ERROR = 400

STREAMS_EACH = 32
"""Streams that one credential may have open in a process: no one takes them all."""

UNANSWERED_EACH = 8
"""Requests that the streams of one credential may owe an answer: what a client does not read is held."""

MAX_MESSAGE = 1024 * 1024
"""Largest message, in bytes."""

_FACE: Face = "agent"
_SESSION = "sessionId"
_SDK_SESSION = "session_id"
_KEY = "accessKey"


@dataclass(slots=True, eq=False)
class _Stream:
    """An open stream: the credential it was opened with, whose it is, and what it owes."""

    credential: Headers
    asker: Caller
    unanswered: Unanswered = field(default_factory=Unanswered)


class LegacyTransport:
    """The endpoints of the old transport.

    Args:
        server: the SDK's server of the agent's face.
        hosts: under which names this server may be addressed.
        bodies: decodes what has arrived.
        body_bytes: largest message.
        body_timeout: seconds within which a message must have arrived.
    """

    def __init__(
        self,
        server: Server[Any],
        *,
        authentication: Authentication,
        limits: CredentialLimits,
        door: Door,
        hosts: HostList,
        bodies: Bodies,
        body_bytes: int,
        body_timeout: float,
    ) -> None:
        from mcp.server.sse import SseServerTransport  # noqa: PLC0415 - only where the transport is set

        self._server = server
        self._authentication = authentication
        self._limits = limits
        self._door = door
        self._hosts = hosts
        self._bodies = bodies
        self._body_bytes = min(body_bytes, MAX_MESSAGE)
        self._body_timeout = body_timeout
        self._sse = SseServerTransport(MESSAGE_PATH, max_request_body_size=self._body_bytes)
        self._sessions: dict[str, _Stream] = {}
        self._open: Counter[Caller] = Counter()

    @property
    def sessions(self) -> int:
        """How many streams are open."""
        return len(self._sessions)

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET /sse: a stream that lasts until either side closes it."""
        key = _query(scope).get(_KEY)
        # The HTTP server may be set to write addresses into a log when it answers; this one holds a key.
        scope["query_string"] = b""
        try:
            if scope["method"] != "GET":
                raise MethodNotAllowed(f"{STREAM_PATH} takes GET alone")
            headers = _headers(scope)
            self._check_host(headers)
            credential = _credential(headers, key)
            principal = await self._principal(scope, credential)
            self._admit(principal)
        except MyriaError as error:
            await self._refuse(send, error)
            return
        # What the SDK and its logs see of the request holds no credential.
        kept = [(name, value) for name, value in scope["headers"] if name not in CREDENTIALS]
        inner = {**scope, "headers": kept}
        opened: list[str] = []
        stream = _Stream(credential, principal.caller)

        async def naming(message: Message) -> None:
            """Send the stream on; its first event, which names the session, in the words of the old contract."""
            body: bytes = message.get("body", b"")
            if not opened and _SDK_SESSION.encode() in body:
                session_id = body.partition(f"{_SDK_SESSION}=".encode())[2][:32].decode()
                opened.append(session_id)
                self._sessions[session_id] = stream
                message = {**message, "body": body.replace(_SDK_SESSION.encode(), _SESSION.encode(), 1)}
            await send(message)

        try:
            async with (
                self._sse.connect_sse(inner, receive, naming) as (read, write),
                anyio.create_task_group() as group,
            ):
                to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
                group.start_soon(_pass_on, from_server, write.send, stream.unanswered)
                await self._server.run(read, to_client, self._server.create_initialization_options())
                group.cancel_scope.cancel()
        finally:
            self._open[principal.caller] -= 1
            self._open += Counter()  # without those that have none any more
            for session_id in opened:
                self._sessions.pop(session_id, None)

    def _admit(self, principal: Principal) -> None:
        """Count a stream that is about to be opened: as a request of its credential, and while it is open.

        Raises:
            RateLimited: the credential asks too often, or has as many streams as it may.
            Overloaded: there are too many streams.
        """
        if (usage := self._limits.of(principal)) is not None:
            usage.begin()
            usage.end()  # it does not count to requests at once: its messages are requests of their own
            if self._open[principal.caller] >= STREAMS_EACH:
                raise RateLimited(
                    f"this credential has {STREAMS_EACH} streams open; close one, or use POST /mcp/agent",
                    limit="streams",
                    value=STREAMS_EACH,
                    retry_after_s=1,
                )
        if self._open.total() >= MAX_STREAMS:
            raise Overloaded(f"{MAX_STREAMS} streams are open; use POST /mcp/agent, which needs none")
        self._open[principal.caller] += 1

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer POST /message: 202, and what comes of it on the stream; a refusal is a JSON-RPC error, with its id."""
        usage = None
        request_id: int | str | None = None
        code: int | None = None
        try:
            if scope["method"] != "POST":
                raise MethodNotAllowed(f"{MESSAGE_PATH} takes POST alone")
            headers = _headers(scope)
            self._check_host(headers)
            session_id, credential, unknown = self._session(scope, headers)
            try:
                principal = await self._principal(scope, credential)
            except UnavailableError:
                request_id = await self._id_of_unread(receive)
                raise
            if unknown is not None:  # who proves nothing learns nothing of streams
                raise unknown
            if (usage := self._limits.of(principal)) is not None:
                usage.begin()
            body = await self._body(receive)
            decoded = await self._bodies.decode(body)
            request_id = id_of(decoded)
            if (wrong := fault(decoded)) is not None:
                code = wrong[0]
                raise InvalidArgument(wrong[1])
            owing = self._owe(self._sessions.get(session_id), decoded)
        except (MyriaError, Refused) as refused:
            error = refused.error if isinstance(refused, Refused) else refused
            if isinstance(refused, Refused):
                request_id, code = id_of(refused.outline), mcp_types.PARSE_ERROR
            if usage is not None:
                usage.end()
            requestlog.refused(error.code)
            said = rpc_error(request_id, code or code_of(error), error.message, error.to_json())
            await self._refuse(send, error, said)
            return
        inner = {
            **scope,
            "query_string": urlencode({_SDK_SESSION: session_id}).encode(),
            "headers": [
                (name, str(len(body)).encode() if name == b"content-length" else value)
                for name, value in scope["headers"]
                if name not in (*CREDENTIALS, b"transfer-encoding")
            ],
            PRINCIPAL_KEY: principal,
            ADDRESS_KEY: partial(self._door.address, scope),
        }

        async def watching(message: Message) -> None:
            """Send the answer on; what was not accepted is answered no more."""
            if message["type"] == "http.response.start" and message["status"] >= HTTP_ERROR and owing is not None:
                owing()
            await send(message)

        try:
            await self._sse.handle_post_message(inner, _replaying(body, receive), watching)
        finally:
            if usage is not None:
                usage.end()

    def _owe(self, stream: _Stream | None, message: Any) -> Callable[[], None] | None:
        """Note that a stream owes an answer to a message; return what takes that back, None where it owes none.

        Raises:
            InvalidArgument: it owes one under this id already.
            RateLimited: the credential's streams owe as many as they may.
        """
        if stream is None or "method" not in message:
            return None
        request_id = id_of(message)
        if request_id is None:
            if message["method"] == "notifications/cancelled":
                stream.unanswered.settled((message.get("params") or {}).get("requestId"))
            return None
        if request_id in stream.unanswered:
            raise InvalidArgument("a request with this id is being answered", field="id")
        owed = sum(len(one.unanswered) for one in self._sessions.values() if one.asker == stream.asker)
        if owed >= UNANSWERED_EACH:
            raise RateLimited(
                f"{owed} requests of this credential are not answered yet; read their answers on the stream first",
                limit="unanswered",
                value=UNANSWERED_EACH,
                retry_after_s=1,
            )
        stream.unanswered.asked(request_id)
        return partial(stream.unanswered.settled, request_id)

    def _check_host(self, headers: Headers) -> None:
        foreign = self._hosts.refusal(headers.get(b"host", b""), headers.get(b"origin"))
        if foreign == "origin":
            raise OriginNotAllowed("pages of this origin may not call; mcp.cors_origins adds origins")
        if foreign is not None:
            raise HostNotAllowed("this server does not answer under that name; mcp.allowed_hosts adds names")

    async def _principal(self, scope: Scope, headers: Headers) -> Principal:
        """Return who calls, by the credential of the stream; it may have been revoked since it was opened."""
        try:
            principal = self._authentication.known(headers, _FACE)
            if principal is None:
                principal = await self._authentication.principal(headers, _FACE)
            principal.need_face(_FACE)
        except (AccessError, UnavailableError) as error:
            refused = self._door.judged(scope, headers, error)
            self._door.note(scope, headers, _FACE, None, refused)
            await self._door.linger(refused)
            raise refused from None
        return principal

    def _session(self, scope: Scope, headers: Headers) -> tuple[str, Headers, MyriaError | None]:
        """Return a message's stream, whose credential counts for it, and why it has no stream, if so."""
        asked = _query(scope).get(_SESSION) or _query(scope).get(_SDK_SESSION) or ""
        given = _credential(headers, None)
        try:
            session_id = UUID(hex=asked).hex
        except ValueError:
            return "", given, InvalidArgument(f"{_SESSION} must be what the stream said", field=_SESSION)
        stream = self._sessions.get(session_id)
        if stream is None or (given and given != stream.credential):
            absent = PathNotFound("no such stream is open for this credential; open one with GET /sse")
            return session_id, given, absent
        return session_id, stream.credential, None

    async def _id_of_unread(self, receive: Receive) -> int | str | None:
        """Return the id of a message that nobody has read yet; None where it has none, or is too large or late."""
        try:
            return id_of(await self._bodies.decode(await self._body(receive)))
        except Refused as refused:
            return id_of(refused.outline)
        except MyriaError:
            return None

    async def _body(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(self._body_timeout):
                while True:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    if sum(map(len, parts)) > self._body_bytes:
                        most = self._body_bytes
                        raise BodyTooLarge(f"the message is larger than {most} bytes", limit=most)
                    if not message.get("more_body", False):
                        break
        except TimeoutError as error:
            raise DeadlineExceeded("the message did not arrive in time", deadline_s=self._body_timeout) from error
        return b"".join(parts)

    async def _refuse(self, send: Send, error: MyriaError, body: bytes | None = None) -> None:
        extra = self._authentication.challenge(error, _FACE) if isinstance(error, AccessError) else ()
        if isinstance(error, RateLimited):
            extra += retry_headers(error)
        await _answer(send, error, extra, body)


async def _pass_on(
    answers: MemoryObjectReceiveStream[SessionMessage],
    say: Callable[[SessionMessage], Awaitable[None]],
    unanswered: Unanswered,
) -> None:
    """Send what a server says on, and note what it has answered once the client takes it."""
    async with answers:
        async for item in answers:
            await say(item)
            if isinstance(item.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
                unanswered.settled(item.message.id)


class Endpoint:
    """An ASGI application as a route's endpoint: of a plain function Starlette would make a handler of requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        await self._app(scope, receive, send)


async def refuse_legacy(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer either path where the transport is off."""
    text = "the HTTP+SSE transport of 2024-11-05 is off here (mcp.legacy_sse); use POST /mcp/agent"
    await _answer(send, MethodNotAllowed(text), ())


async def idle_stream(scope: Scope, receive: Receive, send: Send, *, beat_s: float = 15.0) -> None:
    """Answer GET at an MCP path: a stream on which the server has nothing to say, until the client closes it."""
    headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        while not gone.done():
            await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
            await asyncio.wait({gone}, timeout=beat_s)
    finally:
        gone.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(
    send: Send, error: MyriaError, extra: tuple[tuple[bytes, bytes], ...], body: bytes | None = None
) -> None:
    body = body or orjson.dumps({"error": error.to_json()}, default=str)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _headers(scope: Scope) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in CREDENTIALS:
            value = headers[name] + b", " + value  # two credentials are none
        headers[name] = value.strip(b" \t")
    return headers


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1")))


def _credential(headers: Headers, key: str | None) -> Headers:
    """Return the credential alone: that of the headers, or else the key of the address."""
    bearer, named = headers.get(b"authorization"), headers.get(ACCESS_KEY)
    if bearer is not None:
        return {b"authorization": bearer} if named is None else {b"authorization": bearer, ACCESS_KEY: named}
    named = named or (key or "").encode("utf-8", "replace")
    return {b"authorization": b"Bearer " + named} if named else {}


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already."""
    given: list[bytes] = []

    async def replay() -> Message:
        if given:
            return await receive()
        given.append(body)
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
