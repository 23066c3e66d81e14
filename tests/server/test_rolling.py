"""Serving processes are replaced one by one under load, as a kubelet does it, and nobody notices."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from tests.server.router import Balancer, Endpoints, Proxy, closes
from tests.soak.wire import request
from tests.support.counts import SOAK, share
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import Spawned, Spawner, free_port

pytestmark = pytest.mark.processes

CLIENTS = 32 if SOAK else 6
REPLICAS = 2
REPLACED = share(20, least=2)
ROUTED_ON = 3 * CLIENTS
"""Requests and connections that the routers still send to a process after it has said that it is leaving."""


@dataclass(slots=True)
class Load:
    """What the clients saw."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    stopping: bool = False


class Caller:
    """A client that keeps its connection as long as it may."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a tool call; raise whatever goes wrong."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        writer.write(request(tool, arguments, self._port))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        body = await reader.readexactly(int(fields[b"content-length"]))
        if closes(head):
            self.hang_up()
        assert head.startswith(b"HTTP/1.1 200"), head
        result: dict[str, Any] = orjson.loads(body)["result"]
        assert not result["isError"], result
        answer: dict[str, Any] = result["structuredContent"]
        return answer

    def hang_up(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass(slots=True)
class Fleet:
    """The processes of a Deployment, and those that route to them."""

    spawn: Spawner
    dsn: str
    endpoints: Endpoints = field(default_factory=Endpoints)
    serving: list[tuple[int, Spawned]] = field(default_factory=list)
    leaving: list[asyncio.Task[None]] = field(default_factory=list)

    async def add(self) -> None:
        """Start a process and send to it once it is ready."""
        port = free_port()
        process = self.spawn.myria(
            *("serve", "--dsn", self.dsn, "--port", str(port)),
            env={"MYRIA_MCP_LINGER_S": "3600", "MYRIA_POSTGRES_POOL_SIZE": "4"},
        )
        async with httpx.AsyncClient(verify=False, timeout=PATIENCE_S) as client, asyncio.timeout(PATIENCE_S):
            while not await _says(client, port, "/readyz", 200):
                assert process.process.poll() is None, process.output()
                await asyncio.sleep(0.1)
        self.endpoints.add(port)
        self.serving.append((port, process))

    def remove_oldest(self) -> None:
        """Tell the oldest process to end."""
        self.leaving.append(asyncio.create_task(self._remove(*self.serving.pop(0))))

    async def _remove(self, port: int, process: Spawned) -> None:
        process.signal(signal.SIGTERM)
        async with httpx.AsyncClient(verify=False, timeout=PATIENCE_S) as client, asyncio.timeout(PATIENCE_S):
            while not await _says(client, port, "/readyz", 503):
                await asyncio.sleep(0.05)
            before = self.endpoints.sent[port]
            while self.endpoints.sent[port] < before + ROUTED_ON:
                await asyncio.sleep(0.05)
            assert await _says(client, port, "/livez", 200)
            self.endpoints.remove(port)
            while self.endpoints.open[port]:
                await asyncio.sleep(0.05)
        process.signal(signal.SIGTERM)  # nobody is served any more: it need not linger for an hour
        status = await asyncio.to_thread(process.wait)
        assert status == 0, process.output()


async def _says(client: httpx.AsyncClient, port: int, path: str, status: int) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return (await client.get(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S)).status_code == status
    return False


async def _work(number: int, port: int, load: Load) -> None:
    """Append and ask in turn until it is over; every answer counts, and so does everything that is none."""
    caller, count = Caller(port), 0
    while not load.stopping:
        count += 1
        tool, arguments = (
            ("append_event", _event(f"{number}-{count}"))
            if count % 2
            else ("query_event_nodes", {"participants": ["ana"], "query": "bread", "limit": 5})
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                await caller.call(tool, arguments)
            load.outcomes[tool] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, the client saw it
            caller.hang_up()
            load.failures.append(f"{tool}: {error!r}")
        await asyncio.sleep(0.1)
    caller.hang_up()


def _event(key: str) -> dict[str, Any]:
    return {
        "timestamp": "2026-03-01T10:00:00Z",
        "channel": "rolling",
        "participants": ["ana"],
        "source_event_key": key,
        "payload": {"text": "sourdough bread"},
    }


@pytest.mark.soak
async def test_a_rolling_replacement_fails_no_request(database: Database, spawn: Spawner) -> None:
    """Many clients, through a proxy and through a balancer of connections, see no failure and lose no append."""
    fleet, load = Fleet(spawn, database.server_dsn), Load()
    await asyncio.gather(*(fleet.add() for _ in range(REPLICAS)))
    async with Proxy(fleet.endpoints) as proxy, Balancer(fleet.endpoints) as balancer:
        ports = (proxy.port, balancer.port)
        clients = [asyncio.create_task(_work(number, ports[number % 2], load)) for number in range(CLIENTS)]
        for _ in range(REPLACED):
            await fleet.add()
            fleet.remove_oldest()
        await asyncio.gather(*fleet.leaving)
        async with asyncio.timeout(PATIENCE_S):
            while min(load.outcomes[tool] for tool in ("append_event", "query_event_nodes")) <= 5 * CLIENTS:
                await asyncio.sleep(0.1)
        load.stopping = True
        await asyncio.gather(*clients)
    for _, process in fleet.serving:
        process.kill()
    assert load.failures == []
    connection = await asyncpg.connect(database.superuser_dsn)
    stored = await connection.fetchval("SELECT count(DISTINCT source_event_key) FROM myria.events")
    await connection.close()
    assert stored == load.outcomes["append_event"]
