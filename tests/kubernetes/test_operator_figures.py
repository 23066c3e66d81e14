"""How little the operator asks and keeps: requests by audit, memory by the kernel. Latency is printed, not judged."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from benchmarks.report import quantile
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from tests.kubernetes.api import condition
from tests.kubernetes.instant import play_pods
from tests.kubernetes.operating import Installation
from tests.kubernetes.pulse import resident_kb
from tests.support import builds
from tests.support.counts import SOAK, in_soak_runs
from tests.support.processes import wait_until


@pytest.mark.soak
def test_latency_and_requests(installation: Installation) -> None:
    """A resource costs the API server few requests; from Job complete to terminal status is measured beside."""
    place, count = installation.place, 200 if SOAK else 6
    installation.append(10)
    installation.start(operator_sweep_s="3600")  # a sweep costs what the time costs, not the resources
    completed: dict[str, float] = {}
    told: dict[str, float] = {}
    stop = threading.Event()

    def watch(kind: str) -> None:
        for _, one in place.admin.watch(kind, place.name, timeout_s=600):
            now, name = time.monotonic(), one["metadata"]["name"]
            if kind == "Job" and any(c["type"] == "Complete" for c in one["status"].get("conditions", [])):
                completed.setdefault(one["metadata"]["ownerReferences"][0]["name"], now)
            if kind == "MyriaRebuild" and condition(one, "Succeeded").get("status") in {"True", "False"}:
                told.setdefault(name, now)
            if stop.is_set():
                return

    def wait_both(name: str) -> None:
        wait_until(lambda: name in told and name in completed, 60, "the end")

    for kind in ("Job", "MyriaRebuild"):
        threading.Thread(target=watch, args=(kind,), daemon=True).start()
    _, since = place.control_plane.audit()
    for number in range(count):
        name = f"m{number:03d}"
        place.rebuild(name)
        wait_both(name)
    entries, _ = place.control_plane.audit(since)
    stop.set()
    latencies = sorted(told[name] - completed[name] for name in told)
    p95 = quantile(latencies, 0.95)
    account = f"system:serviceaccount:{place.name}:myria-operator"
    mine = [
        one for one in entries if one["user"]["username"] == account and one["verb"] != "watch" and "objectRef" in one
    ]
    by_kind = Counter(f"{one['verb']} {one['objectRef']['resource']}" for one in mine)
    print(", ".join(f"{kind} {number / count:.1f}" for kind, number in by_kind.most_common()))
    print(f"p50 {latencies[len(latencies) // 2]:.3f} s, p95 {p95:.3f} s, n {len(latencies)}")
    print(f"requests per resource {len(mine) / count:.1f}")
    assert len(mine) / count < 60


@in_soak_runs
def test_memory_does_not_grow_with_what_is_pruned(installation: Installation) -> None:
    """After ten times as many resources it is at most 1.2 times as large."""
    place, run = installation.place, installation.databases.loop.run
    early, late = 50, 500
    tenants = [f"t{number}" for number in range(10)]
    for tenant in tenants:
        installation.append(4, tenant=tenant)
    play_pods(installation, always=True)
    operator = installation.start(operator_keep_succeeded="2", operator_max_builds="8")
    sizes: list[int] = []

    async def ask() -> None:
        async with Pool(installation.database.server_dsn) as pool:
            for tenant in tenants:
                await Registry(pool, builds.DEFAULTS).request_build(
                    tenant, reason="a tool asked", full=False, force=True
                )

    def ended() -> int:
        (row,) = installation.query("SELECT count(*) AS n FROM myria.builds WHERE status = 'succeeded'")
        return int(row["n"])

    began = time.monotonic()
    for done in range(len(tenants), late + len(tenants), len(tenants)):
        run(ask())
        wait_until(lambda expected=done: ended() >= expected, 60, "the end of the builds")  # type: ignore[misc]
        if done - len(tenants) < early <= done or done >= late:
            wait_until(lambda: len(place.rebuilds()) <= 2 * len(tenants), 20, "the pruning")
            sizes.append(resident_kb(operator.pid))
    took = time.monotonic() - began
    print(f"RSS after {early}, {late}: {[f'{one / 1024:.1f} MiB' for one in sizes]}, {took / late:.2f} s each")
    assert sizes[-1] <= 1.2 * sizes[0]
