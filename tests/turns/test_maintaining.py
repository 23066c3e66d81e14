"""Maintenance of sessions of turns: one context, under its lock, as often as one likes, and by schedule."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from myria import errors
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.db.locks import lock_key
from myria.memory import Memory
from myria.settings import NotesSettings, Settings, TurnsSettings
from tests.support.postgres import Database
from tests.turns.hosts import DAY, TENANT, Host, rows

SAID = "Today I need milk. I like tea. My name is Ada"
SETTINGS = Settings(turns=TurnsSettings(enabled=True, session_lock_timeout_ms=100))


@pytest.fixture
async def memory(database: Database) -> AsyncIterator[Memory]:
    async with Memory(database.server_dsn, SETTINGS) as made:
        yield made


async def expired(memory: Memory) -> list[str]:
    """Return the contexts and texts of the facts that were withdrawn as expired."""
    found = await rows(
        memory,
        "SELECT e.context_id, e.payload->>'text' AS text FROM myria.withdrawn w"
        " JOIN myria.events e USING (tenant_id, event_seq) WHERE w.reason = 'expired' ORDER BY 1, 2",
    )
    return [f"{row['context_id']} {row['text']}" for row in found]


async def test_it_looks_at_one_session(memory: Memory) -> None:
    """What has expired in another session of the same people is left alone; a repeat changes nothing."""
    one, other = Host(memory, session="one"), Host(memory, session="other")
    for host in (one, other):
        await host.after("t1", SAID)
    now = one.now + 2 * DAY
    assert await memory.turn_maintenance.run(TENANT, one.session, memory.turns, now=now) == 3
    assert await expired(memory) == ["p/one today_task: milk"]
    events = await rows(memory, "SELECT event_seq FROM myria.events")
    assert await memory.turn_maintenance.run(TENANT, one.session, memory.turns, now=now) == 0
    assert await rows(memory, "SELECT event_seq FROM myria.events") == events
    await memory.turn_maintenance.run(TENANT, one.session, memory.turns, now=now + 7 * DAY)
    assert await expired(memory) == ["p/one like: tea", "p/one today_task: milk"]


async def test_many_facts_are_looked_at_in_bounded_parts(database: Database) -> None:
    """A run goes on until nothing of the session is due, each part under the lock anew."""
    settings = replace(SETTINGS, notes=NotesSettings(consolidate_notes=2))
    async with Memory(database.server_dsn, settings) as memory:
        host = Host(memory)
        await host.after("t1", f"{SAID}. This week I need a bike. I prefer tea")
        assert await memory.turn_maintenance.run(TENANT, host.session, memory.turns, now=host.now + 9 * DAY) == 5
        assert await expired(memory) == ["p/s like: tea", "p/s today_task: milk", "p/s weekly_task: a bike"]


async def test_it_takes_the_lock_of_the_session(memory: Memory, database: Database) -> None:
    """While another process maintains it, the run is refused as busy and changes nothing; then it does its work."""
    host = Host(memory)
    await host.after("t1", SAID)
    now = host.now + 2 * DAY
    connection = await asyncpg.connect(database.server_dsn)
    try:
        async with connection.transaction():
            key = lock_key("maintenance", TENANT, host.session.owner, host.session.context_id)
            await connection.execute("SELECT pg_advisory_xact_lock($1)", key)
            with pytest.raises(errors.TurnBusy):
                await memory.turn_maintenance.run(TENANT, host.session, memory.turns, now=now)
            assert await expired(memory) == []
    finally:
        await connection.close()
    await memory.turn_maintenance.run(TENANT, host.session, memory.turns, now=now)
    assert await expired(memory) == ["p/s today_task: milk"]


async def test_the_control_plane_maintains_by_schedule(memory: Memory, database: Database) -> None:
    """Of every session what has expired by the database's clock, with the rights of the control plane."""

    async def launch(_tenant: str, _build_id: str) -> int:
        raise AssertionError("no build is due")

    hosts = [Host(memory, session=f"s{number}") for number in range(3)]
    for days, host in enumerate(hosts):
        host.now = time.time_ns() // 1000 - 3 * days * DAY
        await host.after("t1", SAID)
    async with Pool(database.operator_dsn) as pool:
        loop = ControlLoop(pool, SETTINGS, launch)
        assert await loop.maintain_turns() == 9
        assert await loop.maintain_turns() == 0
    assert await expired(memory) == ["p/s1 today_task: milk", "p/s2 today_task: milk"]
