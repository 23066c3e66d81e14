"""Clean up after a test session that cannot: this process waits for its end, whatever ends it, then tidies.

It reads lines on its standard input, which the session holds open:

    folder PATH         a throw-away server's folder: end its processes, remove it
    process PID START   a process group to kill, if the process that started at START still has the id
    done PID            that process was ended
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from myria_embedded.processes import cluster_tag, end_remains


def started(pid: int) -> str:
    """Return when the process began, in clock ticks since boot; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def main() -> None:
    """Wait for the end of input, then end and remove what was named."""
    folders: list[Path] = []
    processes: dict[int, str] = {}
    for line in sys.stdin:
        what, _, rest = line.strip().partition(" ")
        if what == "folder":
            folders.append(Path(rest))
        elif what == "process":
            pid, _, start = rest.partition(" ")
            processes[int(pid)] = start
        elif what == "done":
            processes.pop(int(rest), None)
    for pid, start in processes.items():
        if start and started(pid) == start:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    for folder in folders:
        cluster = folder / "data" / "postgres"
        if cluster.is_dir():
            end_remains(cluster)
            for sockets in Path(tempfile.gettempdir()).glob(f"{cluster_tag(cluster)}*"):
                shutil.rmtree(sockets, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
