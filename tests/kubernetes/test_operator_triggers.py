"""Causes become resources: when they are due, once, and never while one runs or builds pause."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from myria.builds import loop as build_loop
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.notes.folding import event_log
from tests.kubernetes.inside import parts, until
from tests.kubernetes.operating import Installation, reason
from tests.support import builds
from tests.support.counts import SOAK
from tests.support.events import append, conversation, event
from tests.support.processes import wait_until

MANY = 1000 if SOAK else 100

DUE_AT_TEN: Mapping[str, Any] = {"max_unindexed_events": 10, "inactivity_timeout_s": 0}


def made(installation: Installation) -> list[dict[str, Any]]:
    """Return the resources of the operator's making."""
    return [
        resource
        for resource in installation.place.rebuilds()
        if resource["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by")
    ]


def tenants_of(resources: list[dict[str, Any]]) -> list[str]:
    """Return the resources' tenants, in order."""
    return sorted(resource["spec"]["tenant"] for resource in resources)


def remembered(look: Callable[[str], Awaitable[None]], looked_at: list[str]) -> Callable[[str], Awaitable[None]]:
    """Return the same look, which writes down its tenant."""

    async def looking(tenant: str) -> None:
        looked_at.append(tenant)
        await look(tenant)

    return looking


async def make_due(dsn: str, tenants: list[str]) -> None:
    """Append as many events to each tenant as its threshold."""
    for tenant in tenants:
        await append(dsn, conversation(10), tenant=tenant)


@pytest.mark.soak
async def test_the_due_ones_of_many_tenants(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look finds each tenant that has become due, at the cost of those with news; a sweep never delays it."""
    dsn = installation.database.server_dsn
    tenants = [f"t{number:04d}" for number in range(MANY)]
    async with Pool(dsn) as pool:
        ingest = event_log(pool)
        for tenant in tenants:
            await ingest.append_events(tenant, [event(1, "hello")])
        await ingest.close()
    now = [time.monotonic()]
    monkeypatch.setattr(build_loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    quiet, loud = builds.settings(builder=DUE_AT_TEN), tenants[1]
    looked_at: list[str] = []
    async with parts(installation, monkeypatch, quiet) as operator:
        monkeypatch.setattr(operator.loop, "look", remembered(operator.loop.look, looked_at))

        async def step() -> Counter[str]:
            """Let the operator look once; return whom it looked at."""
            looked_at.clear()
            await operator.loop.step()
            return Counter(looked_at)

        swept: Counter[str] = Counter()
        while len(swept) < len(tenants):
            slice_of_sweep = await step()
            assert 0 < len(slice_of_sweep) <= 40
            swept += slice_of_sweep
        assert swept == Counter(tenants)
        assert made(installation) == []

        apart = MANY // 7 + 1
        between, beginning, within = tenants[5::apart], tenants[6::apart], tenants[7::apart]
        await append(dsn, [event(at, "thinking", internal=True) for at in range(20)], tenant=loud)
        await make_due(dsn, between)
        assert await step() == Counter([loud, *between])
        assert tenants_of(made(installation)) == sorted(between)

        now[0] += build_loop.SWEEP_S[1]
        await make_due(dsn, beginning)  # as a sweep begins, and the last of them are far from its beginning
        assert Counter(beginning) <= await step()
        assert tenants_of(made(installation)) == sorted([*between, *beginning])

        await make_due(dsn, within)
        assert Counter(within) <= await step()
        assert tenants_of(made(installation)) == sorted([*between, *beginning, *within])

    due = sorted([*between, *beginning, *within])
    assert len(due) == 21
    monkeypatch.undo()
    installation.node.accepts = lambda _pod: False
    await asyncio.to_thread(
        installation.start,
        builder_max_unindexed_events="10",
        builder_inactivity_timeout_s="0",
        operator_max_builds="2",
    )

    def queued() -> int:
        return [reason(one) for one in made(installation)].count(("Unknown", "Queued"))

    await until(lambda: queued() == len(due) - 2)
    assert tenants_of(made(installation)) == due
    assert {resource["spec"]["trigger"] for resource in made(installation)} == {"TailThreshold"}


def test_causes_wait_pause_and_back_off(installation: Installation) -> None:
    """A quiet moment builds once, a request builds; none while one runs; a rollback pauses, a failure backs off."""
    place, run, dsn = installation.place, installation.databases.loop.run, installation.database.server_dsn
    installation.start(builder_inactivity_timeout_s="1", builder_backoff_base_s="300")
    installation.append(4)
    wait_until(lambda: len(made(installation)) == 1, 10, "the resource of a quiet moment")
    first = made(installation)[0]
    assert first["spec"]["trigger"] == "Inactivity"
    assert reason(place.wait_terminal(first["metadata"]["name"])) == ("True", "BuildPublished")
    time.sleep(2.5)
    assert len(made(installation)) == 1

    installation.node.accepts = lambda _pod: False

    async def ask(count: int) -> None:
        async with Pool(dsn) as pool:
            for _ in range(count):
                await Registry(pool, builds.DEFAULTS).request_build("default", reason="a tool asked", full=True)

    run(ask(1))
    wait_until(lambda: len(installation.builds()) == 2, 10, "the build of the request")
    run(ask(3))
    installation.append(4, start=50_000)
    time.sleep(2.5)
    assert len(made(installation)) == 2  # both wait while one runs
    installation.node.accepts = lambda _pod: True
    wait_until(lambda: len(made(installation)) == 3, 30, "one resource for all that waited")
    for one in made(installation):
        place.wait_terminal(one["metadata"]["name"])
    time.sleep(2.5)
    assert len(made(installation)) == 3

    place.rebuild("back", rollback={"to": "previous"})
    assert reason(place.wait_terminal("back")) == ("True", "RolledBack")
    installation.append(4, start=90_000)
    time.sleep(3.0)
    assert len(made(installation)) == 3  # paused

    installation.node.rewrites = lambda _pod, _command: ["/bin/sh", "-c", "exit 6"]
    place.rebuild("poison", build={"backoffLimit": 0})
    assert reason(place.wait_terminal("poison")) == ("False", "BackoffLimitExceeded")

    async def resume() -> dict[str, Any]:
        async with Pool(dsn) as pool:
            registry = Registry(pool, builds.DEFAULTS)
            await registry.resume("default")
            return await registry.status("default")

    status = run(resume())
    assert status["consecutive_failures"] == 1
    assert status["retry_at"] is not None
    time.sleep(3.0)
    assert len(made(installation)) == 3  # backing off
