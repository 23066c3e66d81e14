"""Databases for measuring: one durable PostgreSQL under the work folder, kept between runs.

A database that took long to prepare is used again as long as what it was made of is the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import orjson

from benchmarks.statements import statement
from myria.db import schema
from myria.errors import ConfigurationError, SchemaTooNew
from myria_embedded import EmbeddedPostgres, RoleDsns, ensure_roles, grant_roles, role_dsns
from myria_embedded.roles import OWNER

ROOT = Path(__file__).resolve().parents[1]
EMPTY = "bench_empty"
"""The migrated database that empty ones are copies of."""


def index_digest() -> str:
    """Return what an index depends on: the code of the planner, the analyzer and the search blocks."""
    state = hashlib.sha256()
    core = ROOT / "core" / "myria"
    for folder in (core / "planning", core / "analysis", core / "index"):
        for path in sorted(folder.rglob("*.py")):
            state.update(path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()[:16]


class Cluster:
    """The PostgreSQL of one work folder, with the settings of the embedded server (durable, small). Async context."""

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self._server = EmbeddedPostgres(work_dir / "postgres-data")
        self._notes = work_dir / "prepared.json"

    async def __aenter__(self) -> Cluster:
        self.work_dir.mkdir(parents=True, exist_ok=True)
        await self._server.start()
        await ensure_roles(self._server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    def dsns(self, name: str) -> RoleDsns:
        """Return how each role connects to a database."""
        return role_dsns(self._server, name)

    async def connect(self, name: str) -> asyncpg.Connection[asyncpg.Record]:
        """Return a superuser's connection: it sees every tenant."""
        return await asyncpg.connect(self.dsns(name).superuser)

    async def create(self, name: str) -> RoleDsns:
        """Make an empty, migrated database, in place of any that has the name."""
        if await self.prepared(EMPTY, {}) is None:
            await self.bare(EMPTY)
            await schema.migrate(self.dsns(EMPTY).owner)
            self.note(EMPTY, {}, {})
        await grant_roles(self._server, EMPTY)
        return await self.clone(EMPTY, name)

    async def bare(self, name: str) -> RoleDsns:
        """Make a database without a schema, in place of any that has the name."""
        await self.drop(name)
        await self._execute(f'CREATE DATABASE "{name}" OWNER {OWNER} TEMPLATE template0')
        return self.dsns(name)

    async def clone(self, source: str, name: str) -> RoleDsns:
        """Copy a database that nobody is connected to, in place of any that has the name."""
        await self.drop(name)
        await self._execute(f'CREATE DATABASE "{name}" OWNER {OWNER} TEMPLATE "{source}" STRATEGY file_copy')
        return self.dsns(name)

    async def drop(self, name: str) -> None:
        """Drop a database, ending whoever is connected."""
        self._note(name, None)
        await self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    async def versions(self) -> dict[str, str]:
        """Return the server's version and what decides the price of a commit."""
        connection = await asyncpg.connect(self._server.dsn)
        try:
            return {row["name"]: row["setting"] for row in await connection.fetch(statement("durability"))}
        finally:
            await connection.close()

    async def tidy(self, name: str) -> None:
        """Refresh the statistics of a database and write everything out, so that no measurement pays for its making."""
        connection = await self.connect(name)
        try:
            await connection.execute(statement("analyze"))
            await connection.execute(statement("checkpoint"))
        finally:
            await connection.close()

    async def prepared(
        self, name: str, recipe: Mapping[str, Any], *, besides: Collection[str] = ()
    ) -> dict[str, Any] | None:
        """Return the notes about a database made from `recipe`, the parts `besides` aside, or None if it must be made.

        One that was made under an older schema is migrated, as a memory in use would be.
        """
        entry = self._all_notes().get(name)
        if entry is None or _without(entry["recipe"], besides) != _without(recipe, besides):
            return None
        try:
            if await schema.migrate(self.dsns(name).owner):
                await grant_roles(self._server, name)
        except (ConfigurationError, SchemaTooNew):
            return None
        notes: dict[str, Any] = entry["notes"]
        return notes

    def note(self, name: str, recipe: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
        """Remember that a database is ready."""
        self._note(name, {"recipe": dict(recipe), "notes": dict(notes)})

    def _all_notes(self) -> dict[str, Any]:
        if not self._notes.exists():
            return {}
        notes: dict[str, Any] = orjson.loads(self._notes.read_bytes())
        return notes

    def _note(self, name: str, value: dict[str, Any] | None) -> None:
        notes = self._all_notes()
        if value is None and name not in notes:
            return
        if value is None:
            del notes[name]
        else:
            notes[name] = value
        self._notes.write_bytes(orjson.dumps(notes, option=orjson.OPT_INDENT_2))

    async def _execute(self, text: str) -> None:
        connection = await asyncpg.connect(self._server.dsn)
        try:
            await connection.execute(text)
        finally:
            await connection.close()


def _without(recipe: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in recipe.items() if name not in names}
