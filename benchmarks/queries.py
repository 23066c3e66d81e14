"""What a question takes, beside an older commit of this repository: the same events, the same questions, in turns.

    python -m benchmarks.queries COMMIT [--clients 8] [--rounds 5] [--requests 2000] [--tool query_event_nodes]

Each code (`benchmarks.older`) imports the events and builds them in full, and serves them from one process. Closed-loop
clients ask the two servers in turn for four words of one message, `query_event_nodes` and `query_references` in turn,
over scopes of 1,000 to 2,500 events where there are any; with `--tool` one of the two alone. Ratios are taken within a
round.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess, Result
from benchmarks.mcp_http import Request
from benchmarks.older import Code, build, codes, load, migrate
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import Server, myria_server, usage
from benchmarks.reads import MIDDLE
from benchmarks.report import Report, number
from benchmarks.workload import events_file, questions, scopes
from myria_cli import console

PART = "queries"
CLIENTS = 8
REQUESTS = 2_000
MOST_RATIO = 1.3
TOOLS = ("query_event_nodes", "query_references")


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A code that serves, what it is asked, and what its rounds gave."""

    code: Code
    server: Server
    requests: list[Request]
    results: list[Result] = field(default_factory=list)
    cpu_s: float = 0.0

    def p50s(self) -> list[float]:
        """Return the median of each round, in milliseconds."""
        return [result.latency.p50 for result in self.results]

    def p95s(self) -> list[float]:
        """Return the 95th percentile of each round, in milliseconds."""
        return [result.latency.p95 for result in self.results]

    def cpu_ms(self) -> float:
        """Return the server process's CPU time per request, in milliseconds."""
        return self.cpu_s / max(1, sum(result.acknowledged for result in self.results)) * 1000


async def measure(
    options: Common, commit: str, *, clients: int, rounds: int, requests: int, tool: str | None = None
) -> int:
    """Prepare, run the rounds, and write the report; return the exit status.

    `tool` is asked alone; None for both in turn.
    """
    report = Report(PART)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="myria-queries-")))
        both = codes(commit, folder)
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        report.figures["postgres"] = await cluster.versions()
        report.figures["queries"] = {"commit": commit, "clients": clients, "tool": tool}
        for code in both:
            await migrate(cluster, code, folder)
        driver = await stack.enter_async_context(LoadProcess())
        for size in options.sizes:
            source = await events_file(options, size)
            for code in both:
                await load(cluster, source, size, code, name=_name(code), folder=folder)
                await build(cluster, _name(code), code)
                await cluster.tidy(_name(code))
            async with AsyncExitStack() as serving:
                asked = [
                    await _serve(serving, cluster, code, options.work_dir / "log", count=requests, tool=tool)
                    for code in both
                ]
                for round_ in range(rounds + 1):
                    for each in asked:
                        # The first round warms both and is not counted.
                        result = await _round(driver, each, clients=clients, is_counted=round_ > 0)
                        console.say(
                            f"round {round_} of {rounds}: {each.code.name} code at {size:,}: "
                            f"p50 {result.latency.p50:.2f} ms, p95 {result.latency.p95:.2f} ms",
                            "dim",
                        )
            _publish(report, size, *asked)
    return report.finish(options.out)


def _name(code: Code) -> str:
    return f"queries_{code.name}"


async def _serve(
    stack: AsyncExitStack, cluster: Cluster, code: Code, logs: Path, *, count: int, tool: str | None
) -> _Asked:
    """Start the server of a code and make its questions: the same ones for the same events."""
    name = _name(code)
    server = await stack.enter_async_context(
        myria_server(cluster.dsns(name).server, logs / f"{name}.log", code=code.env)
    )
    connection = await cluster.connect(name)
    try:
        every = await scopes(connection)
        chosen = [scope for scope in every if scope.visible in MIDDLE] or every
        twice = count if tool is None else count * len(TOOLS)
        made = await questions(connection, chosen, port=server.port, count=twice)
        return _Asked(code=code, server=server, requests=[one for one in made if tool is None or one.tag == tool])
    finally:
        await connection.close()


async def _round(driver: LoadProcess, asked: _Asked, *, clients: int, is_counted: bool) -> Result:
    used_s = usage(asked.server.pid).cpu_s
    result = await driver.run(asked.requests, port=asked.server.port, connections=clients, count=len(asked.requests))
    if result.errors:
        raise RuntimeError(f"{result.errors} requests failed, the first: {result.first_error}")
    if is_counted:
        asked.cpu_s += usage(asked.server.pid).cpu_s - used_s
        asked.results.append(result)
    return result


def _publish(report: Report, size: int, old: _Asked, new: _Asked) -> None:
    by_round = ratios(new.p95s(), old.p95s())
    report.figures[f"{size} events"] = {
        **{
            each.code.name: {"p50_ms": each.p50s(), "p95_ms": each.p95s(), "server_ms": each.cpu_ms()}
            for each in (old, new)
        },
        "p95_ratios": by_round,
    }
    report.table(
        f"questions over {size:,} events, median of rounds",
        ("code", "p50 ms", "p95 ms", "server ms each", "p95 ratio"),
        [
            (
                each.code.name,
                number(median(each.p50s()), 2),
                number(median(each.p95s()), 2),
                number(each.cpu_ms(), 2),
                number(median(by_round), 2) if each is new else "1",
            )
            for each in (old, new)
        ],
    )
    report.check(f"{size:,} events: p95 of questions, new / old", median(by_round), MOST_RATIO)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("commit", help="the older code, by any name that git knows")
    options.add_argument("--clients", type=int, default=CLIENTS, help="closed-loop clients (default: %(default)s)")
    options.add_argument("--rounds", type=int, default=5, help="rounds (default: %(default)s)")
    options.add_argument("--requests", type=int, default=REQUESTS, help="questions of a round (default: %(default)s)")
    options.add_argument("--tool", choices=TOOLS, help="this one alone (default: both in turn)")
    given = options.parse_args()
    work = measure(
        common(given),
        given.commit,
        clients=given.clients,
        rounds=given.rounds,
        requests=given.requests,
        tool=given.tool,
    )
    sys.exit(run(work))


if __name__ == "__main__":
    main()
