"""A quiet tenant beside a noisy one: how much longer its calls take, and what is shed.

One server with keys on one durable PostgreSQL. A quiet key's appends and questions are timed in short rounds in turn:
alone; beside another tenant's key that sends just what it may (what sharing the machine costs); beside the same key
when it sends ten times as much; beside slow clients, which never end their requests; and beside giant bodies. Whoever
makes the noise is a process of its own, on the same processors; its CPU is reported beside the server's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
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
from myria.db.database import Database
from myria_cli import console

PART = "noisy"
DATABASE = "bench_noisy"
ROOT = Path(__file__).resolve().parents[1]

QUIET_CONNECTIONS = 4
QUIET_PAUSE_S = 0.02
"""Between an answer and the next request of a connection: the quiet side is no load of its own."""
NOISY_CONNECTIONS = 300
"""As many as it takes to send at that rate although refusals are answered later."""
SETTLE_S = 0.75
"""Between the noise's start and the quiet side's: its connections are there."""
LIMIT_PER_S = 100
"""Requests per second that the noisy key may send."""
TIMES = 10
"""How many times as many it sends."""
SLOW_CLIENTS = 300
GIANT_CLIENTS = 3
GIANT_BYTES = 15 * 1024 * 1024
MOST_P95 = 1.5
MOST_MEMORY_MIB = 300
WARM_UP_S = 1.0
ASKED_EVENTS = 200

Noise = Literal["alone", "within", "credential", "slow", "giant"]
NOISES: tuple[Noise, ...] = ("alone", "within", "credential", "slow", "giant")
NAMES: Mapping[Noise, str] = {
    "alone": "alone",
    "within": "beside a key within its limit",
    "credential": f"beside a key at {TIMES} times its limit",
    "slow": "beside slow clients",
    "giant": "beside giant bodies",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What the quiet side got in one round, and how many processors the server used meanwhile."""

    result: Result
    server_cpu: float


OWN = ("ada", "bot")
"""Who appends."""
ASKING = ("bot", "quinn")
"""Who asks: of a scope that no append of the rounds touches."""


async def measure(options: Common, *, rounds: int, seconds: float, warm_up: bool = True) -> int:
    """Run the rounds, after one that does not count, and write the report; return the exit status."""
    report = Report(PART)
    rounds_of: dict[tuple[Noise, str], list[Round]] = {}
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
        asked = _appends(server.port, keys["quiet"], ASKING)
        await load.run(asked, port=server.port, connections=4, count=ASKED_EVENTS, key_prefix="asked-")
        idle = usage(server.pid)
        for number_ in range(0 if warm_up else 1, rounds + 1):
            for noise in NOISES if number_ % 2 else reversed(NOISES):
                async with _noise(noise, server.port, keys["noisy"], told[noise]):
                    for kind, requests in calls.items():
                        await connection.execute(statement("checkpoint"))
                        began_s, began_cpu_s = time.perf_counter(), usage(server.pid).cpu_s
                        result = await load.run(
                            requests,
                            port=server.port,
                            connections=QUIET_CONNECTIONS,
                            seconds=seconds if number_ else min(seconds, WARM_UP_S),
                            key_prefix=f"{noise[:2]}-{kind[:1]}{number_:02d}-",
                            pause_s=QUIET_PAUSE_S,
                        )
                        if number_:
                            cpu = (usage(server.pid).cpu_s - began_cpu_s) / (time.perf_counter() - began_s)
                            rounds_of.setdefault((noise, kind), []).append(Round(result=result, server_cpu=cpu))
                        what = f"round {number_} of {rounds}" if number_ else "warm-up"
                        console.say(f"{what}: {noise}, {kind}: p95 {result.latency.p95:.2f} ms", "dim")
        grown_mib = usage(server.pid).peak_mib - idle.rss_mib
    return _publish(report, options, rounds_of, told, grown_mib)


async def _keys(dsn: str) -> dict[str, str]:
    """Make a tenant with a key for each side; return the keys' texts."""
    texts = {}
    async with Database(dsn) as database:
        store = AccessStore(database, actor="benchmark")
        for tenant, rate in (("quiet", None), ("noisy", float(LIMIT_PER_S))):
            await store.ensure_tenant(tenant)
            new = NewKey(name=tenant, tenant=tenant, own=("bot",), may_ask=("*",), requests_per_s=rate)
            texts[tenant] = (await store.create_key(new, actor="benchmark"))[0].text
    return texts


def _calls(port: int, key: str) -> dict[str, list[Request]]:
    question = {"participants": list(ASKING), "query": QUESTION, "limit": 5}
    return {
        "append": _appends(port, key, OWN),
        "query": [with_key(tool_call(port, "query_event_nodes", question), key)],
    }


def _appends(port: int, key: str, participants: tuple[str, ...]) -> list[Request]:
    events: list[dict[str, Any]] = [{**event, "participants": list(participants)} for event in append_arguments()]
    return [with_key(tool_call(port, "append_event", event), key) for event in events]


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
        await asyncio.sleep(SETTLE_S)
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
    rounds_of: dict[tuple[Noise, str], list[Round]],
    told: dict[Noise, Counter[str]],
    grown_mib: float,
) -> int:
    """Print and write the results of the rounds."""
    rows = []
    results = {what: [round_.result for round_ in rounds_] for what, rounds_ in rounds_of.items()}
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
                "p50_ms": round(median([result.latency.p50 for result in measured]), 3),
                "per_s": round(median([result.throughput for result in measured]), 1),
                "server_cpu": round(median([round_.server_cpu for round_ in rounds_of[noise, kind]]), 3),
                "errors": sum(result.errors for result in measured),
                "first_error": next((result.first_error for result in measured if result.first_error), ""),
            }
            figures = report.figures[f"{kind}, {noise}"]
            rows.append(
                (
                    f"{kind}, {NAMES[noise]}",
                    number(figures["p50_ms"]),
                    number(figures["p95_ms"]),
                    number(ratio),
                    number(figures["per_s"], 0),
                    number(figures["server_cpu"]),
                )
            )
        within = [result.latency.p95 for result in results["within", kind]]
        beside = [result.latency.p95 for result in results["credential", kind]]
        report.figures[f"{kind}, credential / within"] = round(median(ratios(beside, within)), 3)
        credential = report.figures[f"{kind}, credential"]["p95_ratio"]
        report.check(f"{kind}: p95 beside a credential at {TIMES} times its limit / alone", credential, MOST_P95)
        report.check(
            f"{kind}: the same / beside the same key within its limit",
            report.figures[f"{kind}, credential / within"],
            MOST_P95,
        )
    columns = ("calls", "p50 ms", "p95 ms", "p95 ratio", "per s", "server CPU")
    report.table("a quiet tenant, median of rounds", columns, rows)
    report.figures["noise"] = {noise: dict(sorted(counts.items())) for noise, counts in told.items()}
    report.figures["memory_above_idle_mib"] = round(grown_mib, 1)
    report.table(
        "what the noise was answered",
        ("noise", "answer", "times"),
        [(noise, answer, times) for noise, counts in told.items() for answer, times in sorted(counts.items())],
    )
    report.check("memory of the server above idle", round(grown_mib, 1), MOST_MEMORY_MIB, unit="MiB")
    report.check("giant bodies that were taken", told["giant"]["giant 200"], 0)
    report.check("quiet calls that failed", sum(result.errors for all_ in results.values() for result in all_), 0)
    return report.finish(options.out)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds of each (default: 3; with --full 9)")
    options.add_argument("--seconds", type=float, help="length of a round (default: 2; with --full 3)")
    options.add_argument("--no-warm-up", action="store_true", help="no round before these that does not count")
    given = options.parse_args()
    shared = common(given)
    rounds, seconds = given.rounds or (9 if shared.full else 3), given.seconds or (3.0 if shared.full else 2.0)
    raise SystemExit(run(measure(shared, rounds=rounds, seconds=seconds, warm_up=not given.no_warm_up)))


if __name__ == "__main__":
    main()
