"""Programs that find another schema than theirs at their start: they wait for it, and say so."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator

import httpx
import pytest

from myria import errors
from myria.db.database import Database as Pool
from myria.db.schema import migrate, until_current
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database, Databases
from tests.support.processes import Spawner, free_port, wait_until


@pytest.fixture
def empty(databases: Databases) -> Iterator[Database]:
    """A database without a schema."""
    one = databases.create_empty()
    yield one
    databases.drop(one)


async def test_a_current_schema_is_not_waited_for(database: Database) -> None:
    """Looking once is enough."""
    async with Pool(database.operator_dsn) as pool:
        await until_current(pool, 0)


async def test_without_a_wait_it_is_refused(empty: Database) -> None:
    """The message says what to do."""
    async with Pool(empty.dsn) as pool:
        with pytest.raises(errors.SchemaOutdated, match="myria migrate"):
            await until_current(pool, 0)


async def test_it_goes_on_once_somebody_has_migrated(empty: Database, caplog: pytest.LogCaptureFixture) -> None:
    """One line says what is waited for, another that it came; nothing is migrated by who waits."""
    caplog.set_level(logging.INFO, "myria.db.schema")
    async with Pool(empty.dsn) as pool:
        waiting = asyncio.create_task(until_current(pool, 3600))
        async with asyncio.timeout(PATIENCE_S):
            while not any(record.name == "myria.db.schema" for record in caplog.records):
                await asyncio.sleep(0.01)
        assert not waiting.done()
        await migrate(empty.dsn)
        await asyncio.wait_for(waiting, PATIENCE_S)
    said = [record.__dict__["action"] for record in caplog.records if record.name == "myria.db.schema"]
    # What is waited for is said again every ten seconds.
    assert (set(said[:-1]), said[-1]) == ({"schema_awaited"}, "schema_current")


async def test_the_wait_is_bounded(empty: Database) -> None:
    """Then it ends with what is wrong; also when it is the database that is away."""
    async with Pool(empty.dsn) as pool:
        with pytest.raises(errors.SchemaOutdated):
            await until_current(pool, 0.3)
    async with Pool("postgresql://nobody@127.0.0.1:1/nothing") as pool:
        with pytest.raises(errors.DatabaseUnavailable):
            await until_current(pool, 0.3)


async def test_a_newer_schema_is_refused_at_once(database: Database) -> None:
    """An older program never becomes newer by waiting."""
    async with Pool(database.superuser_dsn) as pool:
        async with pool.connection() as connection:
            await connection.execute("INSERT INTO myria.schema_migrations VALUES (9999, 'future', 'x')")
        with pytest.raises(errors.SchemaTooNew):
            await until_current(pool, 3600)


@pytest.mark.processes
def test_a_server_lives_while_it_waits(empty: Database, spawn: Spawner) -> None:
    """It is alive, not ready, becomes ready without a restart, leaves on SIGTERM with status 0."""
    port = free_port()
    server = spawn.myria(
        *("serve", "--dsn", empty.dsn, "--port", str(port)),
        env={"MYRIA_MIGRATE_WAIT_S": "3600", "MYRIA_MCP_LINGER_S": "0.2"},
    )
    server.wait_for("waiting up to", 60)
    assert httpx.get(f"http://127.0.0.1:{port}/livez", timeout=PATIENCE_S, verify=False).status_code == 200
    unready = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S, verify=False)
    assert (unready.status_code, unready.json()["error"]["code"]) == (503, "schema_outdated")
    asyncio.run(migrate(empty.dsn))
    wait_until(
        lambda: httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S, verify=False).status_code == 200,
        60,
        "readiness",
    )
    server.signal(signal.SIGTERM)
    assert server.wait(60) == 0, server.output()


@pytest.mark.processes
def test_programs_end_when_the_schema_does_not_come(empty: Database, spawn: Spawner) -> None:
    """Server and builder end with the status of an outdated schema, and its sentence."""
    env = {"MYRIA_MIGRATE_WAIT_S": "1"}
    started = [
        spawn.myria("serve", "--dsn", empty.dsn, "--port", "0", env=env),
        spawn.myria("build", "--dsn", empty.dsn, "--build", "bld_x", env=env),
    ]
    for program in started:
        assert program.wait(120) == errors.SchemaOutdated.exit_status, program.output()
        assert "error[schema_outdated]" in program.output()
