"""MCP over a pipe: the same tools, the same strictness, and answers even after the input ends."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from myria.memory import Memory
from myria.settings import Settings
from myria_server.api.tools import TOOLS
from myria_server.mcp.answers import ANSWERS_AT_ONCE
from myria_server.mcp.stdio import serve_stdio
from tests.server.wire import META, call, event

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


async def talk(memory: Memory, *lines: Any, settings: Settings | None = None) -> dict[Any, Any]:
    """Send lines, end the input, and return all answers by id."""
    sent = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    out = io.BytesIO()
    await asyncio.wait_for(serve_stdio(memory, settings, stdin=io.BytesIO(sent), stdout=out), 120)
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    return {answer["id"]: answer for answer in answers}


async def test_a_handshake_client_appends_and_queries(memory: Memory) -> None:
    """Requests that are still open when the input ends are answered."""
    answers = await talk(
        memory,
        HELLO,
        READY,
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        call("myria.append_event", event("k"), version=None, request_id=2),
        call("myria.nope", {}, version=None, request_id=3),
    )
    assert answers[0]["result"]["protocolVersion"] == "2025-06-18"
    assert len(answers[1]["result"]["tools"]) == len([tool for tool in TOOLS if "core" in tool.apis])
    assert answers[2]["result"]["structuredContent"]["deduplicated"] is False
    assert answers[3]["error"]["code"] == -32602
    found = await talk(
        memory, HELLO, READY, call("myria_query_event_nodes", {"participants": ["user_42"]}, version=None)
    )
    assert found[1]["result"]["structuredContent"]["counts"]["events"] == 1


async def test_a_modern_client_needs_no_handshake(memory: Memory) -> None:
    """Every request brings its envelope."""
    answers = await talk(
        memory,
        {"jsonrpc": "2.0", "id": "d", "method": "server/discover", "params": {"_meta": META}},
        call("myria.append_event", event("k"), request_id="a"),
    )
    assert answers["d"]["result"]["supportedVersions"] == ["2026-07-28"]
    assert answers["a"]["result"]["resultType"] == "complete"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense\n", "malformed_json"),
        (b'{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}\n', "malformed_json"),
        (b"\xff\n", "malformed_json"),
    ],
)
async def test_lines_that_are_not_strict_json_are_parse_errors(memory: Memory, line: bytes, code: str) -> None:
    """-32700 with our code, and the connection goes on."""
    answers = await talk(memory, HELLO, READY, line, b"\n", {"jsonrpc": "2.0", "id": 9, "method": "ping"})
    (broken,) = [answer for answer in answers.values() if "error" in answer]
    assert (broken["error"]["code"], broken["error"]["data"]["code"]) == (-32700, code)
    assert answers[9]["result"] == {}


async def test_bad_json_in_arguments_is_a_tool_refusal(memory: Memory) -> None:
    """As over HTTP, in the shape of the era."""
    for version in (None, "2026-07-28"):
        bad = json.dumps(call("append_event", event(payload={}), version=version, request_id=7)).encode()
        first = (HELLO, READY) if version is None else ()
        answers = await talk(memory, *first, bad.replace(b'"payload": {}', b'"payload": {"a":1,"a":2}') + b"\n")
        result = answers[7]["result"]
        assert result["structuredContent"]["error"]["details"]["field"] == "payload.a"
        assert ("resultType" in result) == (version is not None)


async def test_messages_are_bounded_and_single(memory: Memory) -> None:
    """A line that is too long, a batch, and what is no message are refused; the connection goes on."""
    settings = Settings.load(overrides={"mcp.body_bytes": 300_000}, environ={})
    answers = await talk(
        memory,
        HELLO,
        READY,
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * 400_000 + b'"}}\n',
        {"jsonrpc": "2.0", "id": 9, "method": "ping"},
        settings=settings,
    )
    assert answers[None]["error"]["data"]["code"] == "body_too_large"
    assert answers[9]["result"] == {}
    answers = await talk(memory, HELLO, READY, [{"jsonrpc": "2.0", "id": 1, "method": "ping"}])
    assert answers[None]["error"]["code"] == -32600
    answers = await talk(memory, HELLO, READY, {"id": 4, "method": "ping"})
    assert answers[4]["error"]["code"] == -32600


async def test_an_empty_input_ends_at_once(memory: Memory) -> None:
    """No client, no answer, no hanging."""
    assert await talk(memory) == {}


class _Ahead(io.BytesIO):
    """What a client sends, which counts the lines that were read."""

    read_lines = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        self.read_lines += 1
        return super().readline(size)


class _Slow(io.BytesIO):
    """Where answers go, which notes how many lines were read ahead of them."""

    def __init__(self, source: _Ahead) -> None:
        super().__init__()
        self.source = source
        self.ahead: list[int] = []

    def write(self, text: Any, /) -> int:
        self.ahead.append(self.source.read_lines - len(self.ahead))
        return super().write(text)


async def test_no_more_is_read_than_answers_are_taken(memory: Memory) -> None:
    """A client that sends on and on does not fill the memory with answers; all are answered in the end."""
    asked = [
        json.dumps(call("myria_query_event_nodes", {"participants": ["a"]}, request_id=number)).encode()
        for number in range(200)
    ]
    taken_back = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
    source = _Ahead(b"\n".join([*asked, json.dumps(taken_back).encode()]) + b"\n")
    out = _Slow(source)
    await asyncio.wait_for(serve_stdio(memory, stdin=source, stdout=out), 120)
    assert {json.loads(line)["id"] for line in out.getvalue().splitlines()} == set(range(200))
    assert max(out.ahead) <= ANSWERS_AT_ONCE + 5
