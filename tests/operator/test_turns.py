"""Which builds come before which on Kubernetes, as the operator asks PostgreSQL: counted, not timed."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import asyncpg
import pytest

from myria.db.database import Database as Pool
from myria.settings import Settings
from myria_operator.ledger import Ledger
from myria_operator.observed import Observed
from tests.operator.test_decide import rebuild
from tests.support.postgres import Database

LONG_AGO = "clock_timestamp() - interval '1 hour'"


async def begun(database: Database, settings: Settings) -> set[str]:
    """Return whose waiting builds may have a Job now; a tenant's resource is named after it."""
    async with Pool(database.operator_dsn) as pool:
        ledger = Ledger(pool, settings)
        may_begin = set()
        async with pool.read("*") as connection:
            waiting = await connection.fetch(
                "SELECT tenant_id FROM myria.builds WHERE finished_at IS NULL AND job_uid IS NULL"
            )
        for row in waiting:
            tenant = row["tenant_id"]
            resource = rebuild({"tenant": tenant}, uid=f"uid-{tenant}", name=tenant)
            situation, build = await ledger.look(resource)
            observed = Observed(
                rebuild=resource,
                installation="inst",
                situation=situation,
                build=build,
                max_builds=settings.operator.max_builds,
            )
            if observed.wants_job:
                may_begin.add(tenant)
        return may_begin


class Cluster:
    """Unfinished builds of tenants, put there by hand."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def add(
        self, tenant: str, *, works: bool = False, since: str = "clock_timestamp()", failures: int = 0
    ) -> None:
        """Add a tenant with an unfinished build, which has a Job if it works."""
        await self._connection.execute(
            "INSERT INTO myria.tenants (tenant_id, consecutive_failures) VALUES ($1, $2)", tenant, failures
        )
        await self._connection.execute(
            f"""INSERT INTO myria.builds (tenant_id, build_id, trigger, is_full, hold, resource_name, resource_uid,
                                          job_uid, pods_wanted_at)
                VALUES ($1, 'bld_' || $1, 'manual', false, false, $1, 'uid-' || $1, $2, {since})""",
            tenant,
            f"job-{tenant}" if works else None,
        )


@pytest.fixture
async def cluster(database: Database) -> AsyncIterator[Cluster]:
    """Nobody builds yet."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        yield Cluster(connection)
    finally:
        await connection.close()


SETTINGS = dataclasses.replace(
    Settings(), operator=dataclasses.replace(Settings().operator, max_builds=4, overtime_builds=2)
)


async def test_slots_are_given_in_the_order_of_asking(database: Database, cluster: Cluster) -> None:
    """Three work: of those that wait the first has the last slot."""
    for tenant in ("w1", "w2", "w3"):
        await cluster.add(tenant, works=True)
    for tenant in ("q1", "q2"):
        await cluster.add(tenant)
    assert await begun(database, SETTINGS) == {"q1"}


async def test_builds_that_overran_their_turn_hold_no_slot(database: Database, cluster: Cluster) -> None:
    """Four that hang leave two slots to others, as many as operator.overtime_builds says."""
    for tenant in ("h1", "h2", "h3", "h4"):
        await cluster.add(tenant, works=True, since=LONG_AGO)
    for tenant in ("q1", "q2", "q3"):
        await cluster.add(tenant)
    assert await begun(database, SETTINGS) == {"q1", "q2"}
    none = dataclasses.replace(SETTINGS, operator=dataclasses.replace(SETTINGS.operator, overtime_builds=0))
    assert await begun(database, none) == set()


async def test_who_failed_comes_last_and_leaves_one_slot(database: Database, cluster: Cluster) -> None:
    """Tenants whose last build failed wait behind all others, and have three of four slots at most."""
    await cluster.add("f1", failures=3)
    await cluster.add("f2", failures=1)
    for tenant in ("w1", "w2"):
        await cluster.add(tenant, works=True)
    assert await begun(database, SETTINGS) == {"f1"}
    await cluster.add("q1")
    assert await begun(database, SETTINGS) == {"q1"}
    await cluster.add("q2")
    assert await begun(database, SETTINGS) == {"q1", "q2"}
