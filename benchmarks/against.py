"""Builds and questions beside an older commit of this repository: the same events, in turns.

    python -m benchmarks.against COMMIT [--sizes 1e4,1e5] [--rounds 5]

The older code is taken out of git's history and run by the same Python with the same packages. Each code makes its own
schema, imports the events and builds them in full by `myria rebuild --here`: compared is the processor time of that
process. Then each serves them from one process, and eight closed-loop clients ask the two in turn for four words of one
message, by `query_event_nodes` and `query_references`.
"""

from __future__ import annotations

import compileall
import io
import os
import subprocess
import tarfile
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.options import Bench, parser, run_parts
from benchmarks.processes import MYRIA, ROOT, myria_server, run_command
from benchmarks.report import Report, median, number, ratios
from benchmarks.sides import Side, in_turns, publish
from benchmarks.workload import lines, questions, scopes

PART = "against"
CLIENTS = 8
MOST_CPU = 1.3
MOST_P95 = 1.3


@dataclass(slots=True, kw_only=True)
class Code:
    """One of two codes, where Python finds it, and the processor time of its builds."""

    name: str
    tree: Path
    build_s: list[float] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        """The variables by which Python takes this code."""
        planes = sorted({str(package.parent.parent) for package in self.tree.glob("*/myria*/__init__.py")})
        # Large logs of one scope reach beyond now: all of their events are to be imported.
        return {"PYTHONPATH": os.pathsep.join(planes), "MYRIA_INGEST_FUTURE_LIMIT_S": "0"}

    async def command(self, bench: Bench, database: str, *arguments: str) -> float:
        """Run a command of this code on a database; return its processor time in seconds."""
        env = {**self.env, "MYRIA_POSTGRES_DSN": bench.cluster.dsns(database).owner}
        return (await run_command([*MYRIA, *arguments], env=env, log=bench.log(f"{PART}-{self.name}"))).cpu_s


async def measure(bench: Bench, report: Report, *, commit: str) -> None:
    """Build and ask logs of each size, of many scopes and of one."""
    report.figures["commit"] = commit
    with tempfile.TemporaryDirectory(prefix="myria-older-") as folder:
        _take_out(commit, Path(folder))
        for size in bench.sizes:
            for sets, what in ((0, "many scopes"), (1, "one scope")):
                both = Code(name="old", tree=Path(folder)), Code(name="new", tree=ROOT)
                log = f"{what}, {size:,} events"
                source = bench.work_dir / "older.jsonl"
                source.write_bytes(b"".join(islice(lines(size, sets), size)))
                await _builds(bench, report, both, log, source)
                async with AsyncExitStack() as stack:
                    sides = [await _served(stack, bench, code) for code in both]
                    await in_turns(sides, rounds=bench.rounds, count=bench.requests)
                _, new = publish(report, f"questions, {log}", sides)
                report.check(f"questions, {log}: p95 / {commit}", new.p95, MOST_P95)


async def _builds(bench: Bench, report: Report, both: tuple[Code, Code], log: str, source: Path) -> None:
    """Import the events by each code, and build copies of that in turn; the last copies stay."""
    for code in both:
        await bench.cluster.clone("template0", code.name)
        await code.command(bench, code.name, "migrate", "--grant")
        await code.command(bench, code.name, "import", str(source))
        await bench.cluster.tidy(code.name)
    for _ in range(bench.rounds):
        for code in both:
            await bench.cluster.clone(code.name, f"{code.name}_built")
            rebuild = ("rebuild", "--here", "--wait", "--full", "--force", "--json")
            code.build_s.append(await code.command(bench, f"{code.name}_built", *rebuild))
    old, new = (code.build_s for code in both)
    by_round = ratios(new, old)
    report.figures[f"builds, {log}"] = {"old_s": old, "new_s": new, "ratios": by_round}
    rows = [(log, *(number(median(values)) for values in (old, new, by_round)))]
    report.table("full builds, medians of rounds", ("log", "old CPU s", "new CPU s", "new / old"), rows)
    report.check(f"full build, {log}: CPU / {report.figures['commit']}", median(by_round), MOST_CPU)


async def _served(stack: AsyncExitStack, bench: Bench, code: Code) -> Side:
    """Start the server of a code and make its questions: the same ones for the same events."""
    name = f"{code.name}_built"
    await bench.cluster.tidy(name)
    server = myria_server(bench.cluster.dsns(name).server, bench.log(f"{PART}-{code.name}-server"), code=code.env)
    await stack.enter_async_context(server)
    middle, _ = await scopes(bench.cluster, name)
    asked = questions(middle, port=server.port, count=bench.requests)
    return Side(name=code.name, server=server, requests=asked, connections=CLIENTS)


def _take_out(commit: str, folder: Path) -> None:
    """Write the files of a commit into a folder."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 brought it
        archive.extractall(folder)  # noqa: S202 - made by git from our own commit
    # As set-up does with ours: where Python is told to write no bytecode, each start would compile the older code anew.
    compileall.compile_dir(folder, quiet=2)


def main() -> None:
    """Run from the command line."""
    options = parser(__doc__)
    options.add_argument("commit", help="the older code, by any name that git knows")
    given = options.parse_args()
    run_parts({PART: partial(measure, commit=given.commit)}, given)


if __name__ == "__main__":
    main()
