"""Requests as the bytes of HTTP/1.1: tools/call as an MCP client sends it, and a plain POST."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from myria_server.api.tools import TOOLS, path_of

VERSION = "2026-07-28"
"""The stateless protocol version: self-contained requests with routing headers."""

KEY_SLOT = "0" * 20
"""Stands in a request for a key that is different each time it is sent; the same number of characters."""

_CLIENT = {"name": "myria-benchmarks", "version": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that can be sent again and again.

    `head` and `body` are complete. Where `body` holds `KEY_SLOT`, the load process writes a new key. `tag` groups
    latencies.
    """

    head: str
    body: str
    tag: str


def tool_call(port: int, tool: str, arguments: dict[str, Any], *, key: str = "") -> Request:
    """Return the request that calls `tool` with `arguments` on the loopback server at `port`, with a key's text."""
    name = next(known.dotted() for known in TOOLS if known.name == tool)
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": _CLIENT,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = [
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {VERSION}",
        "Mcp-Method: tools/call",
        f"Mcp-Name: {name}",
    ]
    return post(port, path_of(tool), body, headers, tag=tool, key=key)


def post(port: int, path: str, body: Any, headers: list[str] | None = None, *, tag: str, key: str = "") -> Request:
    """Return a POST of `body` as JSON."""
    text = orjson.dumps(body).decode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        *(headers or []),
        *([f"Authorization: Bearer {key}"] if key else []),
        f"Content-Length: {len(text.encode())}",
    ]
    return Request(head="\r\n".join(lines) + "\r\n\r\n", body=text, tag=tag)
