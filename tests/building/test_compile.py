"""What a build makes of the log."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myria import errors
from myria.builds import Outcome, compilation, subjects, tasks
from myria.builds.blocks import PlannedDocs
from myria.builds.capture import start_build
from myria.builds.compilation import compile_scope
from myria.builds.events import ScopeReads
from myria.builds.finish import end_without_result
from myria.builds.model import RunningBuild
from myria.builds.trees import ScopeTree
from myria.builds.verify import verify
from myria.builds.versions import fingerprint
from myria.db.database import Database as Pool
from myria.db.database import PoolOptions
from myria.index import Doc, Piece, splice
from myria.text import terms, words_in
from myria.topics.model import PlanEvent
from tests.support import builds
from tests.support.counts import examples
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Database, Databases

PAIRS = (("ana", "ben"), ("ana", "ben", "chloé"), ("agent_1", "ana"))


async def test_first_build_publishes_every_event_that_counts(database: Database) -> None:
    """The first build publishes trees over all non-internal events, each scope's exactly as planned in memory."""
    for number, pair in enumerate(PAIRS):
        await append(database.server_dsn, conversation(80, seed=number, participants=pair, internal_share=0.1))

    built = await builds.build(database)

    assert built.outcome is Outcome.SUCCEEDED
    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert await builds.value(database, "SELECT cutoff FROM myria.snapshots") == cutoff
    assert await builds.roots(database) == await builds.planned(database, cutoff)
    counted = await builds.value(database, "SELECT count(*) FROM myria.events WHERE NOT internal")
    assert built.counts["events_new"] == counted
    assert built.counts["rows_scope_roots"] == len(PAIRS)


async def test_build_of_an_empty_log_publishes_an_empty_snapshot(database: Database) -> None:
    """A build without any event ends in a snapshot with cutoff 0 and no trees."""
    built = await builds.build(database)

    assert built.outcome is Outcome.SUCCEEDED
    assert await builds.roots(database) == {}


async def test_build_without_news_writes_no_tree(database: Database) -> None:
    """A forced build that finds nothing new publishes a snapshot that shares everything with its parent."""
    await append(database.server_dsn, conversation(40))
    await builds.build(database)
    before = await builds.roots(database)

    built = await builds.build(database, force=True)

    assert built.outcome is Outcome.SUCCEEDED
    assert not {name for name in built.counts if name.startswith("rows")}
    assert await builds.roots(database) == before


async def test_internal_events_alone_make_no_tree(database: Database) -> None:
    """A scope of nothing but internal events has no root, in a first and in a later build."""
    await append(database.server_dsn, [event(1, "secret", internal=True), event(2, "secret", internal=True)])
    await builds.build(database)
    await append(database.server_dsn, [event(3, "secret", internal=True)])
    await builds.build(database)

    assert await builds.roots(database) == {}


async def test_untouched_scopes_cost_no_row(database: Database) -> None:
    """A build writes rows only for the scopes that have news, and readers still find the others."""
    for number, pair in enumerate(PAIRS):
        await append(database.server_dsn, conversation(60, seed=number, participants=pair))
    await builds.build(database)
    await append(database.server_dsn, conversation(10, seed=9, participants=PAIRS[0], start=10_000_000))

    built = await builds.build(database)

    assert built.counts["scopes"] == 1
    assert built.counts["rows_scope_roots"] == 1
    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert await builds.roots(database) == await builds.planned(database, cutoff)


async def test_full_build_equals_incremental(database: Database) -> None:
    """A full build of what increments made writes nothing: the trees are the same."""
    for part in range(4):
        await append(database.server_dsn, conversation(30, seed=part, start=part * 5000))
        await builds.build(database)
    before = await builds.roots(database)

    built = await builds.build(database, full=True)

    assert built.counts["scopes_changed"] == 0
    assert not any(built.counts.get(f"rows_{table}", 0) for table in ("nodes", "renderings", "search_blocks"))
    assert await builds.roots(database) == before


@pytest.mark.parametrize(("added", "within_one"), [(5, True), (30, False)])
async def test_only_a_small_update_is_planned_within_one_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch, added: int, within_one: bool
) -> None:
    """A transaction must not stay open longer, the more events are new."""
    open_blocks: list[int] = []

    class Watched(ScopeReads):
        """Knows how many blocks of reads share a transaction now."""

        blocks = 0

        @asynccontextmanager
        async def at_once(self) -> AsyncIterator[None]:
            """Count the block while it is open."""
            async with super().at_once():
                Watched.blocks += 1
                try:
                    yield
                finally:
                    Watched.blocks -= 1

    def noting_blocks(planning: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            open_blocks.append(Watched.blocks)
            return planning(*arguments, **named)

        return noted

    await append(database.server_dsn, conversation(60))
    await builds.build(database)
    monkeypatch.setattr(compilation, "_CHANGES_AT_ONCE", 10)
    monkeypatch.setattr(compilation, "ScopeReads", Watched)
    for module, name in ((compilation, "plan_unit"), (compilation, "assemble"), (subjects, "update_subjects")):
        monkeypatch.setattr(module, name, noting_blocks(getattr(module, name)))
    await append(database.server_dsn, conversation(added, seed=9, start=10_000_000))

    await builds.build(database)

    assert len(open_blocks) >= 3
    assert all((blocks > 0) is within_one for blocks in open_blocks)


async def test_other_planner_settings_make_every_scope_dirty(database: Database) -> None:
    """After a change of planner settings the next build plans every scope anew, and only that one."""
    for number, pair in enumerate(PAIRS):
        await append(database.server_dsn, conversation(60, seed=number, participants=pair))
    await builds.build(database)
    other = builds.settings(planner={"leaf_max": 6})

    built = await builds.build(database, configured=other)
    again = await builds.build(database, configured=other)

    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert built.counts["scopes"] == len(PAIRS)
    assert await builds.roots(database) == await builds.planned(database, cutoff, configured=other)
    assert "scopes" not in again.counts


async def test_tenants_do_not_meet(database: Database) -> None:
    """Two tenants with equal participants and texts have their own snapshots, numbers and trees."""
    await append(database.server_dsn, conversation(30), tenant="one")
    await append(database.server_dsn, conversation(50), tenant="two")

    first = await builds.build(database, tenant="one")
    second = await builds.build(database, tenant="two")

    assert first.counts["events_new"] == 30
    assert second.counts["events_new"] == 50
    numbers = await builds.rows(database, "SELECT tenant_id, number FROM myria.snapshots ORDER BY 1", tenant="*")
    assert numbers == [{"tenant_id": "one", "number": 1}, {"tenant_id": "two", "number": 1}]


async def test_a_scope_outgrows_its_search_block(database: Database) -> None:
    """When a tree grows past one block its parts get blocks of their own, in order of time."""
    await append(database.server_dsn, conversation(2000, seed=3))
    await builds.build(database)
    one = await builds.value(database, "SELECT cardinality(blocks) FROM myria.scope_roots")
    await append(database.server_dsn, conversation(200, seed=4, start=200_000))

    await builds.build(database)

    snapshot_id = await builds.value(database, "SELECT snapshot_id FROM myria.active_snapshots")
    contents = await builds.contents(database, snapshot_id)
    many = await builds.value(
        database, "SELECT cardinality(blocks) FROM myria.scope_roots ORDER BY number DESC LIMIT 1"
    )
    assert one == 1
    assert many > 1
    assert len(contents) == 1


async def test_leaves_of_a_long_scope_are_those_that_its_blocks_name(database: Database) -> None:
    """They are read from the blocks, without walking beneath them."""
    await append(database.server_dsn, conversation(2500, seed=3))
    await builds.build(database)
    newest = "SELECT root_rendering_id FROM myria.scope_roots ORDER BY number DESC LIMIT 1"

    async def leaves() -> list[bytes]:
        root = await builds.value(database, newest)
        async with Pool(database.dsn) as pool:
            ids = await ScopeTree(ScopeReads(pool, TENANT), ()).leaf_node_ids(root)
        return sorted(ids[at : at + 32] for at in range(0, len(ids), 32))

    named = await leaves()
    assert await builds.value(database, newest.replace("root_rendering_id", "cardinality(blocks)")) > 1
    assert len(named) == await builds.value(database, "SELECT count(*) FROM myria.nodes WHERE node_type = 'leaf_topic'")
    async with Pool(database.dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute("UPDATE myria.search_blocks SET leaf_ids = ''")
    assert len(await leaves()) < len(named)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), parts=st.integers(1, 6), late=st.booleans())
def test_any_split_into_builds_gives_the_same_trees(databases: Databases, seed: int, parts: int, late: bool) -> None:
    """However a log is split into builds, and in whatever order its events arrive, the trees are the same."""

    async def run(database: Database) -> None:
        chosen = random.Random(seed)
        events = [
            one
            for number, pair in enumerate(PAIRS)
            for one in conversation(40, seed=seed + number, participants=pair, internal_share=0.05)
        ]
        events.sort(key=lambda one: one.timestamp)
        if late:
            chosen.shuffle(events)
        cuts = sorted(chosen.sample(range(1, len(events)), parts - 1)) if parts > 1 else []
        for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
            await append(database.server_dsn, events[start:end])
            await builds.build(database)
            cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
            assert await builds.roots(database) == await builds.planned(database, cutoff)

    with databases.fresh() as database:
        asyncio.run(run(database))


async def test_spliced_blocks_equal_fresh_ones(database: Database) -> None:
    """Search blocks put together from older ones are byte for byte what a full build of the same log writes."""
    parts = [conversation(300, seed=part, start=(part * 7919) % 5000) for part in range(4)]
    parts[1] = [one._replace(timestamp=one.timestamp + 90_000_000_000) for one in parts[1]]
    for part in parts:
        await append(database.server_dsn, part)
        built = await builds.build(database)
    spliced = await builds.value(database, "SELECT block FROM myria.search_blocks ORDER BY length(block) DESC LIMIT 1")

    async with Pool(database.dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute("DELETE FROM myria.search_blocks")
    fresh = await builds.build(database, full=True)

    assert built.counts["events_indexed"] < 400
    assert fresh.counts["events_indexed"] == 1200
    assert await builds.value(database, "SELECT block FROM myria.search_blocks") == spliced


async def test_a_log_restored_into_another_cluster_is_built_whole(database: Database) -> None:
    """When transaction ids began anew below the parent's bound, the new events are found all the same."""
    await append(database.server_dsn, conversation(30))
    await builds.build(database)
    async with Pool(database.superuser_dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute("UPDATE myria.snapshots SET tail_xid = '9999999999'::xid8")
    await append(database.server_dsn, conversation(10, seed=2, start=90_000))

    await builds.build(database)

    assert await builds.roots(database) == await builds.planned(database, 40)


async def test_each_text_is_analysed_once_in_a_build(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan, descriptions and search block of an event share one analysis of its text, however long that is."""
    analysed: Counter[str] = Counter()

    def counted(analyse: Callable[[str], Any]) -> Callable[[str], Any]:
        def counting(text: str) -> Any:
            analysed[text] += 1
            return analyse(text)

        return counting

    monkeypatch.setattr("myria.topics.model.words_in", counted(words_in))
    monkeypatch.setattr("myria.index.block.terms", counted(terms))
    long = " ".join(f"kiln{number}" for number in range(2_000))
    texts = [f"the kiln of day {number}" for number in range(120)] + [long]
    await append(database.server_dsn, [event(60 * at, text) for at, text in enumerate(texts)])

    first = await builds.build(database)

    assert {text: analysed[text] for text in texts} == dict.fromkeys(texts, 1)
    assert first.counts["events_analysed"] == len(texts)

    analysed.clear()
    late = [f"glaze {number}" for number in range(5)]
    await append(database.server_dsn, [event(60 * 130 + at, text) for at, text in enumerate(late)])
    second = await builds.build(database)

    assert {text: analysed[text] for text in late} == dict.fromkeys(late, 1)
    assert max(analysed.values()) == 1
    assert second.counts["events_analysed"] < len(texts)
    async with Pool(database.dsn) as pool:
        report = await verify(pool, TENANT, builds.DEFAULTS.planner, deep=True)
    assert report.failed == 0


def test_few_of_very_long_texts_wait_to_be_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are packed by their words, however few they are, and all of them are held then."""
    at_once: list[int] = []

    def counted(pieces: Sequence[Piece], *, fresh: Sequence[Doc]) -> bytes:
        at_once.append(sum(len(doc.terms) for doc in fresh))
        return splice(pieces, fresh=fresh)

    monkeypatch.setattr("myria.builds.blocks.splice", counted)
    monkeypatch.setattr("myria.builds.blocks._MAX_WORDS_TO_PACK", 5_000)
    long = " ".join(f"kiln{number}" for number in range(1_000))
    planned = PlannedDocs()
    planned.keep(
        [PlanEvent(event_seq=seq, event_id=f"evt_{seq}", key=bytes(32), timestamp=seq, text=long) for seq in range(42)]
    )

    pieces, missing = planned.pieces(range(50))

    assert sum(len(piece.docs) for piece in pieces) == 42
    assert missing == list(range(42, 50))
    assert sum(at_once) == 42 * 1_000
    assert max(at_once) <= 6_000


@pytest.mark.parametrize(
    ("packed_bytes", "read_again"), [(10**6, range(1)), (40_000, range(1, 220)), (0, range(300, 301))]
)
async def test_a_build_reads_again_what_it_has_no_room_to_hold(
    database: Database, monkeypatch: pytest.MonkeyPatch, packed_bytes: int, read_again: range
) -> None:
    """Past the bound on what is packed, search blocks are made out of the log: the same bytes."""
    await append(database.server_dsn, conversation(300))
    monkeypatch.setattr("myria.builds.blocks._MAX_PACKED_BYTES", packed_bytes)
    monkeypatch.setattr("myria.builds.blocks._MAX_DOCS_TO_PACK", 20)

    built = await builds.build(database)

    assert built.counts["events_analysed"] - 300 in read_again
    async with Pool(database.dsn) as pool:
        report = await verify(pool, TENANT, builds.DEFAULTS.planner, deep=True)
    assert report.failed == 0


async def test_a_small_scope_costs_a_build_few_round_trips(database: Database) -> None:
    """Of many people each has a small scope: what is little is written, and read, by few transactions."""
    await append(database.server_dsn, conversation(60, participants=PAIRS[0]))
    first = await _statements_of_a_task(database)
    assert _begun(first) <= 12, first

    await builds.build(database)
    await append(database.server_dsn, conversation(20, seed=1, start=90_000, participants=PAIRS[0]))
    second = await _statements_of_a_task(database)
    assert _begun(second) < _begun(first), second


def _begun(statements: Sequence[str]) -> int:
    return sum(statement.startswith("BEGIN") for statement in statements)


async def _statements_of_a_task(database: Database) -> list[str]:
    """What a build of the only scope asks PostgreSQL for, from its task's beginning to before its end."""
    build_id = await builds.queue(database)
    planner = builds.DEFAULTS.planner
    statements: list[str] = []
    async with Pool(database.builder_dsn, PoolOptions(size=1)) as pool:
        build = await start_build(pool, TENANT, build_id, fingerprint(planner))
        assert isinstance(build, RunningBuild)
        task = await tasks.claim(pool, build, "one", 3600.0)
        assert task is not None
        async with pool.connection() as connection:
            connection.add_query_logger(lambda record: statements.append(record.query))
        await compile_scope(pool, build, task, planner, Counter())
        asked = list(statements)
        error = errors.BuildInvalid("made to fail")
        configured = builds.DEFAULTS.builder
        await end_without_result(pool, TENANT, build_id, Outcome.FAILED, error=error, settings=configured)
    return asked
