"""Subjects in builds: stored beside the trees, brought up to date in place, removed with what read them."""

from __future__ import annotations

import gc

from myria.builds.collect import collect_garbage
from myria.builds.snapshots import Registry
from myria.builds.subjects import ScopeSubjects
from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.erasure.model import Selection
from myria.settings import RetentionSettings
from myria.topics.subjects.holders import Holders
from tests.erasure.test_erasure import erase
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Database

WITH = builds.settings(planner={"subjects": True})
WITHOUT = builds.settings(planner={"subjects": False})
PAIR = ("ana", "ben")


async def stored(database: Database) -> bytes | None:
    """The root of the subjects of the only scope in the active snapshot."""
    async with Pool(database.dsn) as pool, pool.read(TENANT) as connection:
        snapshot = await connection.fetchval("SELECT snapshot_id FROM myria.active_snapshots")
        scope = await connection.fetchval("SELECT scope_id FROM myria.scopes")
        row = await connection.fetchrow(sql("subjects.root"), TENANT, scope, snapshot)
    assert row is not None
    root: bytes | None = row["root_rendering_id"]
    return root


async def test_builds_in_place_end_with_the_subjects_of_a_full_build(database: Database) -> None:
    """Whatever came in how many builds, what is stored is what a full build plans."""
    for part in range(4):
        await append(database.server_dsn, conversation(60, seed=part, participants=PAIR))
        built = await builds.build(database, configured=WITH)
        assert built.error is None
    in_place = await stored(database)
    assert in_place is not None
    await builds.build(database, configured=WITH, full=True, force=True)
    assert await stored(database) == in_place


async def test_what_subjects_were_planned_from_goes_with_its_task(database: Database) -> None:
    """Nothing waits for the search for cycles, which a builder makes seldom: records, nodes, and what had them."""

    def held() -> int:
        return sum(type(each) in (Holders, ScopeSubjects) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = held()
        for part in range(2):
            await append(database.server_dsn, conversation(60, seed=part, participants=PAIR))
            assert (await builds.build(database, configured=WITH)).counts["rows_subjects"] > 0
            assert held() == before
    finally:
        gc.enable()


async def test_one_statement_reads_all_that_lies_along_paths(database: Database) -> None:
    """The root, each node of subjects that a path leads through, and those directly beneath: what a walk finds."""
    await append(database.server_dsn, conversation(600, seed=1, participants=PAIR))
    await builds.build(database, configured=WITH)
    root = await stored(database)
    assert root is not None
    rows = await builds.rows(
        database, "SELECT rendering_id, children, metadata ->> 'prefix' AS prefix FROM myria.subject_nodes"
    )
    nodes = {row["rendering_id"]: row for row in rows}
    deepest = sorted((row["prefix"] for row in rows), key=len)[-5:]
    for paths in ([], ["ff"], [f"{deepest[-1]}ff"], [f"{prefix}ff" for prefix in deepest]):
        expected: list[bytes] = []
        frontier = [root]
        while frontier:
            expected += frontier
            opened = [nodes[at] for at in frontier if any(path.startswith(nodes[at]["prefix"]) for path in paths)]
            frontier = [child for node in opened for child in node["children"] if child in nodes]
        async with Pool(database.builder_dsn) as pool, pool.read(TENANT) as connection:
            found = await connection.fetch(sql("subjects.along"), TENANT, root, paths)
        assert sorted(row["rendering_id"] for row in found) == sorted(expected)
        assert len(expected) > len(deepest) or not any(path.startswith(deepest[-1]) for path in paths)


async def test_what_no_snapshot_reads_is_removed(database: Database) -> None:
    """Retention leaves exactly what a build into an empty memory would have written."""
    for part in range(4):
        await append(database.server_dsn, conversation(60, seed=part, participants=PAIR))
        await builds.build(database, configured=WITH)
    keep_one = RetentionSettings(keep_snapshots=1, min_archived_s=0, keep_failed=0)
    async with Pool(database.operator_dsn) as pool:
        collected = await collect_garbage(pool, TENANT, keep_one)
    assert collected.rows["subject_nodes"] > 0
    assert collected.rows["subject_holders"] > 0
    left = await builds.rows(database, "SELECT rendering_id FROM myria.subject_nodes")
    assert await reached(database) == {row["rendering_id"] for row in left}
    before = await stored(database)
    await builds.build(database, configured=WITH, full=True, force=True)
    assert await stored(database) == before


async def test_every_row_has_a_snapshot(database: Database) -> None:
    """Also where a build planned all anew and found what was there before."""
    await append(database.server_dsn, conversation(60, participants=PAIR))
    await builds.build(database, configured=WITH)
    assert (await builds.build(database, configured=WITH, full=True)).error is None
    async with Pool(database.superuser_dsn) as pool:
        report = await verify(pool, TENANT, WITH.planner, deep=True)
    assert report.failed == 0, [check.failures for check in report.checks if check.failed]


async def test_a_full_build_of_what_is_there_changes_nothing(database: Database) -> None:
    """Planned anew, subjects that builds brought up to date step by step are the same; what is damaged is mended."""
    for part in range(3):
        await append(database.server_dsn, conversation(40, seed=part, start=part * 5000, participants=PAIR))
        await builds.build(database, configured=WITH)
    before = await stored(database)
    assert before is not None
    assert (await builds.build(database, configured=WITH, full=True)).counts["scopes_changed"] == 0
    async with Pool(database.dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute("UPDATE myria.subject_holders SET holders = '\\x00'")
    assert (await builds.build(database, configured=WITH, full=True)).counts["scopes_changed"] == 1
    assert await stored(database) == before
    async with Pool(database.superuser_dsn) as pool:
        report = await verify(pool, TENANT, WITH.planner, deep=True)
    assert report.failed == 0, [check.failures for check in report.checks if check.failed]


async def test_a_tree_that_grows_keeps_its_subjects_known(database: Database) -> None:
    """Also where what was said since is about nothing: else the next build would plan all of them anew."""
    for day in range(3):
        await append(database.server_dsn, [event(86_400 * day, "👍", participants=PAIR)])
        assert (await builds.build(database, configured=WITH)).error is None
        assert await stored(database) is None
        since = await builds.rows(database, "SELECT DISTINCT since FROM myria.subject_roots")
        assert [row["since"] for row in since] == [1]


async def reached(database: Database) -> set[bytes]:
    """Every stored node of subjects that a root reaches."""
    rows = await builds.rows(
        database,
        "WITH RECURSIVE r AS (SELECT root_rendering_id AS id FROM myria.subject_roots UNION "
        "SELECT unnest(n.children) FROM r JOIN myria.subject_nodes n ON n.rendering_id = r.id) "
        "SELECT n.rendering_id FROM r JOIN myria.subject_nodes n ON n.rendering_id = r.id",
    )
    return {row["rendering_id"] for row in rows}


async def test_subjects_follow_a_rollback(database: Database) -> None:
    """A build after a rollback goes on from the subjects of the snapshot that was rolled back to."""
    for part in range(3):
        await append(database.server_dsn, conversation(60, seed=part, participants=PAIR))
        await builds.build(database, configured=WITH)
    newest = await stored(database)
    async with Pool(database.server_dsn) as pool:
        await Registry(pool, WITH).rollback(TENANT)
    assert await stored(database) != newest
    built = await builds.build(database, configured=WITH)
    assert built.error is None
    assert await stored(database) == newest


async def test_without_the_setting_nothing_of_subjects_is_stored(database: Database) -> None:
    """Where the setting is off a build writes trees of time alone, the same as with it."""
    await append(database.server_dsn, conversation(60, participants=PAIR))
    await builds.build(database, configured=WITHOUT)
    assert not await builds.rows(database, "SELECT FROM myria.subject_roots")
    alone = await builds.roots(database)
    await builds.build(database, configured=WITH)
    assert await builds.roots(database) == alone
    assert await stored(database) is not None


async def test_an_erasure_forgets_the_subjects_of_its_scope(database: Database) -> None:
    """No word that was erased stays in any table of subjects, and the next build plans them anew."""
    for part in range(3):
        await append(database.server_dsn, conversation(60, seed=part, participants=PAIR))
    for day in (300, 301):
        talk = [event(86_400 * day + at, "The zygomatic telescope is mine. A zygomatic telescope!") for at in range(3)]
        await append(database.server_dsn, talk)
    await builds.build(database, configured=WITH)
    words = "SELECT FROM myria.subject_nodes WHERE subject_nodes::text LIKE '%zygomatic%'"
    assert await builds.rows(database, words)
    await erase(database.dsn, Selection(query="zygomatic telescope"))
    assert not await builds.rows(database, words)
    built = await builds.build(database, configured=WITH)
    assert built.error is None
    assert not await builds.rows(database, words)
    assert await stored(database) is not None
