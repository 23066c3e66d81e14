"""REST: the routes of its contract, what they answer and refuse, dedup, paging, and who sees what."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest

from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.errors import DuplicateMemory
from myria.log.withdrawal.commands import Withdrawals
from myria.memory import Memory
from myria.notes.answertext import NOTHING
from myria.notes.memories.model import MemoryChanges, MemoryDraft
from myria.notes.memories.sharing import Keeping
from myria.settings import AuthSettings, RestSettings, Settings
from myria.text.model_tokens import token_counter
from myria_server.api.memtrace.handlers import ROUTES, _read_drafts
from myria_server.api.tools import TOOLS, output_schema
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import Served, call, event, headers, listed, serving
from tests.support.building import build_now
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

SAID = {"agent_id": "bot", "content": "Crawled https://example.com"}


async def ask(served: Served, method: str, path: str, body: Any = None, *, status: int = 200, **sent: str) -> Any:
    """Return what a route answers, None where it answers nothing."""
    lines = {name.replace("_", "-"): value for name, value in sent.items()}
    response = await served.client.request(method, PREFIX + path, json=body, headers=lines)
    assert response.status_code == status, (method, path, response.status_code, response.text)
    answered: Any = response.json() if response.content else None
    if status >= 400:
        assert isinstance(answered["error"], str)
    return answered


async def test_reading_a_large_batch_lets_others_in() -> None:
    """Other tasks of the event loop run several times while 500 memories are read."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    drafts = await _read_drafts([SAID] * 500, all_or_none=True)
    task.cancel()
    assert len(drafts) == 500
    assert turns >= 10


async def test_a_memory_is_kept_found_changed_and_withdrawn(served: Served) -> None:
    """It has an id that stays, and is read at once."""
    whole = {
        **SAID,
        "session_id": "s1",
        "memory_type": "decision",
        "event_type": "page_crawled",
        "metadata": {"pages": 3},
        "tags": ["web", "v1.2"],
        "importance": 0.7,
        "parent_id": "note_x",
    }
    kept = await ask(served, "POST", "/memories", whole, status=201)
    assert kept.items() >= {**whole, "org_id": "default"}.items()
    assert await ask(served, "GET", f"/memories/{kept['id']}") == kept
    listed = await ask(served, "GET", "/memories?agent_id=bot&tags=web,v1.2")
    assert listed == {"memories": [kept], "count": 1, "has_more": False}
    found = await ask(served, "POST", "/search", {"content_contains": "example", "min_importance": 0.5})
    assert found["results"] == [kept]
    changed = await ask(served, "PATCH", f"/memories/{kept['id']}", {"content": "Crawled it twice", "tags": []})
    assert (changed["id"], changed["time"], changed["version"]) == (kept["id"], kept["time"], 2)
    assert "tags" not in changed
    assert (await ask(served, "POST", "/search", {"content_contains": "example"}))["results"] == []
    assert await ask(served, "DELETE", f"/memories/{kept['id']}", status=204) is None
    for method, body in (("GET", None), ("PATCH", {"content": "x"}), ("DELETE", None)):
        refused = await ask(served, method, f"/memories/{kept['id']}", body, status=404)
        assert refused["error"] == "memory not found"
    assert (await ask(served, "GET", "/memories"))["memories"] == []


async def test_a_refused_duplicate_is_told_which_memory_stands(served: Served) -> None:
    """Alone and with all or none, also where many are kept at once; it is one that every key of this face sees."""
    answers = await asyncio.gather(*(served.client.post(f"{PREFIX}/memories", json=SAID) for _ in range(32)))
    (kept,) = [answer.json() for answer in answers if answer.status_code == 201]
    assert {answer.json().get("id") for answer in answers} == {kept["id"]}
    several = {"memories": [{**SAID, "content": "new"}, SAID], "atomic": True}
    refused = await ask(served, "POST", "/memories", several, status=409)
    assert (refused["id"], refused["index"]) == (kept["id"], 1)
    twice = {"memories": [{**SAID, "content": "new"}] * 2, "atomic": True}
    refused = await ask(served, "POST", "/memories", twice, status=409)
    assert ("id" in refused, refused["index"]) == (False, 1)


async def test_a_changed_memory_is_known_by_what_it_says_now(served: Served) -> None:
    """Its old words may be kept again and its new ones are a duplicate; a key that its writer gave stays."""
    kept = await ask(served, "POST", "/memories", SAID, status=201)
    change = {"content": "Crawled it twice", "event_type": "again"}
    changed = await ask(served, "PATCH", f"/memories/{kept['id']}", change, idempotency_key="k")
    assert changed["dedup_key"] != kept["dedup_key"]
    assert await ask(served, "PATCH", f"/memories/{kept['id']}", change, idempotency_key="k") == changed
    assert await ask(served, "GET", f"/memories/{kept['id']}") == changed
    refused = await ask(served, "POST", "/memories", {**SAID, **change}, status=409)
    assert refused["id"] == kept["id"]
    again = await ask(served, "POST", "/memories", SAID, status=201)
    assert again["dedup_key"] == kept["dedup_key"]
    own = await ask(served, "POST", "/memories", {**SAID, "content": "Mine", "dedup_key": "mine"}, status=201)
    assert (await ask(served, "PATCH", f"/memories/{own['id']}", change))["dedup_key"] == "mine"


async def test_the_best_come_first(served: Served) -> None:
    """What is most about a question comes first, within every filter, as it stands now."""
    kept = {}
    for agent, text, tags in (
        ("bot", "Ada prefers green tea in the morning", ["a"]),
        ("bot", "The kiln is heated to 900 degrees", ["a", "b"]),
        ("cat", "Tea is kept in the second drawer", ["b"]),
        ("cat", "Nothing of this", []),
    ):
        body = {"agent_id": agent, "content": text, "tags": tags, "session_id": f"s_{agent}"}
        kept[text.split()[0]] = await ask(served, "POST", "/memories", body, status=201)

    async def found(**asked: Any) -> list[str]:
        answer = await ask(served, "POST", "/search", asked)
        assert answer["count"] == len(answer["results"])
        return [memory["content"].split()[0] for memory in answer["results"]]

    whole = await found(query="Which tea does Ada prefer?")
    assert whole == ["Ada", "Tea"]
    assert await found(query="Which tea does Ada prefer?", limit=2, offset=1) == whole[1:3]
    assert (await ask(served, "POST", "/search", {"query": "tea", "limit": 1}))["has_more"] is True
    assert await found(query="tea", agent_id="cat", limit=1) == await found(query="tea", session_id="s_cat", limit=1)
    assert (await found(query="tea", agent_id="cat"))[0] == "Tea"
    assert await found(query="tea drawer", tags=["b"]) == ["Tea"]
    assert await found(query="tea", content_contains="drawer", since="1h") == ["Tea"]
    assert await found(query="tea", min_importance=0.5) == []
    await ask(served, "PATCH", f"/memories/{kept['Ada']['id']}", {"content": "Ada drinks coffee now"})
    assert await found(query="coffee") == ["Ada"]  # tea is something else
    await ask(served, "DELETE", f"/memories/{kept['Ada']['id']}", status=204)
    assert "Ada" not in await found(query="coffee")
    refused = await ask(served, "POST", "/search", {"query": "tea", "cursor": "x"}, status=400)
    assert refused["field"] == "cursor"


async def test_a_search_by_what_it_is_about_sees_what_lists_see(
    database: Database, memory: Memory, settings: Settings
) -> None:
    """What the organisation shares is found, and what belongs to others alone or to another tenant is not."""
    guarded = Settings(auth=AuthSettings(mode="keys"))
    async with access_store(database, "other") as store, serving(memory, guarded) as guarded_server:
        ana, ben = [await make_key(store, who, name=who, faces=("rest", "agent")) for who in ("ana", "ben")]
        far = await make_key(store, "ana", name="far", tenant="other", faces=("rest",))
        await ask(guarded_server, "POST", "/memories", SAID, status=201, x_api_key=ana)
        note = call("remember", {"content": "Ana alone crawled it", "topic": "web", "type": "fact"})
        sent = headers("remember") | {"authorization": f"Bearer {ana}"}
        assert (await guarded_server.post(note, sent, path="/mcp/agent")).json()["result"]["isError"] is False
        counts = []
        for key in (ana, ben, far):
            found = await ask(guarded_server, "POST", "/search", {"query": "who crawled it?"}, x_api_key=key)
            counts.append(found["count"])
        assert counts == [2, 1, 0]


async def test_what_is_left_out_has_the_contract_s_defaults(served: Served) -> None:
    """Empty optional values are as good as none, and are not answered."""
    kept = await ask(served, "POST", "/memories", {**SAID, "session_id": "", "tags": [], "metadata": None}, status=201)
    assert set(kept) == {"id", "time", "org_id", "agent_id", "memory_type", "event_type", "content", "dedup_key"}
    assert (kept["memory_type"], kept["event_type"]) == ("episodic", "general")
    # the first 32 digits of SHA-256("bot|general|Crawled https://example.com")
    assert len(kept["dedup_key"]) == 32


async def test_a_duplicate_is_refused_once_and_left_out_of_several(served: Served) -> None:
    """Of many at the same time one is stored; a batch answers those that are new, or with atomic none."""
    answers = await asyncio.gather(*(served.client.post(f"{PREFIX}/memories", json=SAID) for _ in range(32)))
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 31
    assert {answer.json()["error"] for answer in answers if answer.status_code == 409} == {"duplicate memory"}
    batch = [SAID, {**SAID, "content": "another"}, {**SAID, "content": "another"}]
    several = {"memories": batch}
    many = await asyncio.gather(*(served.client.post(f"{PREFIX}/memories", json=several) for _ in range(32)))
    assert {answer.status_code for answer in many} == {201}
    assert sum(answer.json()["count"] for answer in many) == 1
    refused = await ask(served, "POST", "/memories", {"memories": [SAID], "atomic": True}, status=409)
    assert refused["error"] == "duplicate memory"
    assert (await ask(served, "GET", "/memories"))["count"] == 2


async def test_each_of_several_by_itself(served: Served) -> None:
    """Left out, one that is wrong refuses all; with atomic false the others are kept, and each is told of."""
    batch = [SAID, {"agent_id": "bot"}, {**SAID, "memory_type": "dream"}]
    refused = await ask(served, "POST", "/memories", {"memories": batch}, status=400)
    assert (refused["error"], refused["index"]) == ("memories[1]: content is required", 1)
    assert (await ask(served, "GET", "/memories"))["count"] == 0
    answer = await ask(served, "POST", "/memories", {"memories": batch, "atomic": False}, status=201)
    assert [result["status"] for result in answer["results"]] == ["stored", "refused", "refused"]
    assert answer["count"] == 1


async def test_an_idempotency_key_answers_the_first(served: Served) -> None:
    """Also for several, for agents and for sessions; for something else it is refused."""
    first = await ask(served, "POST", "/memories", SAID, status=201, idempotency_key="k1")
    assert await ask(served, "POST", "/memories", SAID, status=201, idempotency_key="k1") == first
    other = {**SAID, "content": "something else"}
    refused = await ask(served, "POST", "/memories", other, status=409, idempotency_key="k1")
    assert refused["code"] == "idempotency_key_reused"
    batch = {"memories": [{**SAID, "content": text} for text in ("a", "b")]}
    several = await ask(served, "POST", "/memories", batch, status=201, idempotency_key="k2")
    assert await ask(served, "POST", "/memories", batch, status=201, idempotency_key="k2") == several
    assert several["count"] == 2
    agent = await ask(served, "POST", "/agents", {"name": "bot"}, status=201, idempotency_key="k3")
    assert await ask(served, "POST", "/agents", {"name": "bot"}, status=201, idempotency_key="k3") == agent
    session = await ask(served, "POST", "/sessions", {"agent_id": "bot"}, status=201, idempotency_key="k3")
    assert await ask(served, "POST", "/sessions", {"agent_id": "bot"}, status=201, idempotency_key="k3") == session
    await ask(served, "POST", "/agents", {"name": "cat"}, status=409, idempotency_key="k3")


async def test_a_refused_repeat_with_a_key_links_nothing(served: Served, memory: Memory) -> None:
    """Neither does one that is answered by the first: a link is written with its memory, or not at all."""
    parent = await ask(served, "POST", "/memories", SAID, status=201)
    said = SAID | {"content": "Then it slept"}
    first = await ask(served, "POST", "/memories", said, status=201, idempotency_key="k1")
    more = said | {"parent_id": parent["id"]}
    refused = await ask(served, "POST", "/memories", more, status=409, idempotency_key="k1")
    assert refused["code"] == "idempotency_key_reused"
    assert await memory.links.lasting("default", first["id"], may_see=lambda _: True) == ()


async def test_a_change_with_an_idempotency_key_is_made_once(served: Served) -> None:
    """A repeated PATCH answers its own version, whatever came after; a repeated DELETE is no error; 32 are one."""
    kept = await ask(served, "POST", "/memories", SAID, status=201)
    path, change = f"/memories/{kept['id']}", {"content": "Crawled it twice", "tags": ["web"]}
    answers = await asyncio.gather(
        *(served.client.patch(PREFIX + path, json=change, headers={"idempotency-key": "k1"}) for _ in range(32))
    )
    assert {answer.status_code for answer in answers} == {200}
    first = answers[0].json()
    assert (first["version"], [answer.json() for answer in answers]) == (2, [first] * 32)
    later = await ask(served, "PATCH", path, {"content": "Crawled it a third time"}, idempotency_key="k2")
    assert await ask(served, "PATCH", path, change, idempotency_key="k1") == first
    assert await ask(served, "GET", path) == later
    refused = await ask(served, "PATCH", path, {"content": "else"}, status=409, idempotency_key="k1")
    assert refused["code"] == "idempotency_key_reused"
    gone = await asyncio.gather(
        *(served.client.delete(PREFIX + path, headers={"idempotency-key": "k1"}) for _ in range(8))
    )
    assert {answer.status_code for answer in gone} == {204}
    await ask(served, "DELETE", path, status=204, idempotency_key="k1")
    await ask(served, "DELETE", path, status=404, idempotency_key="k3")
    await ask(served, "DELETE", path, status=404)
    await ask(served, "PATCH", path, change, status=404, idempotency_key="k1")
    agent = await ask(served, "POST", "/agents", {"name": "bot"}, status=201)
    for _ in range(2):
        await ask(served, "DELETE", f"/agents/{agent['id']}", status=204, idempotency_key="k1")
    await ask(served, "DELETE", f"/agents/{agent['id']}", status=404)


async def test_a_deletion_that_is_repeated_meanwhile_is_no_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that waits no longer sends it again: the first call, overtaken, answers as the second does."""
    kept = await ask(served, "POST", "/memories", SAID, status=201)
    path, was_made = f"/memories/{kept['id']}", Withdrawals.was_made

    async def overtaken(self: Withdrawals, tenant: str, key: str) -> bool:
        made = await was_made(self, tenant, key)
        monkeypatch.setattr(Withdrawals, "was_made", was_made)
        await ask(served, "DELETE", path, status=204, idempotency_key="k1")
        return made

    monkeypatch.setattr(Withdrawals, "was_made", overtaken)
    await ask(served, "DELETE", path, status=204, idempotency_key="k1")
    assert Withdrawals.was_made is was_made, "nothing was repeated meanwhile"
    await ask(served, "DELETE", path, status=404)


async def test_a_memory_is_part_of_what_it_goes_on_from(memory: Memory, database: Database) -> None:
    """The link is told where either is read, and followed by an agent; what its writer does not see is not linked."""
    guarded = Settings(auth=AuthSettings(mode="keys"))
    async with access_store(database) as store, serving(memory, guarded) as served:
        ana, ben = [await make_key(store, who, name=who, faces=("rest", "agent")) for who in ("ana", "ben")]

        async def at_agent(tool: str, key: str, **arguments: Any) -> Any:
            sent = headers(tool) | {"authorization": f"Bearer {key}"}
            response = await served.post(call(tool, arguments), sent, path="/mcp/agent")
            return response.json()["result"]["structuredContent"]

        parent = await ask(served, "POST", "/memories", SAID, status=201, x_api_key=ana)
        part = {**SAID, "content": "It has two pages", "parent_id": parent["id"]}
        for _ in range(2):
            child = await ask(served, "POST", "/memories", part, status=201, x_api_key=ben, idempotency_key="k")
        link = {"from": child["id"], "to": parent["id"], "relation_type": "part_of"}
        for note_id in (child["id"], parent["id"]):
            assert (await ask(served, "GET", f"/memories/{note_id}", x_api_key=ana))["links"] == [link]
        around = await at_agent("graph_explore", ana, startId=parent["id"])
        edges = [{name: edge[name] for name in link} for edge in around["edges"]]
        assert (edges, around["nodes"][1]["content"]) == ([link], "It has two pages")
        own = (await at_agent("remember", ana, content="Ana alone crawled it", topic="web", type="fact"))["id"]
        hidden = [
            {**SAID, "content": f"After {name}", "parent_id": name} for name in (own, "note_" + "0" * 32, "any text")
        ]
        kept = await ask(served, "POST", "/memories", {"memories": hidden}, status=201, x_api_key=ben)
        for memory_kept in kept["memories"]:
            shown = await ask(served, "GET", f"/memories/{memory_kept['id']}", x_api_key=ben)
            assert shown == memory_kept
        assert "links" not in await ask(served, "GET", f"/memories/{own}", x_api_key=ana)
        await ask(served, "DELETE", f"/memories/{parent['id']}", status=204, x_api_key=ana)
        assert "links" not in await ask(served, "GET", f"/memories/{child['id']}", x_api_key=ana)


async def test_a_note_of_another_face_is_changed_once_with_a_key(served: Served) -> None:
    """Its topic and kind stay, and a repeat answers the first."""
    note = {"content": "The kiln holds 900 degrees", "topic": "kiln", "type": "fact", "keywords": ["Heat"]}
    await served.post(call("remember", note), headers("remember"), path="/mcp/agent")
    (kept,) = (await ask(served, "GET", "/memories"))["memories"]
    path, change = f"/memories/{kept['id']}", {"content": "It holds 950 degrees", "tags": ["Heat", "kiln"]}
    first = await ask(served, "PATCH", path, change, idempotency_key="k")
    assert await ask(served, "PATCH", path, change, idempotency_key="k") == first
    assert (await ask(served, "GET", path))["version"] == 2


async def test_times_are_iso_or_so_long_ago(served: Served) -> None:
    """Wherever a time is taken, whole or in part; nothing is later than now."""
    await ask(served, "POST", "/memories", {**SAID, "session_id": "s"}, status=201)
    early = ("1h", "365d", "30m", "2026-03-19", "2026-03-19T20:00", "2026-03-19T20:00:00.123456789Z")
    for time, count in (*((time, 1) for time in early), ("now", 0), ("9000-01-01T00:00:00+02:00", 0)):
        lists = ("/memories", "/agents/bot/memories", "/sessions/s/memories")
        counts = [(await ask(served, "GET", f"{path}?since={quote(time)}"))["count"] for path in lists]
        counts.append((await ask(served, "POST", "/search", {"since": time}))["count"])
        counts.append((await ask(served, "POST", "/sessions/s/context", {"since": time}))["memory_count"])
        assert counts == [count] * 5, time
    for time, count in (("now", 1), ("1h", 0), ("2026-03-19", 0)):
        assert (await ask(served, "POST", "/search", {"until": time}))["count"] == count


async def test_pages_by_offset_and_by_cursor(served: Served) -> None:
    """Both give each memory once, in either order; a cursor goes on behind it while more is kept."""
    for number in range(7):
        await ask(served, "POST", "/memories", {**SAID, "content": f"text {number}"}, status=201)
    for order in ("asc", "desc"):
        texts: list[str] = []
        cursor = ""
        while True:
            page = await ask(served, "GET", f"/memories?limit=3&order={order}&cursor={cursor}")
            texts += [memory["content"] for memory in page["memories"]]
            if not page["has_more"]:
                break
            cursor = page["next_cursor"]
        assert texts == sorted((f"text {number}" for number in range(7)), reverse=order == "desc")
        by_offset = [
            (await ask(served, "GET", f"/memories?limit=3&offset={offset}&order={order}"))["memories"]
            for offset in (0, 3, 6)
        ]
        assert [memory["content"] for page in by_offset for memory in page] == texts
    await ask(served, "GET", f"/memories?order=asc&cursor={cursor}&tags=x", status=400)


async def test_agents_and_sessions(served: Served) -> None:
    """An agent is found by its id and its name; a session belongs to one, is closed, and has its memories."""
    agent = await ask(served, "POST", "/agents", {"name": "bot", "config": {"a": 1}, "description": "d"}, status=201)
    assert agent["id"].startswith("agent_")
    assert (await ask(served, "POST", "/agents", {"name": "bot"}, status=409))["error"] == "agent already exists"
    for name in ("bot", agent["id"]):
        assert await ask(served, "GET", f"/agents/{name}") == agent
    session = await ask(served, "POST", "/sessions", {"agent_id": agent["id"], "metadata": {"m": 1}}, status=201)
    assert (session["status"], session["agent_id"]) == ("active", agent["id"])
    await ask(served, "POST", "/sessions", {"agent_id": "nobody"}, status=400)
    for agent_id, kind, happened in (("bot", "episodic", "general"), (agent["id"], "episodic", "error")):
        body = {"agent_id": agent_id, "content": f"by {agent_id}", "memory_type": kind, "event_type": happened}
        await ask(served, "POST", "/memories", {**body, "session_id": session["id"]}, status=201)
    assert (await ask(served, "GET", "/agents/bot/memories"))["count"] == 2
    assert (await ask(served, "GET", f"/sessions/{session['id']}/memories?order=asc"))["count"] == 2
    statistics = await ask(served, "GET", f"/agents/{agent['id']}/stats")
    assert (
        statistics.items()
        >= {
            "memory_count": 2,
            "memories_24h": 2,
            "errors_24h": 1,
            "session_count": 1,
            "active_sessions": 1,
            "memory_types": {"episodic": 2},
        }.items()
    )
    context = await ask(served, "POST", f"/sessions/{session['id']}/context")
    assert context["memory_count"] == 2
    assert context["context"].startswith(f"## Session Context ({session['id']})\n\n### Recent Actions (1)\n- [")
    assert "### Errors (1)\n" in context["context"]
    short = await ask(served, "POST", f"/sessions/{session['id']}/context", {"max_tokens": 70, "query": "by bot"})
    assert short["memory_count"] == 1
    assert "by bot" in short["context"]
    closed = await ask(served, "PUT", f"/sessions/{session['id']}", {"status": "closed"})
    assert (closed["status"], closed["metadata"]) == ("closed", {"m": 1})
    assert closed["closed_at"] == closed["updated_at"]
    assert await ask(served, "GET", f"/sessions/{session['id']}") == closed
    assert (await ask(served, "GET", "/sessions?agent_id=bot"))["sessions"] == [closed]
    shown = (await ask(served, "GET", "/agents"))["agents"]
    assert [one["id"] for one in shown] == [agent["id"]]
    assert "last_active_at" in shown[0]
    assert await ask(served, "DELETE", f"/agents/{agent['id']}", status=204) is None
    await ask(served, "GET", "/agents/bot", status=404)
    await ask(served, "POST", "/agents", {"name": "bot"}, status=201)


@pytest.mark.parametrize("status", ["foo", "Closed", "deleted", 1, ["closed"]])
async def test_a_session_is_active_or_closed(served: Served, status: Any) -> None:
    """Any other status is refused and changes nothing; null or an empty one leaves it as it is."""
    await ask(served, "POST", "/agents", {"name": "bot"}, status=201)
    session = await ask(served, "POST", "/sessions", {"agent_id": "bot"}, status=201)
    path = f"/sessions/{session['id']}"
    refused = await ask(served, "PUT", path, {"status": status}, status=400)
    assert refused["error"] == "invalid status: it must be active or closed"
    assert (await ask(served, "PUT", path, {"status": ""}))["status"] == "active"
    assert (await ask(served, "PUT", path, {"status": "closed"}))["status"] == "closed"
    assert (await ask(served, "PUT", path, {"status": "active"}))["status"] == "active"


async def test_no_heading_stands_alone_in_a_context(served: Served) -> None:
    """A bound that leaves room for no memory gives no text; a session without memories still has its heading."""
    await ask(served, "POST", "/memories", {**SAID, "session_id": "s"}, status=201)
    shown = set()
    for most in range(1, 60):
        context = await ask(served, "POST", "/sessions/s/context", {"max_tokens": most})
        assert (context["context"] == "") == (context["memory_count"] == 0)
        shown.add(context["memory_count"])
    assert shown == {0, 1}
    assert (await ask(served, "POST", "/sessions/t/context"))["context"] == "## Session Context (t)\n\n"


async def test_a_kind_that_is_none_is_refused(served: Served) -> None:
    """The tool says which kinds there are, and takes no other."""
    for kind, is_refused in (("foo", True), ("decision", False), ("", False)):
        message = call("memtrace_recall", {"agent_id": "bot", "memory_type": kind}, version=None)
        answer = await served.post(message, headers(version=None), path=PATH_OF["rest"])
        assert answer.json()["result"]["isError"] == is_refused


async def test_the_context_of_a_long_session(
    served: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics say what is not shown; a query chooses what is, also among the oldest; no bound is ever exceeded."""
    monkeypatch.setattr("myria.notes.memories.reading.MOST_SHOWN", 3)
    texts = [f"The kiln was heated to {number}00 degrees for the glaze" for number in range(1, 12)]
    batch = [{**SAID, "content": text, "session_id": "s"} for text in ("Ada drinks green tea", *texts)]
    await ask(served, "POST", "/memories", {"memories": batch}, status=201)
    await ask(served, "POST", "/memories", {**SAID, "content": "Nothing of the kind", "session_id": "t"}, status=201)
    path = "/sessions/s/context"
    assert "### Topics" not in (await ask(served, "POST", path))["context"]
    await build_now(database.builder_dsn)
    context = await ask(served, "POST", path)
    assert context["memory_count"] == 3
    recent, topics = context["context"].split("\n### Topics (")
    assert [line.rsplit(" ", 5)[1] for line in recent.splitlines()[-3:]] == ["1100", "1000", "900"]
    assert "kiln" in topics.lower()
    assert "Nothing of the kind" not in context["context"]
    asked = await ask(served, "POST", path, {"query": "who drinks tea?", "max_tokens": 70})
    assert "Ada drinks green tea" in asked["context"]
    counter = token_counter()
    for most in range(1, 600, 20):  # a topic, of 240 bytes at most, may take a third
        bounded = await ask(served, "POST", path, {"query": "kiln", "max_tokens": most})
        assert counter.count(bounded["context"]) <= most
    assert (bounded["memory_count"], "### Topics" in bounded["context"]) == (3, True)
    decided = await ask(served, "POST", path, {"include_types": ["decision"]})
    assert decided["context"] == "## Session Context (s)\n\n"


async def test_an_empty_list_of_memories_is_refused_as_one(served: Served) -> None:
    """It says what is wrong with the list, and does not take it for one memory."""
    for said in ({}, {"atomic": True}):
        refused = await ask(served, "POST", "/memories", {"memories": [], **said}, status=400)
        assert refused["error"].startswith("memories:")
        assert refused["code"] == "invalid_argument"


REFUSED: dict[str, tuple[str, str, Any, int]] = {
    "no agent": ("POST", "/memories", {"content": "x"}, 400),
    "no content": ("POST", "/memories", {"agent_id": "bot"}, 400),
    "an empty list of memories": ("POST", "/memories", {"memories": []}, 400),
    "a memory that is a list": ("POST", "/memories", [], 400),
    "a memory in a list that is none": ("POST", "/memories", {"memories": ["x"]}, 400),
    "an agent that is no id": ("POST", "/memories", {**SAID, "agent_id": "1 bot"}, 400),
    "a type that nobody knows": ("POST", "/memories", {**SAID, "memory_type": "dream"}, 400),
    "an event type with a hyphen": ("POST", "/memories", {**SAID, "event_type": "a-b"}, 400),
    "a tag with a space": ("POST", "/memories", {**SAID, "tags": ["a b"]}, 400),
    "importance above 1": ("POST", "/memories", {**SAID, "importance": 1.5}, 400),
    "metadata that is a text": ("POST", "/memories", {**SAID, "metadata": "x"}, 400),
    "NUL": ("POST", "/memories", {**SAID, "content": "a\0b"}, 400),
    "NUL in metadata": ("POST", "/memories", {**SAID, "metadata": {"a": "\0"}}, 400),
    "a field that nobody knows": ("POST", "/memories", {**SAID, "colour": "red"}, 400),
    "a memory that is too long": ("POST", "/memories", {**SAID, "content": "x" * 300_000}, 400),
    "too many memories": ("POST", "/memories", {"memories": [SAID] * 501}, 400),
    "a time that is none": ("GET", "/memories?since=yesterday", None, 400),
    "an order that is none": ("GET", "/memories?order=up", None, 400),
    "a limit that is none": ("GET", "/memories?limit=many", None, 400),
    "a parameter twice": ("GET", "/memories?limit=1&limit=2", None, 400),
    "a parameter that nobody knows": ("GET", "/memories?colour=red", None, 400),
    "a parameter where none is": ("GET", "/agents/bot?x=1", None, 400),
    "a cursor that is none": ("GET", "/memories?cursor=abc", None, 400),
    "a memory that is not there": ("GET", "/memories/note_0", None, 404),
    "an id that nothing has": ("GET", "/memories/%2e%2e%2f", None, 404),
    "an id with NUL": ("GET", "/memories/a%00", None, 404),
    "an id that is no UTF-8": ("GET", "/memories/%ff", None, 400),
    "a search without a body": ("POST", "/search", None, 400),
    "a search for a number": ("POST", "/search", {"content_contains": 1}, 400),
    "an agent without a name": ("POST", "/agents", {}, 400),
    "an agent that is not there": ("GET", "/agents/bot", None, 404),
    "an agent to delete that is not there": ("DELETE", "/agents/bot", None, 404),
    "a session that is not there": ("GET", "/sessions/s", None, 404),
    "a session to close that is not there": ("PUT", "/sessions/s", {"status": "closed"}, 404),
    "a path that is none": ("GET", "/nothing", None, 404),
    "the prefix alone": ("GET", "", None, 404),
    "a method that is none": ("PUT", "/memories", {}, 405),
}


async def test_every_refusal_is_the_contract_s(served: Served) -> None:
    """Status, and an object whose error is a text."""
    for name, (method, path, body, status) in REFUSED.items():
        refused = await ask(served, method, path, body, status=status)
        assert refused["error"], name
    for line in (b"idempotency-key: a\0b", b"x y: z"):
        sent = f"GET {PREFIX}/agents HTTP/1.1\r\nhost: localhost\r\n".encode() + line + b"\r\n\r\n"
        head, _, body = (await served.raw(sent)).partition(b"\r\n\r\n")
        assert (head.split()[1], json.loads(body)["code"]) == (b"400", "invalid_argument")
        assert isinstance(json.loads(body)["error"], str)
    malformed = await served.client.post(f"{PREFIX}/memories", content=b"{")
    assert malformed.status_code == 400
    assert isinstance(malformed.json()["error"], str)


async def test_what_is_not_there_may_be_asked_for(served: Served) -> None:
    """Memories, statistics and the context of what nobody registered are empty, as in the contract."""
    assert (await ask(served, "GET", "/agents/bot/memories"))["count"] == 0
    assert (await ask(served, "GET", "/agents/bot/stats"))["memory_count"] == 0
    assert (await ask(served, "GET", "/sessions/s/memories"))["count"] == 0
    context = await ask(served, "POST", "/sessions/s/context", {})
    assert context.pop("note") == NOTHING
    assert context == {"session_id": "s", "context": "## Session Context (s)\n\n", "memory_count": 0}
    for path in ("/health", "/ready"):
        assert (await ask(served, "GET", path))["service"]


async def test_keys_and_whom_they_show_what(memory: Memory, database: Database) -> None:
    """Both headers are taken; all keys with this face share what is kept here, and other tenants see nothing."""
    async with (
        access_store(database, "other") as store,
        serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served,
    ):
        ada = await make_key(store, "ada", faces=("rest",))
        bob = await make_key(store, "bob", faces=("rest",))
        eve = await make_key(store, "ada", faces=("rest",), tenant="other")
        reader = await make_key(store, "ada", faces=("rest",), roles=("read",))
        many = await make_key(store, may_ask=("user:*",), faces=("rest",))
        core = await make_key(store, "ada", faces=("core",))
        kept = await ask(served, "POST", "/memories", SAID, status=201, x_api_key=ada)
        for key in (bob, reader):
            assert (await ask(served, "GET", "/memories", authorization=f"Bearer {key}"))["memories"] == [kept]
        assert (await ask(served, "GET", "/memories", x_api_key=eve))["memories"] == []
        await ask(served, "GET", f"/memories/{kept['id']}", status=404, x_api_key=eve)
        await ask(served, "POST", "/memories", SAID, status=409, x_api_key=bob)
        await ask(served, "POST", "/memories", SAID, status=201, x_api_key=eve)
        assert (await ask(served, "GET", "/memories", status=401))["error"] == "missing API key"
        assert (await ask(served, "GET", "/memories", status=401, x_api_key="mtk_x"))["error"] == "invalid API key"
        for key, code in ((core, "face_not_allowed"), (many, "participants_not_allowed")):
            assert (await ask(served, "GET", "/memories", status=403, x_api_key=key))["code"] == code
        for route in ROUTES:
            if route.changes:
                path = route.path.replace("{id}", "x")
                body: dict[str, Any] | None = None if route.method == "DELETE" else {}
                refused = await ask(served, route.method, path, body, status=403, x_api_key=reader)
                assert refused["code"] == "role_required"


async def test_the_seven_tools(served: Served) -> None:
    """They do over MCP what the routes do; the text is the answer's indented JSON, of a context the markdown itself."""

    async def use(tool: str, arguments: Any) -> dict[str, Any]:
        response = await served.post(call(tool, arguments), headers(tool), path=PATH_OF["rest"])
        result: dict[str, Any] = response.json()["result"]
        schema = output_schema(next(known for known in TOOLS if known.name == tool))
        jsonschema.Draft202012Validator(schema).validate(result["structuredContent"])
        return result

    assert {tool["name"] for tool in await listed(served, path=PATH_OF["rest"])} == {
        tool.name for tool in TOOLS if "rest" in tool.apis
    }
    agent = (await use("memtrace_agent_register", {"name": "bot"}))["structuredContent"]
    session = (await use("memtrace_session_create", {"agent_id": "bot"}))["structuredContent"]
    assert session["agent_id"] == agent["id"]
    kept = await use("memtrace_remember", {**SAID, "session_id": session["id"], "tags": ["web"]})
    assert kept["content"][0]["text"] == json.dumps(kept["structuredContent"], indent=2)
    decided = {"agent_id": "bot", "decision": "Skip it", "reasoning": "Too deep"}
    decision = (await use("memtrace_decide", decided))["structuredContent"]
    assert decision["metadata"] == {"reasoning": "Too deep"}
    again = await use("memtrace_remember", {**SAID, "session_id": session["id"]})
    assert (again["isError"], again["structuredContent"]["error"]) == (True, "duplicate memory")
    assert (await use("memtrace_recall", {"agent_id": "bot"}))["structuredContent"]["count"] == 2
    found = await use("memtrace_search", {"content_contains": "example", "tags": ["web"], "memory_types": ["episodic"]})
    assert found["structuredContent"]["results"] == [kept["structuredContent"]]
    context = await use("memtrace_session_context", {"session_id": session["id"]})
    assert context["content"][0]["text"] == context["structuredContent"]["context"]
    assert "### Recent Actions (1)" in context["content"][0]["text"]


async def test_the_window_ends_and_holds_between_processes(database: Database) -> None:
    """Of many at the same time through two processes one is kept, another once the window is over; 0 keeps them all."""
    keeping, draft = Keeping(own=("ada",), shared="org"), MemoryDraft(agent_id="bot", content="Crawled it")
    hour = Settings(rest=RestSettings(dedup_window_s=3600))
    at = 10**15

    async def keep(memory: Memory, now: int) -> bool:
        try:
            return (await memory.memories.keep("default", keeping, draft, now=now)).is_new
        except DuplicateMemory:
            return False

    async with Memory(database.server_dsn, hour) as one, Memory(database.server_dsn, hour) as other:
        assert sum(await asyncio.gather(*(keep(memory, at) for memory in (one, other) for _ in range(16)))) == 1
        assert not await keep(one, at + 3600 * 10**6 - 1)
        assert await keep(other, at + 3600 * 10**6)
    async with Memory(database.server_dsn, Settings(rest=RestSettings(dedup_window_s=0))) as every:
        assert [await keep(every, at) for _ in range(2)] == [True, True]


KEEPING = """
import asyncio, json, sys
from myria.errors import DuplicateMemory
from myria.notes.memories.sharing import Keeping
from myria.notes.memories.model import MemoryDraft
from myria.memory import Memory
from myria.settings import Settings

async def main(dsn, now):
    keeping = Keeping(own=("ada",), shared="org")
    async with Memory(dsn, Settings()) as memory:
        async def keep(text, key):
            try:
                draft = MemoryDraft(agent_id="bot", content=text)
                kept = await memory.memories.keep("default", keeping, draft, key=key, now=now)
            except DuplicateMemory:
                return "duplicate"
            return [kept.memory.memory_id, kept.is_new]
        print(json.dumps([await asyncio.gather(*(keep(text, key) for _ in range(16)))
                          for text, key in (("Crawled it", None), ("Retried it", "k"))]))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.processes
async def test_between_programs_one_of_32_is_kept(database: Database) -> None:
    """By two programs at one moment of a clock that stands still: one new and 31 duplicates; with a key, 31 repeats."""

    async def run() -> Any:
        command = (sys.executable, "-c", KEEPING, database.server_dsn, str(10**15))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        return json.loads(out)

    plain, keyed = zip(*await asyncio.gather(run(), run()), strict=True)
    once = [outcome for program in plain for outcome in program]
    assert (once.count("duplicate"), [outcome[1] for outcome in once if outcome != "duplicate"]) == (31, [True])
    repeats = [outcome for program in keyed for outcome in program]
    assert len({memory_id for memory_id, _ in repeats}) == 1
    assert sorted(is_new for _, is_new in repeats) == [False] * 31 + [True]


async def test_a_search_says_where_it_stopped_to_look(memory: Memory, database: Database) -> None:
    """The text of so many is looked at; where there are more, the answer says so, and a filter narrows them down."""
    for number in range(6):
        said = MemoryDraft(agent_id=f"bot{number}", content=f"It is text{number}")
        await memory.memories.keep("default", Keeping(own=("agent", "me"), shared="org"), said)
    narrow = Settings(rest=RestSettings(scanned_memories=3))
    async with Memory(database.server_dsn, narrow) as looking, serving(looking, narrow) as served:
        found = await ask(served, "POST", "/search", {"content_contains": "xt1"})
        assert (found["results"], found["scanned"]) == ([], 3)
        found = await ask(served, "POST", "/search", {"content_contains": "xt1", "agent_id": "bot1"})
        assert (found["count"], "scanned" in found) == (1, False)
        assert (await ask(served, "POST", "/search", {"content_contains": "TEXT5"}))["results"] == []
        found = await ask(served, "POST", "/search", {"content_contains": "text1"})
        assert (found["count"], "scanned" in found) == (1, False)


async def test_a_search_for_words_goes_by_time_page_by_page(served: Served) -> None:
    """Each once, in both orders, also what was changed since: it keeps its place; raw events stand among them."""
    kept = [
        await ask(served, "POST", "/memories", {**SAID, "content": f"The quince {number}"}, status=201)
        for number in range(5)
    ]
    await ask(served, "PATCH", f"/memories/{kept[1]['id']}", {"content": "A changed quince"})
    said = event(text="quince tart", timestamp="2026-01-01T00:00:00Z", participants=["me", "agent"])
    await served.post(call("append_event", said), headers("append_event"))
    wanted = ["quince tart", "The quince 0", "A changed quince", *(f"The quince {number}" for number in (2, 3, 4))]
    for order in ("asc", "desc"):
        texts: list[str] = []
        asked = {"content_contains": "quince", "order": order, "limit": 2}
        while True:
            page = await ask(served, "POST", "/search", asked)
            texts += [memory["content"] for memory in page["results"]]
            if not page["has_more"]:
                break
            asked = {**asked, "cursor": page["next_cursor"]}
        assert texts == (wanted if order == "asc" else wanted[::-1])
    (raw,) = (await ask(served, "POST", "/search", {"content_contains": "quince tart"}))["results"]
    assert await ask(served, "GET", f"/memories/{raw['id']}") == raw
    await ask(served, "PATCH", f"/memories/{raw['id']}", {"content": "x"}, status=404)
    await ask(served, "DELETE", f"/memories/{raw['id']}", status=204)
    await ask(served, "GET", f"/memories/{raw['id']}", status=404)


async def test_what_is_kept_here_is_found_over_mcp_too(served: Served) -> None:
    """It is an event of its key's participants and of the organisation."""
    kept = await ask(served, "POST", "/memories", {**SAID, "content": "The quokka crossed the road"}, status=201)
    for participants in (["agent", "me"], ["org"]):
        answer = await served.call("query_event_nodes", {"participants": participants, "query": "quokka"})
        (node,) = answer.content["root"]["children"]
        assert node["participants"] == ["agent", "me", "org"]
        assert kept["content"] in json.dumps(node)


async def test_the_face_is_off_where_it_is_switched_off(memory: Memory) -> None:
    """Without rest.enabled nothing answers there."""
    async with serving(memory, Settings(rest=RestSettings(enabled=False))) as served:
        for path in (PREFIX + "/memories", PREFIX + "/health", PREFIX + "/openapi.json", PATH_OF["rest"]):
            response = await served.client.get(path)
            assert (response.status_code, response.json()["error"]["code"]) == (404, "path_not_found")


async def test_what_is_folded_is_what_the_log_says(memory: Memory, database: Database) -> None:
    """New memories take a shorter way into their tables, of which every column is as the views of the log have it."""
    keeping = Keeping(own=("ada",), shared="org")
    drafts = [
        MemoryDraft(agent_id="bot", content=f"ß text {place}", session_id=session, memory_type=kind, tags=tags,
                    importance=importance, event_type=event_type, dedup_key=key)
        for place, (session, kind, tags, importance, event_type, key) in enumerate([
            (None, "episodic", (), None, "general", None),
            ("s1", "decision", ("a", "NULL", "v1.2-x"), 0.1, "chosen", "mine"),
            ("shop/s1", "entity", ("a", "A"), 1 / 3, "error", None),
            (None, "session", (), 1, "general", None),
            (None, "episodic", (), 0.30000001192092896, "general", None),
            (None, "episodic", (), 1e-9, "general", None),
        ])
    ]  # fmt: skip
    kept = await memory.memories.keep_all("default", keeping, drafts)
    assert all(one.memory is not None for one in kept)
    first = kept[0].memory
    assert first is not None
    await memory.memories.amend("default", first.memory_id, MemoryChanges(tags=("b",)), may_see=lambda _: True)
    async with Pool(database.server_dsn) as pool, pool.read("default") as connection:
        assert await connection.fetch(sql("verify.differs_from_log"), "default", "notes") == []
        assert await connection.fetchval(sql("verify.count"), "default", "notes") == len(drafts)
