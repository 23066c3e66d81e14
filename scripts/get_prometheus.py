"""Provide Prometheus for the tests: the server and promtool.

Usage: get_prometheus.py [--find] [--mirror URL]

Prints the folder that holds both programs: the one on PATH that has them, else one in the user's cache
(`$XDG_CACHE_HOME/myria`, else `~/.cache/myria`), where they are put once out of Debian 12's package (a download of
20 MB, half a minute). `--find` never downloads and exits 1 when they are absent. Runs as any user.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts import debian

PROGRAMS = ("prometheus", "promtool")


def main(arguments: Sequence[str]) -> int:
    """Find or fetch the programs; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--find", action="store_true", help="never download")
    parser.add_argument("--mirror", help="the Debian mirror to download from, instead of the one apt uses here")
    options = parser.parse_args(arguments)

    folder = installed() or debian.cache_folder() / f"prometheus-{debian.SUITE}"
    if not debian.has_programs(folder, PROGRAMS):
        if options.find:
            print(f"{folder} holds no Prometheus; scripts/get_prometheus.py fetches it.", file=sys.stderr)
            return 1
        try:
            fetch(folder, options.mirror)
        except debian.Absent as absent:
            print(f"Prometheus cannot be fetched here: {absent}", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as failure:
            print(f"Fetching Prometheus failed at: {' '.join(map(str, failure.cmd))[:300]}", file=sys.stderr)
            return 1
    print(folder)
    return 0


def installed() -> Path | None:
    """Return the folder on PATH that has both programs."""
    first = shutil.which(PROGRAMS[0])
    return Path(first).parent if first and debian.has_programs(Path(first).parent, PROGRAMS) else None


def fetch(folder: Path, mirror: str | None) -> None:
    """Put the programs into the folder, which appears in one step."""
    debian.check_tools()
    with debian.only_one(folder):
        if debian.has_programs(folder, PROGRAMS):
            return
        scratch = folder.with_name(folder.name + ".fetching")
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "root").mkdir(parents=True)
        downloads = debian.download(scratch, mirror or debian.configured_mirror(), ["prometheus"])
        debian.unpack(downloads, scratch / "root")
        shutil.rmtree(folder, ignore_errors=True)
        (scratch / "root/usr/bin").rename(folder)
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
