"""What proving who one is costs: appends and questions with keys, beside the same without.

One process serves without keys on one port and with keys on another, over one memory (`benchmarks/both.py`). The load
process sends the same calls in short blocks in turn: without, with keys, and without again. Compared is the processor
time of a block, user and system, that the server's process took, and the block's time, with those of both that lie
beside it; those two are compared with each other as well, which shows what the comparison can tell. Questions are asked
in a scope of a few hundred events that no append of the blocks touches.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.appends import append_arguments
from benchmarks.cluster import Cluster
from benchmarks.figures import interval, median, ratios
from benchmarks.load import LoadProcess
from benchmarks.mcp_http import Request, tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import Server, cpu_seconds, free_port
from benchmarks.report import Report, number
from benchmarks.statements import statement
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database
from myria_cli import console

PART = "auth"
DATABASE = "bench_auth"
CONNECTIONS = 4
BLOCK = 50
"""Requests of a block: some hundredths of a second."""
WARM_UP_BLOCKS = 2
MOST = 1.05
ASKED_EVENTS = 300
KINDS = ("append", "query")

TENANT = "default"
APPENDING = ("ada", "bot")
ASKING = ("bot", "quinn")
QUESTION = "What did we decide about the memory?"


@dataclass(slots=True, kw_only=True)
class Side:
    """Where blocks are sent to, and what they gave, by kind of call: microseconds of CPU and of time per call."""

    name: str
    port: int
    requests: dict[str, list[Request]]
    cpu_us: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    time_us: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    errors: int = 0
    first_error: str = ""

    async def block(self, load: LoadProcess, pid: int, kind: str, *, name: str, counted: bool) -> None:
        """Send a block to the server process; one that is not counted warms up."""
        before = cpu_seconds(pid)
        result = await load.run(
            self.requests[kind], port=self.port, connections=CONNECTIONS, count=BLOCK, key_prefix=name
        )
        cpu_s = cpu_seconds(pid) - before
        self.errors += result.errors
        self.first_error = self.first_error or result.first_error
        if counted:
            self.cpu_us[kind].append(cpu_s / max(1, result.acknowledged) * 1e6)
            self.time_us[kind].append(result.seconds / max(1, result.acknowledged) * 1e6)


async def measure(options: Common, *, blocks: int) -> int:
    """Send the blocks and write the report; return the exit status."""
    report = Report(PART)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(options.work_dir))
        dsns = await cluster.create(DATABASE)
        report.figures["postgres"] = await cluster.versions()
        keys = await _keys(dsns.operator)
        connection = await cluster.connect(DATABASE)
        stack.push_async_callback(connection.close)
        load = await stack.enter_async_context(LoadProcess())
        keyed_port = free_port()
        server = await stack.enter_async_context(
            Server(
                [sys.executable, "-m", "benchmarks.both", "{port}", str(keyed_port)],
                env={"BOTH_DSN": dsns.server},
                ready="/readyz",
                log=options.work_dir / "log" / "auth.log",
            )
        )
        plain = _requests(server.port, None)
        sides = (
            Side(name="none", port=server.port, requests=plain),
            Side(name="keys", port=keyed_port, requests=_requests(keyed_port, keys)),
            Side(name="none again", port=server.port, requests=plain),
        )
        asked = _asked(server.port)
        await load.run(asked, port=server.port, connections=CONNECTIONS, count=ASKED_EVENTS, key_prefix="asked-")
        await connection.execute(statement("checkpoint"))
        for kind in KINDS:  # not in turn: a question after appends looks at what they added
            for block in range(WARM_UP_BLOCKS + blocks):
                counted = block >= WARM_UP_BLOCKS
                for side in sides if block % 2 else reversed(sides):
                    name = f"{side.name[0]}{side.name[-1]}{kind[0]}{block}-"
                    await side.block(load, server.pid, kind, name=name, counted=counted)
                if counted and not (block + 1) % 10:
                    cpu = ", ".join(f"{side.name} {median(side.cpu_us[kind]):.0f} µs" for side in sides)
                    console.say(f"{block + 1} blocks of each: {kind}: {cpu}", "dim")
    return _publish(report, sides, options)


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


def _compared(these: Sequence[float], before: Sequence[float], after: Sequence[float] | None) -> dict[str, Any]:
    """Return the median, with its interval of 95 %, of the ratios of blocks to those beside them, or to their means."""
    those = before if after is None else [(a + b) / 2 for a, b in zip(before, after, strict=True)]
    by_block = ratios(these, those)
    low, high = interval(by_block, random.Random(0))
    return {"ratio": round(median(by_block), 4), "interval": [round(low, 4), round(high, 4)], "blocks": len(by_block)}


def _publish(report: Report, sides: tuple[Side, Side, Side], options: Common) -> int:
    """Print and write what the blocks gave."""
    plain, _, again = sides
    rows = []
    for kind in KINDS:
        for side in sides:
            # The blocks with keys lie between two without; those are compared with each other.
            cpu = _compared(side.cpu_us[kind], plain.cpu_us[kind], None if side is again else again.cpu_us[kind])
            time = _compared(side.time_us[kind], plain.time_us[kind], None if side is again else again.time_us[kind])
            report.figures[f"{kind}, {side.name}"] = {
                "cpu_us": round(median(side.cpu_us[kind]), 1),
                "time_us": round(median(side.time_us[kind]), 1),
                "cpu": cpu,
                "time": time,
            }
            compared = [
                "" if side is plain else f"{number(value['ratio'], 3)} ({value['interval'][0]}-{value['interval'][1]})"
                for value in (cpu, time)
            ]
            rows.append((f"{kind}, {side.name}", number(median(side.cpu_us[kind]), 0), *compared))
        keyed = report.figures[f"{kind}, keys"]
        report.check(f"{kind}: CPU per call with keys / without", keyed["cpu"]["ratio"], MOST)
        report.check(f"{kind}: time per call with keys / without", keyed["time"]["ratio"], MOST)
    columns = ("calls", "server CPU µs/call", "CPU ratio (95 %)", "time ratio (95 %)")
    report.table(f"with keys and without, {CONNECTIONS} connections, medians of blocks of {BLOCK}", columns, rows)
    report.figures["first_error"] = next((side.first_error for side in sides if side.first_error), "")
    report.check("calls that failed", sum(side.errors for side in sides), 0)
    return report.finish(options.out)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--blocks", type=int, help="blocks of each (default: 40; with --full 300)")
    given = options.parse_args()
    shared = common(given)
    raise SystemExit(run(measure(shared, blocks=given.blocks or (300 if shared.full else 40))))


if __name__ == "__main__":
    main()
