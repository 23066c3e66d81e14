"""Who works on an erasure: one process at a time, another when that one is gone, the control plane by itself."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from unittest import mock

import asyncpg
import pytest

from myria import errors
from myria.access.principal import Proof
from myria.access.store import AccessStore, NewKey
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.erasure import pace, removal, words
from myria.erasure.carrying import THREAD, ErasureCarrier, carry_on_apart
from myria.erasure.commands import Asker, Erasures
from myria.erasure.execution import WITHDRAWN_WITHIN_S
from myria.erasure.model import Selection
from myria.log.limits import MAX_WITHDRAWN
from myria.notes.folding import event_log
from myria.settings import ErasureSettings
from tests.erasure.test_erasure import PHRASE, SETTINGS, erasures, failed, said, seeded, traces
from tests.support import builds
from tests.support.counts import share
from tests.support.events import TENANT, append, event
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database
from tests.support.virtual_time import in_virtual_time

RATIO = 2.5
"""Seconds of rest for each second of work; tests do not rest otherwise."""


def carrier(pool: Pool, settings: ErasureSettings = SETTINGS.erasure, *, unproved: bool = False) -> ErasureCarrier:
    return ErasureCarrier(pool, Registry(pool, SETTINGS), event_log(pool), settings, unproved=unproved)


async def carried_out(working: ErasureCarrier) -> None:
    await working.look()
    await working.settle()


def asked_by(pool: Pool, proof: Proof | None) -> Erasures:
    """Return the erasures of a serving process whose caller has shown a credential, or none."""
    return Erasures(
        pool,
        Registry(pool, SETTINGS),
        event_log(pool, deadline=WITHDRAWN_WITHIN_S),
        TENANT,
        actor="who",
        asker=Asker(proof=proof),
    )


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
            slow = Erasures(pool, Registry(pool, SETTINGS), event_log(pool), TENANT, actor="slow", lease_s=0.4)
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


async def test_the_login_of_serving_alone_erases_nothing(database: Database) -> None:
    """What it lists without an officer's key, with another's, or with a wrong secret waits for a person, and stands in
    no officer's way: an erasure for which the key is shown takes the same event, and is closed to further events."""
    results = await append(database.dsn, [said(1), said(2, "something else")])
    chosen = Selection(events=(results[0].event_id,))
    async with Pool(database.operator_dsn) as control, Pool(database.server_dsn) as serving:
        store = AccessStore(control)
        await store.ensure_tenant(TENANT)
        officer, _ = await store.create_key(NewKey(name="o", tenant=TENANT, roles=("erase",), faces=("admin",)))
        reader, _ = await store.create_key(NewKey(name="r", tenant=TENANT, own=("ana",), roles=("read",)))
        for proof in (
            None,
            Proof(tenant=TENANT, key_id=reader.key_id, digest=reader.digest),
            Proof(tenant=TENANT, key_id=officer.key_id, digest=reader.digest),
            Proof(tenant=TENANT, key_id="", digest=officer.digest),
        ):
            with suppress(errors.EventNotFound):  # from the second on: it is on a list already
                await asked_by(serving, proof).start(chosen, reason="r")
            await carried_out(carrier(control))
        assert await builds.value(database, "SELECT count(*) FROM myria.erased WHERE erased_at IS NOT NULL") == 0
        proved = asked_by(serving, Proof(tenant=TENANT, key_id=officer.key_id, digest=officer.digest))
        erasure_id = await proved.start(chosen, reason="r")
        with pytest.raises(errors.ConfigurationError, match="row-level security"):
            async with serving.write(TENANT) as connection:
                await connection.execute(
                    "INSERT INTO myria.erased (tenant_id, event_seq, scope_id, erasure_id) VALUES ($1, $2, 1, $3)",
                    TENANT,
                    results[1].event_seq,
                    erasure_id,
                )
        await carried_out(carrier(control))
        status = await proved.status(erasure_id)
        waiting = [one for one in await proved.newest(9) if one.state != "done"]
    assert (status.state, status.erased, status.by) == ("done", 1, f"key:{officer.key_id}")
    assert {one.erased for one in waiting} == {0}


async def test_where_nobody_proves_anything_what_the_tool_began_is_carried_out(database: Database) -> None:
    """With auth.mode none there are no keys that could be shown."""
    (result,) = await append(database.dsn, [said(1)])
    async with Pool(database.operator_dsn) as control, Pool(database.server_dsn) as serving:
        erasure_id = await asked_by(serving, None).start(Selection(events=(result.event_id,)), reason="r")
        await carried_out(carrier(control, unproved=True))
        assert (await asked_by(serving, None).status(erasure_id)).state == "done"


async def test_looking_through_texts_holds_up_nobody_else(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an erasure is busy with a text, the loop that carries it on does other work; cancelled, it lets go of the
    erasure, and goes on with it when it runs again."""
    await append(database.dsn, [said(1)])
    busy, others_worked = threading.Event(), threading.Event()
    looked_through = words.phrases

    def slowly(text: str) -> set[str]:
        busy.set()
        assert others_worked.wait(PATIENCE_S), "nothing else was done meanwhile"
        return looked_through(text)

    monkeypatch.setattr(removal, "phrases", slowly)
    async with Pool(database.operator_dsn) as pool:
        erasure_id = await erasures(pool).start(Selection(query=PHRASE), reason="asked")
        running = asyncio.create_task(carry_on_apart(pool, carrier))
        async with asyncio.timeout(PATIENCE_S):
            while not busy.is_set():
                await asyncio.sleep(0.01)
            assert (await erasures(pool).status(erasure_id)).is_worked_on
            running.cancel()
            await asyncio.sleep(0)
            others_worked.set()
            await asyncio.gather(running, return_exceptions=True)
            stopped = await erasures(pool).status(erasure_id)
            assert not stopped.is_worked_on
            running = asyncio.create_task(carry_on_apart(pool, carrier))
            while (await erasures(pool).status(erasure_id)).state != "done":
                await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert await traces(database.dsn) == []


async def test_no_thread_is_left_however_often_it_is_cancelled(database: Database) -> None:
    """Cancelled once, or again before it has ended, at once or while it works: the thread ends."""
    async with Pool(database.operator_dsn) as pool:
        for steps in (0, 1, 2, 5, 50):
            running = asyncio.create_task(carry_on_apart(pool, carrier))
            await asyncio.sleep(0)
            started = [thread for thread in threading.enumerate() if thread.name == THREAD]
            for _ in range(steps):
                await asyncio.sleep(0.001)
            running.cancel()
            await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert len(started) == 1
            await asyncio.to_thread(started[0].join, PATIENCE_S)
            assert not started[0].is_alive()


async def test_a_large_selection_is_withdrawn_at_one_moment(database: Database) -> None:
    """Of very many events in several scopes, whoever looks meanwhile sees all of them or none, before the first goes;
    what is kept of the withdrawal is what the log says, and an export can carry it."""
    count = share(50_000, least=1_500)
    people = [("ana",), ("ana", "ben"), ("carla",)]
    for at in range(0, count, 1_000):
        await append(
            database.dsn,
            [event(10 * n, f"bird {n}", participants=people[n % 3]) for n in range(at, min(at + 1_000, count))],
        )
    everybody = Selection(participants=("ana", "ben", "carla"), shared="remove")
    seen: set[int] = set()
    async with Pool(database.server_dsn) as serving, Pool(database.dsn) as looking:
        erasing = asked_by(serving, None)
        erasure_id = await erasing.start(everybody, reason="r")
        began = time.monotonic()
        withdrawing = asyncio.create_task(erasing.withdraw(erasure_id))
        while not withdrawing.done():
            async with looking.read(TENANT) as connection:
                seen.add(await connection.fetchval("SELECT count(*) FROM myria.withdrawn"))
            await asyncio.sleep(0.1)
        await withdrawing
        print(f"{count} events were withdrawn in {time.monotonic() - began:.1f} s")
        assert (await erasing.status(erasure_id)).withdrawn == count
    assert seen <= {0, count}
    longest = "SELECT max(jsonb_array_length(payload->'events')) FROM myria.events WHERE type = 'myria.withdrawal'"
    assert await builds.value(database, longest) <= MAX_WITHDRAWN
    assert await failed(database.dsn) == {}


async def test_two_lists_that_nobody_proved_are_both_carried_out(database: Database) -> None:
    """With auth.mode none: the later one takes over what both name, and the earlier one keeps the rest."""
    ids = [result.event_id for result in await append(database.dsn, [said(number) for number in range(3)])]
    async with Pool(database.operator_dsn) as control, Pool(database.server_dsn) as serving:
        begun = [
            await asked_by(serving, None).start(Selection(events=tuple(chosen)), reason="r")
            for chosen in (ids[:2], ids[1:])
        ]
        working = carrier(control, unproved=True)
        await carried_out(working)
        await carried_out(working)
        erased = [(await asked_by(serving, None).status(erasure_id)).erased for erasure_id in begun]
    assert erased == [1, 2]
    assert await traces(database.dsn) == []


@in_virtual_time(pace)
async def test_it_rests_longer_than_it_works() -> None:
    """Appends and queries have the database to themselves for most of the time, and no rest is longer than 0.5 s."""
    clock = asyncio.get_running_loop().time
    with mock.patch.object(pace, "REST_RATIO", RATIO):
        paced = pace.Pace()
        rests = []
        for worked_s in (0.02, 0.0004, 0.0006, 60.0):
            await asyncio.sleep(worked_s)
            began = clock()
            await paced.rest()
            rests.append(round(clock() - began, 6))
    assert rests == [0.05, 0.0, 0.0025, 0.5]
