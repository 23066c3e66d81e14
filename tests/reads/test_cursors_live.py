"""Pages neither repeat nor omit, whatever happens between them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from myria import errors
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.memory import Memory
from myria.search import unindexed, visible_blocks
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import RetrievalSettings, Settings
from tests.reads.asking import ANA_BEN, Query, append, ask, events_of, ids_of, pages
from tests.support.building import build_now
from tests.support.counts import crossed
from tests.support.events import START, TENANT, conversation, event
from tests.support.postgres import Database, Databases

QUERIES: list[Query] = [
    EventNodesQuery(participants=ANA_BEN, limit=7),
    EventNodesQuery(participants=("ana",), limit=9, include_internal=True),
    EventNodesQuery(participants=("ana",), query="garden tomato lesson", limit=6),
    EventNodesQuery(participants=("ana",), query="garden river", order="oldest", limit=8, include_internal=True),
    EventNodesQuery(participants=("ana",), query="bread", order="newest", limit=3, since=START + 60_000_000),
    ReferencesQuery(participants=("ana",), query="garden tomato lesson", max_nodes=12),
    ReferencesQuery(participants=("ana",), max_nodes=25, include_internal=True),
]


HOW = ("alone", "packed")


@pytest.fixture(autouse=True, params=HOW)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search scopes one by one, and packed as those of an agent in very many."""
    if request.param == "packed":
        monkeypatch.setattr(visible_blocks, "SHARED_FROM", 1)
        monkeypatch.setattr(unindexed, "FEW_SCOPES", 0)


class LateCommit:
    """An append that took its sequence number and has not committed yet."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: asyncpg.Connection[Any] | None = None

    async def begin(self, text: str) -> int:
        """Insert an event of ana and ben; return its event_seq."""
        self._connection = await asyncpg.connect(self._dsn)
        await self._connection.execute("BEGIN")
        await self._connection.execute(sql("session.name_tenant"), TENANT, "60s")
        await self._connection.execute("SELECT pg_advisory_xact_lock_shared($1)", lock_key("append", TENANT))
        scope_id = await self._connection.fetchval(
            "SELECT scope_id FROM myria.scopes WHERE participants = $1", list(ANA_BEN)
        )
        seq: int = await self._connection.fetchval(
            "INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, payload) "
            "VALUES ($1, nextval('myria.event_seq'), 'evt_late', $2, '2026-01-01T00:01:00Z', 'test', "
            "jsonb_build_object('text', $3::text)) RETURNING event_seq",
            TENANT,
            scope_id,
            text,
        )
        return seq

    async def commit(self) -> None:
        """Make it visible."""
        assert self._connection is not None
        await self._connection.execute("COMMIT")
        await self._connection.close()


class World:
    """A memory with a snapshot and a tail, and everything that can happen to it."""

    def __init__(self, memory: Memory, database: Database) -> None:
        self.memory = memory
        self.database = database
        self.rng = random.Random(9)
        self._at = 400_000

    async def append(self) -> None:
        """Events that would match, be the newest, and be backdated."""
        self._at += 1000
        await append(
            self.memory,
            [
                event(self._at, "garden tomato lesson bread garden", participants=("ana", "ben")),
                event(self.rng.randint(1, 80_000), "garden river bread", participants=("ana", "ben")),
                event(self._at, "garden", participants=("ana",), internal=True),
            ],
        )

    async def new_scope(self) -> None:
        """Somebody new, whose name is a word that is asked for."""
        self._at += 1000
        name = self.rng.choice(("garden", "tomato", "Garden", "lesson", "river", "bread"))
        await append(self.memory, [event(self._at, "bread", participants=("ana", "ben", name))])

    async def build(self) -> None:
        await build_now(self.database.builder_dsn)

    async def full_build(self) -> None:
        await build_now(self.database.builder_dsn, full=True)

    async def publish(self) -> None:
        """A snapshot that was held."""
        await self.append()
        await build_now(self.database.builder_dsn, hold=True)
        held = (await self.memory.registry.status(TENANT))["held_snapshot_id"]
        await self.memory.registry.publish(TENANT, held)

    async def roll_back(self) -> None:
        try:
            await self.memory.registry.rollback(TENANT)
        except errors.NoPreviousSnapshot:
            await self.build()

    def happenings(self) -> list[Any]:
        """Everything that may happen between two pages."""
        return [self.append, self.new_scope, self.build, self.full_build, self.publish, self.roll_back]


@pytest.fixture(scope="module")
def filled(databases: Databases) -> Iterator[Database]:
    """A database with two snapshots and a tail; it is copied, and nobody connects to it any more."""
    database = databases.create()

    async def fill() -> None:
        async with Memory(database.server_dsn, Settings()) as memory:
            await append(memory, conversation(80, seed=1, internal_share=0.1))
            await append(memory, conversation(40, seed=2, participants=("ana", "ben", "carol"), start=5000))
            await build_now(database.builder_dsn)
            await append(memory, conversation(40, seed=3, start=90_000, internal_share=0.1))
            await build_now(database.builder_dsn)
            await append(memory, conversation(40, seed=4, participants=("ana", "dan"), start=200_000))

    databases.loop.run(fill())
    yield database
    databases.drop(database)


@pytest.fixture
async def world(databases: Databases, filled: Database) -> AsyncIterator[World]:
    """A world of the test's own."""
    database = databases.copy(filled)
    async with Memory(database.server_dsn, Settings()) as memory:
        yield World(memory, database)
    databases.drop(database)


@pytest.mark.soak
@pytest.mark.parametrize(("query", "how"), crossed(QUERIES, HOW), indirect=["how"])
async def test_pages_are_those_of_the_first_moment(world: World, query: Query) -> None:
    """Whatever is appended, built, published or rolled back between pages, they are what they would have been."""
    memory = world.memory
    world.rng.seed(QUERIES.index(query))
    before = [ids_of(page) for page in await pages(memory, query)]
    scores = [[one["score"] for one in events_of(page)] for page in await pages(memory, query)]
    assert len(before) >= 4

    happenings = world.happenings()
    world.rng.shuffle(happenings)
    page = await ask(memory, query)
    after, after_scores = [ids_of(page)], [[one["score"] for one in events_of(page)]]
    first = page
    while page["next_cursor"] is not None:
        if happenings:
            await happenings.pop()()
        page = await ask(memory, replace(query, cursor=page["next_cursor"]))
        assert page["snapshot_id"] == first["snapshot_id"]
        after.append(ids_of(page))
        after_scores.append([one["score"] for one in events_of(page)])
    assert after == before
    assert after_scores == scores


async def test_a_new_circle_changes_no_later_page(memory: Memory) -> None:
    """A scope that comes into being between pages leaves no trace in their scores: it holds nothing they could see."""
    await append(memory, conversation(40, seed=1))
    await append(memory, conversation(40, seed=2, participants=("ana", "ben", "carol"), start=5000))
    query = EventNodesQuery(participants=("ana",), query="What did Ben say about the garden or bread?", limit=4)
    before = [(one["event_id"], one["score"]) for page in await pages(memory, query) for one in events_of(page)]
    page = await ask(memory, query)
    after = [(one["event_id"], one["score"]) for one in events_of(page)]
    await append(memory, [event(90_000, "something else", participants=("ana", "dan"))])
    while page["next_cursor"] is not None:
        page = await ask(memory, replace(query, cursor=page["next_cursor"]))
        after += [(one["event_id"], one["score"]) for one in events_of(page)]
    assert after == before


@pytest.mark.soak
@pytest.mark.parametrize(("query", "how"), crossed(QUERIES[:3] + QUERIES[5:6], HOW), indirect=["how"])
async def test_another_server_continues_the_pages(world: World, query: Query) -> None:
    """A cursor works on any server of the same database, whose caches hold something else."""
    before = [ids_of(page) for page in await pages(world.memory, query)]
    first = await ask(world.memory, query)
    await world.append()
    await world.build()
    async with Memory(world.database.server_dsn, Settings()) as other:
        await ask(other, query)
        rest = await pages(other, replace(query, cursor=first["next_cursor"]))
    assert [ids_of(first), *(ids_of(page) for page in rest)] == before


@pytest.mark.parametrize("then_build", [False, True])
async def test_a_late_commit_shows_on_no_later_page(memory: Memory, database: Database, then_build: bool) -> None:
    """An append with a lower event_seq that commits after page one belongs to the next question, not to page two."""
    await append(memory, conversation(30, seed=1))
    late = LateCommit(database.server_dsn)
    late_seq = await late.begin("garden late")
    results = await append(memory, conversation(10, seed=2, start=100_000))
    assert late_seq < results[0].event_seq
    query = EventNodesQuery(participants=ANA_BEN, order="oldest", query="garden bread river lesson music", limit=5)
    whole = [event_id for page in await pages(memory, query) for event_id in ids_of(page)]

    page = await ask(memory, query)
    shown = ids_of(page)
    await late.commit()
    if then_build:
        await build_now(database.builder_dsn)
    while page["next_cursor"] is not None:
        page = await ask(memory, replace(query, cursor=page["next_cursor"]))
        shown += ids_of(page)
    assert shown == whole
    assert "evt_late" not in shown
    again = [event_id for page in await pages(memory, query) for event_id in ids_of(page)]
    assert sorted(again) == sorted([*whole, "evt_late"])


async def test_a_cursor_expires(database: Database) -> None:
    """After its lifetime a cursor is refused as expired, and the first page can be asked for again."""
    settings = replace(Settings(), retrieval=RetrievalSettings(cursor_lifetime_s=1))
    async with Memory(database.server_dsn, settings) as memory:
        await append(memory, conversation(20))
        query = EventNodesQuery(participants=ANA_BEN, limit=5)
        cursor = (await ask(memory, query))["next_cursor"]
        # Cursors count whole seconds.
        connection = await asyncpg.connect(database.dsn)
        await connection.execute("SELECT pg_sleep(2.1)")
        await connection.close()
        with pytest.raises(errors.CursorExpired):
            await ask(memory, replace(query, cursor=cursor))
        assert (await ask(memory, query))["next_cursor"]


async def test_a_cursor_whose_snapshot_is_gone_expires(memory: Memory, database: Database) -> None:
    """When the snapshot of a cursor is no longer kept, the cursor is refused as expired."""
    await append(memory, conversation(20))
    await build_now(database.builder_dsn)
    query = EventNodesQuery(participants=ANA_BEN, limit=5)
    cursor = (await ask(memory, query))["next_cursor"]
    await append(memory, conversation(5, start=90_000))
    await build_now(database.builder_dsn)
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute(
        "DELETE FROM myria.snapshots WHERE snapshot_id NOT IN (SELECT snapshot_id FROM myria.active_snapshots)"
    )
    await connection.close()
    with pytest.raises(errors.CursorExpired):
        await ask(memory, replace(query, cursor=cursor))


async def test_foreign_cursors_are_refused(memory: Memory, database: Database) -> None:
    """A cursor that was forged, damaged, or made for another query, tool, tenant or asker is refused."""
    await append(memory, conversation(30))
    await build_now(database.builder_dsn)
    query = EventNodesQuery(participants=ANA_BEN, query="garden bread river lesson music", limit=3)
    cursor = (await ask(memory, query))["next_cursor"]
    assert cursor is not None
    damaged = cursor[:40] + ("A" if cursor[40] != "A" else "B") + cursor[41:]
    for forged in ("", "x", "é", "AAAA", cursor + "AAAA", cursor[:-3], damaged, "A" * 20_000):
        if forged:
            with pytest.raises(errors.CursorInvalid):
                await ask(memory, replace(query, cursor=forged))
    for other in (
        replace(query, query="garden"),
        replace(query, masks=Masks.containing(("ana",))),
        replace(query, include_internal=True),
        replace(query, order="oldest"),
        replace(query, limit=4),
        ReferencesQuery(participants=ANA_BEN, query=query.query),
    ):
        with pytest.raises(errors.CursorInvalid):
            await ask(memory, replace(other, cursor=cursor))
    with pytest.raises(errors.CursorInvalid):
        await ask(memory, replace(query, cursor=cursor), tenant="other")
