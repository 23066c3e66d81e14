"""Advisory locks on files: they vanish with the process that holds them, however it ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from myria.errors import DataDirInUse
from myria_embedded.data_dir import usable

POLL_S = 0.02


class FileLock:
    """One `flock` on one file; releasing the lock leaves the file in place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self, *, shared: bool = False) -> bool:
        """Take the lock, or change its kind, without waiting; return whether that succeeded.

        Raises:
            DataDirUnusable: the file cannot be created.
        """
        is_new = self._descriptor is None
        if self._descriptor is None:
            with usable(self.path.parent):
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_new:  # else the lock of the former kind is still held
                self.release()
            return False
        return True

    def write_pid(self) -> None:
        """Write this process's id into the file, for processes that are refused the lock."""
        if self._descriptor is not None:
            with usable(self.path.parent):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def read_pid(self) -> int | None:
        """Return the process id that the lock's holder wrote, or None."""
        try:
            return int(self.path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def release(self) -> None:
        """Give the lock up; harmless without one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @asynccontextmanager
    async def held(self, wait_s: float, *, poll_s: float = POLL_S) -> AsyncIterator[None]:
        """Hold the lock exclusively for the block, after waiting up to `wait_s` seconds with a try each `poll_s`.

        Raises:
            DataDirInUse: another process held it all that time.
            DataDirUnusable: the file cannot be created.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not self.try_acquire():
            if loop.time() > deadline:
                raise DataDirInUse(
                    f"Another process has been starting or stopping the server in {self.path.parent} "
                    f"for {wait_s:.0f} seconds",
                    pid=self.read_pid(),
                )
            await asyncio.sleep(poll_s)
        try:
            yield
        finally:
            self.release()
