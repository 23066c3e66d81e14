"""Provide Prometheus for the tests: the server and promtool.

Usage: get_prometheus.py [--find] [--mirror URL]

Prints the folder that holds both programs: the one on PATH that has them, else one in the user's cache
(`$XDG_CACHE_HOME/myria`, else `~/.cache/myria`), where they are put once out of Debian 12's package (a download of
20 MB, half a minute). `--find` never downloads and exits 1 when they are absent. Runs as any user.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts import debian

PROGRAMS = ("prometheus", "promtool")


def folder() -> Path:
    """Return the folder on PATH that has both programs, else the one in the cache."""
    first = shutil.which(PROGRAMS[0])
    on_path = Path(first).parent if first else None
    if on_path and debian.has_programs(on_path, PROGRAMS):
        return on_path
    return debian.cache_folder() / f"prometheus-{debian.SUITE}"


def fetch(made: Path, scratch: Path, mirror: str) -> None:
    """Put the programs into a new folder."""
    debian.unpack(debian.download(scratch, mirror, ["prometheus"]), scratch / "root")
    (scratch / "root/usr/bin").rename(made)


if __name__ == "__main__":
    sys.exit(debian.provide("Prometheus", PROGRAMS, folder(), fetch, sys.argv[1:]))
