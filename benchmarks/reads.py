"""What reading costs as the log grows, and an agent that is in very many scopes.

Closed-loop clients ask servers over databases of each size: scopes of 1,000 to 2,500 events, the largest scope, and the
same with no snapshot at all (everything in the fresh tail). Then one log holds thousands of scopes of eight events that
share one participant, and one scope with as many events of the same texts; each is asked alone by who is in it. Cold is
the first question to a server that has just started.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import orjson

from benchmarks.databases import build, built, load, loaded
from benchmarks.load import drive
from benchmarks.options import Bench, run_part
from benchmarks.processes import myria_server, usage
from benchmarks.report import Report, median
from benchmarks.sides import Side, in_turns, publish
from benchmarks.synthetic import events
from benchmarks.workload import Scope, questions, scopes
from myria.settings import RetrievalSettings

PART = "reads"
CLIENTS = 4
MOST_MIDDLE_RATIO = 2.0
MOST_LARGEST_RATIO = 8.0
RSS_SLACK = 1.1
CACHE_MIB = RetrievalSettings().cache_bytes / 2**20

SCOPES, FEWER_SCOPES = 5_000, 500
EVENTS_EACH = 8
MANY, ONE = "clerk", "archive"
"""Who is in all the small scopes, and who is in the one large scope."""
COLD_STARTS = 3
MOST_WARM_MS = 60.0
MOST_COLD_MS = 400.0
MOST_SCOPES_RATIO = 2.0


async def measure(bench: Bench, report: Report) -> None:
    """Measure both."""
    await _sizes(bench, report)
    await _many_scopes(bench, report)


async def _sizes(bench: Bench, report: Report) -> None:
    sides: list[Side] = []
    async with AsyncExitStack() as stack:
        names = [await built(bench, size) for size in bench.sizes]
        tail = await loaded(bench, min(100_000, max(bench.sizes)))
        for name in (*names, tail, names[-1]):
            server = myria_server(bench.cluster.dsns(name).server, bench.log(f"{PART}-{len(sides)}"))
            await stack.enter_async_context(server)
            middle, largest = await scopes(bench.cluster, name)
            is_largest = len(sides) > len(names)
            asked = questions([largest] if is_largest else middle, port=server.port, count=bench.requests)
            what = f"largest scope: {largest.events:,} events" if is_largest else name.removeprefix("bench_")
            sides.append(Side(name=what, server=server, requests=asked, connections=CLIENTS))
        for side in sides:
            cold = await drive(side.requests[:1], port=side.server.port)
            report.figures[f"cold ms: {side.name}"] = cold.ms(0.5)
        await in_turns(sides, rounds=bench.rounds, count=bench.requests)
        rss_mib = [usage(side.server.pid).rss_mib for side in sides[: len(names)]]
    compared = publish(report, f"reads, {CLIENTS} clients", sides)
    for side, beside in list(zip(sides, compared, strict=True))[1:]:
        most = MOST_LARGEST_RATIO if side is sides[-1] else MOST_MIDDLE_RATIO
        report.check(f"{side.name}: p95 / {sides[0].name}", beside.p95, most)
    report.figures["server_rss_mib"] = dict(zip(bench.sizes, rss_mib, strict=True))
    most = round((rss_mib[0] + CACHE_MIB) * RSS_SLACK)
    report.check(f"memory of the server at {max(bench.sizes):,}", rss_mib[-1], most, unit="MiB")


async def _many_scopes(bench: Bench, report: Report) -> None:
    count = SCOPES if bench.full else FEWER_SCOPES
    total, name = count * EVENTS_EACH, f"bench_{count}_scopes"
    dsn = (await bench.cluster.create(name)).server
    await load(bench, name, _lines(count))
    await build(bench, name, full=True)
    await bench.cluster.tidy(name)
    texts = tuple(event["payload"]["text"] for event in islice(events(total, sets=1), 1_000))
    labels = {ONE: f"1 scope of {total:,}", MANY: f"{count:,} scopes of {EVENTS_EACH}"}
    asked = {who: [Scope(participants=(who,), events=total, texts=texts)] for who in labels}
    cold_ms: dict[str, list[float]] = {who: [] for who in labels}
    for start in range(COLD_STARTS):
        for who, chosen in asked.items():
            async with myria_server(dsn, bench.log(f"{PART}-cold")) as server:
                first = questions(chosen, port=server.port, count=1, seed=start)
                cold_ms[who].append((await drive(first, port=server.port)).ms(0.5))
    async with myria_server(dsn, bench.log(f"{PART}-scopes")) as server:
        sides = [
            Side(name=labels[who], server=server, requests=questions(chosen, port=server.port, count=bench.requests))
            for who, chosen in asked.items()
        ]
        await in_turns(sides, rounds=bench.rounds, count=min(200, bench.requests))
    _, many = publish(report, "an agent in very many scopes, 1 client", sides)
    report.figures["cold_ms"] = cold_ms
    report.check(f"{labels[MANY]}: warm p50", median(sides[1].ms(0.5)), MOST_WARM_MS, unit="ms")
    report.check(f"{labels[MANY]}: warm p50 / {labels[ONE]}", many.p50, MOST_SCOPES_RATIO)
    report.check(f"{labels[MANY]}: cold", median(cold_ms[MANY]), MOST_COLD_MS, unit="ms")


def _lines(count: int) -> Iterator[bytes]:
    """Yield lines to import: so many small scopes, and one scope with as many events of the same texts."""
    begin = datetime(2025, 1, 1, tzinfo=UTC)
    for number_, event in enumerate(events(count * EVENTS_EACH, sets=1)):
        scope, place = number_ % count, number_ // count
        in_small = begin + timedelta(minutes=7 * scope, seconds=40 * place)
        yield _line(event, in_small, f"user_{scope:06d}", MANY)
        yield _line(event, begin + timedelta(seconds=52 * number_), "reader", ONE)


def _line(event: dict[str, Any], at: datetime, person: str, shared: str) -> bytes:
    payload = {"text": event["payload"]["text"], "speaker": (person, shared)[at.minute % 2]}
    own = {"timestamp": at.isoformat(), "channel": f"with {shared}", "participants": [shared, person]}
    return orjson.dumps({**event, **own, "payload": payload}) + b"\n"


if __name__ == "__main__":
    run_part(PART, __doc__, measure)
