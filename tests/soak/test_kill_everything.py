"""PostgreSQL, server and builder are killed at random under load; the memory comes back by itself, complete."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.settings.planner import PlannerSettings
from myria_embedded import EmbeddedPostgres, role_dsns
from tests.soak.killing import VICTIMS, kill
from tests.soak.ledger import Ledger, check_database, check_pages
from tests.soak.wire import Client
from tests.support.counts import share
from tests.support.processes import Spawned, Spawner, free_port

KILLS = share(50, least=len(VICTIMS))
CLIENTS = 8
SEED = 20_261_122
BACK_WITHIN_S = 30.0
"""Generous: two busy cores, recovery, and a Python that starts. It is usually about a second."""


@pytest.mark.soak
async def test_the_service_comes_back_by_itself_with_everything(new_dir: Path, spawn: Spawner) -> None:
    """Kill -9 of any process, or all but the supervisor: every acknowledged event is there, nothing needs a hand."""
    port = free_port()
    data_dir = new_dir
    up = spawn.myria(
        *("up", "--json", "--port", str(port), "--data-dir", data_dir),
        env={
            "MYRIA_BUILDER_MAX_UNINDEXED_EVENTS": "30",
            "MYRIA_BUILDER_INACTIVITY_TIMEOUT_S": "1",
            "MYRIA_BUILDER_MIN_INTERVAL_S": "0",
            "MYRIA_BUILDER_TIME_SHARE": "1",
            "MYRIA_BUILDER_LONG_TAIL_TIME_SHARE": "1",
        },
    )
    await asyncio.to_thread(up.wait_for, r'"url"', 120)
    ledger = Ledger()
    stop = asyncio.Event()
    appending = [asyncio.create_task(_append(Client(port), ledger, number, stop)) for number in range(CLIENTS)]
    rng = random.Random(SEED)
    outages: list[float] = []
    victims: list[str] = []
    try:
        victims = _victims(rng)
        for victim in victims:
            await asyncio.sleep(rng.uniform(0.3, 2.0))
            assert await kill(victim, up.pid, data_dir, rng), f"no {victim} to kill\n{up.output()[-2000:]}"
            outages.append(await _until_it_appends(port, ledger, f"after-{len(outages)}"))
            assert up.process.poll() is None, up.output()[-4000:]
    finally:
        stop.set()
        results = await asyncio.gather(*appending, return_exceptions=True)
    assert not [result for result in results if result is not None], results

    await _check(up, port, data_dir, ledger)
    print(
        f"\n{len(ledger.acknowledged)} acknowledged over {len(victims)} kills "
        f"({', '.join(f'{victim} {outage:.1f} s' for victim, outage in zip(victims[:10], outages, strict=False))}); "
        f"first append after a kill: worst {max(outages):.1f} s, median {sorted(outages)[len(outages) // 2]:.2f} s"
    )
    assert max(outages) < BACK_WITHIN_S


def _victims(rng: random.Random) -> list[str]:
    """Every kind as often as the other, in random order."""
    kinds = [VICTIMS[number % len(VICTIMS)] for number in range(KILLS)]
    rng.shuffle(kinds)
    return kinds


async def _check(up: Spawned, port: int, data_dir: Path, ledger: Ledger) -> None:
    await check_pages(Client(port), ledger, "query_event_nodes", 200)
    async with EmbeddedPostgres(data_dir) as server:
        dsns = role_dsns(server, "myria")
        await check_database(dsns.owner, ledger)
        # The last tail is built without anybody's doing.
        deadline = time.monotonic() + 240
        while (await check_database(dsns.owner, ledger))["tail"] or not await _is_quiet(port):
            assert time.monotonic() < deadline, up.output()[-4000:]
            await asyncio.sleep(0.2)
        async with Pool(dsns.owner) as pool:
            report = await verify(pool, "default", PlannerSettings(), deep=True)
    assert report.failed == 0, report.to_json()


async def _is_quiet(port: int) -> bool:
    status = (await Client(port).call_until_answered("get_snapshot_status", {})).content
    return not status["building"] and not status["queued"]


async def _append(client: Client, ledger: Ledger, number: int, stop: asyncio.Event) -> None:
    rng = random.Random(f"{SEED}:{number}")
    count = 0
    while not stop.is_set():
        count += 1
        key = f"k{number}-{count}"
        event = ledger.event(key, rng)
        if rng.random() < 0.05:
            await client.call_and_hang_up("append_event", event, sent=rng.random(), after_s=0.0)
        reply = await client.call_until_answered("append_event", event, patience_s=150)
        assert not reply.is_error, reply.content
        ledger.acknowledge(key, reply.content)
        await asyncio.sleep(rng.uniform(0, 0.1))


async def _until_it_appends(port: int, ledger: Ledger, key: str) -> float:
    """Return the seconds until one more append is acknowledged, and a read answers."""
    began = time.monotonic()
    event = ledger.event(key, random.Random(key))
    client = Client(port)
    reply = await client.call_until_answered("append_event", event, patience_s=150)
    assert not reply.is_error, reply.content
    ledger.acknowledge(key, reply.content)
    took = time.monotonic() - began
    answer = await client.call_until_answered(
        "get_event", {"event_id": reply.content["event_id"], "participants": ["observer"], "include_internal": True}
    )
    assert not answer.is_error, answer.content
    return took
