"""What an incremental build costs: it must depend on how much changed, not on how much is stored.

Ten scopes of 1,500 to 2,500 events, the same in every database, are added beside the generated events. Then each round
appends 100 events at the end of each of them and builds, in turn for every size. The same is measured for one scope of
a million events, and how long moving the pointer takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.building import Built, build
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.load import LoadProcess
from benchmarks.mcp_http import tool_call
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import built, load, spare
from benchmarks.processes import myria_server
from benchmarks.report import Report, number
from benchmarks.statements import statement
from benchmarks.workload import events_file, renamed_stream
from myria_cli import console
from myria_embedded import RoleDsns

PART = "builds"
ADDED = 100
"""Events that each scope gains in a round."""

ONE_SCOPE = 1_000_000
SMALL_ONE_SCOPE = 20_000
POINTER_SIZE = 100_000
POINTER_CALLS = 50
PUBLISHES = 3
INDEX_TABLES = ("nodes", "renderings", "scope_roots", "search_blocks", "topics")

MOST_TIME_RATIO = 2.0
MOST_ROWS_DIFFERENCE = 0.10
MOST_ONE_SCOPE_S = 5.0
MOST_ONE_SCOPE_ROWS = 1_000
MOST_ROLLBACK_MS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The scopes that are added to every database and then grow: the first has `events`, each next one 2% more.

    They are cut out of one stream of generated events, `stride` events apart.
    """

    count: int = 10
    events: int = 1_500

    @property
    def stride(self) -> int:
        """Events of the stream that each target may use."""
        return 2 * self.events

    def name(self, i: int) -> str:
        """Return what the i-th target is called."""
        return f"target{i:02d}"

    def size(self, i: int) -> int:
        """Return the events that the i-th target begins with."""
        return self.events * (50 + i) // 50

    def begin(self, stream: Path) -> Iterator[bytes]:
        """Yield the events that the targets begin with."""
        for i in range(self.count):
            yield from renamed_stream(stream, skip=i * self.stride, count=self.size(i), name=self.name(i))

    def grow(self, stream: Path, round_: int) -> Iterator[bytes]:
        """Yield the events that a round adds at the end of each target."""
        for i in range(self.count):
            skip = i * self.stride + self.size(i) + round_ * ADDED
            yield from renamed_stream(stream, skip=skip, count=ADDED, name=self.name(i))


DEFAULT_TARGETS = Targets()


@dataclass(slots=True, kw_only=True)
class Grown:
    """A database that grows by rounds, and what each incremental build took and wrote."""

    name: str
    size: int
    builds: list[Built] = field(default_factory=list)
    rows: list[dict[str, int]] = field(default_factory=list)

    def seconds(self) -> list[float]:
        """Return the seconds of each build."""
        return [finished.seconds for finished in self.builds]

    def totals(self) -> list[int]:
        """Return the rows that each build inserted, updated or deleted."""
        return [sum(rows.values()) for rows in self.rows]


async def measure(
    options: Common, *, rounds: int, one_scope: int, targets: Targets = DEFAULT_TARGETS, publishes: int = PUBLISHES
) -> int:
    """Prepare, run the rounds, and write the report; return the exit status."""
    report = Report(PART)
    async with Cluster(options.work_dir) as cluster:
        report.figures["postgres"] = await cluster.versions()
        stream = await events_file(options, targets.count * targets.stride, sets=1)
        grown = [await _with_targets(cluster, options, stream, size, targets) for size in options.sizes]
        for round_ in range(rounds + 1):
            for database in grown:
                dsns = cluster.dsns(database.name)
                lines = targets.grow(stream, round_)
                await load(dsns.server, lines, total=targets.count * ADDED, what="appending")
                await _build_round(cluster, options, database, counted=round_ > 0, what=f"round {round_} of {rounds}")
        publish_incremental(report, grown, targets)
        await _one_scope(cluster, options, report, rounds, one_scope)
        await _pointer(cluster, options, report, stream, publishes)
    return report.finish(options.out)


async def _with_targets(cluster: Cluster, options: Common, stream: Path, size: int, targets: Targets) -> Grown:
    base = await built(cluster, options, size)
    name = f"{base.name}_targets"
    console.say(f"copying {base.name}, adding {targets.count} scopes ...", "dim")
    dsns = await cluster.clone(base.name, name)
    total = sum(targets.size(i) for i in range(targets.count))
    await load(dsns.server, targets.begin(stream), total=total, what="adding scopes")
    await build(dsns, options.work_dir / "log" / f"{name}.log")
    await cluster.tidy(name)
    return Grown(name=name, size=size)


async def _build_round(cluster: Cluster, options: Common, database: Grown, *, counted: bool, what: str) -> None:
    """Build what was appended; the first round of a database is not counted: it warms the cluster."""
    ran, written = await counted_build(cluster, options, database.name)
    console.say(f"{what}: {database.name}: {ran.seconds:.2f} s, {sum(written.values()):,} rows", "dim")
    if counted:
        database.builds.append(ran)
        database.rows.append(written)


async def counted_build(cluster: Cluster, options: Common, name: str) -> tuple[Built, dict[str, int]]:
    """Build a database; return what that took, and the rows it inserted, updated or deleted by table."""
    before = await _rows_written(cluster, name)
    ran = await build(cluster.dsns(name), options.work_dir / "log" / f"{name}.log")
    after = await _rows_written(cluster, name)
    return ran, {table: after[table] - before.get(table, 0) for table in after if after[table] != before.get(table, 0)}


async def _rows_written(cluster: Cluster, name: str) -> dict[str, int]:
    connection = await cluster.connect(name)
    try:
        # Backends report their counts when they idle for a second, or before they are gone.
        for _ in range(60):
            if not await connection.fetchval(statement("others_connected")):
                break
            await asyncio.sleep(0.05)
        rows = await connection.fetch(statement("rows_written"))
    finally:
        await connection.close()
    return {row["table"]: row["inserted"] + row["updated"] + row["deleted"] for row in rows}


def publish_incremental(report: Report, grown: list[Grown], targets: Targets) -> None:
    """Print and note the incremental builds of the targets."""
    base = grown[0]
    tables = sorted({table for database in grown for rows in database.rows for table in rows})
    shown = [table for table in tables if table in INDEX_TABLES]
    lines = []
    for database in grown:
        against = ratios(database.seconds(), base.seconds())
        rows_ratio = ratios([float(total) for total in database.totals()], [float(total) for total in base.totals()])
        by_table = {table: median([float(rows.get(table, 0)) for rows in database.rows]) for table in tables}
        report.figures[f"{targets.count} x {ADDED} events at {database.size}"] = {
            "seconds": [round(value, 3) for value in database.seconds()],
            "seconds_median": round(median(database.seconds()), 3),
            "process_seconds_median": round(median([finished.process_seconds for finished in database.builds]), 3),
            "cpu_s_median": round(median([finished.cpu_s for finished in database.builds]), 3),
            "peak_mib": round(max(finished.peak_mib for finished in database.builds)),
            "rows": database.totals(),
            "rows_by_table": by_table,
            "counts": database.builds[-1].counts,
            "time_ratio": round(median(against), 3),
            "rows_ratio": round(median(rows_ratio), 4),
        }
        lines.append(
            (
                f"{database.size:,}",
                number(median(database.seconds()), 2),
                number(median([finished.process_seconds for finished in database.builds]), 2),
                number(median(against), 2),
                number(median([float(total) for total in database.totals()]), 0),
                *(number(by_table[table], 0) for table in shown),
                number(sum(by_table[table] for table in tables if table not in INDEX_TABLES), 0),
            )
        )
        if database is not base:
            report.check(f"time at {database.size:,} / at {base.size:,}", median(against), MOST_TIME_RATIO)
            difference = max(abs(ratio - 1) for ratio in rows_ratio)
            report.check(
                f"rows at {database.size:,} against {base.size:,}, difference", difference, MOST_ROWS_DIFFERENCE
            )
    columns = ("beside", "build s", "process s", "time ratio", "rows", *shown, "bookkeeping")
    report.table(
        f"{ADDED} events at the end of each of {targets.count} scopes, rows by table, median of rounds", columns, lines
    )


async def _one_scope(cluster: Cluster, options: Common, report: Report, rounds: int, size: int) -> None:
    base = await built(cluster, options, size, sets=1)
    rounds = min(rounds, spare(1) // ADDED - 1)
    report.figures[f"one scope of {size}"] = {"base": base.figures}
    database = Grown(name=f"{base.name}_grown", size=size)
    console.say(f"copying {base.name} ...", "dim")
    dsns = await cluster.clone(base.name, database.name)
    await cluster.tidy(database.name)
    stream = await events_file(options, size + spare(1), sets=1)
    for round_ in range(rounds + 1):
        lines = slice_of(stream, size + round_ * ADDED)
        await load(dsns.server, lines, total=ADDED, what="appending")
        await _build_round(
            cluster, options, database, counted=round_ > 0, what=f"one scope, round {round_} of {rounds}"
        )
    figures: dict[str, Any] = {
        "seconds": [round(value, 3) for value in database.seconds()],
        "process_seconds_median": round(median([finished.process_seconds for finished in database.builds]), 3),
        "peak_mib": round(max(finished.peak_mib for finished in database.builds)),
        "rows": database.totals(),
        "rows_by_table": database.rows[-1],
        "counts": database.builds[-1].counts,
    }
    report.figures[f"one scope of {size}"] |= figures
    report.table(
        f"100 new events in one scope of {size:,}",
        ("", "build s", "process s", "rows", "peak MiB", "full build s", "full peak MiB"),
        [
            (
                "median of rounds",
                number(median(database.seconds())),
                number(figures["process_seconds_median"]),
                number(median([float(total) for total in database.totals()]), 0),
                number(figures["peak_mib"], 0),
                number(base.figures["full_build_s"], 1),
                number(base.figures["builder_peak_mib"], 0),
            )
        ],
    )
    report.check(f"100 events in one scope of {size:,}: time", max(database.seconds()), MOST_ONE_SCOPE_S, unit="s")
    report.check(f"100 events in one scope of {size:,}: rows", max(database.totals()), MOST_ONE_SCOPE_ROWS)
    await cluster.drop(database.name)


def slice_of(stream: Path, skip: int) -> Iterator[bytes]:
    """Yield the lines of one round from a file of events."""
    with stream.open("rb") as source:
        for i, line in enumerate(source):
            if i >= skip + ADDED:
                return
            if i >= skip:
                yield line


async def _pointer(cluster: Cluster, options: Common, report: Report, stream: Path, rounds: int) -> None:
    """Move the pointer over MCP: to and fro between two snapshots while builds run, then publish held ones."""
    size = POINTER_SIZE if POINTER_SIZE in options.sizes else max(options.sizes)
    base = await built(cluster, options, size)
    name = f"{base.name}_pointer"
    log = options.work_dir / "log" / f"{name}.log"
    dsns = await cluster.clone(base.name, name)

    async def append(part: int) -> None:
        lines = renamed_stream(stream, skip=part * ADDED, count=ADDED, name="pointer")
        await load(dsns.server, lines, total=ADDED, what="appending")

    await append(0)
    second = await build(dsns, log)
    publishes: list[float] = []
    async with LoadProcess() as clients, myria_server(dsns.server, log.with_suffix(".server.log")) as server:
        to_and_fro = [
            tool_call(server.port, "rollback", {}),
            tool_call(server.port, "rollback", {"to": second.snapshot_id}),
        ]
        enough = asyncio.Event()
        builds = asyncio.create_task(_keep_building(dsns, log, enough))
        await asyncio.sleep(2.0)
        moved = await clients.run(to_and_fro, port=server.port, connections=1, count=POINTER_CALLS)
        enough.set()
        await builds
        for part in range(1, rounds + 1):
            await append(part)
            held = await build(dsns, log, hold=True)
            publish = tool_call(server.port, "publish_snapshot", {"snapshot_id": held.snapshot_id})
            published = await clients.run([publish], port=server.port, connections=1, count=1)
            publishes.append(published.latency.p50)
            if published.errors:
                raise RuntimeError(published.first_error)
    if moved.errors:
        raise RuntimeError(moved.first_error)
    report.figures[f"pointer at {size}"] = {
        "rollback_ms": moved.latency.to_json(),
        "publish_ms": [round(value, 2) for value in publishes],
    }
    report.table(
        f"moving the pointer over MCP at {size:,} events",
        ("", "calls", "p50 ms", "p95 ms"),
        [
            (
                "rollback while builds run",
                moved.latency.count,
                number(moved.latency.p50),
                number(moved.latency.p95),
            ),
            ("publish a held snapshot", len(publishes), number(median(publishes)), number(max(publishes))),
        ],
    )
    report.check("rollback p95 while builds run", moved.latency.p95, MOST_ROLLBACK_MS, unit="ms")
    await cluster.drop(name)


async def _keep_building(dsns: RoleDsns, log: Path, enough: asyncio.Event) -> None:
    """Repeat full builds for ever: a move of the pointer ends each as superseded."""
    while not enough.is_set():
        with suppress(RuntimeError):
            await build(dsns, log, full=True)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds (default: 2; with --full 5)")
    options.add_argument(
        "--one-scope", type=int, help="events of the one-scope database (default: 20,000; with --full 1,000,000)"
    )
    options.add_argument("--targets", type=int, default=DEFAULT_TARGETS.count, help="scopes that grow")
    options.add_argument("--target-events", type=int, default=DEFAULT_TARGETS.events, help="events of the smallest")
    options.add_argument("--publishes", type=int, default=PUBLISHES, help="held snapshots that are published")
    given = options.parse_args()
    shared = common(given)
    raise SystemExit(
        run(
            measure(
                shared,
                rounds=given.rounds or (5 if shared.full else 2),
                one_scope=given.one_scope or (ONE_SCOPE if shared.full else SMALL_ONE_SCOPE),
                targets=Targets(count=given.targets, events=given.target_events),
                publishes=given.publishes,
            )
        )
    )


if __name__ == "__main__":
    main()
