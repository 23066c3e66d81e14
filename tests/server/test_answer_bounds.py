"""Answers are bounded in bytes: of one request, whatever its face, and of all that clients have not taken yet."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from myria.errors import AnswerTooLarge, Overloaded
from myria.memory import Memory
from myria.settings import AuthSettings, IngestSettings, RestSettings, RetrievalSettings, Settings
from myria_server import serving as http
from myria_server.http.listening import reserve_port
from myria_server.mcp.answers import LARGE_BYTES, SMALL_BYTES, Answers
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import Served, call, event, headers, serving
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

PAGE = 16 * 1024
NARROW = Settings(
    retrieval=RetrievalSettings(answer_bytes=PAGE), ingest=IngestSettings(payload_bytes=PAGE), rest=RestSettings()
)
"""A page of 16 KiB, and 64 KiB for the answer to one request."""

QUERY = "myria_query_event_nodes"
ASKED = {"participants": ["user_42"], "limit": 200, "query": "garden"}


@pytest.fixture
async def narrow(database: Database) -> AsyncIterator[Served]:
    """A server with narrow bounds."""
    async with Memory(database.server_dsn, NARROW) as memory, serving(memory, NARROW) as served:
        yield served


async def told(served: Served, events: int, size: int, **more: Any) -> None:
    """Append events of about this size that say garden."""
    for number in range(events):
        await served.call("append_event", event(f"k{number}", text=f"garden {number} " + "x" * size, **more))


def code(message: dict[str, Any]) -> str | None:
    """Return the code of a JSON-RPC error; None of an answer."""
    return message["error"]["data"]["code"] if "error" in message else None


async def test_a_batch_ends_with_coded_errors_where_it_is_full(narrow: Served) -> None:
    """The first answers come whole; each further id is refused with a code, and is not carried out."""
    await told(narrow, 12, 2_000)
    batch = [call(QUERY, ASKED, version=None, request_id=f"q{number}") for number in range(20)]
    batch.append(call("myria_append_event", event("late"), version=None, request_id="late"))
    batch.append({"jsonrpc": "2.0", "method": "notifications/initialized"})
    batch.append({"jsonrpc": "2.0", "id": "bad", "method": 7})
    response = await narrow.post(batch, headers(version=None))
    answers = response.json()
    assert [answer["id"] for answer in answers] == [message["id"] for message in batch if "id" in message]
    codes = [code(answer) for answer in answers]
    whole = codes.count(None)
    assert 2 <= whole < 10
    assert codes[:whole] == [None] * whole
    assert set(codes[whole:]) == {"answer_too_large"}
    assert {answer["error"]["code"] for answer in answers[whole:]} == {-32600}
    assert len(response.content) < 2 * 4 * PAGE + 1_000 * len(batch)
    found = await narrow.call("query_event_nodes", {"participants": ["user_42"], "query": "design"})
    assert found.content["counts"]["events"] == 0


@pytest.mark.parametrize("face", ["/mcp/agent", "/mcp/memtrace", "/mcp"])
async def test_batches_are_bounded_at_every_face(narrow: Served, face: str) -> None:
    """Whatever the tools: a hundred large answers are never one."""
    await told(narrow, 12, 2_000, channel="notes")
    for number in range(12):
        body = {"agent_id": "user_42", "content": f"garden {number} " + "y" * 2_000}
        assert (await narrow.client.post(f"{PREFIX}/memories", json=body)).status_code == 201
    tool, arguments = {
        "/mcp/agent": ("recall", {"text": "garden", "tokenBudget": 3_000, "format": "json"}),
        "/mcp/memtrace": ("memtrace_search", {"content_contains": "garden", "limit": 1000}),
        "/mcp": (QUERY, ASKED),
    }[face]
    batch = [call(tool, arguments, version=None, request_id=number) for number in range(100)]
    response = await narrow.post(batch, headers(version=None), path=face)
    answers = response.json()
    assert [answer["id"] for answer in answers] == list(range(100))
    assert code(answers[0]) is None
    assert code(answers[-1]) == "answer_too_large"
    assert len(response.content) < 2 * 4 * PAGE + 100 * 1_000


async def walked(served: Served, method: str, path: str, body: dict[str, Any] | None, rows: str) -> list[list[Any]]:
    """Return the ids of each page of a list, going on by its cursor, or else by offset."""
    pages: list[list[Any]] = []
    onward: dict[str, Any] = {}
    while True:
        if body is None:
            response = await served.client.request(method, PREFIX + path, params={"limit": 1000, **onward})
        else:
            response = await served.client.request(method, PREFIX + path, json={**body, "limit": 1000, **onward})
        assert response.status_code == 200, response.text
        assert len(response.content) < 1.2 * PAGE
        page = response.json()
        pages.append([row["id"] for row in page[rows]])
        assert page["count"] == len(pages[-1]) > 0
        if not page["has_more"]:
            return pages
        cursor = page.get("next_cursor")
        onward = {"offset": sum(map(len, pages))} if cursor is None else {"cursor": cursor}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/memories", None),
        ("GET", "/memories?order=asc", None),
        ("GET", "/agents/bot/memories", None),
        ("GET", "/sessions/s1/memories", None),
        ("POST", "/search", {"order": "asc"}),
        ("POST", "/search", {"content_contains": "garden"}),
        ("POST", "/search", {"content_contains": "arde"}),
        ("POST", "/search", {"query": "garden"}),
    ],
)
async def test_lists_of_memories_go_on_behind_their_bytes(
    narrow: Served, method: str, path: str, body: dict[str, Any] | None
) -> None:
    """With limit=1000 fewer come, and whence to go on; together the pages are all, each once."""
    kept = []
    for number in range(40):
        note = "ü" * 600 if number % 2 else "x" * 1_500
        memory = {"agent_id": "bot", "session_id": "s1", "content": f"garden {number} {note}", "metadata": {"n": note}}
        answer = await narrow.client.post(f"{PREFIX}/memories", json=memory)
        kept.append(answer.json()["id"])
    pages = await walked(narrow, method, path, body, "results" if method == "POST" else "memories")
    assert len(pages) > 2
    ids = [memory_id for page in pages for memory_id in page]
    assert len(ids) == len(kept)
    assert set(ids) == set(kept)


async def test_a_memory_larger_than_a_page_comes_alone(narrow: Served) -> None:
    """No list ends before it, and none is empty."""
    for number in range(3):
        memory = {"agent_id": "bot", "content": f"garden {number} " + "x" * (PAGE - 1_000)}
        assert (await narrow.client.post(f"{PREFIX}/memories", json=memory)).status_code == 201
    assert [len(page) for page in await walked(narrow, "GET", "/memories", None, "memories")] == [1, 1, 1]


@pytest.mark.parametrize("rows", ["agents", "sessions"])
async def test_lists_of_the_registry_say_that_there_are_more(narrow: Served, rows: str) -> None:
    """They go on by offset."""
    large = {"text": "x" * 3_000}
    for number in range(15):
        agent = {"name": f"bot-{number}", "config": large if rows == "agents" else {}}
        assert (await narrow.client.post(f"{PREFIX}/agents", json=agent)).status_code == 201
        if rows == "sessions":
            session = {"agent_id": f"bot-{number}", "metadata": large}
            assert (await narrow.client.post(f"{PREFIX}/sessions", json=session)).status_code == 201
    pages = await walked(narrow, "GET", f"/{rows}", None, rows)
    assert len(pages) > 2
    assert len({row for page in pages for row in page}) == 15


async def test_lists_merged_of_several_are_in_order(narrow: Served) -> None:
    """What an agent kept under its name and its id, and notes of another face, come as one list, page by page."""
    agent = (await narrow.client.post(f"{PREFIX}/agents", json={"name": "bot"})).json()
    for number in range(30):
        memory = {"agent_id": "bot" if number % 2 else agent["id"], "content": f"{number} " + "x" * 2_000}
        assert (await narrow.client.post(f"{PREFIX}/memories", json=memory)).status_code == 201
    times: list[str] = []
    offset = 0
    while True:
        path = f"{PREFIX}/agents/bot/memories"
        page = (await narrow.client.get(path, params={"limit": 1000, "offset": offset})).json()
        times += [memory["time"] for memory in page["memories"]]
        offset += page["count"]
        if not page["has_more"]:
            break
    assert len(times) == 30
    assert times == sorted(times, reverse=True)


def test_one_answer_has_a_bound_and_all_have_one() -> None:
    """Beyond the first it is refused for good; beyond the second, or a tenant's half of it, for now."""
    answers = Answers(PAGE * 8)
    most = answers.most_bytes
    with pytest.raises(AnswerTooLarge):
        answers.check(("a", "key"), most + 1)
    answers.check(("a", "key"), most)
    with answers.held(("a", "key")) as held:
        for _ in range(8):
            held.add(most)
        assert held.is_full
        with pytest.raises(Overloaded):
            answers.check(("a", "another key"), most)
        answers.check(("a", "key"), SMALL_BYTES)
        answers.check(("b", "key"), most)
        with answers.held(("b", "key")) as more:
            for _ in range(8):
                more.add(most)
            with pytest.raises(Overloaded):
                answers.check(("c", "key"), most)
    answers.check(("a", "key"), most)


async def test_large_answers_of_one_caller_are_made_in_turn() -> None:
    """Once one was large, the next of its kind waits for the one before; others, and its other calls, do not."""
    answers = Answers(1 << 20)
    going: list[str] = []
    done = asyncio.Event()

    async def make(asker: str, name: str, size: int) -> None:
        async with answers.slot_for(("tenant", asker), name) as made:
            going.append(f"{asker} {name}")
            await done.wait()
            made.size = size

    done.set()
    await make("greedy", "query", LARGE_BYTES)
    done.clear()
    going.clear()
    tasks = [asyncio.create_task(make("greedy", "query", LARGE_BYTES)) for _ in range(3)]
    tasks += [asyncio.create_task(make("greedy", "append", 10)), asyncio.create_task(make("other", "query", 10))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert going == ["greedy query", "greedy append", "other query"]
    done.set()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*tasks)
    assert going.count("greedy query") == 3


async def test_who_takes_nothing_does_not_fill_the_memory(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread answers are held up to a tenant's share; another tenant is served; in the end they are let go."""
    page = 256 * 1024
    settings = Settings(
        retrieval=RetrievalSettings(answer_bytes=page),
        ingest=IngestSettings(payload_bytes=page),
        auth=AuthSettings(mode="keys"),
    )
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(access_store(database, "other"))
        memory = await stack.enter_async_context(Memory(database.server_dsn, settings))
        sock = reserve_port("127.0.0.1", 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # else the kernel takes what the client does not
        served = await stack.enter_async_context(serving(memory, settings, sock=sock))
        greedy = await make_key(store, "user_42")
        quiet = await make_key(store, "user_42", tenant="other")

        async def ask(key: str) -> dict[str, Any]:
            sent = headers(QUERY) | {"authorization": f"Bearer {key}"}
            answer: dict[str, Any] = (await served.post(call(QUERY, ASKED), sent)).json()
            return answer

        for key in (greedy, quiet):
            for number in range(10):
                sent = headers("myria_append_event") | {"authorization": f"Bearer {key}"}
                one = {**event(f"k{number}", text=f"garden {number} " + "x" * 25_000), "participants": ["user_42"]}
                assert (await served.post(call("myria_append_event", one), sent)).status_code == 200
        body = json.dumps(call(QUERY, ASKED)).encode()
        lines = {**headers(QUERY), "authorization": f"Bearer {greedy}", "host": "localhost"}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        request = f"POST /mcp HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body
        sockets = []
        while "error" not in (await ask(greedy))["result"]["structuredContent"]:
            for _ in range(4):
                unread = stack.enter_context(socket.socket())
                unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                unread.setblocking(False)
                await asyncio.get_running_loop().sock_connect(unread, ("127.0.0.1", served.port))
                await asyncio.get_running_loop().sock_sendall(unread, request)
                sockets.append(unread)
            assert len(sockets) < 200, "so many answers are held, and no end"
        refused = (await ask(greedy))["result"]["structuredContent"]["error"]
        assert (refused["code"], refused["retryable"]) == ("overloaded", True)
        assert (await ask(quiet))["result"]["structuredContent"]["counts"]["events"] > 5
        monkeypatch.setattr(http, "TAKING_TIMEOUT_S", 0.0)
        async with asyncio.timeout(PATIENCE_S):
            while "error" in (await ask(greedy))["result"]["structuredContent"]:
                await asyncio.sleep(0.1)
