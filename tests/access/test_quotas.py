"""Quotas of tenants: what one uses beyond its own is refused, and nobody else notices."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from myria.access.store import AccessStore
from myria.builds.queue import take_up
from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.errors import InvalidArgument, QuotaExceeded, StorageQuotaExceeded, TenantNotFound
from myria.log.quotas import FRESH_S, TenantQuotas
from myria.memory import Memory
from myria.notes.memories.model import MemoryDraft
from myria.notes.memories.sharing import Keeping
from myria.settings import Settings
from tests.cli.conftest import call
from tests.isolation.world import Statements
from tests.support import builds
from tests.support.events import append, conversation, event
from tests.support.postgres import Database
from tests.turns.hosts import Host


class Clock:
    """A steady clock that a test moves."""

    at = 1_000.0

    def __call__(self) -> float:
        return self.at


async def admit(quotas: TenantQuotas, tenant: str, events: int) -> None:
    """Let so many events in."""
    async with quotas.append(tenant, events):
        pass


async def test_a_tenant_is_held_to_its_own_rate_alone(database: Database, store: AccessStore) -> None:
    """Two seconds' worth pass at once, the next is refused with when it passes; another tenant appends on."""
    clock = Clock()
    await store.set_quotas("default", {"events_per_s": 10})
    async with Pool(database.server_dsn) as pool:
        quotas = TenantQuotas(pool, None, ticks=clock)
        await admit(quotas, "default", 20)
        with pytest.raises(QuotaExceeded) as caught:
            await admit(quotas, "default", 15)
        assert caught.value.retryable
        assert caught.value.http_status == 429
        assert caught.value.details == {"quota": "events_per_s", "limit": 10.0, "retry_after_s": 2}
        for _ in range(50):
            await admit(quotas, "other", 1_000)
        clock.at += 1.5
        await admit(quotas, "default", 15)


async def test_settings_give_what_a_tenant_does_not_say(database: Database, store: AccessStore) -> None:
    """A tenant's own rate wins, either way, and a change holds after some seconds."""
    clock = Clock()
    async with Pool(database.server_dsn) as pool:
        quotas = TenantQuotas(pool, 1, ticks=clock)
        await admit(quotas, "default", 2)
        with pytest.raises(QuotaExceeded):
            await admit(quotas, "default", 1)
        await store.set_quotas("default", {"events_per_s": 1_000})
        clock.at += FRESH_S
        await admit(quotas, "default", 2_000)
        await store.set_quotas("default", {"events_per_s": None})
        clock.at += FRESH_S
        await admit(quotas, "default", 2)
        with pytest.raises(QuotaExceeded):
            await admit(quotas, "default", 1)


async def test_appends_that_come_together_read_the_row_once(database: Database, store: AccessStore) -> None:
    """However many find what is known too old, one read serves all; one that gives up takes it from no other."""
    clock = Clock()
    async with Pool(database.server_dsn) as pool:
        statements = Statements(pool)
        quotas = TenantQuotas(pool, None, ticks=clock)
        for _ in range(2):
            clock.at += FRESH_S
            before = statements.run
            appends = [asyncio.create_task(admit(quotas, "default", 1)) for _ in range(20)]
            await asyncio.sleep(0)
            appends[0].cancel()
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
            assert outcomes[1:] == [None] * 19
            assert statements.run - before <= 4  # begin, its bounds, the row, commit


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
async def test_what_is_no_rate_is_refused(store: AccessStore, rate: float) -> None:
    """Nothing is changed; an unknown tenant is named."""
    with pytest.raises(InvalidArgument):
        await store.set_quotas("default", {"events_per_s": rate})
    assert (await store.tenant("default"))["events_per_s"] is None
    with pytest.raises(TenantNotFound):
        await store.set_quotas("nobody", {"events_per_s": 1})


def test_the_command_sets_and_shows(database: Database) -> None:
    """`tenant set` answers what `tenant show` answers, with use and limits; other names and values are refused."""
    place = ("--dsn", database.dsn, "--json")
    assert call("tenant", "create", "a", *place).status == 0
    set_ = call("tenant", "set", "a", "events_per_s=2.5", "bytes_stored=2KiB", "model_tokens_per_day=0", *place).json
    assert (set_["events_per_s"], set_["bytes_stored"], set_["model_tokens_per_day"]) == (2.5, 2048, 0)
    for wrong in ("events_per_s=many", "colour=blue", "events_per_s", "bytes_stored=0", "bytes_stored=1.5"):
        assert call("tenant", "set", "a", wrong, *place).status == 2
    shown = call("tenant", "show", "a", *place).json
    assert shown == set_
    assert shown["use"] == {"bytes_stored": 0, "concurrent_builds": 0, "model_tokens_per_day": 0}
    assert shown["limits"] == {
        "events_per_s": 2.5,
        "bytes_stored": 2048,
        "concurrent_builds": 1,
        "model_tokens_per_day": 0,
    }
    assert "0 of 2,048" in call("tenant", "show", "a", "--dsn", database.dsn).out
    cleared = call("tenant", "set", "a", "events_per_s=default", "bytes_stored=default", *place).json
    assert cleared["limits"]["events_per_s"] is None
    assert cleared["limits"]["bytes_stored"] is None
    assert cleared["limits"]["model_tokens_per_day"] == 0


async def test_an_append_beyond_the_stored_bytes_is_refused_whole(database: Database, store: AccessStore) -> None:
    """The refusal names the quota, what is used and the way out; nothing of it is stored, and others append on."""
    await store.set_quotas("default", {"bytes_stored": 2_000})
    fill = event(0, "x" * 900)
    async with Memory(database.server_dsn, Settings()) as memory:
        await memory.log.append_events("default", [fill])
        with pytest.raises(StorageQuotaExceeded) as caught:
            await memory.log.append_events("default", [fill, fill])
        refused = caught.value
        assert (refused.details["quota"], refused.details["limit"], refused.http_status) == ("bytes_stored", 2_000, 409)
        assert not refused.retryable
        assert "myria tenant set default bytes_stored=" in refused.message
        assert (await memory.log.append_events("default", [fill]))[0].deduplicated is False
        await memory.log.append_events("other", [fill] * 10)
    used = (await store.tenant("default"))["use"]["bytes_stored"]
    assert used == await stored(database, "default") <= 2_000


async def test_a_repetition_takes_no_room(database: Database, store: AccessStore) -> None:
    """What is stored already is answered again within the same quota, as often as it is sent."""
    await store.set_quotas("default", {"bytes_stored": 2_000})
    once = event(0, "x" * 900, key="k")
    async with Memory(database.server_dsn, Settings()) as memory:
        for repeated in (False, True, True, True):
            assert (await memory.log.append_events("default", [once]))[0].deduplicated is repeated


async def test_the_tally_is_what_is_stored(database: Database, store: AccessStore) -> None:
    """Batches, repetitions, other processes and rewritten payloads: the tally equals the sum over the log."""
    first, second = (Memory(database.server_dsn, Settings()) for _ in range(2))
    async with first, second:
        for size in (1, 40, 700):
            await first.log.append_events("default", [event(0, "é" * size, key=f"k{size}"), event(0, "plain")])
            await second.log.append_events("default", [event(0, "é" * size, key=f"k{size}")])
    assert (await store.tenant("default"))["use"]["bytes_stored"] == await stored(database, "default") > 1_400
    await execute(database, "UPDATE myria.events SET payload = '{}' WHERE source_event_key = 'k700'")
    assert (await store.tenant("default"))["use"]["bytes_stored"] == await stored(database, "default") < 1_400


async def test_every_way_of_appending_is_counted(database: Database, store: AccessStore) -> None:
    """One event, several, several of which one stands already, memories alike and not, imports, turns, and rows of a
    program that says nothing of counting them (the release before): the tally equals the sum over the log."""
    keeping = Keeping(own=("ana",), shared="org")

    async def is_counted() -> None:
        assert (await store.tenant("default"))["use"]["bytes_stored"] == await stored(database, "default")

    async with Memory(database.server_dsn, Settings()) as memory:
        await memory.log.append_events("default", [event(0, "one", key="one")])
        await is_counted()
        await memory.log.append_events("default", [event(1, "two"), event(2, "three")])
        await is_counted()
        results = await memory.log.append_events("default", [event(0, "one", key="one"), event(3, "four", key="four")])
        assert [result.deduplicated for result in results] == [True, False]
        await is_counted()
        await memory.memories.keep("default", keeping, MemoryDraft(agent_id="bot", content="kept"))
        await memory.memories.keep_all(
            "default", keeping, [MemoryDraft(agent_id=name, content="of each") for name in "ab"]
        )
        await is_counted()
        await memory.log.import_events("default", [event(4, "brought", key="brought")])
        await Host(memory).after("t1", "I live in Porto now")
        await is_counted()
    await execute(
        database,
        "SET ROLE myria_server; SELECT set_config('myria.tenant', 'default', false); "
        "INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, payload) "
        "SELECT 'default', nextval('myria.event_seq'), 'evt_' || n, (SELECT min(scope_id) FROM myria.scopes), now(), "
        "'test', jsonb_build_object('text', repeat('x', n)) FROM generate_series(1, 3) AS n",
    )
    await is_counted()
    await execute(
        database,
        "SELECT set_config('myria.tenant', '*', false); "
        "INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, payload) "
        "SELECT (ARRAY['default', 'other'])[1 + n % 2], nextval('myria.event_seq'), 'evt_many_' || n, 1, now(), "
        "'test', jsonb_build_object('text', repeat('x', n)) FROM generate_series(1, 300) AS n",
    )
    await is_counted()
    assert (await store.tenant("other"))["use"]["bytes_stored"] == await stored(database, "other") > 0


async def test_serving_counts_for_the_tenant_that_it_names_alone(database: Database, store: AccessStore) -> None:
    """It cannot count for another tenant, and never takes away."""
    connection = await asyncpg.connect(database.server_dsn)
    try:
        await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
        for tenant, size, refusal in (
            ("other", 5, asyncpg.InsufficientPrivilegeError),
            ("default", -5, asyncpg.NumericValueOutOfRangeError),
        ):
            with pytest.raises(refusal):
                await connection.execute("SELECT myria.count_added($1, $2)", tenant, size)
    finally:
        await connection.close()
    assert (await store.tenant("other"))["use"]["bytes_stored"] == 0
    assert (await store.tenant("default"))["use"]["bytes_stored"] == 0


async def test_building_counts_nothing(database: Database, store: AccessStore) -> None:
    """It appends nothing: what it says to be added is refused."""
    connection = await asyncpg.connect(database.builder_dsn)
    try:
        await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("SELECT myria.count_added('default', 5)")
    finally:
        await connection.close()
    assert (await store.tenant("default"))["use"]["bytes_stored"] == 0


async def test_appending_within_a_quota_runs_no_statement_for_it(database: Database, store: AccessStore) -> None:
    """Of many appends within a few seconds one reads the tenant's quotas."""
    await store.set_quotas("default", {"bytes_stored": 1_000_000, "events_per_s": 1_000})
    clock, reads = Clock(), 0
    async with Pool(database.server_dsn) as pool:
        quotas = TenantQuotas(pool, None, ticks=clock)
        read = quotas._read

        async def counted(tenant: str) -> Any:
            nonlocal reads
            reads += 1
            return await read(tenant)

        quotas._read = counted  # type: ignore[method-assign]
        for _ in range(50):
            async with quotas.append("default", 1, 100):
                pass
    assert reads == 1


async def test_no_build_begins_without_a_quota_for_it(database: Database, store: AccessStore) -> None:
    """With no concurrent build, or suspended, a tenant's requests wait, asked for or due; afterwards they are built."""
    await append(database.server_dsn, conversation(3))
    async with Pool(database.operator_dsn) as pool:
        registry = Registry(pool, Settings())
        await registry.request_build("default")
        await store.set_quotas("default", {"concurrent_builds": 0})
        assert await take_up(pool, "default") is None
        await store.set_quotas("default", {"concurrent_builds": None})
        await store.suspend_tenant("default")
        assert await take_up(pool, "default") is None
        loop = ControlLoop(pool, builds.settings(builder={"max_unindexed_events": 1}), lambda *_: asyncio.sleep(0, 1))
        assert await loop.due("default") is None
        await store.resume_tenant("default")
        assert await loop.due("default") is not None
        assert await take_up(pool, "default") is not None
        assert (await store.tenant("default"))["use"]["concurrent_builds"] == 1


async def stored(database: Database, tenant: str) -> int:
    """Return the bytes of a tenant's payloads, counted one by one."""
    value = await builds.value(
        database,
        f"SELECT sum(octet_length(payload::text)) FROM myria.events WHERE tenant_id = '{tenant}'",
        tenant=tenant,
    )
    return int(value)


async def execute(database: Database, statement: str) -> None:
    """Run a statement as superuser."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
