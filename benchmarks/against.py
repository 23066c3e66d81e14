"""What a full build costs the builder, beside an older commit of this repository: the same events, in turns.

    python -m benchmarks.against COMMIT [--subjects on|off] [--log "one scope"] [--events FILE]

The older code is taken out of git's history (`benchmarks.older`). Each code imports the events and builds them in full
by `myria rebuild --here`, the old and the new in turn: a log of one scope and one of many, or one of the two. Reported
is the processor time of the process for each event, less what builds of a few events take (their median), which is its
start; and beside it with its start.
Without `--subjects` each code has them or not as by default. With `--events` a file of your own, as `myria import`
takes it, stands in for the logs: what a build costs depends on how people write.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.older import Code, build, codes, load, migrate
from benchmarks.options import Common, common, parser, run
from benchmarks.report import Report, number
from benchmarks.workload import events_file
from myria_cli import console

PART = "against"
MOST_RATIO = 1.3
FEW_EVENTS = 20
LOGS = {"one scope": 1, "many scopes": 0}
"""What a log holds, with the sets that its events are generated in."""


@dataclass(slots=True)
class _Builds:
    """The seconds of a code's builds by log, of all events and of few."""

    code: Code
    built_s: dict[str, list[float]] = field(default_factory=dict)
    few_s: dict[str, list[float]] = field(default_factory=dict)

    @property
    def _names(self) -> tuple[str, str]:
        """The databases of all events and of few."""
        return f"against_{self.code.name}", f"against_{self.code.name}_few"

    async def load(self, cluster: Cluster, source: Path, size: int, folder: Path) -> None:
        """Make both databases, with the first events of a file."""
        for name, events in zip(self._names, (size, FEW_EVENTS), strict=True):
            await load(cluster, source, events, self.code, name=name, folder=folder)

    async def run(self, cluster: Cluster, log: str) -> None:
        """Build copies of both for one round of a log."""
        for name, taken in zip(self._names, (self.built_s, self.few_s), strict=True):
            taken.setdefault(log, []).append(await _built(cluster, name, self.code))

    def us_per_event(self, log: str, events: int) -> list[float]:
        """Return the microseconds per event of each round of a log of so many events.

        The start is the median of all rounds: where a build is short, what one start takes more than another would
        count as much as the build.
        """
        started = median(self.few_s[log])
        return [(used - started) / (events - FEW_EVENTS) * 1e6 for used in self.built_s[log]]

    def whole_us_per_event(self, log: str, events: int) -> list[float]:
        """Return the same with the start, in each round."""
        return [used / events * 1e6 for used in self.built_s[log]]


async def measure(
    options: Common, commit: str, *, rounds: int, subjects: str | None, logs: Sequence[str], own: Path | None = None
) -> int:
    """Prepare, run the rounds, and write the report; return the exit status.

    `own` is a file of events that stands in for the logs, all of it.
    """
    report = Report(PART)
    sizes: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="myria-against-") as folder:
        both = [_Builds(code) for code in codes(commit, Path(folder), subjects=subjects)]
        async with Cluster(options.work_dir) as cluster:
            report.figures["postgres"] = await cluster.versions()
            report.figures["against"] = {"commit": commit, "subjects": subjects}
            for builds in both:
                await migrate(cluster, builds.code, Path(folder))
            for size in options.sizes if own is None else [_lines(own)]:
                for what in logs if own is None else [own.name]:
                    source = own or await events_file(options, size, sets=LOGS[what])
                    for builds in both:
                        await builds.load(cluster, source, size, Path(folder))
                    log = f"{what}, {size:,} events"
                    sizes[log] = size
                    for round_ in range(rounds):
                        for builds in both:
                            await builds.run(cluster, log)
                            console.say(f"round {round_ + 1} of {rounds}: {what}, {builds.code.name} code", "dim")
    _publish(report, sizes, *both)
    return report.finish(options.out)


def _publish(report: Report, sizes: Mapping[str, int], old: _Builds, new: _Builds) -> None:
    lines = []
    for what, size in sizes.items():
        before, now = old.us_per_event(what, size), new.us_per_event(what, size)
        by_round = ratios(now, before)
        report.figures[what] = {"old_us_per_event": before, "new_us_per_event": now, "ratios": by_round}
        report.check(f"{what}: builder CPU per event, new / old", median(by_round), MOST_RATIO)
        whole = ratios(new.whole_us_per_event(what, size), old.whole_us_per_event(what, size))
        started = [median(code.few_s[what]) for code in (old, new)]
        report.figures[what] |= {"starts_s": started, "ratios_with_starts": whole}
        lines.append(
            (
                what,
                number(median(before), 0),
                number(median(now), 0),
                number(median(by_round), 2),
                *(number(start * 1000, 0) for start in started),
                number(median(whole), 2),
            )
        )
    columns = ("log", "old us/event", "new us/event", "new / old", "old start ms", "new start ms", "with starts")
    report.table("full builds, median of rounds", columns, lines)


async def _built(cluster: Cluster, name: str, code: Code) -> float:
    """Build a fresh copy of a database in full; return the seconds of processor time of the process."""
    copy = f"{name}_built"
    await cluster.clone(name, copy)
    used_s = await build(cluster, copy, code)
    await cluster.drop(copy)
    return used_s


def _lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("commit", help="the older code, by any name that git knows")
    options.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    options.add_argument("--subjects", choices=("on", "off"), help="of both codes, where they know any")
    options.add_argument("--log", action="append", choices=tuple(LOGS), help="this one alone (default: both)")
    options.add_argument("--events", type=Path, help="a file of events that stands in for the logs")
    given = options.parse_args()
    if given.events is not None and not (given.events.is_file() and _lines(given.events) > FEW_EVENTS):
        options.error(f"--events: {given.events} is no file of more than {FEW_EVENTS} events, a line each")
    work = measure(
        common(given),
        given.commit,
        rounds=given.rounds,
        subjects=given.subjects,
        logs=given.log or tuple(LOGS),
        own=given.events,
    )
    sys.exit(run(work))


if __name__ == "__main__":
    main()
