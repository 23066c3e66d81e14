"""Whether a program migrates the database before it starts is the user's choice."""

from __future__ import annotations

import pytest

from tests.cli.conftest import call
from tests.support.postgres import Databases
from tests.support.processes import Spawner

pytestmark = pytest.mark.processes

MIGRATE = "MYRIA_POSTGRES_MIGRATE_ON_START"


def test_serving_migrates_when_it_is_told_to(databases: Databases, spawn: Spawner) -> None:
    """By default `myria serve` leaves the schema alone; told to migrate, it has done so before it serves."""
    database = databases.create_empty()
    leaving = spawn.myria("serve", "--port", "0", "--dsn", database.dsn)
    leaving.wait_for("serving MCP")
    assert call("migrate", "--check", "--dsn", database.dsn).status == 6

    migrating = spawn.myria("serve", "--port", "0", "--dsn", database.dsn, env={MIGRATE: "true"})
    migrating.wait_for("serving MCP")
    assert call("migrate", "--check", "--dsn", database.dsn).status == 0


def test_a_role_that_may_not_migrate_is_told_so(databases: Databases, spawn: Spawner) -> None:
    """With the serving role a missing schema is refused by its code; where nothing is missing it serves."""
    database = databases.create_empty()
    arguments = ("serve", "--port", "0", "--dsn", database.server_dsn)
    refused = spawn.myria(*arguments, env={MIGRATE: "true"})
    assert refused.wait() == 6
    assert "configuration_error" in refused.output()

    assert call("migrate", "--grant", "--dsn", database.dsn).status == 0
    spawn.myria(*arguments, env={MIGRATE: "true"}).wait_for("serving MCP")


def test_up_can_be_told_not_to_migrate(databases: Databases, spawn: Spawner) -> None:
    """`myria up` migrates by default; told not to, it ends with what is missing and changes nothing."""
    database = databases.create_empty()
    up = spawn.myria("up", "--port", "0", "--dsn", database.dsn, env={MIGRATE: "false"})
    assert up.wait() == 6
    assert "schema_outdated" in up.output()
    assert call("migrate", "--check", "--dsn", database.dsn).status == 6
