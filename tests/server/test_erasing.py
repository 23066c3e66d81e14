"""Erasing over MCP: begun by a serving process for the role `erase`, carried out by the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from myria.access import journal
from myria.access.store import AccessStore
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.db.locks import lock_key
from myria.erasure.carrying import ErasureCarrier
from myria.erasure.model import Receipt, Selection
from myria.erasure.receipts import verify_receipt
from myria.memory import Memory
from myria.notes.folding import event_log
from myria.settings import AuthSettings, ErasureSettings, Settings
from tests.erasure.test_erasure import PHRASE, erasures, failed, said, seeded, traces
from tests.server.test_auditing import ask, eventually, key
from tests.server.wire import Served, serving
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

ADMIN = "/mcp/admin"
KEYS = Settings(auth=AuthSettings(mode="keys"), erasure=ErasureSettings(max_events=20, max_open=2))
OFFICER: dict[str, Any] = {"roles": ("erase",), "faces": ("admin",)}


@pytest.fixture
async def control(database: Database) -> AsyncIterator[Pool]:
    """The database as the control plane sees it."""
    async with Pool(database.operator_dsn) as pool:
        await AccessStore(pool).ensure_tenant("default")
        yield pool


@pytest.fixture
async def guarded(memory: Memory) -> AsyncIterator[Served]:
    """A server that asks for keys."""
    async with serving(memory, KEYS) as one:
        yield one


@pytest.fixture(autouse=True)
def quick_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the journal be written soon."""
    monkeypatch.setattr(journal, "FLUSH_S", 0.02)


async def called(served: Served, text: str, name: str, **arguments: Any) -> Any:
    """Return the structured content that a tool of the admin face answers."""
    response = await ask(served, text, name, arguments, path=ADMIN)
    assert response.status_code == 200, response.text
    return response.json()["result"]["structuredContent"]


async def carried_out(control: Pool) -> None:
    """Let the control plane carry out what waits."""
    carrier = ErasureCarrier(control, Registry(control, KEYS), event_log(control), KEYS.erasure, unproved=False)
    await carrier.look()
    await carrier.settle()


async def shown(served: Served, text: str) -> str:
    """Return what a question for the phrase is answered with."""
    response = await ask(served, text, "query_event_nodes", {"query": f"{PHRASE} piano garden"})
    assert response.status_code == 200
    return str(response.json()["result"]["structuredContent"]["root"])


async def test_the_tool_begins_and_the_control_plane_carries_out(
    database: Database, guarded: Served, control: Pool
) -> None:
    """Nothing of it is answered from the answer of the tool on, nor after a rollback to before; nobody without the role
    may, every attempt is in the audit, and the receipt proves it with a key that its caller alone is shown."""
    officer, actor = await key(control, **OFFICER)
    other, _ = await key(control, name="other", **OFFICER)
    roles = ("append", "read", "admin")
    admin, _ = await key(control, name="admin", own=("ana",), roles=roles, faces=("core", "admin"))
    await append(database.dsn, [said(100, participants=("ana",), channel="old")])
    first = await builds.build(database)
    await seeded(database)
    assert "quokka" in await shown(guarded, admin)

    chosen = {"query": PHRASE, "source_keys": [{"channel": "test", "source_event_key": "late"}]}
    assert (await ask(guarded, admin, "erase", chosen, path=ADMIN)).status_code == 403
    planned = await called(guarded, officer, "preview_erasure", **chosen, limit=3)
    assert (planned["counts"]["events"], len(planned["events"])) == (8, 3)
    assert PHRASE not in str(planned)
    named = {"expected_events": 8, "reason": "request 17", "idempotency_key": "17"}
    begun = await called(guarded, officer, "erase", **chosen, **named)
    assert (begun["events"], begun["withdrawn"], begun["erased"], begun["by"]) == (8, 8, 0, actor)
    assert await called(guarded, officer, "erase", **chosen, **named) == begun
    other_chosen = await called(guarded, officer, "erase", query=PHRASE, **named)
    assert other_chosen["error"]["code"] == "event_not_found"  # another choice is no repeat; and all of it is gone
    assert "quokka" not in await shown(guarded, admin)
    erasure_id = begun["erasure_id"]
    early = await called(guarded, officer, "get_erasure_receipt", erasure_id=erasure_id)
    assert early["error"]["code"] == "erasure_not_found"

    await carried_out(control)
    (state,) = (await called(guarded, officer, "get_erasures"))["erasures"]
    assert (state["state"], state["erased"], state["failure"]) == ("done", 8, None)
    assert state["rows"]["events"] == 8
    assert (await called(guarded, other, "get_erasure_receipt", erasure_id=erasure_id)).get("key") is None
    receipt = Receipt.of(await called(guarded, officer, "get_erasure_receipt", erasure_id=erasure_id))
    assert receipt.key is not None
    async with Pool(database.dsn) as owner:
        proof = await verify_receipt(owner, TENANT, receipt)
        assert (proof.problems, proof.examined["events"] > 0) == ((), True)
        async with owner.write(TENANT) as connection:
            await connection.execute("UPDATE myria.erasures SET key_shown_at = key_shown_at - interval '6 minutes'")
    assert "key" not in await called(guarded, officer, "get_erasure_receipt", erasure_id=erasure_id)

    rolled_back = await ask(guarded, admin, "rollback", {"to": first.snapshot_id}, path=ADMIN)
    assert rolled_back.json()["result"]["structuredContent"]["snapshot_id"] == first.snapshot_id
    assert "quokka" not in await shown(guarded, admin)
    assert await traces(database.dsn) == []
    assert await failed(database.dsn) == {}

    acts = [entry for entry in await journal.entries(control, TENANT, 50) if entry["kind"] == "act"]
    did = [(entry["action"], entry["outcome"], entry["actor"]) for entry in reversed(acts)]
    assert [entry for entry in did if entry[2] == actor] == [
        ("erase.plan", "ok", actor),
        ("preview_erasure", "ok", actor),
        ("erase.start", "ok", actor),
        ("erase", "ok", actor),
        ("erase.start", "event_not_found", actor),
        ("erase", "event_not_found", actor),
        ("get_erasure_receipt", "erasure_not_found", actor),
        ("get_erasure_receipt", "ok", actor),
        ("get_erasure_receipt", "ok", actor),
    ]
    assert ("erase.done", "ok", "control") in did

    async def refusals() -> list[dict[str, Any]]:
        return [entry for entry in await journal.entries(control, TENANT, 50) if entry["kind"] == "refusal"]

    (refusal,) = await eventually(refusals, 1)
    assert (refusal["outcome"], refusal["target"]) == ("role_required", "myria_erase")


async def test_what_was_not_seen_before_or_is_too_much_is_refused(
    database: Database, guarded: Served, control: Pool
) -> None:
    """Another number of events than the caller was told of, more than one call may take, a third erasure while two are
    not done, a second look at the log at the same time: each is refused with a code, and changes nothing."""
    officer, _ = await key(control, **OFFICER)
    results = await append(database.dsn, conversation(30))
    ids = [result.event_id for result in results]

    async def code(count: int, **chosen: Any) -> str:
        answer = await called(guarded, officer, "erase", expected_events=count, reason="r", **chosen)
        return str(answer["error"]["code"]) if "error" in answer else "ok"

    everybody = sorted({name for row in conversation(30) for name in row.participants})
    assert await code(29, of_participants=everybody, shared="remove") == "erasure_changed"
    assert await code(30, of_participants=everybody, shared="remove") == "erasure_too_large"
    assert await code(1, event_ids=["evt_" + "0" * 32]) == "event_not_found"
    assert await code(1) == "invalid_argument"
    assert await code(1, event_ids=ids[:1], reasons="x") == "unknown_field"
    assert await code(1, query="a\0b") == "invalid_text"
    assert await code(1, source_keys=[{"channel": "a"}]) == "invalid_argument"
    async with control.write(TENANT) as connection:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_key("list erasure", TENANT))
        assert await code(1, event_ids=ids[:1]) == "overloaded"
    assert await builds.rows(database, "SELECT FROM myria.erased UNION ALL SELECT FROM myria.erasures") == []
    assert await code(1, event_ids=ids[:1]) == "ok"
    assert await code(1, event_ids=ids[1:2]) == "ok"
    assert await code(1, event_ids=ids[2:3]) == "erasure_too_large"
    await carried_out(control)
    await carried_out(control)
    assert await code(1, event_ids=ids[2:3]) == "ok"


async def test_every_process_forgets_what_was_erased(database: Database) -> None:
    """Two serving processes that keep its words forget them without being asked anything, and nothing of a tenant in
    which nothing was erased."""
    await append(database.dsn, [*conversation(20), *(said(number) for number in range(5))])
    await builds.build(database)
    await append(database.dsn, conversation(5), tenant="other")
    async with (
        Memory(database.server_dsn, Settings()) as one,
        Memory(database.server_dsn, Settings()) as two,
        Pool(database.dsn) as owner,
        serving(one) as first,
        serving(two) as second,
        serving(two, tenant="other") as third,
    ):
        for served in (first, second, third):
            await served.call("query_event_nodes", {"query": PHRASE, "participants": ["ana", "ben"]})
        assert [tenants_of(memory) for memory in (one, two)] == [{TENANT}, {TENANT, "other"}]
        await erasures(owner).run(await erasures(owner).start(Selection(query=PHRASE), reason="r"))
        async with asyncio.timeout(PATIENCE_S):
            while [tenants_of(memory) for memory in (one, two)] != [set(), {"other"}]:
                await asyncio.sleep(0.05)
        answer = await first.call("query_event_nodes", {"query": PHRASE, "participants": ["ana", "ben"]})
    assert "quokka" not in str(answer.content["root"])


def tenants_of(memory: Memory) -> set[str]:
    """Return the tenants of which a process keeps anything that it has read."""
    keys = [key for key in memory.retrieval.cache._entries if isinstance(key, tuple)]
    return {key[0][0] if isinstance(key[0], tuple) else key[0] for key in keys} - {"shown"}
