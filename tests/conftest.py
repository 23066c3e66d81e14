"""Fixtures of the whole suite: a real PostgreSQL, a database per test, and programs that are sure to end."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Tests import `tests.support`; with import mode importlib nobody else puts the root on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.postgres import Database, Databases
from tests.support.processes import Guardian, Spawner

# No time limits for single examples: the machine is shared. In CI the parent is Hypothesis' own profile for it.
settings.register_profile("myria", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("myria")


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """Take back the log handlers of a command that ran in this process: its standard error is gone."""
    root = logging.getLogger()
    before = list(root.handlers)
    yield
    root.handlers[:] = before


@pytest.fixture(scope="session")
def guardian() -> Iterator[Guardian]:
    """The process that cleans up should this one be killed."""
    one = Guardian()
    yield one
    one.close()


@pytest.fixture(scope="session")
def databases(guardian: Guardian) -> Iterator[Databases]:
    """The session's server (one per xdist worker): `create()`, `create_empty()`, `drop()`, `fresh()`."""
    one = Databases(guardian)
    yield one
    one.close()


@pytest.fixture
def database(databases: Databases) -> Iterator[Database]:
    """A migrated, empty database for one test."""
    with databases.fresh() as one:
        yield one


@pytest.fixture
def spawn(guardian: Guardian) -> Iterator[Spawner]:
    """Start programs: `spawn("psql", ...)` or `spawn.python("-m", ...)`; they end with the test."""
    one = Spawner(guardian)
    yield one
    one.end_all()
