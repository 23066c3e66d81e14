"""Full rebuilds by the clock: once per due time and tenant, made up for once, and never against a rollback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from myria.builds import Outcome
from myria.builds.queue import take_up
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.errors import ConfigurationError
from myria.settings.schedule import last_due
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database

EVERY_MINUTE = builds.settings(builder={"full_rebuild_schedule": "* * * * *"})


async def never(_: str, __: str) -> int:
    """No builder is needed to find out what is due."""
    raise AssertionError("nothing is launched here")


@pytest.fixture
async def loop(database: Database) -> AsyncIterator[ControlLoop]:
    """A control loop with a schedule that was due a minute ago at most, of a memory with a tree."""
    await append(database.server_dsn, conversation(12))
    await builds.build(database)
    async with Pool(database.operator_dsn) as pool:
        yield ControlLoop(pool, EVERY_MINUTE, never)


async def in_force_for(database: Database, age: timedelta) -> None:
    """Let the tenant and the schedule be so old."""
    async with Pool(database.superuser_dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute("UPDATE myria.schedules SET since = since - $1::interval", age)
        await connection.execute("UPDATE myria.tenants SET created_at = created_at - $1::interval", age)


async def requests(database: Database) -> list[dict[str, object]]:
    """Return the requests that the clock made."""
    return await builds.rows(
        database, "SELECT trigger, is_full, cause_key FROM myria.rebuild_requests WHERE cause_key LIKE 'schedule:%'"
    )


@pytest.mark.parametrize(
    ("expression", "now", "expected"),
    [
        ("0 3 * * *", datetime(2026, 3, 1, 3, 0, 0, tzinfo=UTC), datetime(2026, 3, 1, 3, tzinfo=UTC)),
        ("0 3 * * *", datetime(2026, 3, 1, 2, 59, 59, 999_999, tzinfo=UTC), datetime(2026, 2, 28, 3, tzinfo=UTC)),
        ("0 3 * * SUN", datetime(2026, 3, 4, tzinfo=UTC), datetime(2026, 3, 1, 3, tzinfo=UTC)),
        ("30 4 31 * *", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 1, 31, 4, 30, tzinfo=UTC)),
    ],
)
def test_when_it_was_due_last(expression: str, now: datetime, expected: datetime) -> None:
    """The last due time at or before now, in UTC, over month ends and weekdays."""
    assert last_due(expression, now) == expected


@pytest.mark.parametrize("expression", ["", "often", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *"])
def test_what_is_no_schedule_is_refused(expression: str) -> None:
    """The refusal names the setting and shows how an expression looks."""
    with pytest.raises(ConfigurationError, match=r"builder\.full_rebuild_schedule.*0 3 \* \* SUN"):
        builds.settings(builder={"full_rebuild_schedule": expression})


async def test_what_was_due_before_the_schedule_was_not_missed(database: Database, loop: ControlLoop) -> None:
    """A schedule that is new asks for nothing at once; what it misses from then on is made up for, once."""
    assert await loop.ask_by_the_clock() == 0

    await in_force_for(database, timedelta(days=3))
    assert await loop.ask_by_the_clock() == 1
    (request,) = await requests(database)
    assert (request["trigger"], request["is_full"]) == ("manual", True)


async def test_two_loops_ask_once(database: Database, loop: ControlLoop) -> None:
    """Doubled control loops make one request per due time."""
    yearly = builds.settings(builder={"full_rebuild_schedule": "0 3 1 1 *"})
    async with Pool(database.operator_dsn) as pool:
        loops = [ControlLoop(pool, yearly, never) for _ in range(2)]
        await loops[0].ask_by_the_clock()
        await in_force_for(database, timedelta(days=800))
        assert sum([await one.ask_by_the_clock() for one in loops * 2]) == 1
    assert len(await requests(database)) == 1


async def test_the_clock_does_not_undo_a_rollback(database: Database, loop: ControlLoop) -> None:
    """While a rollback pauses builds the clock asks for none, and one it asked for before waits until they resume."""
    await append(database.server_dsn, conversation(12, seed=2, start=50_000))
    await builds.build(database)
    await loop.ask_by_the_clock()
    await in_force_for(database, timedelta(days=3))
    async with Pool(database.server_dsn) as pool, Pool(database.operator_dsn) as control:
        registry = Registry(pool, EVERY_MINUTE)
        assert await loop.ask_by_the_clock() == 1
        await registry.rollback(TENANT)
        assert await take_up(control, TENANT) is None
        assert await loop.ask_by_the_clock() == 0
        await registry.resume(TENANT)
        assert await take_up(control, TENANT) is not None


async def test_a_build_by_the_clock_that_is_late_is_aborted(database: Database, loop: ControlLoop) -> None:
    """One that was taken up before a rollback and begins after it does not undo it."""
    await append(database.server_dsn, conversation(12, seed=2, start=50_000))
    await builds.build(database)
    await loop.ask_by_the_clock()
    await in_force_for(database, timedelta(days=3))
    await loop.ask_by_the_clock()
    async with Pool(database.server_dsn) as pool, Pool(database.operator_dsn) as control:
        build = await take_up(control, TENANT)
        assert build is not None
        moved = await Registry(pool, EVERY_MINUTE).rollback(TENANT)
        assert await run_build(EVERY_MINUTE, database.builder_dsn, TENANT, build["build_id"]) is Outcome.ABORTED
        status = await Registry(pool, EVERY_MINUTE).status(TENANT)
    assert (status["active_snapshot_id"], status["paused"]) == (moved["snapshot_id"], True)


async def test_a_full_rebuild_that_finds_nothing_ends_quietly(database: Database, loop: ControlLoop) -> None:
    """By the clock a full build compiles everything, and where it finds no difference gives no snapshot."""
    await loop.ask_by_the_clock()
    await in_force_for(database, timedelta(days=3))
    await loop.ask_by_the_clock()
    async with Pool(database.operator_dsn) as control:
        build = await take_up(control, TENANT)
    assert build is not None
    assert build["is_full"] is True
    assert await run_build(EVERY_MINUTE, database.builder_dsn, TENANT, build["build_id"]) is Outcome.NOTHING_TO_DO
