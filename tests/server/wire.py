"""MCP as it goes over the wire: messages, headers, a running server, and raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from myria.contract.tools import path_of
from myria.memory import Memory
from myria.settings import Settings
from myria_server.app import build_app
from myria_server.http import HttpServer
from myria_server.listening import reserve_port
from myria_server.metrics import ServerMetrics
from tests.support.patience import PATIENCE_S

MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
BASE_HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

_numbers = itertools.count(1)


def event(key: str | None = None, *, text: str = "We design the memory system", **more: Any) -> dict[str, Any]:
    """Return the arguments of append_event."""
    keyed = {} if key is None else {"source_event_key": key}
    return {
        "timestamp": "2026-03-19T20:00:00Z",
        "channel": "telegram",
        "participants": ["user_42", "agent_1"],
        "payload": {"text": text, "speaker": "user_42"},
        **keyed,
        **more,
    }


def call(name: str, arguments: Any, *, version: str | None = MODERN, request_id: int | str = 1) -> dict[str, Any]:
    """Return the message of a tool call in the form of a protocol version."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if version == MODERN:
        params["_meta"] = META
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def headers(name: str | None = None, *, version: str | None = MODERN, method: str = "tools/call") -> dict[str, str]:
    """Return the headers that go with a message."""
    if version == MODERN:
        routing = {"mcp-protocol-version": MODERN, "mcp-method": method}
        return BASE_HEADERS | routing | ({} if name is None else {"mcp-name": name})
    return dict(BASE_HEADERS) if version is None else BASE_HEADERS | {"mcp-protocol-version": version}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answered."""

    content: Any
    is_error: bool

    @property
    def code(self) -> str | None:
        """The error's code, or None."""
        return self.content["error"]["code"] if self.is_error else None


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs in this event loop, and a client of it."""

    server: HttpServer
    client: httpx.AsyncClient

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.server.address[1]

    async def post(self, body: Any, sent: Mapping[str, str], *, path: str = "/mcp") -> httpx.Response:
        """Send a body: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(path, content=content, headers=dict(sent))

    async def call(self, name: str, arguments: Any, *, version: str | None = MODERN) -> Answer:
        """Call a tool and check that its text says the same as its structured content."""
        full = f"myria.{name}"
        message = call(full, arguments, version=version, request_id=next(_numbers))
        response = await self.post(message, headers(full, version=version), path=path_of(name))
        assert response.status_code == 200, response.text
        body = response.json()
        assert body["id"] == message["id"]
        result = body["result"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return Answer(result["structuredContent"], result["isError"])

    async def raw(self, *pieces: bytes, pause: float = 0.0) -> bytes:
        """Send bytes over a connection of its own, with pauses, and return all that comes back until it closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(ConnectionError):
            for number, piece in enumerate(pieces):
                if number:
                    await asyncio.sleep(pause)
                writer.write(piece)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(reader.read(), PATIENCE_S)
        return b""


async def listed(served: Served, *, path: str = "/mcp") -> list[dict[str, Any]]:
    """Return what tools/list answers at a path."""
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    response = await served.post(listing, headers(method="tools/list"), path=path)
    tools: list[dict[str, Any]] = response.json()["result"]["tools"]
    return tools


@contextlib.asynccontextmanager
async def serving(
    memory: Memory,
    settings: Settings | None = None,
    *,
    metrics: ServerMetrics | None = None,
    sock: socket.socket | None = None,
    **options: Any,
) -> AsyncIterator[Served]:
    """Run a server for the block, on a socket from `reserve_port`, or else on a free port."""
    settings = settings or Settings()
    app = build_app(memory, settings, metrics=metrics, **options)
    reserved = sock or reserve_port("127.0.0.1", 0)
    server = HttpServer(app, reserved, drain_seconds=settings.mcp.drain_s, mcp=settings.mcp)
    ready = asyncio.Event()
    task = asyncio.create_task(server.run(ready))
    try:
        await ready.wait()
        # verify=False saves reading every certificate authority for a connection without TLS.
        url = f"{settings.mcp.scheme}://127.0.0.1:{server.address[1]}"
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, verify=False) as client:
            yield Served(server, client)
    finally:
        server.stop()
        await task
