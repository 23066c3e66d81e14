"""Messages that are JSON and still no requests: each is refused in words, none is swallowed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.wire import BASE_HEADERS, Served, headers

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        (None, -32600, "object"),
        ("x", -32600, "object"),
        ({}, -32600, "jsonrpc"),
        ({"jsonrpc": "2.0"}, -32600, "method is missing"),
        (PING | {"method": 5}, -32600, "method must be text"),
        (PING | {"id": None}, -32600, "id must be"),
        (PING | {"id": 1.5}, -32600, "id must be"),
        (PING | {"params": []}, -32602, "params must be"),
        (PING | {"method": "tools/call", "params": {"name": 5}}, -32602, "params.name"),
        (
            PING | {"method": "tools/call", "params": {"name": "myria.append_event", "arguments": [1]}},
            -32602,
            "arguments",
        ),
    ],
)
async def test_no_message_is_swallowed(served: Served, message: Any, code: int, said: str) -> None:
    """What is no JSON-RPC request is refused in words, also where it could pass for a notification."""
    response = await served.post(message, headers(version="2025-11-25"))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, code)
    assert said in error["message"]
    assert "\n" not in error["message"]
    assert error["data"]["retryable"] is False


@pytest.mark.parametrize("request_id", ["99999999999999999999999", '"\\ud800"', "1e999"])
async def test_an_id_that_cannot_be_repeated_is_refused(served: Served, request_id: str) -> None:
    """The refusal of a message with an impossible id carries no id, and is no failure of the server."""
    body = f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "ping"}}'
    response = await served.client.post("/mcp", content=body, headers=headers(version="2025-11-25"))
    assert response.status_code == 400
    assert response.json()["id"] is None
    assert response.json()["error"]["code"] == -32700


@pytest.mark.parametrize("version", ["1999-01-01", "2025-11-26", ""])
async def test_an_unknown_protocol_version_names_the_known_ones(served: Served, version: str) -> None:
    """A client that asks in a version nobody speaks learns which are spoken."""
    response = await served.client.post("/mcp", json=PING, headers=BASE_HEADERS | {"mcp-protocol-version": version})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == -32022
    assert error["data"]["requested"] == version
    assert error["data"]["supported"] == ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
