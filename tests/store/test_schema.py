"""The schema: made in one transaction or not at all, and only on a database that is empty or this program's."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

import myria_migrations
from myria.db import schema
from myria.db.database import Database as Pool
from myria.errors import ConfigurationError, SchemaOutdated, SchemaTooNew
from myria_migrations import functions, migrations
from tests.support.postgres import Database, Databases
from tests.support.processes import Spawner

REGISTER = "SELECT version, name FROM myria.schema_migrations ORDER BY version"


@pytest.fixture
def empty(databases: Databases) -> Iterator[Database]:
    """A database without a schema."""
    database = databases.create_empty()
    yield database
    databases.drop(database)


async def answer(database: Database, question: str) -> list[tuple[object, ...]]:
    """Return what PostgreSQL's superuser is told."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        return [tuple(row) for row in await connection.fetch(question)]
    finally:
        await connection.close()


async def test_an_empty_database_gets_the_baseline_once(empty: Database) -> None:
    """Migrating a second time does nothing."""
    assert await schema.pending(empty.dsn) == ["0001_baseline"]
    assert await schema.migrate(empty.dsn) == ["0001_baseline"]
    assert await answer(empty, REGISTER) == [(0, "functions"), (1, "baseline")]
    assert await schema.pending(empty.dsn) == []
    assert await schema.migrate(empty.dsn) == []


async def test_two_that_migrate_at_once_follow_each_other(empty: Database) -> None:
    """One makes the schema; the other finds it made."""
    done = await asyncio.gather(*(schema.migrate(empty.dsn) for _ in range(4)))
    assert sorted(done) == [[], [], [], ["0001_baseline"]]


async def test_a_schema_that_cannot_be_made_whole_is_not_made(empty: Database) -> None:
    """Where a table of that name stands already, nothing is left of the tables before it."""
    owner = await asyncpg.connect(empty.dsn)
    await owner.execute("CREATE SCHEMA myria; CREATE TABLE myria.vector_progress (it integer)")
    await owner.close()
    with pytest.raises(asyncpg.DuplicateTableError):
        await schema.migrate(empty.dsn)
    assert await answer(empty, "SELECT tablename FROM pg_tables WHERE schemaname = 'myria'") == [("vector_progress",)]


@pytest.mark.parametrize(
    "register",
    [
        "UPDATE myria.schema_migrations SET name = 'event_log_and_topic_index', checksum = 'x' WHERE version = 1",
        "UPDATE myria.schema_migrations SET checksum = 'x' WHERE version = 1",
    ],
    ids=["numbered migrations of a development version", "another baseline"],
)
async def test_a_database_of_another_build_is_refused_and_left_alone(database: Database, register: str) -> None:
    """The message says how to carry the memory over."""
    await answer(database, register)
    before = await answer(database, "TABLE myria.schema_migrations")
    for refused in (schema.migrate, schema.pending, schema.migrate_if_pending, schema.require_current):
        with pytest.raises(ConfigurationError, match=r"`myria export` .*`myria import`"):
            await refused(database.dsn)
    assert await answer(database, "TABLE myria.schema_migrations") == before


async def test_functions_of_before_are_created_anew(database: Database) -> None:
    """A process that finds other functions says so; `migrate` replaces all of them."""
    stale = """CREATE OR REPLACE FUNCTION myria.fold_tallies() RETURNS void LANGUAGE sql AS 'SELECT NULL::void';
               UPDATE myria.schema_migrations SET checksum = 'x' WHERE version = 0"""
    connection = await asyncpg.connect(database.superuser_dsn)
    bodies = "SELECT oid::regprocedure::text, md5(prosrc) FROM pg_proc WHERE pronamespace = 'myria'::regnamespace"
    try:
        before = sorted(map(tuple, await connection.fetch(bodies)))
        await connection.execute(stale)
        async with Pool(database.server_dsn) as pool:
            with pytest.raises(SchemaOutdated):
                await schema.check(pool)
            assert await schema.migrate(database.dsn) == ["0000_functions"]
            await schema.check(pool)
        assert sorted(map(tuple, await connection.fetch(bodies))) == before
    finally:
        await connection.close()


def test_a_baseline_is_recognized_by_what_stays() -> None:
    """Its functions may change in place, so its checksum leaves them out; what an empty database gets has them."""
    baseline = migrations()[0]
    assert baseline.checksum != functions().checksum
    assert functions().sql.splitlines()[0] in baseline.sql


async def test_every_table_of_tenants_is_bound_to_one(database: Database) -> None:
    """Row-level security is forced on each, so that it binds the owner too."""
    unbound = """
        SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
        WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind = 'r'
          AND NOT (c.relforcerowsecurity AND EXISTS (
              SELECT FROM pg_policies p WHERE p.tablename = c.relname AND p.policyname = 'tenant_named'))
    """
    assert await answer(database, unbound) == []


@pytest.mark.processes
def test_a_numbered_migration_follows_the_baseline(
    database: Database, empty: Database, tmp_path: Path, spawn: Spawner
) -> None:
    """A later program applies it to a schema of this one, and to an empty database; this one then refuses both."""
    later = tmp_path / "myria_migrations"
    shutil.copytree(Path(myria_migrations.__file__).parent, later, ignore=shutil.ignore_patterns("__pycache__"))
    (later / "numbered/0002_later.sql").write_text("CREATE TABLE myria.later (it integer);\n", encoding="utf-8")
    for dsn, applied in ((database.dsn, ["0002_later"]), (empty.dsn, ["0001_baseline", "0002_later"])):
        migrating = spawn.python(
            "-m", "myria_cli.main", "migrate", "--json", "--dsn", dsn, env={"PYTHONPATH": str(tmp_path)}
        )
        assert migrating.wait() == 0, migrating.output()
        assert json.loads(migrating.output())["applied"] == applied
        with pytest.raises(SchemaTooNew, match="0002_later"):
            asyncio.run(schema.pending(dsn))
