"""The schema that migrations make is the one on record.

`MYRIA_TEST_GOLDEN=write` rewrites the record; a commit that changes it says which lines, and why.
"""

from __future__ import annotations

from tests.golden.record import check
from tests.golden.schema_dump import schema_dump
from tests.support.postgres import Database


async def test_schema(database: Database) -> None:
    """Tables, functions, policies and grants of a fresh database are those on record."""
    check("schema.txt", await schema_dump(database.superuser_dsn))
