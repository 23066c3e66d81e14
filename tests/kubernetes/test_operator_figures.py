"""How quick and how small the operator is: latency by a watch of our own, requests by audit, memory by the kernel."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

from tests.kubernetes.api import condition
from tests.kubernetes.operating import Installation
from tests.support.counts import share
from tests.support.processes import wait_until


def resident_kb(pid: int) -> int:
    """Return a process's resident memory, in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def test_latency_requests_and_memory(installation: Installation) -> None:
    """Job complete to terminal status: p95 below two seconds; memory does not grow with what is pruned."""
    place, count = installation.place, share(200)
    installation.append(10)
    operator = installation.start(operator_keep_succeeded="5")
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
    p95 = latencies[int(len(latencies) * 0.95) - 1]
    account = f"system:serviceaccount:{place.name}:myria-operator"
    mine = [
        one for one in entries if one["user"]["username"] == account and one["verb"] != "watch" and "objectRef" in one
    ]
    by_kind = Counter(f"{one['verb']} {one['objectRef']['resource']}" for one in mine)
    print(", ".join(f"{kind} {number / count:.1f}" for kind, number in by_kind.most_common()))
    print(f"p50 {latencies[len(latencies) // 2]:.3f} s, p95 {p95:.3f} s, n {len(latencies)}")
    print(f"requests per resource {len(mine) / count:.1f}, RSS {resident_kb(operator.pid) / 1024:.0f} MiB")
    assert p95 < 2.0
    assert len(mine) / count < 60
