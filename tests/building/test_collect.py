"""Retention: what is kept stays as it was, and nothing else stays."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myria.builds import Outcome, compilation
from myria.builds.blocks import block_nodes
from myria.builds.capture import start_build
from myria.builds.collect import Collected, collect_garbage
from myria.builds.finish import free_numbers
from myria.builds.snapshots import Registry
from myria.builds.versions import fingerprint
from myria.db.database import Database as Pool
from myria.settings import RetentionSettings
from tests.support import builds
from tests.support.counts import examples
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database, Databases

PAIRS = (("ana", "ben"), ("ana", "chloé"), ("agent_1", "ana"))
KEEP_ONE = RetentionSettings(keep_snapshots=1, min_archived_s=0, keep_failed=0)
EVERYTHING = ("nodes", "renderings", "search_blocks", "scope_roots", "snapshots", "builds")


async def collect(database: Database, retention: RetentionSettings = KEEP_ONE) -> Collected:
    """Collect garbage as the control loop does."""
    async with Pool(database.operator_dsn) as pool:
        await free_numbers(pool, TENANT)
        return await collect_garbage(pool, TENANT, retention)


async def kept(database: Database) -> dict[str, Any]:
    """Return what readers of every listed snapshot with a tree can reach."""
    found = await builds.rows(
        database, "SELECT snapshot_id FROM myria.snapshots WHERE status IN ('active', 'archived', 'held') ORDER BY 1"
    )
    return {row["snapshot_id"]: await builds.contents(database, row["snapshot_id"]) for row in found}


async def reachable(database: Database) -> dict[str, set[bytes]]:
    """Return every rendering and block that some root row reaches."""
    rows = await builds.rows(database, "SELECT root_rendering_id, blocks FROM myria.scope_roots")
    renderings: set[bytes] = set()
    for row in rows:
        renderings |= {
            one["rendering_id"]
            for one in await builds.rows(
                database,
                "WITH RECURSIVE t AS (SELECT * FROM myria.renderings WHERE rendering_id = $1 UNION ALL "
                "SELECT r.* FROM t CROSS JOIN unnest(t.children) c JOIN myria.renderings r ON r.rendering_id = c) "
                "SELECT rendering_id FROM t",
                row["root_rendering_id"],
            )
        }
    return {"renderings": renderings, "search_blocks": {block for row in rows for block in row["blocks"]}}


async def assert_no_garbage(database: Database) -> None:
    """Every stored rendering, block and node is reachable from a root row."""
    expected = await reachable(database)
    for table, ids in expected.items():
        stored = {row["id"] for row in await builds.rows(database, f"SELECT rendering_id AS id FROM myria.{table}")}
        assert stored == ids, table
    lonely = "NOT EXISTS (SELECT FROM myria.renderings r WHERE r.node_id = n.node_id)"
    assert await builds.value(database, f"SELECT count(*) FROM myria.nodes n WHERE {lonely}") == 0


@settings(max_examples=examples(5), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6))
def test_what_is_kept_stays_as_it_was(databases: Databases, seed: int) -> None:
    """After any history of builds, holds and rollbacks, collecting changes no kept snapshot and leaves no garbage."""

    async def run(database: Database) -> None:
        chosen = random.Random(seed)
        at = 0
        for turn in range(chosen.randint(4, 7)):
            for pair in chosen.sample(PAIRS, chosen.randint(1, 3)):
                late = chosen.random() < 0.3
                await append(
                    database.server_dsn,
                    conversation(
                        chosen.randint(3, 25),
                        seed=seed + turn,
                        participants=pair,
                        start=chosen.randint(0, at) if late else at,
                    ),
                )
            at += 5000
            what = chosen.random()
            await builds.build(database, hold=what < 0.15, full=what > 0.9)
            if 0.15 <= what < 0.4 and turn:
                async with Pool(database.server_dsn) as pool:
                    archived = await builds.rows(
                        database, "SELECT snapshot_id FROM myria.snapshots WHERE status = 'archived'"
                    )
                    if archived:
                        await Registry(pool, builds.DEFAULTS).rollback(TENANT, chosen.choice(archived)["snapshot_id"])
        retention = RetentionSettings(keep_snapshots=chosen.randint(1, 3), min_archived_s=0, keep_failed=0)
        before = await kept(database)

        await collect(database, retention)

        after = await kept(database)
        assert after == {snapshot_id: before[snapshot_id] for snapshot_id in after}
        archived = await builds.value(database, "SELECT count(*) FROM myria.snapshots WHERE status = 'archived'")
        assert archived <= retention.keep_snapshots + 1
        await assert_no_garbage(database)
        assert not (await collect(database, retention)).rows
        await append(database.server_dsn, conversation(10, seed=1, participants=PAIRS[0], start=at))
        await builds.build(database)
        cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
        assert await builds.roots(database) == await builds.planned(database, cutoff)

    with databases.fresh() as database:
        asyncio.run(run(database))


@pytest.fixture(scope="module")
def published(databases: Databases) -> Iterator[Database]:
    """A database with five snapshots of growing scopes; it is copied, and nobody connects to it any more."""
    database = databases.create()

    async def publish() -> None:
        for part in range(5):
            for pair in PAIRS[: part % 3 + 1]:
                await append(database.server_dsn, conversation(25, seed=part, participants=pair, start=part * 3000))
            await builds.build(database)

    databases.loop.run(publish())
    yield database
    databases.drop(database)


@pytest.fixture
def five_snapshots(databases: Databases, published: Database) -> Iterator[Database]:
    """The same for one test."""
    database = databases.copy(published)
    yield database
    databases.drop(database)


async def test_nothing_young_is_collected(five_snapshots: Database) -> None:
    """A snapshot that was active a moment ago stays however few are to be kept: requests may be pinned to it."""
    database = five_snapshots
    collected = await collect(database, RetentionSettings(keep_snapshots=1, keep_failed=0))

    assert not collected.rows
    assert await builds.value(database, "SELECT count(*) FROM myria.snapshots") == 5


async def test_collecting_again_finds_nothing(five_snapshots: Database) -> None:
    """The rows of expired snapshots go, with their builds; a second collection has nothing to do."""
    database = five_snapshots
    collected = await collect(database)

    assert collected.rows["snapshots"] == 3
    assert collected.rows["renderings"] > 0
    assert await builds.value(database, "SELECT count(*) FROM myria.builds") == 2
    await assert_no_garbage(database)
    assert not (await collect(database)).rows


async def test_the_rollback_target_stays(five_snapshots: Database) -> None:
    """The parent of the active snapshot is kept even when others were active later."""
    database = five_snapshots
    ids = [
        row["snapshot_id"]
        for row in await builds.rows(database, "SELECT snapshot_id FROM myria.snapshots ORDER BY number")
    ]
    async with Pool(database.server_dsn) as pool:
        registry = Registry(pool, builds.DEFAULTS)
        await registry.rollback(TENANT, ids[2])
        await collect(database)
        answer = await registry.rollback(TENANT)

    assert answer == {"snapshot_id": ids[1], "previous_snapshot_id": ids[2]}
    cutoff = await builds.value(database, "SELECT cutoff FROM myria.snapshots WHERE snapshot_id = $1", ids[1])
    assert await builds.roots(database) == await builds.planned(database, cutoff)


async def test_scopes_at_work_are_left_alone(five_snapshots: Database) -> None:
    """While a build works on a scope nothing of it is removed; the next collection does it."""
    database = five_snapshots
    await append(database.server_dsn, conversation(5, seed=8, participants=PAIRS[0], start=90_000))
    build_id = await builds.queue(database)
    async with Pool(database.builder_dsn) as pool:
        await start_build(pool, TENANT, build_id, fingerprint(builds.DEFAULTS.planner))

    during = await collect(database)

    assert during.skipped == 1
    assert "snapshots" not in during.rows
    from myria.builds.run import run_build

    assert await run_build(builds.DEFAULTS, database.builder_dsn, TENANT, build_id) is Outcome.SUCCEEDED
    assert (await collect(database)).rows["snapshots"] >= 3
    await assert_no_garbage(database)


async def test_builds_go_on_beside_collections(database: Database) -> None:
    """Builds and collections at the same time end with the trees the log demands, and no garbage."""
    done = asyncio.Event()

    async def collecting() -> int:
        times = 0
        while not done.is_set():
            await collect(database)
            times += 1
        return times

    collector = asyncio.create_task(collecting())
    for part in range(4):
        for number, pair in enumerate(PAIRS):
            start = part * 3000 if number else 50_000 - part * 3000
            await append(database.server_dsn, conversation(30, seed=part, participants=pair, start=start))
        await builds.build(database, full=part % 3 == 2)
        cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
        assert await builds.roots(database) == await builds.planned(database, cutoff)
        snapshot_id = await builds.value(database, "SELECT snapshot_id FROM myria.active_snapshots")
        await builds.contents(database, snapshot_id)
    done.set()

    assert await collector > 1
    await collect(database)
    await assert_no_garbage(database)


@pytest.mark.parametrize("dies", [True, False])
async def test_what_failed_builds_wrote_goes_too(
    database: Database, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """The nodes of a failed build, whether its tasks ended or died half-way, are removed with it, and nothing else."""
    await append(database.server_dsn, conversation(30, participants=PAIRS[0]))
    await builds.build(database)
    before = await kept(database)
    honest = block_nodes
    calls: Counter[str] = Counter()

    async def fails(*arguments: Any) -> Any:
        calls["block_nodes"] += 1
        if dies or calls["block_nodes"] > 1:
            raise RuntimeError("made to fail")
        return await honest(*arguments)

    for pair in PAIRS[:2]:
        await append(database.server_dsn, conversation(30, seed=4, participants=pair, start=70_000))
    with monkeypatch.context() as patched:
        patched.setattr(compilation, "block_nodes", fails)
        assert (await builds.build(database)).outcome is Outcome.FAILED
    with pytest.raises(AssertionError):
        await assert_no_garbage(database)

    collected = await collect(database)

    assert collected.rows["snapshots"] == 1
    await assert_no_garbage(database)
    assert await kept(database) == before
