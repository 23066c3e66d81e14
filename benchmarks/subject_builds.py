"""What a build of 100 new events costs beside n of the same scope, with subjects: it must not grow with n.

One scope of each size is built in full; then each round appends 100 events at its end and builds, in turn for every
size. CPU is that of the builder's process from start to end, by the operating system's own account; a build with
nothing to do says how much of it is the start. Also: what the tables of subjects take beside those of the trees of time
and the search blocks, and, with `--memory`, the memory of full builds with subjects and without.

    python -m benchmarks.subject_builds --sizes 1e4,1e5,1e6 [--rounds ROUNDS] [--memory]
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.building import Built, build
from benchmarks.builds import ADDED, counted_build, slice_of
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import built, load, loaded, spare
from benchmarks.report import Report, number
from benchmarks.statements import statement
from benchmarks.workload import events_file
from myria_cli import console

PART = "subject_builds"
ROUNDS = 5
SUBJECT_TABLES = ("subject_nodes", "subject_holders", "subject_roots")
TIME_TABLES = ("nodes", "renderings", "topics", "scope_roots", "search_blocks")

MOST_CPU_RATIO = 1.3
MOST_ROWS = 1_500
MOST_GROWTH = 0.4
"""What subjects may add to the index, and to the memory of a full build."""


@dataclass(slots=True, kw_only=True)
class Grown:
    """A scope that grows by rounds: of each build the CPU seconds, rows by table, and what it was."""

    name: str
    size: int
    stream: Path
    cpu_s: list[float] = field(default_factory=list)
    idle_cpu_s: list[float] = field(default_factory=list)
    """Of builds with nothing to do, one in each round."""
    rows: list[dict[str, int]] = field(default_factory=list)
    builds: list[Built] = field(default_factory=list)
    bytes_of_subjects: int = 0
    bytes_of_time: int = 0

    def totals(self) -> list[int]:
        """Return the rows that each build inserted, updated or deleted."""
        return [sum(rows.values()) for rows in self.rows]

    def work_s(self) -> float:
        """Return the CPU seconds of a build without the start of its process."""
        return median(self.cpu_s) - median(self.idle_cpu_s)


async def measure(options: Common, *, rounds: int, memory: bool) -> int:
    """Prepare, run the rounds, and write the report; return the exit status."""
    report = Report(PART)
    rounds = min(rounds, spare(1) // ADDED - 1)
    async with Cluster(options.work_dir) as cluster:
        report.figures["postgres"] = await cluster.versions()
        scopes = [await _scope(cluster, options, size) for size in options.sizes]
        for round_ in range(rounds + 1):
            for scope in scopes:
                await _round(cluster, options, scope, round_, of=rounds)
        _publish(report, scopes)
        for scope in scopes:
            await cluster.drop(scope.name)
        if memory:
            await _memory(cluster, options, report)
    return report.finish(options.out)


async def _scope(cluster: Cluster, options: Common, size: int) -> Grown:
    base = await built(cluster, options, size, sets=1)
    scope = Grown(
        name=f"{base.name}_subjects",
        size=size,
        stream=await events_file(options, size + spare(1), sets=1),
    )
    scope.bytes_of_subjects = await _bytes(cluster, base.name, SUBJECT_TABLES)
    scope.bytes_of_time = await _bytes(cluster, base.name, TIME_TABLES)
    console.say(f"copying {base.name} ...", "dim")
    dsns = await cluster.clone(base.name, scope.name)
    log = options.work_dir / "log" / f"{scope.name}.log"
    # A scope that was built by other rules of subjects gets those of now.
    await build(dsns, log)
    await cluster.tidy(scope.name)
    return scope


async def _round(cluster: Cluster, options: Common, scope: Grown, round_: int, *, of: int) -> None:
    """Append and build once; the first round is not counted: it warms the cluster."""
    lines = slice_of(scope.stream, scope.size + round_ * ADDED)
    await load(cluster.dsns(scope.name).server, lines, total=ADDED, what="appending")
    began = _children_cpu_s()
    ran, rows = await counted_build(cluster, options, scope.name)
    cpu_s = _children_cpu_s() - began
    began = _children_cpu_s()
    await build(cluster.dsns(scope.name), options.work_dir / "log" / f"{scope.name}.log")
    idle_cpu_s = _children_cpu_s() - began
    console.say(f"round {round_} of {of}: {scope.name}: {cpu_s:.2f} s of CPU, {sum(rows.values()):,} rows", "dim")
    if round_:
        scope.cpu_s.append(cpu_s)
        scope.idle_cpu_s.append(idle_cpu_s)
        scope.rows.append(rows)
        scope.builds.append(ran)


def _publish(report: Report, scopes: Sequence[Grown]) -> None:
    base = scopes[0]
    lines = []
    for scope in scopes:
        ratio = median(scope.cpu_s) / median(base.cpu_s)
        (without_start,) = ratios([scope.work_s()], [base.work_s()])
        of_subjects = [sum(rows.get(table, 0) for table in SUBJECT_TABLES) for rows in scope.rows]
        growth = scope.bytes_of_subjects / scope.bytes_of_time
        peak = max(ran.peak_mib for ran in scope.builds)
        report.figures[f"beside {scope.size}"] = {
            "cpu_s": [round(value, 3) for value in scope.cpu_s],
            "idle_cpu_s": [round(value, 3) for value in scope.idle_cpu_s],
            "cpu_ratio": round(ratio, 3),
            "cpu_ratio_without_start": round(without_start, 3),
            "seconds": [round(ran.seconds, 3) for ran in scope.builds],
            "rows": scope.totals(),
            "rows_of_subjects": of_subjects,
            "peak_mib": round(peak),
            "index_growth": round(growth, 3),
            "counts": scope.builds[-1].counts,
        }
        lines.append(
            (
                f"{scope.size:,}",
                number(median(scope.cpu_s)),
                number(median(scope.idle_cpu_s)),
                number(ratio),
                number(without_start),
                f"{min(scope.totals()):,} to {max(scope.totals()):,}",
                f"{min(of_subjects):,} to {max(of_subjects):,}",
                number(peak, 0),
                f"{growth:.0%}",
            )
        )
        if scope is not base:
            report.check(f"CPU beside {scope.size:,} / beside {base.size:,}", ratio, MOST_CPU_RATIO)
        report.check(f"rows beside {scope.size:,}", max(scope.totals()), MOST_ROWS)
        report.check(f"tables of subjects / of time at {scope.size:,}", growth, MOST_GROWTH)
    report.table(
        f"a build of {ADDED} events beside so many of one scope, median of rounds",
        ("events", "CPU s", "of it start", "ratio", "ratio without start", "rows", "of subjects", "peak MiB", "index"),
        lines,
    )


async def _memory(cluster: Cluster, options: Common, report: Report) -> None:
    """Build each scope in full, without subjects and with, and compare the highest memory of the builder."""
    lines = []
    for size in options.sizes:
        log = await loaded(cluster, options, size, sets=1)
        ran: dict[str, Built] = {}
        for name, switch in (("without", "false"), ("with", "true")):
            copy = f"{log.name}_{name}"
            dsns = await cluster.clone(log.name, copy)
            console.say(f"building {size:,} events {name} subjects ...", "dim")
            path = options.work_dir / "log" / f"{copy}.log"
            ran[name] = await build(dsns, path, full=True, settings={"PLANNER_SUBJECTS": switch})
            await cluster.drop(copy)
        figures: dict[str, Any] = {
            name: {"peak_mib": round(of.peak_mib), "cpu_s": round(of.cpu_s, 1)} for name, of in ran.items()
        }
        report.figures[f"full build of {size}"] = figures
        growth = ran["with"].peak_mib / ran["without"].peak_mib - 1
        report.check(f"memory of a full build of {size:,} through subjects", growth, MOST_GROWTH)
        lines.append(
            (
                f"{size:,}",
                *(number(ran[name].peak_mib, 0) for name in ("without", "with")),
                f"{growth:+.0%}",
                *(number(ran[name].cpu_s, 1) for name in ("without", "with")),
            )
        )
    report.table(
        "full builds of one scope",
        ("events", "MiB without", "MiB with subjects", "", "CPU s without", "CPU s with"),
        lines,
    )


async def _bytes(cluster: Cluster, name: str, tables: Sequence[str]) -> int:
    connection = await cluster.connect(name)
    try:
        size: int = await connection.fetchval(statement("table_bytes"), list(tables))
        return size
    finally:
        await connection.close()


def _children_cpu_s() -> float:
    """Return the CPU seconds of all commands that this process has run to their ends."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=ROUNDS, help="rounds, at most 9 (default: %(default)s)")
    options.add_argument("--memory", action="store_true", help="also build in full, with subjects and without")
    given = options.parse_args()
    raise SystemExit(run(measure(common(given), rounds=given.rounds, memory=given.memory)))


if __name__ == "__main__":
    main()
