"""Whatever a writer stores, at every face, holds no key or token: texts lose it, and names that hold one are refused.

The whole database is looked through afterwards, so a field that is added takes part by itself.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from myria.memory import Memory
from myria.settings import Settings, TurnsSettings
from myria_server.api.tools import path_of
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import BASE_HEADERS, Served, call, event, serving
from tests.support.postgres import Database

SECRET = "sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3"
OTHER = "ghp_016C7B1d2e3F4a5b6C7d8E9f0A1b2C3d4E5f"
SETTINGS = Settings(turns=TurnsSettings(enabled=True))
MEMORY = {"agent_id": "bot", "content": "The kiln is hot"}
NOTE = {"content": "The kiln is hot"}
FELT = {"tool_name": "recall", "relevant": True, "sufficient": True}
SAID = [{"role": "user", "content": "hi"}]


async def held(database: Database, *words: str) -> list[str]:
    """Return where in the database these words stand, whatever invisible stands within them."""
    found = []
    connection = await asyncpg.connect(database.dsn)
    try:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE nspname = 'myria' AND relkind IN ('r', 'p')"
        )
        for table in tables:
            rows = await connection.fetch(f'SELECT t::text AS row FROM myria."{table["relname"]}" t')
            for row in rows:
                seen = "".join(letter for letter in row["row"] if letter.isascii())
                found += [table["relname"] for word in words if word in seen]
    finally:
        await connection.close()
    return found


async def use(served: Served, tool: str, arguments: Any) -> dict[str, Any]:
    """Call a tool; return the content of its answer."""
    path = path_of(tool.removeprefix("myria_"))
    response = await served.post(call(tool, arguments, version=None), BASE_HEADERS, path=path)
    content: dict[str, Any] = response.json()["result"]["structuredContent"]
    return content


@pytest.mark.parametrize(
    "given",
    [
        {"dedup_key": SECRET},
        {"dedup_key": f"once {OTHER}"},
        {"parent_id": SECRET},
        {"event_type": OTHER},
        {"metadata": {"more": {SECRET: OTHER}}},
        {"content": f"use {SECRET}", "dedup_key": SECRET},
        {"agent_id": OTHER},
    ],
    ids=str,
)
async def test_texts_of_a_memory_lose_a_secret(database: Database, memory: Memory, given: dict[str, Any]) -> None:
    """Of REST, one by one and several at once; two with such keys of repeats are two memories."""
    async with serving(memory, SETTINGS) as served:
        kept = await served.client.post(f"{PREFIX}/memories", json=MEMORY | given)
        assert kept.status_code == 201, kept.text
        assert SECRET not in kept.text
        assert OTHER not in kept.text
        for place, more in enumerate((given, {"dedup_key": f"{SECRET}x"})):
            two = [MEMORY | more | {"content": f"{place} {number} {more}"} for number in (1, 2)]
            if "dedup_key" in more:
                two[1]["dedup_key"] = f"{SECRET}y"
            several = await served.client.post(f"{PREFIX}/memories", json={"memories": two})
            assert several.json()["count"] == 2, several.text
    assert await held(database, SECRET, OTHER) == []


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("remember", NOTE | {"sessionId": SECRET}),
        ("remember", NOTE | {"sessionId": SECRET, "scope": "session"}),
        ("remember", NOTE | {"agentId": OTHER}),
        ("reflect", {"summary": "A day", "sessionId": f"s-{OTHER}"}),
        ("tool_feedback", FELT | {"session_id": SECRET}),
        ("myria_append_event", event(context_id=SECRET)),
        ("myria_append_event", event(source_event_key=f"job:{OTHER}")),
        ("myria_append_event", event(type=OTHER)),
        ("myria_append_event", event(channel=SECRET)),
        ("myria_append_event", event() | {"participants": ["ada", SECRET]}),
        ("memory_after_turn", {"session_id": SECRET, "input_items": SAID}),
        ("memory_after_turn", {"project": OTHER, "input_items": SAID}),
        ("memory_after_turn", {"user_id": OTHER, "input_items": SAID}),
        ("memtrace_agent_register", {"name": OTHER}),
        ("memtrace_remember", MEMORY | {"session_id": OTHER}),
    ],
    ids=str,
)
async def test_a_name_that_is_a_secret_is_refused(
    database: Database, memory: Memory, tool: str, arguments: dict[str, Any]
) -> None:
    """Two that were redacted would be one: so the caller is told to choose another."""
    async with serving(memory, SETTINGS) as served:
        text = str(await use(served, tool, arguments))
        assert "key or token" in text, text
        assert SECRET not in text
        assert OTHER not in text
    assert await held(database, SECRET, OTHER) == []


@pytest.mark.parametrize(
    "hidden", ["\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\ufe0f", "\u034f", "\U000e0061"], ids=ascii
)
async def test_a_secret_that_is_split_by_what_nobody_sees_is_taken_out(
    database: Database, memory: Memory, hidden: str
) -> None:
    """Everywhere, as if nothing stood between its letters."""
    split = SECRET[:9] + hidden + SECRET[9:16] + hidden * 2 + SECRET[16:]
    password = f"pass{hidden}word: hunter{hidden}2"
    async with serving(memory, SETTINGS) as served:
        for tool, arguments in (
            ("remember", {"content": f"use {split}", "topic": split, "keywords": [split], "goal": password}),
            ("myria_append_event", event() | {"payload": {"text": f"use {split}", f"pass{hidden}word": "hunter2"}}),
            ("myria_append_event", event(topic_hints=[{"hint": split, "confidence": 1}])),
            ("memory_after_turn", {"input_items": [{"role": "user", "content": f"{split} {password}"}]}),
            ("memtrace_remember", MEMORY | {"content": split, "dedup_key": split, "metadata": {"m": password}}),
            ("tool_feedback", FELT | {"suggestion": split}),
        ):
            answer = await use(served, tool, arguments)
            assert "retryable" not in answer, answer
            assert "error" not in answer, answer
    assert await held(database, SECRET, SECRET[16:], "hunter2") == []


@pytest.mark.parametrize(
    "name",
    [
        "api:9f8e7d6c5b4a3f2e1d0c",
        "auth-token-rotated:2026-11-28",
        "pwd:reset:17",
        "ana@example.org",
        "5f0c2c1e-9d2b-4a57",
    ],
)
async def test_names_that_only_look_busy_stay(memory: Memory, name: str) -> None:
    """A word such as key or token beside digits proves nothing of a name."""
    async with serving(memory, SETTINGS) as served:
        stored = await use(served, "myria_append_event", event(name, context_id=name) | {"channel": name})
        assert "event_id" in stored, stored


async def test_joiners_stay_where_nothing_was_hidden(memory: Memory) -> None:
    """Emoji and scripts are made with them, also beside a secret that is taken out."""
    family, said = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    async with serving(memory, SETTINGS) as served:
        given = event() | {"payload": {"text": f"{family} {said} {SECRET}"}}
        stored = await use(served, "myria_append_event", given)
        asked = {"event_id": stored["event_id"], "participants": given["participants"]}
        read = await use(served, "myria_get_event", asked)
        assert read["event"]["payload"]["text"] == f"{family} {said} [REDACTED_API_KEY]"
