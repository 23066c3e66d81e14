"""Subjects of a memory that has none, or others: builds add them beside what else they do, and plan no tree of time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from myria.builds import Outcome, versions
from myria.builds.snapshots import Registry
from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.db.queries import sql
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database

WITH = builds.settings(planner={"subjects": True})
WITHOUT = builds.settings(planner={"subjects": False})
PAIRS = (("ana", "ben"), ("ana", "cem"), ("ben", "cem"))


async def filled(database: Database) -> None:
    """Three conversations of other people, in a snapshot without subjects."""
    for seed, pair in enumerate(PAIRS):
        await append(database.server_dsn, conversation(60, seed=seed, participants=pair))
        await append(database.server_dsn, conversation(40, seed=seed + 9, start=900_000, participants=pair))
    await builds.build(database, configured=WITHOUT)


async def news(database: Database, pair: tuple[str, ...], at: int = 2_000_000) -> None:
    """Append three events to a conversation."""
    await append(database.server_dsn, conversation(3, seed=at, start=at, participants=pair))


async def subjects(database: Database) -> Mapping[tuple[str, ...], bytes | None]:
    """The root of the subjects of each scope that has some in the active snapshot."""
    found: dict[tuple[str, ...], bytes | None] = {}
    async with Pool(database.dsn) as pool, pool.read(TENANT) as connection:
        snapshot = await connection.fetchval("SELECT snapshot_id FROM myria.active_snapshots")
        for scope in await connection.fetch("SELECT scope_id, participants FROM myria.scopes"):
            row = await connection.fetchrow(sql("subjects.root"), TENANT, scope["scope_id"], snapshot)
            if row is not None:
                found[tuple(scope["participants"])] = row["root_rendering_id"]
    return found


async def assert_sound(database: Database) -> None:
    """`verify --deep` finds nothing, and a full build of the same events finds the same subjects."""
    async with Pool(database.superuser_dsn) as pool:
        report = await verify(pool, TENANT, WITH.planner, deep=True)
    assert report.failed == 0, [check.failures for check in report.checks if check.failed]
    before = await subjects(database)
    await builds.build(database, configured=WITH, full=True, force=True)
    assert await subjects(database) == before


@pytest.mark.parametrize("with_news", [True, False])
async def test_trees_of_time_stay_where_subjects_are_added(database: Database, with_news: bool) -> None:
    """A build after the setting is switched on plans what is new and nothing else of time; all scopes get subjects."""
    await filled(database)
    before = await builds.roots(database)
    if with_news:
        await news(database, PAIRS[1])

    built = await builds.build(database, configured=WITH)

    assert built.error is None
    assert built.counts.get("events", 0) <= 60 if with_news else "units_planned" not in built.counts
    after = await builds.roots(database)
    assert {pair for pair in PAIRS if after[pair] != before[pair]} == ({PAIRS[1]} if with_news else set())
    number = await builds.value(database, "SELECT max(number) FROM myria.snapshots")
    assert await builds.value(database, "SELECT count(*) FROM myria.scope_roots WHERE number = $1", number) == with_news
    found = await subjects(database)
    assert set(found) == set(PAIRS)
    assert all(root is not None for root in found.values())
    assert (await builds.build(database, configured=WITH)).outcome is Outcome.NOTHING_TO_DO
    await assert_sound(database)


async def test_other_rules_of_subjects_replace_them(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subjects of other rules are never brought up to date in place: those of all scopes are planned anew."""
    await filled(database)
    with monkeypatch.context() as before:
        before.setattr(versions, "SUBJECTS_VERSION", 0)
        await builds.build(database, configured=WITH)
        old = await builds.value(database, "SELECT max(number) FROM myria.snapshots")
        # What an older program would have filed otherwise.
        async with Pool(database.dsn) as pool, pool.write(TENANT) as connection:
            await connection.execute("UPDATE myria.subject_holders SET holders = '\\x00'")
    await news(database, PAIRS[2], at=4_000_000)
    assert (await builds.build(database, configured=WITH)).error is None
    since = "SELECT min(since) FROM (SELECT max(since) AS since FROM myria.subject_roots GROUP BY scope_id) newest"
    assert await builds.value(database, since) > old
    await assert_sound(database)


async def test_switching_off_and_on_again_keeps_no_stale_subjects(database: Database) -> None:
    """What changed while the setting was off is filed once it is on, and trees of time stay in both directions."""
    await filled(database)
    await builds.build(database, configured=WITH)
    await news(database, PAIRS[0])
    built = await builds.build(database, configured=WITHOUT)
    assert built.counts["events"] <= 60
    assert set(await subjects(database)) == {PAIRS[1], PAIRS[2]}
    await news(database, PAIRS[1], at=3_000_000)
    built = await builds.build(database, configured=WITH)
    assert built.counts["events"] <= 60
    assert set(await subjects(database)) == set(PAIRS)
    await assert_sound(database)


async def test_a_rollback_to_a_snapshot_without_subjects_has_them_added_again(database: Database) -> None:
    """The next build adds them again."""
    await filled(database)
    first = await builds.value(database, "SELECT snapshot_id FROM myria.active_snapshots")
    await builds.build(database, configured=WITH)
    async with Pool(database.server_dsn) as pool:
        await Registry(pool, WITH).rollback(TENANT, first)
    assert not await subjects(database)
    await builds.build(database, configured=WITH)
    assert set(await subjects(database)) == set(PAIRS)
    await assert_sound(database)
