"""Answering plain `tools/call` requests without the SDK's per-request machinery.

The SDK builds a transport, a connection, a dispatcher and several models for each call: 0.4 ms of CPU, several times
what an append costs. Nearly all requests have one shape: here they get the same JSON that the SDK would answer; a
request with anything unusual about it is left to the SDK. The SDK's own validators decide what is usual where a shape
is not trivial (client info and capabilities), and a test sends the same requests both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types
import orjson
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from pydantic import ValidationError

from myria_server.api.results import CallResult
from myria_server.mcp.toolbox import Toolbox

TEXT_VERSIONS = frozenset(version for version in HANDSHAKE_PROTOCOL_VERSIONS if version < "2025-06-18")
"""Versions whose clients know only the text of an answer; a request that names no version is of one of them."""

VERSION_KEY = mcp_types.PROTOCOL_VERSION_META_KEY
_CLIENT_KEY = mcp_types.CLIENT_INFO_META_KEY
_CAPABILITIES_KEY = mcp_types.CLIENT_CAPABILITIES_META_KEY
_MODERN_META = frozenset({VERSION_KEY, _CLIENT_KEY, _CAPABILITIES_KEY, "progressToken"})
_MODERN_REQUIRED = frozenset({VERSION_KEY, _CAPABILITIES_KEY})
_LEGACY_META = frozenset({"progressToken"})
_MESSAGE = frozenset({"jsonrpc", "id", "method", "params"})
_PARAMS = frozenset({"name", "arguments", "_meta"})
_MODERN_VERSION_HEADER = LATEST_MODERN_VERSION.encode()
_LEGACY_VERSION_HEADERS = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)
_STRUCTURED_VERSION_HEADERS = frozenset(
    version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS if version not in TEXT_VERSIONS
)
_REMEMBERED_CLIENTS = 1024
_REMEMBERED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class PlainCall:
    """A request the fast path will answer. `structured`: its client reads structured content."""

    request_id: int | str
    name: str
    arguments: Any
    modern: bool
    structured: bool = True


class FastPath:
    """Recognises plain calls and writes their answers.

    Args:
        server_info: the identity stamp the SDK puts on modern results.
    """

    def __init__(self, toolbox: Toolbox, server_info: Mapping[str, Any]) -> None:
        self._toolbox = toolbox
        self._clients: set[bytes] = set()
        meta = orjson.dumps({mcp_types.SERVER_INFO_META_KEY: server_info})
        self._modern_end = b',"resultType":"complete","_meta":' + meta + b"}}"

    def recognise(self, headers: Mapping[bytes, bytes], message: Any) -> PlainCall | None:
        """Return the plain call in a decoded body, or None when the SDK must answer.

        Args:
            headers: names in lower case, values trimmed, no name twice.
        """
        if type(message) is not dict or not message.keys() <= _MESSAGE:
            return None
        if message.get("method") != "tools/call" or message.get("jsonrpc") != "2.0":
            return None
        request_id, params = message.get("id"), message.get("params")
        if (type(request_id) is not int and type(request_id) is not str) or type(params) is not dict:
            return None
        if not params.keys() <= _PARAMS:
            return None
        name, arguments = params.get("name"), params.get("arguments")
        if type(name) is not str or not self._toolbox.knows(name):
            return None
        if arguments is not None and type(arguments) is not dict:
            return None
        version = headers.get(b"mcp-protocol-version")
        if version == _MODERN_VERSION_HEADER:
            if headers.get(b"mcp-method") != b"tools/call" or headers.get(b"mcp-name") != name.encode():
                return None
            if not self._is_modern_envelope(params.get("_meta")):
                return None
            return PlainCall(request_id, name, arguments, modern=True)
        if version is not None and version not in _LEGACY_VERSION_HEADERS:
            return None
        if headers[b"content-type"].partition(b";")[0].strip() != b"application/json":
            return None
        meta = params.get("_meta")
        if meta is not None and not (type(meta) is dict and meta.keys() <= _LEGACY_META and _plain_token(meta)):
            return None
        return PlainCall(request_id, name, arguments, modern=False, structured=version in _STRUCTURED_VERSION_HEADERS)

    def render(self, call: PlainCall, outcome: CallResult) -> bytes:
        """Return the JSON-RPC response to a plain call."""
        return self.response(call.request_id, outcome, modern=call.modern, structured=call.structured)

    def response(self, request_id: int | str, outcome: CallResult, *, modern: bool, structured: bool = True) -> bytes:
        """Return the JSON-RPC response that carries a tool's outcome, as text and as structured content."""
        return b"".join(
            (
                b'{"jsonrpc":"2.0","id":',
                orjson.dumps(request_id),
                b',"result":{"content":[{"type":"text","text":',
                orjson.dumps(outcome.text_for(structured=structured)),
                b'}],"structuredContent":',
                outcome.body,
                b',"isError":true' if outcome.is_error else b',"isError":false',
                self._modern_end if modern else b"}}",
            )
        )

    def _is_modern_envelope(self, meta: Any) -> bool:
        if type(meta) is not dict or not _MODERN_REQUIRED <= meta.keys() <= _MODERN_META or not _plain_token(meta):
            return False
        if meta[VERSION_KEY] != LATEST_MODERN_VERSION:
            return False
        client = orjson.dumps((meta.get(_CLIENT_KEY), meta[_CAPABILITIES_KEY]))
        if client in self._clients:
            return True
        envelope = {key: value for key, value in meta.items() if key != "progressToken"}
        try:
            methods.validate_client_request("tools/call", LATEST_MODERN_VERSION, {"name": "x", "_meta": envelope})
        except ValidationError:
            return False
        if len(client) <= _REMEMBERED_BYTES:
            if len(self._clients) >= _REMEMBERED_CLIENTS:
                self._clients.clear()
            self._clients.add(client)
        return True


def _plain_token(meta: Mapping[str, Any]) -> bool:
    if "progressToken" not in meta:
        return True
    token = meta["progressToken"]
    return type(token) is str or type(token) is int
