"""MCP as it goes over the wire: messages, headers, a running server, and raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import uvicorn.server

from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.tools import path_of
from myria_server.app import build_app
from myria_server.http.listening import reserve_port
from myria_server.metrics import ServerMetrics
from myria_server.serving import HttpServer
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


async def _a_tenth(delay: float) -> None:
    await asyncio.sleep(delay / 10)


# Uvicorn looks every 100 ms whether it shall end, whether connections have closed, and so on: a fifth of a second for
# each server that a test ends.
vars(uvicorn.server)["asyncio"] = SimpleNamespace(**{**vars(asyncio), "sleep": _a_tenth})


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


FRESH_S = 1.0
"""How long after a request a connection takes another: the server ends it after five seconds without one."""


class Line:
    """A connection to a server, kept open over many requests, one after the other.

    It costs far less than httpx does, which counts in tests that send a request for each row of a long table.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._last = 0.0

    async def ask(
        self, method: str, target: str, sent: Iterable[tuple[str, str]], content: bytes | None = None
    ) -> httpx.Response:
        """Send a request with these headers, and those without which it would be none; return the whole answer."""
        lines = [f"{method} {target} HTTP/1.1", f"host: 127.0.0.1:{self._port}"]
        if content is not None or method in ("POST", "PUT", "PATCH"):
            lines.append(f"content-length: {len(content or b'')}")
        lines += [f"{name}: {value}" for name, value in sent]
        message = "\r\n".join([*lines, "", ""]).encode("latin-1") + (content or b"")
        now = asyncio.get_running_loop().time()
        if now - self._last > FRESH_S:
            await self.close()
        async with asyncio.timeout(PATIENCE_S):
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            writer.write(message)
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            answered = httpx.Headers(
                [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:-2])]
            )
            status = int(head[0].split(" ", 2)[1])
            bodiless = method == "HEAD" or status in (204, 304)
            body = b"" if bodiless else await _body(reader, answered)
        self._last = now
        if answered.get("connection", "").lower() == "close":
            await self.close()
        return httpx.Response(status, headers=answered, content=body)

    async def close(self) -> None:
        """End the connection; the next request opens another."""
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _body(reader: asyncio.StreamReader, answered: httpx.Headers) -> bytes:
    if answered.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(answered["content-length"]))
    parts = []
    while length := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(length))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs in this event loop, and a client of it."""

    server: HttpServer
    client: httpx.AsyncClient
    line: Line

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
            line = Line(server.address[1])
            try:
                yield Served(server, client, line)
            finally:
                await line.close()
    finally:
        server.stop()
        await task
