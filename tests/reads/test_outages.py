"""Bad days of the database: away, restarted, exhausted, of another version, out of room."""

from __future__ import annotations

import asyncio

from myria.contract.queries import EventNodesQuery
from myria.memory import Memory
from myria.settings import Settings
from tests.reads.conftest import OwnPostgres
from tests.support.events import TENANT, event


async def test_an_event_appended_after_a_crash_is_read(own_postgres: OwnPostgres) -> None:
    """PostgreSQL gives out transaction ids again that a crash forgot; a server that lives on still sees every event."""
    async with Memory(own_postgres.dsns.server, Settings()) as memory:
        first = event(0, "first", key="first")
        await memory.append_events(TENANT, [first])
        await asyncio.sleep(0.5)
        # A repeat takes a transaction id and writes nothing that anybody waits for.
        for _ in range(3):
            (again,) = await memory.append_events(TENANT, [first])
            assert again.deduplicated
        asked = EventNodesQuery(participants=("ana",))
        assert len((await memory.query_event_nodes(TENANT, asked))["root"]["children"]) == 1

        await own_postgres.kill()
        await own_postgres.start()
        for number in range(4):
            await memory.append_events(TENANT, [event(1 + number, f"after {number}")])
            seen = (await memory.query_event_nodes(TENANT, asked))["root"]["children"]
            assert len(seen) == 2 + number
