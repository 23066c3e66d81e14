"""What appends cost over MCP, beside a bare endpoint that does the least a service must do.

Both run as one worker on the same durable PostgreSQL and are driven by the same load process, in alternating rounds:
the bare Starlette + asyncpg endpoint commits once per request into a table like the event log, Myria takes
`tools/call` of append_event and append_events with everything that implies. At the end, the rows in both tables must be
exactly the acknowledged ones.
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack

from benchmarks.cluster import statement
from benchmarks.mcp_http import request, tool_call
from benchmarks.options import Bench, run_part
from benchmarks.processes import Server, myria_server
from benchmarks.report import Report
from benchmarks.sides import Side, in_turns, publish
from benchmarks.workload import sample_events

PART = "appends"
DATABASE = "bench_appends"
EACH = 100
"""Events of a batch."""

MOST_P95 = 2.0
LEAST_RATE = 0.7
LEAST_BATCHES = 0.5


async def measure(bench: Bench, report: Report) -> None:
    """Measure one connection, many, and batches, each beside the bare endpoint."""
    dsns = await bench.cluster.create(DATABASE)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(bench.cluster.connection(DATABASE))
        await database.execute(statement("bare_table"))
        command, env = (sys.executable, "-m", "benchmarks.bare", "{port}"), {"BARE_DSN": dsns.superuser}
        bare = await stack.enter_async_context(Server(command, env=env, log=bench.log("bare")))
        myria = await stack.enter_async_context(myria_server(dsns.server, bench.log(PART)))
        events = sample_events()
        batch = {"events": sample_events(EACH, source_event_key=None)}
        single = (
            [request(bare.port, "/append", event) for event in events],
            [tool_call(myria.port, "append_event", event) for event in events],
        )
        many = (
            [request(bare.port, "/append_many", batch)],
            [tool_call(myria.port, "append_events", batch)],
        )
        kept, compared = [0, 0], []
        for connections, each, requests in ((1, 1, single), (32, 1, single), (4, EACH, many)):
            sides = [
                Side(name=name, server=server, requests=calls, connections=connections, each=each)
                for name, server, calls in zip(("bare", "myria"), (bare, myria), requests, strict=True)
            ]
            await in_turns(sides, rounds=bench.rounds, seconds=bench.seconds)
            compared += publish(report, f"{connections} connections, {each} events each", sides)[1:]
            kept = [before + side.kept for before, side in zip(kept, sides, strict=True)]
        stored = [await database.fetchval(statement(name)) for name in ("bare_count", "event_count")]
    report.check("1 connection: p95 / bare", compared[0].p95, MOST_P95)
    report.check("32 connections: rate / one commit each", compared[1].rate, LEAST_RATE, at_least=True)
    report.check("batches: rate / unnest", compared[2].rate, LEAST_BATCHES, at_least=True)
    lost = sum(abs(rows - acknowledged) for rows, acknowledged in zip(stored, kept, strict=True))
    report.check("rows that differ from what was acknowledged", lost, 0)


if __name__ == "__main__":
    run_part(PART, __doc__, measure)
