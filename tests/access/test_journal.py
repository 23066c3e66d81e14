"""The journal of access: what is written of acts, refused attempts and calls, and what it may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from myria.access import journal
from myria.access.journal import NO_TENANT, Act, Journal, calls, entries, forget
from myria.access.principal import Principal, local_principal
from myria.access.store import AccessStore, NewKey
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.erasure.tenants import TenantDeletion
from myria.settings import AuditSettings, Settings
from tests.support.clock import Clock
from tests.support.postgres import Database

LOCAL = local_principal("default")
ADA = Principal(
    tenant="default",
    actor="key:abcdef",
    roles=frozenset({"read"}),
    faces=frozenset({"core"}),
    own=("ada",),
    credential="abcdef",
)


@pytest.fixture
async def control(database: Database) -> AsyncIterator[Pool]:
    """The database as the control plane sees it."""
    async with Pool(database.operator_dsn) as pool:
        async with pool.write("default") as connection:
            await connection.execute(sql("scopes.ensure_tenant"), "default")
        yield pool


@pytest.fixture
async def serving(database: Database) -> AsyncIterator[Pool]:
    """The database as a serving process sees it."""
    async with Pool(database.server_dsn) as pool:
        yield pool


def note(log: Journal, principal: Principal, **more: Any) -> None:
    """Note one call."""
    log.call(
        principal,
        **{"face": "core", "tool": "get_event", "arguments": {}, "seconds": 0.0015, "outcome": "ok", **more},
    )


async def test_every_act_on_keys_and_tenants_is_written_down(control: Pool) -> None:
    """With who did it and why, in the order in which it was done, and never a secret."""
    store = AccessStore(control, actor="cli:root")
    await store.create_tenant("team")
    made, _ = await store.create_key(NewKey(name="k", tenant="team", own=("ada",)))
    newer, _ = await store.rotate_key(made.key_id, overlap_s=60, reason="a new laptop")
    await store.revoke_key(newer.key_id, reason="stolen")
    await store.revoke_key(newer.key_id)  # again: no act, and no second entry
    await store.suspend_tenant("team", "unpaid")
    await store.resume_tenant("team")
    written = list(reversed(await entries(control, "team", 100)))
    assert [(entry["action"], entry["target"]) for entry in written] == [
        ("tenant.create", "team"),
        ("key.create", made.key_id),
        ("key.rotate", made.key_id),
        ("key.revoke", newer.key_id),
        ("tenant.suspend", "team"),
        ("tenant.resume", "team"),
    ]
    assert {(entry["kind"], entry["actor"], entry["outcome"]) for entry in written} == {("act", "cli:root", "ok")}
    assert written[1]["details"]["as"] == ["ada"]
    assert written[2]["details"]["new_key"] == newer.key_id
    reasons = [entry["details"].get("reason") for entry in written]
    assert reasons == [None, None, "a new laptop", "stolen", "unpaid", None]
    text = repr(written)
    assert made.text not in text
    assert made.text.rpartition("_")[2] not in text
    assert made.digest.hex() not in text


async def test_an_act_that_did_not_happen_is_not_written_down(control: Pool) -> None:
    """It is written in the same transaction."""
    store = AccessStore(control)
    await store.create_tenant("team")
    before = await entries(control, None, 100)
    for again in (store.create_tenant("team"), store.revoke_key("nobody"), store.suspend_tenant("nobody")):
        with pytest.raises(Exception, match=r"there is (a|no)"):
            await again
    assert await entries(control, None, 100) == before


async def test_equal_refusals_are_one_row(serving: Pool, control: Pool) -> None:
    """With how often; those of nobody's tenant are kept apart from every tenant's."""
    log = Journal(serving, AuditSettings())
    ours = Act(tenant="default", actor="key:abcdef", action="/mcp", outcome="role_required", face="core")
    unknown = replace(ours, tenant=NO_TENANT, actor="nobody", outcome="credential_invalid", address="198.51.100.1")
    for _ in range(7):
        log.refused(ours)
        log.refused(unknown)
    await log.flush()
    log.refused(unknown)
    await log.flush()
    written = [(e["tenant"], e["outcome"], e["address"], e["times"]) for e in await entries(control, None, 100)]
    assert Counter(written) == Counter(
        [
            ("default", "role_required", None, 7),
            (None, "credential_invalid", "198.51.100.1", 7),
            (None, "credential_invalid", "198.51.100.1", 1),
        ]
    )


async def test_a_flood_of_refusals_takes_bounded_room(
    serving: Pool, control: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From however many addresses; what found no room is counted."""
    monkeypatch.setattr(journal, "MAX_KINDS", 20)
    lost: Counter[str] = Counter()
    log = Journal(serving, AuditSettings(), dropped=lambda sort, count: lost.update({sort: count}), ticks=Clock())
    attempt = Act(tenant=NO_TENANT, actor="nobody", action="/mcp", outcome="credential_invalid")
    for _ in range(3):
        for number in range(50):
            log.refused(replace(attempt, address=f"198.51.100.{number}"))
        await log.flush()
    assert len(await entries(control, None, 1000)) == 20
    assert lost == {"refusals": 130}


async def test_a_call_leaves_a_record_without_its_content(serving: Pool, control: Pool) -> None:
    """Who, where, what, how long and how it ended; of the arguments only the context."""
    log = Journal(serving, AuditSettings())
    note(log, ADA, arguments={"context_id": "thread-7", "query": "a secret word", "participants": ["ada"]})
    note(log, ADA, tool="query_references", arguments={"context_id": ["no text"]}, outcome="invalid_argument")
    note(log, LOCAL)
    await log.flush()
    written = await calls(control, None, 10)
    assert len(written) == 2
    failed, good = sorted(written, key=lambda call: str(call["outcome"]))
    assert (good["tenant"], good["principal"], good["face"], good["tool"]) == (
        "default",
        "key:abcdef",
        "core",
        "get_event",
    )
    assert (good["context"], good["outcome"], good["latency_ms"]) == ("thread-7", "ok", pytest.approx(1.5))
    assert (failed["context"], failed["outcome"]) == (None, "invalid_argument")
    assert len({call["request_id"] for call in written}) == 2
    assert "secret word" not in repr(written)


@pytest.mark.parametrize(
    ("share", "recorded"), [(None, {ADA.actor: 400}), (0.0, {}), (1.0, {ADA.actor: 400, LOCAL.actor: 400})]
)
async def test_the_share_of_calls_is_a_setting(
    serving: Pool, control: Pool, share: float | None, recorded: dict[str, int]
) -> None:
    """Unset, only those who prove who they are leave records."""
    log = Journal(serving, AuditSettings(calls=share, calls_per_s=1000))
    for _ in range(400):
        note(log, ADA)
        note(log, LOCAL)
    await log.flush()
    assert Counter(call["principal"] for call in await calls(control, None, 1000)) == recorded


async def test_a_share_takes_about_that_many(serving: Pool, control: Pool) -> None:
    """Each call by chance: between a quarter and three quarters of a half, but for one case in 10^100."""
    log = Journal(serving, AuditSettings(calls=0.5, calls_per_s=1000))
    for _ in range(2000):
        note(log, ADA)
    await log.flush()
    assert 500 < len(await calls(control, None, 5000)) < 1500


async def test_records_of_calls_take_bounded_room(serving: Pool, control: Pool) -> None:
    """So many a second, however many calls there are; the others are counted."""
    clock, lost = Clock(), Counter[str]()
    log = Journal(
        serving,
        AuditSettings(calls_per_s=2),
        dropped=lambda sort, count: lost.update({sort: count}),
        ticks=clock,
    )
    for _ in range(100):
        note(log, ADA)
    clock.at += 3
    for _ in range(100):
        note(log, ADA)
    await log.flush()
    assert len(await calls(control, None, 1000)) == 20 + 6
    assert lost == {"calls": 174}


async def test_a_database_that_is_away_costs_the_records_alone() -> None:
    """Nothing is raised into a request, and what was lost is counted."""
    lost: Counter[str] = Counter()
    async with Pool("postgresql://myria@127.0.0.1:1/myria") as nowhere:
        log = Journal(nowhere, AuditSettings(), dropped=lambda sort, count: lost.update({sort: count}))
        note(log, ADA)
        log.refused(Act(tenant="default", actor="a", action="/mcp", outcome="role_required"))
        await log.flush()
        await log.act(Act(tenant="default", actor="a", action="rollback"))
    assert lost == {"calls": 1, "refusals": 1}


async def test_serving_writes_the_journal_and_cannot_read_or_change_it(serving: Pool) -> None:
    """Whoever gets hold of a serving process learns nothing of the past from it, and cannot hide."""
    log = Journal(serving, AuditSettings())
    note(log, ADA)
    await log.act(Act(tenant="default", actor="a", action="rollback"))
    await log.flush()
    for statement in (
        "SELECT * FROM myria.call_log",
        "SELECT * FROM myria.access_log",
        "DELETE FROM myria.access_log",
        "UPDATE myria.access_log SET actor = 'b'",
    ):
        async with serving.connection() as connection, connection.transaction():
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_retention_removes_what_is_old_and_nothing_else(control: Pool, serving: Pool) -> None:
    """Each log by its own age, of every tenant and of none."""
    log = Journal(serving, AuditSettings())
    note(log, ADA)
    log.refused(Act(tenant=NO_TENANT, actor="nobody", action="/mcp", outcome="credential_missing"))
    await log.act(Act(tenant="default", actor="a", action="rollback"))
    await log.flush()
    assert await forget(control, AuditSettings()) == 0
    assert await forget(control, AuditSettings(keep_calls_s=0)) == 1
    assert len(await entries(control, None, 10)) == 2
    assert await forget(control, AuditSettings(keep_access_s=0)) == 2
    assert await entries(control, None, 10) == []


async def test_a_deleted_tenant_gets_no_records_of_calls(serving: Pool, control: Pool) -> None:
    """What was noted before its deletion and is written after it is left out, so that nothing of it is left."""
    store = AccessStore(control)
    await store.create_tenant("gone")
    log = Journal(serving, AuditSettings(calls=1.0))
    gone = local_principal("gone")
    log.call(gone, face="core", tool="get_event", arguments={}, seconds=0.0, outcome="ok")
    await log.flush()
    assert len(await calls(control, "gone", 10)) == 1
    log.call(gone, face="core", tool="get_event", arguments={}, seconds=0.0, outcome="ok")
    deletion = TenantDeletion(control, Registry(control, Settings()), "gone", actor="test")
    await deletion.stop()
    await deletion.remove()
    await log.flush()
    assert await deletion.remains() == []
    assert await calls(control, "gone", 10) == []
