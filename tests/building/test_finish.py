"""How builds end: published, held, superseded, failed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from myria import errors
from myria.builds import Outcome, compilation, tasks
from myria.builds.capture import start_build
from myria.builds.model import RunningBuild
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.builds.versions import fingerprint
from myria.db.database import Database as Pool
from myria.topics.scope_plan import plan_unit
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

PLANNER = builds.DEFAULTS.planner


async def two_snapshots(database: Database) -> list[str]:
    """Publish two snapshots, one after the other; return their ids."""
    ids = []
    for part in range(2):
        await append(database.server_dsn, conversation(20, seed=part, start=part * 9000))
        built = await builds.build(database)
        assert built.snapshot_id is not None
        ids.append(built.snapshot_id)
    return ids


async def test_publishing_moves_the_pointer_and_archives(database: Database) -> None:
    """A published snapshot is active, its parent archived, and the move is in the history."""
    first, second = await two_snapshots(database)

    statuses = await builds.rows(database, "SELECT snapshot_id, status FROM myria.snapshots ORDER BY number")
    moves = await builds.rows(
        database, "SELECT kind, from_snapshot_id, to_snapshot_id FROM myria.pointer_moves ORDER BY move_id"
    )
    assert statuses == [
        {"snapshot_id": first, "status": "archived"},
        {"snapshot_id": second, "status": "active"},
    ]
    assert moves == [
        {"kind": "publish", "from_snapshot_id": None, "to_snapshot_id": first},
        {"kind": "publish", "from_snapshot_id": first, "to_snapshot_id": second},
    ]
    assert (
        await builds.value(database, "SELECT lineage::text FROM myria.snapshots WHERE snapshot_id = $1", second)
        == "{[1,3)}"
    )


async def test_a_build_asked_to_hold_is_not_served(database: Database) -> None:
    """A held build ends with exit status 0, complete and unserved, whether asked for or by setting."""
    await append(database.server_dsn, conversation(20))

    asked = await builds.build(database, hold=True)
    by_setting = await builds.build(database, configured=builds.settings(builder={"auto_publish": False}))

    assert asked.outcome is Outcome.HELD
    assert by_setting.outcome is Outcome.HELD
    assert asked.outcome.exit_status == 0
    assert await builds.value(database, "SELECT count(*) FROM myria.active_snapshots") == 0
    assert await builds.value(database, "SELECT count(*) FROM myria.snapshots WHERE status = 'held'") == 2


async def test_a_build_whose_parent_was_rolled_back_is_superseded(database: Database) -> None:
    """A rollback while a build runs supersedes it: nothing is published, its rows go, its number is used again."""
    first, _ = await two_snapshots(database)
    await append(database.server_dsn, conversation(20, seed=5, start=90_000))
    build_id = await builds.queue(database)
    async with Pool(database.builder_dsn) as pool, Pool(database.server_dsn) as server:
        build = await start_build(pool, TENANT, build_id, fingerprint(PLANNER))
        assert isinstance(build, RunningBuild)
        assert build.number == 3
        await Registry(server, builds.DEFAULTS).rollback(TENANT)

        outcome = await run_build(builds.DEFAULTS, database.builder_dsn, TENANT, build_id)

    assert outcome is Outcome.SUPERSEDED
    assert outcome.exit_status == 4
    assert await builds.value(database, "SELECT snapshot_id FROM myria.active_snapshots") == first
    assert await builds.value(database, "SELECT count(*) FROM myria.scope_roots WHERE number = 3") == 0
    again = await builds.build(database)
    assert (
        await builds.value(database, "SELECT number FROM myria.snapshots WHERE snapshot_id = $1", again.snapshot_id)
        == 3
    )


async def test_a_plan_that_breaks_a_rule_fails_its_build_with_reasons(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that loses an event never becomes a snapshot; the rule and the scope stay with the failed one."""
    honest = plan_unit

    def loses_an_event(scope: Any, events: Any, settings: Any) -> Any:
        return honest(scope, events[1:] if len(events) > 2 else events, settings)

    await append(database.server_dsn, conversation(40))
    with monkeypatch.context() as patched:
        patched.setattr(compilation, "plan_unit", loses_an_event)
        built = await builds.build(database)

    assert built.outcome is Outcome.FAILED
    assert built.error is not None
    assert built.error["code"] == "build_invalid"
    (row,) = await builds.rows(database, "SELECT status, number, violations::text FROM myria.snapshots")
    assert (row["status"], row["number"]) == ("failed", None)
    assert "each_event_exactly_once" in row["violations"]
    assert await builds.value(database, "SELECT count(*) FROM myria.scope_roots") == 0
    assert (await builds.build(database)).outcome is Outcome.SUCCEEDED


async def test_a_bug_in_a_task_is_tried_again_and_then_fails_the_build(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What raises once is tried again; what raises three times fails the build, which backs off longer each time."""
    raised = 0

    async def sometimes(*_: Any, **named: Any) -> Any:
        nonlocal raised
        raised += 1
        if raised == 1:
            raise RuntimeError("once only")
        return await honest(*_, **named)

    async def always(*_: Any, **__: Any) -> Any:
        raise RuntimeError("always")

    honest = compilation.compile_scope
    await append(database.server_dsn, conversation(10))
    monkeypatch.setattr("myria.builds.run.compile_scope", sometimes)
    assert (await builds.build(database)).outcome is Outcome.SUCCEEDED

    await append(database.server_dsn, conversation(10, start=90_000))
    monkeypatch.setattr("myria.builds.run.compile_scope", always)
    waits = []
    for _ in range(3):
        built = await builds.build(database)
        assert built.outcome is Outcome.FAILED
        waits.append(
            await builds.value(
                database,
                "SELECT extract(epoch FROM retry_at - (SELECT max(finished_at) FROM myria.builds))::int"
                " FROM myria.tenants",
            )
        )
    assert await builds.value(database, "SELECT max(attempt) FROM myria.build_tasks") == tasks.MAX_FAILURES
    assert waits[0] < waits[1] < waits[2]

    monkeypatch.setattr("myria.builds.run.compile_scope", honest)
    assert (await builds.build(database)).outcome is Outcome.SUCCEEDED
    assert await builds.value(database, "SELECT consecutive_failures FROM myria.tenants") == 0


async def test_a_task_longer_than_its_lease_keeps_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that keeps the event loop busy for longer than the lease does not lose it."""
    import time

    honest = plan_unit

    def slow(*arguments: Any) -> Any:
        time.sleep(8)
        return honest(*arguments)

    await append(database.server_dsn, conversation(4))
    monkeypatch.setattr(compilation, "plan_unit", slow)
    impatient = builds.settings(builder={"task_lease_s": 6.0})
    build_id = await builds.queue(database)
    working = asyncio.create_task(
        asyncio.to_thread(asyncio.run, run_build(impatient, database.builder_dsn, TENANT, build_id))
    )
    async with asyncio.timeout(PATIENCE_S):
        while not await builds.value(database, "SELECT count(*) FROM myria.build_tasks WHERE attempt > 0"):
            await asyncio.sleep(0.05)
    other = await asyncio.wait_for(run_build(impatient, database.builder_dsn, TENANT, build_id), PATIENCE_S)

    assert await working == other == Outcome.SUCCEEDED
    assert await builds.value(database, "SELECT attempt FROM myria.build_tasks") == 1


async def test_a_build_survives_its_database_connections(database: Database) -> None:
    """A builder whose connections are cut goes on with new ones."""
    for number in range(30):
        await append(database.server_dsn, conversation(20, seed=number, participants=["ana", f"p{number}"]))
    build_id = await builds.queue(database)
    working = asyncio.create_task(run_build(builds.DEFAULTS, database.builder_dsn, TENANT, build_id))
    async with Pool(database.superuser_dsn) as pool:
        for _ in range(5):
            await asyncio.sleep(0.15)
            async with pool.connection() as connection:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE usename = 'myria_builder' AND datname = current_database()"
                )

    assert await asyncio.wait_for(working, PATIENCE_S) is Outcome.SUCCEEDED
    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert await builds.roots(database) == await builds.planned(database, cutoff)


async def test_registry_errors_name_what_is_wrong(database: Database) -> None:
    """Rolling back an empty memory is refused."""
    async with Pool(database.server_dsn) as server:
        with pytest.raises(errors.NoPreviousSnapshot):
            await Registry(server, builds.DEFAULTS).rollback(TENANT)


async def test_at_debug_each_task_has_a_line(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """With the build and what was counted, and nothing of what was said."""
    caplog.set_level(logging.DEBUG, "myria")
    await append(database.server_dsn, [event(1, "zanzibarian marmalade"), event(2, "zanzibarian marmalade again")])
    built = await builds.build(database)
    (line,) = [vars(record) for record in caplog.records if vars(record).get("action") == "task_done"]
    assert (line["build_id"], line["tenant"], line["counts"]["events_new"]) == (built.build_id, TENANT, 2)
    assert "zanzibarian" not in caplog.text
