"""Which operating-system account runs the server processes.

PostgreSQL refuses to run as root. So root runs the server, and nothing else, as an unprivileged account: Myria's own
files stay root's. Everybody else runs the server as themselves.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myria.errors import EmbeddedPostgresFailed

PREFERRED = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account by user and group id; `lent` tells that it is not the account this process runs as."""

    uid: int
    gid: int
    lent: bool

    @property
    def identity(self) -> dict[str, Any]:
        """The arguments of `subprocess.Popen` that start a child as this account, without any other group of ours."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.lent else {}

    def can_enter(self, folder: Path) -> bool:
        """Whether this account may search `folder` and every folder above it, by mode bits alone."""
        if not self.lent:
            return True
        folder = folder.resolve()
        return all(self._may(level, stat.S_IXOTH) for level in (folder, *folder.parents))

    def _may(self, path: Path, other_bit: int) -> bool:
        """Whether mode bits allow this account what `other_bit` allows others; owner's lie 6 bits higher, group's 3."""
        status = path.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & other_bit << 6)
        if status.st_gid == self.gid:
            return bool(status.st_mode & other_bit << 3)
        return bool(status.st_mode & other_bit)


def server_account(cluster: Path) -> Account:
    """Return the account that runs the server of `cluster`.

    For root: the cluster's owner when there is one already (PostgreSQL insists on it), else `postgres`, else `nobody`.

    Raises:
        EmbeddedPostgresFailed: this is root, and there is no account to lend the server to.
    """
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), lent=False)
    try:
        owner = cluster.stat()
    except OSError:
        owner = None
    if owner is not None and owner.st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid, lent=True)
    for name in PREFERRED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid, lent=True)
    raise EmbeddedPostgresFailed(
        "PostgreSQL does not run as root, and this machine has neither a 'postgres' nor a 'nobody' account: "
        "create one, run as an ordinary user, or use --dsn"
    )


def give(path: Path, account: Account) -> None:
    """Make a lent account the owner of a file, or of a folder and all in it; do nothing for our own account."""
    if not account.lent:
        return
    os.chown(path, account.uid, account.gid, follow_symlinks=False)
    if path.is_dir() and not path.is_symlink():
        for child in path.rglob("*"):
            os.chown(child, account.uid, account.gid, follow_symlinks=False)
