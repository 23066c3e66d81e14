"""An older commit of this repository beside today's code, run by the same Python with the same packages.

The older code is taken out of git's history into a folder. Each code makes its own schema and imports the events by
itself.
"""

from __future__ import annotations

import compileall
import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.adapter import event_lines
from benchmarks.cluster import Cluster
from benchmarks.processes import MYRIA, ROOT, run_command


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One of two codes: its name, and the variables by which Python takes it."""

    name: str
    env: Mapping[str, str]

    @property
    def empty(self) -> str:
        """The empty database that those of this code are copies of."""
        return f"against_{self.name}_empty"


def codes(commit: str, folder: Path, *, subjects: str | None = None) -> tuple[Code, Code]:
    """Return an older code, whose files go into a folder, and today's.

    `subjects` is "on" or "off", for each code that knows any; None for what it does by default.
    """
    return (
        Code(name="old", env=_variables(_taken_out(commit, folder / "old"), subjects)),
        Code(name="new", env=_variables(ROOT, subjects)),
    )


async def migrate(cluster: Cluster, code: Code, folder: Path) -> None:
    """Make the empty database of a code."""
    dsns = await cluster.bare(code.empty)
    env = {**code.env, "MYRIA_POSTGRES_DSN": dsns.owner}
    await run_command([*MYRIA, "migrate", "--grant"], env=env, log=folder / "log")


async def load(cluster: Cluster, source: Path, size: int, code: Code, *, name: str, folder: Path) -> None:
    """Make a database of a code, with the first events of a file."""
    dsns = await cluster.clone(code.empty, name)
    env = {**code.env, "MYRIA_POSTGRES_DSN": dsns.owner}
    events = folder / "events.jsonl"
    with source.open("rb") as lines:
        _write(events, islice(event_lines(lines), size))
    await run_command([*MYRIA, "import", str(events)], env=env, log=folder / "log")
    await cluster.tidy(name)


async def build(cluster: Cluster, name: str, code: Code) -> float:
    """Build a database of a code in full; return the seconds of processor time of the process."""
    env = {**code.env, "MYRIA_POSTGRES_DSN": cluster.dsns(name).owner}
    ran = await run_command([*MYRIA, "rebuild", "--here", "--wait", "--full", "--force", "--json"], env=env)
    return ran.cpu_s


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
