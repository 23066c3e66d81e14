"""The fast path says what the SDK would say: the same requests, sent both ways, get the same JSON."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from httpx import ASGITransport

from myria.memory import Memory
from myria_server.app import ServerApp, build_app
from myria_server.mcp.fast_path import FastPath
from tests.server.wire import LEGACY, META, MODERN, call, event, headers

ASKED = {"participants": ["user_42"]}


@contextlib.asynccontextmanager
async def client_of(app: ServerApp) -> AsyncIterator[httpx.AsyncClient]:
    """Run an application's lifespan and talk to it without a socket."""
    started, over = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app._beside.router.lifespan_context(app._beside):
            started.set()
            await over.wait()

    # In a task of its own: a fixture is torn down in another task than it was set up in.
    life = asyncio.create_task(live())
    await started.wait()
    async with httpx.AsyncClient(transport=ASGITransport(app), base_url="http://localhost:80") as client:
        yield client
    over.set()
    await life


class Both:
    """One request, two ways."""

    def __init__(self, fast: httpx.AsyncClient, slow: httpx.AsyncClient, taken: list[bool]) -> None:
        self.fast, self.slow, self.taken = fast, slow, taken

    async def same(self, message: Any, sent: dict[str, str]) -> bool:
        """Compare both answers, and tell whether the fast path took the request."""
        self.taken.clear()
        quick = await self.fast.post("/mcp", json=message, headers=sent)
        plain = await self.slow.post("/mcp", json=message, headers=sent)
        assert quick.status_code == plain.status_code
        assert quick.headers.get("content-type") == plain.headers.get("content-type")
        if quick.headers.get("content-type") == "application/json" and plain.content:
            assert quick.json() == plain.json()
        else:
            assert quick.content == plain.content
        return self.taken == [True]


@pytest.fixture
async def both(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Both]:
    """The same memory behind a server with the fast path and one without."""
    taken: list[bool] = []
    recognise = FastPath.recognise

    def noted(self: FastPath, *arguments: Any) -> Any:
        found = recognise(self, *arguments)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(FastPath, "recognise", noted)
    async with client_of(build_app(memory)) as fast, client_of(build_app(memory, fast=False)) as slow:
        yield Both(fast, slow, taken)


CALLS: list[tuple[str, Any]] = [
    ("myria.append_event", event("k")),
    ("myria_append_event", event("k")),
    ("append_event", event("k", payload={"text": 'ünï©ode\u2028 "quoted" \\ </script>', "n": [1, 1.5, None]})),
    ("myria.append_events", {"events": [event("k"), event("k")]}),
    ("myria.append_event", {}),
    ("myria.append_event", event(channel="")),
    ("myria.query_event_nodes", ASKED | {"query": "memory"}),
    ("myria.query_references", ASKED),
    ("myria.get_event", ASKED | {"event_id": "evt_none"}),
    ("myria.get_active_snapshot", None),
    ("myria.get_active_snapshot", {}),
    ("myria.rollback", {}),
]


@pytest.mark.parametrize("version", [MODERN, *LEGACY, None])
async def test_plain_calls_are_taken_and_answered_alike(both: Both, version: str | None) -> None:
    """Every tool, good and bad arguments, every era: the fast path takes it and the JSON is the SDK's."""
    await both.fast.post("/mcp", json=call("append_event", event("k")), headers=headers("append_event"))
    for name, arguments in CALLS:
        for request_id in (7, "seven"):
            message = call(name, arguments, version=version, request_id=request_id)
            assert await both.same(message, headers(name, version=version)), name


async def test_progress_tokens_and_other_clients_are_plain(both: Both) -> None:
    """A progress token, a bigger client description, another accept header: all usual."""
    name = "myria.query_event_nodes"
    message = call(name, ASKED)
    message["params"]["_meta"] = META | {
        "progressToken": 5,
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "2", "title": "X", "websiteUrl": "https://x.y"},
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {}, "experimental": {"a": {}}},
    }
    assert await both.same(message, headers(name))
    assert await both.same(call(name, ASKED), headers(name) | {"accept": "*/*"})
    assert await both.same(call(name, ASKED), headers(name) | {"accept": "application/json"})
    legacy = call(name, ASKED, version=None)
    legacy["params"]["_meta"] = {"progressToken": "t"}
    assert await both.same(legacy, headers(version="2025-11-25"))
    assert await both.same(legacy, headers(version=None) | {"content-type": "application/json; charset=utf-8"})


def changed(message: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a message with some members changed; Ellipsis removes one."""
    merged = message | changes
    return {key: value for key, value in merged.items() if value is not ...}


def with_meta(**more: Any) -> dict[str, Any]:
    """Return the plain call with more in its envelope, under the protocol's prefix."""
    prefixed = {f"io.modelcontextprotocol/{key}": value for key, value in more.items()}
    return changed(PLAIN, params=PARAMS | {"_meta": META | prefixed})


NAME = "myria.query_event_nodes"
PLAIN = call(NAME, ASKED)
OLD = call(NAME, ASKED, version=None)
PARAMS = PLAIN["params"]
ODD: list[tuple[str, Any, dict[str, str]]] = [
    ("unknown tool", call("myria.nope", {}), headers("myria.nope")),
    ("unknown tool, legacy", call("nope", {}, version=None), headers(version="2025-06-18")),
    ("header names another tool", PLAIN, headers("myria.append_event")),
    ("no name header", PLAIN, headers()),
    ("no method header", PLAIN, {k: v for k, v in headers(NAME).items() if k != "mcp-method"}),
    ("other method header", PLAIN, headers(NAME, method="tools/list")),
    ("unknown version", PLAIN, headers(NAME) | {"mcp-protocol-version": "2030-01-01"}),
    ("version of the body differs", PLAIN, headers(NAME) | {"mcp-protocol-version": "2025-11-25"}),
    ("no envelope", call(NAME, ASKED, version=None), headers(NAME)),
    (
        "half an envelope",
        changed(PLAIN, params=PARAMS | {"_meta": dict(list(META.items())[:1])}),
        headers(NAME),
    ),
    ("bad client info", with_meta(clientInfo={"name": 5}), headers(NAME)),
    ("bad capabilities", with_meta(clientCapabilities=5), headers(NAME)),
    (
        "log level",
        changed(PLAIN, params=PARAMS | {"_meta": META | {"io.modelcontextprotocol/logLevel": "x"}}),
        headers(NAME),
    ),
    ("bad token", changed(PLAIN, params=PARAMS | {"_meta": META | {"progressToken": True}}), headers(NAME)),
    ("more meta", changed(PLAIN, params=PARAMS | {"_meta": META | {"com.example/x": 1}}), headers(NAME)),
    ("more params", changed(PLAIN, params=PARAMS | {"extra": 1}), headers(NAME)),
    (
        "task, legacy",
        changed(OLD, params={"name": NAME, "task": {}}),
        headers(version=None),
    ),
    ("arguments no object", changed(PLAIN, params=PARAMS | {"arguments": [1]}), headers(NAME)),
    ("arguments no object, legacy", call(NAME, "x", version=None), headers(version=None)),
    ("name no text", changed(PLAIN, params=PARAMS | {"name": 5}), headers(NAME)),
    ("no params", changed(PLAIN, params=...), headers(NAME)),
    ("no params, legacy", changed(PLAIN, params=...), headers(version=None)),
    ("id null", changed(PLAIN, id=None), headers(NAME)),
    ("id true", changed(PLAIN, id=True), headers(NAME)),
    ("id fraction, legacy", changed(OLD, id=1.5), headers(version=None)),
    ("notification", changed(PLAIN, id=...), headers(NAME)),
    ("jsonrpc 1.0", changed(PLAIN, jsonrpc="1.0"), headers(NAME)),
    ("more members", changed(PLAIN, extra=1), headers(NAME)),
    ("accepts html", PLAIN, headers(NAME) | {"accept": "text/html"}),
    ("accepts html, legacy", OLD, headers(version=None) | {"accept": "text/html"}),
    ("plain text", PLAIN, headers(NAME) | {"content-type": "text/plain"}),
    (
        "upper-case type, legacy",
        call(NAME, ASKED, version=None),
        headers(version=None) | {"content-type": "Application/JSON"},
    ),
    ("list", changed(PLAIN, method="tools/list"), headers(method="tools/list")),
    ("discover", changed(PLAIN, method="server/discover", params={"_meta": META}), headers(method="server/discover")),
    ("unknown method", changed(PLAIN, method="x/y"), headers(method="x/y")),
    ("ping, legacy", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers(version="2025-06-18")),
    ("a response", {"jsonrpc": "2.0", "id": 1, "result": {}}, headers(version=None)),
    ("a number", 5, headers(NAME)),
    ("modern batch", [PLAIN], headers(NAME)),
]


@pytest.mark.parametrize(("what", "message", "sent"), ODD, ids=[what for what, _, _ in ODD])
async def test_odd_requests_are_left_to_the_sdk(both: Both, what: str, message: Any, sent: dict[str, str]) -> None:
    """Whatever is unusual gets the SDK's own answer, and the fast path keeps its hands off."""
    assert not await both.same(message, sent)
