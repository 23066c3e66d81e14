"""Leases and fences: who lost a task, or a build, cannot commit (rule 10 of docs/architecture.md)."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from myria import errors
from myria.builds import Outcome, tasks
from myria.builds.capture import start_build
from myria.builds.compilation import compile_scope
from myria.builds.finish import end_without_result
from myria.builds.model import RunningBuild, Task
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.builds.versions import fingerprint
from myria.db.database import Database as Pool
from myria.db.locks import lock_key
from myria.db.queries import sql
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import Spawner

PLANNER = builds.DEFAULTS.planner


@asynccontextmanager
async def started(database: Database) -> AsyncIterator[tuple[Pool, RunningBuild]]:
    """A build of one scope, captured, none of its tasks claimed."""
    await append(database.server_dsn, conversation(40))
    build_id = await builds.queue(database)
    async with Pool(database.builder_dsn) as pool:
        build = await start_build(pool, TENANT, build_id, fingerprint(PLANNER))
        assert isinstance(build, RunningBuild)
        yield pool, build


async def claimed(pool: Pool, build: RunningBuild, worker: str, lease_s: float = 3600.0) -> Task:
    """Claim the only task."""
    task = await tasks.claim(pool, build, worker, lease_s)
    assert task is not None
    return task


async def test_a_leased_task_is_not_given_twice(database: Database) -> None:
    """While a lease runs nobody else gets the task; once it has ended the next attempt does."""
    async with started(database) as (pool, build):
        first = await claimed(pool, build, "one")
        assert await tasks.claim(pool, build, "two", 30.0) is None
        async with pool.write(TENANT) as connection:
            await connection.execute("UPDATE myria.build_tasks SET lease_until = clock_timestamp() - interval '1 s'")
        second = await claimed(pool, build, "two")

    assert (first.attempt, second.attempt) == (1, 2)


async def test_a_zombie_cannot_commit(database: Database) -> None:
    """A worker whose lease went to another can do all of its work, but not make it count; the other can."""
    async with started(database) as (pool, build):
        zombie = await claimed(pool, build, "zombie", lease_s=0.0)
        heir = await claimed(pool, build, "heir")
        compiled = await compile_scope(pool, build, zombie, PLANNER, Counter())

        with pytest.raises(errors.LeaseLost):
            await tasks.finish(pool, build, zombie, compiled, Counter())
        assert not await tasks.renew(pool, build, zombie, Counter(), 30.0)
        for table in ("scope_roots", "subject_roots", "subject_holders"):  # what is found by number
            assert await builds.value(database, f"SELECT count(*) FROM myria.{table}") == 0, table

        await tasks.finish(pool, build, heir, await compile_scope(pool, build, heir, PLANNER, Counter()), Counter())
        assert await builds.value(database, "SELECT count(*) FROM myria.scope_roots") == 1
        with pytest.raises(errors.LeaseLost):
            await tasks.finish(pool, build, heir, compiled, Counter())


async def test_nothing_commits_after_the_build_ended(database: Database) -> None:
    """A worker that was away while its build failed cannot write a root under a number that may belong to another."""
    async with started(database) as (pool, build):
        task = await claimed(pool, build, "late")
        compiled = await compile_scope(pool, build, task, PLANNER, Counter())
        await end_without_result(
            pool,
            TENANT,
            build.build_id,
            Outcome.FAILED,
            error=errors.BuildInvalid("made to fail"),
            settings=builds.DEFAULTS.builder,
        )

        with pytest.raises(errors.LeaseLost):
            await tasks.finish(pool, build, task, compiled, Counter())

    assert await builds.value(database, "SELECT count(*) FROM myria.scope_roots") == 0
    assert await builds.value(database, "SELECT number FROM myria.snapshots") is None
    built = await builds.build(database)
    assert built.outcome is Outcome.SUCCEEDED
    assert await builds.value(database, "SELECT max(number) FROM myria.snapshots") == 1


@pytest.mark.processes
async def test_a_frozen_builder_holds_nothing_up(database: Database, spawn: Spawner) -> None:
    """A builder that stands still in the middle of a transaction loses it, and its locks, as soon as its leases."""
    await append(database.server_dsn, conversation(40))
    build_id = await builds.queue(database)
    environment = {"MYRIA_POSTGRES_DSN": database.builder_dsn, "MYRIA_BUILDER_TASK_LEASE_S": "1"}
    builder = spawn.myria("build", "--build", build_id, env=environment)
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with Pool(database.operator_dsn) as pool:
        async with pool.write(TENANT) as connection:
            await connection.execute(sql("builds.own_build_lock"), lock_key("build", TENANT))
            async with asyncio.timeout(120):
                while not await connection.fetchval(waiting):
                    await asyncio.sleep(0.05)
            builder.signal(signal.SIGSTOP)
        # Nobody else can own the build lock now, until PostgreSQL takes it from the builder that has it.
        aborted = await Registry(pool, builds.DEFAULTS).abort(TENANT, build_id)
        assert aborted["status"] == "aborted"
        builder.signal(signal.SIGCONT)
        assert await asyncio.to_thread(builder.wait) == Outcome.ABORTED.exit_status


async def test_two_processes_share_the_tasks(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two builders at once end the same build once, both with its outcome."""
    meeting, met = asyncio.Barrier(2), 0

    async def together(*arguments: Any, **named: Any) -> Any:
        nonlocal met
        met += 1
        if met <= 2:  # neither goes on before the other has a task too
            await meeting.wait()
        return await compile_scope(*arguments, **named)

    monkeypatch.setattr("myria.builds.run.compile_scope", together)
    for number in range(8):
        await append(database.server_dsn, conversation(30, seed=number, participants=["ana", f"p{number}"]))
    build_id = await builds.queue(database)

    outcomes = await asyncio.gather(
        *(run_build(builds.DEFAULTS, database.builder_dsn, TENANT, build_id) for _ in range(2))
    )

    assert outcomes == [Outcome.SUCCEEDED, Outcome.SUCCEEDED]
    assert await builds.value(database, "SELECT count(*) FROM myria.pointer_moves") == 1
    workers = await builds.value(database, "SELECT count(DISTINCT worker) FROM myria.build_tasks")
    assert workers == 2


@pytest.mark.processes
async def test_several_processes_of_one_machine_build_what_one_builds(database: Database, spawn: Spawner) -> None:
    """With `builder.processes` a builder starts others; a full build by three finds nothing that one did otherwise."""
    for number in range(6):
        await append(database.server_dsn, conversation(30, seed=number, participants=["ana", f"p{number}"]))
    await builds.build(database)
    before = await builds.roots(database)
    build_id = await builds.queue(database, is_full=True)

    environment = {"MYRIA_POSTGRES_DSN": database.builder_dsn, "MYRIA_BUILDER_PROCESSES": "3"}
    builder = spawn.myria("build", "--build", build_id, env=environment)

    assert await asyncio.to_thread(builder.wait) == Outcome.NOTHING_TO_DO.exit_status
    status = await builds.value(database, "SELECT status FROM myria.builds WHERE build_id = $1", build_id)
    assert status == Outcome.NOTHING_TO_DO.value
    assert await builds.roots(database) == before


async def test_a_task_that_kills_its_workers_fails_the_build(database: Database) -> None:
    """A task taken up more often than the limit fails its build, with the scope and a reason."""
    limited = builds.settings(builder={"max_task_attempts": 2})
    async with started(database) as (pool, build):
        await claimed(pool, build, "one", lease_s=0.0)
        await claimed(pool, build, "two", lease_s=0.0)

        outcome = await run_build(limited, database.builder_dsn, TENANT, build.build_id)

    built = await builds.ended(database, build.build_id, outcome)
    assert outcome is Outcome.FAILED
    assert built.error is not None
    assert "never ended" in built.error["message"]
    assert await builds.value(database, "SELECT status FROM myria.snapshots") == "failed"
    assert await builds.value(database, "SELECT violations::text FROM myria.snapshots") != "[]"
    assert await builds.value(database, "SELECT consecutive_failures FROM myria.tenants") == 1


async def test_an_aborted_build_stops_its_workers(database: Database) -> None:
    """A builder whose build is given up while it works ends with that outcome and frees the number; so serving may."""
    async with started(database) as (pool, build):
        await claimed(pool, build, "elsewhere")
        working = asyncio.create_task(run_build(builds.DEFAULTS, database.builder_dsn, TENANT, build.build_id))
        await asyncio.sleep(0.5)
        assert not working.done()
        async with Pool(database.server_dsn) as server:
            answer = await Registry(server, builds.DEFAULTS).abort(TENANT, build.build_id)

        assert answer["status"] == "aborted"
        assert await asyncio.wait_for(working, PATIENCE_S) is Outcome.ABORTED

    assert await builds.value(database, "SELECT number FROM myria.snapshots") is None
