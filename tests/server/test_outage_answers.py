"""An outage of the database is answered under the request's id, as an error of this server, on every face."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, McpSettings, Settings, TurnsSettings
from myria_server.paths import PATH_OF, TURNS_OVER_HTTP
from tests.server.wire import META, Served, call, event, headers, serving
from tests.support.keys import make_key
from tests.support.postgres import Database

NOWHERE = "postgresql://myria@127.0.0.1:1/myria"
API_NAMES = sorted(PATH_OF.values())


@pytest.fixture
async def away(store: AccessStore) -> AsyncIterator[tuple[Served, dict[str, str]]]:
    """A server whose database is away, and the header of a good key."""
    text = await make_key(store, "ada", faces=tuple(PATH_OF))
    settings = Settings(
        auth=AuthSettings(mode="keys"), turns=TurnsSettings(enabled=True), mcp=McpSettings(legacy_sse=True)
    )
    async with Memory(NOWHERE, settings) as memory, serving(memory, settings) as served:
        yield served, {"authorization": f"Bearer {text}"}


def checked(answer: dict[str, Any], request_id: object) -> None:
    """Check that an answer is the coded error of a request."""
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", request_id)
    error = answer["error"]
    assert error["code"] == -32603
    assert (error["data"]["code"], error["data"]["retryable"]) == ("database_unavailable", True)


@pytest.mark.parametrize("path", API_NAMES)
@pytest.mark.parametrize("version", [None, "2025-03-26", "2025-11-25", "2026-07-28"])
async def test_a_call_is_answered_under_its_id(
    away: tuple[Served, dict[str, str]], path: str, version: str | None
) -> None:
    """Whatever the version and the kind of id."""
    served, key = away
    for request_id in (7, "an id", 0, ""):
        message = call("myria_append_event", event("k"), version=version, request_id=request_id)
        response = await served.post(message, headers("myria_append_event", version=version) | key, path=path)
        assert response.status_code == 503
        checked(response.json(), request_id)


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": {"_meta": META}},
        {"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": {"uri": "memory://stats"}},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "x", "arguments": {"t": "x" * 500_000}}},
        {"id": 3, "method": 4},
    ],
    ids=["list", "initialize", "resource", "large", "no message"],
)
async def test_so_is_everything_else(away: tuple[Served, dict[str, str]], message: dict[str, Any]) -> None:
    """Listings, handshakes, large bodies, and what is no good message either."""
    served, key = away
    response = await served.post(message, headers(version=None) | key)
    assert response.status_code == 503
    checked(response.json(), 3)


async def test_each_message_of_a_batch_is_answered(away: tuple[Served, dict[str, str]]) -> None:
    """Notifications are not."""
    served, key = away
    batch = [call("recall", {"text": "x"}, version=None, request_id=number) for number in range(3)]
    batch.insert(1, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    response = await served.post(batch, headers(version=None) | key, path="/mcp/agent")
    answers = response.json()
    assert (response.status_code, len(answers)) == (503, 3)
    for number, answer in enumerate(answers):
        checked(answer, number)


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b'{"jsonrpc":"2.0","method":"notifications/initialized"}', b"5"])
async def test_what_has_no_id_is_answered_without(away: tuple[Served, dict[str, str]], body: bytes) -> None:
    """It is an error of this server all the same."""
    served, key = away
    response = await served.post(body, headers(version=None) | key)
    assert response.status_code == 503
    checked(response.json(), None)


@pytest.mark.parametrize("path", [*TURNS_OVER_HTTP, "/api/v1/memories"])
async def test_where_no_mcp_is_spoken_the_contract_s_refusal_is_given(
    away: tuple[Served, dict[str, str]], path: str
) -> None:
    """No JSON-RPC in answers to who speaks none."""
    served, key = away
    response = await served.post(
        {"agent_id": "a", "content": "b"}, {"content-type": "application/json"} | key, path=path
    )
    assert response.status_code == 503
    assert "jsonrpc" not in response.json()
    assert response.json()["retryable"] is True


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}, 7),
        ({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "recall", "arguments": {}}}, "a"),
        ({"id": 3, "method": 4}, 3),
        ({"jsonrpc": "2.0", "method": "notifications/initialized"}, None),
    ],
)
async def test_the_transport_of_2024_answers_under_the_id_too(
    away: tuple[Served, dict[str, str]], message: dict[str, Any], request_id: object
) -> None:
    """A message whose stream's credential cannot be looked up is no riddle to its client."""
    served, key = away
    response = await served.post(message, headers(version=None) | key, path=f"/message?sessionId={'0' * 32}")
    assert response.status_code == 503
    checked(response.json(), request_id)


async def test_oauth_tells_an_outage_in_its_own_words(database: Database) -> None:
    """Not 500 and not an HTML page: an error of RFC 6749 that says to come again, at each of its endpoints."""
    settings = Settings(auth=AuthSettings(mode="keys", server=True, public_url="http://localhost:8321"))
    async with Memory(NOWHERE, settings) as memory, serving(memory, settings) as served:
        for path, body in (
            ("token", {"data": {"grant_type": "refresh_token", "refresh_token": "x", "client_id": "c"}}),
            ("revoke", {"data": {"token": "x", "client_id": "c"}}),
            ("register", {"json": {"redirect_uris": ["http://localhost:1234/back"]}}),
        ):
            response = await served.client.post(f"/oauth/{path}", **body)
            assert (path, response.status_code, response.json()["error"]) == (path, 503, "temporarily_unavailable")
