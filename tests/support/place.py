"""Where tests put data that nobody will miss: in memory where the machine has room for it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Guardian

_MEMORY = Path("/dev/shm")
_ENOUGH = 2 << 30


def fast_folder() -> Path:
    """Return a folder in memory, or the system's temporary folder where there is none with 2 GiB free.

    A database is some four hundred files. Making them costs 0.1 to 0.3 s of CPU on a disk's file system, and a tenth of
    that in memory.
    """
    try:
        room = os.statvfs(_MEMORY)
    except OSError:
        return Path(tempfile.gettempdir())
    usable = os.access(_MEMORY, os.W_OK | os.X_OK) and room.f_bavail * room.f_frsize >= _ENOUGH
    return _MEMORY if usable else Path(tempfile.gettempdir())


@contextmanager
def throw_away_folder(guardian: Guardian) -> Iterator[Path]:
    """Lend a new folder there for the block; it is removed even when this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix="myria-test-", dir=fast_folder()))
    guardian.tell(f"folder {folder}")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
