"""Answers `tools/call` over HTTP, whatever its protocol version and its shape.

The SDK builds a transport, a connection, a dispatcher and several models for each request: 0.4 ms of CPU, several times
what an append costs. So calls never reach it. What a well-formed call is, its own validators say, and what is refused
is refused in its words. Over stdio and the SSE transport of 2024 the SDK's server reads the messages, since a stream
has cancellations and reports of progress; its handler ends in the same `Toolbox.call`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import mcp_types
import orjson
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundLadderRejection,
    classify_inbound_request,
    find_duplicated_routing_header,
)
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from pydantic import ValidationError

from myria.access.principal import Principal
from myria.errors import BodyTooLarge
from myria_server.api.api_call import CallResult
from myria_server.mcp import requestlog
from myria_server.mcp.messages import rpc_error
from myria_server.mcp.toolbox import AddressOf, Toolbox

TEXT_VERSIONS = frozenset(version for version in HANDSHAKE_PROTOCOL_VERSIONS if version < "2025-06-18")
"""Versions whose clients know only the text of an answer; a request that names no version is of one of them."""

VERSION_HEADER = b"mcp-protocol-version"
MODERN = LATEST_MODERN_VERSION.encode()
"""The header's value for messages that carry their envelope with them."""

SDK_BYTES = 16 * 1024
"""Most bytes of JSON that the SDK reads of one message, which it does at one go in the event loop."""

_OK = 200

_REMEMBERED_BYTES = 4096
"""The largest envelope that is remembered, with its headers: it bounds what is remembered at all to a few MB."""


class Calls:
    """Answers the calls of one API's tools.

    Args:
        server_info: names this server in modern answers.
    """

    def __init__(self, toolbox: Toolbox, server_info: Mapping[str, Any]) -> None:
        self._toolbox = toolbox
        meta = orjson.dumps({mcp_types.SERVER_INFO_META_KEY: server_info})
        self._modern_end = b',"resultType":"complete","_meta":' + meta + b"}}"

    async def answer(
        self,
        message: Mapping[str, Any],
        headers: Sequence[tuple[bytes, bytes]],
        principal: Principal,
        address_of: AddressOf,
    ) -> tuple[int, bytes]:
        """Return the HTTP status and the JSON-RPC response of a request to call a tool.

        Args:
            message: one in which `messages.fault` found nothing wrong.
            headers: of the HTTP request, as they came.
        """
        request_id, params = message["id"], message["params"]
        header_value = next((value.strip(b" \t") for name, value in headers if name == VERSION_HEADER), None)
        version = mcp_types.DEFAULT_NEGOTIATED_VERSION if header_value is None else header_value.decode("latin-1")
        is_modern = version not in HANDSHAKE_PROTOCOL_VERSIONS
        try:
            _check(
                message, version, tuple(each for each in headers if each[0].startswith(b"mcp-")), is_modern=is_modern
            )
            if not self._toolbox.knows(params["name"]):
                raise unknown_tool(self._toolbox, params["name"])
        except (MCPError, ValidationError) as refused:
            error = handler_exception_to_error_data(refused)
            assert error is not None  # noqa: S101 - it knows both
            status = ERROR_CODE_HTTP_STATUS.get(error.code, _OK) if is_modern else _OK
            return status, rpc_error(request_id, error.code, error.message, error.data)
        except BodyTooLarge as too_large:
            self._toolbox.metrics.refused(too_large.code)
            requestlog.refused(too_large.code)
            refusal = rpc_error(request_id, mcp_types.INVALID_REQUEST, too_large.message, too_large.to_json())
            return too_large.http_status, refusal
        outcome = await self._toolbox.call(params["name"], params.get("arguments"), principal, address_of)
        return _OK, self.written(request_id, outcome, is_modern=is_modern, structured=version not in TEXT_VERSIONS)

    def written(self, request_id: int | str, outcome: CallResult, *, is_modern: bool, structured: bool = True) -> bytes:
        """Return the JSON-RPC response that carries a tool's outcome, as text and as structured content.

        Args:
            structured: whether the client reads structured content; then the text need not repeat it.
        """
        return b"".join(
            (
                b'{"jsonrpc":"2.0","id":',
                orjson.dumps(request_id),
                b',"result":{"content":[{"type":"text","text":',
                orjson.dumps(outcome.text_for(structured=structured)),
                b'}],"structuredContent":',
                outcome.body,
                b',"isError":true' if outcome.is_error else b',"isError":false',
                self._modern_end if is_modern else b"}}",
            )
        )


def unknown_tool(toolbox: Toolbox, name: str) -> MCPError:
    """Return the refusal of a call to a tool that no API has."""
    requestlog.refused("unknown_tool")
    unknown = toolbox.unknown(name)
    return MCPError(code=mcp_types.INVALID_PARAMS, message=unknown.message, data=unknown.to_json())


def _check(
    message: Mapping[str, Any], version: str, mcp_headers: tuple[tuple[bytes, bytes], ...], *, is_modern: bool
) -> None:
    """Check a call's envelope by the SDK's rules; the tool's model checks the arguments, with its API's error texts.

    A client sends the same envelope with each call, so what was found good is remembered: that saves an eighth of the
    CPU of an append, without which 32 connections miss the bound of benchmarks/appends.py.

    Raises:
        MCPError, ValidationError: something of the envelope is missing or wrong.
        BodyTooLarge: it has more than `SDK_BYTES`, or is too deep to be written.
    """
    params = message["params"]
    if isinstance(params.get("arguments"), dict):
        params = {**params, "arguments": {}}
    meta = params.get("_meta")
    if isinstance(meta, dict) and type(meta.get("progressToken")) in (str, int):
        # Any such token is good. Clients send another one with each call, so what is remembered has a stand-in for it.
        params = {**params, "_meta": {**meta, "progressToken": type(meta["progressToken"])()}}
    envelope: dict[str, Any] = {**message, "id": 0, "params": params}
    try:
        written = orjson.dumps(envelope)
    except orjson.JSONEncodeError:
        written = b""
    if not 0 < len(written) <= SDK_BYTES:
        raise BodyTooLarge(f"a message may hold {SDK_BYTES} bytes beside the arguments of a tool", limit=SDK_BYTES)
    if len(written) + sum(len(name) + len(value) for name, value in mcp_headers) <= _REMEMBERED_BYTES:
        _check_written(written, version, mcp_headers, is_modern=is_modern)
    else:
        _check_by_the_sdk(envelope, version, mcp_headers, is_modern=is_modern)


@lru_cache(maxsize=1024)
def _check_written(
    written: bytes, version: str, mcp_headers: tuple[tuple[bytes, bytes], ...], *, is_modern: bool
) -> None:
    # A refusal is raised, so it is not remembered.
    _check_by_the_sdk(orjson.loads(written), version, mcp_headers, is_modern=is_modern)


def _check_by_the_sdk(
    message: Mapping[str, Any], version: str, mcp_headers: Sequence[tuple[bytes, bytes]], *, is_modern: bool
) -> None:
    if is_modern:
        _check_envelope(message, mcp_headers)
    methods.validate_client_request("tools/call", version, message["params"])


def _check_envelope(message: Mapping[str, Any], headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check that the envelope of a modern request is whole and that the headers agree with it.

    Raises:
        MCPError: something of the envelope is missing, or a header is repeated or differs.
    """
    mcp_headers = [(name.decode("latin-1"), value.strip(b" \t").decode("latin-1")) for name, value in headers]
    if (repeated_header := find_duplicated_routing_header(mcp_headers)) is not None:
        raise MCPError(code=mcp_types.HEADER_MISMATCH, message=f"{repeated_header} header appears more than once")
    verdict = classify_inbound_request(message, headers=dict(mcp_headers))
    if isinstance(verdict, InboundLadderRejection):
        raise MCPError(code=verdict.code, message=verdict.message, data=verdict.data)
