"""The options that the parts share, what they work with, and how they are run."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop
from platformdirs import user_cache_path

from benchmarks.cluster import Cluster
from benchmarks.report import Report, print_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What parts work with, and how much they do: a round lasts `seconds`, or has so many `requests`."""

    work_dir: Path
    sizes: tuple[int, ...]
    rounds: int
    seconds: float
    requests: int
    full: bool
    cluster: Cluster

    def log(self, name: str) -> Path:
        """Return the file for what a process writes."""
        return self.work_dir / "log" / f"{name}.log"


Part = Callable[[Bench, Report], Awaitable[None]]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the shared options."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache, out = user_cache_path("myria") / "benchmarks", Path(__file__).with_name("out")
    made.add_argument("--work-dir", type=Path, default=cache, help="databases and logs (default: %(default)s)")
    made.add_argument("--out", type=Path, default=out, help="JSON reports (default: %(default)s)")
    made.add_argument("--sizes", type=_sizes, help="events, e.g. 1e4,1e5 (default: 1e4; with --full up to 1e6)")
    made.add_argument("--rounds", type=int, help="rounds of each measurement (default: 3; with --full 5)")
    made.add_argument("--seconds", type=float, help="length of a timed round (default: 3; with --full 10)")
    made.add_argument("--requests", type=int, help="requests of a counted round (default: 300; with --full 2,000)")
    made.add_argument("--full", action="store_true", help="every size and round: an hour, 15 GB")
    return made


def run_part(name: str, description: str | None, measure: Part) -> None:
    """Run one part from the command line, as `run_parts` does."""
    run_parts({name: measure}, parser(description).parse_args())


def run_parts(parts: Mapping[str, Part], given: argparse.Namespace) -> None:
    """Run parts one after the other and print their promises; exit 1 when one is broken.

    Ctrl-C and SIGTERM end what was started, too.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        raise SystemExit(runner.run(_run(parts, given)))


async def _run(parts: Mapping[str, Part], given: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    work_dir, full = given.work_dir.expanduser().absolute(), given.full
    reports = []
    async with Cluster(work_dir) as cluster:
        bench = Bench(
            work_dir=work_dir,
            sizes=given.sizes or ((10_000, 100_000, 1_000_000) if full else (10_000,)),
            rounds=given.rounds or (5 if full else 3),
            seconds=given.seconds or (10.0 if full else 3.0),
            requests=given.requests or (2_000 if full else 300),
            full=full,
            cluster=cluster,
        )
        for name, measure in parts.items():
            report = Report(name)
            await measure(bench, report)
            report.write(given.out)
            reports.append(report)
    return print_bounds(reports)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(float(part)) for part in text.split(",")}))
