"""When builds start by themselves, and how they are kept going."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from myria import errors
from myria.builds import Outcome
from myria.builds.finish import end_without_result
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.log.ids import new_id
from myria.settings import Settings
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.looping import CountedLoop
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

QUICK: dict[str, Any] = {
    "inactivity_timeout_s": 0.6,
    "max_unindexed_events": 10,
    "poll_s": 0.1,
    "backoff_base_s": 0.5,
    "backoff_max_s": 1.0,
    "min_interval_s": 0.0,
    "time_share": 1.0,
    "long_tail_time_share": 1.0,
}


def configured(**changes: Any) -> Settings:
    """Settings with a short patience."""
    return builds.settings(builder={**QUICK, **changes})


@asynccontextmanager
async def loop(
    database: Database, settings: Settings, launch: Callable[[str, str], Awaitable[int]] | None = None
) -> AsyncIterator[CountedLoop]:
    """A running control loop; its builders are tasks of this process by default."""

    async def in_process(tenant: str, build_id: str) -> int:
        return (await run_build(settings, database.builder_dsn, tenant, build_id)).exit_status

    async with Pool(database.operator_dsn) as pool:
        one = CountedLoop(pool, settings, launch or in_process)
        running = asyncio.create_task(one.run())
        try:
            yield one
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def until(condition: Callable[[], Awaitable[Any]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def others_turn(database: Database, one: CountedLoop) -> None:
    """Return once a tenant that was silent for as long as a quiet moment takes, from now on, has got its build.

    Whoever was due before it, by either trigger, would have got one as well.
    """
    tenant = new_id("ten")
    await append(database.server_dsn, conversation(3), tenant=tenant)

    async def queued() -> Any:
        return await builds.value(database, "SELECT count(*) FROM myria.builds", tenant=tenant)

    await until(queued)
    await one.looks(2)


def published(database: Database, count: int, tenant: str = TENANT) -> Callable[[], Awaitable[bool]]:
    """The condition that so many snapshots were published."""

    async def check() -> bool:
        moves = await builds.value(database, "SELECT count(*) FROM myria.pointer_moves", tenant=tenant)
        return bool(moves >= count)

    return check


async def triggers_of(database: Database) -> list[str]:
    """Return the triggers of all builds, oldest first."""
    return [
        row["trigger"] for row in await builds.rows(database, "SELECT trigger FROM myria.builds ORDER BY created_at")
    ]


async def test_the_tail_threshold_starts_a_build(database: Database) -> None:
    """As many events as the threshold start a build at once, without waiting for a quiet moment."""
    async with loop(database, configured(inactivity_timeout_s=3600)) as one:
        await append(database.server_dsn, conversation(9))
        await one.looks()
        assert await triggers_of(database) == []
        await append(database.server_dsn, conversation(1, seed=2, start=5000))
        await until(published(database, 1))

    assert await triggers_of(database) == ["tail_threshold"]


async def test_a_quiet_moment_starts_a_build_once(database: Database) -> None:
    """Few events are built when nothing more comes, once; then only new events count."""
    async with loop(database, configured()) as one:
        await append(database.server_dsn, conversation(3))
        await until(published(database, 1))
        await others_turn(database, one)
        assert await triggers_of(database) == ["inactivity"]
        await append(database.server_dsn, conversation(2, start=5000))
        await until(published(database, 2))

    assert await triggers_of(database) == ["inactivity", "inactivity"]


async def test_internal_events_start_nothing(database: Database) -> None:
    """However many internal events there are, neither trigger counts them."""
    async with loop(database, configured()) as one:
        await append(database.server_dsn, [event(at, "thinking", internal=True) for at in range(30)])
        await others_turn(database, one)

    assert await triggers_of(database) == []


async def test_triggers_can_be_switched_off(database: Database) -> None:
    """With both triggers at 0 only a request starts a build."""
    settings = configured(inactivity_timeout_s=0, max_unindexed_events=0)
    async with loop(database, settings) as one:
        await append(database.server_dsn, conversation(30))
        await one.looks()
        assert await triggers_of(database) == []
        async with Pool(database.server_dsn) as pool:
            await Registry(pool, settings).request_build(TENANT, reason="now")
        await until(published(database, 1))

    assert await triggers_of(database) == ["manual"]


async def test_a_rollback_is_not_undone(database: Database) -> None:
    """After a rollback nothing is built, whatever arrives, until builds are resumed; then the tail is."""
    settings = configured()
    async with loop(database, settings) as one, Pool(database.server_dsn) as pool:
        registry = Registry(pool, settings)
        for part in range(2):
            await append(database.server_dsn, conversation(5, seed=part, start=part * 5000))
            await until(published(database, part + 1))
        await registry.rollback(TENANT)
        await append(database.server_dsn, conversation(20, seed=4, start=50_000))
        await others_turn(database, one)
        assert len(await triggers_of(database)) == 2
        assert (await registry.status(TENANT))["tail_events"] == 25

        assert await registry.resume(TENANT) == {"resumed": True}
        await until(published(database, 4))
        assert (await registry.status(TENANT))["tail_events"] == 0


async def test_abandoned_events_are_built_again_once_resumed(database: Database) -> None:
    """A resume after a rollback builds the abandoned events again even when nothing new arrived."""
    settings = configured()
    async with loop(database, settings) as one, Pool(database.server_dsn) as pool:
        registry = Registry(pool, settings)
        for part in range(2):
            await append(database.server_dsn, conversation(12, seed=part, start=part * 5000))
            await until(published(database, part + 1))
        await registry.rollback(TENANT)
        await one.looks()
        await registry.resume(TENANT)
        await until(published(database, 4))


async def test_a_held_snapshot_pauses(database: Database) -> None:
    """While a held snapshot waits for a decision no further build starts by itself; publishing it lets them go on."""
    settings = configured(auto_publish=False)
    async with loop(database, settings) as one, Pool(database.server_dsn) as pool:
        registry = Registry(pool, settings)
        await append(database.server_dsn, conversation(12))

        async def held() -> bool:
            return (await registry.status(TENANT))["held_snapshot_id"] is not None

        await until(held)
        await append(database.server_dsn, conversation(12, seed=3, start=9000))
        await others_turn(database, one)
        assert len(await triggers_of(database)) == 1
        await registry.publish(TENANT, (await registry.status(TENANT))["held_snapshot_id"])
        await until(held)

    assert len(await triggers_of(database)) == 2


async def test_an_aborted_build_is_not_started_again(database: Database) -> None:
    """What an aborted build would have covered starts no build by itself; new events do."""
    settings = configured()

    async def never_ends(_: str, __: str) -> int:
        await asyncio.sleep(3600)
        return 1

    async with Pool(database.server_dsn) as pool:
        registry = Registry(pool, settings)
        async with loop(database, settings, never_ends):
            await append(database.server_dsn, conversation(12))

            async def started() -> bool:
                return (await registry.status(TENANT))["last_build"] is not None

            await until(started)
            last = (await registry.status(TENANT))["last_build"]
            await registry.abort(TENANT, last["build_id"])
        async with loop(database, settings) as one:
            await others_turn(database, one)
            assert len(await triggers_of(database)) == 1
            await append(database.server_dsn, conversation(2, seed=3, start=9000))
            await until(published(database, 1))


async def test_failures_back_off_and_are_tried_again(database: Database) -> None:
    """A build that keeps losing its worker is tried again, later each time; success forgets it."""
    settings = configured()
    started: list[float] = []

    async def launch(tenant: str, build_id: str) -> int:
        started.append(time.monotonic())
        async with Pool(database.builder_dsn) as pool:
            if len(started) < 4:
                outcome = await end_without_result(
                    pool,
                    tenant,
                    build_id,
                    Outcome.FAILED,
                    error=errors.BuildInterrupted("made to fail", transient=True),
                    settings=settings.builder,
                )
                return outcome.exit_status
        return (await run_build(settings, database.builder_dsn, tenant, build_id)).exit_status

    async with loop(database, settings, launch):
        await append(database.server_dsn, conversation(12))
        await until(published(database, 1))

    assert len(started) == 4
    assert started[1] - started[0] > 0.4
    assert started[2] - started[1] > 0.8
    assert await builds.value(database, "SELECT consecutive_failures FROM myria.tenants") == 0


async def test_a_dead_builder_is_replaced(database: Database) -> None:
    """A builder that dies is started again until the build has ended."""
    settings = configured()
    times = 0

    async def dies_twice(tenant: str, build_id: str) -> int:
        nonlocal times
        times += 1
        if times < 3:
            raise RuntimeError("killed")
        return (await run_build(settings, database.builder_dsn, tenant, build_id)).exit_status

    async with loop(database, settings, dies_twice):
        await append(database.server_dsn, conversation(12))
        await until(published(database, 1))

    assert times == 3
    assert len(await triggers_of(database)) == 1


async def test_why_a_builder_died_stands_in_status_meanwhile(database: Database) -> None:
    """While the next one is tried, and no longer once the build has ended well."""
    settings = configured()
    may_live = asyncio.Event()

    async def dies(tenant: str, build_id: str) -> int:
        if not may_live.is_set():
            raise errors.InternalError("a builder was killed by signal 9: it said nothing")
        return (await run_build(settings, database.builder_dsn, tenant, build_id)).exit_status

    async with Pool(database.server_dsn) as pool, loop(database, settings, dies):
        await append(database.server_dsn, conversation(12))

        async def told() -> bool:
            last = (await Registry(pool, settings).status(TENANT))["last_build"]
            return last is not None and "signal 9" in (last["error"] or {}).get("message", "")

        await until(told)
        may_live.set()
        await until(published(database, 1))
        assert (await Registry(pool, settings).status(TENANT))["last_build"]["error"] is None


async def test_a_builder_that_a_person_must_help_is_not_tried_twelve_times(database: Database) -> None:
    """What the next builder would say too fails the build with the first one's words."""
    settings = configured(inactivity_timeout_s=3600.0, backoff_base_s=3600.0, backoff_max_s=3600.0)
    times = 0

    async def misses_a_file(_tenant: str, _build_id: str) -> int:
        nonlocal times
        times += 1
        raise errors.ConfigurationError("the request template model.json cannot be read")

    async with Pool(database.server_dsn) as pool, loop(database, settings, misses_a_file):
        await append(database.server_dsn, conversation(12))

        async def failed() -> bool:
            last = (await Registry(pool, settings).status(TENANT))["last_build"]
            return last is not None and last["status"] == "failed"

        await until(failed)
        last = (await Registry(pool, settings).status(TENANT))["last_build"]
    assert (times, last["error"]["code"]) == (1, "configuration_error")


async def test_an_orphaned_build_is_taken_over(database: Database) -> None:
    """A build left running by a process that is gone goes on as soon as its lease has ended."""
    await append(database.server_dsn, conversation(12))
    build_id = await builds.queue(database)
    began = time.monotonic()
    async with Pool(database.operator_dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute("UPDATE myria.builds SET lease_until = clock_timestamp() + interval '1 second'")
    async with loop(database, configured()):
        await until(published(database, 1))

    assert time.monotonic() - began >= 1.0
    assert await builds.value(database, "SELECT status FROM myria.builds WHERE build_id = $1", build_id) == "succeeded"


async def test_one_build_satisfies_all_that_ask_for_the_same(database: Database) -> None:
    """Requests that wait together become one build; one that asks for more gets its own."""
    settings = configured()
    await append(database.server_dsn, conversation(12))
    async with Pool(database.server_dsn) as pool:
        registry = Registry(pool, settings)
        asked = [await registry.request_build(TENANT) for _ in range(4)]
        full = await registry.request_build(TENANT, full=True)

        async def built() -> bool:
            status = await registry.status(TENANT)
            return not (status["queued"] or status["building"])

        async with loop(database, settings):
            await until(built)  # the second build may find nothing to do, and then publishes nothing

        ids = [(await registry.request(TENANT, one["request_id"]))["build_id"] for one in asked]
        assert len(set(ids)) == 1
        assert (await registry.request(TENANT, full["request_id"]))["build_id"] not in {None, ids[0]}


async def test_two_loops_do_the_same_work_once(database: Database) -> None:
    """Two control loops at once start one build, not two."""
    settings = configured()
    async with loop(database, settings) as one, loop(database, settings) as other:
        await append(database.server_dsn, conversation(12))
        await until(published(database, 1))
        await others_turn(database, one)
        await others_turn(database, other)

    assert len(await triggers_of(database)) == 1


async def test_every_tenant_is_found(database: Database) -> None:
    """Each tenant is built on its own account."""
    async with loop(database, configured()):
        for number in range(6):
            await append(database.server_dsn, conversation(12, seed=number), tenant=f"t{number}")
        for number in range(6):
            await until(published(database, 1, tenant=f"t{number}"))


async def test_the_loop_survives_an_outage(database: Database) -> None:
    """While every connection is refused the loop waits, and goes on by itself afterwards."""
    async with (
        loop(database, configured()) as one,
        Pool(database.superuser_dsn) as pool,
        pool.connection() as admin,
    ):
        name = await admin.fetchval("SELECT current_database()")
        await append(database.server_dsn, conversation(3))
        await admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT 0')
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        await one.fails()
        await admin.execute(f'ALTER DATABASE "{name}" CONNECTION LIMIT -1')
        await until(published(database, 1))


async def test_retention_is_kept_by_the_loop(database: Database) -> None:
    """Collecting goes over every tenant with something to remove."""
    for part in range(4):
        await append(database.server_dsn, conversation(8, seed=part, start=part * 5000))
        await builds.build(database)
    settings = builds.settings(retention={"keep_snapshots": 1, "min_archived_s": 0.0})
    async with Pool(database.operator_dsn) as pool:

        async def nothing(_: str, __: str) -> int:
            return 0

        await ControlLoop(pool, settings, nothing).collect()

    assert await builds.value(database, "SELECT count(*) FROM myria.snapshots") == 2
