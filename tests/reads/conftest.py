"""What the tests of reading share: a memory over a database, and a PostgreSQL of one's own that may be hurt."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from myria.db.schema import migrate
from myria_embedded import EmbeddedPostgres, RoleDsns, ensure_roles, grant_roles
from tests.embedded.conftest import data_dir, new_dir, pristine  # noqa: F401 - fixtures
from tests.support.patience import until


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPostgres:
    """A PostgreSQL of the test's own, durable like a real one."""

    server: EmbeddedPostgres
    dsns: RoleDsns

    async def kill(self) -> None:
        """Kill -9 the postmaster with all its children."""
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # it must not start new children meanwhile
        for one in [*children(pid), pid]:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        await until(lambda: not self.server.is_running(), "the end of the postmaster")

    async def stop(self) -> None:
        """Shut it down as an administrator would."""
        await self.server.stop()

    async def start(self) -> None:
        """Start it again, where it was."""
        await self.server.start()


@pytest.fixture
async def own_postgres(data_dir: Path) -> AsyncIterator[OwnPostgres]:  # noqa: F811
    """A migrated database on a server that the test may kill."""
    server = EmbeddedPostgres(data_dir, settings={"autovacuum": "off", "max_connections": "20"})
    await server.start()
    try:
        yield OwnPostgres(server=server, dsns=await migrated(server))
    finally:
        await server.stop()


async def migrated(server: EmbeddedPostgres) -> RoleDsns:
    """Give a server its database, roles and schema; return how to connect."""
    dsns = await ensure_roles(server)
    await migrate(dsns.owner)
    await grant_roles(server)
    return dsns


def children(parent: int) -> list[int]:
    """Return the living children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(parent):
                    found.append(int(entry.name))
    return found
