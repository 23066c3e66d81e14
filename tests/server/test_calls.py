"""Calls over HTTP never reach the SDK, and are answered as it would answer them: both get the same requests here."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from httpx import ASGITransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from myria.access.principal import local_principal
from myria.memory import Memory
from myria.settings import Settings
from myria_server.mcp.calls import _check_written as envelope_check
from myria_server.mcp.server import build_server
from myria_server.mcp.toolbox import Toolbox
from myria_server.metrics import ServerMetrics
from tests.server.wire import BASE_HEADERS, LEGACY, META, MODERN, Served, call, event, headers

ASKED = {"participants": ["user_42"]}


@contextlib.asynccontextmanager
async def sdk_alone(memory: Memory) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the same tools by the SDK, without anything before it."""
    settings = Settings()
    toolbox = Toolbox(memory, settings, ServerMetrics())
    server = build_server(toolbox, settings, local_principal("default", fallback=settings.auth.local_participants))
    manager = StreamableHTTPSessionManager(app=server, json_response=True, stateless=True)
    transport = ASGITransport(manager.handle_request)
    async with manager.run(), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def same(served: Served, sdk: httpx.AsyncClient, message: Any, sent: dict[str, str]) -> None:
    """Send a request to both, and compare the answers."""
    ours, theirs = await served.post(message, sent), await sdk.post("/mcp", json=message, headers=sent)
    assert (ours.status_code, ours.json()) == (theirs.status_code, theirs.json())


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
async def test_usual_calls_are_answered_alike(served: Served, memory: Memory, version: str | None) -> None:
    """Every kind of tool, good and bad arguments, every protocol version."""
    await served.post(call("append_event", event("k")), headers("append_event"))
    async with sdk_alone(memory) as sdk:
        for name, arguments in CALLS:
            for request_id in (7, "seven"):
                message = call(name, arguments, version=version, request_id=request_id)
                await same(served, sdk, message, headers(name, version=version))


async def test_progress_tokens_and_other_clients_are_taken(served: Served, memory: Memory) -> None:
    """A progress token, a bigger client description, another accept header: all usual."""
    name = "myria.query_event_nodes"
    message = call(name, ASKED)
    message["params"]["_meta"] = META | {
        "progressToken": 5,
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "2", "title": "X", "websiteUrl": "https://x.y"},
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {}, "experimental": {"a": {}}},
    }
    legacy = call(name, ASKED, version=None)
    legacy["params"]["_meta"] = {"progressToken": "t"}
    async with sdk_alone(memory) as sdk:
        await same(served, sdk, message, headers(name))
        await same(served, sdk, call(name, ASKED), headers(name) | {"accept": "*/*"})
        await same(served, sdk, call(name, ASKED), headers(name) | {"accept": "application/json"})
        await same(served, sdk, legacy, headers(version="2025-11-25"))
        typed = BASE_HEADERS | {"content-type": "application/json; charset=utf-8"}
        await same(served, sdk, legacy, typed)


@pytest.mark.parametrize("version", [MODERN, "2025-06-18"])
@pytest.mark.parametrize("token_of", [str, int], ids=["text", "number"])
async def test_an_envelope_is_remembered_without_its_progress_token(
    served: Served, version: str, token_of: type[str] | type[int]
) -> None:
    """A client that sends another token with each call has its envelope checked by the SDK once."""
    envelope_check.cache_clear()
    for token in (1, 2, 3):
        message = call(NAME, ASKED, version=version)
        message["params"].setdefault("_meta", {})
        message["params"]["_meta"] = message["params"]["_meta"] | {"progressToken": token_of(token)}
        assert (await served.post(message, headers(NAME, version=version))).status_code == 200
    assert envelope_check.cache_info().misses == 1


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
    ("more members", changed(PLAIN, extra=1), headers(NAME)),
    ("list", changed(PLAIN, method="tools/list"), headers(method="tools/list")),
    ("discover", changed(PLAIN, method="server/discover", params={"_meta": META}), headers(method="server/discover")),
    ("unknown method", changed(PLAIN, method="x/y"), headers(method="x/y")),
    ("ping, legacy", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers(version="2025-06-18")),
]


@pytest.mark.parametrize(("message", "sent"), [case[1:] for case in ODD], ids=[case[0] for case in ODD])
async def test_unusual_requests_are_answered_alike(
    served: Served, memory: Memory, message: Any, sent: dict[str, str]
) -> None:
    """Other envelopes, headers that say something else, refused parameters, and what calls no tool."""
    async with sdk_alone(memory) as sdk:
        await same(served, sdk, message, sent)


REFUSED: list[tuple[str, Any, dict[str, str], int, int]] = [
    ("arguments no object", changed(PLAIN, params=PARAMS | {"arguments": [1]}), headers(NAME), 400, -32602),
    ("arguments no object, legacy", call(NAME, "x", version=None), headers(version=None), 400, -32602),
    ("name no text", changed(PLAIN, params=PARAMS | {"name": 5}), headers(NAME), 400, -32602),
    ("no params", changed(PLAIN, params=...), headers(NAME), 400, -32602),
    ("no params, legacy", changed(PLAIN, params=...), headers(version=None), 400, -32602),
    ("id null", changed(PLAIN, id=None), headers(NAME), 400, -32600),
    ("id true", changed(PLAIN, id=True), headers(NAME), 400, -32600),
    ("id fraction, legacy", changed(OLD, id=1.5), headers(version=None), 400, -32600),
    ("jsonrpc 1.0", changed(PLAIN, jsonrpc="1.0"), headers(NAME), 400, -32600),
    ("accepts html", PLAIN, headers(NAME) | {"accept": "text/html"}, 406, -32600),
    ("accepts html, legacy", OLD, headers(version=None) | {"accept": "text/html"}, 406, -32600),
    ("plain text", PLAIN, headers(NAME) | {"content-type": "text/plain"}, 400, -32600),
    ("a number", 5, headers(NAME), 400, -32600),
    ("modern batch", [PLAIN], headers(NAME), 400, -32600),
]


@pytest.mark.parametrize(
    ("message", "sent", "status", "code"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
async def test_what_is_no_message_is_refused_with_a_code(
    served: Served, message: Any, sent: dict[str, str], status: int, code: int
) -> None:
    """In words that a person can act on, and under its id where it has one that an answer can carry."""
    answer = await served.post(message, sent)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["data"]["code"]) == (status, code, "invalid_argument")
    request_id = message.get("id") if isinstance(message, dict) else None
    assert answer.json()["id"] == (request_id if type(request_id) is int else None)


@pytest.mark.parametrize("message", [changed(OLD, id=...), {"jsonrpc": "2.0", "id": 1, "result": {}}])
async def test_what_wants_no_answer_gets_none(served: Served, message: Any) -> None:
    """A notification that names a tool calls none."""
    answer = await served.post(message, headers(version=None))
    assert (answer.status_code, answer.content) == (202, b"")


async def test_a_media_type_may_be_written_in_capitals(served: Served) -> None:
    """RFC 9110, section 8.3.1."""
    answer = await served.post(OLD, headers(version=None) | {"content-type": "Application/JSON"})
    assert answer.json()["result"]["isError"] is False
