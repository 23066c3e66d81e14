"""What a serving process writes down: acts of administrators, refused attempts, and a record of each call."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from myria.access import journal
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database as Pool
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import AuditSettings, AuthSettings, Settings
from myria_server.mcp.stdio import serve_stdio
from tests.server.wire import Served, call, event, headers, serving
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

Rows = list[dict[str, Any]]


@pytest.fixture
async def control(database: Database) -> AsyncIterator[Pool]:
    """The database as the control plane sees it."""
    async with Pool(database.operator_dsn) as pool:
        await AccessStore(pool).ensure_tenant("default")
        yield pool


@pytest.fixture(autouse=True)
def quick_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the journal be written soon."""
    monkeypatch.setattr(journal, "FLUSH_S", 0.02)


async def key(control: Pool, **more: Any) -> tuple[str, str]:
    """Make a key and return its text and its actor."""
    new = NewKey(**{"name": "k", "tenant": "default", "own": ("ada",), **more})
    made, _ = await AccessStore(control, actor="test").create_key(new)
    return made.text, f"key:{made.key_id}"


async def ask(served: Served, text: str, name: str, arguments: Any, *, path: str = "/mcp") -> httpx.Response:
    """Call a tool with a key."""
    sent = headers(f"myria_{name}") | {"authorization": f"Bearer {text}"}
    return await served.post(call(f"myria_{name}", arguments), sent, path=path)


async def eventually(read: Callable[[], Awaitable[Rows]], count: int) -> Rows:
    """Return rows once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while len(rows := await read()) < count:
            await asyncio.sleep(0.02)
    return rows


async def test_what_an_administrator_does_over_mcp_is_written_before_it_is_answered(
    memory: Memory, control: Pool
) -> None:
    """Also what failed; with the key that did it, what it was done to, and why."""
    text, actor = await key(control, roles=("read", "admin"), faces=("core", "admin"))
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:
        asked = (await ask(served, text, "trigger_build", {}, path="/mcp/admin")).json()
        await ask(served, text, "rollback", {"to": "snap_" + "0" * 32, "reason": "test"}, path="/mcp/admin")
        await ask(served, text, "resume_builds", {"reason": "mended"}, path="/mcp/admin")
        await ask(served, text, "abort_build", {"build_id": "bld_x", "reason": "\0"}, path="/mcp/admin")
        await ask(served, text, "get_snapshot_status", {}, path="/mcp/admin")
        acts = [entry for entry in await journal.entries(control, "default", 10) if entry["actor"] == actor]
    assert [(act["action"], act["outcome"]) for act in reversed(acts)] == [
        ("trigger_build", "ok"),
        ("rollback", "no_previous_snapshot"),
        ("resume_builds", "ok"),
        ("abort_build", "invalid_text"),
    ]
    assert {(act["kind"], act["tenant"], act["face"]) for act in acts} == {("act", "default", "admin")}
    assert [act["target"] for act in reversed(acts)] == [
        asked["result"]["structuredContent"]["request_id"],
        "snap_" + "0" * 32,
        None,
        "bld_x",
    ]
    assert [act["details"] for act in acts] == [{}, {"reason": "mended"}, {}, {}]


async def test_who_forgets_and_restores_is_written_down_once_for_each_call(memory: Memory, control: Pool) -> None:
    """By every API, with the first ids and their number; not what was looked at, repeated, or replaced."""
    text, actor = await key(control, faces=("core", "agent", "rest"))
    many = [parse_event(event(participants=["ada", f"friend {number}"]), Limits()) for number in range(30)]
    ids = [stored.event_id for stored in await memory.log.append_events("default", many)]
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:

        async def answer(tool: str, path: str = "/mcp", **arguments: Any) -> Any:
            sent = headers(tool) | {"authorization": f"Bearer {text}"}
            return (await served.post(call(tool, arguments), sent, path=path)).json()["result"]["structuredContent"]

        note = (await answer("remember", "/mcp/agent", content="Ana drinks tea"))["id"]
        newer = (await answer("remember", "/mcp/agent", content="Ana drinks milk", supersedes=[note]))["id"]
        await answer("amend", "/mcp/agent", id=newer, content="Ana drinks coffee")
        await answer("withdraw_events", event_ids=ids, dry_run=True)
        for _ in range(2):
            await answer("withdraw_events", event_ids=ids)
        await answer("restore_events", event_ids=ids[:1])
        await answer("withdraw_events", event_ids=ids[:1], reason="expired")
        await answer("forget", "/mcp/agent", id=newer)
        await answer("restore", "/mcp/agent", id=newer)
        address = f"/api/v1/memories/{newer}"
        gone = await served.client.delete(address, headers={"authorization": f"Bearer {text}"})
        assert gone.is_success, gone.text
    acts = [entry for entry in await journal.entries(control, "default", 20) if entry["actor"] == actor]
    assert [(act["action"], act["target"], act["details"]["count"]) for act in reversed(acts)] == [
        ("memory.forgotten", ids[0], 30),
        ("memory.restored", ids[0], 1),
        ("memory.expired", ids[0], 1),
        ("memory.forgotten", newer, 1),
        ("memory.restored", newer, 1),
        ("memory.forgotten", newer, 1),
    ]
    assert acts[-1]["details"]["ids"] == ids[:20]


async def test_refused_attempts_are_written_down_without_what_was_sent(memory: Memory, control: Pool) -> None:
    """With the key that was proved, or that was claimed, and the address; never with a secret."""
    text, actor = await key(control, roles=("read",))
    guess = text.rpartition("_")[0] + "_" + "z" * 32
    refused = lambda: refusals(control)  # noqa: E731
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:
        assert (await ask(served, guess, "query_event_nodes", {})).status_code == 401
        assert (await served.client.get("/mcp")).status_code == 401
        assert (await ask(served, text, "append_event", event())).status_code == 403
        assert (await ask(served, text, "rollback", {}, path="/mcp/admin")).status_code == 403
        await ask(served, text, "query_event_nodes", {"participants": ["carl"]})
        rows = await eventually(refused, 5)
    seen = {entry["outcome"]: entry for entry in rows}
    assert seen.keys() == {
        "credential_invalid",
        "credential_missing",
        "role_required",
        "face_not_allowed",
        "participants_not_allowed",
    }
    for outcome in ("credential_invalid", "credential_missing"):
        assert (seen[outcome]["tenant"], seen[outcome]["actor"]) == (None, "nobody")
        assert seen[outcome]["address"] == "127.0.0.1"
    assert seen["credential_invalid"]["target"] == actor.removeprefix("key:")
    for outcome in ("role_required", "face_not_allowed", "participants_not_allowed"):
        assert (seen[outcome]["tenant"], seen[outcome]["actor"]) == ("default", actor)
    assert seen["face_not_allowed"]["face"] == "admin"
    written = repr(rows)
    assert "z" * 32 not in written
    assert text.rpartition("_")[2] not in written
    assert "carl" not in written


async def test_a_refused_call_and_an_act_name_the_address_behind_a_proxy(memory: Memory, control: Pool) -> None:
    """Of a call, in a batch, of a resource; the address is the one that the trusted proxy names."""
    text, _ = await key(control, roles=("append", "admin"), faces=("core", "agent", "admin"), channels=("mail",))
    auth = AuthSettings(mode="keys", proxies=("127.0.0.1",))
    resource = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "memory://stats"}}
    message = call("myria_append_event", event(participants=["ada"], channel="chat"), version=None)
    forwarded = {"authorization": f"Bearer {text}", "x-forwarded-for": "192.0.2.1, 203.0.113.7"}
    async with serving(memory, Settings(auth=auth)) as served:
        named = headers("myria_append_event", version=None) | forwarded
        assert (await served.post(message, named)).json()["result"]["isError"]
        assert (await served.post([message], named)).json()[0]["result"]["isError"]
        assert "error" in (await served.post(resource, named, path="/mcp/agent")).json()
        await served.post(call("myria_resume_builds", {}, version=None), named, path="/mcp/admin")
        rows = await eventually(lambda: refusals(control), 2)
        acts = [entry for entry in await journal.entries(control, "default", 10) if entry["action"] == "resume_builds"]
    assert {(row["action"], row["outcome"], row["address"]) for row in rows} == {
        ("append_event", "channel_not_allowed", "203.0.113.7"),
        ("memory_stats", "role_required", "203.0.113.7"),
    }
    assert [act["address"] for act in acts] == ["203.0.113.7"]


async def refusals(control: Pool) -> Rows:
    """Return the refused attempts."""
    return [entry for entry in await journal.entries(control, None, 100) if entry["kind"] == "refusal"]


async def test_a_call_leaves_one_record_on_every_path(memory: Memory, control: Pool) -> None:
    """With how it ended, and nothing of what was said."""
    text, actor = await key(control)
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:
        arguments = event(text="never written", participants=["ada"], context_id="thread-7")
        await ask(served, text, "append_event", arguments)
        await ask(served, text, "get_event", {"event_id": "evt_" + "0" * 32})
        rows = await eventually(lambda: journal.calls(control, "default", 10), 2)
    assert {(row["principal"], row["face"], row["tool"], row["context"], row["outcome"]) for row in rows} == {
        (actor, "core", "append_event", "thread-7", "ok"),
        (actor, "core", "get_event", None, "event_not_found"),
    }
    assert all(row["latency_ms"] > 0 for row in rows)
    assert "never written" not in repr(rows)


async def test_what_was_noted_is_written_when_the_server_ends(
    memory: Memory, control: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling update loses no record."""
    monkeypatch.setattr(journal, "FLUSH_S", 3600.0)
    text, _ = await key(control)
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:
        await ask(served, text, "query_event_nodes", {})
        assert await journal.calls(control, None, 10) == []
    assert len(await journal.calls(control, None, 10)) == 1


async def test_the_local_principal_leaves_records_only_where_asked_for(memory: Memory, control: Pool) -> None:
    """On loopback nobody needs them; its administrative acts are written all the same."""
    for share, count in ((None, 0), (1.0, 1)):
        async with serving(memory, Settings(audit=AuditSettings(calls=share))) as served:
            await served.call("query_event_nodes", {})
            await served.call("resume_builds", {})
        rows = await journal.calls(control, None, 10)
        assert [row["tool"] for row in rows].count("query_event_nodes") == count
    acts = [entry["actor"] for entry in await journal.entries(control, "default", 10)]
    assert acts.count("mcp") == 2


async def test_an_administrator_over_stdio_is_written_down_too(memory: Memory, control: Pool) -> None:
    """And a call is, where that is asked for."""
    settings = Settings(audit=AuditSettings(calls=1.0))
    message = json.dumps(call("myria_resume_builds", {})).encode() + b"\n"
    await serve_stdio(memory, settings, api="admin", stdin=io.BytesIO(message), stdout=io.BytesIO())
    acts = [entry for entry in await journal.entries(control, "default", 10) if entry["actor"] == "stdio"]
    assert [(act["action"], act["outcome"], act["face"]) for act in acts] == [("resume_builds", "ok", "admin")]
    assert [row["tool"] for row in await journal.calls(control, "default", 10)] == ["resume_builds"]
