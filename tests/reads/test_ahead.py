"""Events dated ahead of the clock: they are read, but they move neither `now` nor the state of topics."""

from __future__ import annotations

import time
from typing import Any

from myria.log.event import NewEvent
from myria.log.masks import Masks
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from tests.reads.asking import ANA_BEN, append, ask, ids_of, pages, texts_of
from tests.support.building import build_now
from tests.support.events import START, TENANT, event
from tests.support.postgres import Database

DAY = 24 * 3600
NOW = (int(time.time()) // DAY - 1) * DAY + DAY // 2 - START // 1_000_000
"""Noon of yesterday: "yesterday" means another day then, whenever the test runs."""
FAR = NOW + 70 * 365 * DAY


def _diary(days: int = 3) -> list[NewEvent]:
    """Return two events on each of the last days, the last of them a minute ago."""
    return [
        event(NOW - 60 - day * DAY - minute, f"we planted beans, note {day}-{minute}")
        for day in reversed(range(days))
        for minute in (60, 0)
    ]


async def test_yesterday_counts_from_what_is_not_ahead(memory: Memory, database: Database) -> None:
    """An event of 2099 that was stored once changes no answer to a question with a relative date."""
    await append(memory, _diary())
    query = EventNodesQuery(participants=ANA_BEN, query="what about beans yesterday?")
    before = texts_of(await ask(memory, query))
    await append(memory, [event(FAR, "the robots will come")])
    fresh = texts_of(await ask(memory, query))
    await build_now(database.builder_dsn)
    built = texts_of(await ask(memory, query))

    assert (
        before[:2] != texts_of(await ask(memory, EventNodesQuery(participants=ANA_BEN, query="what about beans?")))[:2]
    )
    assert fresh[: len(before)] == before
    assert built[: len(before)] == before


async def test_pages_over_what_is_ahead_neither_repeat_nor_omit(memory: Memory) -> None:
    """Pages of an answer go on from the moment of the first page, and the same question gives the same bytes."""
    await append(memory, [*_diary(days=9), event(FAR, "beans again"), event(FAR + DAY, "more beans")])
    query = EventNodesQuery(participants=ANA_BEN, query="beans yesterday", limit=4)
    paged = [one for page in await pages(memory, query) for one in ids_of(page)]
    whole = ids_of(await ask(memory, EventNodesQuery(participants=ANA_BEN, query="beans yesterday", limit=100)))

    assert paged == whole
    assert len(set(paged)) == 20
    assert await ask(memory, query) == await ask(memory, query)


async def test_topics_do_not_age_by_what_is_ahead(memory: Memory, database: Database) -> None:
    """A topic of today stays active though somebody stored an event of 2099."""
    await append(memory, [*_diary(), event(FAR, "the robots will come"), event(FAR + 60, "and stay")])
    await build_now(database.builder_dsn)
    states: dict[str, Any] = {}
    async with memory.database.read(TENANT) as connection:
        topics = await connection.fetch("SELECT topic_id FROM myria.topics WHERE tenant_id = $1", TENANT)
    for row in topics:
        topic = (await memory.retrieval.get_topic(TENANT, row["topic_id"], Masks.containing(ANA_BEN)))["topic"]
        states[topic["label"]] = topic["state"]

    assert set(states.values()) == {"active"}
