"""An agent in very many scopes: the answers of single scopes, and once warm no work per scope."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from myria import errors
from myria.db.queries import sql
from myria.index import Corpus, Doc, Pack, Timeline, decode, pack
from myria.log.event import NewEvent
from myria.log.masks import Mask, Masks
from myria.memory import Memory
from myria.search import read_slots, searching, unindexed, visible_blocks
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import RetrievalSettings, Settings
from tests.reads.asking import Query, append, ask, events_of
from tests.support.building import build_now
from tests.support.counts import SOAK
from tests.support.events import TENANT, event
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

WORDS = ("garden", "tomato", "bridge", "river", "bread", "piano", "train", "doctor", "kitten", "harbour")
AGENT = "agent"
FEW_AND_MANY = (70, 280) if SOAK else (20, 30)


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many scopes are read as very many are."""
    monkeypatch.setattr(unindexed, "FEW_SCOPES", FEW_AND_MANY[0] - 6)


def _events(rng: random.Random, scopes: range, each: int, *, internal: float = 0.0) -> list[NewEvent]:
    """Return events of scopes of the agent and a person, some with a third, in an order of their own."""
    made = []
    for number in scopes:
        people = (AGENT, f"user {number}", "carla") if number % 5 == 0 else (AGENT, f"user {number}")
        made += [
            event(
                rng.randint(0, 40_000) * 30,
                " ".join(rng.choices(WORDS, k=4)),
                participants=people,
                internal=rng.random() < internal,
                channel=rng.choice(("chat", "mail")),
            )
            for _ in range(each)
        ]
    rng.shuffle(made)
    return made


@contextmanager
def _counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count statements, the blocks that are decoded or packed, and the events that are analysed."""
    work: Counter[str] = Counter()
    connection_class: Any = asyncpg.Connection
    execute = connection_class._do_execute
    of_payload = Doc.of_payload.__func__  # type: ignore[attr-defined]

    async def executing(self: Any, query: str, *rest: Any, **named: Any) -> Any:
        work["statements"] += 1
        return await execute(self, query, *rest, **named)

    def decoding(raw: bytes) -> Any:
        work["decoded"] += 1
        return decode(raw)

    def packing(blocks: Any) -> Any:
        work["packed"] += 1
        return pack(blocks)

    def analysing(cls: Any, *rest: Any, **named: Any) -> Doc:
        work["analysed"] += 1
        made: Doc = of_payload(cls, *rest, **named)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(asyncpg.Connection, "_do_execute", executing)
        patched.setattr(visible_blocks, "decode", decoding)
        patched.setattr(visible_blocks, "pack", packing)
        patched.setattr(Doc, "of_payload", classmethod(analysing))
        yield work


@pytest.mark.soak
@pytest.mark.usefixtures("few_are_many")
async def test_a_warm_read_costs_no_work_per_scope(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half as many scopes more, in a soak run four times as many, cost the same statements and nothing else, with a
    tail over many scopes too; what is new costs what it is."""
    questions: list[Query] = [
        EventNodesQuery(participants=(AGENT,), query="garden piano", limit=5),
        ReferencesQuery(participants=(AGENT,), query="garden piano", max_nodes=9),
    ]
    taken = []
    for scopes in FEW_AND_MANY:
        tenant = f"t{scopes}"
        rng = random.Random(scopes)
        async with Memory(database.server_dsn, Settings()) as memory:
            for at in range(2):
                part = _events(rng, range(scopes), 2)
                for start in range(0, len(part), 100):
                    await memory.log.append_events(tenant, part[start : start + 100])
                if at == 0:
                    await build_now(database.builder_dsn, tenant=tenant)
            with _counted(monkeypatch) as cold:
                for query in questions:
                    await ask(memory, query, tenant=tenant)
            assert cold["decoded"] == 0
            assert cold["packed"] == 1
            assert cold["analysed"] == 2 * scopes
            with _counted(monkeypatch) as warm:
                for query in questions:
                    await ask(memory, query, tenant=tenant)
            assert set(warm) == {"statements"}
            await memory.log.append_events(tenant, _events(rng, range(scopes + 1, scopes + 2), 1))
            with _counted(monkeypatch) as topped_up:
                for query in questions:
                    await ask(memory, query, tenant=tenant)
            assert topped_up["analysed"] == 1
            assert topped_up["decoded"] == topped_up["packed"] == 0
            taken.append((cold["statements"], warm["statements"], topped_up["statements"]))
    assert taken[0][1:] == taken[1][1:]
    assert taken[1][0] <= taken[0][0] + 1  # blocks are read by the page


@pytest.mark.soak
@pytest.mark.usefixtures("few_are_many")
async def test_several_masks_cost_a_statement_each(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once warm, several masks cost one statement more for each at most, whatever the scopes; cold three, and a publish
    two. Nothing is decoded, packed or analysed twice because two masks see it."""
    one = Masks.containing((AGENT,))
    several = Masks.of([Mask((AGENT,)), Mask(("carla",)), Mask(("user 1",)), Mask(("carla", "pool"), exact=True)])
    taken = []
    for scopes in FEW_AND_MANY:
        tenant = f"t{scopes}"
        rng = random.Random(scopes)
        async with Memory(database.server_dsn, Settings()) as memory:
            for at in range(2):
                told = [*_events(rng, range(scopes), 2), event(at, "garden", participants=("carla", "pool"))]
                for start in range(0, len(told), 100):
                    await memory.log.append_events(tenant, told[start : start + 100])
                if at == 0:
                    await build_now(database.builder_dsn, tenant=tenant)
        costs: dict[str, list[Counter[str]]] = {}
        async with (
            Memory(database.server_dsn, Settings()) as asked_by_one,
            Memory(database.server_dsn, Settings()) as asked_by_several,
        ):
            for step in ("cold", "warm", "new event", "published"):
                if step == "new event":
                    await asked_by_one.log.append_events(tenant, [event(9, "garden", participants=(AGENT, "carla"))])
                if step == "published":
                    await build_now(database.builder_dsn, tenant=tenant)
                for memory, masks in ((asked_by_one, one), (asked_by_several, several)):
                    with _counted(monkeypatch) as work:
                        await ask(memory, EventNodesQuery(masks=masks, query="garden piano", limit=5), tenant=tenant)
                    costs.setdefault(step, []).append(work)
        for step, more in (("cold", 3), ("warm", 1), ("new event", 2), ("published", 2)):
            single, union = costs[step]
            assert union["statements"] <= single["statements"] + more * (len(several) - 1), (step, costs)
            assert union["analysed"] <= single["analysed"] + 2, (step, costs)
            assert union["packed"] + union["decoded"] <= single["packed"] + single["decoded"] + 1, (step, costs)
        taken.append([union["statements"] for step, (_, union) in costs.items() if step in ("warm", "new event")])
    assert taken[0] == taken[1]


async def test_a_publish_costs_what_it_changed(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a build that changed three scopes of sixty, three blocks are read, and the answer is that of a fresh
    process; so it is after a rollback."""
    rng = random.Random(3)
    query = EventNodesQuery(participants=(AGENT,), query="river bread", limit=200)
    async with Memory(database.server_dsn, Settings()) as memory:
        await append(memory, _events(rng, range(60), 3))
        await build_now(database.builder_dsn)
        await ask(memory, query)
        await append(memory, _events(rng, range(7, 10), 2))
        await build_now(database.builder_dsn)
        read: list[int] = []

        def packing(blocks: list[tuple[int, bytes]]) -> Pack:
            read.append(len(blocks))
            return pack(blocks)

        with monkeypatch.context() as patched:
            patched.setattr(visible_blocks, "pack", packing)
            after = await ask(memory, query)
        assert read == [3]
        assert after == await _fresh(database, query)
        await memory.registry.rollback(TENANT, None)
        assert await ask(memory, query) == await _fresh(database, query)


async def _fresh(database: Database, query: Query) -> Any:
    async with Memory(database.server_dsn, Settings()) as memory:
        return await ask(memory, query)


@pytest.mark.parametrize("seed", range(2))
async def test_shared_scopes_answer_as_single_ones(
    database: Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whatever was appended, built and rolled back before: packed or one by one, answers have the same bytes."""
    rng = random.Random(seed)
    async with (
        Memory(database.server_dsn, Settings()) as packed,
        Memory(database.server_dsn, Settings()) as single,
    ):
        cursors: list[tuple[Query, Any]] = []
        for step in range(7):
            first = rng.randint(0, 12)
            await append(packed, _events(rng, range(first, first + rng.randint(1, 14)), 2, internal=0.2))
            if rng.random() < 0.6:
                await build_now(database.builder_dsn)
            elif step > 3 and rng.random() < 0.4:
                await packed.registry.rollback(TENANT, None)
            asked = [_query(rng) for _ in range(5)]
            for query in [*asked, *[replace(query, cursor=cursor) for query, cursor in cursors[-4:]]]:
                answers = []
                for memory, shared_from, few in ((packed, 1, 0), (single, 10**9, 10**9)):
                    monkeypatch.setattr(visible_blocks, "SHARED_FROM", shared_from)
                    monkeypatch.setattr(unindexed, "FEW_SCOPES", few)
                    answers.append(await ask(memory, query))
                if query.cursor is None and answers[0]["next_cursor"]:
                    cursors.append((query, answers[0]["next_cursor"]))
                assert _comparable(answers[0]) == _comparable(answers[1])
        assert len(cursors) > 5


def _query(rng: random.Random) -> Query:
    common: dict[str, Any] = {
        "participants": rng.choice(((AGENT,), (AGENT, "carla"), (AGENT, "user 3"), ("carla",))),
        "query": rng.choice((None, " ".join(rng.sample(WORDS, 2)), "what did user 3 say about bread")),
        "include_internal": rng.random() < 0.3,
        "channel": rng.choice((None, None, "mail")),
    }
    if rng.random() < 0.5:
        return EventNodesQuery(**common, limit=rng.randint(1, 12))
    return ReferencesQuery(**common, max_nodes=rng.randint(3, 20))


def _comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without its cursor, which names the transactions of its moment."""
    return {**answer, "next_cursor": answer["next_cursor"] is not None}


async def test_heavy_reads_take_turns_and_small_ones_do_not_wait(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight heavy reads at once hold one connection in all, however long they take; a small read passes them, and a
    heavy one that cannot wait any longer is refused with the coded error."""
    monkeypatch.setattr(read_slots, "HEAVY_SCOPES", 20)
    monkeypatch.setattr(read_slots, "PATIENCE_S", PATIENCE_S)
    rng = random.Random(1)
    settings = replace(Settings(), retrieval=RetrievalSettings(heavy_reads=1))
    async with Memory(database.server_dsn, settings) as memory:
        await append(memory, _events(rng, range(40), 2))
        await build_now(database.builder_dsn)
        holds, held = asyncio.Event(), asyncio.Event()
        gather = visible_blocks.BlockReader.visible

        async def holding(self: Any, connection: Any, snapshot: Any) -> Any:
            if len(snapshot.visible) > 20:
                holds.set()
                await held.wait()
            return await gather(self, connection, snapshot)

        monkeypatch.setattr(visible_blocks.BlockReader, "visible", holding)

        def heavily(word: str) -> Coroutine[Any, Any, dict[str, Any]]:
            return ask(memory, EventNodesQuery(participants=(AGENT,), query=word))

        heavy = [asyncio.create_task(heavily(WORDS[0]))]
        # The first is known to be heavy, and holds the slot, before the others ask: what it has resolved is cached,
        # so that one that asked beside it might be light.
        async with asyncio.timeout(PATIENCE_S):
            await holds.wait()
            heavy += [asyncio.create_task(heavily(word)) for word in WORDS[1:8]]
            while memory.retrieval.slots.waiting < 7:
                await asyncio.sleep(0.01)
        assert memory.database.in_use == 1
        small = await ask(memory, EventNodesQuery(participants=(AGENT, "user 3"), query="garden"))
        assert small["counts"]["events"] <= 2
        monkeypatch.setattr(read_slots, "MOST_WAITING", 7)
        with pytest.raises(errors.Overloaded):
            await memory.retrieval.query_event_nodes(TENANT, EventNodesQuery(participants=(AGENT,), query="piano"))
        held.set()
        answers = await asyncio.gather(*heavy)
        assert all(list(events_of(answer)) for answer in answers)
        assert memory.retrieval.slots.waiting == 0


async def test_heavy_reads_rest_while_others_are_served(database: Database) -> None:
    """A slot rests after a read beside which something was appended or a small read answered, and the next heavy read
    waits for that; it does not where nothing else was asked."""
    async with Memory(database.server_dsn, Settings()) as memory:
        shared = memory.retrieval.slots

        async def small(_: Any, slot: read_slots.ReadSlot) -> None:
            slot.weigh(scopes=1, events=1)

        async def alone(_: Any, slot: read_slots.ReadSlot) -> None:
            slot.weigh(events=read_slots.HEAVY_EVENTS + 1)

        async def beside_an_append(connection: Any, slot: read_slots.ReadSlot) -> None:
            await alone(connection, slot)
            await append(memory, _events(random.Random(1), range(1), 1))

        async def beside_a_small_read(connection: Any, slot: read_slots.ReadSlot) -> None:
            await alone(connection, slot)
            await shared.read((TENANT, Masks.containing(("user 1",))), small)

        for work, rests in ((alone, 0), (beside_an_append, 1), (alone, 0), (beside_a_small_read, 1), (alone, 0)):
            await shared.read((TENANT, Masks.containing((AGENT,))), work)
            assert shared.resting == rests


async def test_a_long_tail_is_read_once_for_all_scopes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail of several events per scope is read by its numbers, which takes less than looking up each scope; a far
    longer one is read scope by scope. The answers are the same."""
    rng = random.Random(4)
    query = EventNodesQuery(participants=(AGENT,), query="train doctor", limit=20)
    statements: list[str] = []
    connection_class: Any = asyncpg.Connection
    execute = connection_class._do_execute

    async def executing(self: Any, text: str, *rest: Any, **named: Any) -> Any:
        statements.append(text)
        return await execute(self, text, *rest, **named)

    async with Memory(database.server_dsn, Settings()) as memory:
        for _ in range(3):
            await append(memory, _events(rng, range(unindexed.FEW_SCOPES + 6), 1))
    monkeypatch.setattr(asyncpg.Connection, "_do_execute", executing)
    short = _comparable(await _fresh(database, query))
    assert sql("events.short_tail") in statements
    assert not {sql("events.tail"), sql("events.tail_length")} & set(statements)
    monkeypatch.setattr(unindexed, "_EVENTS_PER_LOOKUP", 1)
    assert _comparable(await _fresh(database, query)) == short
    assert sql("events.tail") in statements


async def test_heavy_timelines_are_laid_out_beside_the_loop(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a heavy read ranks is laid out by a thread, and kept until the tail changes."""
    monkeypatch.setattr(searching, "RANKED_IN_PLACE", 10)
    of = Timeline.of
    made_by: list[threading.Thread] = []

    def laying_out(corpus: Corpus) -> Timeline:
        made_by.append(threading.current_thread())
        return of(corpus)

    monkeypatch.setattr(Timeline, "of", laying_out)
    rng = random.Random(9)
    async with Memory(database.server_dsn, Settings()) as memory:
        await append(memory, _events(rng, range(12), 2))
        await build_now(database.builder_dsn)
        for step in range(3):
            await append(memory, _events(rng, range(2), 1))
            for word in ("garden", "river", "nothing at all like it"):
                await ask(memory, EventNodesQuery(participants=(AGENT,), query=word))
            assert len(made_by) == step + 1
    assert threading.main_thread() not in made_by


async def test_a_cold_read_packs_as_much_as_memory_allows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scopes are resolved in one statement; their blocks are read by the page, and no block is packed twice."""
    monkeypatch.setattr(visible_blocks, "_READ_AT_ONCE", 10)
    monkeypatch.setattr(visible_blocks, "_BYTES_AT_ONCE", 5_000)
    rng = random.Random(12)
    async with Memory(database.server_dsn, Settings()) as memory:
        await append(memory, [made for number in range(60) for made in _events(rng, range(number, number + 1), 2)])
        await build_now(database.builder_dsn)
    packed: list[int] = []
    statements: Counter[str] = Counter()
    connection_class: Any = asyncpg.Connection
    execute = connection_class._do_execute

    def packing(blocks: Any) -> Any:
        packed.append(len(blocks))
        return pack(blocks)

    async def executing(self: Any, text: str, *rest: Any, **named: Any) -> Any:
        statements[text] += 1
        return await execute(self, text, *rest, **named)

    monkeypatch.setattr(visible_blocks, "pack", packing)
    monkeypatch.setattr(asyncpg.Connection, "_do_execute", executing)
    answer = await _fresh(database, EventNodesQuery(participants=(AGENT,), query="garden", limit=200))
    assert len(list(events_of(answer))) > 25
    assert sum(packed) == 60
    assert len(packed) > 2
    assert statements[sql("retrieval.visible_trees")] == 1


async def test_packs_of_publishes_are_joined(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of what single publishes changed do not pile up: their scopes are packed again, and all only when much of
    the packs is outdated. The answer is that of a fresh process."""
    rng = random.Random(5)
    query = EventNodesQuery(participants=(AGENT,), query="river bread", limit=200)
    packed: list[int] = []

    def packing(blocks: list[tuple[int, bytes]]) -> Pack:
        packed.append(len(blocks))
        return pack(blocks)

    monkeypatch.setattr(visible_blocks, "pack", packing)
    monkeypatch.setattr(visible_blocks, "MOST_ADDED", 2)
    async with Memory(database.server_dsn, Settings()) as memory:
        await append(memory, _events(rng, range(30), 3))
        await build_now(database.builder_dsn)
        await ask(memory, query)
        for first, last in ((0, 1), (1, 2), (2, 3), (1, 2), (5, 18), (0, 1)):
            await append(memory, _events(rng, range(first, last), 2))
            await build_now(database.builder_dsn)
            after = await ask(memory, query)
            assert after == await _fresh(database, query)
        del packed[2::2]  # those of fresh processes
        assert packed == [30, 1, 1, 3, 1, 16, 30]
