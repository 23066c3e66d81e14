"""No loss under concurrency: clients that misbehave, builds back to back, builders killed (§5, traps 1, 2)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from typing import Any

import asyncpg
import pytest

from myria.ids import new_id
from myria.planning.settings import PlannerSettings
from myria.store.database import Database as Pool
from myria.verify import verify
from tests.soak.ledger import Ledger, check_database, check_pages
from tests.soak.wire import Client, HungUp
from tests.support.counts import share
from tests.support.postgres import Database
from tests.support.processes import Spawner, free_port

CLIENTS = 32
EVENTS = share(20_000)
KILLS = share(20)
SEED = 20_261_121


@pytest.mark.soak
async def test_nothing_acknowledged_is_ever_lost_or_doubled(database: Database, spawn: Spawner) -> None:
    """At every sample, each acknowledged event is there exactly once, in the snapshot or in the tail."""
    port = free_port()
    server = spawn.python(
        "-m", "myria_cli.main", "serve", "--port", str(port), env={"MYRIA_POSTGRES_DSN": database.server_dsn}
    )
    await asyncio.to_thread(server.wait_for, "serving MCP")
    ledger = Ledger()
    builds = _Builds(database, KILLS, random.Random(SEED))
    began = time.monotonic()

    appending = [
        asyncio.create_task(_append(Client(port), ledger, number, EVENTS // CLIENTS, builds))
        for number in range(CLIENTS)
    ]
    building = asyncio.create_task(builds.run(appending))
    samples = []
    everything = asyncio.gather(*appending, building)
    try:
        while not everything.done():
            samples.append(await check_database(database.dsn, ledger))
            tool, size = ("query_references", 500) if len(samples) % 3 == 0 else ("query_event_nodes", 200)
            await check_pages(Client(port), ledger, tool, size)
            await asyncio.sleep(0.2)
        await everything
    finally:
        everything.cancel()
        await asyncio.gather(everything, return_exceptions=True)
    await builds.build_once(random.Random(0), may_kill=False)

    last = await check_database(database.dsn, ledger)
    await check_pages(Client(port), ledger, "query_event_nodes", 200)
    assert last["tail"] == 0
    assert builds.kills == KILLS
    async with Pool(database.dsn) as pool:
        report = await verify(pool, "default", PlannerSettings(), deep=True)
    assert report.failed == 0, report.to_json()
    print(
        f"\n{len(ledger.acknowledged)} of {len(ledger.sent)} events acknowledged, {ledger.duplicates} duplicates, "
        f"{builds.finished} builds, {builds.kills} kills, {len(samples)} samples, "
        f"{time.monotonic() - began:.1f} s"
    )
    assert ledger.duplicates
    assert len(ledger.acknowledged) < len(ledger.sent), "no client ever forgot an event: the test is too tame"


async def _append(client: Client, ledger: Ledger, number: int, count: int, builds: _Builds) -> None:
    """One client: appends its events singly and in batches, and does everything wrong that a client can."""
    rng = random.Random(f"{SEED}:{number}")
    left = [f"c{number}-{one}" for one in range(count)]
    while left:
        # Slower while ahead of the builders, so that events arrive before, during and after each build.
        ahead = (count - len(left)) / count > (builds.kills + 0.5) / (KILLS + 1)
        await asyncio.sleep(rng.uniform(0, 1.5 if ahead else 0.1))
        size = rng.choice((1, 1, 1, 2, 5))
        keys, left = left[:size], left[size:]
        events = [ledger.event(key, rng) for key in keys]
        tool = "append_event" if size == 1 else "append_events"
        arguments = events[0] if size == 1 else {"events": events}
        mishap = rng.random()
        if mishap < 0.10:
            await client.call_and_hang_up(tool, arguments, sent=rng.random(), after_s=0)
        elif mishap < 0.20:
            await client.call_and_hang_up(tool, arguments, sent=1.0, after_s=rng.uniform(0, 0.02))
        elif mishap < 0.25:
            twice = await asyncio.gather(
                Client(client.port).call(tool, arguments), client.call(tool, arguments), return_exceptions=True
            )
            for reply in twice:
                assert not isinstance(reply, BaseException) or isinstance(reply, HungUp), reply
                if not isinstance(reply, BaseException) and not reply.is_error:
                    _acknowledge(ledger, keys, reply.content)
        if mishap < 0.20 and rng.random() < 0.15:
            continue  # never tried again: it may be there once, or not at all
        reply = await client.call_until_answered(tool, arguments)
        assert not reply.is_error, reply.content
        _acknowledge(ledger, keys, reply.content)
        if rng.random() < 0.05:
            again = await client.call_until_answered(tool, arguments)
            _acknowledge(ledger, keys, again.content)
            assert all(result["deduplicated"] for result in again.content.get("results", [again.content]))


def _acknowledge(ledger: Ledger, keys: list[str], content: dict[str, Any]) -> None:
    for key, result in zip(keys, content.get("results", [content]), strict=True):
        ledger.acknowledge(key, result)


class _Builds:
    """Builds back to back, each by a process of its own, which is killed at random until that was done often enough."""

    def __init__(self, database: Database, kills: int, rng: random.Random) -> None:
        self._database = database
        self._wanted_kills = kills
        self._rng = rng
        self.kills = 0
        self.finished = 0

    async def run(self, appending: list[asyncio.Task[None]]) -> None:
        while self.kills < self._wanted_kills or not all(task.done() for task in appending):
            await self.build_once(self._rng, may_kill=True)

    async def build_once(self, rng: random.Random, *, may_kill: bool) -> None:
        """Queue a build, and start builders until it has ended."""
        build_id = new_id("bld")
        connection = await asyncpg.connect(self._database.dsn)
        try:
            await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
            await connection.execute(
                "INSERT INTO myria.builds (tenant_id, build_id, trigger, is_full) VALUES ('default', $1, 'manual', $2)",
                build_id,
                rng.random() < 0.2,
            )
            status = "queued"
            while status in ("queued", "running"):
                await self._run_builder(connection, build_id, kill=may_kill and rng.random() < 0.6, rng=rng)
                status = await connection.fetchval("SELECT status FROM myria.builds WHERE build_id = $1", build_id)
        finally:
            await connection.close()
        self.finished += 1
        assert status in ("succeeded", "nothing_to_do")

    async def _run_builder(self, connection: Any, build_id: str, *, kill: bool, rng: random.Random) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "myria_cli.main", "build", "--build", build_id),
            env={
                **os.environ,
                "MYRIA_POSTGRES_DSN": self._database.builder_dsn,
                "MYRIA_SERVICE_LOG_LEVEL": "warning",
            },
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            if kill and self.kills < self._wanted_kills:
                # Most of its life is starting Python: begin to count once it is at work.
                while process.returncode is None and not await connection.fetchval(
                    "SELECT lease_until IS NOT NULL FROM myria.builds WHERE build_id = $1", build_id
                ):
                    await asyncio.sleep(0.01)
                await asyncio.sleep(rng.choice((0.0, 0.02, 0.1, 0.3)) * rng.random())
                if process.returncode is None:
                    process.send_signal(signal.SIGKILL)
                    self.kills += 1
            await asyncio.wait_for(process.wait(), 120)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
