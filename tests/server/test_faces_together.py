"""What is kept through one face is found through every other that may see it, and by nobody else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from myria.access.principal import ApiName
from myria.access.store import AccessStore
from myria.memory import Memory
from myria.notes.answertext import NOTHING
from myria.notes.model import Changes
from myria.settings import AuthSettings, Settings, TurnsSettings
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import Served, call, event, headers, serving
from tests.support.keys import make_key

API_NAMES: tuple[ApiName, ...] = ("core", "agent", "turns", "rest")
SESSION = "shop/s1"
"""A session of turns as a context; over REST it is named so, too."""


@pytest.fixture
def settings() -> Settings:
    """Every face is on, and wants a key."""
    return Settings(auth=AuthSettings(mode="keys"), turns=TurnsSettings(enabled=True))


@pytest.fixture
async def served(memory: Memory, settings: Settings) -> AsyncIterator[Served]:
    """A server of all faces."""
    async with serving(memory, settings) as one:
        yield one


@dataclass(frozen=True)
class Caller:
    """Who calls each face with one key."""

    served: Served
    key: str

    async def tool(self, face: ApiName, name: str, arguments: Any) -> str:
        """Return the answer of a tool as text."""
        sent = headers(name) | {"authorization": f"Bearer {self.key}"}
        response = await self.served.post(call(name, arguments), sent, path=PATH_OF[face])
        assert response.status_code == 200, response.text
        result = response.json()["result"]
        assert not result["isError"], response.text
        return response.text

    async def rest(self, method: str, path: str, body: Any = None) -> str:
        """Return the answer of a route as text."""
        sent = {"x-api-key": self.key}
        response = await self.served.client.request(method, PREFIX + path, json=body, headers=sent)
        assert response.status_code in (200, 201), response.text
        return response.text


Keep = Callable[[Caller, str], Awaitable[str]]
Find = Callable[[Caller, str], Awaitable[str]]


def _turn(text: str) -> dict[str, Any]:
    return {
        "project": "shop",
        "session_id": "s1",
        "turn_id": "t1",
        "input_items": [{"role": "user", "content": text}],
        "output_items": [{"role": "assistant", "content": "Noted."}],
    }


KEPT: dict[str, Keep] = {
    "core append": lambda who, text: who.tool(
        "core", "append_event", {**event(text=text, context_id=SESSION), "participants": ["ada"]}
    ),
    "agent remember": lambda who, text: who.tool(
        "agent", "remember", {"content": text, "topic": "garden", "type": "fact", "sessionId": SESSION}
    ),
    "turns after": lambda who, text: who.tool("turns", "memory_after_turn", _turn(text)),
    "REST post": lambda who, text: who.rest(
        "POST", "/memories", {"agent_id": "bot", "content": text, "session_id": SESSION}
    ),
    "memtrace tool": lambda who, text: who.tool(
        "rest", "memtrace_remember", {"agent_id": "bot", "content": text, "session_id": SESSION}
    ),
}

FOUND: dict[str, Find] = {
    "core query": lambda who, words: who.tool("core", "query_event_nodes", {"query": words}),
    "agent recall": lambda who, words: who.tool("agent", "recall", {"text": words}),
    "turns before": lambda who, words: who.tool(
        "turns",
        "memory_before_turn",
        {"project": "shop", "session_id": "s1", "current_input": words},
    ),
    "REST search": lambda who, words: who.rest("POST", "/search", {"content_contains": words}),
    "REST list": lambda who, _: who.rest("GET", "/memories?limit=1000"),
    "REST session": lambda who, _: who.rest("GET", "/sessions/shop%2Fs1/memories"),
    "memtrace search": lambda who, words: who.tool("rest", "memtrace_search", {"content_contains": words}),
}

NOTES_ALONE = {"REST list", "REST session"}
"""Lists hold what was kept as a statement; a raw event is found by its words."""

RAW = {"core append", "turns after"}


@pytest.mark.parametrize("by", KEPT)
async def test_what_one_face_keeps_every_other_finds(served: Served, store: AccessStore, by: str) -> None:
    """With one key for all faces."""
    who = Caller(served, await make_key(store, "ada", faces=API_NAMES))
    await who.tool("turns", "memory_after_turn", {**_turn("Good morning"), "turn_id": "t0"})
    await KEPT[by](who, "The quince tree stands behind the shed")
    missing = [name for name, find in FOUND.items() if "behind the shed" not in await find(who, "quince tree")]
    assert set(missing) == (NOTES_ALONE if by in RAW else set())


@pytest.mark.parametrize("by", KEPT)
async def test_nobody_else_finds_it(served: Served, store: AccessStore, by: str) -> None:
    """Of another tenant nobody; others of this one what is shared over REST, through faces that share it."""
    ada = Caller(served, await make_key(store, "ada", faces=API_NAMES))
    await ada.tool("turns", "memory_after_turn", {**_turn("Good morning"), "turn_id": "t0"})
    await KEPT[by](ada, "The quince tree stands behind the shed")
    stranger = Caller(served, await make_key(store, "ada", faces=API_NAMES, tenant="other"))
    bob = Caller(served, await make_key(store, "bob", faces=API_NAMES))
    alone = Caller(served, await make_key(store, "bob", faces=("core", "agent", "turns")))
    own = Caller(served, await make_key(store, "ada", faces=("core", "agent", "turns")))
    is_shared = by in ("REST post", "memtrace tool")
    through_rest = {"agent recall", "REST search", "REST list", "REST session", "memtrace search"}
    for name, find in FOUND.items():
        assert "behind the shed" not in await find(stranger, "quince tree"), name
        assert ("behind the shed" in await find(bob, "quince tree")) == (is_shared and name in through_rest), name
        if name not in through_rest or name == "agent recall":
            assert "behind the shed" not in await find(alone, "quince tree"), name
            assert "behind the shed" in await find(own, "quince tree"), name


ASKED: dict[str, Find] = {
    "core query": lambda who, words: who.tool("core", "query_event_nodes", {"query": words, "format": "text"}),
    "core tree": lambda who, words: who.tool("core", "query_references", {"query": words, "format": "text"}),
    "agent recall": FOUND["agent recall"],
    "turns before": FOUND["turns before"],
    "REST search": lambda who, words: who.rest("POST", "/search", {"query": words}),
}
SAYS_SO = {"core query": NOTHING, "core tree": NOTHING, "agent recall": NOTHING, "REST search": '"results":[]'}
"""How an answer says that nothing is remembered; before a turn there is no block of memory then."""


@pytest.mark.parametrize("by", KEPT)
@pytest.mark.parametrize("wrapped", ["{}?", "search my memory for {}", "What do you remember about {}?"])
async def test_nothing_is_found_where_nothing_fits(served: Served, store: AccessStore, by: str, wrapped: str) -> None:
    """Through every API in the same way, whoever kept what there is and however the question is put."""
    who = Caller(served, await make_key(store, "ada", faces=API_NAMES))
    await who.tool("turns", "memory_after_turn", {**_turn("Good morning"), "turn_id": "t0"})
    await KEPT[by](who, "The quince tree stands behind the shed")
    for name, find in ASKED.items():
        # the last items of a session stand before its next turn, whatever that asks
        if (by, name) != ("turns after", "turns before"):
            answer = await find(who, wrapped.format("aubergines"))
            assert "behind the shed" not in answer, name
            assert SAYS_SO.get(name, "") in answer, name
        assert "behind the shed" in await find(who, wrapped.format("the quince tree")) or by in RAW


async def test_notes_of_other_faces_are_memories_over_rest(served: Served, store: AccessStore) -> None:
    """They are listed with others by time, filtered by what they are, changed and withdrawn."""
    who = Caller(served, await make_key(store, "ada", may_ask=(), faces=API_NAMES))
    said = {
        "content": "Preorders open in April",
        "topic": "shop",
        "type": "decision",
        "keywords": ["Preorders", "april"],
    }
    await who.tool("agent", "remember", said)
    await who.rest("POST", "/memories", {"agent_id": "bot", "content": "Crawled it", "memory_type": "decision"})
    await who.tool("agent", "remember", {"content": "It failed at noon", "topic": "shop", "type": "error"})
    await who.tool("turns", "memory_after_turn", _turn("Hello, my name is Quince."))

    async def listed(query: str = "") -> list[dict[str, Any]]:
        memories: list[dict[str, Any]] = json.loads(await who.rest("GET", f"/memories?{query}"))["memories"]
        return memories

    texts = [memory["content"] for memory in await listed("order=asc")]
    assert texts[:3] == ["Preorders open in April", "Crawled it", "It failed at noon"]
    assert len(texts) == 4
    assert texts[3] == "name: Quince"
    by_pages = [(await listed(f"order=asc&limit=1&offset={offset}"))[0]["content"] for offset in range(4)]
    assert by_pages == texts
    decided, failed = (await listed("order=asc&agent_id=default"))[:2]
    assert (
        decided.items() >= {"memory_type": "decision", "event_type": "decision", "metadata": {"topic": "shop"}}.items()
    )
    assert (failed["memory_type"], failed["event_type"]) == ("episodic", "error")
    assert [memory["content"] for memory in await listed("memory_type=decision&order=asc")] == texts[:2]
    assert [memory["content"] for memory in await listed("event_type=error")] == texts[2:3]
    assert await listed("tags=april") == [decided]
    assert (await listed("session_id=shop/s1"))[0]["content"] == texts[3]
    assert json.loads(await who.rest("GET", f"/memories/{decided['id']}")) == decided
    changed = json.loads(await who.rest("PATCH", f"/memories/{decided['id']}", {"content": "Preorders open in May"}))
    assert (changed["version"], changed["time"], changed["tags"]) == (2, decided["time"], decided["tags"])
    assert "open in May" in await who.tool("agent", "recall", {"text": "preorders"})
    refused = await served.client.patch(
        f"{PREFIX}/memories/{decided['id']}", json={"event_type": "x"}, headers={"x-api-key": who.key}
    )
    assert (refused.status_code, refused.json()["field"]) == (400, "event_type")
    gone = await served.client.delete(f"{PREFIX}/memories/{failed['id']}", headers={"x-api-key": who.key})
    assert gone.status_code == 204
    assert "failed" not in await who.tool("agent", "recall", {"text": "failed at noon"})


async def test_a_memory_that_an_agent_amends_stays_with_its_own(
    served: Served, store: AccessStore, memory: Memory
) -> None:
    """It is listed by the agent that it shows, and counts among that one's."""
    who = Caller(served, await make_key(store, "ada", faces=API_NAMES))
    kept = json.loads(await who.rest("POST", "/memories", {"agent_id": "bot", "content": "Quinces ripen late"}))
    changes = Changes(content="Quinces ripen in October")
    await memory.notes.amend("default", kept["id"], changes, may_see=lambda _: True, contract="memento", speaker="carl")
    (listed,) = json.loads(await who.rest("GET", "/memories?agent_id=bot"))["memories"]
    assert (listed["agent_id"], listed["content"]) == ("bot", "Quinces ripen in October")
    assert json.loads(await who.rest("GET", "/memories?agent_id=carl"))["memories"] == []
    assert json.loads(await who.rest("GET", "/agents/bot/stats"))["memory_count"] == 1


async def test_a_note_of_a_session_stays_in_it(served: Served, store: AccessStore) -> None:
    """It is listed in its session alone."""
    who = Caller(served, await make_key(store, "ada", faces=API_NAMES))
    said = {"content": "Draft seven", "topic": "shop", "type": "fact", "scope": "session", "sessionId": "s7"}
    await who.tool("agent", "remember", said)
    assert "Draft seven" not in await who.rest("GET", "/memories")
    assert "Draft seven" not in await who.rest("GET", "/memories?session_id=s8")
    assert "Draft seven" in await who.rest("POST", "/sessions/s7/context")


async def test_what_is_shared_is_forgotten_by_id_alone(served: Served, store: AccessStore) -> None:
    """A topic or a text forgets what the agent holds, and nothing of the organisation's."""
    ada = Caller(served, await make_key(store, "ada", faces=API_NAMES))
    bob = Caller(served, await make_key(store, "bob", faces=API_NAMES))
    kept = json.loads(await ada.rest("POST", "/memories", {"agent_id": "bot", "content": "Quinces ripen late"}))
    await bob.tool("agent", "forget", {"text": "Quinces ripen late", "force": True})
    assert "ripen late" in await ada.rest("GET", "/memories")
    await bob.tool("agent", "forget", {"id": kept["id"], "force": True})
    assert "ripen late" not in await ada.rest("GET", "/memories")
