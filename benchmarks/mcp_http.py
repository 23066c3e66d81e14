"""Requests as the bytes of HTTP/1.1: tools/call as an MCP client sends it, and what else there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from myria_server.api.tools import TOOLS, path_of

VERSION = "2026-07-28"
"""The stateless protocol version: self-contained requests with routing headers."""

KEY_SLOT = "0" * 20
"""Stands in a request for a key that is different each time it is sent; the same number of characters."""


def tool_call(port: int, tool: str, arguments: dict[str, Any], *, key: str = "") -> bytes:
    """Return the request that calls `tool` with `arguments` on the loopback server at `port`, with a key's text."""
    name = next(known.dotted() for known in TOOLS if known.name == tool)
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "myria-benchmarks", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = (f"MCP-Protocol-Version: {VERSION}", "Mcp-Method: tools/call", f"Mcp-Name: {name}")
    return request(port, path_of(tool), body, headers=headers, key=key)


def request(
    port: int, path: str, body: Any = None, *, key: str = "", headers: Sequence[str] = (), kind: str = ""
) -> bytes:
    """Return a GET, or a POST of a body: bytes as they are, anything else as JSON."""
    content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Content-Type: {kind or 'application/json'}",
        "Accept: application/json, text/event-stream",
        *headers,
        *([f"Authorization: Bearer {key}"] if key else []),
        f"Content-Length: {len(content)}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + content
