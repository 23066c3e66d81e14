"""The years 0001 to 9999 are all years like any other."""

from __future__ import annotations

import pytest

from myria.memory import Memory
from myria.settings import Settings
from tests.server.wire import Served, event
from tests.support.building import build_now
from tests.support.postgres import Database

EXTREMES = ("0001-01-01T00:00:00Z", "2026-03-19T20:00:00Z", "9999-12-31T23:59:59.999999Z")


@pytest.fixture
def settings() -> Settings:
    """No limit on how far ahead an event may lie."""
    return Settings.load(environ={}, overrides={"ingest.future_limit_s": 0})


async def test_the_first_and_last_microsecond_are_stored_found_and_built(served: Served, database: Database) -> None:
    """Events at both ends of time come back with their timestamps, from the tail and from a snapshot."""
    asked = {"participants": ["user_42"], "order": "oldest"}
    events = [event(f"k{n}", text="harvest", timestamp=moment) for n, moment in enumerate(EXTREMES)]
    assert not (await served.call("append_events", {"events": events})).is_error
    again = (await served.call("append_event", events[2])).content
    assert (again["deduplicated"], again["payload_differs"]) == (True, False)
    for indexed in (False, True):
        answer = (await served.call("query_event_nodes", asked)).content
        found = answer["root"]["children"]
        assert [node["timestamp"] for node in found] == list(EXTREMES)
        assert {node["indexed"] for node in found} == {indexed}
        last = (await served.call("query_event_nodes", asked | {"since": EXTREMES[2]})).content
        assert [node["timestamp"] for node in last["root"]["children"]] == [EXTREMES[2]]
        await build_now(database.builder_dsn)


async def test_the_database_holds_times_not_infinity(served: Served, memory: Memory) -> None:
    """People with psql see the timestamp too."""
    await served.call("append_event", event("k", timestamp=EXTREMES[2]))
    async with memory.database.read("default") as connection:
        stored = await connection.fetchval("SELECT occurred_at::text FROM myria.events")
    assert stored == "9999-12-31 23:59:59.999999+00"
