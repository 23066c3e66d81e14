"""One tools/call as the bytes of an HTTP/1.1 request, as the MCP client of each protocol era sends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from myria_server.api.tools import TOOLS, path_of

MODERN = "2026-07-28"
"""The stateless protocol version: self-contained requests with routing headers."""

HANDSHAKE = "2025-11-25"
"""The newest protocol version that begins with `initialize`."""

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

    def to_json(self) -> dict[str, str]:
        """Return it for the load process."""
        return {"head": self.head, "body": self.body, "tag": self.tag}


def tool_call(port: int, tool: str, arguments: dict[str, Any], *, version: str = MODERN) -> Request:
    """Return the request that calls `tool` with `arguments` on the loopback server at `port`."""
    name = next(known.dotted() for known in TOOLS if known.name == tool)
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    headers = ["Accept: application/json, text/event-stream", f"MCP-Protocol-Version: {version}"]
    if version == MODERN:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": _CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        headers += ["Mcp-Method: tools/call", f"Mcp-Name: {name}"]
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return post(port, path_of(tool), body, headers, tag=tool)


def post(port: int, path: str, body: Any, headers: list[str], *, tag: str) -> Request:
    """Return a POST of `body` as JSON."""
    text = orjson.dumps(body).decode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        *headers,
        f"Content-Length: {len(text.encode())}",
    ]
    return Request(head="\r\n".join(lines) + "\r\n\r\n", body=text, tag=tag)
