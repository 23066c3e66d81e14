"""A build that finds nothing new ends without a snapshot, and a rollback goes back to what differs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from myria import errors
from myria.builds import Outcome
from myria.builds.capture import start_build
from myria.builds.collect import collect_garbage
from myria.builds.snapshots import Registry
from myria.builds.versions import fingerprint
from myria.db.database import Database as Pool
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Database


@pytest.fixture
async def registry(database: Database) -> AsyncIterator[Registry]:
    """The registry as the server has it."""
    async with Pool(database.server_dsn) as pool:
        yield Registry(pool, builds.DEFAULTS)


async def filled(database: Database, parts: int = 1) -> list[str]:
    """Publish so many snapshots, each with new events; return their ids, oldest first."""
    made = []
    for part in range(parts):
        await append(database.server_dsn, conversation(12, seed=part, start=part * 9000))
        built = await builds.build(database)
        assert built.snapshot_id is not None
        made.append(built.snapshot_id)
    return made


@pytest.mark.parametrize("full", [False, True])
async def test_nothing_new_gives_no_snapshot(database: Database, registry: Registry, full: bool) -> None:
    """A build without new events leaves the pointer, its history and the snapshots alone, and ends well."""
    (active,) = await filled(database)
    await append(database.server_dsn, [event(50_000, "a thought", internal=True)])

    built = await builds.build(database, full=full)

    assert (built.outcome, built.snapshot_id, built.error) == (Outcome.NOTHING_TO_DO, None, None)
    assert built.outcome.exit_status == 0
    listed = await registry.list_snapshots(TENANT, limit=10)
    assert [one["snapshot_id"] for one in listed["snapshots"]] == [active]
    assert [move["kind"] for move in await registry.moves(TENANT)] == ["publish"]
    status = await registry.status(TENANT)
    assert status["last_build"]["status"] == "nothing_to_do"
    assert (status["building"], status["queued"]) == (False, 0)


async def test_the_number_of_a_withdrawn_snapshot_is_used_again(database: Database) -> None:
    """A full build that found no difference leaves no row and no gap in the numbers."""
    await filled(database)
    await builds.build(database, full=True)
    await append(database.server_dsn, conversation(3, seed=7, start=90_000))

    built = await builds.build(database)

    assert built.outcome is Outcome.SUCCEEDED
    number = "SELECT number FROM myria.snapshots WHERE snapshot_id = $1"
    assert await builds.value(database, number, built.snapshot_id) == 2
    assert await builds.value(database, "SELECT count(*) FROM myria.scope_roots WHERE number > 2") == 0


@pytest.mark.parametrize("full", [False, True])
async def test_force_gives_a_snapshot(database: Database, full: bool) -> None:
    """A forced build publishes a snapshot that shows the same."""
    (first,) = await filled(database)

    built = await builds.build(database, full=full, force=True)

    assert built.outcome is Outcome.SUCCEEDED
    assert built.snapshot_id not in {None, first}
    assert await builds.roots(database) == await builds.roots(database, first)


async def test_another_planner_is_not_nothing(database: Database) -> None:
    """With other planner settings a build gives a snapshot without new events; again with the same ones it does not."""
    await filled(database)
    changed = builds.settings(planner={"gap_s": 60})

    assert (await builds.build(database, configured=changed)).outcome is Outcome.SUCCEEDED
    assert (await builds.build(database, configured=changed)).outcome is Outcome.NOTHING_TO_DO
    assert (await builds.build(database, configured=changed, full=True)).outcome is Outcome.NOTHING_TO_DO


async def test_a_full_build_that_finds_a_difference_publishes(database: Database) -> None:
    """What is wrong in the active snapshot is found and mended by a full build, without new events."""
    await filled(database)
    right = await builds.roots(database)
    async with Pool(database.superuser_dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute(
            "UPDATE myria.scope_roots SET root_rendering_id = r.children[1] FROM myria.renderings r "
            "WHERE r.rendering_id = root_rendering_id AND cardinality(r.children) > 0"
        )
    assert await builds.roots(database) != right

    built = await builds.build(database, full=True)

    assert built.outcome is Outcome.SUCCEEDED
    assert await builds.roots(database) == right


async def test_previous_is_the_last_that_differs(database: Database, registry: Registry) -> None:
    """A rollback without a target passes over snapshots that show what the active one shows."""
    first, second = await filled(database, 2)
    for _ in range(2):
        await builds.build(database, force=True)
    active = (await registry.status(TENANT))["active_snapshot_id"]
    assert active not in {first, second}

    moved = await registry.rollback(TENANT)

    assert moved == {"snapshot_id": first, "previous_snapshot_id": active}


async def test_no_previous_one_differs(database: Database, registry: Registry) -> None:
    """Where all that is kept shows the same there is nothing to go back to."""
    await filled(database)
    await builds.build(database, force=True)

    with pytest.raises(errors.NoPreviousSnapshot):
        await registry.rollback(TENANT)


async def test_retention_keeps_what_previous_means(database: Database, registry: Registry) -> None:
    """However few snapshots are kept, the one a rollback goes back to is, and the way to it."""
    first, *_ = await filled(database, 2)
    for _ in range(4):
        await builds.build(database, force=True)
    few = builds.settings(retention={"keep_snapshots": 1, "min_archived_s": 0.0}).retention
    async with Pool(database.operator_dsn) as pool:
        await collect_garbage(pool, TENANT, few)

    assert (await registry.rollback(TENANT))["snapshot_id"] == first


async def test_a_manual_build_with_nothing_to_do_ends_the_pause(database: Database, registry: Registry) -> None:
    """Somebody who asks for a build after a rollback ends the pause, whether there is anything to build or not."""
    first, _ = await filled(database, 2)
    await builds.build(database, force=True)
    await registry.rollback(TENANT, first)
    await builds.build(database)
    assert (await registry.status(TENANT))["paused"] is False

    third = (await registry.status(TENANT))["active_snapshot_id"]
    await builds.build(database, force=True)
    await registry.rollback(TENANT, third)
    assert (await registry.status(TENANT))["paused"] is True
    assert (await builds.build(database)).outcome is Outcome.NOTHING_TO_DO
    assert (await registry.status(TENANT))["paused"] is False


async def test_every_worker_learns_how_it_ended(database: Database) -> None:
    """A worker that comes to a build which had nothing to do is told so, as often as it asks."""
    await filled(database)
    built = await builds.build(database, full=True)
    async with Pool(database.builder_dsn) as pool:
        for _ in range(2):
            mark = fingerprint(builds.DEFAULTS.planner)
            assert await start_build(pool, TENANT, built.build_id, mark) is Outcome.NOTHING_TO_DO


async def test_a_forced_request_gets_a_forced_build(database: Database, registry: Registry) -> None:
    """Requests that wait together become one build only if it does what each of them asked."""
    from myria.builds.queue import take_up

    await filled(database)
    forced = await registry.request_build(TENANT, force=True)
    plain = await registry.request_build(TENANT)
    async with Pool(database.operator_dsn) as pool:
        taken = await take_up(pool, TENANT)
    assert taken is not None
    build = await registry.build(TENANT, taken["build_id"])
    assert build["forced"] is True
    for one in (forced, plain):
        assert (await registry.request(TENANT, one["request_id"]))["build_id"] == build["build_id"]
