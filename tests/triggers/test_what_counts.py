"""Which events count toward an automatic build: only those that no build has tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from myria import errors
from myria.builds import Outcome
from myria.builds.capture import start_build
from myria.builds.due import Due
from myria.builds.finish import end_without_result
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.builds.versions import fingerprint
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.settings import Settings
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database

SETTINGS = builds.settings(
    builder={
        "inactivity_timeout_s": 30.0,
        "max_unindexed_events": 10,
        "min_interval_s": 0.0,
        "time_share": 1.0,
        "long_tail_time_share": 1.0,
    }
)


async def never(_: str, __: str) -> int:
    """No builder is needed to find out what is due."""
    raise AssertionError("nothing is launched here")


@pytest.fixture
async def loop(database: Database) -> AsyncIterator[ControlLoop]:
    """A control loop that is asked what is due, and does nothing by itself."""
    async with Pool(database.operator_dsn) as pool:
        yield ControlLoop(pool, SETTINGS, never)


async def execute(database: Database, statement: str) -> None:
    """Run a statement as the superuser."""
    async with Pool(database.superuser_dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute(statement)


async def quiet(database: Database) -> None:
    """Let an hour pass since the last event, and every failure be waited out."""
    await execute(database, "UPDATE myria.events SET ingested_at = ingested_at - interval '1 hour'")
    await execute(database, "UPDATE myria.tenants SET retry_at = retry_at - interval '1 day'")


async def fail(database: Database, error: errors.MyriaError, *, outcome: Outcome = Outcome.FAILED) -> str:
    """Let a build capture the log, and then end without a result; return its id."""
    build_id = await builds.queue(database, trigger="inactivity")
    async with Pool(database.builder_dsn) as pool:
        await start_build(pool, TENANT, build_id, fingerprint(SETTINGS.planner))
        await end_without_result(pool, TENANT, build_id, outcome, error=error, settings=SETTINGS.builder)
    return build_id


async def trigger(loop: ControlLoop) -> str | None:
    """Return the trigger that is due, if any."""
    found: Due | None = await loop.due(TENANT)
    return found.trigger if found is not None else None


INVALID = errors.BuildInvalid("a rule was broken", violations=[{"rule": "refs", "message": "a rule was broken"}])
LOST = errors.BuildInterrupted("its Job is gone", reason="WorkerLost", transient=True)
KILLED = errors.BuildInterrupted("its pods failed", reason="BackoffLimitExceeded", transient=False)


@pytest.mark.parametrize("error", [INVALID, KILLED, errors.InternalError("12 builders in a row died")])
async def test_what_failed_is_not_tried_again(database: Database, loop: ControlLoop, error: errors.MyriaError) -> None:
    """Events whose build failed start no build by themselves, however long nothing else comes."""
    await append(database.server_dsn, conversation(12))
    await fail(database, error)
    await quiet(database)

    assert await trigger(loop) is None


async def test_new_events_after_a_failure_count_alone(database: Database, loop: ControlLoop) -> None:
    """After a failure the threshold counts from the cutoff that was tried; a quiet moment takes one new event."""
    await append(database.server_dsn, conversation(12))
    await fail(database, INVALID)
    await append(database.server_dsn, conversation(9, seed=2, start=5000))
    await execute(database, "UPDATE myria.tenants SET retry_at = NULL")
    assert await trigger(loop) is None

    await quiet(database)
    assert await trigger(loop) == "inactivity"

    await append(database.server_dsn, conversation(1, seed=3, start=90_000))
    assert await trigger(loop) == "tail_threshold"


async def test_a_failure_is_waited_out(database: Database, loop: ControlLoop) -> None:
    """Even enough new events start nothing before the wait after a failure is over."""
    await append(database.server_dsn, conversation(12))
    await fail(database, INVALID)
    await append(database.server_dsn, conversation(12, seed=2, start=5000))
    await execute(database, "UPDATE myria.tenants SET retry_at = clock_timestamp() + interval '1 hour'")
    assert await trigger(loop) is None

    await quiet(database)
    assert await trigger(loop) == "tail_threshold"


async def test_a_lost_worker_is_no_verdict_on_the_events(database: Database, loop: ControlLoop) -> None:
    """After a transient failure the same events are tried again, each attempt a cause of its own, later each time."""
    await append(database.server_dsn, conversation(12))
    causes = set()
    for failures in range(3):
        await fail(database, LOST)
        assert await loop.due(TENANT) is None
        waits = await builds.value(database, "SELECT consecutive_failures FROM myria.tenants")
        assert waits == failures + 1
        await quiet(database)
        found = await loop.due(TENANT)
        assert found is not None
        causes.add(found.cause_key)

    assert len(causes) == 3


async def test_tasks_that_met_an_outage_are_tried_again(database: Database, loop: ControlLoop) -> None:
    """A build whose tasks failed only because something was away is tried again; a bug is not."""
    for error, expected in (
        (errors.DeadlineExceeded("no lock in time"), "tail_threshold"),
        (errors.InternalError("a bug"), None),
    ):
        await append(database.server_dsn, conversation(12, seed=len(str(expected))))
        build_id = await builds.queue(database)
        async with Pool(database.builder_dsn) as pool:
            await start_build(pool, TENANT, build_id, fingerprint(SETTINGS.planner))
            async with pool.write(TENANT) as connection:
                await connection.execute(
                    "UPDATE myria.build_tasks SET status = 'failed', error = $1::jsonb WHERE build_id = $2",
                    orjson.dumps(error.to_json()).decode(),
                    build_id,
                )
        await run_build(SETTINGS, database.builder_dsn, TENANT, build_id)
        await quiet(database)
        assert await trigger(loop) == expected


async def test_what_was_aborted_is_not_tried_again(database: Database, loop: ControlLoop) -> None:
    """What an aborted build or a held snapshot that was given up covers is not built again by itself."""
    async with Pool(database.server_dsn) as pool:
        registry = Registry(pool, SETTINGS)
        await append(database.server_dsn, conversation(12))
        await registry.abort(TENANT, await builds.queue(database))
        await quiet(database)
        assert await trigger(loop) is None

        await append(database.server_dsn, conversation(12, seed=2, start=5000))
        assert await trigger(loop) == "tail_threshold"
        held = await builds.build(database, hold=True)
        await registry.abort(TENANT, held.build_id)
        await quiet(database)
        assert await trigger(loop) is None

        await append(database.server_dsn, conversation(1, seed=3, start=50_000))
        assert await trigger(loop) is None
        await quiet(database)
        assert await trigger(loop) == "inactivity"


async def test_a_cause_that_was_given_up_while_it_waited_is_not_asked_for_again(
    database: Database, loop: ControlLoop
) -> None:
    """No build is asked for again for these events, until new ones come; the request itself is never taken up."""
    await append(database.server_dsn, conversation(12))
    assert await loop.ask_when_due(TENANT)
    async with Pool(database.server_dsn) as pool:
        registry = Registry(pool, SETTINGS)
        (waiting,) = await registry.waiting(TENANT)
        await registry.abort(TENANT, waiting["request_id"])
    await quiet(database)
    assert await trigger(loop) is None
    await append(database.server_dsn, conversation(12, seed=2, start=5000))
    assert await trigger(loop) == "tail_threshold"


async def test_a_superseded_build_is_no_attempt(database: Database, loop: ControlLoop) -> None:
    """What a superseded build would have taken is due again: it was never tried on what is active now."""
    await append(database.server_dsn, conversation(12))
    await fail(database, errors.BuildSuperseded("the pointer moved"), outcome=Outcome.SUPERSEDED)

    assert await trigger(loop) == "tail_threshold"


async def test_an_attempt_before_a_rollback_does_not_count(database: Database, loop: ControlLoop) -> None:
    """Once resumed after a rollback, what was abandoned is due although it was built once; a failure of it counts."""
    settings: Settings = SETTINGS
    async with Pool(database.server_dsn) as pool:
        registry = Registry(pool, settings)
        for part in range(2):
            await append(database.server_dsn, conversation(12, seed=part, start=part * 5000))
            await builds.build(database)
        assert await trigger(loop) is None
        await registry.rollback(TENANT)
        assert await trigger(loop) is None
        await registry.resume(TENANT)
        assert await trigger(loop) == "tail_threshold"

        await fail(database, INVALID)
        await quiet(database)
        assert await trigger(loop) is None


async def test_two_loops_find_one_cause(database: Database, loop: ControlLoop) -> None:
    """Whoever looks at the same moment finds the same cause; after another build it is another one."""
    await append(database.server_dsn, conversation(12))
    async with Pool(database.operator_dsn) as pool:
        other = ControlLoop(pool, SETTINGS, never)
        first: list[Any] = [await loop.due(TENANT), await other.due(TENANT)]
    assert first[0] == first[1] is not None

    await fail(database, INVALID)
    await append(database.server_dsn, conversation(12, seed=2, start=5000))
    await quiet(database)
    second = await loop.due(TENANT)
    assert second is not None
    assert second.cause_key != first[0].cause_key
