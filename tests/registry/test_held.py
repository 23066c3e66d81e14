"""How a held snapshot ends: published, given up, or superseded by another one; and what retention makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from myria import errors
from myria.builds.collect import collect_garbage, tenants_with_garbage
from myria.builds.finish import free_numbers
from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database


@pytest.fixture
async def registry(database: Database) -> AsyncIterator[Registry]:
    """The registry as the server has it."""
    async with Pool(database.server_dsn) as pool:
        yield Registry(pool, builds.DEFAULTS)


async def grown(database: Database, part: int, *, hold: bool = False) -> str:
    """Append events and build them; return the snapshot's id."""
    await append(database.server_dsn, conversation(12, seed=part, start=part * 9000))
    built = await builds.build(database, hold=hold)
    assert built.snapshot_id is not None
    return built.snapshot_id


async def status_of(registry: Registry, snapshot_id: str) -> str:
    """Return a snapshot's status."""
    return str((await registry.snapshot(TENANT, snapshot_id))["status"])


async def test_giving_up_ends_the_pause(database: Database, registry: Registry) -> None:
    """A held snapshot that was given up pauses nothing, cannot be published, and is not built again by itself."""
    active = await grown(database, 1)
    held = await grown(database, 2, hold=True)
    assert (await registry.status(TENANT))["paused_reason"] == "held_snapshot"

    answer = await registry.discard(TENANT, held, actor="ana", reason="wrong labels")

    assert answer["snapshot_id"] == held
    status = await registry.status(TENANT)
    assert (status["paused"], status["held_snapshot_id"], status["active_snapshot_id"]) == (False, None, active)
    assert status["last_build"]["status"] == "aborted"
    assert (await registry.build(TENANT, answer["build_id"]))["error"]["message"] == "given up by ana: wrong labels"
    assert status["tail_events"] == 12
    assert await status_of(registry, held) == "superseded"
    with pytest.raises(errors.SnapshotNotHeld):
        await registry.publish(TENANT, held)
    async with Pool(database.operator_dsn) as pool:

        async def never(_: str, __: str) -> int:
            raise AssertionError("nothing is launched here")

        eager = builds.settings(builder={"max_unindexed_events": 1, "inactivity_timeout_s": 0.0, "min_interval_s": 0.0})
        assert await ControlLoop(pool, eager, never).due(TENANT) is None
    assert await registry.discard(TENANT, held) == answer


async def test_only_what_is_held_is_given_up(database: Database, registry: Registry) -> None:
    """The active snapshot, an archived one and an unknown one are refused, each by its code, and stay."""
    archived = await grown(database, 1)
    active = await grown(database, 2)
    for snapshot_id in (archived, active):
        with pytest.raises(errors.SnapshotNotHeld):
            await registry.discard(TENANT, snapshot_id)
    with pytest.raises(errors.SnapshotNotFound):
        await registry.discard(TENANT, "snap_nowhere")
    assert [await status_of(registry, one) for one in (archived, active)] == ["archived", "active"]


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_newer_publish_supersedes_what_is_held(database: Database, registry: Registry, by_hand: bool) -> None:
    """Whether a build publishes or a person does, other held snapshots end, and publishing them says why it cannot."""
    await grown(database, 1)
    older = await grown(database, 2, hold=True)
    newer = await grown(database, 3, hold=by_hand)
    if by_hand:
        await registry.publish(TENANT, newer)

    assert await status_of(registry, older) == "superseded"
    assert [one["status"] for one in await registry.builds(TENANT)][:2] == ["succeeded", "superseded"]
    with pytest.raises(errors.StaleParent):
        await registry.publish(TENANT, older)
    # Not even when what it was built on is active again.
    await registry.rollback(TENANT)
    assert (await registry.status(TENANT))["held_snapshot_id"] is None
    with pytest.raises(errors.StaleParent):
        await registry.publish(TENANT, older)


async def test_retention_removes_what_was_given_up(database: Database, registry: Registry) -> None:
    """A held snapshot that ended goes after the time of an archived one, with all that only it read; others stay."""
    await grown(database, 1)
    given_up = await grown(database, 2, hold=True)
    await registry.discard(TENANT, given_up)
    rows = "SELECT count(*) FROM myria.renderings"
    with_it = await builds.value(database, rows)
    kept = builds.settings(retention={"min_archived_s": 3600.0}).retention
    gone = builds.settings(retention={"min_archived_s": 0.0}).retention

    async with Pool(database.operator_dsn) as pool:
        await free_numbers(pool, TENANT)
        assert await tenants_with_garbage(pool, kept) == []
        await collect_garbage(pool, TENANT, kept)
        assert await builds.value(database, rows) == with_it
        assert await tenants_with_garbage(pool, gone) == [TENANT]
        await collect_garbage(pool, TENANT, gone)

    assert await builds.value(database, rows) < with_it
    with pytest.raises(errors.SnapshotNotFound):
        await registry.snapshot(TENANT, given_up)
    waiting = await grown(database, 3, hold=True)
    async with Pool(database.operator_dsn) as pool:
        await collect_garbage(pool, TENANT, gone)
    assert await status_of(registry, waiting) == "held"
