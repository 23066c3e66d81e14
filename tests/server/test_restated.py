"""One fact that was kept six times fills no budget: it is told once, the newest time, with how often besides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from myria.log.event import NewEvent
from myria.memory import Memory
from myria.notes.turns.items import text_of
from myria.settings import Settings, TurnsSettings
from tests.server.test_agent import ask, keep, raw
from tests.server.wire import MODERN, Served, call, headers
from tests.support.builds import build
from tests.support.postgres import Database
from tests.turns.hosts import Host

FACTS = {
    "deploy": (
        [
            "The deploy of the billing service must be approved by Petra.",
            "Petra must approve the deploy of the billing service.",
            "Deploys of the billing service need approval by Petra!",
            "Billing service deploy: Petra has to approve it.",
            "As said, the deploy of billing service must be approved by Petra.",
            "Reminder: the billing service deploy must be approved by Petra.",
        ],
        "The billing service deploy window is Tuesday from 9 to 11.",
        "What do I need for the deploy of the billing service?",
    ),
    "alarm": (
        [
            "The alarm code of the workshop is 4471.",
            "Note: the alarm code of the workshop is 4471",
            "The alarm code of the workshop is 4471!",
            "By the way, the alarm code of the workshop is 4471",
            "The alarm code of the workshop is 4471, as I said before",
            "To repeat: the workshop alarm code is 4471",
        ],
        "The alarm of the workshop is off on Sundays from 8 to 20.",
        "What do I need to know of the alarm of the workshop?",
    ),
    "ofen": (
        [
            "Der Brennofen wird jeden Freitag von Inês gereinigt.",
            "Wie gesagt, der Brennofen wird jeden Freitag von Inês gereinigt.",
            "Zur Erinnerung: Der Brennofen wird jeden Freitag von Inês gereinigt!",
            "Übrigens: der Brennofen wird jeden Freitag von Inês gereinigt",
            "Hinweis: Der Brennofen wird jeden Freitag von Inês gereinigt",
        ],
        "Der Brennofen bleibt am 24. Dezember kalt.",
        "Was gilt für den Brennofen?",
    ),
    "会社": (
        [
            "本社は渋谷にあります。",
            "念のため、本社は渋谷にあります",
            "本社は渋谷にあります！",
            "再掲：本社は渋谷にあります。",
        ],
        "本社の社員は八十人です。",
        "本社について教えてください",
    ),
}
EACH = pytest.mark.parametrize(("again", "other", "question"), FACTS.values(), ids=list(FACTS))


@pytest.fixture
def settings() -> Settings:
    """Turns that show next to nothing of what was said last, and few pieces of what was said before."""
    return Settings(turns=TurnsSettings(enabled=True, recent_context_items=1, search_limit=2))


async def keep_all(served: Served, again: list[str], other: str) -> None:
    for text in again:
        await keep(served, text, type="fact")
    await keep(served, other, type="fact")


@EACH
async def test_recall_tells_a_fact_once(served: Served, again: list[str], other: str, question: str) -> None:
    """In a small budget there is room for the other fact; the structured content says how many were alike."""
    await keep_all(served, again, other)
    result = await raw(served, "recall", {"text": question, "tokenBudget": 120})
    text = result["content"][0]["text"]
    assert other in text
    assert again[-1] in text
    assert f"({len(again) - 1} more alike)" in text
    answer = await ask(served, "recall", text=question)
    assert {item["content"]: item.get("alike", 0) for item in answer["fragments"]} == {
        again[-1]: len(again) - 1,
        other: 0,
    }


@EACH
async def test_context_tells_a_fact_once(served: Served, again: list[str], other: str, question: str) -> None:
    """The same where a session begins."""
    await keep_all(served, again, other)
    text = (await ask(served, "context"))["injectionText"]
    assert other in text
    assert f"{again[-1]} ({len(again) - 1} more alike)" in text
    assert text.count("\n- 2") == 2  # a fence may hold a 2 as well


@EACH
async def test_session_contexts_over_rest_tell_a_fact_once(
    served: Served, again: list[str], other: str, question: str
) -> None:
    """Where there is a bound; without one every memory has its line."""
    for text in [*again, other]:
        body = {"agent_id": "bot", "memory_type": "decision", "event_type": "rule", "session_id": "s", "content": text}
        assert (await served.client.post("/api/v1/memories", json=body)).status_code == 201
    path = "/api/v1/sessions/s/context"
    bounded = (await served.client.post(path, json={"max_tokens": 2_000})).json()
    assert bounded["memory_count"] == 2
    assert f"({len(again) - 1} more alike)" in bounded["context"]
    assert (await served.client.post(path, json={})).json()["memory_count"] == len(again) + 1


@EACH
async def test_turns_recall_a_fact_once(memory: Memory, again: list[str], other: str, question: str) -> None:
    """The few pieces of earlier turns that come before a new one hold it once."""
    host = Host(memory)
    for number, text in enumerate([*again, other]):
        await host.after(f"t{number}", text, answer="")
    await host.after("t", "Thank you", answer="")
    prepared = await host.before(question)
    chunks = orjson.loads(text_of(prepared.items[1]).split("\n")[1])["chunks"]
    assert {chunk["text"]: chunk.get("alike", 0) for chunk in chunks} == {again[-1]: len(again) - 1, other: 0}


async def say(memory: Memory, texts: list[str]) -> None:
    """Append what Ana said, a day apart."""
    await memory.log.append_events(
        "default",
        [
            NewEvent(
                timestamp=1_771_000_000_000_000 + at * 86_400_000_000,
                channel="chat",
                participants=("ana",),
                payload_json=orjson.dumps({"text": text, "speaker": "Ana"}),
            )
            for at, text in enumerate(texts)
        ],
    )


async def asked(served: Served, tool: str, **more: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of a query and its events, in their order."""
    arguments = {"participants": ["ana"], "view": "lean", **more}
    name = f"myria.{tool}"
    answer = await served.post(call(name, arguments, version=MODERN), headers(name, version=MODERN))
    result = answer.json()["result"]
    return result["content"][0]["text"], list(events(result["structuredContent"]["root"]))


def events(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for child in node["children"]:
        if "children" in child:
            yield from events(child)
        else:
            yield child


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize("tool", ["query_event_nodes", "query_references"])
@EACH
async def test_queries_tell_a_fact_once_within_tokens(  # noqa: PLR0917 - fixtures
    served: Served,
    memory: Memory,
    database: Database,
    tool: str,
    is_built: bool,
    again: list[str],
    other: str,
    question: str,
) -> None:
    """With max_tokens, as text and as JSON; without it every event has its place."""
    await say(memory, [*again[:2], other, *again[2:]])
    if is_built:
        await build(database)
    expected = {again[-1]: len(again) - 1, other: 0}
    text, shown = await asked(served, tool, query=question, max_tokens=2_000, format="text")
    assert {event["text"]: event.get("alike", 0) for event in shown} == expected
    assert f"({len(again) - 1} more alike)" in text
    _, shown = await asked(served, tool, query=question, max_tokens=2_000)
    assert {event["text"]: event.get("alike", 0) for event in shown} == expected
    _, shown = await asked(served, tool, query=question)
    assert sorted(event["text"] for event in shown) == sorted([*again, other])


@pytest.mark.parametrize("tokens", [300, 400, 600])
async def test_pages_of_queries_miss_nothing_that_is_told_once(served: Served, memory: Memory, tokens: int) -> None:
    """Whatever a page has room for: no event is on two of them, and together they stand for all."""
    again, other, question = FACTS["deploy"]
    await say(memory, [*again[:2], other, *again[2:], "The deploy of the billing service needs a ticket."])
    seen: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    for _ in range(20):
        name = "myria.query_event_nodes"
        arguments = {"participants": ["ana"], "query": question, "max_tokens": tokens, "view": "lean", **more}
        answer = await served.post(call(name, arguments, version=MODERN), headers(name, version=MODERN))
        content = answer.json()["result"]["structuredContent"]
        seen += events(content["root"])
        if content.get("next_cursor") is None:
            break
        more = {"cursor": content["next_cursor"]}
    assert len({event["event_id"] for event in seen}) == len(seen)
    assert sum(1 + event.get("alike", 0) for event in seen) == len(again) + 2


async def test_pages_miss_nothing_that_is_told_once(served: Served) -> None:
    """Page by page every fact is shown, and each page counts those that it stands for."""
    again, other, question = FACTS["deploy"]
    await keep_all(served, again, other)
    told: list[dict[str, Any]] = []
    cursor = None
    while cursor is not None or not told:
        more: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        page = await ask(served, "recall", text=question, pageSize=3, tokenBudget=400, **more)
        told += page["fragments"]
        cursor = page.get("nextCursor")
    assert sum(1 + item.get("alike", 0) for item in told) == len(again) + 1
    assert other in {item["content"] for item in told}
