"""The checks between the HTTP server and MCP.

They come in this order: host, credential, face, rate, method, body (size, pace), strict JSON, batch, role, message.
Then a call of a tool is answered by `mcp.calls`, everything else by the SDK.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types
import orjson
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria.access.limits import CredentialLimits, CredentialUsage, retry_headers
from myria.access.principal import Principal
from myria.errors import (
    AccessError,
    AnswerTooLarge,
    BodyTooLarge,
    DeadlineExceeded,
    HostNotAllowed,
    InvalidArgument,
    MethodNotAllowed,
    MyriaError,
    OriginNotAllowed,
    Overloaded,
    RateLimited,
    UnavailableError,
)
from myria.log.fields import unknown_field
from myria_server.api.memtrace.handlers import Asked, RestFace
from myria_server.api.memtrace.routes import Route, match
from myria_server.http.authentication import CREDENTIALS, Authentication
from myria_server.http.cors import CrossOrigins
from myria_server.http.failure_limiter import Door
from myria_server.mcp import requestlog
from myria_server.mcp.answers import SMALL_BYTES, Answers, Held
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.calls import VERSION_HEADER, Calls
from myria_server.mcp.messages import (
    blamed_call,
    called_tool,
    code_of,
    fault,
    id_of,
    rpc_error,
    with_object_arguments,
)
from myria_server.mcp.server import ADDRESS_KEY, PRINCIPAL_KEY
from myria_server.mcp.toolbox import Toolbox
from myria_server.metrics import ServerMetrics

OK = 200
NO_CONTENT = 204

MAX_BATCH_MESSAGES = 100
"""Messages in one JSON-RPC batch."""

BODIES_AT_ONCE = 12
"""How many bodies of the largest size may be held in memory at once."""

SDK_BYTES = 16 * 1024
"""Bytes of a message that the SDK parses once more, at one go."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_BATCH_VERSIONS = frozenset({None, b"2024-11-05", b"2025-03-26"})
"""Protocol versions with JSON-RPC batches; no header means 2025-03-26, and 2025-06-18 took batches away."""

_JSON, _EVENTS = b"application/json", b"text/event-stream"
_MODERN = b"2026-07-28"
_VERSIONS = frozenset(version.encode() for version in KNOWN_PROTOCOL_VERSIONS)
_LISTED = frozenset({*CREDENTIALS, b"accept", b"host"})
"""Headers whose values count together where they stand twice: two credentials are none, and two hosts."""

_WHITE = b" \t"
_REFUSED_RANGE = re.compile(rb";\s*q=0(\.0*)?\s*$")
_REMEMBERED_HOSTS = 256
_SHOWN = 200

_METHODS = frozenset({"initialize", "ping", "tools/list", "tools/call", "notifications/initialized", "server/discover"})
"""Methods that are named in the log; another one is whatever a caller wrote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FaceParts:
    """What answers at one face's path: its tools, its calls over MCP, and the SDK for all else.

    `tool` is the one that a plain POST of its arguments calls there, without MCP; `rest` what runs the routes below its
    path. Both are None where MCP is spoken.
    `body_bytes` is the largest request body there, where that is less than elsewhere.
    """

    toolbox: Toolbox
    calls: Calls
    sdk: ASGIApp
    tool: str | None = None
    body_bytes: int | None = None
    rest: RestFace | None = None

    @property
    def is_mcp(self) -> bool:
        """Whether MCP is spoken there."""
        return self.tool is None and self.rest is None


@dataclass(frozen=True, slots=True)
class _Request:
    """One HTTP request whose headers were looked at."""

    scope: Scope
    headers: Mapping[bytes, bytes]
    principal: Principal
    face: FaceParts
    receive: Receive
    usage: CredentialUsage | None
    door: Door

    def address(self) -> str:
        """Return from where it comes."""
        return self.door.address(self.scope)


class HostList:
    """The host names under which this server may be addressed, against DNS rebinding.

    Args:
        names: beside loopback: `name` (any port), `name:port`, `*.domain`, or `*` for every host.
        origins: whose pages may call although they are none of these hosts.
    """

    def __init__(self, names: Sequence[str], origins: CrossOrigins | None = None) -> None:
        self._origins = origins or CrossOrigins(())
        self._names = frozenset(name.lower().removesuffix(":*") for name in (*_LOOPBACK_NAMES, *names))
        self._suffixes = tuple(name[1:] for name in self._names if name.startswith("*."))
        self._verdicts: dict[tuple[bytes, bytes | None], str | None] = {}

    def refusal(self, host: bytes, origin: bytes | None) -> str | None:
        """Return which header names a foreign host, or None."""
        key = (host, origin)
        if key in self._verdicts:
            return self._verdicts[key]
        verdict = None
        if not self._allows(host.decode("latin-1")):
            verdict = "host"
        elif origin and not self._origins.allows(origin):
            scheme, _, authority = origin.decode("latin-1").partition("://")
            if scheme not in ("http", "https") or not self._allows(authority):
                verdict = "origin"
        if len(self._verdicts) >= _REMEMBERED_HOSTS:
            self._verdicts.clear()
        self._verdicts[key] = verdict
        return verdict

    def _allows(self, authority: str) -> bool:
        authority = authority.lower()
        match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:/\[\]@?#\s]+)(:[0-9]+)?", authority)
        if match is None:
            return False
        name = match[1]
        return "*" in self._names or name in self._names or authority in self._names or name.endswith(self._suffixes)


class Gate:
    """The ASGI application at the paths of the MCP faces.

    Args:
        faces: by path, without a slash at its end.
        below: what answers at every path below a prefix, which ends with a slash.
        bodies: decodes what has arrived.
        answers: what is held of the process's answers.
        body_bytes: largest request body.
        body_timeout: seconds within which a body must have arrived.
        authentication: returns the principal from the headers.
        limits: what credentials may use.
        door: judges those who failed to prove who they are.
        streams: answers GET with a stream, for clients of old sessions; None refuses it, and DELETE.
    """

    def __init__(
        self,
        *,
        faces: Mapping[str, FaceParts],
        below: Mapping[str, FaceParts],
        hosts: HostList,
        metrics: ServerMetrics,
        bodies: Bodies,
        answers: Answers,
        body_bytes: int,
        body_timeout: float,
        authentication: Authentication,
        limits: CredentialLimits,
        door: Door,
        streams: ASGIApp | None = None,
    ) -> None:
        self._streams = streams
        self._limits = limits
        self._door = door
        self._faces = faces
        self._below = below
        self._hosts = hosts
        self._metrics = metrics
        self._bodies = bodies
        self._answers = answers
        self._body_bytes = body_bytes
        self._room_bytes = BODIES_AT_ONCE * body_bytes
        self._held_bytes = 0
        self._body_timeout = body_timeout
        self._authentication = authentication

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        headers: dict[bytes, bytes] = {}
        for name, given in scope["headers"]:
            if name not in headers:
                headers[name] = given.strip(_WHITE)
            elif name in _LISTED:
                headers[name] += b", " + given.strip(_WHITE)
        face = self._face(scope["path"])
        if not requestlog.is_on():
            await self._judged(scope, headers, face, receive, send)
            return
        with requestlog.noting(headers, face.toolbox.face) as noted:
            await self._judged(scope, headers, face, receive, noted.watching(send))

    async def _judged(
        self,
        scope: Scope,
        headers: Mapping[bytes, bytes],
        face: FaceParts,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request whose headers were read."""
        foreign = self._hosts.refusal(headers.get(b"host", b""), headers.get(b"origin"))
        if foreign is None and not face.is_mcp and _is_form_of_a_page(scope["method"], headers):
            foreign = "form"
        if foreign is not None:
            self._metrics.refused(f"foreign_{foreign}")
            error = foreign_refusal(foreign, headers.get(foreign.encode(), b"").decode("latin-1"))
            code = mcp_types.INVALID_REQUEST
            await self._refuse(send, None, error, status=error.http_status, code=code, face=face)
            return
        usage: CredentialUsage | None = None
        principal: Principal | None = None
        try:
            asked = face.toolbox.face
            principal = self._authentication.known(headers, asked)
            if principal is None:
                principal = await self._authentication.principal(headers, asked)
            principal.need_face(asked)
            if (usage := self._limits.of(principal)) is not None:
                usage.begin()
        except (AccessError, UnavailableError) as error:
            refused = self._door.judged(scope, headers, error)
            self._door.note(scope, headers, face.toolbox.face, principal, refused)
            body = None
            if isinstance(refused, UnavailableError) and face.is_mcp and scope["method"] == "POST":
                body = await self._unavailable(scope, headers, receive, face, refused)
            await self._turn_away(send, face, None, refused, usage, body=body)
            return
        if (noted := requestlog.current()) is not None:
            noted.tenant = principal.tenant
        request = _Request(scope, headers, principal, face, receive, usage, self._door)
        if usage is None:
            await self._admitted(request, send)
            return
        try:
            telling = _announcing(send, usage) if usage.has_rate else send
            await self._admitted(request, telling)
        finally:
            usage.end()

    async def _unavailable(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, face: FaceParts, error: MyriaError
    ) -> bytes | None:
        """Return what every message of a request is answered of whose caller cannot be told now; None where none is.

        JSON-RPC wants the id of each. Bodies are bounded as those of everybody.
        """
        taken: list[int] = []
        try:
            body = await self._read_body(headers, receive, taken, face.body_bytes or self._body_bytes)
            if body is None:
                return None
            async with self._bodies.in_hand(body, ("", self._door.address(scope))):
                message = await self._bodies.decode(body)
        except Refused as refused:
            message = refused.outline
        except (BodyTooLarge, DeadlineExceeded, Overloaded):
            return None
        finally:
            self._held_bytes -= sum(taken)
        is_batch = type(message) is list and headers.get(VERSION_HEADER) != _MODERN
        ids = [id_of(one) for one in message[:MAX_BATCH_MESSAGES]] if is_batch else [id_of(message)]
        answers = [_error_body(face, one, code_of(error), error) for one in ids if one is not None]
        if not answers:
            return None
        return b"[" + b",".join(answers) + b"]" if is_batch else answers[0]

    def _face(self, path: str) -> FaceParts:
        face = self._faces.get(path.rstrip("/"))
        return face or next(parts for prefix, parts in self._below.items() if path.startswith(prefix))

    async def _admitted(self, request: _Request, send: Send) -> None:
        """Answer a request whose caller may make it."""
        is_mcp = request.face.is_mcp
        if self._streams is not None and is_mcp and request.scope["method"] == "GET" and _wants_stream(request.headers):
            await self._streams(request.scope, request.receive, send)
            return
        if self._streams is not None and is_mcp and request.scope["method"] == "DELETE":
            await _respond(send, 200, b"{}")  # there is no session to end
            return
        if is_mcp and _answer_type(request.headers) == _EVENTS:
            send = _as_event_stream(send)
        if request.face.rest is None and request.scope["method"] != "POST":
            wrong = MethodNotAllowed(
                "MCP takes POST alone here: there are no streams to open and no sessions to end"
                if is_mcp
                else "only POST is taken here, with the arguments as a JSON object in its body"
            )
            text = _error_body(request.face, None, mcp_types.INVALID_REQUEST, wrong)
            await _respond(send, wrong.http_status, text, extra=((b"allow", b"POST"),))
            return
        taken: list[int] = []
        try:
            limit = self._body_bytes if request.face.body_bytes is None else request.face.body_bytes
            body = await self._read_body(request.headers, request.receive, taken, limit)
            if body is not None:
                async with self._bodies.in_hand(body, request.principal.caller):
                    if request.face.rest is not None:
                        await self._answer_rest(request, request.face.rest, body, send)
                    else:
                        await self._answer(request, body, send)
        except (BodyTooLarge, DeadlineExceeded, Overloaded) as error:
            self._metrics.refused(error.code)
            # Closed only when the body has stalled. Else the rest is read and dropped: a reset could discard
            # the answer.
            late = isinstance(error, DeadlineExceeded)
            status = 408 if late else error.http_status
            await self._refuse(send, None, error, status=status, code=code_of(error), close=late, face=request.face)
        finally:
            self._held_bytes -= sum(taken)

    async def _answer(self, request: _Request, body: bytes, send: Send) -> None:
        """Answer a request whose body is there."""
        headers, face = request.headers, request.face
        try:
            message = await self._bodies.decode(body)
        except Refused as refused:
            await self._refuse_text(send, request, refused)
            return
        if face.is_mcp and (meant := with_object_arguments(message)) is not message:
            message, body = meant, orjson.dumps(meant)
        if (noted := requestlog.current()) is not None and isinstance(message, dict):
            method = message.get("method")
            noted.method = method if method in _METHODS else None
        if face.tool is not None:
            outcome = await face.toolbox.call(face.tool, message, request.principal, request.address)
            await self._send(request, send, outcome.body, status=outcome.status)
            return
        if type(message) is list and headers.get(VERSION_HEADER) != _MODERN:
            await self._batch(request, message, send)
            return
        if (forbidden := _forbidden(request, message)) is not None:
            self._note(request, forbidden, message)
            await self._turn_away(send, face, id_of(message), forbidden)
            return
        if (wrong := fault(message)) is not None:
            self._metrics.refused("message")
            await self._refuse(send, id_of(message), InvalidArgument(wrong[1]), status=400, code=wrong[0])
            return
        version = headers.get(VERSION_HEADER)
        if version is not None and version not in _VERSIONS and not _names_version(message):
            self._metrics.refused("protocol_version")
            await _respond(send, 400, _unsupported(id_of(message), version.decode("latin-1")[:40]))
            return
        if (unusual := _unusual_headers(headers)) is not None:
            self._metrics.refused("headers")
            status, text = unusual
            code = mcp_types.INVALID_REQUEST
            await self._refuse(send, id_of(message), InvalidArgument(text), status=status, code=code)
            return
        if message.get("method") == "tools/call" and "id" in message:
            status, answer = await self._call(request, message)
            await self._send(request, send, answer, status=status)
        else:
            await self._hand_over(request, id_of(message), body, send)

    async def _call(self, request: _Request, message: Mapping[str, Any]) -> tuple[int, bytes]:
        named = request.headers.get(VERSION_HEADER)
        version = mcp_types.DEFAULT_NEGOTIATED_VERSION if named is None else named.decode("latin-1")
        return await request.face.calls.answer(
            message, request.scope["headers"], version, request.principal, request.address
        )

    async def _answer_rest(self, request: _Request, face: RestFace, body: bytes, send: Send) -> None:
        """Answer a request to a route of REST, whose body is there."""
        scope, toolbox = request.scope, request.face.toolbox
        try:
            matched = match(scope["method"], scope.get("raw_path") or scope["path"].encode())
            route = matched.route
            if request.principal.roles.isdisjoint(route.roles):
                request.principal.need(route.roles, what=route.name)
            asked = Asked.of(
                matched,
                query=scope["query_string"],
                body=await self._decoded(route, body),
                key=request.headers.get(b"idempotency-key") if route.keyed else None,
            )
        except AccessError as error:
            toolbox.metrics.request_done("rest", route.name, error.code, 0.0)
            self._note(request, error)
            await self._turn_away(send, request.face, None, error)
            return
        except MyriaError as error:
            self._metrics.refused(error.code)
            allow = error.details.get("allow") if isinstance(error, MethodNotAllowed) else None
            extra = () if allow is None else ((b"allow", allow.encode()),)
            requestlog.refused(error.code)
            refusal = toolbox.refusal(error)
            await _respond(send, refusal.status, refusal.body, extra=extra)
            return

        async def work() -> dict[str, Any]:
            if not route.query and asked.query:
                name = next(iter(asked.query))
                if any(name in model.model_fields for model in route.body):
                    raise InvalidArgument(f"{name} belongs into the JSON body, not into the address", field=name)
                raise unknown_field(name, ())
            return await face.runs[route.name](request.principal, asked)

        noted = asked.query if asked.body is None else asked.body
        if "session" in route.name and asked.entry_id and isinstance(noted, dict):
            noted = {"session_id": asked.entry_id, **noted}
        outcome = await toolbox.call_route(route, work, request.principal, noted, request.address)
        if outcome.is_error:
            await _respond(send, outcome.status, outcome.body)
        elif route.status == NO_CONTENT:
            await _respond(send, route.status, b"", content_type=None)
        else:
            await self._send(request, send, outcome.body, status=route.status)

    async def _send(self, request: _Request, send: Send, body: bytes, *, status: int = 200) -> None:
        """Send an answer, which is held until the client has taken it."""
        if len(body) <= SMALL_BYTES:
            await _respond(send, status, body)
            return
        with self._answers.held(request.principal.caller) as held:
            held.add(len(body))
            await _respond(send, status, body)

    async def _decoded(self, route: Route, body: bytes) -> Any:
        """Return the body of a request to a route, None where there is none.

        Raises:
            MalformedJson, InvalidText, BodyTooLarge, InvalidArgument: it is not what the route takes.
        """
        if not route.body:
            return None
        if not body.strip():
            if route.needs_body:
                raise InvalidArgument("invalid request body: it is empty; send a JSON object", field="")
            return None
        try:
            return await self._bodies.decode(body)
        except Refused as refused:
            raise refused.error from refused

    async def _read_body(
        self, headers: Mapping[bytes, bytes], receive: Receive, taken: list[int], limit: int
    ) -> bytes | None:
        """Return the body, or None when the client has gone.

        Nearly all bodies come in one piece, and a timer would cost more than reading one: the HTTP server's sweep
        ends connections whose first piece never comes. Bodies in pieces share bounded memory; this body's part of it
        is noted in `taken`.
        """
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise _too_large(limit)
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            body: bytes = message.get("body", b"")
            if len(body) <= limit:
                return body
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._body_timeout):
                while message["type"] == "http.request":
                    part = message.get("body", b"")
                    parts.append(part)
                    taken.append(len(part))
                    size += len(part)
                    self._held_bytes += len(part)
                    if size > limit:
                        raise _too_large(limit)
                    if self._held_bytes > self._room_bytes:
                        raise Overloaded("too many large request bodies at once; slow down and retry")
                    if not message.get("more_body", False):
                        return b"".join(parts)
                    message = await receive()
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"the request body did not arrive within {self._body_timeout:g} s", deadline_s=self._body_timeout
            ) from error
        return None

    def _note(self, request: _Request, error: MyriaError, message: Any = None) -> None:
        """Note that a caller who proved who they are was refused, and which known tool they called with a message."""
        toolbox = request.face.toolbox
        name = called_tool(message)
        tool = name if name is not None and toolbox.knows(name) else None
        self._door.note(request.scope, request.headers, toolbox.face, request.principal, error, tool=tool)

    async def _turn_away(
        self,
        send: Send,
        face: FaceParts,
        request_id: int | str | None,
        error: MyriaError,
        usage: CredentialUsage | None = None,
        *,
        body: bytes | None = None,
    ) -> None:
        """Answer a request whose caller may not make it, or of whom that cannot be told now.

        Args:
            usage: of the credential, where `send` does not tell it.
            body: the answer; None: the error alone.
        """
        self._metrics.refused(error.code)
        await self._door.linger(error, usage)
        body = body or _error_body(face, request_id, code_of(error), error)
        status = error.http_status if face.rest is None else face.toolbox.refusal(error).status
        extra: tuple[tuple[bytes, bytes], ...] = ()
        if isinstance(error, AccessError) and status == error.http_status:
            extra = self._authentication.challenge(error, face.toolbox.face)
        if isinstance(error, RateLimited):
            extra += retry_headers(error)
        if usage is not None:
            extra += usage.headers()
        await _respond(send, status, body, extra=extra)

    async def _refuse_text(self, send: Send, request: _Request, refused: Refused) -> None:
        """Refuse JSON that is not strict: as the tool's own refusal where it lies in a call's arguments."""
        error, headers, face = refused.error, request.headers, request.face
        blamed = blamed_call(refused.outline, error)
        if (forbidden := _forbidden(request, refused.outline)) is not None:
            self._note(request, forbidden, refused.outline)
            await self._turn_away(send, face, id_of(refused.outline), forbidden)
            return
        if blamed is not None and face.toolbox.knows(blamed[1]):
            request_id, name, about_arguments = blamed
            face.toolbox.count(name, error.code)
            is_modern = headers.get(VERSION_HEADER) == _MODERN
            refusal = face.toolbox.refusal(about_arguments)
            await _respond(send, OK, face.calls.written(request_id, refusal, is_modern=is_modern))
            return
        self._metrics.refused(error.code)
        is_large = isinstance(error, BodyTooLarge)
        code = mcp_types.INVALID_REQUEST if is_large else mcp_types.PARSE_ERROR
        await self._refuse(send, id_of(refused.outline), error, status=error.http_status, code=code, face=face)

    async def _refuse(
        self,
        send: Send,
        request_id: int | str | None,
        error: MyriaError,
        *,
        status: int,
        code: int,
        close: bool = False,
        face: FaceParts | None = None,
    ) -> None:
        """Answer with a JSON-RPC error whose data is the coded error; without MCP, with the contract's refusal."""
        body = _error_body(face, request_id, code, error)
        await _respond(send, status, body, extra=((b"connection", b"close"),) if close else ())

    async def _batch(self, request: _Request, messages: list[Any], send: Send) -> None:
        """Answer a JSON-RPC batch, message by message, where the protocol version has batches."""
        version = request.headers.get(VERSION_HEADER)
        refused: str | None = None
        if version not in _BATCH_VERSIONS:
            shown = version.decode("latin-1")[:40] if version else ""
            refused = f"protocol version {shown} has no JSON-RPC batches; send one message per request"
        elif not messages:
            refused = "a JSON-RPC batch must hold at least one message"
        elif len(messages) > MAX_BATCH_MESSAGES:
            refused = f"a JSON-RPC batch may hold at most {MAX_BATCH_MESSAGES} messages"
        if refused is not None:
            self._metrics.refused("batch")
            error = InvalidArgument(refused)
            await self._refuse(send, None, error, status=400, code=mcp_types.INVALID_REQUEST)
            return
        if request.usage is not None:
            try:
                request.usage.more(len(messages) - 1)
            except RateLimited as limited:
                self._note(request, limited)
                await self._turn_away(send, request.face, None, limited)
                return
        with self._answers.held(request.principal.caller) as held:
            replies = []
            for message in messages:
                if reply := await self._one_of_batch(request, message, held):
                    held.add(len(reply))
                    replies.append(reply)
            if replies:
                await _respond(send, 200, b"[" + b",".join(replies) + b"]")
            else:
                await _respond(send, 202, b"", content_type=None)

    async def _one_of_batch(self, request: _Request, message: Any, held: Held) -> bytes:
        """Return the answer to one message, empty where it wants none; `held` are those before it."""
        if held.is_full and (request_id := id_of(message)) is not None:
            full = AnswerTooLarge(
                f"the answers before this one fill what one batch is answered ({held.size} bytes); it was not carried "
                "out: send it in a request of its own, or ask for less",
                limit=held.most_bytes,
            )
            self._metrics.refused(full.code)
            return rpc_error(request_id, mcp_types.INVALID_REQUEST, full.message, full.to_json())
        message = with_object_arguments(message)
        if (wrong := fault(message)) is not None:
            return rpc_error(id_of(message), *wrong)
        if message.get("method") == "initialize":
            text = "initialize must not be part of a batch"
            return rpc_error(id_of(message), mcp_types.INVALID_REQUEST, text)
        if (forbidden := _forbidden(request, message)) is not None:
            self._note(request, forbidden, message)
            text = forbidden.message
            return rpc_error(id_of(message), mcp_types.INVALID_REQUEST, text, forbidden.to_json())
        if (unusual := _unusual_headers(request.headers)) is not None:
            return rpc_error(id_of(message), mcp_types.INVALID_REQUEST, unusual[1])
        if message.get("method") == "tools/call" and "id" in message:
            return (await self._call(request, message))[1]
        parts: list[bytes] = []

        async def capture(sent: Message) -> None:
            if sent["type"] == "http.response.body":
                parts.append(sent.get("body", b""))

        await self._hand_over(request, id_of(message), orjson.dumps(message), capture)
        return b"".join(parts)

    async def _hand_over(self, request: _Request, request_id: int | str | None, body: bytes, send: Send) -> None:
        """Let the SDK answer, with the body read already and white space around header values gone.

        httptools keeps that white space, and the SDK compares header values with the body as they are.
        """
        if len(body) > SDK_BYTES:
            too_large = BodyTooLarge(f"a message that calls no tool may hold {SDK_BYTES} bytes", limit=SDK_BYTES)
            self._metrics.refused(too_large.code)
            status, code = too_large.http_status, mcp_types.INVALID_REQUEST
            await self._refuse(send, request_id, too_large, status=status, code=code)
            return
        inner: MutableMapping[str, Any] = dict(request.scope)
        inner["path"], inner["raw_path"] = "/mcp", b"/mcp"
        inner["headers"] = [
            (name, value.strip(_WHITE))
            for name, value in request.scope["headers"]
            if name not in (b"transfer-encoding", b"content-length", b"accept")
        ]
        inner["headers"] += [(b"content-length", b"%d" % len(body)), (b"accept", _JSON + b", " + _EVENTS)]
        inner[PRINCIPAL_KEY], inner[ADDRESS_KEY] = request.principal, request.address
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                return await request.receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await request.face.sdk(inner, replay, send)


def _too_large(limit: int) -> MyriaError:
    return BodyTooLarge(f"the request body is larger than {limit} bytes; send less at once", limit=limit)


def _error_body(face: FaceParts | None, request_id: int | str | None, code: int, error: MyriaError) -> bytes:
    requestlog.refused(error.code)
    if face is not None and not face.is_mcp:
        return face.toolbox.refusal(error).body
    return rpc_error(request_id, code, error.message, error.to_json())


def _forbidden(request: _Request, message: Any) -> AccessError | None:
    """Return why a message is a call that its principal may not make, or None."""
    name, toolbox = called_tool(message), request.face.toolbox
    if name is None or not toolbox.knows(name):
        return None
    try:
        toolbox.need(name, request.principal, message["params"].get("arguments"))
    except AccessError as error:
        toolbox.count(name, error.code)
        return error
    return None


def _wants_stream(headers: Mapping[bytes, bytes]) -> bool:
    return b"text/event-stream" in headers.get(b"accept", b"")


def _unusual_headers(headers: Mapping[bytes, bytes]) -> tuple[int, str] | None:
    """Return status and text where the headers of a POST do not say that it is JSON and accepts what is answered."""
    if not headers.get(b"content-type", b"").lower().startswith(_JSON):
        return 400, "Invalid Content-Type header"
    if _answer_type(headers) is None:
        return 406, "send Content-Type and Accept headers that say application/json"
    return None


def _answer_type(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return how an answer over MCP is sent: as JSON where that is accepted, else as an event stream of one message.

    Who says nothing of what they accept takes anything (RFC 9110, 12.5.1). None: neither is accepted.
    """
    accept = headers.get(b"accept", b"").lower()
    if not accept:
        return _JSON
    accepted = {each.partition(b";")[0].strip() for each in accept.split(b",") if not _REFUSED_RANGE.search(each)}
    for answer_type in (_JSON, _EVENTS):
        if not accepted.isdisjoint((answer_type, answer_type.partition(b"/")[0] + b"/*", b"*/*")):
            return answer_type
    return None


def _as_event_stream(send: Send) -> Send:
    """Return a `send` that makes an answer in JSON the one event of a stream."""
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
        body = b"".join(parts)
        if start["status"] != OK or not _says_json(start):
            await send(start)
            await send({"type": "http.response.body", "body": body})
            return
        kept = [(name, each) for name, each in start["headers"] if name not in (b"content-type", b"content-length")]
        # JSON as it is written here has no line breaks.
        event = b"event: message\ndata: " + body + b"\n\n"
        await _respond(send, OK, event, content_type=_EVENTS, extra=kept)

    return send_event


def _names_version(message: Mapping[str, Any]) -> bool:
    """Tell whether a message names its protocol version itself, as modern ones do: then the SDK compares the two."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and mcp_types.PROTOCOL_VERSION_META_KEY in meta


def _unsupported(request_id: int | str | None, version: str) -> bytes:
    supported = list(KNOWN_PROTOCOL_VERSIONS)
    text = f"Unsupported protocol version {version!r}; supported: {', '.join(supported)}"
    data = {"supported": supported, "requested": version}
    return rpc_error(request_id, mcp_types.UNSUPPORTED_PROTOCOL_VERSION, text, data)


def _announcing(send: Send, usage: CredentialUsage) -> Send:
    """Return a `send` that says in the answer how much the credential has left."""

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start" and (left := usage.headers()):
            message = {**message, "headers": [*message.get("headers", ()), *left]}
        await send(message)

    return send_with


def _is_form_of_a_page(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a page sends something that is not called JSON: browsers send that without asking the server first,
    so a page of any port of this machine could write into a memory that asks for no key."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip(_WHITE).lower()
    return method == "POST" and b"origin" in headers and kind != b"application/json"


def foreign_refusal(header: str, value: str) -> AccessError:
    """Return the refusal of a request whose Host or Origin names somebody else, or of a form that a page sends."""
    shown = value[:_SHOWN]
    if header == "form":
        return OriginNotAllowed("a page may send JSON alone: set the header Content-Type to application/json")
    if header == "host":
        return HostNotAllowed(
            f"this server does not answer under the name {shown!r}; add it to mcp.allowed_hosts "
            "(MYRIA_MCP_ALLOWED_HOSTS). From a container, `host.docker.internal` must be in that list; in Kubernetes, "
            "the Service's names (`myria`, `myria.NAMESPACE.svc`, `myria.NAMESPACE.svc.cluster.local`) and the "
            "Ingress's host",
            host=shown,
        )
    return OriginNotAllowed(
        f"pages of {shown!r} may not call this server; add the origin to mcp.cors_origins (MYRIA_MCP_CORS_ORIGINS)",
        origin=shown,
    )


def _says_json(answer: Message) -> bool:
    """Tell whether an answer that starts says that it is JSON."""
    return any(
        name.lower() == b"content-type" and value.startswith(b"application/json") for name, value in answer["headers"]
    )


async def _respond(
    send: Callable[[Message], Awaitable[None]],
    status: int,
    body: bytes,
    *,
    content_type: bytes | None = b"application/json",
    extra: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    headers = [(b"content-length", b"%d" % len(body)), *extra]
    if content_type is not None:
        headers.append((b"content-type", content_type))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
