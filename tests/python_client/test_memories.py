"""The clients at /api/v1, against a real server: every call, what is kept once, pages, refusals and repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from myria.memory import Memory as ServerMemory
from myria.settings import AuthSettings, Settings
from myria_client import (
    AsyncClient,
    Busy,
    Client,
    Conflict,
    Duplicate,
    Invalid,
    NewMemory,
    NotAllowed,
    NotFound,
    Retry,
    Unreachable,
    Unreadable,
)
from myria_client import _routes as routes
from myria_server.api.memtrace.handlers import ROUTES, match
from tests.python_client.conftest import call
from tests.server.wire import Served, serving
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

WHOLE = NewMemory(
    agent_id="bot",
    content="Crawled https://example.com",
    session_id="s1",
    memory_type="decision",
    event_type="page_crawled",
    metadata={"pages": 3, "deep": {"er": [1, 2.5, None]}},
    tags=("web", "v1.2"),
    importance=0.7,
    parent_id="note_x",
)
QUICK = Retry(times=2, first_pause_s=0.001)


@pytest.mark.parametrize("nameless", ["", ".", "..", None])
async def test_no_address_is_made_of_what_is_no_id(client: Any, nameless: Any) -> None:
    """It would name the list, or something else: the call is refused before it is sent."""
    for doing in (client.memories.get, client.memories.withdraw):
        with pytest.raises(Invalid, match="names nothing") as refused:
            await call(doing, nameless)
        assert refused.value.field == "id"


async def test_a_memory_is_remembered_found_changed_and_forgotten(client: Any) -> None:
    """All that it was given comes back, typed."""
    kept = await call(client.memories.keep, WHOLE)
    for name in ("agent_id", "content", "session_id", "memory_type", "event_type", "metadata", "tags", "importance"):
        assert getattr(kept, name) == getattr(WHOLE, name)
    assert (kept.parent_id, kept.org_id, kept.version, kept.time.tzinfo) == ("note_x", "default", 1, UTC)
    assert await call(client.memories.get, kept.id) == kept
    since = datetime.now(UTC) - timedelta(hours=1)
    page = await call(client.memories.page, agent_id="bot", tags=["web", "v1.2"], since=since)
    assert (page.memories, page.has_more, page.next_cursor) == ((kept,), False, None)
    search = {"content_contains": "example", "memory_types": ["decision"], "min_importance": 0.5, "since": "1h"}
    assert (await call(client.memories.search, **search)).memories == (kept,)
    assert await call(client.memories.search_each, tags=["web"]) == [kept]
    changed = await call(client.memories.amend, kept.id, content="Crawled it twice", tags=[], metadata={}, version=1)
    assert (changed.content, changed.tags, changed.metadata, changed.version) == ("Crawled it twice", (), None, 2)
    assert changed.updated_at is not None
    with pytest.raises(Conflict, match="already_superseded"):
        await call(client.memories.amend, kept.id, content="x", version=1)
    await call(client.forget, kept.id)
    for gone in (client.memories.get, client.forget):
        with pytest.raises(NotFound) as refused:
            await call(gone, kept.id)
        assert (refused.value.code, refused.value.status) == ("note_not_found", 404)


async def test_a_key_that_may_only_append_is_told_ids_and_no_content(database: Database, memory: ServerMemory) -> None:
    """Of what it keeps, changes and registers."""
    settings = Settings(auth=AuthSettings(mode="keys"))
    async with access_store(database) as store, serving(memory, settings) as served:
        key = await make_key(store, "ana", roles=("append",), faces=("rest",))
        with Client(f"http://127.0.0.1:{served.port}", key=key) as client:
            kept = await call(client.memories.keep, NewMemory(agent_id="bot", content="Ada prefers tea"))
            changed = await call(client.memories.amend, kept.id, content="Ada prefers coffee")
            several = await call(client.memories.keep_many, [NewMemory(agent_id="bot", content="a")])
            agent = await call(client.agents.register, "bot")
        assert (changed.id, changed.version) == (kept.id, 2)
        assert {kept.content, changed.content, agent.name, *(one.content for one in several.memories)} == {""}
        assert all((agent.id, several.outcomes[0].id))


async def test_remembering_twice_gives_the_first(client: Any) -> None:
    """The plain call answers what stands; the exact one says that it is a duplicate."""
    first = await call(client.remember, "Ada prefers tea", tags=["ada"])
    assert first.agent_id == client.agent == "agent"
    assert await call(client.remember, "Ada prefers tea") == first
    with pytest.raises(Duplicate, match="duplicate_memory"):
        await call(client.memories.keep, NewMemory(agent_id="agent", content="Ada prefers tea"))
    with pytest.raises(Duplicate):
        await call(client.remember, "Something else", dedup_key=first.dedup_key)
    assert (await call(client.remember, "Ada prefers tea", agent_id="other")).id != first.id


@pytest.mark.parametrize("text", ["tea", "tea " * 3_000], ids=["short", "long"])
async def test_remembering_again_what_others_quote_gives_the_first(client: Any, text: str) -> None:
    """However long it is, and although newer memories hold its words; what only begins so is a duplicate."""
    first = await call(client.remember, text)
    await call(client.remember, f"Ada says: {text}")
    assert await call(client.remember, text) == first
    if len(text) > 200:
        with pytest.raises(Duplicate) as refused:
            await call(client.remember, text + "and cake")
        assert refused.value.memory_id == first.id


async def test_remembering_what_was_changed_keeps_it_anew(client: Any) -> None:
    """It is said again, and the changed memory says something else."""
    first = await call(client.remember, "Ada prefers tea")
    changed = await call(client.memories.amend, first.id, content="Ada prefers coffee")
    assert (await call(client.remember, "Ada prefers tea")).id != first.id
    assert await call(client.remember, "Ada prefers coffee") == changed


async def test_recalling_what_it_is_about(client: Any) -> None:
    """The best comes first, the newest where nothing is asked, within filters."""
    for text in ("Ada prefers tea", "The kiln is hot", "Ben likes coffee"):
        await call(client.remember, text, tags=[text.split()[0]])
    assert [one.content for one in await call(client.recall, "Who likes coffee?", limit=1)] == ["Ben likes coffee"]
    assert [one.content for one in await call(client.recall, limit=2)] == ["Ben likes coffee", "The kiln is hot"]
    assert [one.tags for one in await call(client.recall, "tea", tags=["Ada"], since="1h")] == [("Ada",)]


async def test_several_at_once(client: Any) -> None:
    """Duplicates are left out, all is refused, or each is told of: as it was asked."""
    texts = ["one", "two", "one"]
    several = [NewMemory(agent_id="bot", content=text) for text in texts]
    kept = await call(client.memories.keep_many, several)
    assert [memory.content for memory in kept.memories] == ["one", "two"]
    assert [outcome.status for outcome in kept.outcomes] == ["stored", "stored", "duplicate"]
    assert [outcome.id for outcome in kept.outcomes[:2]] == [memory.id for memory in kept.memories]
    with pytest.raises(Duplicate):
        await call(client.memories.keep_many, several, atomic=True)
    mixed = [NewMemory(agent_id="bot", content="three"), NewMemory(agent_id="bot", content="")]
    with pytest.raises(Invalid, match="content is required") as refused:
        await call(client.memories.keep_many, mixed)
    assert refused.value.index == 1
    each = await call(client.memories.keep_many, mixed, atomic=False, idempotency_key="mine")
    assert [outcome.status for outcome in each.outcomes] == ["stored", "refused"]
    assert each.outcomes[1].error is not None
    assert await call(client.memories.keep_many, mixed, atomic=False, idempotency_key="mine") == each


async def test_pages_follow_each_other(client: Any) -> None:
    """Each memory comes once, also of more than a page, in either order, while more is kept."""
    several = [NewMemory(agent_id="bot", content=f"number {number}", session_id="s") for number in range(7)]
    await call(client.memories.keep_many, several)
    first = await call(client.memories.page, limit=3)
    await call(client.remember, "meanwhile")
    rest = await call(client.memories.page, limit=10, cursor=first.next_cursor)
    assert (first.has_more, rest.has_more) == (True, False)
    assert [memory.content for memory in (*first.memories, *rest.memories)] == [
        f"number {number}" for number in reversed(range(7))
    ]
    contents = [f"number {number}" for number in range(7)]
    for found in (
        await call(client.memories.each, page_size=2, agent_id="bot", order="asc"),
        await call(client.memories.search_each, page_size=2, content_contains="number", order="asc"),
        await call(client.agents.memories, "bot", page_size=3, order="asc"),
        await call(client.sessions.memories, "s", page_size=7, order="asc"),
    ):
        assert [memory.content for memory in found] == contents


async def test_agents_and_sessions(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are registered, listed over pages, counted, closed and taken out."""
    monkeypatch.setattr("myria_client._routes.MOST_LISTED", 2)
    agent = await call(client.agents.register, "bot", description="d", config={"a": [1]}, idempotency_key="k")
    assert await call(client.agents.register, "bot", description="d", config={"a": [1]}, idempotency_key="k") == agent
    with pytest.raises(Conflict, match="agent_exists"):
        await call(client.agents.register, "bot")
    for number in range(4):
        await call(client.agents.register, f"b{number}")
    assert [one.name for one in await call(client.agents.each)] == ["b3", "b2", "b1", "b0", "bot"]
    assert (await call(client.agents.get, "bot")).config == {"a": [1]}
    sessions = [await call(client.sessions.open, "bot", metadata={"n": number}) for number in range(3)]
    assert [one.id for one in await call(client.sessions.each, "bot")] == [one.id for one in reversed(sessions)]
    session = sessions[0]
    await call(client.remember, "We chose tea.", agent_id="bot", session_id=session.id, memory_type="decision")
    context = await call(client.sessions.context, session.id, query="tea", max_tokens=200, include_types=["decision"])
    assert (context.memory_count, "We chose tea." in context.context) == (1, True)
    closed = await call(client.sessions.close, session.id)
    assert (closed.status, closed.closed_at is not None) == ("closed", True)
    assert (await call(client.sessions.change, session.id, metadata={"m": 1})).metadata == {"m": 1}
    assert await call(client.sessions.get, session.id) == await call(client.sessions.change, session.id)
    counts = await call(client.agents.statistics, "bot")
    assert (counts.memory_count, counts.active_sessions, counts.memory_types) == (1, 2, {"decision": 1})
    await call(client.agents.delete, agent.id)
    for missing in (client.agents.get, client.agents.delete):
        with pytest.raises(NotFound, match="agent_not_found"):
            await call(missing, agent.id)
    with pytest.raises(NotFound, match="session_not_found"):
        await call(client.sessions.get, "sess_none")


async def test_health_needs_no_key(client: Any) -> None:
    """Both probes say that all is well."""
    assert (await call(client.health)).is_well
    assert (await call(client.ready)).status == "ready"


async def test_what_is_not_sent(client: Any) -> None:
    """What JSON or the server cannot take is refused with what to do, before or after it is sent."""
    for wrong in ({"content": "\ud800"}, {"metadata": {"x": float("nan")}}, {"agent_id": "no spaces"}):
        with pytest.raises(Invalid):
            await call(client.memories.keep, replace(WHOLE, **wrong))
    with pytest.raises(Invalid, match="tag"):
        await call(client.memories.page, tags=["a,b"])
    with pytest.raises(ValueError, match="zone"):
        await call(client.memories.page, since=datetime(2026, 3, 1))  # noqa: DTZ001
    with pytest.raises(NotFound):
        await call(client.memories.get, "../agents?x=1#")


async def test_a_key_decides(database: Database, memory: ServerMemory) -> None:
    """A wrong key and one of another face are told apart, and neither is tried again."""
    async with access_store(database) as store, serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:
        url = f"http://127.0.0.1:{served.port}"
        good = await make_key(store, "ana", faces=("rest",))
        other = await make_key(store, "ben", faces=("turns",), name="other")
        for key, code in ((good + "x", "credential_invalid"), (other, "face_not_allowed")):
            async with AsyncClient(url, key=key) as client:
                with pytest.raises(NotAllowed, match=code):
                    await client.remember("hello")
        async with AsyncClient(url, key=good, timeout_s=PATIENCE_S) as client:
            assert (await client.remember("hello")).content == "hello"


class Losing(httpx.AsyncHTTPTransport):
    """Sends each request, and loses the first answers on their way back."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if self.left:
            self.left -= 1
            await response.aclose()
            raise httpx.ReadError("lost", request=request)
        return response


async def test_a_lost_answer_changes_nothing_twice(served: Served) -> None:
    """Whatever is repeated took effect once, and answers as the first would have."""
    url = f"http://127.0.0.1:{served.port}"

    async def lossy(times: int, work: Callable[[AsyncClient], Any]) -> Any:
        async with httpx.AsyncClient(transport=Losing(times)) as http:
            return await work(AsyncClient(url, http=http, retry=QUICK, timeout_s=PATIENCE_S))

    kept = await lossy(2, lambda client: client.memories.keep(WHOLE))
    many = await lossy(1, lambda client: client.memories.keep_many([NewMemory(agent_id="b", content="x")]))
    agent = await lossy(1, lambda client: client.agents.register("bot"))
    session = await lossy(1, lambda client: client.sessions.open("bot"))
    changed = await lossy(1, lambda client: client.memories.amend(kept.id, content="y"))
    assert (len(many.memories), changed.content, session.agent_id) == (1, "y", agent.id)
    await lossy(1, lambda client: client.forget(kept.id))
    await lossy(1, lambda client: client.agents.delete(agent.id))
    async with AsyncClient(url) as client:
        assert [memory.content async for memory in client.memories.each()] == ["x"]
        assert [one async for one in client.agents.each()] == []
        assert [one.id async for one in client.sessions.each()] == [session.id]
        with pytest.raises(NotFound):
            await client.forget(kept.id)


def answering(*answers: httpx.Response | None) -> Callable[[httpx.Request], httpx.Response]:
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        response = next(left)
        if response is None:
            raise httpx.ConnectError("away", request=request)
        response.request = request
        return response

    return answer


def refusing(status: int, **headers: str) -> httpx.Response:
    body = {"error": "not now", "code": "overloaded", "retryable": status >= 429, "hint": "later"}
    return httpx.Response(status, json=body, headers=headers)


def test_how_often_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's Retry-After is honoured up to a bound; pauses grow, with jitter; in the end it is said why."""
    pauses: list[float] = []
    monkeypatch.setattr("myria_client._client.time.sleep", pauses.append)
    well = httpx.Response(200, json={"status": "ok", "uptime": 1})

    def health(*answers: httpx.Response | None, retry: Retry = QUICK) -> Any:
        pauses.clear()
        with httpx.Client(transport=httpx.MockTransport(answering(*answers))) as http:
            return Client(http=http, retry=retry).health()

    assert health(None, refusing(429, **{"retry-after": "7"}), well).is_well
    assert pauses[0] < 0.01
    assert pauses[1] == 7
    with pytest.raises(Busy) as busy:
        health(refusing(429, **{"retry-after": "3600"}))
    assert (busy.value.retry_after_s, busy.value.hint, pauses) == (3600, "later", [])
    for _ in range(2):
        with pytest.raises(Unreachable):
            health(*[None] * 8, retry=Retry(times=7, first_pause_s=1))
        assert [2**n / 2 <= pause <= 2**n * 1.5 for n, pause in enumerate(pauses[:3])] == [True] * 3
        assert all(2.5 <= pause <= 7.5 for pause in pauses[3:])
    assert health(httpx.Response(502, text="<html>"), well).is_well
    for strange in (httpx.Response(200, text="<html>"), httpx.Response(200, json=[]), httpx.Response(302)):
        with pytest.raises(Unreadable):
            health(strange)
    with pytest.raises(Unreachable, match="UnsupportedProtocol"):
        Client("ftp://127.0.0.1", retry=Retry(times=10**6)).health()


def test_every_route_has_a_call() -> None:
    """What the server offers, the clients offer; the two have the same methods, named alike."""
    waiting, awaited = Client(), AsyncClient()
    for kind in ("memories", "agents", "sessions"):
        names = {name for name in dir(getattr(waiting, kind)) if not name.startswith("_")}
        assert names == {name for name in dir(getattr(awaited, kind)) if not name.startswith("_")}
    waiting.close()
    asyncio.run(awaited.close())
    calls: list[Any] = [
        routes.keep(WHOLE, None),
        routes.get_memory("m/../x"),
        routes.amend_memory("m", {}),
        routes.withdraw_memory("m"),
        routes.list_memories({}, limit=None, cursor=None),
        routes.list_memories_of("agents", "a", {}, limit=None, cursor=None),
        routes.list_memories_of("sessions", "s", {}, limit=None, cursor=None),
        routes.search_memories({}, limit=None, cursor=None),
        routes.register_agent("a", description=None, config=None, key=None),
        routes.list_agents(limit=None, offset=None),
        routes.get_agent("a"),
        routes.delete_agent("a"),
        routes.agent_statistics("a"),
        routes.open_session("a", metadata=None, key=None),
        routes.list_sessions(None, limit=None, offset=None),
        routes.get_session("s"),
        routes.change_session("s", status=None, metadata=None),
        routes.session_context("s", query=None, max_tokens=None, include_types=(), since=None),
    ]
    served = [match(one.method, one.path.encode())[0] for one in calls]
    assert {route.name for route in served} == {route.name for route in ROUTES}
    assert all((one.key is not None) == route.keyed for one, route in zip(calls, served, strict=True))
