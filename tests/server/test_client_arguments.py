"""What clients really send, on every face: arguments as JSON text, whole numbers as 5.0, names of other memories, any
Accept header.
"""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from myria.memory import Memory
from myria.settings import Settings, TurnsSettings
from myria_server.mcp.stdio import serve_stdio
from myria_server.paths import PATH_OF
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import BASE_HEADERS, MODERN, Served, call, headers, listed

AS_TEXT = {"content": '["a brass lock"]', "keywords": '["archive","key"]', "importance": "0.7", "isAnchor": "true"}
"""Arguments of remember."""


@pytest.fixture
def settings() -> Settings:
    """All faces are on."""
    return Settings(turns=TurnsSettings(enabled=True))


async def ask(served: Served, path: str, tool: str, arguments: Any, *, version: str | None = MODERN) -> dict[str, Any]:
    """Return what a tool answers at a path."""
    response = await served.post(call(tool, arguments, version=version), headers(tool, version=version), path=path)
    result: dict[str, Any] = response.json()["result"]
    return {**result["structuredContent"], "is_error": result["isError"]}


@pytest.mark.parametrize("version", [MODERN, "2025-11-25", "2024-11-05", None])
async def test_args_as_strings(served: Served, version: str | None) -> None:
    """Lists, objects, numbers and truth values are read out of JSON text; content is not."""
    agent = PATH_OF["agent"]
    kept = await ask(served, agent, "remember", AS_TEXT, version=version)
    assert (kept["keywords"], kept["importance"], kept["ttl_tier"]) == (["archive", "key"], 0.7, "permanent")
    items = json.dumps([{"content": "The lamp is broken.", "keywords": '["lamp"]', "importance": "0.5"}])
    assert (await ask(served, agent, "batch_remember", {"items": items}, version=version))["inserted"] == 1
    asked = {"text": "brass lock", "tokenBudget": "500", "timeRange": '{"from":"2026-01-01"}'}
    found = await ask(served, agent, "recall", asked, version=version)
    assert found["fragments"][0]["content"] == '["a brass lock"]'


@pytest.mark.parametrize("number", [5.0, "5", "5.0", "5e0"])
async def test_whole_floats(served: Served, number: Any) -> None:
    """5.0 is 5, on each face that takes a number; 5.5 is refused."""
    asked = (
        (PATH_OF["agent"], "recall", {"text": "x", "pageSize": number}),
        (PATH_OF["core"], "myria_query_event_nodes", {"participants": '["ada"]', "query": "x", "limit": number}),
        (PATH_OF["rest"], "memtrace_recall", {"agent_id": "bot", "limit": number}),
        (PATH_OF["turns"], "memory_list_dir_with_abstract", {"limit": number}),
        (PATH_OF["admin"], "myria_list_snapshots", {"limit": number}),
    )
    for path, tool, arguments in asked:
        answer = await ask(served, path, tool, arguments)
        assert not answer["is_error"], (tool, answer)
        name = next(name for name, given in arguments.items() if given == number)
        refused = await ask(served, path, tool, {**arguments, name: 5.5})
        assert refused["is_error"], tool
    assert (await served.client.get(f"{PREFIX}/memories?limit={number}")).status_code == 200
    assert (await served.client.get(f"{PREFIX}/memories?limit=5.5")).status_code == 400


async def test_events_memories_and_turns_take_json_text(served: Served) -> None:
    """An event's payload and people, a memory's metadata and tags, a turn's items; over MCP and plain HTTP."""
    event = {
        "timestamp": "2026-03-19T20:00:00Z",
        "channel": "c",
        "participants": '["ada"]',
        "payload": '{"text": "The kiln is cold", "n": "5"}',
        "topic_hints": '[{"hint": "kiln", "confidence": "1"}]',
        "internal": "false",
    }
    assert not (await ask(served, "/mcp", "myria_append_event", event))["is_error"]
    assert not (await ask(served, "/mcp", "myria_append_events", {"events": json.dumps([event])}))["is_error"]
    (found, _) = (await ask(served, "/mcp", "myria_query_event_nodes", {"participants": ["ada"]}))["root"]["children"]
    assert found["payload"] == {"text": "The kiln is cold", "n": "5"}
    memory = {"agent_id": "bot", "content": "{}", "metadata": '{"a": "1"}', "tags": '["x"]', "importance": "0.5"}
    kept = (await served.client.post(f"{PREFIX}/memories", json=memory)).json()
    assert (kept["content"], kept["metadata"], kept["tags"], kept["importance"]) == ("{}", {"a": "1"}, ["x"], 0.5)
    several = {"memories": json.dumps([{**memory, "content": "other"}]), "atomic": "false"}
    assert (await served.client.post(f"{PREFIX}/memories", json=several)).json()["count"] == 1
    said = json.dumps([{"type": "message", "role": "user", "content": "Where is the kiln?"}])
    for path, tool in (("/mcp/turns", "memory_before_turn"), ("/v1/turns:before", None)):
        turn = {"conversation_items": said, "max_input_tok": "1000"}
        if tool is None:
            prepared = (await served.client.post(path, json=turn)).json()
        else:
            prepared = await ask(served, path, tool, turn)
        assert prepared["input_items"][-1]["content"][0]["text"] == "Where is the kiln?"


async def test_over_stdio(memory: Memory) -> None:
    """Arguments are read there as over HTTP."""
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    out = io.BytesIO()
    lines = (
        hello,
        call("remember", AS_TEXT, version=None),
        call("remember", json.dumps({"content": "A lamp"}), version=None, request_id=2),
    )
    sent = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    await asyncio.wait_for(serve_stdio(memory, api="agent", stdin=io.BytesIO(sent), stdout=out), 120)
    answers = {answer["id"]: answer for answer in map(json.loads, out.getvalue().splitlines())}
    assert answers[1]["result"]["structuredContent"]["importance"] == 0.7
    assert answers[2]["result"]["structuredContent"]["created"]


@pytest.mark.parametrize("version", [MODERN, "2025-11-25", None])
@pytest.mark.parametrize("written", ['{"content": "A lamp", "keywords": ["lamp"]}', ' {"content":"A lamp"}'])
async def test_all_arguments_may_be_one_json_text(served: Served, version: str | None, written: str) -> None:
    """As function calls of models carry them; PHP writes no arguments as an empty list. Anything else is refused."""
    assert (await ask(served, PATH_OF["agent"], "remember", written, version=version))["created"]
    stats = await ask(served, PATH_OF["agent"], "memory_stats", [], version=version)
    assert stats["stats"]["total"] == 1
    for wrong in ("x", "[]", "[1]", '{"content": 1, "content": 2}', [1], 5, "{" * 300_000):
        message = call("remember", wrong, version=version)
        answer = await served.post(message, headers("remember", version=version), path=PATH_OF["agent"])
        assert answer.status_code == 400, wrong
        assert "params.arguments must be an object" in answer.text
    if version is None:
        batch = [call("memory_stats", "{}", version=None), call("memory_stats", [], version=None, request_id=2)]
        answers = (await served.post(batch, headers(version=None), path=PATH_OF["agent"])).json()
        assert [answer["result"]["isError"] for answer in answers] == [False, False]


NAMES = [
    ("agent", "recall", {"query": "x"}, "text"),
    ("agent", "recall", {"text": "x", "limit": 5}, "pageSize"),
    ("agent", "recall", {"text": "x", "top_k": 5}, "pageSize"),
    ("agent", "recall", {"text": "x", "page_size": 5}, "pageSize"),
    ("agent", "recall", {"text": "x", "max_tokens": 5}, "tokenBudget"),
    ("agent", "recall", {"text": "x", "min_score": 0.5}, "threshold"),
    ("agent", "recall", {"text": "x", "timeRange": {"since": "2026-01-01"}}, "from"),
    ("agent", "remember", {"text": "x"}, "content"),
    ("agent", "remember", {"content": "x", "tags": ["a"]}, "keywords"),
    ("agent", "remember", {"content": "x", "user_id": "ada"}, "agentId"),
    ("agent", "remember", {"content": "x", "dry_run": True}, "dryRun"),
    ("agent", "forget", {"memory_id": "note_1"}, "id"),
    ("agent", "batch_remember", {"memories": []}, "items"),
    ("agent", "link", {"source_id": "a", "target_id": "b"}, "fromId"),
    ("agent", "reflect", {"summary": "x", "questions": ["y"]}, "open_questions"),
    ("core", "myria_query_event_nodes", {"text": "x"}, "query"),
    ("core", "myria_query_event_nodes", {"top_k": 5}, "limit"),
    ("core", "myria_query_references", {"limit": 5}, "max_nodes"),
    ("core", "myria_query_event_nodes", {"user_id": "ada"}, "participants"),
    ("core", "myria_query_event_nodes", {"masks": [{"users": ["ada"]}]}, "participants"),
    ("core", "myria_append_event", {"content": "x"}, "payload"),
    ("core", "myria_append_events", {"events": [{"created_at": "2026-01-01T00:00:00Z"}]}, "timestamp"),
    ("core", "myria_get_event", {"id": "evt_1"}, "event_id"),
    ("rest", "memtrace_search", {"text": "x"}, "query"),
    ("rest", "memtrace_search", {"content": "x"}, "content_contains"),
    ("rest", "memtrace_recall", {"agent_id": "bot", "session": "s"}, "session_id"),
    ("rest", "memtrace_decide", {"agent_id": "bot", "decision": "x", "why": "y"}, "reasoning"),
    ("rest", "memtrace_session_context", {"session_id": "s", "token_budget": 5}, "max_tokens"),
    ("rest", "memtrace_recall", {"agent_id": "bot", "top_k": 5}, "limit"),
    ("turns", "memory_before_turn", {"text": "x"}, "current_input_text"),
    ("turns", "memory_after_turn", {"response": []}, "output_items"),
    ("admin", "myria_rollback", {"snapshot_id": "snp_1"}, "to"),
]


@pytest.mark.parametrize(("face", "tool", "arguments", "meant"), NAMES, ids=[f"{tool}-{m}" for _, tool, _, m in NAMES])
async def test_an_unknown_argument_is_answered_with_the_one_that_is_meant(
    served: Served, face: str, tool: str, arguments: Any, meant: str
) -> None:
    """By what other memories call it, or by its spelling, also within lists and objects."""
    answer = await ask(served, PATH_OF[face], tool, arguments)  # type: ignore[index]
    assert answer["is_error"]
    assert f"did you mean {meant}?" in json.dumps(answer)


async def test_a_route_names_the_parameter_that_is_meant(served: Served) -> None:
    """In a query and in a body."""
    asked = (
        ("GET", "/memories?top_k=5", None, "limit"),
        ("GET", "/memories?user_id=bot", None, "agent_id"),
        ("GET", "/sessions?page_size=5", None, "limit"),
        ("POST", "/search", {"text": "x"}, "query"),
        ("POST", "/memories", {"agent_id": "bot", "text": "x"}, "content"),
        ("POST", "/memories", {"memories": [{"agent_id": "bot", "message": "x"}]}, "content"),
        ("POST", "/sessions/s/context", {"token_budget": 5}, "max_tokens"),
    )
    for method, path, body, meant in asked:
        answer = await served.client.request(method, PREFIX + path, json=body)
        assert (answer.status_code, f"did you mean {meant}?" in answer.json()["error"]) == (400, True), answer.text


async def test_a_field_in_the_address_is_sent_to_the_body(served: Served) -> None:
    """A route that takes its fields in a body says so, where the address names one of them."""
    answer = await served.client.post(f"{PREFIX}/search?limit=5", json={"query": "x"})
    assert (answer.status_code, answer.json()["error"]) == (
        400,
        "limit belongs into the JSON body, not into the address",
    )


async def test_nothing_near_is_answered_with_all_that_is_known(served: Served) -> None:
    """What resembles nothing is no guess; hidden names of another contract are not offered."""
    answer = await ask(served, PATH_OF["agent"], "batch_remember", {"zzz": 1})
    assert answer["error"] == "unknown field zzz; known fields: agentId, dryRun, items"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/agent"])
@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json;q=0.5, text/html", "application/json"),
        ("text/event-stream", "text/event-stream"),
        ("text/event-stream; charset=utf-8", "text/event-stream"),
        ("text/*", "text/event-stream"),
        ("application/json;q=0, text/event-stream", "text/event-stream"),
    ],
)
async def test_no_accept_header(served: Served, path: str, accept: str | None, content_type: str) -> None:
    """Who says nothing of what they accept is served, and who takes a stream alone gets one event."""
    lines = [(name, given) for name, given in BASE_HEADERS.items() if name != "accept"]
    lines += [] if accept is None else [("accept", accept)]
    tool = "recall" if path.endswith("agent") else "myria_query_event_nodes"
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        call(tool, {"text" if tool == "recall" else "query": "straße\n\n"}, version=None),
    ):
        answer = await served.line.ask("POST", path, lines, json.dumps(message).encode())
        assert (answer.status_code, answer.headers["content-type"]) == (200, content_type)
        text = answer.text
        if content_type == "text/event-stream":
            first, data, *rest = text.split("\n")
            assert (first, rest) == ("event: message", ["", ""])
            text = data.removeprefix("data: ")
        assert "result" in json.loads(text)
    notified = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await served.line.ask("POST", path, lines, json.dumps(notified).encode())).status_code == 202


async def test_two_accept_headers_count_together(served: Served) -> None:
    """A list over two lines is one list."""
    lines = [("content-type", "application/json"), ("accept", "application/json"), ("accept", "text/event-stream")]
    answer = await served.line.ask("POST", "/mcp", lines, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")


async def test_schema_without_type(served: Served) -> None:
    """What a strict host reads: every argument of every tool says its type."""
    for path in PATH_OF.values():
        for tool in await listed(served, path=path):
            untyped = [name for name, schema in tool["inputSchema"]["properties"].items() if "type" not in schema]
            assert untyped == [], tool["name"]
