"""Long notes and events: every face shows the passage that answers, where it stands behind thousands of characters."""

from __future__ import annotations

import orjson
import pytest

from myria.log.event import NewEvent
from myria.memory import Memory
from myria.notes.turns.items import text_of
from myria.settings import Settings, TurnsSettings
from tests.server.test_agent import ask, keep, raw
from tests.server.wire import MODERN, Served, call, headers
from tests.turns.hosts import Host

ENGLISH = "".join(f"Paragraph {at} talks about vessel {at * 7} and clay body {at % 13}. " for at in range(50))
SPANISH = "".join(f"El párrafo {at} habla de la vasija {at * 7} y de la pasta {at % 13}. " for at in range(30))
JAPANESE = "".join(f"第{at}段落では器と粘土について述べます。" for at in range(200))

LONG = {
    "cobalt": (f"{ENGLISH}The blue glaze is made with cobalt carbonate.", "What is the blue glaze made with?"),
    "van": (f"The blue van is outside. {ENGLISH}The blue glaze is of cobalt.", "Is the blue glaze of cobalt?"),
    "nevera": (f"{SPANISH}La llave del horno está en la nevera. {SPANISH}", "¿Dónde está la llave del horno?"),
    "コバルト": (f"{JAPANESE}青い釉薬は炭酸コバルトで作ります。", "青い釉薬は何で作りますか"),
}
EXPECTED = {word: "cobalt" if word == "van" else word for word in LONG}
CASES = [(text, question, EXPECTED[word]) for word, (text, question) in LONG.items()]
EACH = pytest.mark.parametrize(("text", "question", "word"), CASES, ids=list(LONG))


@pytest.fixture
def settings() -> Settings:
    """Turns that show next to nothing of what was said last."""
    return Settings(turns=TurnsSettings(enabled=True, recent_context_items=1))


@EACH
async def test_recall_shows_the_passage_that_answers(served: Served, text: str, question: str, word: str) -> None:
    """In its text and in its structured content, in the usual budget and in a small one; and of a case."""
    await keep(served, text, type="fact", caseId="c1")
    for budget in (1_000, 250):
        result = await raw(served, "recall", {"text": question, "tokenBudget": budget})
        assert word in result["content"][0]["text"]
        (fragment,) = result["structuredContent"]["fragments"]
        assert (word in fragment["content"]) or fragment["content"] == ""
    assert word in result["structuredContent"]["fragments"][0]["content"]
    cases = await ask(served, "recall", text=question, caseMode=True)
    assert word in cases["cases"][0]["events"][0]["summary"]


@EACH
async def test_queries_show_the_passage_that_answers(
    served: Served, memory: Memory, text: str, question: str, word: str
) -> None:
    """As text within a budget, and as a snippet of a reference."""
    payload = orjson.dumps({"text": text * 4, "speaker": "Ana"})
    await memory.log.append_events(
        "default", [NewEvent(timestamp=10**15, channel="chat", participants=("ana",), payload_json=payload)]
    )
    asked = {"participants": ["ana"], "query": question}
    for tool, more in (
        ("query_event_nodes", {"format": "text", "max_tokens": 500}),
        ("query_references", {"format": "text", "max_tokens": 500}),
        ("query_references", {}),
    ):
        name = f"myria.{tool}"
        answer = await served.post(call(name, asked | more, version=MODERN), headers(name, version=MODERN))
        assert word in answer.json()["result"]["content"][0]["text"], tool


@EACH
async def test_session_contexts_over_rest_show_the_passage_that_answers(
    served: Served, text: str, question: str, word: str
) -> None:
    """A line of a context is short; with a query it is the passage of that."""
    body = {"agent_id": "bot", "content": text, "memory_type": "episodic", "event_type": "observation"}
    kept = await served.client.post("/api/v1/memories", json={**body, "session_id": "s"})
    assert kept.status_code == 201, kept.text
    context = await served.client.post("/api/v1/sessions/s/context", json={"query": question})
    assert word in context.json()["context"]


@EACH
async def test_turns_recall_the_passage_that_answers(memory: Memory, text: str, question: str, word: str) -> None:
    """A piece of an earlier turn says where in its text it stands."""
    host = Host(memory)
    await host.after("t1", text)
    await host.after("t2", "Thank you")
    prepared = await host.before(question)
    data = orjson.loads(text_of(prepared.items[1]).split("\n")[1])
    (chunk,) = [chunk for chunk in data["chunks"] if word in chunk["text"]]
    raw_text = text.encode()
    assert raw_text[chunk["start_bytes"] : chunk["end_bytes"]].decode() == chunk["text"]
