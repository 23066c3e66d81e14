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


async def test_nodes_keep_every_microsecond(served: Served, database: Database, memory: Memory) -> None:
    """What a build writes of a moment is that moment, however far from 1970 and before it too."""
    moments = (
        "0001-01-01 00:00:00+00",
        "0001-01-01 00:00:00.000001+00",
        "1969-12-31 23:59:59.000001+00",
        "1970-01-01 00:00:00+00",
        "2500-06-01 12:00:00.123457+00",
        "9999-12-31 23:59:59.999999+00",
    )
    events = [
        event(f"k{n}", timestamp=moment.replace(" ", "T").replace("+00", "Z"), participants=[f"user_{n}"])
        for n, moment in enumerate(moments)
    ]
    assert not (await served.call("append_events", {"events": events})).is_error
    await build_now(database.builder_dsn)
    async with memory.database.read("default") as connection:
        rows = await connection.fetch("SELECT key_at::text, first_at::text, last_at::text FROM myria.renderings")
    assert sorted(map(tuple, rows)) == [(moment, moment, moment) for moment in moments]
