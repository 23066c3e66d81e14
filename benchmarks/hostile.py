"""Hostile bodies: what they cost a serving process in memory, and for how long its event loop is silent.

Bodies of every shape, from a kilobyte to the largest that is accepted (sizes spread evenly over their logarithm, one in
twenty the largest), from several clients at once. The process watches its own loop (`benchmarks/watched.py`); memory is
the kernel's high-water mark. Every answer must be a coded refusal.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
from collections import Counter
from typing import Any

import httpx

from benchmarks.cluster import Cluster
from benchmarks.hostile_bodies import SHAPES, hostile
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import Server, usage
from benchmarks.report import Report
from myria.settings import Settings
from myria_cli import console

PART = "hostile"
BODIES = 10_000
FEW_BODIES = 300
CLIENTS = 4
SMALLEST = 1_000
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-06-18",
}
MEMORY_MIB = 150
SILENT_MS = 50


def code_of(message: dict[str, Any]) -> str | None:
    """Return the code in a refusal, be it a JSON-RPC error or a tool's; None where there is none."""
    refusal = message["error"].get("data") if "error" in message else message["result"].get("structuredContent", {})
    refusal = refusal.get("error", refusal) if isinstance(refusal, dict) else {}
    code = refusal.get("code") if isinstance(refusal, dict) else None
    return code if isinstance(code, str) else None


async def measure(options: Common, *, bodies: int, seed: int = 1) -> int:
    """Send the bodies, and write the report; return the exit status."""
    report = Report(PART)
    out = options.work_dir / "hostile-loop.json"
    async with Cluster(options.work_dir) as cluster:
        report.figures["postgres"] = await cluster.versions()
        dsns = await cluster.create("bench_hostile")
        command = (sys.executable, "-m", "benchmarks.watched", "{port}", str(out))
        environment = {"MYRIA_POSTGRES_DSN": dsns.server}
        log = options.work_dir / "log" / "hostile.log"
        async with Server(command, env=environment, ready="/readyz", log=log) as server:
            await _send(server, 50, random.Random(0), largest=4_000)  # its caches and pools are filled now
            idle = usage(server.pid)
            codes, http = await _send(server, bodies, random.Random(seed), largest=Settings().mcp.body_bytes)
            after = usage(server.pid)
        loop = json.loads(out.read_text(encoding="utf-8"))
    grown = after.peak_mib - idle.rss_mib
    report.figures |= {
        "bodies": bodies,
        "codes": dict(codes),
        "statuses": dict(http),
        "loop": loop,
        "idle_mib": round(idle.rss_mib, 1),
        "peak_mib": round(after.peak_mib, 1),
        "cpu_s": round(after.cpu_s - idle.cpu_s, 1),
    }
    report.table(
        f"{bodies:,} hostile bodies",
        ("", "MiB idle", "MiB peak", "silent ms", "p99.9 ms", "CPU ms", "CPU s"),
        [
            (
                "server",
                *(round(idle.rss_mib), round(after.peak_mib), loop["silent_ms"], loop["silent_p999_ms"]),
                *(loop["silent_cpu_ms"], round(after.cpu_s - idle.cpu_s)),
            )
        ],
    )
    report.check("memory above idle", round(grown, 1), MEMORY_MIB, unit="MiB")
    report.check("longest silence of the event loop", loop["silent_ms"], SILENT_MS, unit="ms")
    report.check("longest CPU between two turns of the event loop", loop["silent_cpu_ms"], SILENT_MS, unit="ms")
    report.check("answers without a code", codes[None], 0)
    return report.finish(options.out)


async def _send(
    server: Server, bodies: int, chosen: random.Random, *, largest: int
) -> tuple[Counter[str | None], Counter[int]]:
    """Send bodies from some clients; return how often each code and status came back."""
    codes: Counter[str | None] = Counter()
    statuses: Counter[int] = Counter()
    numbers = iter(range(bodies))
    shapes = sorted(SHAPES)
    with console.meter("hostile bodies", bodies) as meter:

        async def client() -> None:
            async with httpx.AsyncClient(timeout=300, trust_env=False) as http:
                for number in numbers:
                    size = math.exp(chosen.uniform(math.log(SMALLEST), math.log(largest)))
                    if number % 20 == 0:
                        size = largest
                    body = hostile(chosen.choice(shapes), int(size) - 200, call_first=chosen.random() < 0.5)
                    answer = await http.post(server.url, content=body[:largest], headers=HEADERS)
                    codes[code_of(answer.json())] += 1
                    statuses[answer.status_code] += 1
                    meter.advance(sum(codes.values()))

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return codes, statuses


def main() -> None:
    """Run this part alone."""
    options = parser(__doc__)
    options.add_argument("--bodies", type=int, help="bodies to send (default: 300; with --full 10,000)")
    given = options.parse_args()
    shared = common(given)
    raise SystemExit(run(measure(shared, bodies=given.bodies or (BODIES if shared.full else FEW_BODIES))))


if __name__ == "__main__":
    main()
