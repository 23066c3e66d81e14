"""The registry: the pointer, its history, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import asyncpg
import pytest

from myria import errors
from myria.builds import Outcome
from myria.builds.queue import take_up
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.finding import anybody
from myria.notes.folding import event_log
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.locks import somebody_waits
from tests.support.postgres import Database


@pytest.fixture
async def registry(database: Database) -> AsyncIterator[Registry]:
    """The registry as the server has it."""
    async with Pool(database.server_dsn) as pool:
        yield Registry(pool, builds.DEFAULTS)


async def snapshots(database: Database, count: int) -> list[str]:
    """Publish snapshots one after the other; return their ids."""
    ids = []
    for part in range(count):
        await append(database.server_dsn, conversation(12, seed=part, start=part * 9000))
        built = await builds.build(database)
        assert built.snapshot_id is not None
        ids.append(built.snapshot_id)
    return ids


async def test_an_empty_memory(registry: Registry) -> None:
    """Before the first build there is no snapshot, nothing in the tail, and nothing to do."""
    assert await registry.active_snapshot(TENANT) == {"snapshot": None}
    assert await registry.list_snapshots(TENANT, limit=10) == {"snapshots": [], "next_cursor": None}
    status = await registry.status(TENANT)
    assert (status["active_snapshot_id"], status["tail_events"], status["last_build"]) == (None, 0, None)
    assert (status["building"], status["queued"], status["paused"]) == (False, 0, False)


async def test_status_counts_what_a_build_would_take(database: Database, registry: Registry) -> None:
    """The tail counts events past the active cutoff that are not internal."""
    (snapshot_id,) = await snapshots(database, 1)
    await append(database.server_dsn, [event(90_000, "a"), event(90_001, "b"), event(90_002, "note", internal=True)])

    status = await registry.status(TENANT)

    assert status["active_snapshot_id"] == snapshot_id
    assert status["tail_events"] == 2
    assert status["last_build"]["status"] == "succeeded"
    assert status["last_build"]["snapshot_id"] == snapshot_id
    assert set(status["last_build"]) == {
        "build_id",
        "trigger",
        "status",
        "snapshot_id",
        "started_at",
        "finished_at",
        "error",
        "degraded",
        "counts",
    }


async def test_what_was_forgotten_meanwhile_does_not_wait(database: Database, registry: Registry) -> None:
    """Until it is restored: a build would not take it."""
    await snapshots(database, 1)
    async with Pool(database.server_dsn) as pool:
        log = event_log(pool)
        kept = await log.append_events(TENANT, [event(90_000 + number, str(number)) for number in range(3)])
        ids = [one.event_id for one in kept]
        withdrawals = Withdrawals(log)
        await withdrawals.withdraw(TENANT, ids[:2], "forgotten", may_see=anybody)
        assert (await registry.status(TENANT))["tail_events"] == 1
        await withdrawals.restore(TENANT, ids[:1], may_see=anybody)
        assert (await registry.status(TENANT))["tail_events"] == 2


async def test_rollback_gives_back_the_tail_and_pauses(database: Database, registry: Registry) -> None:
    """A rollback goes to the parent, returns what was abandoned to the tail, and pauses automatic builds."""
    first, second = await snapshots(database, 2)

    answer = await registry.rollback(TENANT, actor="ana", reason="wrong labels")

    assert answer == {"snapshot_id": first, "previous_snapshot_id": second}
    status = await registry.status(TENANT)
    assert (status["active_snapshot_id"], status["tail_events"]) == (first, 12)
    assert (status["paused"], status["paused_reason"]) == (True, "rollback")
    move = (await registry.moves(TENANT))[0]
    assert (move["kind"], move["from_snapshot_id"], move["to_snapshot_id"]) == ("rollback", second, first)
    assert (move["actor"], move["reason"]) == ("ana", "wrong labels")


async def test_rollback_forward_again(database: Database, registry: Registry) -> None:
    """A snapshot that was rolled back can be restored by name, with everything it had."""
    first, second = await snapshots(database, 2)
    trees = await builds.roots(database)
    await registry.rollback(TENANT)

    assert await registry.rollback(TENANT, second) == {"snapshot_id": second, "previous_snapshot_id": first}
    assert await builds.roots(database) == trees
    assert await registry.rollback(TENANT, second) == {"snapshot_id": second, "previous_snapshot_id": second}


async def test_a_build_after_a_rollback_starts_from_the_restored_snapshot(
    database: Database, registry: Registry
) -> None:
    """After a rollback the next manual build covers the abandoned events anew, and ends the pause."""
    first, second = await snapshots(database, 2)
    await registry.rollback(TENANT)

    built = await builds.build(database)

    assert built.outcome is Outcome.SUCCEEDED
    active = (await registry.active_snapshot(TENANT))["snapshot"]
    assert active["parent_snapshot_id"] == first
    assert await builds.roots(database) == await builds.roots(database, second)
    assert not (await registry.status(TENANT))["paused"]


async def test_rollbacks_that_cannot_be(database: Database, registry: Registry) -> None:
    """No predecessor, an unknown target, one that never was active: each has its own error and changes nothing."""
    with pytest.raises(errors.NoPreviousSnapshot):
        await registry.rollback(TENANT)
    (first,) = await snapshots(database, 1)
    held = await builds.build(database, hold=True, force=True)

    with pytest.raises(errors.NoPreviousSnapshot):
        await registry.rollback(TENANT)
    with pytest.raises(errors.SnapshotNotFound):
        await registry.rollback(TENANT, "snap_nowhere")
    with pytest.raises(errors.SnapshotNotRestorable):
        await registry.rollback(TENANT, held.snapshot_id)
    assert (await registry.status(TENANT))["active_snapshot_id"] == first


async def test_publishing_a_held_snapshot(database: Database, registry: Registry) -> None:
    """A held snapshot pauses automatic builds until it is published; then it is active and its build succeeded."""
    (first,) = await snapshots(database, 1)
    await append(database.server_dsn, conversation(12, seed=5, start=60_000))
    held = await builds.build(database, hold=True)
    waiting = await registry.status(TENANT)

    answer = await registry.publish(TENANT, str(held.snapshot_id), actor="ana")

    assert (waiting["paused"], waiting["paused_reason"]) == (True, "held_snapshot")
    assert waiting["held_snapshot_id"] == held.snapshot_id
    assert answer == {"snapshot_id": held.snapshot_id, "previous_snapshot_id": first}
    status = await registry.status(TENANT)
    assert (status["paused"], status["tail_events"]) == (False, 0)
    assert status["last_build"]["status"] == "succeeded"
    assert (await registry.publish(TENANT, str(held.snapshot_id)))["snapshot_id"] == held.snapshot_id


async def test_publishing_what_cannot_be(database: Database, registry: Registry) -> None:
    """Unknown, archived, or built on a snapshot that is no longer active: each has its own error."""
    first, _ = await snapshots(database, 2)
    stale = await builds.build(database, hold=True, force=True)
    await append(database.server_dsn, conversation(12, seed=9, start=90_000))
    await builds.build(database)

    with pytest.raises(errors.SnapshotNotFound):
        await registry.publish(TENANT, "snap_nowhere")
    with pytest.raises(errors.SnapshotNotHeld):
        await registry.publish(TENANT, first)
    with pytest.raises(errors.StaleParent):
        await registry.publish(TENANT, str(stale.snapshot_id))
    assert not (await registry.status(TENANT))["paused"]


async def test_giving_up_a_held_snapshot(database: Database, registry: Registry) -> None:
    """Aborting a held build gives its snapshot up: it cannot be published, and automatic builds go on."""
    await append(database.server_dsn, conversation(12))
    held = await builds.build(database, hold=True)

    assert await registry.abort(TENANT, held.build_id) == {"build_id": held.build_id, "status": "aborted"}

    with pytest.raises(errors.SnapshotNotHeld):
        await registry.publish(TENANT, str(held.snapshot_id))
    assert not (await registry.status(TENANT))["paused"]
    with pytest.raises(errors.BuildNotFound):
        await registry.abort(TENANT, "bld_nowhere")


@pytest.mark.parametrize("how", ["queued", "held"])
async def test_a_build_is_given_up_once(database: Database, registry: Registry, how: str) -> None:
    """Who and why are kept with the build; whoever comes second changes nothing, and what was active stays active."""
    (active,) = await snapshots(database, 1)
    if how == "queued":
        build_id = await builds.queue(database)
    else:
        build_id = (await builds.build(database, hold=True, force=True)).build_id

    for name in ("ada", "bob"):
        given_up = await registry.abort(TENANT, build_id, actor=name, reason="wrong model")
        assert given_up == {"build_id": build_id, "status": "aborted"}

    error = (await registry.build(TENANT, build_id))["error"]
    assert (error["code"], error["message"]) == ("build_aborted", "given up by ada: wrong model")
    status = await registry.status(TENANT)
    assert (status["active_snapshot_id"], status["building"], status["paused"]) == (active, False, False)


async def test_a_build_that_ended_cannot_be_given_up(database: Database, registry: Registry) -> None:
    """The refusal says how it ended, and what helps now; the build and its snapshot stay as they are."""
    (active,) = await snapshots(database, 1)
    nothing = await builds.build(database)
    published = (await registry.snapshot(TENANT, active))["build_id"]
    for build_id, ended in ((published, "succeeded"), (nothing.build_id, "nothing_to_do")):
        before = await registry.build(TENANT, build_id)
        with pytest.raises(errors.BuildEnded, match=f"ended as {ended} at 2") as refused:
            await registry.abort(TENANT, build_id)
        assert refused.value.details["status"] == ended
        assert ("rollback" in refused.value.message) == (ended == "succeeded")
        assert await registry.build(TENANT, build_id) == before
    assert (await registry.status(TENANT))["active_snapshot_id"] == active


async def test_a_request_that_waits_is_given_up_once(database: Database, registry: Registry) -> None:
    """It becomes a build that was given up, with who and why; no builder takes it up, and the other request stays."""
    (active,) = await snapshots(database, 1)
    request_id = (await registry.request_build(TENANT, full=True, reason="new planner", actor="eve"))["request_id"]
    other_id = (await registry.request_build(TENANT))["request_id"]
    assert [one["waits_for"] for one in await registry.waiting(TENANT)] == ["builder", "builder"]

    given_up = [await registry.abort(TENANT, request_id, actor=name, reason="x") for name in ("ada", "bob")]

    build, *_ = await registry.builds(TENANT)
    assert given_up == [{"build_id": build["build_id"], "status": "aborted"}] * 2
    assert (build["asked_by"], build["reason"], build["full"]) == ("eve", "new planner", True)
    assert build["error"]["message"] == "given up by ada: x"
    status = await registry.status(TENANT)
    assert [one["request_id"] for one in status["waiting"]] == [other_id]
    assert (status["active_snapshot_id"], status["queued"], status["building"]) == (active, 1, False)
    async with Pool(database.operator_dsn) as control:
        taken_up = await take_up(control, TENANT)
    assert taken_up is not None
    assert (await registry.request(TENANT, other_id))["build_id"] == taken_up["build_id"]
    with pytest.raises(errors.BuildNotFound):
        await registry.abort(TENANT, "req_nowhere")


async def test_a_request_given_up_while_a_build_runs_is_not_the_newest(database: Database, registry: Registry) -> None:
    """What builds do now, and how the last one ended, is told of the build that ran."""
    await append(database.server_dsn, conversation(12))
    build_id = await builds.queue(database)
    request_id = (await registry.request_build(TENANT))["request_id"]
    assert [one["waits_for"] for one in (await registry.status(TENANT))["waiting"]] == ["build"]
    await registry.abort(TENANT, request_id)
    assert (await registry.status(TENANT))["last_build"]["build_id"] == build_id
    await run_build(builds.DEFAULTS, database.builder_dsn, TENANT, build_id)
    newest = (await registry.status(TENANT))["last_build"]
    assert (newest["build_id"], newest["status"]) == (build_id, "succeeded")


@pytest.mark.parametrize("builder_is_first", [True, False])
async def test_a_request_has_one_outcome_when_a_builder_takes_it_up(
    database: Database, registry: Registry, *, builder_is_first: bool
) -> None:
    """Who gives it up waits for the builder, and then gives up its build; a builder finds nothing to take up."""
    request_id = (await registry.request_build(TENANT))["request_id"]
    async with Pool(database.operator_dsn) as control:
        if builder_is_first:
            async with control.write(TENANT) as builder:
                row = await builder.fetchrow(sql("builds.oldest_waiting"), TENANT, False, False)
                assert row is not None
                giving_up = asyncio.create_task(registry.abort(TENANT, request_id))
                observer = await asyncpg.connect(database.superuser_dsn)
                await somebody_waits(observer)
                await observer.close()
                enqueued = (TENANT, "bld_first", "manual", False, False, None, row["request_id"])
                await builder.fetchval(sql("builds.enqueue"), *enqueued)
                await builder.execute(sql("builds.take_up"), TENANT, "bld_first", request_id, False, False)
            assert await giving_up == {"build_id": "bld_first", "status": "aborted"}
        else:
            both = await asyncio.gather(registry.abort(TENANT, request_id), take_up(control, TENANT))
            assert both[0]["status"] == "aborted"
        assert await take_up(control, TENANT) is None
    (build,) = await registry.builds(TENANT)
    assert (build["status"], build["request_id"]) == ("aborted", request_id)
    assert (await registry.status(TENANT))["queued"] == 0


async def test_serving_can_end_requests_and_no_more(database: Database, registry: Registry) -> None:
    """Its role of PostgreSQL begins no build, and lets no build go that has taken a request up."""
    request_id = (await registry.request_build(TENANT))["request_id"]
    await registry.abort(TENANT, request_id)
    async with Pool(database.server_dsn) as pool:
        with pytest.raises(errors.ConfigurationError, match="row-level security"):
            async with pool.write(TENANT) as connection:
                await connection.execute(
                    "INSERT INTO myria.builds (tenant_id, build_id, trigger) VALUES ($1, 'bld_x', 'manual')", TENANT
                )
        async with pool.write(TENANT) as connection:
            await connection.execute("UPDATE myria.rebuild_requests SET build_id = NULL")
    assert (await registry.request(TENANT, request_id))["build_id"] is not None


async def test_only_one_of_two_concurrent_moves_wins(database: Database, registry: Registry) -> None:
    """Of many publishes and rollbacks at once each sees the others whole: the history is one chain."""
    await snapshots(database, 3)
    held = await builds.build(database, hold=True)

    await asyncio.gather(
        *(registry.rollback(TENANT) for _ in range(2)),
        registry.publish(TENANT, str(held.snapshot_id)),
        return_exceptions=True,
    )

    moves = list(reversed(await registry.moves(TENANT)))
    for before, after in pairwise(moves):
        assert after["from_snapshot_id"] == before["to_snapshot_id"]
    assert moves[-1]["to_snapshot_id"] == (await registry.status(TENANT))["active_snapshot_id"]
    statuses = await builds.rows(database, "SELECT snapshot_id FROM myria.snapshots WHERE status = 'active'")
    assert [row["snapshot_id"] for row in statuses] == [moves[-1]["to_snapshot_id"]]


async def test_listing_pages_through_everything_once(database: Database, registry: Registry) -> None:
    """Pages of snapshots, newest first, neither repeat nor omit; a foreign cursor is refused."""
    ids = await snapshots(database, 5)
    seen: list[str] = []
    cursor = None
    while True:
        page = await registry.list_snapshots(TENANT, limit=2, cursor=cursor)
        seen.extend(one["snapshot_id"] for one in page["snapshots"])
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == list(reversed(ids))
    page = await registry.list_snapshots(TENANT, limit=2)
    with pytest.raises(errors.CursorInvalid):
        await registry.list_snapshots(TENANT, limit=3, cursor=page["next_cursor"])
    with pytest.raises(errors.CursorInvalid):
        await registry.list_snapshots("other", limit=2, cursor=page["next_cursor"])


async def test_a_snapshot_tells_how_it_was_made(database: Database, registry: Registry) -> None:
    """A snapshot's metadata has the range it covers, the versions it was made with, and its validation (§9.2)."""
    await snapshots(database, 2)

    snapshot = (await registry.active_snapshot(TENANT))["snapshot"]

    assert (snapshot["first_event_seq"], snapshot["cutoff"]) == (1, 24)
    assert (snapshot["status"], snapshot["validation"], snapshot["violations"]) == ("active", "passed", [])
    for name in ("builder_version", "summarizer_version", "merge_policy_version", "created_at", "completed_at"):
        assert snapshot[name]


async def test_a_cause_asks_once(registry: Registry) -> None:
    """Two requests with one cause are one request; without a cause each is its own."""
    one = await registry.request_build(TENANT, cause_key="rebuild/abc")
    other = await registry.request_build(TENANT, cause_key="rebuild/abc")
    third = await registry.request_build(TENANT)

    assert one == other
    assert third["request_id"] != one["request_id"]
    assert third["build_id"] is None
    assert (await registry.status(TENANT))["queued"] == 2


@pytest.mark.parametrize("parts", [2, 8])
async def test_a_rollback_copies_nothing(database: Database, registry: Registry, parts: int) -> None:
    """Moving the pointer writes the same few rows however much lies between, also while a build is unfinished."""
    first, *_ = await snapshots(database, parts)
    await builds.queue(database)
    connection = await asyncpg.connect(database.superuser_dsn)
    before = int(await connection.fetchval("SELECT pg_current_xact_id()::text"))

    await registry.rollback(TENANT, first)

    tables = [row[0] for row in await connection.fetch("SELECT relname FROM pg_stat_user_tables")]
    written = {
        table: await connection.fetchval(f"SELECT count(*) FROM myria.{table} WHERE xmin::text::bigint > $1", before)
        for table in tables
    }
    await connection.close()
    assert {table: count for table, count in written.items() if count} == {
        "active_snapshots": 1,
        "pointer_moves": 1,
        "snapshots": 2,
        "tallies": 1,
        "tenants": 1,
    }
