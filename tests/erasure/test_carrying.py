"""Who works on an erasure: one process at a time, another when that one is gone, the control plane by itself."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from myria import errors
from myria.erasure.carrying import ErasureCarrier
from myria.erasure.commands import Erasures
from myria.erasure.model import Selection
from myria.ingest import Ingest
from myria.registry import Registry
from myria.settings import ErasureSettings
from myria.store.database import Database as Pool
from tests.erasure.test_erasure import PHRASE, SETTINGS, erasures, said, seeded, traces
from tests.support import builds
from tests.support.events import TENANT, append
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database


def carrier(pool: Pool, settings: ErasureSettings = SETTINGS.erasure) -> ErasureCarrier:
    return ErasureCarrier(pool, Registry(pool, SETTINGS), Ingest(pool).append_events, settings)


async def test_two_who_go_on_with_one_erasure_do_it_once(database: Database) -> None:
    """The second follows the first, is told of its progress, and returns when it is done; nothing is counted twice."""
    await seeded(database)
    followed: list[int] = []
    async with Pool(database.operator_dsn) as pool, Pool(database.operator_dsn) as other:
        erasure_id = await erasures(pool).start(Selection(query=PHRASE), reason="asked")
        await asyncio.gather(
            erasures(pool).run(erasure_id, at_once=1),
            erasures(other).run(erasure_id, progress=lambda counts: followed.append(sum(counts.values()))),
        )
        receipt = await erasures(pool).receipt(erasure_id)
    assert receipt.content["rows"]["events"] == 7
    assert followed == sorted(followed)
    done = "SELECT count(*) FROM myria.access_log WHERE action = 'erase.done'"
    assert await builds.value(database, done) == 1
    assert await traces(database.dsn) == []


async def test_who_stood_still_for_too_long_stops(database: Database) -> None:
    """A process whose lease somebody else has taken ends with `lease_lost`, and touches the erasure no more."""
    (result,) = await append(database.dsn, [said(1)])
    blocker = await asyncpg.connect(database.dsn)
    try:
        async with Pool(database.operator_dsn) as pool, blocker.transaction():
            await blocker.execute("LOCK TABLE myria.refused_keys IN SHARE MODE")
            slow = Erasures(
                pool, Registry(pool, SETTINGS), Ingest(pool).append_events, TENANT, actor="slow", lease_s=0.4
            )
            erasure_id = await slow.start(Selection(events=(result.event_id,)), reason="asked")
            running = asyncio.create_task(slow.run(erasure_id))
            async with asyncio.timeout(PATIENCE_S), Pool(database.dsn) as owner:
                taken = "UPDATE 0"
                while taken == "UPDATE 0":
                    async with owner.write(TENANT) as connection:
                        taken = await connection.execute(
                            "UPDATE myria.erasures SET worker = 'other', leased_until = now() + interval '1 hour' "
                            "WHERE state = 'erasing'"
                        )
                    await asyncio.sleep(0.02)
                with pytest.raises(errors.LeaseLost):
                    await running
    finally:
        await blocker.close()
    assert await builds.value(database, "SELECT worker FROM myria.erasures") == "other"


async def test_what_fails_says_why_and_is_done_when_it_can_be(database: Database) -> None:
    """An attempt that the database refuses leaves its error beside the erasure, which waits; switched off, the control
    plane leaves it alone; a later attempt does it."""
    (result,) = await append(database.dsn, [said(1)])
    async with Pool(database.operator_dsn) as pool, Pool(database.superuser_dsn) as administrator:
        erasure_id = await erasures(pool).start(Selection(events=(result.event_id,)), reason="asked")
        idle = carrier(pool, ErasureSettings(carry_on=False))
        await asyncio.wait_for(idle.run(), PATIENCE_S)
        async with administrator.write(TENANT) as connection:
            await connection.execute("REVOKE UPDATE ON myria.renderings, myria.events FROM myria_operator")
        working = carrier(pool)
        await working.look()
        await working.settle()
        status = await erasures(pool).status(erasure_id)
        assert (status.state, status.withdrawn, status.is_worked_on) == ("erasing", 1, False)
        assert status.failure is not None
        async with administrator.write(TENANT) as connection:
            await connection.execute("GRANT UPDATE ON myria.renderings, myria.events TO myria_operator")
        await working.look()
        await working.settle()
        assert (await erasures(pool).status(erasure_id)).state == "erasing", "it waits before it is tried again"
        again = carrier(pool)
        await again.look()
        await again.settle()
        done = await erasures(pool).status(erasure_id)
    assert (done.state, done.erased, done.failure) == ("done", 1, None)
