"""Keys over HTTP: what each may do. Who is refused, and how, is a table: test_auth_matrix.py."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest

from myria.access.key_cache import FRESH_S
from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from tests.server.wire import MODERN, Served, call, event, headers, serving
from tests.support.keys import make_key
from tests.support.postgres import Database


@pytest.fixture
async def guarded(memory: Memory) -> AsyncIterator[Served]:
    """A server that asks for keys."""
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:
        yield served


async def send(
    served: Served, text: str | None, name: str, arguments: Any, *, path: str = "/mcp", version: str | None = MODERN
) -> httpx.Response:
    """Call a tool with a key; None for none."""
    full = f"myria_{name}"
    sent = headers(full, version=version) | ({} if text is None else {"authorization": f"Bearer {text}"})
    return await served.post(call(full, arguments, version=version), sent, path=path)


def told(response: httpx.Response) -> Any:
    """Return what a tool answered, a refusal's error included."""
    assert response.status_code == 200, response.text
    return response.json()["result"]["structuredContent"]


def refusal(response: httpx.Response) -> tuple[int, str]:
    """Return a refusal's status and code."""
    return response.status_code, response.json()["error"]["data"]["code"]


@pytest.mark.parametrize("version", [None, "2025-06-18", MODERN])
async def test_a_key_appends_and_asks_as_its_own(guarded: Served, store: AccessStore, version: str | None) -> None:
    """Participants may be left out everywhere, in every version of the protocol."""
    ada, bob = await make_key(store, "ada", "bot"), await make_key(store, "bob", "bot")
    new = {name: value for name, value in event("e1").items() if name != "participants"}
    appended = told(await send(guarded, ada, "append_event", new, version=version))
    assert appended["participants"] == ["ada", "bot"]
    seen = told(await send(guarded, ada, "query_event_nodes", {}, version=version))
    assert [node["event_id"] for node in seen["root"]["children"]] == [appended["event_id"]]
    assert told(await send(guarded, ada, "get_event", {"event_id": appended["event_id"]}, version=version))
    assert told(await send(guarded, bob, "query_event_nodes", {}, version=version))["root"]["children"] == []
    hidden = told(await send(guarded, bob, "get_event", {"event_id": appended["event_id"]}, version=version))
    absent = told(await send(guarded, bob, "get_event", {"event_id": "evt_" + "0" * 32}, version=version))
    assert hidden["error"]["code"] == absent["error"]["code"] == "event_not_found"


async def test_tenants_are_apart(guarded: Served, store: AccessStore) -> None:
    """The credential alone says whose memory is meant; the same names in another tenant are others."""
    ours, theirs = await make_key(store, "ada"), await make_key(store, "ada", tenant="other")
    appended = told(await send(guarded, ours, "append_event", event("e", participants=["ada"])))
    assert told(await send(guarded, theirs, "query_event_nodes", {}))["root"]["children"] == []
    found = told(await send(guarded, theirs, "get_event", {"event_id": appended["event_id"]}))
    assert found["error"]["code"] == "event_not_found"
    page = told(await send(guarded, ours, "query_event_nodes", {"limit": 1}))
    assert page["root"]["children"]


async def test_a_cursor_of_somebody_else_is_foreign(guarded: Served, store: AccessStore) -> None:
    """It is bound to the tenant and to all who asked."""
    ada, bob = await make_key(store, "ada"), await make_key(store, "bob")
    other = await make_key(store, "ada", tenant="other")
    for number in range(3):
        told(await send(guarded, ada, "append_event", event(f"e{number}", participants=["ada"])))
    cursor = told(await send(guarded, ada, "query_event_nodes", {"limit": 1}))["next_cursor"]
    assert cursor
    for text in (bob, other):
        answer = told(await send(guarded, text, "query_event_nodes", {"limit": 1, "cursor": cursor}))
        assert answer["error"]["code"] == "cursor_invalid"


async def test_a_role_is_asked_for_in_batches_and_bad_bodies_too(guarded: Served, store: AccessStore) -> None:
    """No form of a call gets around it."""
    reader = await make_key(store, "ada", roles=("read",))
    sent = headers(version=None) | {"authorization": f"Bearer {reader}"}
    batch = [call("myria_append_event", event(), version=None, request_id=7)]
    answers = (await guarded.post(batch, sent)).json()
    assert answers[0]["error"]["data"]["code"] == "role_required"
    twice = json.dumps(call("myria_append_event", {"a": 1}, version=None)).replace('"a": 1', '"a": 1, "a": 2').encode()
    assert refusal(await guarded.post(twice, sent)) == (403, "role_required")


async def test_without_auth_administration_is_at_its_own_path_too(served: Served) -> None:
    """A model at /mcp is never offered to roll back."""
    response = await send(served, None, "rollback", {})
    assert told(response)["error"]["code"] == "tool_not_enabled"
    assert "/mcp/admin" in told(response)["error"]["message"]


async def test_the_agents_contract_has_a_header_of_its_own(guarded: Served, store: AccessStore) -> None:
    """At the agent's face memento-access-key carries a key; two that differ are none; elsewhere it means nothing."""
    text, other = await make_key(store, "ada"), await make_key(store, "ada")
    sent, asked = headers("recall"), call("recall", {"text": "memory"})

    async def status(path: str, *more: tuple[str, str]) -> int:
        body = json.dumps(asked).encode()
        return (await guarded.client.post(path, content=body, headers=[*sent.items(), *more])).status_code

    named, bearer = ("memento-access-key", text), ("authorization", f"Bearer {text}")
    assert await status("/mcp/agent", named) == 200
    assert await status("/mcp/agent", named, bearer) == 200
    for wrong in (
        [("memento-access-key", text[:-1] + "0")],
        [("memento-access-key", other), bearer],
        [named, ("memento-access-key", other)],
        [named, ("authorization", "Basic YWRhOmFkYQ==")],
    ):
        assert await status("/mcp/agent", *wrong) == 401, wrong
    for path in ("/mcp", "/mcp/admin"):
        assert await status(path, named) == 401


async def test_a_revoked_key_is_refused_by_every_process(memory: Memory, store: AccessStore) -> None:
    """Each learns it by itself, without being told."""
    text = await make_key(store, "ada")
    settings = Settings(auth=AuthSettings(mode="keys"))
    async with serving(memory, settings) as one, serving(memory, settings) as other:
        for served in (one, other):
            told(await send(served, text, "query_event_nodes", {}))
        await store.revoke_key(text.split("_")[1])
        for served in (one, other):
            while (response := await send(served, text, "query_event_nodes", {})).status_code == 200:
                pass
            assert refusal(response) == (401, "credential_invalid")


async def test_a_second_after_its_revocation_no_process_takes_a_key(memory: Memory, store: AccessStore) -> None:
    """The first request after it is refused, also where no look at what changed came in between."""
    text = await make_key(store, "ada")
    settings, clock = Settings(auth=AuthSettings(mode="keys")), {"at": 1_000.0}
    async with (
        serving(memory, settings, ticks=lambda: clock["at"]) as one,
        serving(memory, settings, ticks=lambda: clock["at"]) as other,
    ):
        for served in (one, other):
            told(await send(served, text, "query_event_nodes", {}))
        await store.revoke_key(text.split("_")[1])
        clock["at"] += FRESH_S + 0.001
        for served in (one, other):
            assert refusal(await send(served, text, "query_event_nodes", {})) == (401, "credential_invalid")


async def test_a_revocation_needs_no_connection_that_was_there_before(
    database: Database, memory: Memory, store: AccessStore
) -> None:
    """Every connection of two processes is cut just before it: neither takes the key a second later."""
    text = await make_key(store, "ada")
    settings, clock = Settings(auth=AuthSettings(mode="keys")), {"at": 1_000.0}
    async with (
        Memory(database.server_dsn, settings) as another,
        serving(memory, settings, ticks=lambda: clock["at"]) as one,
        serving(another, settings, ticks=lambda: clock["at"]) as other,
        asyncpg.create_pool(database.superuser_dsn, min_size=1, max_size=1) as pool,
    ):
        for served in (one, other):
            told(await send(served, text, "query_event_nodes", {}))
        cut = await pool.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND usename = $1",
            urlsplit(database.server_dsn).username,
        )
        assert len(cut) >= 2
        await store.revoke_key(text.split("_")[1])
        clock["at"] += FRESH_S + 0.001
        for served in (one, other):
            while (response := await send(served, text, "query_event_nodes", {})).status_code == 503:
                pass  # it found its connection cut, and takes another
            assert refusal(response) == (401, "credential_invalid")


async def test_a_database_that_is_away_is_503_not_401(database: Database, store: AccessStore) -> None:
    """A caller must not throw its key away because of an outage."""
    text = await make_key(store, "ada")
    settings = Settings(auth=AuthSettings(mode="keys"))
    nowhere = "postgresql://myria@127.0.0.1:1/myria"
    async with Memory(nowhere, settings) as memory, serving(memory, settings) as served:
        assert refusal(await send(served, text, "query_event_nodes", {})) == (503, "database_unavailable")
