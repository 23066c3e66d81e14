"""A PgBouncer for the tests of this folder, or a skip that says aloud why there is none."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pgbouncer.bouncer import Bouncer, Missing, Program, find_program, start
from tests.support.postgres import Database, Databases
from tests.support.processes import Spawner
from tests.support.skips import missing


@pytest.fixture(scope="session")
def pgbouncer() -> Program:
    """The program."""
    try:
        program = find_program()
    except Missing as problem:
        missing(f"no PgBouncer: {problem}")
    return program


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[Database]:
    """A database that nobody has migrated."""
    one = databases.create_empty()
    yield one
    databases.drop(one)


@pytest.fixture
def bouncer(pgbouncer: Program, empty_database: Database, spawn: Spawner) -> Iterator[Bouncer]:
    """PgBouncer in transaction mode in front of the empty database, for its owner."""
    folder = Path(tempfile.mkdtemp(prefix="myria-pgbouncer-"))
    folder.chmod(0o755)
    yield start(pgbouncer, folder, spawn, [empty_database.tcp.owner])
    shutil.rmtree(folder, ignore_errors=True)
