"""The folder that holds one memory on one machine.

DATA_DIR/
    postgres/           the database cluster, owned by the account that runs the server
    passwords.json      0600
    up.lock             held by the one `myria up`; holds its process id
    start.lock          held for the moment of starting or stopping the server
    users.lock          shared by every process that uses the server
    managed             process id and start time of the server that Myria started
    start.log           what the server printed before its own log began
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from myria.errors import DataDirUnusable

ROOM_FOR_NEW = 160 << 20
"""Bytes that must be free before a database is created; an empty one takes a third of it."""

_REASONS = {
    errno.EROFS: "is on a read-only disk",
    errno.ENOSPC: "is on a disk with no room left",
    errno.EDQUOT: "is on a disk where your quota is used up",
    errno.EACCES: "cannot be written by this user",
    errno.EPERM: "cannot be written by this user",
    errno.ENOTDIR: "is, or lies under, a file",
    errno.EEXIST: "is, or lies under, a file",
    errno.ENAMETOOLONG: "has too long a name",
    errno.EIO: "is on a disk that reports errors",
}


def default_data_dir() -> Path:
    """Return the folder used when none is given: `myria` in the user's data folder."""
    return Path(platformdirs.user_data_dir("myria", appauthor=False))


@contextmanager
def usable(data_dir: Path) -> Iterator[None]:
    """Turn an OSError of the block into an error that says in one sentence what is wrong with `data_dir`.

    Raises:
        DataDirUnusable: for a refusal that a person can do something about.
    """
    try:
        yield
    except OSError as problem:
        raise unusable(data_dir, problem.errno, problem.strerror or str(problem)) from problem


def unusable(data_dir: Path, number: int | None, otherwise: str = "") -> DataDirUnusable:
    """Return the error for an errno; `otherwise` is the reason given for an errno that has no sentence here."""
    reason = _REASONS.get(number or 0, f"cannot be used: {otherwise}")
    return DataDirUnusable(
        f"The data folder {data_dir} {reason}. Mend that, or choose another with --data-dir",
        data_dir=str(data_dir),
        reason=errno.errorcode.get(number or 0, "unknown"),
    )


def prepare(data_dir: Path) -> None:
    """Make the folder (0700) with those above it, and prove that files can be written there.

    Raises:
        DataDirUnusable: they cannot.
    """
    with usable(data_dir):
        if not data_dir.is_dir():
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = data_dir / f".probe-{os.getpid()}"
        try:
            probe.write_bytes(b"\0" * 4096)
        finally:
            probe.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_room(data_dir: Path) -> None:
    """Refuse to create a database where it would fill the disk.

    Raises:
        DataDirUnusable: less than `ROOM_FOR_NEW` is free.
    """
    with usable(data_dir):
        free = shutil.disk_usage(data_dir).free
    if free < ROOM_FOR_NEW:
        raise DataDirUnusable(
            f"The data folder {data_dir} is on a disk with only {free >> 20} MB free; a new database needs "
            f"{ROOM_FOR_NEW >> 20} MB. Make room, or choose another folder with --data-dir",
            data_dir=str(data_dir),
            reason="ENOSPC",
            free_bytes=free,
            needed_bytes=ROOM_FOR_NEW,
        )


def refusal_in(text: str, data_dir: Path) -> DataDirUnusable | None:
    """Return the error if `text`, PostgreSQL's log, reports a full or read-only disk; else None."""
    for number in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
        if os.strerror(number) in text:
            return unusable(data_dir, number)
    return None
