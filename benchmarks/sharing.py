"""What several processes of one build gain (`builder.processes`): how much of their work overlaps, and what it costs.

A log of many scopes and one of a single scope are built in full by one process and by two, in turn, each build on a
fresh copy. PostgreSQL shares the machine's cores, so time alone says little on two of them: the overlap is the share of
the time in which any process works on the build in which all of them do, by their processor clocks. All builds must end
with the same roots. `--only one` measures the single scope alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.building import Built, build
from benchmarks.cluster import Cluster
from benchmarks.figures import median
from benchmarks.options import Common, common, parser, run
from benchmarks.prepared import loaded
from benchmarks.processes import cpu_seconds
from benchmarks.report import Report, number
from benchmarks.statements import statement
from myria_cli import console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PART = "sharing"
PROCESSES = 2
LEAST_OVERLAP = 0.9
LEAST_EVENTS = 100_000
"""Events from which the overlap is promised: of a smaller build, the second process's start is too large a part."""

_LOGS = ((0, "many scopes"), (1, "one scope"))
_LOOK_S = 0.5
_WORKS = 0.03
"""A process works while its clock advances by this share of the time: one that waits for a task needs less, and one
that others keep from the processor more."""


@dataclass(slots=True)
class Clocks:
    """Processor clocks of the builders among this process's descendants, looked at twice a second, by process id."""

    times: list[float] = field(default_factory=list)
    clocks: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def look(self) -> None:
        """Look at all of them once."""
        at = len(self.times)
        self.times.append(time.time())
        for pid in _descendants("self"):
            try:
                if pid in self.clocks or _is_builder(pid):
                    self.clocks[pid][at] = cpu_seconds(pid)
            except OSError:
                continue

    def overlap(self, pids: list[int], begin: float, end: float) -> float:
        """Return the share of the time in which any of some processes works between two moments in which all do."""
        any_s = all_s = 0.0
        for at in range(1, len(self.times)):
            length = self.times[at] - self.times[at - 1]
            if self.times[at - 1] < begin or self.times[at] > end:
                continue
            used = [self.clocks[pid].get(at, 0.0) - self.clocks[pid].get(at - 1, 0.0) for pid in pids]
            working = [cpu > _WORKS * length for cpu in used]
            any_s += length * any(working)
            all_s += length * all(working)
        return all_s / any_s if any_s else 0.0


@dataclass(slots=True)
class _Series:
    """The builds of one log by so many processes."""

    builds: list[Built] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    overlaps: list[float] = field(default_factory=list)
    roots: set[str] = field(default_factory=set)


async def measure(options: Common, *, rounds: int, only: str | None = None) -> int:
    """Prepare, run the rounds, and write the report; return the exit status."""
    report = Report(PART)
    lines: list[tuple[str, int, str, str, str]] = []
    async with Cluster(options.work_dir) as cluster:
        report.figures["postgres"] = await cluster.versions()
        for size in options.sizes:
            for sets, what in _LOGS:
                if only is not None and not what.startswith(only):
                    continue
                base = await loaded(cluster, options, size, sets=sets)
                series = {count: _Series() for count in (1, PROCESSES)}
                for round_ in range(rounds):
                    for count, of in series.items():
                        await _build(cluster, options, base.name, count, of)
                        console.say(f"round {round_ + 1} of {rounds}: {what}, {count} at work", "dim")
                report.figures[f"{what} at {size}"] = {
                    str(count): {
                        "seconds": [round(built.seconds, 2) for built in of.builds],
                        "cpu_us_per_event": [round(cpu_s / size * 1e6) for cpu_s in of.cpu_s],
                        "overlap": [round(value, 3) for value in of.overlaps],
                    }
                    for count, of in series.items()
                }
                lines.extend(_rows(f"{what}, {size:,} events", size, series))
                roots = series[1].roots | series[PROCESSES].roots
                report.check(f"{what} at {size:,}: distinct results", len(roots), 1)
                if size >= LEAST_EVENTS:
                    overlap = median(series[PROCESSES].overlaps)
                    report.check(f"{what} at {size:,}: overlap", overlap, LEAST_OVERLAP, at_least=True)
    report.table(
        "full builds by several processes, median of rounds",
        ("log", "processes", "build s", "builder CPU us/event", "overlap"),
        lines,
    )
    return report.finish(options.out)


def _rows(what: str, size: int, series: dict[int, _Series]) -> Iterator[tuple[str, int, str, str, str]]:
    for count, of in series.items():
        yield (
            what,
            count,
            number(median([built.seconds for built in of.builds]), 2),
            number(median(of.cpu_s) / size * 1e6, 0),
            number(median(of.overlaps), 2) if count > 1 else "",
        )


async def _build(cluster: Cluster, options: Common, source: str, processes: int, into: _Series) -> None:
    name = f"{source}_shared"
    dsns = await cluster.clone(source, name)
    log = options.work_dir / "log" / f"{name}.log"
    async with _watched() as clocks:
        into.builds.append(await build(dsns, log, full=True, processes=processes))
    connection = await cluster.connect(name)
    try:
        rows = await connection.fetch(statement("root_renderings"))
        (span,) = await connection.fetch(statement("build_span"))
    finally:
        await connection.close()
    pids = list(clocks.clocks)
    into.cpu_s.append(sum(max(clocks.clocks[pid].values()) for pid in pids))
    alone = len(pids) < processes
    into.overlaps.append(0.0 if alone else clocks.overlap(pids, span["began"], span["ended"]))
    into.roots.add(sha256(repr([(row["scope_id"], row["root_rendering_id"]) for row in rows]).encode()).hexdigest())
    await cluster.drop(name)


@asynccontextmanager
async def _watched() -> AsyncIterator[Clocks]:
    clocks = Clocks()

    async def look() -> None:
        while True:
            clocks.look()
            await asyncio.sleep(_LOOK_S)

    task = asyncio.create_task(look())
    try:
        yield clocks
    finally:
        task.cancel()


def _is_builder(pid: int) -> bool:
    """Tell whether a process is the command `myria build`, or a further process that it started.

    Raises:
        OSError: it has ended.
    """
    arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"myria_cli.main\0build\0" in arguments or b"multiprocessing.spawn" in arguments


def _descendants(pid: int | str) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(child) for child in children.read_text(encoding="ascii").split()]
        except OSError:
            continue
        for child in found:
            yield child
            yield from _descendants(child)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    options.add_argument("--only", choices=("many", "one"), help="the log of many scopes, or that of one, alone")
    given = options.parse_args()
    raise SystemExit(run(measure(common(given), rounds=given.rounds, only=given.only)))


if __name__ == "__main__":
    main()
