"""A real memory over a real database, served over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from myria.memory import Memory
from myria.settings import Settings
from tests.server.wire import Served, serving
from tests.support.postgres import Database


@pytest.fixture
def settings() -> Settings:
    """The defaults."""
    return Settings()


@pytest.fixture
async def memory(database: Database, settings: Settings) -> AsyncIterator[Memory]:
    """The memory of one test."""
    async with Memory(database.server_dsn, settings) as one:
        yield one


@pytest.fixture
async def served(memory: Memory, settings: Settings) -> AsyncIterator[Served]:
    """A server of that memory."""
    async with serving(memory, settings) as one:
        yield one


@pytest.fixture(autouse=True)
def patient_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a look at the database take as long as this machine needs."""
    monkeypatch.setattr("myria_server.readiness.CHECK_TIMEOUT_S", 30.0)
