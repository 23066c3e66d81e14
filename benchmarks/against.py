"""What a full build costs the builder, beside an older commit of this repository: the same events, in turns.

    python -m benchmarks.against COMMIT [--subjects on|off] [--log "one scope"] [--events FILE]

The older code is taken out of git's history into a temporary folder and run by the same Python with the same packages.
Each code makes its own schema, imports the events and builds them in full by `myria rebuild --here`, the old and the
new in turn: a log of one scope and one of many, or one of the two. Reported is the processor time of the process for
each event, less what builds of a few events take (their median), which is its start; and beside it with its start.
PostgreSQL's time is in neither.
Without `--subjects` each code has them or not as by default. With `--events` a file of your own, as `myria import`
takes it, stands in for the logs: what a build costs depends on how people write.
"""

from __future__ import annotations

import compileall
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from benchmarks.adapter import event_lines
from benchmarks.cluster import Cluster
from benchmarks.figures import median, ratios
from benchmarks.options import Common, common, parser, run
from benchmarks.processes import MYRIA, ROOT, run_command
from benchmarks.report import Report, number
from benchmarks.workload import events_file
from myria_cli import console

PART = "against"
MOST_RATIO = 0.5
FEW_EVENTS = 20
LOGS = {"one scope": 1, "many scopes": 0}
"""What a log holds, with the sets that its events are generated in."""


@dataclass(slots=True)
class _Code:
    """One of the two codes: its name, its variables, and the seconds of its builds by log, of all events and of few."""

    name: str
    env: dict[str, str]
    built_s: dict[str, list[float]] = field(default_factory=dict)
    few_s: dict[str, list[float]] = field(default_factory=dict)

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
        old = _taken_out(commit, Path(folder) / "old")
        codes = [
            _Code("old", _variables(old, subjects)),
            _Code("new", _variables(ROOT, subjects)),
        ]
        async with Cluster(options.work_dir) as cluster:
            report.figures["postgres"] = await cluster.versions()
            report.figures["against"] = {"commit": commit, "subjects": subjects}
            for code in codes:
                await _migrate(cluster, code, Path(folder))
            for size in options.sizes if own is None else [_lines(own)]:
                for what in logs if own is None else [own.name]:
                    source = own or await events_file(options, size, sets=LOGS[what])
                    for code in codes:
                        await _load(cluster, source, size, code, name=f"against_{code.name}", folder=Path(folder))
                        await _load(
                            cluster, source, FEW_EVENTS, code, name=f"against_{code.name}_few", folder=Path(folder)
                        )
                    log = f"{what}, {size:,} events"
                    sizes[log] = size
                    for round_ in range(rounds):
                        for code in codes:
                            built = await _built(cluster, f"against_{code.name}", code)
                            few = await _built(cluster, f"against_{code.name}_few", code)
                            code.built_s.setdefault(log, []).append(built)
                            code.few_s.setdefault(log, []).append(few)
                            console.say(f"round {round_ + 1} of {rounds}: {what}, {code.name} code", "dim")
    _publish(report, sizes, *codes)
    return report.finish(options.out)


def _publish(report: Report, sizes: Mapping[str, int], old: _Code, new: _Code) -> None:
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


async def _migrate(cluster: Cluster, code: _Code, folder: Path) -> None:
    """Make the empty database that those of a code are copies of."""
    dsns = await cluster.bare(_empty(code))
    env = {**code.env, "MYRIA_POSTGRES_DSN": dsns.owner}
    await run_command([*MYRIA, "migrate", "--grant"], env=env, log=folder / "log")


def _empty(code: _Code) -> str:
    return f"against_{code.name}_empty"


async def _load(cluster: Cluster, source: Path, size: int, code: _Code, *, name: str, folder: Path) -> None:
    """Make a database of a code, with the first events of a file."""
    dsns = await cluster.clone(_empty(code), name)
    env = {**code.env, "MYRIA_POSTGRES_DSN": dsns.owner}
    events = folder / "events.jsonl"
    with source.open("rb") as lines:
        _write(events, islice(event_lines(lines), size))
    await run_command([*MYRIA, "import", str(events)], env=env, log=folder / "log")
    await cluster.tidy(name)


async def _built(cluster: Cluster, name: str, code: _Code) -> float:
    """Build a fresh copy of a database in full; return the seconds of processor time of the process."""
    copy = f"{name}_built"
    dsns = await cluster.clone(name, copy)
    env = {**code.env, "MYRIA_POSTGRES_DSN": dsns.owner}
    ran = await run_command([*MYRIA, "rebuild", "--here", "--wait", "--full", "--force", "--json"], env=env)
    await cluster.drop(copy)
    return ran.cpu_s


def _lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("wb") as out:
        out.writelines(lines)


def _taken_out(commit: str, folder: Path) -> Path:
    """Write the files of a commit into a new folder and return it."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 brought it
        archive.extractall(folder)  # noqa: S202 - made by git from our own commit
    # As set-up does with ours: where Python is told to write no bytecode, each start would compile the older code anew.
    for plane in _planes(folder):
        compileall.compile_dir(plane, quiet=2)
    return folder


def _planes(tree: Path) -> list[str]:
    """Return the folders of a tree that Python takes packages from."""
    return sorted({str(package.parent.parent) for package in tree.glob("*/myria*/__init__.py")})


def _variables(tree: Path, subjects: str | None) -> dict[str, str]:
    """Return the variables by which Python takes the code of a tree, and its settings."""
    # Large logs of one scope reach beyond now: all of their events are to be imported.
    variables = {"PYTHONPATH": os.pathsep.join(_planes(tree)), "MYRIA_INGEST_FUTURE_LIMIT_S": "0"}
    settings = (tree / "core/myria/settings.py").read_text(encoding="utf-8")
    if subjects is not None and "    subjects: bool" in settings:
        variables["MYRIA_PLANNER_SUBJECTS"] = str(subjects == "on").lower()
    return variables


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
