"""Databases with a known number of events: loaded through the import path, and built in full, both measured.

A loaded database has no snapshot: everything in it is the fresh tail. The built one starts as its copy, so a change of
the planner costs a build, not an import.

    python -m benchmarks.prepared --sizes 1e4,1e6

makes those of these sizes ahead, which takes long and measures nothing else; the other parts then find them ready. One
that was built by other code counts as ready with `--as-built`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.adapter import LABELS
from benchmarks.building import build
from benchmarks.cluster import Cluster, index_digest
from benchmarks.options import Common, common, parser, run
from benchmarks.statements import statement
from benchmarks.workload import events_file
from myria.db.database import Database
from myria.log.limits import Limits
from myria.log.transfer import ImportCount, RefusedLine, import_lines
from myria.notes.folding import event_log
from myria_cli import console

TENANT = "default"

_REBUILT: set[str] = set()
"""Databases that this process has built: `--rebuild` asks for each once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A database that is ready, and what making it took."""

    name: str
    events: int
    figures: dict[str, Any]


async def load(dsn: str, lines: Iterable[bytes], *, total: int, what: str) -> float:
    """Import lines in batches of 500 as `myria import` does, and return the seconds it took.

    Raises:
        RuntimeError: a line was refused, or not as many events went in as were expected.
    """
    began = time.monotonic()
    refused: list[RefusedLine] = []
    with console.meter(what, total) as meter:

        def progress(count: ImportCount) -> None:
            meter.advance(count.lines)

        async with Database(dsn) as database:
            ingest = event_log(database, deadline=120.0)
            try:
                count = await import_lines(
                    ingest,
                    TENANT,
                    lines,
                    Limits(),
                    ignore=LABELS,
                    on_refused=refused.append,
                    on_progress=progress,
                )
            finally:
                await ingest.close()
    if refused or count.imported != total:
        raise RuntimeError(f"{count.imported} of {total} events imported; refused: {refused[:3]}")
    return time.monotonic() - began


async def loaded(cluster: Cluster, options: Common, n: int, *, sets: int = 0) -> Prepared:
    """Return the database with n generated events and no snapshot."""
    name = f"bench_{n}" + (f"_{sets}" if sets else "")
    recipe = {"events": n, "sets": sets, "generator": options.synth.stem if options.synth else "own"}
    notes = await cluster.prepared(name, recipe)
    if notes is None:
        path = await events_file(options, _generated(n, sets), sets=sets)
        dsns = await cluster.create(name)
        seconds = await load(dsns.server, _lines(path, n), total=n, what=f"loading {n:,} events")
        await cluster.tidy(name)
        notes = {
            "import_s": round(seconds, 1),
            "import_events_per_s": round(n / seconds),
            "log_bytes": await _size(cluster, name),
        }
        cluster.note(name, recipe, notes)
    return Prepared(name=name, events=n, figures=notes)


async def built(cluster: Cluster, options: Common, n: int, *, sets: int = 0) -> Prepared:
    """Return the database with n generated events, all of them in its active snapshot."""
    log = await loaded(cluster, options, n, sets=sets)
    name = f"{log.name}_built"
    recipe = {"of": log.name, "generator": options.synth.stem if options.synth else "own", "code": index_digest()}
    notes = await cluster.prepared(name, recipe, besides=("code",) if options.as_built else ())
    if notes is None or (options.rebuild and name not in _REBUILT):
        _REBUILT.add(name)
        dsns = await cluster.clone(log.name, name)
        console.say(f"building {n:,} events in full ...", "dim")
        ran = await build(dsns, options.work_dir / "log" / f"{name}.log", full=True)
        await cluster.tidy(name)
        notes = {
            **log.figures,
            "full_build_s": round(ran.seconds, 1),
            "full_build_events_per_s": round(n / ran.seconds),
            "full_build_cpu_s": round(ran.cpu_s, 1),
            "builder_peak_mib": round(ran.peak_mib),
            "total_bytes": await _size(cluster, name),
            "counts": ran.counts,
        }
        cluster.note(name, recipe, notes)
    return Prepared(name=name, events=n, figures=notes)


def spare(sets: int) -> int:
    """Return how many events are generated beyond those that are loaded: what incremental builds then add."""
    return 1000 if sets == 1 else 0


def _generated(n: int, sets: int) -> int:
    return n + spare(sets)


def _lines(path: Path, n: int) -> Iterable[bytes]:
    with path.open("rb") as source:
        for _, line in zip(range(n), source, strict=False):
            yield line


async def _size(cluster: Cluster, name: str) -> int:
    connection = await cluster.connect(name)
    try:
        size: int = await connection.fetchval(statement("database_bytes"))
        return size
    finally:
        await connection.close()


async def _prepare(options: Common) -> int:
    async with Cluster(options.work_dir) as cluster:
        for size in options.sizes:
            ready = await built(cluster, options, size)
            console.say(f"{ready.name} is ready: {ready.figures}")
    return 0


def main() -> None:
    """Run from the command line."""
    raise SystemExit(run(_prepare(common(parser(__doc__).parse_args()))))


if __name__ == "__main__":
    main()
