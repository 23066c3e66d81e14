"""Start PostgreSQL's programs as the account they need, seeing only what they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from myria.errors import DataDirUnusable, EmbeddedPostgresFailed
from myria_embedded.account import Account
from myria_embedded.data_dir import usable

Child = subprocess.Popen[bytes]


def spawn(command: Sequence[str], account: Account, output: IO[bytes], descriptors: Sequence[int] = ()) -> Child:
    """Start `command` in a session of its own, so that a Ctrl-C at our terminal reaches us alone.

    It inherits neither PGDATA, PGHOST and the like, nor LD_LIBRARY_PATH, nor a locale (messages are read back).

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
    if sys.platform != "linux":
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
    """Kill a child with all it started, and wait for it."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def end_server(child: Child, patience_s: float = 2.0) -> None:
    """End a postmaster of ours at once (immediate shutdown, then by force), and wait for it."""
    if child.poll() is None:
        child.send_signal(signal.SIGQUIT)
        try:
            child.wait(patience_s)
        except subprocess.TimeoutExpired:
            end_group(child)
