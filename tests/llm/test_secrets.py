"""A credential appears nowhere: not in logs, audit, errors, metrics, status, topics or answers."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import asyncpg
import orjson
import pytest

from myria.db.database import Database as Pool
from myria.llm.model import LanguageModel
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import Settings
from myria_cli.logs import configure
from myria_monitoring.exposition import about_memory, text_of
from myria_monitoring.figures import FigureReader
from tests.cli.conftest import call
from tests.llm.conftest import KEY, Configuring, Starting
from tests.llm.oracle import plan, shown
from tests.llm.provider import Answer, Asked, calling
from tests.llm.test_building import with_model
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database, Databases

WRITINGS = (KEY, json.dumps(KEY)[1:-1], quote(KEY), quote(KEY, safe=""))


def telltale(asked: Asked) -> Answer:
    """Repeat the key that came with the request wherever something can be said."""
    key = asked.headers["authorization"]
    if asked.number % 5 == 0:
        return Answer(status=500, body=f"failed for {key}".encode())
    if asked.number % 5 == 1:
        return Answer(body=f'<p title="{key}">'.encode(), headers={"X-Key": key})
    if asked.number % 5 == 2:
        return calling(asked, (f"tool {key}", {"add": [key], key: key}))
    data = shown(asked)
    if "question" in data:
        return calling(asked, ("choose", {"add": [key], "stop": True}), content=key)
    arguments = plan(data)
    arguments["label"] = f"label {key}"[:120]
    arguments["summary"] = key
    for leaf in arguments["leaves"]:
        leaf["label"], leaf["summary"] = f"label {KEY}", f"{key} said {KEY}"
    return calling(asked, ("submit_plan", arguments), content=key)


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables be wide, so that nothing is folded away."""
    monkeypatch.setenv("COLUMNS", "250")


@pytest.mark.usefixtures("wide")
def test_the_key_is_seen_nowhere(
    databases: Databases,
    database: Database,
    provide: Starting,
    configured: Configuring,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A provider that repeats the key everywhere leaves it in no table, log line, counter, answer or output."""
    caplog.set_level(logging.DEBUG)
    provider = provide(telltale)
    llm = configured(provider, breaker_failures=1000, retries=1, repairs=2)
    shown_texts = databases.loop.run(_work(database, llm))
    for arguments in (
        ("status",),
        ("status", "--json"),
        ("audit", "--full"),
        ("audit", "--json", "--full"),
        ("audit", "--failed"),
        ("snapshots", "--json"),
        ("show", "--json"),
        ("query", "garden", "--as", "ana", "--json"),
        ("verify",),
    ):
        called = call(*arguments, "--dsn", database.dsn)
        shown_texts += [called.out, called.err]
    shown_texts.append(caplog.text)

    assert len(provider.asked) > 10
    assert all(KEY in asked.headers["authorization"] for asked in provider.asked)
    for text in shown_texts:
        for writing in WRITINGS:
            assert writing not in text, text[max(0, text.index(writing) - 200) : text.index(writing) + 50]
    assert any("***" in text for text in shown_texts), "nothing was ever repeated"


async def _work(database: Database, llm: Any) -> list[str]:
    """Build and walk; return everything that was said or stored."""
    texts: list[str] = []
    settings = with_model(llm)
    for part in range(3):
        await append(database.server_dsn, conversation(25, seed=part, start=part * 100_000))
        built = await builds.build(database, configured=settings)
        texts.append(repr(built))
    async with Memory(database.server_dsn, replace(Settings(), llm=llm)) as memory:
        for _ in range(6):
            query = ReferencesQuery(participants=("ana",), query="garden bread tomato", max_nodes=30)
            texts.append(orjson.dumps(await memory.retrieval.query_references(TENANT, query)).decode())
        texts.append(orjson.dumps(await memory.registry.status(TENANT)).decode())
        walker = memory.retrieval.walker
        assert walker is not None
        await walker.settle()
        texts += [repr(vars(walker.model)), repr(walker.model.provider), repr(vars(walker.model.provider))]
        texts.append(repr(memory.settings))
    async with Pool(database.operator_dsn) as pool:
        scrape = text_of(about_memory(await FigureReader(pool).read(), tenant_label=True)).decode()
    assert "myria_llm_calls_total" in scrape
    texts.append(scrape)
    model = LanguageModel.configured(llm)
    texts += [repr(model), repr(llm), repr(settings)]
    connection = await asyncpg.connect(database.superuser_dsn)
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'myria'")
    for table in tables:
        rows = await connection.fetch(f"SELECT t::text AS row FROM myria.{table['tablename']} t")
        texts += [row["row"] for row in rows]
    await connection.close()
    return texts


def test_json_log_lines_do_not_carry_it(configured: Configuring, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is given to a log line as `extra` shows a secret as stars."""
    from myria.llm.secrets import Secret

    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    try:
        configure(replace(Settings().service, log_format="json"), "test", Settings().log)
        logging.getLogger("x").warning("with %s", Secret(KEY), extra={"secret": Secret(KEY)})
    finally:
        root.handlers[:], root.level = before
    assert KEY not in stream.getvalue()
    assert "***" in stream.getvalue()
