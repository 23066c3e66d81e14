"""Where a server is reached: its postmaster, its port, its socket."""

from __future__ import annotations

import os
import secrets
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from myria.errors import EmbeddedPostgresFailed
from myria_embedded import processes
from myria_embedded.account import Account

HOST = "127.0.0.1"
LONGEST_SOCKET_PATH = 100
"""`sockaddr_un` takes 107 bytes on Linux and 103 on macOS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """What a running server wrote into its `postmaster.pid`."""

    pid: int
    started: str
    port: int
    socket_folder: str
    listens: bool

    @classmethod
    def of(cls, cluster: Path) -> Postmaster | None:
        """Return the living server of `cluster`; None when there is none, or it has not written all lines yet."""
        try:
            lines = (cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()
            postmaster = cls(
                pid=int(lines[0]),
                started=lines[2].strip(),
                port=int(lines[3]),
                socket_folder=lines[4].strip(),
                listens=bool(lines[5].strip()),
            )
            return postmaster if postmaster.pid > 0 and processes.serves(postmaster.pid, cluster) else None
        except (OSError, ValueError, IndexError):
            return None

    def reachable_socket_folder(self) -> str:
        """Return the socket's folder, or "" to use TCP because the folder was removed under the running server."""
        socket_exists = os.path.exists(os.path.join(self.socket_folder, f".s.PGSQL.{self.port}"))
        return self.socket_folder if socket_exists or not self.listens else ""


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback `port` now."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as PostgreSQL does
        try:
            listener.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(preferred: int | None = None) -> int:
    """Return `preferred` if it is free, else any free loopback port."""
    if preferred is not None and is_free(preferred):
        return preferred
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def make_socket_folder(cluster: Path, account: Account, preferred: str | None = None) -> str:
    """Make an empty 0700 folder of `account` for the socket and return its path.

    It lies outside the data directory, whose path may be longer than a socket's path may be: in the first temporary
    folder that the account can enter, named after the cluster. `preferred` (the folder of a server that died) is tried
    first.

    Raises:
        EmbeddedPostgresFailed: there is no such place.
    """
    name = processes.cluster_tag(cluster)
    bases = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108 - a 0700 folder of our own is made in it
    paths = [Path(preferred)] if preferred else []
    for base in bases:
        if not os.access(base, os.W_OK | os.X_OK) or not account.can_enter(Path(base)):
            continue
        # The second name is random: where everybody may write, somebody else may own a folder of the first.
        paths += [Path(base) / name, Path(base) / f"{name}-{secrets.token_hex(4)}"]
    for path in paths:
        if len(os.fsencode(path / ".s.PGSQL.65535")) <= LONGEST_SOCKET_PATH and not set(str(path)) & set(",\"'"):
            try:
                _take(path, account)
            except OSError:
                continue
            return str(path)
    raise EmbeddedPostgresFailed(
        f"No folder for PostgreSQL's socket could be made under {', '.join(dict.fromkeys(bases))}: "
        "set TMPDIR to a short path"
    )


def _take(path: Path, account: Account) -> None:
    """Make the folder `path`, or take it over if it is ours; raise OSError if it is neither.

    Sockets and lock files in it are removed: the lock file of a dead server may name a process id that is in use again,
    and would keep the next server from starting.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid not in {os.geteuid(), account.uid}:
            raise PermissionError(path)
        os.fchmod(descriptor, stat.S_IRWXU)
        if account.lent:
            os.fchown(descriptor, account.uid, account.gid)
    finally:
        os.close(descriptor)
    for remains in path.glob(".s.PGSQL.*"):
        remains.unlink(missing_ok=True)
