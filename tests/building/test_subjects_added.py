"""Subjects of a memory that has none, or others: builds add them beside what else they do, and plan no tree of time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from myria.builds import Outcome, capture, versions
from myria.builds.snapshots import Registry
from myria.builds.verify import verify
from myria.builds.versions import Fingerprint
from myria.db.database import Database as Pool
from myria.db.queries import sql
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
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


async def made_with(database: Database) -> Fingerprint:
    """What the active snapshot says of how it was made."""
    stored = await builds.value(
        database, "SELECT planner_settings FROM myria.snapshots JOIN myria.active_snapshots USING (snapshot_id)"
    )
    return Fingerprint.of(stored)


async def assert_sound(database: Database) -> None:
    """`verify --deep` finds nothing, and a full build of the same events finds the same subjects."""
    async with Pool(database.superuser_dsn) as pool:
        report = await verify(pool, TENANT, WITH.planner.for_planner(), deep=True)
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


async def test_a_build_adds_subjects_to_a_bounded_number_of_scopes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each build goes on where the one before ended, whether anything is new or not, until all scopes have subjects."""
    monkeypatch.setattr(capture, "_FILED_SCOPES", 1)
    await filled(database)
    first, second, _ = [
        row["scope_id"] for row in await builds.rows(database, "SELECT scope_id FROM myria.scopes ORDER BY 1")
    ]

    await news(database, PAIRS[2])
    await builds.build(database, configured=WITH)
    assert set(await subjects(database)) == {PAIRS[0], PAIRS[2]}
    assert (await made_with(database)).filed_to == first
    await builds.build(database, configured=WITH)
    assert set(await subjects(database)) == set(PAIRS)
    assert (await made_with(database)).filed_to == second
    await news(database, PAIRS[0], at=3_000_000)
    await builds.build(database, configured=WITH)
    assert await made_with(database) == Fingerprint.of(versions.fingerprint(WITH.planner.for_planner()))
    await assert_sound(database)


async def test_a_build_adds_subjects_to_a_bounded_number_of_events(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scopes are added while their events together are few enough, and one at least."""
    await filled(database)
    monkeypatch.setattr(capture, "_FILED_EVENTS", 200)
    await builds.build(database, configured=WITH)
    assert set(await subjects(database)) == {PAIRS[0], PAIRS[1]}
    monkeypatch.setattr(capture, "_FILED_EVENTS", 1)
    await builds.build(database, configured=WITH)
    assert set(await subjects(database)) == set(PAIRS)


async def test_a_full_build_adds_all(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full build plans the subjects of every scope, however far the builds before came."""
    monkeypatch.setattr(capture, "_FILED_SCOPES", 1)
    await filled(database)
    await builds.build(database, configured=WITH)
    await builds.build(database, configured=WITH, full=True)
    assert set(await subjects(database)) == set(PAIRS)
    assert (await made_with(database)).filed_to is None


async def test_other_rules_of_subjects_replace_them_step_by_step(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subjects of other rules are never brought up to date in place: each scope's are planned anew once."""
    await filled(database)
    with monkeypatch.context() as before:
        before.setattr(versions, "SUBJECTS_VERSION", 0)
        await builds.build(database, configured=WITH)
        old = await builds.value(database, "SELECT max(number) FROM myria.snapshots")
        # What an older program would have filed otherwise.
        async with Pool(database.dsn) as pool, pool.write(TENANT) as connection:
            await connection.execute("UPDATE myria.subject_holders SET holders = '\\x00'")
    monkeypatch.setattr(capture, "_FILED_SCOPES", 1)
    for at in range(3):
        await news(database, PAIRS[2], at=4_000_000 + 9000 * at)
        assert (await builds.build(database, configured=WITH)).error is None
    since = "SELECT min(since) FROM (SELECT max(since) AS since FROM myria.subject_roots GROUP BY scope_id) newest"
    assert await builds.value(database, since) > old
    assert (await made_with(database)).filed_to is None
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


async def test_a_rollback_goes_back_to_how_far_its_snapshot_came(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rollback to a snapshot without subjects the next builds add them again."""
    monkeypatch.setattr(capture, "_FILED_SCOPES", 2)
    await filled(database)
    first = await builds.value(database, "SELECT snapshot_id FROM myria.active_snapshots")
    await builds.build(database, configured=WITH)
    await builds.build(database, configured=WITH)
    async with Pool(database.server_dsn) as pool:
        await Registry(pool, WITH).rollback(TENANT, first)
    assert not await subjects(database)
    await builds.build(database, configured=WITH)
    assert set(await subjects(database)) == {PAIRS[0], PAIRS[1]}
    await builds.build(database, configured=WITH)
    await assert_sound(database)


async def test_a_scope_that_is_new_meanwhile_has_subjects_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversation that begins while others wait for their subjects need not wait."""
    monkeypatch.setattr(capture, "_FILED_SCOPES", 1)
    await filled(database)
    await builds.build(database, configured=WITH)
    pair = ("dora", "eli")
    for day in (1, 50):
        await append(database.server_dsn, [event(86_400 * day, "The kayak race!", participants=pair)] * 2)
    await builds.build(database, configured=WITH)
    assert (await subjects(database))[pair] is not None
    for _ in range(3):
        await builds.build(database, configured=WITH)
    await assert_sound(database)
