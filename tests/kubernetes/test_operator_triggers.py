"""Causes become resources: when they are due, once, and never while one runs or builds pause."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from myria.registry import Registry
from myria.store.database import Database as Pool
from tests.kubernetes.operating import Installation, reason
from tests.support import builds
from tests.support.events import append, conversation, event
from tests.support.processes import wait_until

DUE_S = 2.0


def made(installation: Installation) -> list[dict[str, Any]]:
    """Return the resources of the operator's making."""
    found = installation.place.rebuilds()
    return [one for one in found if one["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by")]


def test_twenty_of_a_thousand_tenants_are_due(installation: Installation) -> None:
    """Each due tenant gets exactly one resource within two seconds of being due; the others get none."""
    run, dsn = installation.databases.loop.run, installation.database.server_dsn
    tenants = [f"t{number:04d}" for number in range(1000)]

    async def fill() -> None:
        for start in range(0, 1000, 50):
            await asyncio.gather(*(append(dsn, [event(1, "hello")], tenant=one) for one in tenants[start : start + 50]))

    run(fill())
    installation.kubelet.accepts = lambda _pod: False
    operator = installation.start(
        builder_max_unindexed_events="10", builder_inactivity_timeout_s="0", operator_max_builds="2"
    )
    operator.wait_for("operator_ready")
    time.sleep(15.0)  # everything was looked at once
    assert made(installation) == []
    chosen = tenants[5::50]

    async def make_due() -> None:
        internal = [event(at, "thinking", internal=True) for at in range(20)]
        await append(dsn, internal, tenant=tenants[1])
        for one in chosen:
            await append(dsn, conversation(10), tenant=one)

    began = time.monotonic()
    run(make_due())
    ended = time.monotonic()
    wait_until(lambda: len(made(installation)) >= len(chosen), 60.0, "the resources")
    took = time.monotonic() - ended
    print(f"the last of {len(chosen)} {took:.1f} s after the last event")
    assert took < DUE_S, f"{took:.1f} s after the last event ({ended - began:.1f} s of appending)"
    time.sleep(3.0)
    found = made(installation)
    assert sorted(one["spec"]["tenant"] for one in found) == sorted(chosen)
    assert {one["spec"]["trigger"] for one in found} == {"TailThreshold"}

    def queued() -> int:
        return [reason(one) for one in made(installation)].count(("Unknown", "Queued"))

    wait_until(lambda: queued() == len(chosen) - 2, 60, "all that wait")


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

    installation.kubelet.accepts = lambda _pod: False

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
    installation.kubelet.accepts = lambda _pod: True
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

    installation.kubelet.rewrites = lambda _pod, _command: ["/bin/sh", "-c", "exit 6"]
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
