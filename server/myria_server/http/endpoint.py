"""The endpoint at which MCP is spoken over HTTP with an API: single messages and batches.

A call of a tool is answered by `mcp.calls`, everything else by the SDK. What is refused here reaches neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types
import orjson
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from myria.errors import (
    AccessError,
    AnswerTooLarge,
    BodyTooLarge,
    InvalidArgument,
    MethodNotAllowed,
    MyriaError,
    RateLimited,
)
from myria_server.http.admission import USAGE_KEY, Access
from myria_server.http.body import replaying
from myria_server.http.exchange import (
    EVENTS,
    JSON,
    OK,
    ServedApi,
    answer_type,
    as_event_stream,
    headers_of,
    refuse,
    respond,
    respond_held,
    unusual_headers,
)
from myria_server.mcp import requestlog
from myria_server.mcp.answers import Held
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.calls import MODERN, SDK_BYTES, VERSION_HEADER, Calls
from myria_server.mcp.messages import (
    MAX_BATCH_MESSAGES,
    call_at_fault,
    called_tool,
    fault,
    id_of,
    rpc_error,
    with_object_arguments,
)
from myria_server.mcp.server import ADDRESS_KEY, PRINCIPAL_KEY

_BATCH_VERSIONS = frozenset({None, b"2024-11-05", b"2025-03-26"})
"""Protocol versions with JSON-RPC batches; no header means 2025-03-26, and 2025-06-18 took batches away."""

_VERSIONS = frozenset(version.encode() for version in KNOWN_PROTOCOL_VERSIONS)

_METHODS = frozenset({"initialize", "ping", "tools/list", "tools/call", "notifications/initialized", "server/discover"})
"""Methods that the log names; any other is text that a caller made up, so it is left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class McpEndpoint:
    """Answers MCP requests that passed the checks before it, and whose whole body has arrived.

    `calls` answers calls of tools, `sdk` everything else. `streams` answers GET with an idle stream and lets DELETE
    succeed, for clients that expect sessions; None refuses both methods.
    """

    api: ServedApi
    calls: Calls
    sdk: ASGIApp
    access: Access
    bodies: Bodies
    streams: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        headers, method = headers_of(scope), scope["method"]
        if method == "POST":
            if answer_type(headers.get(b"accept", b"")) == EVENTS:
                send = as_event_stream(send)
            await self._answer(scope, receive, send)
        elif self.streams is not None and method == "GET" and EVENTS in headers.get(b"accept", b""):
            await self.streams(scope, receive, send)
        elif self.streams is not None and method == "DELETE":
            await respond(send, OK, b"{}")  # there is no session to end
        else:
            error = MethodNotAllowed("MCP takes POST alone here: there are no streams to open and no sessions to end")
            await refuse(send, self.api, error, extra=((b"allow", b"POST"),))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Decode a message, refuse it where a check fails, and answer it: calls here, everything else by the SDK."""
        body = (await receive())["body"]
        version = headers_of(scope).get(VERSION_HEADER)
        try:
            message = await self.bodies.decode(body)
        except Refused as refused:
            await self._refuse_text(scope, send, refused)
            return
        if (normalized := with_object_arguments(message)) is not message:
            message, body = normalized, orjson.dumps(normalized)
        if (noted := requestlog.current()) is not None and isinstance(message, dict):
            method = message.get("method")
            noted.method = method if method in _METHODS else None
        if type(message) is list and version != MODERN:
            await self._answer_batch(scope, receive, message, send)
        # The role comes first: a caller without it gets the challenge that names the scope to ask for.
        elif (forbidden := self._check_role(scope, message)) is not None:
            await self.access.refuse(send, self.api, forbidden, request_id=id_of(message))
        elif (problem := fault(message)) is not None:
            code, text = problem
            await self._refuse(send, message, InvalidArgument(text), reason="message", status=400, code=code)
        # The SDK would answer that the envelope is missing, instead of that there is no such version.
        elif version is not None and version not in _VERSIONS and not _names_version(message):
            self.api.toolbox.metrics.refused("protocol_version")
            await respond(send, 400, _unsupported(id_of(message), version.decode("latin-1")[:40]))
        elif (header_problem := unusual_headers(headers_of(scope))) is not None:
            status, text = header_problem
            await self._refuse(send, message, InvalidArgument(text), reason="headers", status=status)
        elif _is_call(message):
            status, answer = await self._call(scope, message)
            await respond_held(send, self.api.toolbox.answers, scope[PRINCIPAL_KEY].caller, answer, status=status)
        else:
            await self._ask_sdk(scope, receive, message, body, send)

    async def _call(self, scope: Scope, message: Mapping[str, Any]) -> tuple[int, bytes]:
        return await self.calls.answer(message, scope["headers"], scope[PRINCIPAL_KEY], scope[ADDRESS_KEY])

    def _check_role(self, scope: Scope, message: Any) -> AccessError | None:
        """Return the error, counted and noted, where a message calls a tool that its principal may not; else None."""
        name = called_tool(message)
        if name is None or not self.api.toolbox.knows(name):
            return None
        try:
            self.api.toolbox.need(name, scope[PRINCIPAL_KEY], message["params"].get("arguments"))
        except AccessError as error:
            self.api.toolbox.count(name, error.code)
            self.access.note(scope, self.api, error, message)
            return error
        return None

    async def _refuse_text(self, scope: Scope, send: Send, refused: Refused) -> None:
        """Refuse a body that is not strict JSON; a fault in a call's arguments is answered as that tool's refusal."""
        error, outline = refused.error, refused.outline
        blamed = call_at_fault(outline, error)
        if (forbidden := self._check_role(scope, outline)) is not None:
            await self.access.refuse(send, self.api, forbidden, request_id=id_of(outline))
        elif blamed is not None and self.api.toolbox.knows(blamed[1]):
            request_id, name, about_arguments = blamed
            self.api.toolbox.count(name, error.code)
            is_modern = headers_of(scope).get(VERSION_HEADER) == MODERN
            refusal = self.api.toolbox.refusal(about_arguments)
            await respond(send, OK, self.calls.written(request_id, refusal, is_modern=is_modern))
        else:
            code = mcp_types.INVALID_REQUEST if isinstance(error, BodyTooLarge) else mcp_types.PARSE_ERROR
            await self._refuse(send, outline, error, code=code)

    async def _refuse(
        self,
        send: Send,
        message: Any,
        error: MyriaError,
        *,
        reason: str | None = None,
        status: int | None = None,
        code: int = mcp_types.INVALID_REQUEST,
    ) -> None:
        """Answer a message with an error, counted under `reason`, or under the error's code where that is None."""
        self.api.toolbox.metrics.refused(reason or error.code)
        await refuse(send, self.api, error, request_id=id_of(message), status=status, code=code)

    async def _answer_batch(self, scope: Scope, receive: Receive, messages: list[Any], send: Send) -> None:
        """Answer a JSON-RPC batch, message by message, where the protocol version has batches."""
        version = headers_of(scope).get(VERSION_HEADER)
        refusal_text: str | None = None
        if version not in _BATCH_VERSIONS:
            shown_version = version.decode("latin-1")[:40] if version else ""
            refusal_text = f"protocol version {shown_version} has no JSON-RPC batches; send one message per request"
        elif not messages:
            refusal_text = "a JSON-RPC batch must hold at least one message"
        elif len(messages) > MAX_BATCH_MESSAGES:
            refusal_text = f"a JSON-RPC batch may hold at most {MAX_BATCH_MESSAGES} messages"
        if refusal_text is not None:
            await self._refuse(send, None, InvalidArgument(refusal_text), reason="batch", status=400)
            return
        if (usage := scope[USAGE_KEY]) is not None:
            try:
                usage.more(len(messages) - 1)
            except RateLimited as limited:
                self.access.note(scope, self.api, limited)
                await self.access.refuse(send, self.api, limited)
                return
        with self.api.toolbox.answers.held(scope[PRINCIPAL_KEY].caller) as held:
            replies = []
            for message in messages:
                if reply := await self._answer_in_batch(scope, receive, message, held):
                    held.add(len(reply))
                    replies.append(reply)
            if replies:
                await respond(send, OK, b"[" + b",".join(replies) + b"]")
            else:
                await respond(send, 202, b"", content_type=None)

    async def _answer_in_batch(self, scope: Scope, receive: Receive, message: Any, held: Held) -> bytes:
        """Return the answer to one message of a batch, empty for a notification.

        Args:
            held: counts the answers to the messages before it; once it is full, this one is not carried out.
        """
        if held.is_full and (request_id := id_of(message)) is not None:
            error = AnswerTooLarge(
                f"the answers before this one fill what one batch is answered ({held.size} bytes); it was not carried "
                "out: send it in a request of its own, or ask for less",
                limit=held.most_bytes,
            )
            self.api.toolbox.metrics.refused(error.code)
            return rpc_error(request_id, mcp_types.INVALID_REQUEST, error.message, error.to_json())
        message = with_object_arguments(message)
        if (problem := fault(message)) is not None:
            return rpc_error(id_of(message), *problem)
        if message.get("method") == "initialize":
            return rpc_error(id_of(message), mcp_types.INVALID_REQUEST, "initialize must not be part of a batch")
        if (forbidden := self._check_role(scope, message)) is not None:
            return rpc_error(id_of(message), mcp_types.INVALID_REQUEST, forbidden.message, forbidden.to_json())
        if (header_problem := unusual_headers(headers_of(scope))) is not None:
            return rpc_error(id_of(message), mcp_types.INVALID_REQUEST, header_problem[1])
        if _is_call(message):
            return (await self._call(scope, message))[1]
        parts: list[bytes] = []

        async def capture(sent: Message) -> None:
            if sent["type"] == "http.response.body":
                parts.append(sent.get("body", b""))

        await self._ask_sdk(scope, receive, message, orjson.dumps(message), capture)
        return b"".join(parts)

    async def _ask_sdk(self, scope: Scope, receive: Receive, message: Any, body: bytes, send: Send) -> None:
        """Let the SDK answer a message, at the path and with the headers that the SDK expects.

        httptools keeps white space around header values, and the SDK compares them with the body: so they are trimmed.
        """
        if len(body) > SDK_BYTES:
            text = f"a message that calls no tool may hold {SDK_BYTES} bytes"
            await self._refuse(send, message, BodyTooLarge(text, limit=SDK_BYTES))
            return
        kept_headers = [
            (name, value.strip(b" \t"))
            for name, value in scope["headers"]
            if name not in (b"transfer-encoding", b"content-length", b"accept")
        ]
        replaced_headers = [(b"content-length", b"%d" % len(body)), (b"accept", JSON + b", " + EVENTS)]
        sdk_scope = {**scope, "path": "/mcp", "raw_path": b"/mcp", "headers": kept_headers + replaced_headers}
        await self.sdk(sdk_scope, replaying(body, receive), send)


def _is_call(message: Mapping[str, Any]) -> bool:
    return message.get("method") == "tools/call" and "id" in message


def _names_version(message: Mapping[str, Any]) -> bool:
    """Tell whether a message names its protocol version itself, as modern ones do; the SDK checks those versions."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and mcp_types.PROTOCOL_VERSION_META_KEY in meta


def _unsupported(request_id: int | str | None, version: str) -> bytes:
    supported = list(KNOWN_PROTOCOL_VERSIONS)
    text = f"Unsupported protocol version {version!r}; supported: {', '.join(supported)}"
    data = {"supported": supported, "requested": version}
    return rpc_error(request_id, mcp_types.UNSUPPORTED_PROTOCOL_VERSION, text, data)
