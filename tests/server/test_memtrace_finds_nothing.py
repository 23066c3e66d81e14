"""Memtrace's tools and routes say that nothing is remembered where nothing fits, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from myria.notes.answertext import NOTHING
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import Served, call, headers
from tests.support.builds import build
from tests.support.postgres import Database

KEPT = (
    "Ana's dog is called Rex.",
    "Ana follows a vegan diet.",
    "Der Brennofen wird jeden Freitag gereinigt.",
    "La reunión del equipo es los lunes.",
    "本社は渋谷にあります。",
)

Json = dict[str, Any]


@pytest.fixture
async def keeper(served: Served) -> Served:
    """A server with memories of an agent in a session."""
    for content in KEPT:
        body = {"agent_id": "bot", "session_id": "s", "content": content}
        assert (await served.client.post(f"{PREFIX}/memories", json=body)).status_code == 201
    return served


async def tool(served: Served, name: str, **arguments: Any) -> tuple[Json, str]:
    """Return what a tool answers, as data and as text."""
    response = await served.post(call(name, arguments), headers(name), path=PATH_OF["rest"])
    result = response.json()["result"]
    return result["structuredContent"], result["content"][0]["text"]


async def route(served: Served, path: str, body: Json | None = None) -> Json:
    """Return what a route answers."""
    response = await served.client.request("GET" if body is None else "POST", PREFIX + path, json=body)
    assert response.status_code == 200, response.text
    answer: Json = response.json()
    return answer


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(
    "question",
    [
        "search my memory for aubergines",
        "Do I like aubergines?",
        "zebra",
        "Wer gießt die Blumen?",
        "¿Cuál es mi color favorito?",
        "支社の電話番号は？",
    ],
)
async def test_a_question_that_nothing_fits_is_told_so(
    keeper: Served, database: Database, question: str, is_built: bool
) -> None:
    """Fresh and from a snapshot, as a tool, as a route, and in a session's context."""
    if is_built:
        await build(database)
    found, text = await tool(keeper, "memtrace_search", query=question)
    assert (found["results"], found["note"]) == ([], NOTHING)
    assert NOTHING in text
    assert (await route(keeper, "/search", {"query": question}))["note"] == NOTHING
    context, shown = await tool(keeper, "memtrace_session_context", session_id="s", query=question)
    assert (context["memory_count"], context["note"]) == (0, NOTHING)
    assert NOTHING in shown


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memtrace_search", {"content_contains": "zebra"}),
        ("memtrace_search", {"tags": ["zebra"]}),
        ("memtrace_search", {"query": "dog", "agent_id": "nobody"}),
        ("memtrace_recall", {"agent_id": "nobody"}),
        ("memtrace_recall", {"agent_id": "bot", "memory_type": "decision"}),
        ("memtrace_session_context", {"session_id": "never-opened"}),
    ],
)
async def test_so_is_whoever_asks_otherwise(keeper: Served, name: str, arguments: Json) -> None:
    """By a text, tags, a kind, an agent or a session."""
    answer, text = await tool(keeper, name, **arguments)
    assert answer["note"] == NOTHING
    assert NOTHING in text


async def test_where_something_fits_nothing_of_it_is_said(keeper: Served) -> None:
    """And not of a page behind the last memory either."""
    for question, content in zip(("Ana's dog", "vegan", "Brennofen", "reunión", "本社"), KEPT, strict=True):
        found, text = await tool(keeper, "memtrace_search", query=question)
        assert content in [memory["content"] for memory in found["results"]]
        assert "note" not in found
        assert NOTHING not in text
    assert "note" not in await route(keeper, "/memories?agent_id=bot")
    assert "note" not in await route(keeper, "/memories?agent_id=bot&offset=50")
    assert "note" not in await route(keeper, "/search", {"query": "dog", "offset": 50})
    assert "note" not in (await tool(keeper, "memtrace_session_context", session_id="s"))[0]
