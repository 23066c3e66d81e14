"""Create the database cluster of a data directory, whole or not at all."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from myria.errors import EmbeddedPostgresFailed
from myria_embedded import data_dir as folders
from myria_embedded.account import Account, give
from myria_embedded.credentials import SUPERUSER
from myria_embedded.find import Binaries
from myria_embedded.log import tail
from myria_embedded.processes import as_seen_by, end_group, spawn

POLL_S = 0.02
_PREFIX = ".creating-"
_REMOVALS = 100
"""Attempts to remove a folder that somebody still writes into; then it is left to the next start."""


async def create_cluster(
    data_dir: Path, cluster: Path, *, binaries: Binaries, account: Account, password: str, durable: bool
) -> None:
    """Create the cluster in a temporary folder, then rename it to `cluster`, so that no half-made `cluster` exists.

    The next attempt removes what an interrupted one left, including the password for initdb.

    Raises:
        DataDirUnusable: the disk is full or read-only.
        EmbeddedPostgresFailed: initdb failed; the message quotes it.
    """
    folders.require_room(data_dir)
    await _remove_remains(data_dir)
    with folders.usable(data_dir):
        new_folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=data_dir))
        (new_folder / "password").write_text(password, encoding="utf-8")  # the folder is private
        give(new_folder, account)
    try:
        for locale in _locales(binaries):
            problem = await _initdb(new_folder, binaries, account, (*locale, *(() if durable else ("--no-sync",))))
            if problem is None or "invalid locale" not in problem:
                break
        if problem is not None:
            raise folders.refusal_in(problem, data_dir) or EmbeddedPostgresFailed(
                f"PostgreSQL could not create its database in {data_dir}:\n{tail(problem)}", log=tail(problem)
            )
        with folders.usable(data_dir):
            (new_folder / "cluster").rename(cluster)
            folders.sync_folder(data_dir)
    finally:
        await _remove_remains(data_dir)


def _locales(binaries: Binaries) -> Sequence[Sequence[str]]:
    """Return initdb's locale options, in order of preference: code-point order and Unicode's character classes.

    PostgreSQL 17 has them built in, the same on every machine; before, the system's C.UTF-8 is tried, then C.
    """
    if binaries.major >= 17:
        return [("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")]
    return [("--locale=C.UTF-8",), ("--locale=C",)]


async def _initdb(new_folder: Path, binaries: Binaries, account: Account, options: Sequence[str]) -> str | None:
    """Run initdb; return None, or its output if it failed, after it has removed what it made."""
    with tempfile.TemporaryFile() as output, as_seen_by(account, new_folder) as (path, descriptors):
        command = [
            *(binaries["initdb"], "-D", f"{path}/cluster", "-U", SUPERUSER, "-E", "UTF8", "--no-instructions"),
            # initdb's pg_hba.conf admits the socket, 127.0.0.1 and ::1 alone; these two ask for a password there.
            *("--auth-local=scram-sha-256", "--auth-host=scram-sha-256", f"--pwfile={path}/password"),
            *options,
        ]
        child = spawn(command, account, output, descriptors)
        try:
            while child.poll() is None:  # noqa: ASYNC110 - not every event loop can start a child as another user
                await asyncio.sleep(POLL_S)
        finally:
            end_group(child)
        output.seek(0)
        return None if child.returncode == 0 else output.read().decode("utf-8", "replace")


async def _remove_remains(data_dir: Path) -> None:
    """Remove the folders of interrupted creations; retry, as an orphaned initdb may still write there for a moment."""
    for _ in range(_REMOVALS):
        if _remove_once(data_dir):
            return
        await asyncio.sleep(POLL_S)


def _remove_once(data_dir: Path) -> bool:
    """Try to remove the folders of interrupted creations; return whether none is left."""
    for folder in data_dir.glob(_PREFIX + "*"):
        shutil.rmtree(folder, ignore_errors=True)
    return not any(data_dir.glob(_PREFIX + "*"))
