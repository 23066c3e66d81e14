"""What appends cost over MCP, beside a bare endpoint that does the least a service must do.

Both run as one worker on the same durable PostgreSQL and are driven by the same load process, in alternating rounds:
the bare Starlette + asyncpg endpoint commits once per request into a table like the event log, Myria takes
`tools/call` of append_event and append_events with everything that implies. Three shapes: single events over 32
connections and over one, and batches of 100, which the bare endpoint inserts by unnest. Throughput counts acknowledged
events; at the end, the rows in both tables must be exactly the acknowledged ones.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.adapter import event_arguments
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import HANDSHAKE, KEY_SLOT, Request, post, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import Server, backends_cpu, myria_server, usage, used_since
from benchmarks.report import Report, number
from benchmarks.statements import statement
from myria_cli import console

PART = "appends"
DATABASE = "bench_appends"
BARE = "bare endpoint"
MYRIA = "myria over MCP"
SDK = "sdk: myria, every call through the SDK"
CONNECTIONS = 32
EACH = 100
"""Events of a batch."""

LEAST_RATE = 0.7
MOST_P95 = 2.0
LEAST_BATCHES = 0.5
TEMPLATES = 64
WARM_UP_S = 2.0

_SAMPLE = Path(__file__).resolve().parents[1] / "examples" / "workshop.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How events are sent: over so many connections, so many in a request."""

    name: str
    connections: int
    each: int = 1


SHAPES = (
    Shape(name=f"{CONNECTIONS} connections", connections=CONNECTIONS),
    Shape(name="1 connection", connections=1),
    Shape(name=f"batches of {EACH}, 4 connections", connections=4, each=EACH),
)
SINGLE, ALONE, BATCHES = SHAPES


@dataclass(slots=True, kw_only=True)
class Contestant:
    """One endpoint with its requests of one shape, and what its rounds gave."""

    name: str
    server: Server
    shape: Shape
    requests: list[Request]
    results: list[Result] = field(default_factory=list)
    cpu_s: float = 0.0
    postgres_s: float = 0.0
    acknowledged: int = 0
    errors: int = 0
    first_error: str = ""

    async def round(
        self, load: LoadProcess, connection: asyncpg.Connection[asyncpg.Record], number: int, seconds: float
    ) -> Result:
        """Drive it for a time. Number 0 warms up and is not counted, but its rows are."""
        before, backends = usage(self.server.pid).cpu_s, await backends_cpu(connection)
        result = await load.run(
            self.requests,
            port=self.server.port,
            connections=self.shape.connections,
            seconds=seconds,
            key_prefix=f"{self.name[:4]}-{self.shape.connections:02d}-{number:02d}-",
        )
        self.acknowledged += result.acknowledged * self.shape.each
        self.errors += result.errors
        self.first_error = self.first_error or result.first_error
        if number:
            self.results.append(result)
            self.cpu_s += usage(self.server.pid).cpu_s - before
            self.postgres_s += used_since(backends, await backends_cpu(connection))
        return result

    def throughputs(self) -> list[float]:
        """Return the events per second of each round."""
        return [result.throughput * self.shape.each for result in self.results]

    def p95s(self) -> list[float]:
        """Return the latency of each round, in milliseconds."""
        return [result.latency.p95 for result in self.results]

    def per_event_us(self, cpu_s: float) -> float:
        """Return a processor time per event, in microseconds."""
        return cpu_s / max(1, self.shape.each * sum(result.acknowledged for result in self.results)) * 1e6


def append_arguments() -> list[dict[str, Any]]:
    """Return events of the sample conversation to append; the load process fills in their keys."""
    with _SAMPLE.open("rb") as source:
        return [{**event, "source_event_key": KEY_SLOT} for event in islice(event_arguments(source), TEMPLATES)]


async def measure(options: Common, *, rounds: int, seconds: float, pool: int, sdk: bool) -> int:
    """Run the rounds and write the report; return the exit status."""
    report = Report(PART)
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
        every: list[Contestant] = []
        for shape in SHAPES:
            contestants = _contestants(shape, bare, myria, sdk=sdk and shape is SINGLE)
            every += contestants
            for number_ in range(rounds + 1):
                for contestant in contestants if number_ % 2 else reversed(contestants):
                    await connection.execute(statement("checkpoint"))
                    time = seconds if number_ else min(WARM_UP_S, seconds)
                    result = await contestant.round(load, connection, number_, time)
                    what = f"round {number_} of {rounds}" if number_ else "warm-up"
                    rate = result.throughput * shape.each
                    console.say(f"{shape.name}: {what}: {contestant.name}: {rate:,.0f} events/s", "dim")
        stored = await connection.fetchval(statement("bare_count")), await connection.fetchval(statement("event_count"))
    return publish(report, every, stored, options.out)


def _contestants(shape: Shape, bare: Server, myria: Server, *, sdk: bool) -> list[Contestant]:
    if shape.each > 1:
        batch = {"events": [{**event, "source_event_key": None} for event in cycled(append_arguments(), shape.each)]}
        requests = [post(bare.port, "/append_many", batch, [], tag="append")]
        calls = [tool_call(myria.port, "append_events", batch)]
    else:
        events = append_arguments()
        requests = [post(bare.port, "/append", event, [], tag="append") for event in events]
        calls = [tool_call(myria.port, "append_event", event) for event in events]
    contestants = [
        Contestant(name=BARE, server=bare, shape=shape, requests=requests),
        Contestant(name=MYRIA, server=myria, shape=shape, requests=calls),
    ]
    if sdk:
        through = [through_sdk(myria.port, event) for event in append_arguments()]
        contestants.append(Contestant(name=SDK, server=myria, shape=shape, requests=through))
    return contestants


def cycled(events: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return so many events, the same ones again and again."""
    return list(islice(cycle(events), count))


def through_sdk(port: int, event: dict[str, Any]) -> Request:
    """Return a request that the server's fast path leaves to the SDK, because its `_meta` holds something unusual."""
    request = tool_call(port, "append_event", event, version=HANDSHAKE)
    body = request.body.replace('"params":{', '"params":{"_meta":{"trace":"x"},', 1)
    length, longer = len(request.body.encode()), len(body.encode())
    head = request.head.replace(f"Content-Length: {length}", f"Content-Length: {longer}")
    return Request(head=head, body=body, tag=request.tag)


def publish(report: Report, every: list[Contestant], stored: tuple[int, int], out: Path) -> int:
    """Print and write the results of the rounds."""
    for shape in SHAPES:
        bare, *others = [contestant for contestant in every if contestant.shape is shape]
        rows = []
        for contestant in (bare, *others):
            against = ratios(contestant.throughputs(), bare.throughputs())
            slower = ratios(contestant.p95s(), bare.p95s())
            figures: dict[str, Any] = {
                "events_per_s": [round(value, 1) for value in contestant.throughputs()],
                "events_per_s_median": round(median(contestant.throughputs()), 1),
                "ratio_by_round": [round(value, 3) for value in against],
                "ratio_median": round(median(against), 3),
                "p50_ms": round(median([result.latency.p50 for result in contestant.results]), 3),
                "p95_ms": round(median(contestant.p95s()), 3),
                "p95_ratio_by_round": [round(value, 3) for value in slower],
                "p95_ratio_median": round(median(slower), 3),
                "server_cpu_us_per_event": round(contestant.per_event_us(contestant.cpu_s), 1),
                "postgres_cpu_us_per_event": round(contestant.per_event_us(contestant.postgres_s), 1),
                "client_cpu_share": round(
                    median([result.client_cpu_s / result.seconds for result in contestant.results]), 3
                ),
                "acknowledged": contestant.acknowledged,
                "errors": contestant.errors,
                "first_error": contestant.first_error,
            }
            report.figures[f"{contestant.name}, {shape.name}"] = figures
            rows.append(
                (
                    contestant.name,
                    number(figures["events_per_s_median"], 0),
                    number(figures["p50_ms"]),
                    number(figures["p95_ms"]),
                    number(figures["server_cpu_us_per_event"], 0),
                    number(figures["postgres_cpu_us_per_event"], 0),
                    number(figures["ratio_median"], 3),
                    " ".join(number(value) for value in against),
                    number(figures["p95_ratio_median"]),
                )
            )
        columns = ("endpoint", "events/s", "p50 ms", "p95 ms", "server µs", "PostgreSQL µs")
        report.table(
            f"appends, {shape.name}, median of rounds", (*columns, "ratio", "ratio by round", "p95 ratio"), rows
        )
    single, alone, batches = (report.figures[f"{MYRIA}, {shape.name}"] for shape in SHAPES)
    report.check(f"appends over MCP / bare, {SINGLE.name}", single["ratio_median"], LEAST_RATE, at_least=True)
    report.check(f"p95 of appends over MCP / bare, {ALONE.name}", alone["p95_ratio_median"], MOST_P95)
    report.check(f"appends over MCP / unnest, {BATCHES.name}", batches["ratio_median"], LEAST_BATCHES, at_least=True)
    ours = sum(contestant.acknowledged for contestant in every if contestant.name != BARE)
    theirs = sum(contestant.acknowledged for contestant in every if contestant.name == BARE)
    lost = abs(stored[0] - theirs) + abs(stored[1] - ours)
    report.check("rows that differ from what was acknowledged", lost, 0)
    report.check("requests that failed", sum(contestant.errors for contestant in every), 0)
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
