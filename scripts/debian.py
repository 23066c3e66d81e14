"""Packages of Debian 12, downloaded and unpacked without any rights: for the scripts that build tools out of them.

The machine's own apt lists stay as they are; its mirror, proxies and credentials still apply, and what comes is checked
against the archive's keyring. Needs apt, dpkg and the keyring of the Debian archive.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SUITE = "bookworm"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class Absent(Exception):
    """Something that is needed is not on this machine."""


def cache_folder() -> Path:
    """Return the user's cache folder of this project."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "myria"


def _check_tools() -> None:
    """Raise `Absent` unless apt, dpkg, tar and the archive's keyring are here."""
    for tool in ("apt-get", "dpkg", "tar"):
        if shutil.which(tool) is None:
            raise Absent(f"it takes Debian's packages, and there is no {tool}")
    if not KEYRING.exists():
        raise Absent(f"{KEYRING} is missing (package debian-archive-keyring), so packages could not be checked")


def has_programs(folder: Path, programs: Sequence[str]) -> bool:
    """Return whether the folder holds every one of these programs."""
    return all(os.access(folder / program, os.X_OK) for program in programs)


def provide(
    what: str,
    programs: Sequence[str],
    folder: Path,
    build: Callable[[Path, Path, str], None],
    arguments: Sequence[str],
) -> int:
    """Print the folder that holds some programs, building it first where it is not there; return the exit status.

    `build` gets a new folder to fill, a scratch folder that stays until it has ended well, and the Debian mirror. The
    arguments may be `--find`, which never builds, and `--mirror URL` instead of the mirror that apt uses here.
    """
    parser = argparse.ArgumentParser(description=f"Print the folder of {what}, building it where it is not there.")
    parser.add_argument("--find", action="store_true", help="never build")
    parser.add_argument("--mirror", help="the Debian mirror to download from, instead of the one apt uses here")
    options = parser.parse_args(arguments)
    if not has_programs(folder, programs):
        if options.find:
            print(f"{folder} holds no {what}; {sys.argv[0]} makes it.", file=sys.stderr)
            return 1
        try:
            with only_one(folder):
                if not has_programs(folder, programs):
                    _check_tools()
                    scratch, made = folder.with_name(folder.name + ".building"), folder.with_name(folder.name + ".made")
                    shutil.rmtree(made, ignore_errors=True)
                    build(made, scratch, options.mirror or configured_mirror())
                    shutil.rmtree(folder, ignore_errors=True)
                    made.rename(folder)
                    subprocess.run(["chmod", "-R", "u+w", scratch], check=False)
                    shutil.rmtree(scratch, ignore_errors=True)
        except Absent as absent:
            print(f"No {what} can be made here: {absent}", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError as failure:
            print(f"Making {what} failed at: {' '.join(map(str, failure.cmd))[:300]}", file=sys.stderr)
            print("Mend that and run the same command again; it goes on where it stopped.", file=sys.stderr)
            return 1
    print(folder)
    return 0


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold a lock beside the folder, so that two runs on one machine make it once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(command: Sequence[str | Path], *, cwd: Path, environment: Mapping[str, str]) -> None:
    """Run one step's command; what it says goes to standard error, because standard output holds only a result."""
    subprocess.run(command, cwd=cwd, env=dict(environment), stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)


def configured_mirror() -> str:
    """Return the Debian mirror from which this machine's own packages come.

    Raises `Absent` when apt names none.
    """
    lines = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for line in lines:
        if re.search(r"/debian/?$", line):
            return line
    raise Absent("apt on this machine uses no Debian mirror; name one with --mirror")


def download(scratch: Path, mirror: str, packages: Sequence[str], *, sources: Sequence[str] = ()) -> Path:
    """Fetch packages, and the original sources of others, into a folder of `scratch`; return that folder.

    What an earlier call has completed is not fetched again. Raises CalledProcessError.
    """
    downloads, apt = scratch / "downloads", scratch / "apt"
    if (downloads / "complete").exists():
        return downloads
    shutil.rmtree(apt, ignore_errors=True)
    shutil.rmtree(downloads, ignore_errors=True)
    for made in (downloads, apt / "sources", apt / "state/lists/partial", apt / "cache/archives/partial"):
        made.mkdir(parents=True)
    types = "deb deb-src" if sources else "deb"
    (apt / "sources/debian.sources").write_text(
        f"Types: {types}\nURIs: {mirror}\nSuites: {SUITE}\nComponents: main\nSigned-By: {KEYRING}\n",
        encoding="utf-8",
    )
    (apt / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{apt}/sources";\n'
        f'Dir::State "{apt}/state";\nDir::State::status "/var/lib/dpkg/status";\nDir::Cache "{apt}/cache";\n'
        'APT::Sandbox::User "root";\nAcquire::Languages "none";\nAcquire::Retries "3";\n',
        encoding="utf-8",
    )
    environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
    run(["apt-get", "-qq", "update"], cwd=downloads, environment=environment)
    run(["apt-get", "-qq", "download", *packages], cwd=downloads, environment=environment)
    if sources:
        run(["apt-get", "-qq", "source", "--download-only", *sources], cwd=downloads, environment=environment)
    (downloads / "complete").touch()
    return downloads


def unpack(downloads: Path, root: Path) -> None:
    """Lay the downloaded packages out under `root`; nothing of them is run."""
    root.mkdir(parents=True, exist_ok=True)
    for package in sorted(downloads.glob("*.deb")):
        run(["dpkg", "-x", package, root], cwd=root, environment=os.environ)
