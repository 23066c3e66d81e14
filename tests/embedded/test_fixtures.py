"""The suite's own database fixtures."""

from __future__ import annotations

import asyncpg

from tests.support.postgres import Database, Databases


async def test_each_role_connects_to_a_migrated_database(database: Database) -> None:
    """Every connection string of the fixture leads to the test's database, as a role that row security binds."""
    for dsn, role in (
        (database.dsn, "myria_owner"),
        (database.server_dsn, "myria_server"),
        (database.builder_dsn, "myria_builder"),
        (database.operator_dsn, "myria_operator"),
        (database.tcp.server, "myria_server"),
    ):
        connection = await asyncpg.connect(dsn)
        try:
            row = await connection.fetchrow(
                "SELECT current_user AS role, current_database() AS name, rolsuper, rolbypassrls, "
                "to_regnamespace('myria') IS NOT NULL AS migrated FROM pg_roles WHERE rolname = current_user"
            )
        finally:
            await connection.close()
        assert row is not None
        assert dict(row) == {
            "role": role,
            "name": database.name,
            "rolsuper": False,
            "rolbypassrls": False,
            "migrated": True,
        }


def test_databases_do_not_see_each_other(databases: Databases) -> None:
    """What one test writes is in no other test's database, even while both live."""

    async def write(dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute("CREATE TABLE trace (n int)")
        await connection.close()

    async def traces(dsn: str) -> int:
        connection = await asyncpg.connect(dsn)
        found: int = await connection.fetchval("SELECT count(*) FROM pg_class WHERE relname = 'trace'")
        await connection.close()
        return found

    with databases.fresh() as one, databases.fresh() as other:
        databases.loop.run(write(one.superuser_dsn))
        assert databases.loop.run(traces(one.superuser_dsn)) == 1
        assert databases.loop.run(traces(other.superuser_dsn)) == 0
