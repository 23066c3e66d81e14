"""No loss under concurrency: clients that misbehave, builds back to back, builders killed (§5, traps 1, 2)."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.settings.planner import PlannerSettings
from tests.soak.builds import Builds
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
    server = spawn.myria("serve", "--port", str(port), env={"MYRIA_POSTGRES_DSN": database.server_dsn})
    await asyncio.to_thread(server.wait_for, "serving MCP")
    ledger = Ledger()
    builds = Builds(spawn, database, KILLS, random.Random(SEED))
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


async def _append(client: Client, ledger: Ledger, number: int, count: int, builds: Builds) -> None:
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
