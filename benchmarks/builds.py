"""What builds cost: what changed must decide, not what is stored.

A scope of 2,000 events, the same in every database, is added beside the generated events. Then each round appends 100
events at its end and builds, in turn for every size; the same is done at the end of one scope that holds all events of
a database. Full builds are measured when databases are made. Last, the pointer moves to and fro between two snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice

import orjson

from benchmarks.databases import Built, build, built, load
from benchmarks.load import drive
from benchmarks.mcp_http import tool_call
from benchmarks.options import Bench, run_part
from benchmarks.processes import myria_server
from benchmarks.report import Report, median, number, ratios
from benchmarks.synthetic import events
from benchmarks.workload import lines

PART = "builds"
ADDED = 100
"""Events that a scope gains in a round."""
TARGET = 2_000
"""Events that the added scope begins with."""

MOST_TIME_RATIO = 2.0
MOST_ROWS_RATIO = 1.1
MOST_ONE_SCOPE_S = 5.0
MOST_ONE_SCOPE_ROWS = 1_500
MOST_ROLLBACK_MS = 100.0
MOST_BUILD_S = 300.0


@dataclass(slots=True, kw_only=True)
class Grown:
    """A database that grows by rounds: where its new events come from, and what each incremental build took."""

    name: str
    size: int
    coming: Iterator[bytes]
    builds: list[Built] = field(default_factory=list)


async def measure(bench: Bench, report: Report) -> None:
    """Measure full and incremental builds, and what moves the pointer."""
    largest = max(bench.sizes)
    many = [await built(bench, size) for size in bench.sizes]
    one = await built(bench, largest, sets=1)
    _publish_full(bench, report, [*many, one])
    grown = [await _beside(bench, name, size) for name, size in zip(many, bench.sizes, strict=True)]
    await bench.cluster.clone(one, f"{one}_grown")
    grown.append(Grown(name=f"{one}_grown", size=largest, coming=islice(lines(largest, 1), largest, None)))
    for round_ in range(bench.rounds + 1):
        for database in grown:
            await load(bench, database.name, islice(database.coming, ADDED))
            took = await build(bench, database.name)
            if round_:
                database.builds.append(took)
    _publish_incremental(report, grown)
    await _rollbacks(bench, report, grown[0])


async def _beside(bench: Bench, base: str, size: int) -> Grown:
    """Add the scope to a copy of a database, and build."""
    name, coming = f"{base}_target", _target_lines()
    await bench.cluster.clone(base, name)
    await load(bench, name, islice(coming, TARGET))
    await build(bench, name)
    await bench.cluster.tidy(name)
    return Grown(name=name, size=size, coming=coming)


def _target_lines() -> Iterator[bytes]:
    """Yield the events of the added scope, which bring their event_id, on which topic boundaries depend."""
    for number_, event in enumerate(events(5_000, sets=1)):
        event["participants"] = [f"target_{name}" for name in event["participants"]]
        event["channel"] = "target"
        event["event_id"] = f"evt_{sha256(str(number_).encode()).hexdigest()[:32]}"
        yield orjson.dumps(event) + b"\n"


def _publish_full(bench: Bench, report: Report, names: list[str]) -> None:
    notes = {name: bench.cluster.ready[name] for name in names}
    report.figures["full builds"] = notes
    columns = ("database", *notes[names[0]])
    rows = [(name, *(number(value, 1) for value in figures.values())) for name, figures in notes.items()]
    report.table("full builds", columns, rows)
    for name, size in zip(names, bench.sizes, strict=False):
        if size == 100_000:
            report.check(f"full build of {size:,} events", notes[name]["build s"], MOST_BUILD_S, unit="s")


def _publish_incremental(report: Report, grown: list[Grown]) -> None:
    rows = []
    for database in grown:
        seconds, written = ([getattr(took, name) for took in database.builds] for name in ("seconds", "rows"))
        in_time = median(ratios(seconds, [took.seconds for took in grown[0].builds]))
        in_rows = median(ratios(written, [took.rows for took in grown[0].builds]))
        mib = max(took.ran.peak_mib for took in database.builds)
        report.figures[database.name] = {"seconds": seconds, "rows": written, "builder_mib": mib}
        figures = (median(seconds), in_time, median(written), in_rows, mib)
        rows.append((database.name, *(number(value) for value in figures)))
        if database is grown[-1]:
            in_one = f"{ADDED} events in one scope of {database.size:,}"
            report.check(f"{in_one}: time", median(seconds), MOST_ONE_SCOPE_S, unit="s")
            report.check(f"{in_one}: rows", median(written), MOST_ONE_SCOPE_ROWS)
        elif database is not grown[0]:
            beside = f"{ADDED} events beside {database.size:,} / {grown[0].size:,}"
            report.check(f"{beside}: time", in_time, MOST_TIME_RATIO)
            report.check(f"{beside}: rows", in_rows, MOST_ROWS_RATIO)
    columns = ("database", "build s", "time ratio", "rows", "rows ratio", "builder MiB")
    report.table(f"{ADDED} new events in one scope, medians of rounds", columns, rows)


async def _rollbacks(bench: Bench, report: Report, database: Grown) -> None:
    """Move the pointer to and fro between the two newest snapshots."""
    async with myria_server(bench.cluster.dsns(database.name).server, bench.log(database.name)) as server:
        targets: tuple[dict[str, str], ...] = ({}, {"to": database.builds[-1].snapshot_id})
        to_and_fro = [tool_call(server.port, "rollback", move) for move in targets]
        moved = await drive(to_and_fro, port=server.port, count=50)
    report.check("rollback: p95", moved.ms(0.95), MOST_ROLLBACK_MS, unit="ms")


if __name__ == "__main__":
    run_part(PART, __doc__, measure)
