"""Databases for measuring: one durable PostgreSQL under the work folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg

from myria.access.store import AccessStore, NewKey
from myria.db import schema
from myria.db.database import Database
from myria.db.queries import named
from myria.log.ids import new_id
from myria_embedded import EmbeddedPostgres, RoleDsns, ensure_roles, grant_roles, role_dsns
from myria_embedded.roles import OWNER

TENANT = "default"
_EMPTY = "bench_empty"
"""The migrated database that empty ones are copies of."""


@cache
def _statements() -> dict[str, str]:
    return named(Path(__file__).with_name("statements.sql").read_text(encoding="utf-8"))


def statement(name: str) -> str:
    """Return a statement of statements.sql."""
    return _statements()[name]


class Cluster:
    """The PostgreSQL of one work folder, with the settings of the embedded server (durable, small). Async context.

    Attributes:
        ready: notes about the databases that were made to be used again while this process runs, by name.
    """

    def __init__(self, work_dir: Path) -> None:
        work_dir.mkdir(parents=True, exist_ok=True)
        self._server = EmbeddedPostgres(work_dir / "postgres-data")
        self.ready: dict[str, dict[str, Any]] = {}

    async def __aenter__(self) -> Cluster:
        await self._server.start()
        await ensure_roles(self._server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    def dsns(self, name: str) -> RoleDsns:
        """Return how each role connects to a database."""
        return role_dsns(self._server, name)

    @asynccontextmanager
    async def connection(self, name: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """Connect as a superuser, who sees every tenant."""
        connection = await asyncpg.connect(self.dsns(name).superuser)
        try:
            yield connection
        finally:
            await connection.close()

    async def create(self, name: str) -> RoleDsns:
        """Make an empty, migrated database, in place of any that has the name."""
        if _EMPTY not in self.ready:
            await schema.migrate((await self.clone("template0", _EMPTY)).owner)
            await grant_roles(self._server, _EMPTY)
            self.ready[_EMPTY] = {}
        return await self.clone(_EMPTY, name)

    async def clone(self, source: str, name: str) -> RoleDsns:
        """Copy a database that nobody is connected to, in place of any that has the name."""
        await self.drop(name)
        await self._execute(f'CREATE DATABASE "{name}" OWNER {OWNER} TEMPLATE "{source}" STRATEGY file_copy')
        return self.dsns(name)

    async def drop(self, name: str) -> None:
        """Drop a database, ending whoever is connected."""
        await self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def tidy(self, name: str) -> None:
        """Refresh the statistics of a database and write everything out, so that no measurement pays for its making."""
        async with self.connection(name) as connection:
            await connection.execute(statement("analyze"))
            await connection.execute(statement("checkpoint"))

    async def key(self, name: str, own: tuple[str, ...], *, tenant: str = TENANT, **fields: Any) -> str:
        """Make a key for a database, and its tenant where it is new; return the key's text."""
        async with Database(self.dsns(name).operator) as database:
            store = AccessStore(database, actor="benchmark")
            await store.ensure_tenant(tenant)
            new = NewKey(name=new_id("bench"), tenant=tenant, own=own, **fields)
            return (await store.create_key(new))[0].text

    async def _execute(self, text: str) -> None:
        connection = await asyncpg.connect(self._server.dsn)
        try:
            await connection.execute(text)
        finally:
            await connection.close()
