"""Builds and withdrawals: one unit and its path, incremental equals full, and scopes that lose everything."""

from __future__ import annotations

import random
from typing import Any

import pytest

from myria.builds.verify import verify
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.folding import event_log
from myria.settings import Settings
from tests.support import builds
from tests.support.counts import share
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database

PAIRS = (("ana", "ben"), ("ana", "chloé"))
DENSE = builds.settings(planner={"gap_s": 3_600})


async def ids(database: Database) -> list[str]:
    found = await builds.rows(
        database, "SELECT event_id FROM myria.events WHERE type IS DISTINCT FROM 'myria.withdrawal' ORDER BY event_seq"
    )
    return [row["event_id"] for row in found]


async def change(database: Database, reason: Any, named: list[str]) -> None:
    async with Pool(database.server_dsn) as pool:
        withdrawals = Withdrawals(event_log(pool))
        if reason == "restored":
            await withdrawals.restore(TENANT, named, may_see=lambda _: True)
        else:
            await withdrawals.withdraw(TENANT, named, reason, may_see=lambda _: True)


async def sound(database: Database, configured: Settings = DENSE) -> None:
    async with Pool(database.dsn) as pool:
        report = await verify(pool, TENANT, configured.planner, deep=True, all_snapshots=True)
    assert report.failed == 0, [check.failures for check in report.checks if check.failed]


@pytest.mark.parametrize("seed", range(share(60)))
async def test_any_withdrawals_between_builds(database: Database, seed: int) -> None:
    """Whatever is appended, withdrawn and restored between builds, each gives the trees of a full build."""
    chance = random.Random(seed)
    for step in range(5):
        if step == 0 or chance.random() < 0.6:
            for number, pair in enumerate(PAIRS):
                said = conversation(
                    chance.randint(1, 60), seed=seed * 100 + step * 10 + number, participants=pair, start=step * 500_000
                )
                await append(database.server_dsn, said)
        for _ in range(chance.randint(0, 3)):
            known = await ids(database)
            first = chance.randrange(len(known))
            named = known[first : first + chance.choice([1, 1, 2, 10, 60])]
            await change(database, chance.choice(["forgotten", "superseded", "expired", "restored"]), named)
        built = await builds.build(database, configured=DENSE, full=chance.random() < 0.15)
        cutoff = await builds.value(database, "SELECT cutoff FROM myria.builds WHERE build_id = $1", built.build_id)
        assert await builds.roots(database) == await builds.planned(database, cutoff, configured=DENSE)
    await sound(database)


async def test_a_scope_that_loses_everything(database: Database) -> None:
    """A scope whose events were all withdrawn has no tree, and gets one again with the next event."""
    for pair in PAIRS:
        await append(database.server_dsn, conversation(20, participants=pair))
    before = await ids(database)
    first = await builds.build(database, configured=DENSE)
    await change(database, "forgotten", before[:20])
    second = await builds.build(database, configured=DENSE)

    assert set(await builds.roots(database)) == {PAIRS[1]}
    assert set(await builds.roots(database, first.snapshot_id)) == set(PAIRS)
    assert second.counts["events_withdrawn"] == 20
    await sound(database)

    await append(database.server_dsn, conversation(3, participants=PAIRS[0], seed=9, start=9_000_000))
    await change(database, "restored", before[4:8])
    third = await builds.build(database, configured=DENSE)
    cutoff = await builds.value(database, "SELECT cutoff FROM myria.builds WHERE build_id = $1", third.build_id)
    assert await builds.roots(database) == await builds.planned(database, cutoff, configured=DENSE)
    assert third.counts["events_new"] == 7
    await sound(database)


async def test_a_withdrawal_costs_one_unit_and_its_path(database: Database) -> None:
    """Of 3,000 events one is withdrawn: the build reads and writes less than a thousand rows in all."""
    await append(database.server_dsn, conversation(3_000, participants=PAIRS[0]))
    await builds.build(database)
    await change(database, "forgotten", (await ids(database))[1_500:1_501])
    built = await builds.build(database)

    rows = sum(value for name, value in built.counts.items() if name.startswith("rows_"))
    assert built.counts["events_withdrawn"] == 1
    assert built.counts["units_planned"] <= 3
    assert rows + built.counts["events_read"] + built.counts["nodes_read"] <= 1_000
    assert rows <= 100


async def test_withdrawals_alone_are_a_cause_of_a_build(database: Database) -> None:
    """A quiet memory in which something was only withdrawn is due for a build, and one that was built is not."""
    configured = builds.settings(builder={"max_unindexed_events": 1, "min_interval_s": 0, "inactivity_timeout_s": 0})
    await append(database.server_dsn, conversation(10, participants=PAIRS[0]))
    await builds.build(database)

    async def launch(_tenant: str, _build: str) -> int:
        raise AssertionError("nobody asked for a build")

    async with Pool(database.dsn) as pool:
        loop = ControlLoop(pool, configured, launch)
        assert await loop.due(TENANT) is None
        await change(database, "forgotten", (await ids(database))[:1])
        due = await loop.due(TENANT)
        assert due is not None
        assert due.trigger == "tail_threshold"
        await loop.close()
