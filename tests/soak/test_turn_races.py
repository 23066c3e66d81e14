"""Sixteen hosts of one session: retries, hang-ups, the same turns by several, servers and builders killed meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import asyncpg
import orjson
import pytest

from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.settings.planner import PlannerSettings
from tests.soak.builds import Builds
from tests.soak.wire import Client, HungUp
from tests.support.counts import share
from tests.support.postgres import Database
from tests.support.processes import Spawned, Spawner, free_port

pytestmark = pytest.mark.processes

HOSTS = 16
TURNS = share(60, least=4)
KILLS = share(20, least=2)
BUILD_KILLS = share(5)
SEED = 20_261_124

TOOL = "memory_after_turn"


class _Servers:
    """Two servers of one memory; one after the other is killed, and comes back."""

    def __init__(self, spawn: Spawner, database: Database) -> None:
        self._spawn = spawn
        self._dsn = database.server_dsn
        self.ports = [free_port(), free_port()]
        self._running: list[Spawned] = []
        self.kills = 0

    async def start(self) -> None:
        self._running = [self._started(port) for port in self.ports]
        for server in self._running:
            await asyncio.to_thread(server.wait_for, "serving MCP")

    async def kill(self, progress: Counter[str], whole: int) -> None:
        """Kill a server each time when another part of the turns is kept, until all are."""
        for number in range(KILLS):
            while progress["kept"] < whole * (number + 0.5) / KILLS:
                await asyncio.sleep(0.02)
            which = number % 2
            self._running[which].kill()
            self.kills += 1
            self._running[which] = self._started(self.ports[which])
            await asyncio.to_thread(self._running[which].wait_for, "serving MCP")

    def _started(self, port: int) -> Spawned:
        environment = {"MYRIA_POSTGRES_DSN": self._dsn, "MYRIA_TURNS_ENABLED": "true"}
        return self._spawn.myria("serve", "--port", str(port), env=environment)


class _Host:
    """A host: it keeps its turns one after the other, each also by a second host, and misbehaves."""

    def __init__(self, number: int, ports: list[int], codes: Counter[str]) -> None:
        self._rng = random.Random(f"{SEED}:{number}")
        self._clients = [Client(port) for port in ports]
        self._name = number % (HOSTS // 2)
        self._codes = codes

    async def run(self) -> None:
        for turn in range(TURNS):
            await self._keep(f"t{self._name}-{turn}")
            self._codes["kept"] += 1

    async def _keep(self, turn_id: str) -> None:
        arguments = {
            "session_id": "s",
            "turn_id": turn_id,
            "input_items": [f"in {turn_id}"],
            "output_items": [{"role": "assistant", "content": f"{end} {turn_id}"} for end in ("out", "end")],
        }
        client = self._rng.choice(self._clients)
        chance = self._rng.random()
        if chance < 0.1:
            await client.call_and_hang_up(TOOL, arguments, sent=self._rng.random(), after_s=0)
        elif chance < 0.3:
            await client.call_and_hang_up(TOOL, arguments, sent=1.0, after_s=self._rng.uniform(0, 0.02))
        elif chance < 0.4:
            await asyncio.gather(*(self._try(client, arguments) for client in self._clients))
        self._codes["hung up"] += chance < 0.3
        while True:
            client = self._rng.choice(self._clients)
            try:
                reply = await client.call(TOOL, arguments)
            except HungUp:
                self._codes["broken off"] += 1
            else:
                if not reply.is_error:
                    assert reply.content == {"ok": True}
                    return
                assert (reply.content["code"], reply.content["retryable"]) == ("RESOURCE_BUSY", True), reply.content
                self._codes["busy"] += 1
            await asyncio.sleep(self._rng.uniform(0, 0.05))

    async def _try(self, client: Client, arguments: dict[str, Any]) -> None:
        try:
            await client.call(TOOL, arguments)
        except HungUp:
            self._codes["broken off"] += 1


@pytest.mark.soak
async def test_each_turn_is_kept_once_and_in_order(database: Database, spawn: Spawner) -> None:
    """Whatever breaks off: every turn whole and once, those of a host in their order, and only errors to try again."""
    servers = _Servers(spawn, database)
    await servers.start()
    codes: Counter[str] = Counter()
    builds = Builds(spawn, database, BUILD_KILLS, random.Random(SEED))
    hosts = [asyncio.create_task(_Host(number, servers.ports, codes).run()) for number in range(HOSTS)]
    everything = asyncio.gather(*hosts, servers.kill(codes, HOSTS * TURNS), builds.run(hosts))
    try:
        await everything
    finally:
        everything.cancel()
        await asyncio.gather(everything, return_exceptions=True)
    assert servers.kills == KILLS
    await _check_log(database.dsn)
    async with Pool(database.dsn) as pool:
        report = await verify(pool, "default", PlannerSettings(), deep=True)
    assert report.failed == 0, report.to_json()
    print(f"\n{dict(codes)}, {servers.kills} servers killed, {builds.finished} builds, {builds.kills} killed")


async def _check_log(dsn: str) -> None:
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
        items = await connection.fetch(
            "SELECT payload->>'text' AS text FROM myria.events WHERE type IN ('input_item', 'output_item')"
            " ORDER BY event_seq"
        )
        marks = await connection.fetch(
            "SELECT event_id, payload FROM myria.events WHERE type = 'myria.turn' ORDER BY event_seq"
        )
    finally:
        await connection.close()
    turns = [f"t{host}-{turn}" for host in range(HOSTS // 2) for turn in range(TURNS)]
    texts = [row["text"] for row in items]
    in_order = [text.split()[1] for text in texts[::3]]
    assert sorted(in_order) == sorted(turns), "a turn is missing, or there twice"
    assert texts == [f"{end} {turn}" for turn in in_order for end in ("in", "out", "end")], "a turn is not whole"
    for host in range(HOSTS // 2):
        own = [turn for turn in in_order if turn.startswith(f"t{host}-")]
        assert own == [f"t{host}-{turn}" for turn in range(TURNS)], "turns of a host are not in their order"
    said = [orjson.loads(row["payload"])["turn"] for row in marks]
    assert [one["id"] for one in said] == in_order
    assert [one["previous"] for one in said] == [None, *(row["event_id"] for row in marks[:-1])]
