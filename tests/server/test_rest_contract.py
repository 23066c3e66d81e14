"""REST against its document: of every route each documented status, by a request that must be answered so."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import httpx
import jsonschema
import pytest

from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, IngestSettings, McpSettings, ReviewSettings, Settings
from myria_server import serving as http_module
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.memtrace.openapi import document
from myria_server.api.memtrace.routing import Route
from myria_server.paths import REST_PREFIX as PREFIX
from myria_server.serving import HEADER_BYTES
from tests.server.wire import Served, serving
from tests.support.clock import Clock
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

SMALL = 4096
KEYED = Settings(
    auth=AuthSettings(mode="keys"), mcp=McpSettings(body_bytes=SMALL), ingest=IngestSettings(payload_bytes=SMALL)
)
OPEN = Settings(mcp=McpSettings(append_deadline_s=300.0, request_deadline_s=300.0))
ABSENT = "absent"
AGENT: Mapping[str, Any] = {"name": "bot"}
SAID: Mapping[str, Any] = {"agent_id": "bot", "content": "Crawled https://example.com"}

BODIES: Mapping[str, Any] = {
    "keep_memories": SAID,
    "amend_memory": {"content": "Crawled it twice"},
    "search_memories": {"content_contains": "Crawled"},
    "register_agent": AGENT,
    "open_session": {"agent_id": "bot"},
    "change_session": {"status": "closed"},
    "get_session_context": {},
}
"""What each route is asked with, where it takes a body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request of a route: `path` below the prefix, with its query."""

    route: Route
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, client: httpx.AsyncClient, **headers: str) -> httpx.Response:
        """Send it."""
        content = self.body if isinstance(self.body, bytes) or self.body is None else json.dumps(self.body).encode()
        lines = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await client.request(self.route.method, PREFIX + self.path, content=content, headers=lines)


def asking(route: Route, entry_id: str = "bot", *, query: str = "", **more: Any) -> Ask:
    """Return a request of a route as it should be."""
    path = route.path.replace("{id}", entry_id) + query
    return Ask(route=route, path=path, **{"body": BODIES.get(route.name), **more})


def named(name: str) -> Route:
    """Return a route by its name."""
    return next(route for route in ROUTES if route.name == name)


class Answers:
    """Which statuses each route answered, each compared with the document."""

    def __init__(self) -> None:
        self._described = json.loads(json.dumps(document("1")))
        self.seen: dict[str, set[int]] = {route.name: set() for route in ROUTES}

    def documented(self, route: Route) -> set[int]:
        """Return the statuses that a route is documented to answer."""
        return {int(status) for status in self._operation(route)["responses"]}

    def note(self, route: Route, response: httpx.Response, status: int) -> Any:
        """Note an answer that must have a status, and return what it says."""
        assert response.status_code == status, (route.name, response.status_code, response.text)
        self.seen[route.name].add(status)
        said = self._operation(route)["responses"][str(status)]
        if "content" not in said:
            assert response.content == b""
            return None
        assert response.headers["content-type"] == "application/json"
        schema = {
            **said["content"]["application/json"]["schema"],
            "components": self._described["components"],
        }
        answered = response.json()
        jsonschema.Draft202012Validator(schema).validate(answered)
        return answered

    def _operation(self, route: Route) -> Any:
        return self._described["paths"][PREFIX + route.path][route.method.lower()]


@pytest.fixture
def settings() -> Settings:
    """What an intern says waits for a review."""
    return Settings(review=ReviewSettings(sources=("speaker:intern",)))


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """Where keys are made."""
    async with access_store(database, "other", "full") as store:
        yield store


async def test_every_documented_status_of_every_route_is_answered(
    database: Database, store: AccessStore, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other: each request of the table is answered with its status and a body as the document has it."""
    answers = Answers()
    async with serving(memory, KEYED, ticks=Clock()) as served:
        await refuse_callers(served, store, answers)
        await refuse_requests(served, await make_key(store, "ada", faces=("rest",)), answers)
        await answer_requests(served, await make_key(store, "ada", name="b", faces=("rest",)), answers)
    await never_arrive(memory, monkeypatch, answers)
    await lose_the_database(answers)
    await lose_the_tables(database, memory, answers)
    assert answers.seen == {route.name: answers.documented(route) for route in ROUTES}


async def refuse_callers(served: Served, store: AccessStore, answers: Answers) -> None:
    """Ask without a key, with one that may not, too often, and under another name."""
    reads = await make_key(store, "ada", name="reads", roles=("read",), faces=("rest",))
    appends = await make_key(store, "ada", name="appends", roles=("append",), faces=("rest",))
    slow = await make_key(store, "ada", name="slow", requests_per_s=1.0, faces=("rest",))
    for _ in range(2):
        await served.client.get(PREFIX + "/agents", headers={"x-api-key": slow})

    async def refuse(route: Route) -> None:
        ask = asking(route)
        answers.note(route, await ask.send(served.client), 401)
        answers.note(route, await ask.send(served.client, x_api_key=reads if route.changes else appends), 403)
        answers.note(route, await ask.send(served.client, x_api_key=slow), 429)
        answers.note(route, await ask.send(served.client, host="elsewhere.example"), 421)

    await asyncio.gather(*map(refuse, ROUTES))


async def refuse_requests(served: Served, key: str, answers: Answers) -> None:
    """Ask for what nobody knows, for what is not there, and with too much."""
    for route in ROUTES:
        wrong = await asking(route, query="?colour=red").send(served.client, x_api_key=key)
        assert answers.note(route, wrong, 400)["code"] in ("unknown_field", "invalid_argument")
        if "{id}" in route.path:
            answers.note(route, await asking(route, "%20").send(served.client, x_api_key=key), 404)
            if any(refusal.http_status == 404 for refusal in route.refusals):
                answers.note(route, await asking(route, ABSENT).send(served.client, x_api_key=key), 404)
        if route.body:
            for body in (b"{", b"[]", b'"x"', b"\xff", b'{"colour": "red"}'):
                answers.note(route, await asking(route, body=body).send(served.client, x_api_key=key), 400)
            large = b" " * (SMALL + 1)
            answers.note(route, await asking(route, body=large).send(served.client, x_api_key=key), 413)


async def answer_requests(served: Served, key: str, answers: Answers) -> None:
    """Ask as it should be, then for what the state of the memory forbids."""

    async def ask(name: str, entry_id: str = "", *, status: int, body: Any = None, **headers: str) -> Any:
        route = named(name)
        request = asking(route, entry_id, body=BODIES.get(name) if body is None else body)
        return answers.note(route, await request.send(served.client, x_api_key=key, **headers), status)

    once: dict[str, str] = {"idempotency_key": "k1"}
    agent = await ask("register_agent", status=201, **once)
    assert (await ask("register_agent", status=409))["code"] == "agent_exists"
    reused = await ask("register_agent", status=409, body={"name": "cat"}, **once)
    assert reused["code"] == "idempotency_key_reused"
    session = await ask("open_session", status=201, **once)
    other = {"agent_id": "bot", "metadata": {"other": True}}
    await ask("register_agent", status=201, body={"name": "dog"})
    assert (await ask("open_session", status=409, body={"agent_id": "dog"}, **once))["code"] == "idempotency_key_reused"
    await ask("open_session", status=201, body=other)
    kept = await ask("keep_memories", status=201, **once)
    assert (await ask("keep_memories", status=409))["code"] == "duplicate_memory"
    reused = await ask("keep_memories", status=409, body={**SAID, "content": "else"}, **once)
    assert reused["code"] == "idempotency_key_reused"
    late = await ask("amend_memory", kept["id"], status=409, body={"content": "x", "version": 7})
    assert late["code"] == "already_superseded"
    await ask("amend_memory", kept["id"], status=200, **once)
    reused = await ask("amend_memory", kept["id"], status=409, body={"content": "otherwise"}, **once)
    assert reused["code"] == "idempotency_key_reused"
    for name in ("list_memories", "list_agents", "list_sessions", "search_memories"):
        await ask(name, status=200)
    for name in ("get_agent", "list_agent_memories", "get_agent_statistics"):
        await ask(name, agent["id"], status=200)
    for name in ("get_session", "change_session", "list_session_memories", "get_session_context"):
        await ask(name, session["id"], status=200)
    await ask("get_memory", kept["id"], status=200)
    held = await ask("keep_memories", status=201, body={**SAID, "agent_id": "intern"})
    assert held["held"]
    assert (await ask("withdraw_memory", held["id"], status=409))["code"] == "note_held"
    await ask("withdraw_memory", kept["id"], status=204)
    gone = await ask("keep_memories", status=404, **once)
    assert gone["code"] == "note_not_found"
    await ask("delete_agent", agent["id"], status=204)


async def never_arrive(memory: Memory, monkeypatch: pytest.MonkeyPatch, answers: Answers) -> None:
    """Send half of a head, half of a body, and a head too large."""

    async def send(route: Route, rest: bytes, status: int) -> None:
        path = PREFIX + route.path.replace("{id}", "bot")
        answered = await served.raw(f"{route.method} {path} HTTP/1.1\r\nhost: localhost\r\n".encode() + rest)
        head, _, body = answered.partition(b"\r\n\r\n")
        said = {"content-type": "application/json"}
        answers.note(route, httpx.Response(int(head.split()[1]), content=body, headers=said), status)

    async with serving(memory, Settings(), body_timeout=0.05) as served:
        large = b"x-filler: " + b"a" * HEADER_BYTES
        await asyncio.gather(*(send(route, large, 431) for route in ROUTES))
        await asyncio.gather(*(send(route, b"content-length: 9\r\n\r\n{", 408) for route in ROUTES if route.body))
        with monkeypatch.context() as patched:
            patched.setattr(http_module, "HEADER_TIMEOUT_S", 0.1)
            await asyncio.gather(*(send(route, b"", 408) for route in ROUTES))


async def lose_the_database(answers: Answers) -> None:
    """Ask while nothing answers under the database's address."""
    async with Memory("postgresql://nobody@127.0.0.1:1/none", OPEN) as gone, serving(gone, OPEN) as served:
        for route in ROUTES:
            refused = answers.note(route, await asking(route).send(served.client), 503)
            assert (refused["code"], refused["retryable"]) == ("database_unavailable", True)
            assert "/ready" in refused["hint"]


async def lose_the_tables(database: Database, memory: Memory, answers: Answers) -> None:
    """Ask while the tables are not where they should be: an error that only the log explains."""
    async with serving(memory, OPEN) as served:
        await asking(named("list_memories")).send(served.client)
        async with renamed(database):
            for route in ROUTES:
                refused = answers.note(route, await asking(route).send(served.client), 500)
                assert refused["retryable"] is False


@contextlib.asynccontextmanager
async def renamed(database: Database) -> AsyncIterator[None]:
    """Let the tables have another schema for the block."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        await connection.execute("ALTER SCHEMA myria RENAME TO elsewhere")
        yield
        await connection.execute("ALTER SCHEMA elsewhere RENAME TO myria")
    finally:
        await connection.close()


async def test_a_tenant_that_cannot_be_served_says_what_to_do(memory: Memory, store: AccessStore) -> None:
    """503 with its own next step: suspended, and over its storage quota, where reading goes on."""
    settings = Settings(auth=AuthSettings(mode="keys"))
    async with serving(memory, settings) as served:
        keys = {who: await make_key(store, "ada", tenant=who, faces=("rest",)) for who in ("other", "full", "default")}
        await store.suspend_tenant("other", "unpaid")
        await store.set_quotas("full", {"bytes_stored": 1})
        hints = set()
        for tenant, code, step in (
            ("other", "tenant_suspended", "myria tenant resume"),
            ("full", "storage_quota_exceeded", "bytes_stored"),
        ):
            for number in range(2):  # of the second the first byte is known
                body = {**SAID, "content": f"text {number}"}
                response = await asking(named("keep_memories"), body=body).send(served.client, x_api_key=keys[tenant])
            refused = response.json()
            assert (response.status_code, refused["code"], refused["retryable"]) == (503, code, False)
            assert "www-authenticate" not in response.headers
            assert step in refused["hint"]
            hints.add(refused["hint"])
        assert len(hints) == 2
        reading = asking(named("list_memories"))
        assert (await reading.send(served.client, x_api_key=keys["full"])).status_code == 200
        assert (await reading.send(served.client, x_api_key=keys["other"])).status_code == 503
        assert (await asking(named("keep_memories")).send(served.client, x_api_key=keys["default"])).status_code == 201
