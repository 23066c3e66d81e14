"""Keys over HTTP: who is let in, what each may do, and how refusals read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from myria.access.store import AccessStore, NewKey
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria.store.database import Database as Pool
from tests.server.wire import META, MODERN, Served, call, event, headers, serving
from tests.support.postgres import Database


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """Where keys are made."""
    async with Pool(database.operator_dsn) as pool:
        store = AccessStore(pool)
        await store.ensure_tenant("default")
        await store.ensure_tenant("other")
        yield store


@pytest.fixture
async def guarded(memory: Memory) -> AsyncIterator[Served]:
    """A server that asks for keys."""
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:
        yield served


async def key(store: AccessStore, *own: str, **more: Any) -> str:
    """Make a key and return its text."""
    made, _ = await store.create_key(NewKey(**{"name": "k", "tenant": "default", "own": own, **more}), actor="test")
    return made.text


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


async def test_without_a_key_nobody_is_let_in(guarded: Served) -> None:
    """Every method and path of MCP answers 401 with a challenge; health stays open."""
    for path in ("/mcp", "/mcp/", "/mcp/admin", "/mcp/admin/"):
        for method in ("POST", "GET", "DELETE", "PUT"):
            response = await guarded.client.request(method, path)
            assert response.status_code == 401, (method, path)
            assert response.headers["www-authenticate"].startswith("Bearer ")
            assert response.json()["error"]["data"]["code"] == "credential_missing"
    assert (await guarded.client.get("/livez")).status_code == 200
    assert (await guarded.client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    "credential",
    [
        "Bearer",
        "Bearer nonsense",
        "Basic YWRhOmFkYQ==",
        "Bearer myr_aaaaaaaaaaaa_" + "a" * 32,
        "Bearer " + "x" * 20_000,
        "myr_aaaaaaaaaaaa_" + "a" * 32,
    ],
)
async def test_what_is_no_key_is_refused(guarded: Served, credential: str) -> None:
    """Coded, with a challenge that says so."""
    response = await guarded.post({}, {"authorization": credential, "content-type": "application/json"})
    assert refusal(response) == (401, "credential_invalid")
    assert 'error="invalid_token"' in response.headers["www-authenticate"]


async def test_two_credentials_are_none(guarded: Served, store: AccessStore) -> None:
    """One request cannot bring two keys and leave open which one counts."""
    good, other = await key(store, "ada"), await key(store, "bob")
    request = guarded.client.build_request("POST", "/mcp", content=b"{}")
    request.headers = httpx.Headers(
        [
            *request.headers.raw,
            (b"authorization", f"Bearer {good}".encode()),
            (b"authorization", f"Bearer {other}".encode()),
        ]
    )
    assert refusal(await guarded.client.send(request)) == (401, "credential_invalid")


@pytest.mark.parametrize("version", [None, "2025-06-18", MODERN])
async def test_a_key_appends_and_asks_as_its_own(guarded: Served, store: AccessStore, version: str | None) -> None:
    """Participants may be left out everywhere, in every version of the protocol."""
    ada, bob = await key(store, "ada", "bot"), await key(store, "bob", "bot")
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


async def test_nobody_asks_as_a_part_or_as_somebody_else(guarded: Served, store: AccessStore) -> None:
    """Of any tool that takes participants; the refusal is the tool's, so that a model can mend its call."""
    text = await key(store, "ada", "bot")
    lookups: dict[str, Any] = {
        "get_event": {"event_id": "evt_" + "0" * 32},
        "get_topic": {"topic_id": "top_" + "0" * 32},
    }
    for name in ("query_event_nodes", "query_references", "get_event", "get_topic"):
        for participants in (["bot"], ["ada"], ["carl"], ["ada", "bot", "carl"]):
            arguments = {"participants": participants, **lookups.get(name, {})}
            answer = told(await send(guarded, text, name, arguments))
            assert answer["error"]["code"] == "participants_not_allowed", (name, participants)
    appends: dict[str, Any] = {
        "append_event": event(participants=["carl"]),
        "append_events": {"events": [event(participants=["ada", "bot"]), event(participants=["carl"])]},
    }
    for name, arguments in appends.items():
        assert told(await send(guarded, text, name, arguments))["error"]["code"] == "participants_not_allowed"
    assert told(await send(guarded, text, "query_event_nodes", {}))["root"]["children"] == []


async def test_a_key_stays_in_its_channels(guarded: Served, store: AccessStore) -> None:
    """An append elsewhere stores nothing."""
    text = await key(store, "ada", channels=("mail", "chat:*"))
    elsewhere = told(await send(guarded, text, "append_event", event(participants=["ada"], channel="telegram")))
    assert elsewhere["error"]["code"] == "channel_not_allowed"
    assert "event_id" in told(await send(guarded, text, "append_event", event(participants=["ada"], channel="chat:7")))


async def test_tenants_are_apart(guarded: Served, store: AccessStore) -> None:
    """The credential alone says whose memory is meant; the same names in another tenant are others."""
    ours, theirs = await key(store, "ada"), await key(store, "ada", tenant="other")
    appended = told(await send(guarded, ours, "append_event", event("e", participants=["ada"])))
    assert told(await send(guarded, theirs, "query_event_nodes", {}))["root"]["children"] == []
    found = told(await send(guarded, theirs, "get_event", {"event_id": appended["event_id"]}))
    assert found["error"]["code"] == "event_not_found"
    page = told(await send(guarded, ours, "query_event_nodes", {"limit": 1}))
    assert page["root"]["children"]


async def test_a_cursor_of_somebody_else_is_foreign(guarded: Served, store: AccessStore) -> None:
    """It is bound to the tenant and to all who asked."""
    ada, bob = await key(store, "ada"), await key(store, "bob")
    other = await key(store, "ada", tenant="other")
    for number in range(3):
        told(await send(guarded, ada, "append_event", event(f"e{number}", participants=["ada"])))
    cursor = told(await send(guarded, ada, "query_event_nodes", {"limit": 1}))["next_cursor"]
    assert cursor
    for text in (bob, other):
        answer = told(await send(guarded, text, "query_event_nodes", {"limit": 1, "cursor": cursor}))
        assert answer["error"]["code"] == "cursor_invalid"


async def test_a_role_one_has_not_is_403(guarded: Served, store: AccessStore) -> None:
    """With a challenge that names it; tools without a role are not listed either."""
    reader = await key(store, "ada", roles=("read",))
    for version in (None, MODERN):
        response = await send(guarded, reader, "append_event", event(), version=version)
        assert refusal(response) == (403, "role_required")
        assert 'error="insufficient_scope"' in response.headers["www-authenticate"]
        assert 'scope="append"' in response.headers["www-authenticate"]
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    sent = headers(method="tools/list") | {"authorization": f"Bearer {reader}"}
    names = {tool["name"] for tool in (await guarded.post(listing, sent)).json()["result"]["tools"]}
    assert "myria_query_references" in names
    assert not any("append" in name for name in names)


async def test_a_role_is_asked_for_in_batches_and_bad_bodies_too(guarded: Served, store: AccessStore) -> None:
    """No form of a call gets around it."""
    reader = await key(store, "ada", roles=("read",))
    sent = headers(version=None) | {"authorization": f"Bearer {reader}"}
    batch = [call("myria_append_event", event(), version=None, request_id=7)]
    answers = (await guarded.post(batch, sent)).json()
    assert answers[0]["error"]["data"]["code"] == "role_required"
    twice = json.dumps(call("myria_append_event", {"a": 1}, version=None)).replace('"a": 1', '"a": 1, "a": 2').encode()
    assert refusal(await guarded.post(twice, sent)) == (403, "role_required")


async def test_administration_is_a_face_of_its_own(guarded: Served, store: AccessStore) -> None:
    """It needs the face and the role, and is at /mcp for nobody."""
    admin = await key(store, "ada", roles=("read", "admin"), faces=("core", "admin"))
    no_face = await key(store, "ada", roles=("read", "admin"))
    no_role = await key(store, "ada", roles=("read",), faces=("core", "admin"))
    for name in ("trigger_build", "rollback", "resume_builds", "publish_snapshot", "discard_snapshot"):
        assert told(await send(guarded, admin, name, {}))["error"]["code"] == "tool_not_enabled"
        assert refusal(await send(guarded, no_face, name, {}, path="/mcp/admin")) == (403, "face_not_allowed")
        assert refusal(await send(guarded, no_role, name, {}, path="/mcp/admin")) == (403, "role_required")
    assert "request_id" in told(await send(guarded, admin, "trigger_build", {}, path="/mcp/admin"))
    assert "tail_events" in told(await send(guarded, no_role, "get_snapshot_status", {}, path="/mcp/admin"))


async def test_without_auth_administration_is_at_its_own_path_too(served: Served) -> None:
    """A model at /mcp is never offered to roll back."""
    response = await send(served, None, "rollback", {})
    assert told(response)["error"]["code"] == "tool_not_enabled"
    assert "/mcp/admin" in told(response)["error"]["message"]


async def test_a_revoked_key_is_refused_by_every_process(memory: Memory, store: AccessStore) -> None:
    """Each learns it by itself, without being told."""
    text = await key(store, "ada")
    settings = Settings(auth=AuthSettings(mode="keys"))
    async with serving(memory, settings) as one, serving(memory, settings) as other:
        for served in (one, other):
            told(await send(served, text, "query_event_nodes", {}))
        await store.revoke_key(text.split("_")[1])
        for served in (one, other):
            while (response := await send(served, text, "query_event_nodes", {})).status_code == 200:
                pass
            assert refusal(response) == (401, "credential_invalid")


async def test_a_database_that_is_away_is_503_not_401(database: Database, store: AccessStore) -> None:
    """A caller must not throw its key away because of an outage."""
    text = await key(store, "ada")
    settings = Settings(auth=AuthSettings(mode="keys"))
    nowhere = "postgresql://myria@127.0.0.1:1/myria"
    async with Memory(nowhere, settings) as memory, serving(memory, settings) as served:
        assert refusal(await send(served, text, "query_event_nodes", {})) == (503, "database_unavailable")
