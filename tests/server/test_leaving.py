"""Readiness, and how a serving process leaves: it says so, serves on, and ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import httpx
import pytest

from myria import errors
from myria.memory import Memory
from myria.settings import McpSettings, Settings
from myria_server.http.listening import reserve_port
from myria_server.readiness import Readiness
from myria_server.serving import Shutdown, serve_http
from tests.server.wire import Served, call, event, headers
from tests.support.locks import somebody_waits
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

APPEND = "myria.append_event"


class Asked:
    """A database that answers what the test says."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.free: asyncio.Event | None = None
        self.times = 0

    async def __call__(self) -> None:
        self.times += 1
        if self.free is not None:
            await self.free.wait()
        if self.error is not None:
            raise self.error


async def test_readiness_begins_with_no() -> None:
    """Before the database has answered once there is no grace."""
    asked = Asked()
    readiness = Readiness(asked, grace_s=60)
    assert not readiness.ready
    asked.error = errors.DatabaseUnavailable("away")
    await readiness.check()
    assert not readiness.ready
    assert not readiness.database_up
    asked.error = None
    await readiness.check()
    assert readiness.ready
    assert readiness.database_up


async def test_an_outage_has_a_grace_and_a_wrong_schema_has_none() -> None:
    """A database that goes away leaves the process ready for a while; a schema that is not ours ends it at once."""
    asked = Asked()
    readiness = Readiness(asked, grace_s=60)
    await readiness.check()
    asked.error = errors.DatabaseUnavailable("away")
    await readiness.check()
    assert (readiness.ready, readiness.database_up) == (True, False)
    readiness._grace_s = 0
    assert not readiness.ready
    asked.error = None
    await readiness.check()
    asked.error = errors.SchemaOutdated("old")
    await readiness.check()
    assert (readiness.ready, readiness.database_up) == (False, True)


async def test_a_database_that_hangs_holds_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everyone who asks gets an answer in time, and the database is asked once, not by each of them."""
    monkeypatch.setattr("myria_server.readiness.CHECK_TIMEOUT_S", 0.1)
    asked = Asked()
    asked.free = asyncio.Event()
    readiness = Readiness(asked, grace_s=0)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(readiness.check() for _ in range(5)))
        await readiness.check()
    assert not readiness.ready
    assert asked.times == 1
    monkeypatch.setattr("myria_server.readiness.CHECK_TIMEOUT_S", PATIENCE_S)
    asked.free.set()
    await readiness.check()
    assert readiness.ready
    await readiness.close()


async def test_liveness_knows_no_database(served: Served) -> None:
    """/livez and /healthz are the same, whatever else is wrong."""
    served.server.app.readiness.draining = True
    for path in ("/livez", "/healthz"):
        assert (await served.client.get(path)).json() == {"status": "ok"}


async def test_a_draining_server_answers_and_closes(served: Served) -> None:
    """Every answer carries Connection: close, those of calls, of the SDK and of refusals alike."""
    open_before = await served.client.get("/livez")
    assert "connection" not in open_before.headers
    served.server.app.readiness.draining = True
    fast = await served.post(call(APPEND, event("a")), headers(APPEND))
    listed = await served.post(call(APPEND, {}) | {"method": "tools/list", "params": {}}, headers(version="2025-06-18"))
    refused = await served.post(b"{", headers(APPEND))
    ready = await served.client.get("/readyz")
    assert fast.json()["result"]["isError"] is False
    for answer in (fast, listed, refused, ready):
        assert answer.headers["connection"] == "close", answer.text
    assert ready.json() == {"status": "draining"}


@asynccontextmanager
async def leaving(
    database: Database, settings: Settings
) -> AsyncIterator[tuple[httpx.AsyncClient, Shutdown, asyncio.Task[None]]]:
    """Run a server as `myria serve` does."""
    async with Memory(database.server_dsn, settings) as memory:
        sock = reserve_port("127.0.0.1", 0)
        shutdown, ready = Shutdown(), asyncio.Event()
        address = f"http://127.0.0.1:{sock.getsockname()[1]}"
        task = asyncio.create_task(serve_http(memory, settings, sock, shutdown=shutdown, ready=ready))
        await ready.wait()
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S, verify=False) as client:
            yield client, shutdown, task
        shutdown.request()
        shutdown.request()
        await asyncio.wait_for(task, PATIENCE_S)


async def test_it_serves_on(database: Database) -> None:
    """Asked to go, readiness fails at once, and calls and new connections are served on."""
    settings = replace(Settings(), mcp=McpSettings(linger_s=3600))
    async with leaving(database, settings) as (client, shutdown, task):
        assert (await client.get("/readyz")).status_code == 200
        shutdown.request()
        async with asyncio.timeout(PATIENCE_S):
            while (await client.get("/readyz")).status_code != 503:
                await asyncio.sleep(0.01)
        assert "myria_ready 0.0" in (await client.get("/metrics")).text
        for _ in range(6):
            answer = await client.post("/mcp", json=call(APPEND, event()), headers=headers(APPEND))
            assert answer.json()["result"]["isError"] is False
        assert not task.done()


async def test_it_ends_after_its_time(database: Database) -> None:
    """Once linger_s is over a server without requests ends, and its port is closed."""
    settings = replace(Settings(), mcp=McpSettings(linger_s=0.5))
    async with leaving(database, settings) as (client, shutdown, task):
        assert (await client.get("/livez")).status_code == 200
        began = time.monotonic()
        shutdown.request()
        await asyncio.wait_for(task, PATIENCE_S)
        assert time.monotonic() - began >= 0.5
        with pytest.raises(httpx.ConnectError):
            await client.get("/livez")


async def test_a_second_word_makes_haste(database: Database) -> None:
    """It neither lingers nor waits for a request that hangs."""
    blocker = await asyncpg.connect(database.superuser_dsn)
    settings = replace(Settings(), mcp=McpSettings(linger_s=3600, drain_s=3600))
    async with leaving(database, settings) as (client, shutdown, task):
        await client.post("/mcp", json=call(APPEND, event()), headers=headers(APPEND))
        await blocker.execute("BEGIN; LOCK TABLE myria.events IN ACCESS EXCLUSIVE MODE")
        hanging = asyncio.create_task(client.post("/mcp", json=call(APPEND, event()), headers=headers(APPEND)))
        await somebody_waits(blocker)
        shutdown.request()
        assert (await client.get("/readyz")).status_code == 503
        assert not task.done()
        shutdown.request()
        await asyncio.wait_for(task, PATIENCE_S)
        await blocker.execute("ROLLBACK")
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
    await blocker.close()
