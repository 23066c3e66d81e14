"""What proving who one is costs: appends and questions with keys, beside the same without.

Two servers on one durable PostgreSQL, `auth.mode` keys and none, are driven by the same load process in alternating
rounds with the same calls; the one with keys gets a key with each, and keeps its records of calls as it does by
default. Questions are asked in a scope of a few hundred events that no append of the rounds touches.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.appends import append_arguments
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import Request, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import Server, myria_server, usage
from benchmarks.report import Report, number
from benchmarks.statements import statement
from myria.access.store import AccessStore, NewKey
from myria.store.database import Database
from myria_cli import console

PART = "auth"
DATABASE = "bench_auth"
CONNECTIONS = 32
MOST_CPU = 1.05
LEAST_THROUGHPUT = 0.95
WARM_UP_S = 2.0
ASKED_EVENTS = 300

TENANT = "default"
APPENDING = ("ada", "bot")
ASKING = ("bot", "quinn")
QUESTION = "What did we decide about the memory?"


@dataclass(slots=True, kw_only=True)
class Side:
    """One server, what is sent to it, and what its rounds gave, by kind of call."""

    name: str
    server: Server
    requests: dict[str, list[Request]]
    results: dict[str, list[Result]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)

    async def round(self, load: LoadProcess, kind: str, number_: int, seconds: float) -> Result:
        """Drive it for a time. Number 0 warms up and is not counted."""
        before = usage(self.server.pid).cpu_s
        result = await load.run(
            self.requests[kind],
            port=self.server.port,
            connections=CONNECTIONS,
            seconds=seconds,
            key_prefix=f"{self.name[:4]}-{kind[:1]}{number_:02d}-",
        )
        if number_:
            cpu_s = usage(self.server.pid).cpu_s - before
            self.results.setdefault(kind, []).append(result)
            self.cpu_us.setdefault(kind, []).append(cpu_s / max(1, result.acknowledged) * 1e6)
        return result

    def throughputs(self, kind: str) -> list[float]:
        """Return the good answers per second of each round."""
        return [result.throughput for result in self.results[kind]]


async def measure(options: Common, *, rounds: int, seconds: float) -> int:
    """Run the rounds and write the report; return the exit status."""
    report = Report(PART)
    logs = options.work_dir / "log"
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        dsns = await cluster.create(DATABASE)
        report.figures["postgres"] = await cluster.versions()
        keys = await _keys(dsns.operator)
        connection = await cluster.connect(DATABASE)
        stack.push_async_callback(connection.close)
        load = await stack.enter_async_context(LoadProcess())
        without = await stack.enter_async_context(myria_server(dsns.server, logs / "auth-none.log"))
        guarded = await stack.enter_async_context(myria_server(dsns.server, logs / "auth-keys.log", AUTH_MODE="keys"))
        sides = (
            Side(name="none", server=without, requests=_requests(without.port, None)),
            Side(name="keys", server=guarded, requests=_requests(guarded.port, keys)),
        )
        await load.run(_asked(without.port), port=without.port, connections=4, count=ASKED_EVENTS, key_prefix="asked-")
        for number_ in range(rounds + 1):
            for kind in sides[0].requests:
                # Who comes first alternates, so that what one leaves behind falls on both.
                for side in sides if number_ % 2 else reversed(sides):
                    await connection.execute(statement("checkpoint"))
                    result = await side.round(load, kind, number_, seconds if number_ else min(WARM_UP_S, seconds))
                    what = f"round {number_} of {rounds}" if number_ else "warm-up"
                    console.say(f"{what}: {kind}, {side.name}: {result.throughput:,.0f}/s", "dim")
    return _publish(report, *sides, options)


async def _keys(dsn: str) -> dict[str, str]:
    """Make the keys, and return their texts by kind of call."""
    async with Database(dsn) as database:
        store = AccessStore(database, actor="benchmark")
        await store.ensure_tenant(TENANT)
        texts = {}
        for kind, own in (("append", APPENDING), ("query", ASKING)):
            made, _ = await store.create_key(NewKey(name=kind, tenant=TENANT, own=own), actor="benchmark")
            texts[kind] = made.text
        return texts


def _events(participants: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{**event, "participants": list(participants)} for event in append_arguments()]


def _asked(port: int) -> list[Request]:
    return [tool_call(port, "append_event", event) for event in _events(ASKING)]


def _requests(port: int, keys: dict[str, str] | None) -> dict[str, list[Request]]:
    question = {"participants": list(ASKING), "query": QUESTION, "limit": 5}
    requests = {
        "append": [tool_call(port, "append_event", event) for event in _events(APPENDING)],
        "query": [tool_call(port, "query_event_nodes", question)],
    }
    if keys is None:
        return requests
    return {kind: [with_key(request, keys[kind]) for request in sent] for kind, sent in requests.items()}


def with_key(request: Request, text: str) -> Request:
    """Return a request with a key."""
    head = request.head.removesuffix("\r\n\r\n")
    return replace(request, head=f"{head}\r\nAuthorization: Bearer {text}\r\n\r\n")


def _publish(report: Report, without: Side, guarded: Side, options: Common) -> int:
    """Print and write the results of the rounds."""
    rows = []
    for kind in without.requests:
        throughput = ratios(guarded.throughputs(kind), without.throughputs(kind))
        cpu = ratios(guarded.cpu_us[kind], without.cpu_us[kind])
        report.figures[kind] = {
            "throughput_ratio_by_round": [round(value, 3) for value in throughput],
            "throughput_ratio": round(median(throughput), 3),
            "cpu_ratio_by_round": [round(value, 3) for value in cpu],
            "cpu_ratio": round(median(cpu), 3),
            **{
                side.name: {
                    "per_s": round(median(side.throughputs(kind)), 1),
                    "cpu_us": round(median(side.cpu_us[kind]), 1),
                    "p95_ms": round(median([result.latency.p95 for result in side.results[kind]]), 3),
                    "acknowledged": sum(result.acknowledged for result in side.results[kind]),
                }
                for side in (without, guarded)
            },
        }
        figures = report.figures[kind]
        rows += [
            (
                f"{kind}, {side.name}",
                number(figures[side.name]["per_s"], 0),
                number(figures[side.name]["p95_ms"]),
                number(figures[side.name]["cpu_us"], 0),
                number(figures["throughput_ratio"], 3) if side is guarded else "1",
                number(figures["cpu_ratio"], 3) if side is guarded else "1",
            )
            for side in (without, guarded)
        ]
        report.check(
            f"{kind}: throughput with keys / without", figures["throughput_ratio"], LEAST_THROUGHPUT, at_least=True
        )
        report.check(f"{kind}: CPU per call with keys / without", figures["cpu_ratio"], MOST_CPU)
    columns = ("calls", "per s", "p95 ms", "server CPU µs/call", "throughput ratio", "CPU ratio")
    report.table(f"with keys and without, {CONNECTIONS} connections, median of rounds", columns, rows)
    errors = [result for side in (without, guarded) for results in side.results.values() for result in results]
    report.figures["first_error"] = next((result.first_error for result in errors if result.first_error), "")
    report.check("calls that failed", sum(result.errors for result in errors), 0)
    return report.finish(options.out)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds of each (default: 3; with --full 7)")
    options.add_argument("--seconds", type=float, help="length of a round (default: 3; with --full 8)")
    given = options.parse_args()
    shared = common(given)
    rounds, seconds = given.rounds or (7 if shared.full else 3), given.seconds or (8.0 if shared.full else 3.0)
    raise SystemExit(run(measure(shared, rounds=rounds, seconds=seconds)))


if __name__ == "__main__":
    main()
