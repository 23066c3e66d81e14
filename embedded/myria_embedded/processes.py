"""Start PostgreSQL's programs as the account they need, recognise them from outside, and end them.

A server cannot be recognised by its pid file alone: process ids are reused, `pg_ctl status` believes a stale file, and
a container may forbid reading another account's `/proc/PID/cwd`. But everybody may read a process's title. So the
server is started with a `cluster_name` that names its data directory; PostgreSQL puts it into each process's title.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO

from myria.errors import DataDirUnusable, EmbeddedPostgresFailed
from myria_embedded.account import Account
from myria_embedded.data_dir import usable

Child = subprocess.Popen[bytes]
PATIENCE_S = 2.0
"""Seconds that PostgreSQL's processes get to end by themselves before they are killed."""

_LINUX = sys.platform == "linux"
_MARK = re.compile(r"(?:cluster_name=|: )(myria-[0-9a-f]{12})\b")


def spawn(command: Sequence[str], account: Account, output: IO[bytes], descriptors: Sequence[int] = ()) -> Child:
    """Start `command` in a session of its own, so that a Ctrl-C at our terminal reaches us alone.

    Its environment has neither PGDATA, PGHOST and the like, nor LD_LIBRARY_PATH, nor a locale: we parse its messages.

    Raises:
        EmbeddedPostgresFailed: the system refuses.
    """
    try:
        return subprocess.Popen(  # noqa: S603 - our own command line
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},
            pass_fds=descriptors,
            start_new_session=True,
            umask=0o077,
            **account.identity,
        )
    except OSError as problem:
        raise EmbeddedPostgresFailed(
            f"{command[0]} cannot be run as user id {account.uid}: {problem.strerror}"
        ) from problem


@contextmanager
def as_seen_by(account: Account, folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield a path by which a child of `account` reaches its own `folder`, and the descriptors it must inherit.

    A folder below a private one (root's home) is handed over as an open descriptor: nobody's permissions change.

    Raises:
        DataDirUnusable: the account cannot get there, and this system has no /proc.
    """
    if account.can_enter(folder):
        yield str(folder), ()
        return
    if not _LINUX:
        raise DataDirUnusable(
            f"The data folder {folder.parent} lies in a private folder that the server's account "
            f"(user id {account.uid}) cannot enter: choose another with --data-dir",
            data_dir=str(folder.parent),
            reason="EACCES",
        )
    with usable(folder.parent):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}", (descriptor,)
    finally:
        os.close(descriptor)


def end_group(child: Child) -> None:
    """Kill a child and all that it started, and wait until the child has ended."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def end_server(child: Child) -> None:
    """End a postmaster of ours at once (immediate shutdown, then by force), and wait for it."""
    if child.poll() is None:
        child.send_signal(signal.SIGQUIT)
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            end_group(child)


def cluster_tag(cluster: Path) -> str:
    """Return the name that marks the processes of one data directory, the same whichever path leads to it."""
    status = cluster.stat()
    return "myria-" + blake2b(f"{status.st_dev}:{status.st_ino}".encode(), digest_size=6).hexdigest()


def title(pid: int) -> str | None:
    """Return the command line of a living process; None for no process, or a zombie."""
    if not _LINUX:
        return _titles_by_ps(["-p", str(pid)]).get(pid)
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, IndexError):
        return None
    return None if state in "ZX" else text.replace(b"\0", b" ").decode("utf-8", "replace").strip()


def serves(pid: int, cluster: Path) -> bool:
    """Whether the process `pid` is a living PostgreSQL on the data directory `cluster`."""
    text = title(pid)
    if text is None:
        return False
    if marks := _MARK.findall(text):
        return cluster_tag(cluster) in marks
    if "postgres" not in text and "postmaster" not in text:
        return False
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", cluster)  # a server that was started by hand, without our mark
    except OSError:
        return not _LINUX or Path(f"/proc/{pid}").exists()


def remains(cluster: Path) -> list[int]:
    """Return every living process that carries the mark of `cluster`, in order of id."""
    tag = cluster_tag(cluster)
    if not _LINUX:
        return sorted(pid for pid, text in _titles_by_ps(["-A"]).items() if tag in text and "postgres" in text)
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if (text := title(pid)) is not None and tag in text and "postgres" in text]


def end_remains(cluster: Path) -> None:
    """End the backends that a killed postmaster left behind; they hold the shared memory that a new one needs.

    Only for a cluster without a postmaster. SIGQUIT, PostgreSQL's immediate shutdown, loses nothing here: the next
    start recovers from the WAL anyway.
    """
    pids = remains(cluster)
    deadline = time.monotonic() + PATIENCE_S
    for pid in pids:
        send(pid, signal.SIGQUIT)
    while (pids := remains(cluster)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in pids:
        send(pid, signal.SIGKILL)
    while pids and remains(cluster) and time.monotonic() < deadline + PATIENCE_S:
        time.sleep(0.01)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _titles_by_ps(selection: list[str]) -> dict[int, str]:
    """Return the command lines of living processes by process id, as `ps` with these options lists them."""
    listing = subprocess.run(  # noqa: S603 - a fixed command
        ["ps", "-ww", "-o", "pid=,stat=,command=", *selection],  # noqa: S607 - where it is differs by system
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    rows = (line.split(maxsplit=2) for line in listing.splitlines())
    return {int(row[0]): row[2] for row in rows if len(row) == 3 and not row[1].startswith("Z")}
