"""Quotas of tenants: events per second of one are refused beyond its rate, and nobody else notices."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from myria.access.store import AccessStore
from myria.errors import InvalidArgument, QuotaExceeded, TenantNotFound
from myria.quotas import FRESH_S, TenantQuotas
from myria.store.database import Database as Pool
from tests.cli.conftest import call
from tests.support.postgres import Database


class Clock:
    """A steady clock that a test moves."""

    at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """The control plane's view, with the tenants `default` and `other`."""
    async with Pool(database.operator_dsn) as pool:
        store = AccessStore(pool)
        await store.ensure_tenant("default")
        await store.ensure_tenant("other")
        yield store


async def test_a_tenant_is_held_to_its_own_rate_alone(database: Database, store: AccessStore) -> None:
    """Two seconds' worth pass at once, the next is refused with when it passes; another tenant appends on."""
    clock = Clock()
    await store.set_events_per_s("default", 10)
    async with Pool(database.server_dsn) as pool:
        quotas = TenantQuotas(pool, None, ticks=clock)
        await quotas.append("default", 20)
        with pytest.raises(QuotaExceeded) as caught:
            await quotas.append("default", 15)
        assert caught.value.retryable
        assert caught.value.http_status == 429
        assert caught.value.details == {"quota": "events_per_s", "limit": 10.0, "retry_after_s": 2}
        for _ in range(50):
            await quotas.append("other", 1_000)
        clock.at += 1.5
        await quotas.append("default", 15)


async def test_settings_give_what_a_tenant_does_not_say(database: Database, store: AccessStore) -> None:
    """A tenant's own rate wins, either way, and a change holds after some seconds."""
    clock = Clock()
    async with Pool(database.server_dsn) as pool:
        quotas = TenantQuotas(pool, 1, ticks=clock)
        await quotas.append("default", 2)
        with pytest.raises(QuotaExceeded):
            await quotas.append("default", 1)
        await store.set_events_per_s("default", 1_000)
        clock.at += FRESH_S
        await quotas.append("default", 2_000)
        await store.set_events_per_s("default", None)
        clock.at += FRESH_S
        await quotas.append("default", 2)
        with pytest.raises(QuotaExceeded):
            await quotas.append("default", 1)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
async def test_what_is_no_rate_is_refused(store: AccessStore, rate: float) -> None:
    """Nothing is changed; an unknown tenant is named."""
    with pytest.raises(InvalidArgument):
        await store.set_events_per_s("default", rate)
    assert (await store.tenant("default"))["events_per_s"] is None
    with pytest.raises(TenantNotFound):
        await store.set_events_per_s("nobody", 1)


def test_the_command_sets_and_shows(database: Database) -> None:
    """`tenant set` answers what `tenant show` answers; other names and values are refused."""
    place = ("--dsn", database.dsn, "--json")
    assert call("tenant", "create", "a", *place).status == 0
    assert json.loads(call("tenant", "set", "a", "events_per_s=2.5", *place).out)["events_per_s"] == 2.5
    for wrong in ("events_per_s=many", "colour=blue", "events_per_s"):
        assert call("tenant", "set", "a", wrong, *place).status == 2
    assert call("tenant", "show", "a", *place).json["events_per_s"] == 2.5
    assert call("tenant", "set", "a", "events_per_s=default", *place).json["events_per_s"] is None
