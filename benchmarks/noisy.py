"""A quiet tenant beside a noisy one: how much longer its calls take, and what is shed.

One server with keys on one durable PostgreSQL. A quiet key's appends and questions are timed in alternating rounds:
alone; beside another tenant's key that sends ten times as many requests as it may; and beside slow clients, which never
end their requests, and giant bodies. Whoever makes the noise is a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import orjson

from benchmarks.appends import append_arguments
from benchmarks.auth import QUESTION, with_key
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import Request, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import myria_server, usage
from benchmarks.report import Report, number
from benchmarks.statements import statement
from myria.access.store import AccessStore, NewKey
from myria.store.database import Database
from myria_cli import console

PART = "noisy"
DATABASE = "bench_noisy"
ROOT = Path(__file__).resolve().parents[1]

QUIET_CONNECTIONS = 4
QUIET_PAUSE_S = 0.02
"""Between an answer and the next request of a connection: the quiet side is no load of its own."""
NOISY_CONNECTIONS = 64
LIMIT_PER_S = 100
"""Requests per second that the noisy key may send."""
TIMES = 10
"""How many times as many it sends."""
SLOW_CLIENTS = 300
GIANT_CLIENTS = 3
GIANT_BYTES = 15 * 1024 * 1024
MOST_P95 = 1.5
MOST_MEMORY_MIB = 300
WARM_UP_S = 1.5
ASKED_EVENTS = 200

Noise = Literal["alone", "credential", "clients"]
NOISES: tuple[Noise, ...] = ("alone", "credential", "clients")
OWN = ("ada", "bot")


async def measure(options: Common, *, rounds: int, seconds: float) -> int:
    """Run the rounds and write the report; return the exit status."""
    report = Report(PART)
    results: dict[tuple[Noise, str], list[Result]] = {}
    told: dict[Noise, Counter[str]] = {noise: Counter() for noise in NOISES}
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        dsns = await cluster.create(DATABASE)
        report.figures["postgres"] = await cluster.versions()
        keys = await _keys(dsns.operator)
        connection = await cluster.connect(DATABASE)
        stack.push_async_callback(connection.close)
        load = await stack.enter_async_context(LoadProcess())
        log = options.work_dir / "log" / "noisy.log"
        server = await stack.enter_async_context(myria_server(dsns.server, log, AUTH_MODE="keys"))
        calls = _calls(server.port, keys["quiet"])
        await load.run(calls["append"], port=server.port, connections=4, count=ASKED_EVENTS, key_prefix="asked-")
        idle = usage(server.pid)
        for number_ in range(rounds + 1):
            for noise in NOISES if number_ % 2 else reversed(NOISES):
                async with _noise(noise, server.port, keys["noisy"], told[noise]):
                    for kind, requests in calls.items():
                        await connection.execute(statement("checkpoint"))
                        result = await load.run(
                            requests,
                            port=server.port,
                            connections=QUIET_CONNECTIONS,
                            seconds=seconds if number_ else min(seconds, WARM_UP_S),
                            key_prefix=f"{noise[:2]}-{kind[:1]}{number_:02d}-",
                            pause_s=QUIET_PAUSE_S,
                        )
                        if number_:
                            results.setdefault((noise, kind), []).append(result)
                        what = f"round {number_} of {rounds}" if number_ else "warm-up"
                        console.say(f"{what}: {noise}, {kind}: p95 {result.latency.p95:.2f} ms", "dim")
        grown_mib = usage(server.pid).peak_mib - idle.rss_mib
    return _publish(report, options, results, told, grown_mib)


async def _keys(dsn: str) -> dict[str, str]:
    """Make a tenant with a key for each side; return the keys' texts."""
    texts = {}
    async with Database(dsn) as database:
        store = AccessStore(database, actor="benchmark")
        for tenant, rate in (("quiet", None), ("noisy", float(LIMIT_PER_S))):
            await store.ensure_tenant(tenant)
            new = NewKey(name=tenant, tenant=tenant, own=OWN, requests_per_s=rate)
            texts[tenant] = (await store.create_key(new, actor="benchmark"))[0].text
    return texts


def _calls(port: int, key: str) -> dict[str, list[Request]]:
    events: list[dict[str, Any]] = [{**event, "participants": list(OWN)} for event in append_arguments()]
    question = {"participants": list(OWN), "query": QUESTION, "limit": 5}
    calls = {
        "append": [tool_call(port, "append_event", event) for event in events],
        "query": [tool_call(port, "query_event_nodes", question)],
    }
    return {kind: [with_key(request, key) for request in requests] for kind, requests in calls.items()}


@asynccontextmanager
async def _noise(noise: Noise, port: int, key: str, told: Counter[str]) -> AsyncIterator[None]:
    """Make noise for the block; `told` counts how the server answered."""
    if noise == "alone":
        yield
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.noise",
        noise,
        str(port),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(key.encode() + b"\n")
        await process.stdin.drain()
        await process.stdout.readline()  # the noise has begun
        yield
    finally:
        process.stdin.close()
        answer = await process.stdout.read()
        await process.wait()
        with suppress(orjson.JSONDecodeError):
            told.update(orjson.loads(answer))


def _publish(
    report: Report,
    options: Common,
    results: dict[tuple[Noise, str], list[Result]],
    told: dict[Noise, Counter[str]],
    grown_mib: float,
) -> int:
    """Print and write the results of the rounds."""
    rows = []
    for kind in ("append", "query"):
        alone = [result.latency.p95 for result in results["alone", kind]]
        for noise in NOISES:
            measured = results[noise, kind]
            p95 = [result.latency.p95 for result in measured]
            ratio = median(ratios(p95, alone))
            report.figures[f"{kind}, {noise}"] = {
                "p95_ms": round(median(p95), 3),
                "p95_ratio": round(ratio, 3),
                "p95_ratio_by_round": [round(value, 3) for value in ratios(p95, alone)],
                "per_s": round(median([result.throughput for result in measured]), 1),
                "errors": sum(result.errors for result in measured),
                "first_error": next((result.first_error for result in measured if result.first_error), ""),
            }
            figures = report.figures[f"{kind}, {noise}"]
            rows.append((f"{kind}, {noise}", number(figures["p95_ms"]), number(ratio), number(figures["per_s"], 0)))
        credential = report.figures[f"{kind}, credential"]["p95_ratio"]
        report.check(f"{kind}: p95 beside a credential at {TIMES} times its limit / alone", credential, MOST_P95)
    report.table("a quiet tenant, median of rounds", ("calls", "p95 ms", "ratio", "per s"), rows)
    report.figures["noise"] = {noise: dict(sorted(counts.items())) for noise, counts in told.items()}
    report.figures["memory_above_idle_mib"] = round(grown_mib, 1)
    report.table(
        "what the noise was answered",
        ("noise", "answer", "times"),
        [(noise, answer, times) for noise, counts in told.items() for answer, times in sorted(counts.items())],
    )
    report.check("memory of the server above idle", round(grown_mib, 1), MOST_MEMORY_MIB, unit="MiB")
    report.check("giant bodies that were taken", told["clients"]["giant 200"], 0)
    report.check("quiet calls that failed", sum(result.errors for all_ in results.values() for result in all_), 0)
    return report.finish(options.out)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds of each (default: 3; with --full 7)")
    options.add_argument("--seconds", type=float, help="length of a round (default: 3; with --full 6)")
    given = options.parse_args()
    shared = common(given)
    rounds, seconds = given.rounds or (7 if shared.full else 3), given.seconds or (6.0 if shared.full else 3.0)
    raise SystemExit(run(measure(shared, rounds=rounds, seconds=seconds)))


if __name__ == "__main__":
    main()
