"""What reading costs as the log grows.

Databases of generated events are loaded through the import path and built in full, both measured. Then closed-loop
clients ask a server process: scopes of 1,000 to 2,500 events, the largest scope, and the same with no snapshot at all
(everything in the fresh tail). Each round measures all sizes in turn, so that a slower or faster machine affects them
alike; ratios are taken within a round.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import Request
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import Prepared, built, loaded
from benchmarks.processes import Server, myria_server, usage
from benchmarks.report import Report, number
from benchmarks.workload import Scope, questions, scopes
from myria.settings import RetrievalSettings
from myria_cli import console

PART = "reads"
CLIENTS = 4
MIDDLE = range(1_000, 2_501)
"""Events that the participants of a measured scope see."""

FEWEST_REQUESTS = 2_000
TAIL_SIZE = 100_000
BASE_SIZE = 10_000
FULL_BUILD_SIZE = 100_000

MOST_MIDDLE_RATIO = 2.0
MOST_LARGEST_RATIO = 8.0
MOST_TAIL_RATIO = 2.0
MOST_BUILD_S = 300.0
RSS_SLACK = 1.1

CACHE_MIB = RetrievalSettings().cache_bytes / 2**20


@dataclass(slots=True, kw_only=True)
class Case:
    """One kind of read on one database, and what its rounds gave."""

    label: str
    size: int
    server: Server
    requests: list[Request]
    scopes: int
    events: str
    results: list[Result] = field(default_factory=list)
    cold: Result | None = None
    cpu_s: float = 0.0

    def cpu_ms(self) -> float:
        """Return the server process's CPU time per request, in milliseconds: which hardly depends on other work."""
        return self.cpu_s / max(1, sum(result.acknowledged for result in self.results)) * 1000

    def p95s(self) -> list[float]:
        """Return the 95th percentile of each round, in milliseconds."""
        return [result.latency.p95 for result in self.results]

    def p50s(self) -> list[float]:
        """Return the median of each round, in milliseconds."""
        return [result.latency.p50 for result in self.results]


async def measure(options: Common, *, rounds: int, requests: int) -> int:
    """Prepare, run the rounds, and write the report; return the exit status."""
    report = Report(PART)
    tail_size = TAIL_SIZE if options.full else min(TAIL_SIZE, max(options.sizes))
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        report.figures["postgres"] = await cluster.versions()
        load = await stack.enter_async_context(LoadProcess())
        ready = [await built(cluster, options, size) for size in options.sizes]
        tail = await loaded(cluster, options, tail_size)
        publish_building(report, ready)
        servers = [await _serve(stack, cluster, options.work_dir, database) for database in (*ready, tail)]
        before = {server.pid: usage(server.pid).rss_mib for server in servers}
        cases: list[Case] = []
        for database, server in zip((*ready, tail), servers, strict=True):
            connection = await cluster.connect(database.name)
            try:
                cases += await _cases(connection, database, server, requests, is_tail=database is tail)
            finally:
                await connection.close()
        for case in cases:
            # One client asks every scope once before anything is cached: the cost of the first question after a start.
            first = case.requests[: 2 * case.scopes : 2] or case.requests[:1]
            case.cold = await load.run(first, port=case.server.port, connections=1, count=len(first))
        for round_ in range(rounds):
            for case in cases:
                used = usage(case.server.pid).cpu_s
                result = await load.run(
                    case.requests, port=case.server.port, connections=CLIENTS, count=len(case.requests)
                )
                case.cpu_s += usage(case.server.pid).cpu_s - used
                if result.errors:
                    raise RuntimeError(f"{result.errors} requests failed, the first: {result.first_error}")
                case.results.append(result)
                console.say(
                    f"round {round_ + 1} of {rounds}: {case.label} at {case.size:,}: "
                    f"p50 {result.latency.p50:.2f} ms, p95 {result.latency.p95:.2f} ms, {result.throughput:,.0f}/s",
                    "dim",
                )
        memory = {
            (database.name, database.events): (before[server.pid], usage(server.pid))
            for database, server in zip((*ready, tail), servers, strict=True)
        }
        report.figures["server_rss_mib"] = {
            name: {"at_start": round(start, 1), "after": round(used.rss_mib, 1), "peak": round(used.peak_mib, 1)}
            for (name, _), (start, used) in memory.items()
        }
    publish_reads(report, cases)
    by_size = {size: used.rss_mib for (name, size), (_, used) in memory.items() if name != tail.name}
    report.table(
        f"server memory after the rounds (cache bound {CACHE_MIB:,.0f} MiB)",
        ("database", "at start MiB", "after MiB", "peak MiB"),
        [
            (name, number(start, 0), number(used.rss_mib, 0), number(used.peak_mib, 0))
            for (name, _), (start, used) in memory.items()
        ],
    )
    smallest, largest = min(by_size), max(by_size)
    if largest > smallest:
        report.check(
            f"server RSS at {largest:,} (limit: RSS at {smallest:,} + cache bound, + 10%)",
            by_size[largest],
            round((by_size[smallest] + CACHE_MIB) * RSS_SLACK, 1),
            unit="MiB",
        )
    return report.finish(options.out)


async def _serve(stack: AsyncExitStack, cluster: Cluster, work_dir: Path, database: Prepared) -> Server:
    return await stack.enter_async_context(
        myria_server(cluster.dsns(database.name).server, work_dir / "log" / f"reads-{database.name}.log")
    )


async def _cases(
    connection: asyncpg.Connection[asyncpg.Record], database: Prepared, server: Server, requests: int, *, is_tail: bool
) -> list[Case]:
    every = await scopes(connection)
    middle = [scope for scope in every if scope.visible in MIDDLE] or every
    kinds: list[tuple[str, list[Scope]]] = [("tail only" if is_tail else "scopes of 1,000-2,500", middle)]
    if not is_tail:
        kinds.append(("largest scope", every[:1]))
    made = []
    for label, chosen in kinds:
        sizes = [scope.visible for scope in chosen]
        made.append(
            Case(
                label=label,
                size=database.events,
                server=server,
                requests=await questions(connection, chosen, port=server.port, count=requests),
                scopes=len(chosen),
                events=f"{min(sizes):,}-{max(sizes):,}" if len(set(sizes)) > 1 else f"{sizes[0]:,}",
            )
        )
    return made


def publish_building(report: Report, ready: list[Prepared]) -> None:
    """Print and note what loading and building took."""
    rows = []
    for database in ready:
        figures = database.figures
        report.figures[f"building {database.events}"] = figures
        rows.append(
            (
                f"{database.events:,}",
                number(figures["import_events_per_s"], 0),
                number(figures["full_build_s"], 1),
                number(figures["full_build_events_per_s"], 0),
                number(figures["builder_peak_mib"], 0),
                number(figures["log_bytes"] / 2**20, 0),
                number(figures["total_bytes"] / 2**20, 0),
            )
        )
        if database.events == FULL_BUILD_SIZE:
            report.check("full build of 100,000 events", figures["full_build_s"], MOST_BUILD_S, unit="s")
    columns = ("events", "import ev/s", "full build s", "build ev/s", "builder peak MiB", "log MiB", "with index MiB")
    report.table("loading and building", columns, rows)


def publish_reads(report: Report, cases: list[Case]) -> None:
    """Print and note latencies, and their ratios to the same read at the smallest size."""
    base = next(case for case in cases if case.label.startswith("scopes"))
    rows = []
    for case in cases:
        against = ratios(case.p95s(), base.p95s())
        figures = {
            "scopes": case.scopes,
            "visible_events": case.events,
            "requests_per_round": len(case.requests),
            "p50_ms": round(median(case.p50s()), 3),
            "p95_ms": round(median(case.p95s()), 3),
            "p95_ms_by_round": [round(value, 3) for value in case.p95s()],
            "requests_per_s": round(median([result.throughput for result in case.results]), 1),
            "p95_ratio": round(median(against), 3),
            "server_cpu_ms_per_request": round(case.cpu_ms(), 3),
            "by_tool": {
                tag: {
                    "p50_ms": round(median([result.by_tag[tag].p50 for result in case.results]), 3),
                    "p95_ms": round(median([result.by_tag[tag].p95 for result in case.results]), 3),
                }
                for tag in case.results[0].by_tag
            },
            "cold_p50_ms": round(case.cold.latency.p50, 3) if case.cold else None,
            "cold_p95_ms": round(case.cold.latency.p95, 3) if case.cold else None,
        }
        report.figures[f"{case.label} at {case.size}"] = figures
        rows.append(
            (
                f"{case.label} at {case.size:,}",
                case.events,
                case.scopes,
                number(median(case.p50s())),
                number(median(case.p95s())),
                number(median([result.throughput for result in case.results]), 0),
                number(median(against)),
                number(case.cpu_ms()),
                number(case.cold.latency.p50 if case.cold else 0.0),
                number(case.cold.latency.p95 if case.cold else 0.0),
            )
        )
        if case is base:
            continue
        if case.label == "largest scope":
            if case.size == max(other.size for other in cases):
                report.check(f"p95 of the largest scope at {case.size:,} / base", median(against), MOST_LARGEST_RATIO)
        else:
            limit = MOST_TAIL_RATIO if case.label == "tail only" else MOST_MIDDLE_RATIO
            report.check(f"p95 of {case.label} at {case.size:,} / base", median(against), limit)
    columns = (
        "reads",
        "events seen",
        "scopes",
        "p50 ms",
        "p95 ms",
        "req/s",
        "p95 ratio",
        "CPU ms/req",
        "cold p50",
        "cold p95",
    )
    report.table(f"reads, {CLIENTS} clients, median of rounds (base: {base.label} at {base.size:,})", columns, rows)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds (default: 2; with --full 5)")
    options.add_argument("--requests", type=int, help="requests of a round and case (default: 500; with --full 2,000)")
    given = options.parse_args()
    shared = common(given)
    raise SystemExit(
        run(
            measure(
                shared,
                rounds=given.rounds or (5 if shared.full else 2),
                requests=given.requests or (FEWEST_REQUESTS if shared.full else 500),
            )
        )
    )


if __name__ == "__main__":
    main()
