"""Appending events, memories, notes and turns: each is written with all that is folded of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg
import pytest

from myria import errors
from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.folding import event_log
from myria.notes.kinds import Lifetime
from myria.notes.memories.model import MemoryDraft
from myria.notes.memories.sharing import Keeping
from myria.settings import Settings
from tests.support.events import TENANT, append, conversation, event
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.turns.hosts import Host

T = TypeVar("T")

SETTINGS = Settings()
KEEPING = Keeping(own=("ana",), shared="org")
LIFETIMES: tuple[Lifetime, ...] = ("permanent", "session")
MOST_ROWS = 60
"""Rows that writing one thing may read of any table: far fewer than what the log holds."""


class Watched:
    """What each append reads of every table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[str, int, int]] = []
        watched = self
        append, append_alone = Pool.append, Pool.append_alone

        @asynccontextmanager
        async def watched_append(self: Pool, tenant: str, since: str = "") -> AsyncIterator[Any]:
            async with append(self, tenant, since) as connection:
                before = await _read(connection)
                yield connection
                watched.note(before, await _read(connection))

        async def watched_alone(self: Pool, tenant: str, since: str, events: Sequence[Any]) -> list[asyncpg.Record]:
            pool: Any = self
            async with self.connection() as connection, connection.transaction():
                pool.connection = lambda: _Lent(connection)
                try:
                    before = await _read(connection)
                    rows = await append_alone(self, tenant, since, events)
                    watched.note(before, await _read(connection))
                finally:
                    del pool.connection
            return rows

        monkeypatch.setattr(Pool, "append", watched_append)
        monkeypatch.setattr(Pool, "append_alone", watched_alone)

    def note(self, before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> None:
        """Note what was read of each table between two looks."""
        for table, (scanned, fetched) in after.items():
            scanned_before, fetched_before = before.get(table, (0, 0))
            self.read.append((table, scanned - scanned_before, fetched - fetched_before))


class Losing:
    """Loses the answer of the next append after its commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loses = False
        losing = self
        append, append_alone = Pool.append, Pool.append_alone

        @asynccontextmanager
        async def lost_append(self: Pool, tenant: str, since: str = "") -> AsyncIterator[Any]:
            async with append(self, tenant, since) as connection:
                yield connection
            losing.lose()

        async def lost_alone(self: Pool, tenant: str, since: str, events: Sequence[Any]) -> list[asyncpg.Record]:
            rows = await append_alone(self, tenant, since, events)
            losing.lose()
            return rows

        monkeypatch.setattr(Pool, "append", lost_append)
        monkeypatch.setattr(Pool, "append_alone", lost_alone)

    def lose(self) -> None:
        """Lose an answer, where one is to be lost."""
        if self.loses:
            self.loses = False
            raise errors.DatabaseUnavailable("the answer was lost")

    async def of(self, call: Awaitable[T]) -> T:
        """Return what a call answers, of which the first answer of the database was lost."""
        self.loses = True
        answer = await call
        assert not self.loses
        return answer


async def _read(connection: Any) -> dict[str, tuple[int, int]]:
    """Return how many rows of each table a session has read by scans and by indexes, since it last reported that."""
    rows = await connection.fetch(
        "SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) AS fetched FROM pg_stat_xact_user_tables "
        "WHERE schemaname = 'myria'"
    )
    return {row["relname"]: (row["seq_tup_read"], row["fetched"]) for row in rows}


class _Lent:
    """A connection that is lent for a block and not given back."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def __aenter__(self) -> Any:
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        pass


def keeper(pool: Pool) -> Notes:
    ingest = event_log(pool)
    return Notes(ingest, content_characters=200)


def two_drafts() -> list[Draft]:
    return [Draft(content=f"{name} of one call") for name in ("a note", "another note")]


async def failed(dsn: str) -> dict[str, list[str]]:
    async with Pool(dsn) as pool:
        report = await verify(pool, TENANT, SETTINGS.planner)
    return {check.name: check.failures for check in report.checks if check.failed}


@pytest.mark.parametrize(
    "statistics", ["DELETE FROM pg_statistic WHERE starelid::regclass::text LIKE 'myria.%'", "ANALYZE"]
)
async def test_each_kind_is_written_without_a_scan(
    database: Database, monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    """Events, memories, notes and turns; with hundreds of each, without statistics of any table and with them."""
    await append(database.dsn, conversation(400))
    async with Memory(database.server_dsn, SETTINGS) as memory, Pool(database.server_dsn) as pool:
        notes, host = keeper(pool), Host(memory)
        for number in range(4):
            drafts = [MemoryDraft(agent_id="bot", content=f"{number} {n}") for n in range(100)]
            await memory.memories.keep_all(TENANT, KEEPING, drafts)
        for number in range(100):
            draft = Draft(content=f"word{number} other{number} third{number}")
            await notes.remember(TENANT, ("ana",), draft, contract="memento")
            await host.after(f"t{number}", f"item {number}")
        superuser = await asyncpg.connect(database.superuser_dsn)
        await superuser.execute(statistics)
        await superuser.close()
        watched = Watched(monkeypatch)
        await memory.log.append_events(TENANT, [event(1)])
        await memory.log.append_events(TENANT, [event(2), event(3)])
        await memory.memories.keep(TENANT, KEEPING, MemoryDraft(agent_id="bot", content="another"))
        await memory.memories.keep_all(
            TENANT, KEEPING, [MemoryDraft(agent_id=name, content="of each") for name in "ab"]
        )
        await notes.remember(TENANT, ("ana",), Draft(content="some words that nothing has"), contract="memento")
        await notes.remember_all(TENANT, ("ana",), two_drafts(), contract="memento")
        await host.after("last", "one more")
    big = {"events", "notes", "turns", "note_looks"}
    assert [read for read in watched.read if read[0] in big and read[1]] == []
    assert [read for read in watched.read if read[2] > MOST_ROWS] == []
    assert await failed(database.dsn) == {}


async def test_what_is_folded_is_what_the_log_says(database: Database) -> None:
    """All kinds in any company, one after the other and many at the same time: `verify` finds every row as folded."""
    async with Memory(database.server_dsn, SETTINGS) as memory, Pool(database.server_dsn) as pool:
        notes = keeper(pool)
        hosts = [Host(memory, session=f"s{number}") for number in range(4)]

        async def work(number: int) -> None:
            await memory.log.append_events(TENANT, [event(number, key=f"k{number % 7}")])
            with suppress(errors.DuplicateMemory):
                await memory.memories.keep(
                    TENANT, KEEPING, MemoryDraft(agent_id="bot", content=f"memory {number % 9}", tags=("a b",))
                )
            with suppress(errors.NoteExists):
                await notes.remember(TENANT, ("ana",), Draft(content=f"note {number % 11}"), contract="memento")
            await hosts[number % 4].after(f"t{number}", f"I live in town {number}" if number % 3 else f"item {number}")

        await asyncio.wait_for(asyncio.gather(*(work(number) for number in range(40))), PATIENCE_S)
        async with pool.read(TENANT) as connection:
            counted = await connection.fetchrow(
                "SELECT (SELECT count(*) FROM myria.notes n WHERE n.event_type IS NOT NULL) AS memories, "
                "(SELECT count(*) FROM myria.turns) AS turns, "
                "(SELECT count(*) FROM myria.events WHERE source_event_key LIKE 'k%') AS keyed"
            )
    assert counted is not None
    assert (counted["memories"], counted["turns"], counted["keyed"]) == (9, 40, 7)
    assert await failed(database.dsn) == {}


async def test_a_commit_that_nobody_heard_of_is_found_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of an append is lost after its commit: the attempt after it stores nothing twice, of any kind."""
    async with Memory(database.server_dsn, SETTINGS) as memory, Pool(database.server_dsn) as pool:
        host = Host(memory)
        await host.after("first", "one")
        of = Losing(monkeypatch).of
        draft = MemoryDraft(agent_id="bot", content="kept once")
        (result,) = await of(memory.log.append_events(TENANT, [event(1)]))
        results = await of(memory.log.append_events(TENANT, [event(2), event(3)]))
        kept = await of(memory.memories.keep(TENANT, KEEPING, draft))
        note = await of(keeper(pool).remember(TENANT, ("ana",), Draft(content="a note kept once"), contract="memento"))
        two = await of(keeper(pool).remember_all(TENANT, ("ana",), two_drafts(), contract="memento"))
        turn = await of(host.after("second", "two"))
        async with pool.read(TENANT) as connection:
            counted = await connection.fetchrow(
                "SELECT (SELECT count(*) FROM myria.notes n WHERE n.event_type IS NOT NULL) AS memories, "
                "(SELECT count(*) FROM myria.turns) AS turns, "
                "(SELECT count(*) FROM myria.notes n WHERE n.kind <> 'episodic') AS notes"
            )
    assert [one.deduplicated for one in (result, *results)] == [False] * 3
    assert (kept.is_new, turn.is_new) == (True, True)
    assert note.note_id
    assert [one.created for one in two] == [True] * 2
    assert counted is not None
    assert tuple(counted) == (1, 2, 3)
    assert await failed(database.dsn) == {}


async def test_rows_of_memories_are_those_of_their_own_events(database: Database) -> None:
    """Batches with a caller's key, inserted in the order of their keys, beside batches and events without."""
    async with Memory(database.server_dsn, SETTINGS) as memory, Pool(database.server_dsn) as pool:

        async def batch(number: int) -> None:
            drafts = [MemoryDraft(agent_id=f"bot{n}", content=f"{number} {n}") for n in range(20)]
            key = f"batch {number}" if number % 2 else None
            await memory.memories.keep_all(TENANT, KEEPING, drafts, key=key)

        async def some(number: int) -> None:
            await memory.log.append_events(TENANT, [event(number)])

        await asyncio.wait_for(
            asyncio.gather(*(work(number) for number in range(6) for work in (batch, some))), PATIENCE_S
        )
        async with pool.read(TENANT) as connection:
            rows = await connection.fetch(
                "SELECT n.created_at = e.occurred_at AS same_time, e.payload->'note'->>'id' = n.note_id AS same_id, "
                "e.payload->'note'->'memory'->>'agent_id' = n.agent_id AS same_agent "
                "FROM myria.notes n JOIN myria.events e USING (tenant_id, event_seq)"
            )
    assert len(rows) == 120
    assert all(row["same_time"] and row["same_id"] and row["same_agent"] for row in rows)
    assert await failed(database.dsn) == {}


async def test_memories_that_are_alike_are_kept_as_others_are(database: Database) -> None:
    """Calls that share a commit, with tags and importance or without: each has the time of its call, and no repeat."""
    common = {"tags": ("a", "b-c"), "importance": 0.25, "event_type": "said", "memory_type": "entity"}
    async with Memory(database.server_dsn, SETTINGS) as memory, Pool(database.server_dsn) as pool:

        async def call(number: int) -> None:
            more: dict[str, Any] = common if number % 2 else {}
            drafts = [MemoryDraft(agent_id="bot", content=f"{n} {number % 8}", **more) for n in range(5)]
            await memory.memories.keep_all(TENANT, KEEPING, drafts, now=1_700_000_000_000_000 + number)

        await asyncio.wait_for(asyncio.gather(*(call(number) for number in range(12))), PATIENCE_S)
        async with pool.read(TENANT) as connection:
            rows = await connection.fetch(
                "SELECT n.created_at = e.occurred_at AS same_time, e.payload->'note'->>'id' = n.note_id AS same_id, "
                "n.tags, n.given_importance, n.event_type, n.kind "
                "FROM myria.notes n JOIN myria.events e USING (tenant_id, event_seq)"
            )
            times = await connection.fetchval("SELECT count(DISTINCT created_at) FROM myria.notes")
    assert len(rows) == 40
    assert times == 8
    assert all(row["same_time"] and row["same_id"] for row in rows)
    given = {(tuple(row["tags"]), row["given_importance"], row["event_type"], row["kind"]) for row in rows}
    assert given == {(("a", "b-c"), 0.25, "said", "entity"), ((), None, "general", "episodic")}
    assert await failed(database.dsn) == {}


async def test_what_maintenance_looks_at_enters_its_queue(database: Database) -> None:
    """Decisions are looked at, other memories are not, whichever were kept before on the same connection."""
    async with Memory(database.server_dsn, SETTINGS) as memory, Pool(database.server_dsn) as pool:
        for call, kind in enumerate(("episodic", "decision", "entity", "decision")):
            drafts = [MemoryDraft(agent_id="bot", content=f"{n} {call}", memory_type=kind) for n in range(3)]
            await memory.memories.keep_all(TENANT, KEEPING, drafts)
        async with pool.read(TENANT) as connection:
            rows = await connection.fetch(
                "SELECT n.kind FROM myria.note_looks JOIN myria.notes n USING (tenant_id, note_id)"
            )
    assert [row["kind"] for row in rows] == ["decision"] * 6


async def test_a_note_alone_is_what_it_would_be_among_others(database: Database) -> None:
    """Of each kind, weight, anchor and lifetime: its row, when maintenance looks at it, and when it ends."""
    drafts = [
        Draft(content=f"{kind} {weight} {anchor} {held}", kind=kind, importance=weight, anchor=anchor, lifetime=held)
        for kind in (None, "fact", "decision", "preference")
        for weight in (None, 0.25, 0.9)
        for anchor in (False, True)
        for held in LIFETIMES
    ]
    now = 1_700_000_000_000_000
    async with Pool(database.server_dsn) as pool:
        notes = keeper(pool)
        for draft in drafts:
            await notes.remember(TENANT, ("ana",), draft, contract="memento", now=now)
        await notes.remember_all(TENANT, ("ben",), drafts, contract="memento", now=now)
        async with pool.read(TENANT) as connection:
            rows = await connection.fetch(
                "SELECT s.participants, n.kind, n.topic, n.importance, n.anchor, n.context_id, n.session, "
                "encode(n.digest, 'hex') AS digest, n.created_at, n.changed_at, n.live, n.version, n.lasts_days, "
                "n.first_seq = n.event_seq AS is_first, e.payload->>'text' AS text, l.look_at, l.ends_at, l.phase "
                "FROM myria.notes n JOIN myria.scopes s USING (tenant_id, scope_id) "
                "JOIN myria.events e USING (tenant_id, event_seq) "
                "LEFT JOIN myria.note_looks l USING (tenant_id, note_id) ORDER BY n.digest"
            )
    of = {name: [tuple(row)[1:] for row in rows if row["participants"] == [name]] for name in ("ana", "ben")}
    assert len(of["ana"]) == len(drafts)
    assert of["ana"] == of["ben"]
    assert {row["look_at"] is None for row in rows} == {False}
    assert {row["ends_at"] is None for row in rows} == {False, True}
    assert await failed(database.dsn) == {}
