"""Builds are taken in turn over tenants: who fails, hangs or asks all the time delays others by one turn at most."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from myria.builds import Outcome
from myria.builds.finish import end_without_result
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.errors import BuildInterrupted
from myria.settings import Settings
from tests.support import builds
from tests.support.events import append, conversation
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

SETTINGS = builds.settings(builder={"inactivity_timeout_s": 0, "max_unindexed_events": 0, "poll_s": 0.05})
QUIET = ("m", "q", "z")


async def launched_until(
    database: Database,
    finished: Callable[[list[str]], bool],
    launch: Callable[[str, str], Awaitable[int]],
    slots: int,
    settings: Settings = SETTINGS,
) -> list[str]:
    """Run a control loop until `finished` says so of the tenants whose builders began; return those in order."""
    order: list[str] = []
    done = asyncio.Event()

    async def noted(tenant: str, build_id: str) -> int:
        order.append(tenant)
        if finished(order):
            done.set()
        return await launch(tenant, build_id)

    async with Pool(database.operator_dsn) as pool:
        running = asyncio.create_task(ControlLoop(pool, settings, noted, max_builders=slots).run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await done.wait()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    return order


async def ask(database: Database, *tenants: str) -> None:
    """Ask for one build of each."""
    async with Pool(database.operator_dsn) as pool:
        for tenant in tenants:
            await append(database.server_dsn, conversation(3), tenant=tenant)
            await Registry(pool, SETTINGS).request_build(tenant)


@pytest.mark.parametrize("end", ["fails", "dies"])
async def test_who_fails_all_the_time_has_no_more_than_its_turn(database: Database, end: str) -> None:
    """Between two builders of a tenant whose builds fail, or whose builders die, everybody who waits gets one."""
    await ask(database, "a", *QUIET)

    async def launch(tenant: str, build_id: str) -> int:
        if tenant != "a":
            return (await run_build(SETTINGS, database.builder_dsn, tenant, build_id)).exit_status
        async with Pool(database.operator_dsn) as pool:
            if end == "fails":
                await end_without_result(
                    pool, tenant, build_id, Outcome.FAILED, error=BuildInterrupted("no"), settings=Settings().builder
                )
                await Registry(pool, SETTINGS).request_build(tenant)
        return 1

    order = await launched_until(database, lambda order: set(order) >= {"a", *QUIET}, launch, slots=1)
    for tenant in QUIET:
        assert order[: order.index(tenant)].count("a") <= 1, order


async def test_who_never_ends_holds_one_slot(database: Database) -> None:
    """A hanging build keeps the one slot it has; all others are built meanwhile, and it gets no second builder."""
    await ask(database, "a", *QUIET)
    for_ever = asyncio.Event()

    async def launch(tenant: str, build_id: str) -> int:
        if tenant == "a":
            await for_ever.wait()
        return (await run_build(SETTINGS, database.builder_dsn, tenant, build_id)).exit_status

    order = await launched_until(database, lambda order: set(order) >= {"a", *QUIET}, launch, slots=2)
    assert order.count("a") == 1


async def test_who_asks_all_the_time_takes_turns(database: Database) -> None:
    """Of tenants that ask again as soon as their build ends, nobody falls behind by more than two builds."""
    tenants = ("a", "b", "c")
    await ask(database, *tenants)

    async def launch(tenant: str, build_id: str) -> int:
        status = (await run_build(SETTINGS, database.builder_dsn, tenant, build_id)).exit_status
        await ask(database, tenant)
        return status

    order = await launched_until(database, lambda order: len(order) >= 9, launch, slots=1)
    for length in range(len(order)):
        counts = [order[: length + 1].count(tenant) for tenant in tenants]
        # Who is looked at in the same moment may change places.
        assert max(counts) - min(counts) <= 2, order


async def test_four_that_hang_do_not_keep_everybody_else_waiting(database: Database) -> None:
    """All slots are taken by builds that never end: the others are built all the same, each by one builder."""
    hanging = ("a", "b", "c", "d")
    await ask(database, *hanging)
    settings = builds.settings(
        builder={"inactivity_timeout_s": 0, "max_unindexed_events": 0, "poll_s": 0.05, "turn_s": 0.05}
    )
    ended: list[str] = []
    asked: list[asyncio.Task[None]] = []

    async def launch(tenant: str, build_id: str) -> int:
        if tenant in hanging:
            if not asked:
                asked.append(asyncio.create_task(ask(database, *QUIET)))
            await asyncio.Event().wait()
        outcome = await run_build(SETTINGS, database.builder_dsn, tenant, build_id)
        ended.append(tenant)
        return outcome.exit_status

    async with Pool(database.operator_dsn) as pool:
        running = asyncio.create_task(ControlLoop(pool, settings, launch, max_builders=4).run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while len(ended) < len(QUIET):
                    await asyncio.sleep(0.02)
        finally:
            running.cancel()
            await asyncio.gather(running, *asked, return_exceptions=True)
    assert sorted(set(ended)) == sorted(QUIET)


async def test_a_build_that_never_ends_fails_at_its_deadline_and_backs_off(database: Database) -> None:
    """Its builder is ended, the error says why, and the tenant's next automatic build waits."""
    await ask(database, "a")
    settings = builds.settings(builder={"poll_s": 0.05, "timeout_s": 0.2, "max_unindexed_events": 1})
    cancelled = asyncio.Event()

    async def launch(tenant: str, build_id: str) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return 0

    async with Pool(database.operator_dsn) as pool:
        loop = ControlLoop(pool, settings, launch, max_builders=4)
        running = asyncio.create_task(loop.run())
        try:
            async with asyncio.timeout(PATIENCE_S):
                row = None
                while row is None:
                    await asyncio.sleep(0.02)
                    async with pool.read("a") as connection:
                        row = await connection.fetchrow(
                            "SELECT status, error FROM myria.builds WHERE tenant_id = 'a' AND finished_at IS NOT NULL"
                        )
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert cancelled.is_set()
        assert row["status"] == "failed"
        assert orjson.loads(row["error"])["code"] == "build_timed_out"
        async with pool.read("a") as connection:
            failures = await connection.fetchval("SELECT consecutive_failures FROM myria.tenants WHERE tenant_id = 'a'")
        assert failures >= 1
