"""A build killed anywhere, any number of times, ends in one published snapshot or none."""

from __future__ import annotations

import asyncio
import random
import subprocess
from contextlib import suppress

import pytest

from myria.builds import Outcome
from tests.support import builds
from tests.support.counts import SOAK
from tests.support.events import TENANT, append, conversation
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.processes import Spawned, Spawner

pytestmark = pytest.mark.processes

GENERATIONS = 3 if SOAK else 2


def start(spawn: Spawner, database: Database, build_id: str) -> Spawned:
    """Start a builder as a process of its own."""
    environment = {"MYRIA_POSTGRES_DSN": database.builder_dsn}
    return spawn.myria("build", "--tenant", TENANT, "--build", build_id, env=environment)


async def state(database: Database, build_id: str) -> str:
    """Return a build's status."""
    status: str = await builds.value(database, "SELECT status FROM myria.builds WHERE build_id = $1", build_id)
    return status


async def working(database: Database, build_id: str) -> bool:
    """Tell whether a worker has given a sign of life within the lease."""
    alive: bool = await builds.value(
        database,
        "SELECT coalesce(lease_until > clock_timestamp(), false) AND status = 'running' FROM myria.builds "
        "WHERE build_id = $1",
        build_id,
    )
    return alive


@pytest.mark.parametrize("seed", [1, 2] if SOAK else [1])
async def test_a_builder_killed_again_and_again(database: Database, spawn: Spawner, seed: int) -> None:
    """Builders killed at random moments leave every build either unfinished or published whole, exactly as planned."""
    chosen = random.Random(seed)
    kills = 0
    for generation in range(GENERATIONS):
        for number in range(12):
            pair = ["ana", f"p{number}"]
            await append(
                database.server_dsn,
                conversation(60, seed=generation * 100 + number, participants=pair, start=generation),
            )
        before = await builds.roots(database)
        build_id = await builds.queue(database)
        for delay in (0.0, chosen.uniform(0.0, 0.2), chosen.uniform(0.0, 0.6), 300.0):
            builder = start(spawn, database, build_id)
            # Dying while it imports is no test: the delay counts from the moment it is at work.
            async with asyncio.timeout(PATIENCE_S):
                while builder.process.poll() is None and not await working(database, build_id):
                    await asyncio.sleep(0.1)
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(builder.process.wait, delay)
            builder.kill()
            if builder.process.returncode == 0:
                break
            kills += 1
            if await state(database, build_id) != "succeeded":
                assert await builds.roots(database) == before
        assert await state(database, build_id) == "succeeded"
        cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
        assert await builds.roots(database) == await builds.planned(database, cutoff)
    assert kills
    numbers = [row["number"] for row in await builds.rows(database, "SELECT number FROM myria.snapshots ORDER BY 1")]
    assert numbers == list(range(1, GENERATIONS + 1))


async def test_builder_reports_by_its_exit_status(database: Database, spawn: Spawner) -> None:
    """The process exits 0 for a published build, and otherwise says which error kept it from that."""
    await append(database.server_dsn, conversation(20))
    build_id = await builds.queue(database)

    assert start(spawn, database, build_id).wait() == Outcome.SUCCEEDED.exit_status == 0
    assert start(spawn, database, "bld_nowhere").wait() == 3


async def test_builders_of_one_scope_killed_in_turn(database: Database, spawn: Spawner) -> None:
    """Of two builders that share one big scope now one is killed, now the other; the scope is published whole."""
    await append(database.server_dsn, conversation(4_200))
    build_id = await builds.queue(database)
    builders = [start(spawn, database, build_id)]
    for killed in range(3):
        builders.append(start(spawn, database, build_id))
        async with asyncio.timeout(PATIENCE_S):
            while not await _has_begun(database, build_id, parts=killed):
                await asyncio.sleep(0.1)
        builders[killed].kill()
    await asyncio.to_thread(builders[-1].wait)

    assert await state(database, build_id) == "succeeded"
    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert await builds.roots(database) == await builds.planned(database, cutoff)
    assert await builds.value(database, "SELECT count(*) FROM myria.build_parts") == 0


async def _has_begun(database: Database, build_id: str, *, parts: int) -> bool:
    """Tell whether more than so many parts of the only scope are done, or all of it is."""
    begun: bool = await builds.value(
        database,
        "SELECT (SELECT count(*) > $2 FROM myria.build_parts WHERE build_id = $1 AND status = 'done') "
        "OR EXISTS (SELECT FROM myria.build_tasks WHERE build_id = $1 AND status = 'done')",
        build_id,
        parts,
    )
    return begun
