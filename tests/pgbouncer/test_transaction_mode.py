"""The whole memory through PgBouncer in transaction mode: no statement may count on the session it runs in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import httpx

from tests.pgbouncer.bouncer import SERVER_CONNECTIONS, Bouncer, Program
from tests.soak.ledger import Ledger, check_database, check_pages
from tests.soak.wire import Client
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import Spawned, Spawner, free_port

CLIENTS = 8
EVENTS = 120


def test_it_is_a_real_one(pgbouncer: Program) -> None:
    """The program under test says that it is PgBouncer."""
    assert pgbouncer.version().startswith("PgBouncer")


@asynccontextmanager
async def _up(spawn: Spawner, dsn: str, port: int) -> AsyncIterator[Spawned]:
    up = spawn.myria(
        *("up", "--json", "--port", str(port)),
        env={
            "MYRIA_POSTGRES_DSN": dsn,
            "MYRIA_POSTGRES_PGBOUNCER": "true",
            "MYRIA_BUILDER_MAX_UNINDEXED_EVENTS": "60",
            "MYRIA_BUILDER_INACTIVITY_TIMEOUT_S": "1",
            "MYRIA_BUILDER_MIN_INTERVAL_S": "0",
            "MYRIA_MCP_READY_GRACE_S": "3600",
            "MYRIA_BUILDER_TIME_SHARE": "1",
            "MYRIA_BUILDER_LONG_TAIL_TIME_SHARE": "1",
        },
    )
    await asyncio.to_thread(up.wait_for, r'"url"', 180)
    yield up


async def test_append_build_query_status(bouncer: Bouncer, empty_database: Database, spawn: Spawner) -> None:
    """Everything `myria up` does works through PgBouncer: migrating, appends, triggers, builds, reads, rollback."""
    port = free_port()
    dsn = bouncer.in_front_of(empty_database.tcp.owner)
    async with _up(spawn, dsn, port) as up:
        ledger = Ledger()
        probing = asyncio.create_task(_probe(port))
        client = Client(port)
        for part in range(2):
            await asyncio.gather(*(_append(Client(port), ledger, f"{part}-{number}") for number in range(CLIENTS)))
            asked = await client.call_until_answered("trigger_build", {"reason": "through PgBouncer"})
            assert asked.content["request_id"]
            status = await _quiet(client)
            # A trigger may have been first: then the build that was asked for has nothing to do.
            assert status["last_build"]["status"] in {"succeeded", "nothing_to_do"}
        probing.cancel()
        with suppress(asyncio.CancelledError):
            await probing

        assert await check_pages(client, ledger, "query_event_nodes", 50) > 3
        assert await check_pages(client, ledger, "query_references", 60) > 3
        snapshots = (await client.call_until_answered("list_snapshots", {})).content["snapshots"]
        assert len(snapshots) > 1
        moved = await client.call_until_answered("rollback", {"to": snapshots[-1]["snapshot_id"]})
        assert moved.content["snapshot_id"] == snapshots[-1]["snapshot_id"]
        await check_pages(client, ledger, "query_references", 500)
        assert (await check_database(empty_database.dsn, ledger))["tail"] > 0
        assert await _server_connections(empty_database) <= SERVER_CONNECTIONS
        said = up.output()
        assert '"level": "error"' not in said, said[-4000:]
        assert "prepared statement" not in said, said[-4000:]
    verifying = _myria(spawn, dsn, "verify", "--deep")
    assert await asyncio.to_thread(verifying.wait, 180) == 0, verifying.output()
    exporting = _myria(spawn, dsn, "export")
    assert await asyncio.to_thread(exporting.wait, 180) == 0, exporting.output()
    assert exporting.output().count('"event_id"') == len(ledger.acknowledged)


async def _probe(port: int) -> None:
    """Ask for readiness and metrics all the time, as a cluster would; fail when they fail."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, verify=False) as http:
        while True:
            ready, metrics = await asyncio.gather(http.get("/readyz"), http.get("/metrics"))
            assert ready.status_code == 200, ready.text
            assert metrics.status_code == 200, metrics.text
            await asyncio.sleep(0.2)  # far more often than a cluster does, and the machine is left to the others


async def _quiet(client: Client) -> dict[str, Any]:
    """Return the status once everything is built."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status: dict[str, Any] = (await client.call_until_answered("get_snapshot_status", {})).content
            if not (status["tail_events"] or status["building"] or status["queued"]):
                return status
            await asyncio.sleep(0.1)


def _myria(spawn: Spawner, dsn: str, *arguments: str) -> Spawned:
    return spawn.myria(*arguments, env={"MYRIA_POSTGRES_DSN": dsn, "MYRIA_POSTGRES_PGBOUNCER": "true"})


async def _append(client: Client, ledger: Ledger, name: str) -> None:
    rng = random.Random(name)
    for at in range(0, EVENTS // CLIENTS, 3):
        keys = [f"{name}-{at + one}" for one in range(3)]
        batch = [ledger.event(key, rng) for key in keys]
        reply = await client.call_until_answered("append_events", {"events": batch})
        assert not reply.is_error, reply.content
        for key, result in zip(keys, reply.content["results"], strict=True):
            ledger.acknowledge(key, result)


async def _server_connections(database: Database) -> int:
    connection = await asyncpg.connect(database.superuser_dsn)
    count: int = await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'myria_owner'"
    )
    await connection.close()
    return count
