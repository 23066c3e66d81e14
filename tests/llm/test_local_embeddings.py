"""Embeddings by a small model on this machine: in use where its package is installed, and nothing is missed without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.errors import ConfigurationError
from myria.index.embeddings import choosing
from myria.index.embeddings.choosing import chosen, configured
from myria.index.embeddings.model import installed_weights
from myria.memory import Memory
from myria.settings import EmbeddingsSettings, Settings
from tests.cli.conftest import call
from tests.llm.test_embeddings import ANSWER, TALK, query, talk
from tests.reads.asking import append, ask, texts_of
from tests.server.test_agent import ask as ask_agent
from tests.server.wire import serving
from tests.support import builds
from tests.support.events import TENANT
from tests.support.postgres import Database

AUTO = Settings()
ALLERGY = "anaphylaxis"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Have the model's package installed or not, whatever is the case: `installed(True)`."""
    return lambda there: monkeypatch.setattr(
        choosing, "installed_weights", installed_weights if there else lambda: None
    )


@asynccontextmanager
async def control(database: Database, settings: Settings = AUTO) -> AsyncIterator[ControlLoop]:
    """Lend a control plane, with its rights."""

    async def launch(_tenant: str, _build_id: str) -> int:
        raise AssertionError("no build is due")

    async with Pool(database.operator_dsn) as pool:
        loop = ControlLoop(pool, settings, launch)
        try:
            yield loop
        finally:
            await loop.close()


@pytest.mark.parametrize(
    ("model", "there", "uses", "why"),
    [
        ("auto", True, "local", "on, computed by all-MiniLM-L6-v2 on this machine"),
        ("auto", False, None, "not installed here (pip install 'myria[embeddings]')"),
        ("off", True, None, "embeddings.model is off"),
        ("local", True, "local", "on this machine"),
        ("endpoint", False, "endpoint", "embeddings.base_url"),
    ],
)
def test_what_is_in_use_is_said_with_its_reason(
    installed: Callable[[bool], None], model: Any, there: bool, uses: str | None, why: str
) -> None:
    """The default takes the local model where it is installed; one setting switches it off."""
    installed(there)
    choice = chosen(replace(Settings(), embeddings=EmbeddingsSettings(model=model)))
    assert choice.model == uses
    assert why in choice.why


async def test_a_memory_gets_its_vectors_when_the_package_comes(
    database: Database, installed: Callable[[bool], None]
) -> None:
    """What was told before is found by its words alone, and by its meaning once the control plane caught up."""
    installed(False)
    async with Memory(database.server_dsn, AUTO) as memory, control(database) as plane:
        await append(memory, talk())
        await builds.build(database, configured=AUTO)
        assert texts_of(await ask(memory, query(ALLERGY))) == []
        assert await plane.embed() == 0
    installed(True)
    async with Memory(database.server_dsn, AUTO) as memory, control(database) as plane:
        assert texts_of(await ask(memory, query(ALLERGY))) == []
        assert await plane.embed() == len(TALK)
        assert texts_of(await ask(memory, query(ALLERGY)))[0] == ANSWER


async def test_processes_with_and_without_the_package_share_a_memory(
    database: Database, installed: Callable[[bool], None]
) -> None:
    """One without it answers by words, appends, builds and tidies up, and takes no vector from the others."""
    installed(True)
    async with Memory(database.server_dsn, AUTO) as memory, control(database) as plane:
        await append(memory, talk())
        await builds.build(database, configured=AUTO)
        assert texts_of(await ask(memory, query(ALLERGY)))[0] == ANSWER
        installed(False)
        async with Memory(database.server_dsn, AUTO) as without, control(database) as other:
            assert texts_of(await ask(without, query("the fence")))[0] == TALK[3]
            assert texts_of(await ask(without, query(ALLERGY))) == []
            await append(without, talk(["cashews are out, too"], participants=("ana", "ben")))
            await builds.build(database, configured=AUTO)
            async with other._database.write(TENANT) as connection:
                await connection.execute("UPDATE myria.vector_progress SET used_at = now() - interval '8 days'")
            await other.collect()
        assert await plane.embed() > 0
        assert "cashews are out, too" in texts_of(await ask(memory, query(ALLERGY)))
        assert ANSWER in texts_of(await ask(memory, query(ALLERGY)))


async def test_switched_off_the_vectors_go(database: Database, installed: Callable[[bool], None]) -> None:
    """After embeddings.keep_former_s nothing of them is left."""
    installed(True)
    off = replace(Settings(), embeddings=EmbeddingsSettings(model="off"))
    async with Memory(database.server_dsn, AUTO) as memory, control(database) as plane:
        await append(memory, talk())
        assert await plane.embed() == len(TALK)
    async with control(database, off) as plane:
        async with plane._database.write(TENANT) as connection:
            await connection.execute("UPDATE myria.vector_progress SET used_at = now() - interval '8 days'")
        await plane.collect()
    assert await builds.value(database, "SELECT count(*) FROM myria.text_vectors") == 0


async def test_the_agent_is_told_why(database: Database, installed: Callable[[bool], None]) -> None:
    """memory_stats says whether vectors are compared, and what to do where they are not."""
    for there, word in ((True, "on, "), (False, "pip install")):
        installed(there)
        async with Memory(database.server_dsn, AUTO) as memory, serving(memory, AUTO) as served:
            assert word in (await ask_agent(served, "memory_stats"))["stats"]["embeddings"]


def test_status_says_why(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As text and as JSON, by the settings of the process that is asked."""
    assert "embeddings.model is off" in call("status", "--dsn", database.dsn).out
    monkeypatch.delenv("MYRIA_EMBEDDINGS_MODEL")
    told = call("status", "--json", "--dsn", database.dsn).json["embeddings"]
    assert "pip install 'myria[embeddings]'" in told


def test_a_local_model_that_is_not_installed_is_named_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for it by name is refused with what to install."""
    monkeypatch.setattr("myria.index.embeddings.local.installed_weights", lambda: None)
    with pytest.raises(ConfigurationError, match=r"myria\[embeddings\]"):
        configured(replace(Settings(), embeddings=EmbeddingsSettings(model="local")))
