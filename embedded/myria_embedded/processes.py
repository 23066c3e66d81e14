"""Recognise the server's processes from outside.

Process ids are reused, `pg_ctl status` believes a stale pid file, and a container may forbid looking at another
account's `/proc/PID/cwd`. What everybody may read is a process's title, so the server is started with a
`cluster_name` that names its data directory: PostgreSQL puts it into the title of each of its processes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from hashlib import blake2b
from pathlib import Path

_LINUX = sys.platform == "linux"
_MARK = re.compile(r"(?:cluster_name=|: )(myria-[0-9a-f]{12})\b")


def cluster_tag(cluster: Path) -> str:
    """Return the name that marks the processes of one data directory, the same whichever path leads to it."""
    status = cluster.stat()
    return "myria-" + blake2b(f"{status.st_dev}:{status.st_ino}".encode(), digest_size=6).hexdigest()


def title(pid: int) -> str | None:
    """Return a living process's command line; None when there is no such process, or only its zombie."""
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
        return os.path.samefile(f"/proc/{pid}/cwd", cluster)  # started by hand, without our name
    except OSError:
        return not _LINUX or Path(f"/proc/{pid}").exists()


def remains(cluster: Path) -> list[int]:
    """Return every living process that carries the mark of `cluster`, in order of id."""
    tag = cluster_tag(cluster)
    if not _LINUX:
        return sorted(pid for pid, text in _titles_by_ps(["-A"]).items() if tag in text and "postgres" in text)
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if (text := title(pid)) is not None and tag in text and "postgres" in text]


def end_remains(cluster: Path, patience_s: float = 2.0) -> None:
    """End what a killed postmaster left behind: its backends hold the shared memory that a new one needs.

    Only for a cluster without a postmaster. SIGQUIT is PostgreSQL's immediate shutdown; recovery follows anyway.
    """
    pids = remains(cluster)
    deadline = time.monotonic() + patience_s
    for pid in pids:
        _signal(pid, signal.SIGQUIT)
    while (pids := remains(cluster)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    while pids and remains(cluster) and time.monotonic() < deadline + patience_s:
        time.sleep(0.01)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _titles_by_ps(selection: list[str]) -> dict[int, str]:
    listing = subprocess.run(  # noqa: S603 - a fixed command
        ["ps", "-ww", "-o", "pid=,stat=,command=", *selection],  # noqa: S607 - where it is differs by system
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    rows = (line.split(maxsplit=2) for line in listing.splitlines())
    return {int(row[0]): row[2] for row in rows if len(row) == 3 and not row[1].startswith("Z")}
