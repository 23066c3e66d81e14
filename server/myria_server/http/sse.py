"""The HTTP+SSE transport of protocol version 2024-11-05, for old clients of an agent's memory; off unless it is set.

`GET /sse` opens a stream, whose first event says where messages go; `POST /message?sessionId=` takes one, and its
answer comes on the stream. The old clients bring their key as `accessKey` in the address. Addresses are written into
logs by whatever stands in between, which is why the transport is off; this process writes none.

The SDK's `SseServerTransport` carries the streams. It knows neither keys in addresses nor a bound on streams or on
answers that nobody reads, so these are here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
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
from starlette.responses import StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria.access.limits import retry_headers
from myria.access.principal import Principal
from myria.db.fairness import Caller
from myria.errors import InvalidArgument, MethodNotAllowed, MyriaError, PathNotFound, RateLimited
from myria_server.http.authentication import ACCESS_KEY, CREDENTIALS, Headers
from myria_server.http.body import replaying
from myria_server.http.exchange import ServedApi, headers_of, refuse, respond, with_headers
from myria_server.http.streams import BEAT_S, OpenStreams
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.messages import cancelled_id, fault, id_of
from myria_server.mcp.server import PRINCIPAL_KEY

STREAM_PATH = "/sse"
MESSAGE_PATH = "/message"

UNANSWERED_EACH = 8
"""Requests that the streams of one credential may owe an answer: what a client does not read is held."""

MAX_MESSAGE = 1024 * 1024
"""Largest message, in bytes."""

HTTP_ERROR = 400

_SESSION = "sessionId"
_SDK_SESSION = "session_id"
_KEY = "accessKey"
_CREDENTIAL_KEY = "myria.credential"


@dataclass(slots=True, eq=False)
class _Stream:
    """An open stream: the credential that opened it, its caller, and the ids of requests that wait for answers."""

    credential: Headers
    caller: Caller
    unanswered: set[object] = field(default_factory=set)


class LegacyTransport:
    """The endpoints of the old transport.

    Args:
        server: the SDK's server of the agent's API.
        guard: puts the checks of this server before the endpoint of a stream, and before that of messages.
        bodies: decodes request bodies.
    """

    def __init__(
        self, server: Server[Any], api: ServedApi, guard: Callable[[ASGIApp, ServedApi], ASGIApp], bodies: Bodies
    ) -> None:
        from mcp.server.sse import SseServerTransport  # noqa: PLC0415 - only where the transport is set

        self._server = server
        self._bodies = bodies
        self._message_api = replace(api, body_bytes=min(api.body_bytes, MAX_MESSAGE))
        self._stream_api = replace(api, refuses="error", is_stream=True)
        self._sse = SseServerTransport(MESSAGE_PATH, max_request_body_size=self._message_api.body_bytes)
        self._sessions: dict[str, _Stream] = {}
        self._open = OpenStreams(instead="use POST /mcp/agent")
        self._guarded_stream = guard(self._serve_stream, self._stream_api)
        self._guarded_message = guard(self._take_message, self._message_api)

    @property
    def sessions(self) -> int:
        """How many streams are open."""
        return len(self._sessions)

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET /sse: a stream that lasts until either side closes it."""
        credential = _credential(headers_of(scope), _query(scope).get(_KEY))
        # The HTTP server may be set to write addresses into a log when it answers; this one holds a key.
        scope["query_string"] = b""
        await self._guarded_stream(_with_credential(scope, credential), receive, send)

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer POST /message: 202, and what comes of it on the stream; a refusal is a JSON-RPC error, with its id.

        A message counts for the credential of its stream, which may have been revoked since that was opened.
        """
        credential = _credential(headers_of(scope), None)
        stream = self._sessions.get(_session_id(scope) or "")
        if stream is not None:
            credential = credential or stream.credential
        await self._guarded_message(_with_credential(scope, credential), receive, send)

    async def _serve_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Open a stream, if its caller may have one more."""
        principal: Principal = scope[PRINCIPAL_KEY]
        with ExitStack() as counted:
            try:
                if scope["method"] != "GET":
                    raise MethodNotAllowed(f"{STREAM_PATH} takes GET alone")
                counted.enter_context(self._open.one_of(principal))
            except MyriaError as error:
                extra = retry_headers(error) if isinstance(error, RateLimited) else ()
                await refuse(send, self._stream_api, error, extra=extra)
                return
            await self._speak(principal, scope, receive, send)

    async def _speak(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK's server speak over a stream until either side closes it."""
        session_ids: list[str] = []
        stream = _Stream(scope[_CREDENTIAL_KEY], principal.caller)

        async def send_renamed(message: Message) -> None:
            """Pass the stream on; in the first event, rename the session's parameter as old clients read it."""
            body: bytes = message.get("body", b"")
            if not session_ids and _SDK_SESSION.encode() in body:
                session_id = body.partition(f"{_SDK_SESSION}=".encode())[2][:32].decode()
                session_ids.append(session_id)
                self._sessions[session_id] = stream
                message = {**message, "body": body.replace(_SDK_SESSION.encode(), _SESSION.encode(), 1)}
            await send(message)

        try:
            async with (
                self._sse.connect_sse(_without_credential(scope), receive, send_renamed) as (read, write),
                anyio.create_task_group() as group,
            ):
                to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
                group.start_soon(_pass_on, from_server, write.send, stream.unanswered)
                await self._server.run(read, to_client, self._server.create_initialization_options())
                group.cancel_scope.cancel()
        finally:
            for session_id in session_ids:
                self._sessions.pop(session_id, None)

    async def _take_message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a posted message and hand it to the SDK for its stream, or refuse it."""
        body = (await receive())["body"]
        request_id: int | str | None = None
        code: int | None = None
        try:
            if scope["method"] != "POST":
                raise MethodNotAllowed(f"{MESSAGE_PATH} takes POST alone")
            session_id, stream = self._find_stream(scope)
            decoded = await self._bodies.decode(body)
            request_id = id_of(decoded)
            if (problem := fault(decoded)) is not None:
                code, text = problem
                raise InvalidArgument(text)
            undo_owed = self._note_owed(stream, decoded)
        except Refused as refused:
            code = mcp_types.PARSE_ERROR
            await refuse(send, self._message_api, refused.error, request_id=id_of(refused.outline), code=code)
            return
        except MyriaError as error:
            extra = retry_headers(error) if isinstance(error, RateLimited) else ()
            await refuse(send, self._message_api, error, request_id=request_id, code=code, extra=extra)
            return

        async def send_watched(message: Message) -> None:
            """Pass the HTTP answer on; a message that was not accepted gets no answer on the stream."""
            if message["type"] == "http.response.start" and message["status"] >= HTTP_ERROR:
                undo_owed()
            await send(message)

        sdk_scope = _without_credential(scope)
        sdk_scope["query_string"] = urlencode({_SDK_SESSION: session_id}).encode()
        await self._sse.handle_post_message(sdk_scope, replaying(body, receive), send_watched)

    def _find_stream(self, scope: Scope) -> tuple[str, _Stream]:
        """Return the id and the stream that a message names.

        Raises:
            InvalidArgument: the message names no stream.
            PathNotFound: no stream of this id is open for the message's credential.
        """
        session_id = _session_id(scope)
        if session_id is None:
            raise InvalidArgument(f"{_SESSION} must be what the stream said", field=_SESSION)
        stream = self._sessions.get(session_id)
        if stream is None or scope[_CREDENTIAL_KEY] != stream.credential:
            raise PathNotFound("no such stream is open for this credential; open one with GET /sse")
        return session_id, stream

    def _note_owed(self, stream: _Stream, message: Any) -> Callable[[], None]:
        """Note that a stream owes an answer if a message is a request; return a function that takes this note back.

        Raises:
            InvalidArgument: a request with this id is not answered yet.
            RateLimited: the credential's streams owe `UNANSWERED_EACH` answers.
        """
        request_id = id_of(message)
        if "method" in message and request_id is not None:
            if request_id in stream.unanswered:
                raise InvalidArgument("a request with this id is being answered", field="id")
            owed = sum(len(other.unanswered) for other in self._sessions.values() if other.caller == stream.caller)
            if owed >= UNANSWERED_EACH:
                raise RateLimited(
                    f"{owed} requests of this credential are not answered yet; read their answers on the stream first",
                    limit="unanswered",
                    value=UNANSWERED_EACH,
                    retry_after_s=1,
                )
            stream.unanswered.add(request_id)
            return partial(stream.unanswered.discard, request_id)
        if message.get("method") == "notifications/cancelled":
            stream.unanswered.discard(cancelled_id(message))
        # A response may carry the id of a request that is still owed its answer, so it takes nothing back.
        return lambda: None


async def _pass_on(
    answers: MemoryObjectReceiveStream[SessionMessage],
    send_to_client: Callable[[SessionMessage], Awaitable[None]],
    unanswered: set[object],
) -> None:
    """Pass the server's messages on to the client; once it took an answer, remove that request from `unanswered`."""
    async with answers:
        async for item in answers:
            await send_to_client(item)
            if isinstance(item.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
                unanswered.discard(item.message.id)


async def refuse_legacy(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer either path where the transport is off."""
    off = MethodNotAllowed("the HTTP+SSE transport of 2024-11-05 is off here (mcp.legacy_sse); use POST /mcp/agent")
    await respond(send, off.http_status, orjson.dumps({"error": off.to_json()}))


async def idle_stream(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer GET at the path of an API: a stream on which the server has nothing to say, until the client closes it."""

    async def beats() -> AsyncIterator[bytes]:
        while True:
            yield b": still here\n\n"
            await asyncio.sleep(BEAT_S)

    await StreamingResponse(beats(), headers={"content-type": "text/event-stream"})(scope, receive, send)


def _query(scope: Scope) -> dict[str, str]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1")))


def _session_id(scope: Scope) -> str | None:
    """Return the id of the stream that a request's address names, None where that is no id."""
    query = _query(scope)
    try:
        return UUID(hex=query.get(_SESSION) or query.get(_SDK_SESSION) or "").hex
    except ValueError:
        return None


def _credential(headers: Headers, key: str | None) -> Headers:
    """Return the headers that carry the credential: those of the request, or else one made of the address's key."""
    bearer, access_key = headers.get(b"authorization"), headers.get(ACCESS_KEY)
    if bearer is not None:
        return {b"authorization": bearer} if access_key is None else {b"authorization": bearer, ACCESS_KEY: access_key}
    access_key = access_key or (key or "").encode("utf-8", "replace")
    return {b"authorization": b"Bearer " + access_key} if access_key else {}


def _with_credential(scope: Scope, credential: Headers) -> Scope:
    """Return a request's scope with a credential in its headers, and under `_CREDENTIAL_KEY` for comparing."""
    return {**_without_credential(scope, credential), _CREDENTIAL_KEY: credential}


def _without_credential(scope: Scope, replacement: Headers | None = None) -> Scope:
    """Return a request's scope without its credential, as the SDK and its logs may see it, or with another one."""
    other_headers = [(name, value) for name, value in scope["headers"] if name not in CREDENTIALS]
    return with_headers(scope, [*other_headers, *(replacement or {}).items()])
