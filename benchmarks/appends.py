"""Append throughput over MCP, beside a bare endpoint that does the least a service must do.

Both run as one worker on the same durable PostgreSQL and are driven by the same load process, in alternating rounds:
the bare Starlette + asyncpg endpoint commits once per request into a table like the event log, Myria takes
`tools/call` of myria_append_event with everything that implies. Throughput counts acknowledged events; at the end, the
rows in both tables must be exactly the acknowledged ones.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.adapter import event_arguments
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import HANDSHAKE, KEY_SLOT, Request, post, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import Server, myria_server, usage
from benchmarks.report import Report, number
from benchmarks.statements import statement
from myria_cli import console

PART = "appends"
DATABASE = "bench_appends"
CONNECTIONS = 32
LEAST_RATIO = 0.5
TEMPLATES = 64
WARM_UP_S = 2.0

_SAMPLE = Path(__file__).resolve().parents[1] / "examples" / "workshop.jsonl"


@dataclass(slots=True, kw_only=True)
class Contestant:
    """One endpoint with its requests, and what its rounds gave."""

    name: str
    server: Server
    requests: list[Request]
    results: list[Result]
    cpu_s: float = 0.0
    acknowledged: int = 0
    errors: int = 0
    first_error: str = ""

    async def round(self, load: LoadProcess, number: int, seconds: float) -> Result:
        """Drive it for a time. Number 0 warms up and is not counted, but its rows are."""
        before = usage(self.server.pid).cpu_s
        result = await load.run(
            self.requests,
            port=self.server.port,
            connections=CONNECTIONS,
            seconds=seconds,
            key_prefix=f"{self.name[:4]}-{number:02d}-",
        )
        self.acknowledged += result.acknowledged
        self.errors += result.errors
        self.first_error = self.first_error or result.first_error
        if number:
            self.results.append(result)
            self.cpu_s += usage(self.server.pid).cpu_s - before
        return result

    def throughputs(self) -> list[float]:
        """Return the events per second of each round."""
        return [result.throughput for result in self.results]

    def cpu_per_event_us(self) -> float:
        """Return the server process's CPU time per event, in microseconds."""
        return self.cpu_s / max(1, sum(result.acknowledged for result in self.results)) * 1e6


def append_arguments() -> list[dict[str, Any]]:
    """Return events of the sample conversation to append; the load process fills in their keys."""
    with _SAMPLE.open("rb") as source:
        return [{**event, "source_event_key": KEY_SLOT} for event in islice(event_arguments(source), TEMPLATES)]


async def measure(options: Common, *, rounds: int, seconds: float, pool: int, sdk: bool) -> int:
    """Run the rounds and write the report; return the exit status."""
    report = Report(PART)
    events = append_arguments()
    logs = options.work_dir / "log"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        dsns = await cluster.create(DATABASE)
        report.figures["postgres"] = await cluster.versions()
        connection = await cluster.connect(DATABASE)
        stack.push_async_callback(connection.close)
        await connection.execute(statement("bare_table"))
        load = await stack.enter_async_context(LoadProcess())
        bare = await stack.enter_async_context(
            Server(
                [sys.executable, "-m", "benchmarks.bare", "--port", "{port}", "--pool", str(pool)],
                env={"BARE_DSN": dsns.superuser},
                ready="/ready",
                log=logs / "bare.log",
            )
        )
        myria = await stack.enter_async_context(myria_server(dsns.server, logs / "appends.log"))
        contestants = [
            Contestant(
                name="bare endpoint",
                server=bare,
                requests=[post(bare.port, "/append", event, [], tag="append") for event in events],
                results=[],
            ),
            Contestant(
                name="myria over MCP",
                server=myria,
                requests=[tool_call(myria.port, "append_event", event) for event in events],
                results=[],
            ),
        ]
        if sdk:
            contestants.append(
                Contestant(
                    name="sdk: myria, every call through the SDK",
                    server=myria,
                    requests=[through_sdk(myria.port, event) for event in events],
                    results=[],
                )
            )
        for number_ in range(rounds + 1):
            for contestant in contestants:
                await connection.execute(statement("checkpoint"))
                result = await contestant.round(load, number_, seconds if number_ else min(WARM_UP_S, seconds))
                what = f"round {number_} of {rounds}" if number_ else "warm-up"
                console.say(f"{what}: {contestant.name}: {result.throughput:,.0f} events/s", "dim")
        stored = await connection.fetchval(statement("bare_count")), await connection.fetchval(statement("event_count"))
    return publish(report, contestants, stored, options.out)


def through_sdk(port: int, event: dict[str, Any]) -> Request:
    """Return a request that the server's fast path leaves to the SDK, because its `_meta` holds something unusual."""
    request = tool_call(port, "append_event", event, version=HANDSHAKE)
    body = request.body.replace('"params":{', '"params":{"_meta":{"trace":"x"},', 1)
    length, longer = len(request.body.encode()), len(body.encode())
    head = request.head.replace(f"Content-Length: {length}", f"Content-Length: {longer}")
    return Request(head=head, body=body, tag=request.tag)


def publish(report: Report, contestants: list[Contestant], stored: tuple[int, int], out: Path) -> int:
    """Print and write the results of the rounds."""
    bare, *others = contestants
    rows = []
    for contestant in contestants:
        all_latencies = [result.latency for result in contestant.results]
        against = ratios(contestant.throughputs(), bare.throughputs())
        figures: dict[str, Any] = {
            "events_per_s": [round(value, 1) for value in contestant.throughputs()],
            "events_per_s_median": round(median(contestant.throughputs()), 1),
            "ratio_by_round": [round(value, 3) for value in against],
            "ratio_median": round(median(against), 3),
            "p50_ms": round(median([latency.p50 for latency in all_latencies]), 3),
            "p95_ms": round(median([latency.p95 for latency in all_latencies]), 3),
            "server_cpu_us_per_event": round(contestant.cpu_per_event_us(), 1),
            "client_cpu_share": round(
                median([result.client_cpu_s / result.seconds for result in contestant.results]), 3
            ),
            "acknowledged": contestant.acknowledged,
            "errors": contestant.errors,
            "first_error": contestant.first_error,
        }
        report.figures[contestant.name] = figures
        rows.append(
            (
                contestant.name,
                number(figures["events_per_s_median"], 0),
                number(figures["p50_ms"]),
                number(figures["p95_ms"]),
                number(figures["server_cpu_us_per_event"], 0),
                number(figures["ratio_median"], 3),
                " ".join(number(value) for value in against),
            )
        )
    columns = ("endpoint", "events/s", "p50 ms", "p95 ms", "server CPU µs/event", "ratio", "ratio by round")
    report.table(f"appends at {CONNECTIONS} connections, median of rounds", columns, rows)
    myria_ratio = report.figures["myria over MCP"]["ratio_median"]
    report.check("appends over MCP / bare endpoint", myria_ratio, LEAST_RATIO, at_least=True)
    lost = abs(stored[0] - bare.acknowledged) + abs(stored[1] - sum(contestant.acknowledged for contestant in others))
    report.check("rows that differ from what was acknowledged", lost, 0)
    report.check("requests that failed", sum(contestant.errors for contestant in contestants), 0)
    return report.finish(out)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds of each (default: 3; with --full 5)")
    options.add_argument("--seconds", type=float, help="length of a round (default: 4; with --full 10)")
    options.add_argument("--pool", type=int, default=CONNECTIONS, help="database connections of the bare endpoint")
    options.add_argument("--sdk", action="store_true", help="also drive Myria with calls that go through the SDK")
    given: argparse.Namespace = options.parse_args()
    shared = common(given)
    raise SystemExit(
        run(
            measure(
                shared,
                rounds=given.rounds or (5 if shared.full else 3),
                seconds=given.seconds or (10.0 if shared.full else 4.0),
                pool=given.pool,
                sdk=given.sdk,
            )
        )
    )


if __name__ == "__main__":
    main()
