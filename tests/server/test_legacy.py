"""The HTTP+SSE transport of 2024-11-05: with the official client, by key, revoked, refused, and in no log."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client

from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, McpSettings, Settings
from myria_server.api.api_call import CallResult
from myria_server.http import sse as legacy
from myria_server.http import streams
from myria_server.mcp.toolbox import Toolbox
from tests.server.wire import Served, serving
from tests.support.keys import make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

ON = McpSettings(legacy_sse=True)


@pytest.fixture
async def old(memory: Memory) -> AsyncIterator[Served]:
    """A server with the old transport, which asks for keys."""
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"), mcp=ON)) as served:
        yield served


def url(served: Served, path: str = "/sse") -> str:
    return f"http://127.0.0.1:{served.port}{path}"


async def message(served: Served, session_id: str, body: object, **headers: str) -> httpx.Response:
    return await served.client.post("/message", params={"sessionId": session_id}, json=body, headers=headers)


LIST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}


async def test_the_official_client_remembers_and_recalls(
    old: Served, store: AccessStore, caplog: pytest.LogCaptureFixture, database: Database
) -> None:
    """Through `GET /sse?accessKey=` and `POST /message?sessionId=`; the key is in no log and no table."""
    caplog.set_level(logging.DEBUG)
    key = await make_key(store, "ana", "bot")
    named: list[str] = []
    async with (
        sse_client(url(old, f"/sse?accessKey={key}"), on_session_created=named.append) as (read, write),
        ClientSession(read, write) as session,
    ):
        begun = await session.initialize()
        assert begun.server_info.name
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert {"remember", "recall", "forget"} <= tools
        kept = await session.call_tool("remember", {"content": "The boiler is serviced in May", "type": "fact"})
        assert not kept.is_error
        found = await session.call_tool("recall", {"text": "boiler"})
        assert "serviced in May" in found.content[0].text  # type: ignore[union-attr]
        assert (await old.client.get("/health")).json()["sessions"] == {"streamable": 0, "legacy": 1, "total": 1}
        (session_id,) = named
        other = await make_key(store, "eve")
        foreign = await message(old, session_id, LIST, authorization=f"Bearer {other}")
        absent = await message(old, "0" * 32, LIST, authorization=f"Bearer {other}")
        assert (foreign.status_code, foreign.text) == (404, absent.text)
    theirs = ("mcp.client", "httpx", "httpcore")  # the client runs in this process too
    assert not [
        record.name for record in caplog.records if key in str(vars(record)) and not record.name.startswith(theirs)
    ]
    assert key not in (await old.client.get("/metrics")).text
    async with asyncpg.create_pool(database.superuser_dsn, min_size=1, max_size=1) as pool:
        for table in ("access_log", "call_log", "notes", "events"):
            assert key not in str(await pool.fetch(f"SELECT t::text FROM myria.{table} t"))


async def test_who_has_no_good_key_opens_no_stream(old: Served, store: AccessStore) -> None:
    """Missing, wrong and revoked keys are 401, as everywhere; a key without this face is 403; foreign hosts are 421."""
    good = await make_key(store, "ana")
    assert (await old.client.get("/sse")).status_code == 401
    assert (await old.client.get("/sse", params={"accessKey": good[:-4] + "0000"})).status_code == 401
    both = {"authorization": "Bearer nonsense"}
    assert (await old.client.get("/sse", params={"accessKey": good}, headers=both)).status_code == 401
    elsewhere = {"host": "elsewhere.example"}
    assert (await old.client.get("/sse", params={"accessKey": good}, headers=elsewhere)).status_code == 421
    narrow = await make_key(store, "ben", faces=["core"])
    assert (await old.client.get("/sse", params={"accessKey": narrow})).status_code == 403
    assert (await old.client.post("/sse", params={"accessKey": good})).status_code == 405


async def test_a_message_must_be_one(old: Served, store: AccessStore) -> None:
    """What is no strict JSON-RPC is refused with a code; the stream goes on."""
    key = await make_key(store, "ana")
    named: list[str] = []
    async with (
        sse_client(url(old, f"/sse?accessKey={key}"), on_session_created=named.append) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        for body in (b"{", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', b"[]"):
            own = {"memento-access-key": key} if body == b"[]" else {}
            refused = await old.client.post("/message", params={"sessionId": named[0]}, content=body, headers=own)
            assert refused.status_code == 400, body
            assert refused.json()["error"]["data"]["code"]
        assert (await message(old, "x", LIST, authorization=f"Bearer {key}")).status_code == 400
        for absent in ("x", "0" * 32):
            assert (await message(old, absent, LIST)).status_code == 401, "who proves nothing learns of no stream"
        assert (await old.client.get("/message", params={"sessionId": named[0]})).status_code == 405
        assert (await session.list_tools()).tools


async def test_who_reads_no_answers_asks_no_further(
    old: Served, store: AccessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many requests of a credential wait for an answer as may, each under an id of its own; notifications pass."""
    key = await make_key(store, "ana")
    named: list[str] = []
    async with (
        sse_client(url(old, f"/sse?accessKey={key}"), on_session_created=named.append) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        for _ in range(2 * legacy.UNANSWERED_EACH):  # what is answered counts no more
            assert (await session.list_tools()).tools
        monkeypatch.setattr(legacy, "UNANSWERED_EACH", 0)
        refused = await message(old, named[0], LIST)
        assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (429, "rate_limited")
        noted = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await message(old, named[0], noted)).status_code == 202


async def test_only_an_answer_ends_what_a_stream_owes(
    old: Served, store: AccessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A malformed response with the id of a request under way is refused, and that request still counts."""
    monkeypatch.setattr(legacy, "UNANSWERED_EACH", 1)
    may_go_on = asyncio.Event()
    call_now = Toolbox.call

    async def call_later(*arguments: Any, **more: Any) -> CallResult:
        await may_go_on.wait()
        return await call_now(*arguments, **more)

    monkeypatch.setattr(Toolbox, "call", call_later)
    key = await make_key(store, "ana")
    named: list[str] = []
    async with (
        sse_client(url(old, f"/sse?accessKey={key}"), on_session_created=named.append) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        slow = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "recall", "arguments": {}}}
        while (await message(old, named[0], slow)).status_code == 429:  # the answer to initialize is being read
            await asyncio.sleep(0)
        assert (await message(old, named[0], LIST | {"id": 8})).status_code == 429
        assert (await message(old, named[0], {"jsonrpc": "2.0", "id": 7, "error": "x"})).status_code == 400
        assert (await message(old, named[0], LIST | {"id": 8})).status_code == 429
        may_go_on.set()


async def test_a_revoked_key_ends_what_its_stream_can_do(old: Served, store: AccessStore) -> None:
    """The stream was opened before; its next messages are refused as soon as the process knows."""
    key = await make_key(store, "ana")
    named: list[str] = []
    async with (
        sse_client(url(old, f"/sse?accessKey={key}"), on_session_created=named.append) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        await store.revoke_key(key.split("_")[1])
        ping = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        while (answer := await message(old, named[0], ping)).status_code == 202:
            pass
        assert (answer.status_code, answer.json()["error"]["data"]["code"]) == (401, "credential_invalid")


async def test_no_credential_takes_all_streams(
    old: Served, store: AccessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more than it may have is 429 with Retry-After; others open theirs, and it may again once one is closed."""
    monkeypatch.setattr(streams, "STREAMS_EACH", 1)
    ana, eve = await make_key(store, "ana"), await make_key(store, "eve")

    async def status(key: str) -> int:
        async with old.client.stream("GET", "/sse", params={"accessKey": key}) as answer:
            assert (answer.status_code == 429) == ("retry-after" in answer.headers)
            return answer.status_code

    async with old.client.stream("GET", "/sse", params={"accessKey": ana}) as open_one:
        assert open_one.status_code == 200
        assert (await status(ana), await status(eve)) == (429, 200)
    async with asyncio.timeout(PATIENCE_S):
        while await status(ana) != 200:
            await asyncio.sleep(0.02)


async def test_old_sessions_get_a_stream_and_an_end(old: Served, store: AccessStore) -> None:
    """GET at an MCP path is a stream with nothing to say, DELETE is 200."""
    key = await make_key(store, "ana")
    headers = {"authorization": f"Bearer {key}", "accept": "text/event-stream"}
    for path in ("/mcp", "/mcp/agent"):
        async with old.client.stream("GET", path, headers=headers) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"] == "text/event-stream"
            assert await anext(stream.aiter_bytes()) == b": still here\n\n"
        assert (await old.client.delete(path, headers=headers)).status_code == 200
        assert (await old.client.delete(path)).status_code == 401


async def test_a_stream_holds_no_body(old: Served, store: AccessStore) -> None:
    """A body would be held, with its turn among the big ones, for as long as the stream is open: so it is refused."""
    key = await make_key(store, "ana")
    sent = {"authorization": f"Bearer {key}", "accept": "text/event-stream"}
    for path in ("/mcp", "/mcp/agent", "/sse"):
        for body in (b"x", b"x" * 300_000):
            async with old.client.stream("GET", path, headers=sent, content=body) as stream:
                assert stream.status_code == 413, path


async def test_off_is_405(served: Served) -> None:
    """Unless it is set, each of these is refused, and the answer says what to use."""
    for method, path in (("GET", "/sse"), ("POST", "/message"), ("GET", "/mcp"), ("DELETE", "/mcp/agent")):
        refused = await served.client.request(method, path, headers={"accept": "text/event-stream"})
        assert refused.status_code == 405, path
        assert "POST" in refused.text or "legacy_sse" in refused.text
        assert json.loads(refused.text)["error"]


async def test_one_body_for_two_contracts(served: Served) -> None:
    """/health and /ready hold what clients of either old memory look for; without a database they are 503."""
    for path, status in (("/health", "ok"), ("/ready", "ready")):
        answer = await served.client.get(path)
        body = answer.json()
        assert (answer.status_code, body["status"], body["arc"]) == (200, status, {"default": True})
        assert {"service", "uptime", "timestamp"} < body.keys()
        assert body["database"] == body["checks"]["database"] == {"status": "up"}
        assert body["checks"]["redis"] == {"status": "disabled"}
        assert body["checks"]["sessions"] == {"streamable": 0, "legacy": 0, "total": 0}
    async with Memory("postgresql://nobody@127.0.0.1:1/none", Settings()) as gone, serving(gone) as away:
        health, ready = await away.client.get("/health"), await away.client.get("/ready")
        assert (health.status_code, health.json()["status"]) == (503, "unhealthy")
        assert health.json()["database"] == health.json()["checks"]["database"] == {"status": "down"}
        assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
        assert (ready.json()["reason"], ready.json()["arc"]) == ("database_unavailable", {"default": False})
