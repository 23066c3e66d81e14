"""What goes on while something is away: the rows of docs/degradation.md that no other test proves, and their names."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from myria.memory import Memory
from myria.settings import McpSettings, Settings
from myria.text.model_tokens import token_counter
from tests.server.test_agent import ask, found, keep
from tests.server.test_lean import SCRIPTS
from tests.server.test_lean import ask as ask_core
from tests.server.wire import Served, event, serving
from tests.support.postgres import Database

ROOT = Path(__file__).resolve().parents[2]


async def test_without_embeddings_words_find(served: Served) -> None:
    """No model of vectors is set, or could be: notes are kept and recalled, and the answer says by which lanes."""
    await keep(served, "The boiler in the cellar is serviced every May")
    await keep(served, "Ben plays the trombone")
    assert "The boiler in the cellar is serviced every May" in (await found(served, "boiler service"))[:1]
    assert (await ask(served, "recall", text="boiler"))["searchPath"] == "words:1 → vectors:off"
    bounded = await ask(served, "recall", text="boiler", threshold=0.9)
    assert bounded["count"] == 1
    assert [hint["signal"] for hint in bounded["_meta"]["hints"]] == ["vectors_off"]
    assert (await ask(served, "memory_stats"))["stats"]["embedded"] == "off"
    tidied = await ask(served, "memory_consolidate")
    assert tidied["embeddingsAdded"] == "off"
    assert {stage["count"] for stage in tidied["stages"] if stage["name"] == "embeddings"} == {"off"}


async def test_without_a_builder_all_is_found(served: Served) -> None:
    """What no build has taken in is found as soon as it was acknowledged, and says that it is fresh."""
    for number in range(30):
        await served.call("append_event", event(text=f"report number {number}"))
    answer = await served.call("query_event_nodes", {"participants": ["user_42"], "limit": 200})
    nodes = answer.content["root"]["children"]
    assert (len(nodes), {node["indexed"] for node in nodes}) == (30, {False})


async def test_without_postgresql_each_face_says_so(database: Database) -> None:
    """A retryable refusal, 503 for probes, and no acknowledgement of what is not stored."""
    settings = Settings(mcp=McpSettings(append_deadline_s=0.5, request_deadline_s=0.5, ready_grace_s=0))
    async with Memory("postgresql://nobody@127.0.0.1:1/none", settings) as gone, serving(gone, settings) as away:
        for tool, arguments in (("append_event", event("k")), ("query_event_nodes", {"participants": ["user_42"]})):
            refused = await away.call(tool, arguments)
            assert refused.code in ("database_unavailable", "deadline_exceeded")
            assert refused.content["error"]["retryable"]
        for tool, arguments in (("remember", {"content": "lost?"}), ("recall", {"text": "lost"})):
            content = await ask(away, tool, **arguments)
            assert (content["success"], content["retryable"]) == (False, True)
        for path in ("/health", "/ready", "/readyz"):
            assert (await away.client.get(path)).status_code == 503
        assert (await away.client.get("/livez")).status_code == 200
    async with Memory(database.server_dsn, Settings()) as memory, serving(memory) as back:
        assert (await back.call("append_event", event("k"))).content["deduplicated"] is False
        assert await found(back, "lost") == []


async def test_without_the_encoder_budgets_hold(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes are counted instead of tokens, so no text costs more than was asked for, in any script."""
    real = token_counter()
    assert real.name == "o200k"
    monkeypatch.setitem(sys.modules, "rs_bpe", None)
    monkeypatch.setitem(sys.modules, "rs_bpe.bpe", None)
    token_counter.cache_clear()
    try:
        assert token_counter().name == "bytes"
        async with serving(memory) as served:
            for text in SCRIPTS:
                await served.call("append_event", event(text=text))
                await keep(served, text)
            result, _ = await ask_core(served, "query_event_nodes", format="text", max_tokens=900)
            assert "[e:" in result
            assert real.count(result) <= len(result.encode()) <= 900
            recalled = await ask(served, "recall", tokenBudget=900)
            assert recalled["fragments"]
            assert real.count(str(recalled["fragments"])) <= 900
    finally:
        token_counter.cache_clear()


def test_each_row_names_tests_that_are_there() -> None:
    """The table of docs/degradation.md claims nothing that no test proves."""
    page = (ROOT / "docs" / "degradation.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 7
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, name in named:
            functions = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
            assert name in [getattr(node, "name", None) for node in functions], f"{path}::{name}"
