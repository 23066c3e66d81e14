"""Several tenants through one server: each has its own snapshots, pointer, requests, builds and quota."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from myria.access.principal import API_NAMES
from myria.access.store import AccessStore, NewKey
from myria.builds.run import run_build
from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.erasure.tenants import TenantDeletion
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.http.authentication import TENANT_CHECK_S
from tests.server.wire import MODERN, Served, call, event, headers, serving
from tests.support.clock import Clock
from tests.support.postgres import Database

SETTINGS = Settings(auth=AuthSettings(mode="keys"))


@pytest.fixture
async def control(database: Database) -> AsyncIterator[Pool]:
    """The control plane's connections, with the tenants `ours` and `theirs`."""
    async with Pool(database.operator_dsn) as pool:
        for tenant in ("ours", "theirs"):
            await AccessStore(pool).create_tenant(tenant)
        yield pool


@pytest.fixture
async def guarded(memory: Memory) -> AsyncIterator[Served]:
    """A server that asks for keys."""
    async with serving(memory, SETTINGS) as served:
        yield served


async def key(control: Pool, tenant: str) -> str:
    """Make a key that may do everything in a tenant."""
    new = NewKey(name="k", tenant=tenant, own=("ana",), roles=("append", "read", "admin"), faces=API_NAMES)
    return (await AccessStore(control).create_key(new))[0].text


async def tool(served: Served, key: str, name: str, arguments: Any, *, path: str = "/mcp") -> Any:
    """Return what a tool answers to a key."""
    full = f"myria_{name}"
    sent = headers(full, version=MODERN) | {"authorization": f"Bearer {key}"}
    response: httpx.Response = await served.post(call(full, arguments, version=MODERN), sent, path=path)
    assert response.status_code == 200, response.text
    return response.json()["result"]["structuredContent"]


async def build_all(database: Database, control: Pool) -> None:
    """Run every build that was asked for."""

    async def launch(tenant: str, build_id: str) -> int:
        return (await run_build(SETTINGS, database.builder_dsn, tenant, build_id)).exit_status

    loop = ControlLoop(control, SETTINGS, launch)
    for tenant in ("ours", "theirs"):
        await loop.look(tenant)
    for launched in list(loop._builders.values()):
        if launched.task is not None:
            await launched.task
    await loop.close()


async def test_a_build_of_one_tenant_is_nothing_to_another(database: Database, control: Pool, guarded: Served) -> None:
    """Asked for with one key, it makes a snapshot and moves a pointer there alone; the other's ids are not found."""
    ours, theirs = await key(control, "ours"), await key(control, "theirs")
    for bearer in (ours, theirs):
        new = {name: value for name, value in event("e1").items() if name != "participants"}
        await tool(guarded, bearer, "append_event", new)
    asked = await tool(guarded, ours, "trigger_build", {}, path="/mcp/admin")
    assert "error" not in asked, asked
    await build_all(database, control)
    (mine,) = (await tool(guarded, ours, "list_snapshots", {}))["snapshots"]
    assert (await tool(guarded, theirs, "list_snapshots", {}))["snapshots"] == []
    for bearer, there in ((ours, 1), (theirs, 0)):
        tenant = "ours" if bearer == ours else "theirs"
        async with control.read("*") as connection:
            for table in ("builds", "rebuild_requests", "pointer_moves", "active_snapshots", "snapshots"):
                query = f"SELECT count(*) FROM myria.{table} WHERE tenant_id = $1"
                assert await connection.fetchval(query, tenant) == there, (table, tenant)
    foreign = await tool(guarded, theirs, "rollback", {"to": mine["snapshot_id"]}, path="/mcp/admin")
    absent = await tool(guarded, theirs, "rollback", {"to": "snap_" + "0" * 32}, path="/mcp/admin")
    assert foreign["error"]["code"] == absent["error"]["code"]


async def test_a_tenant_beyond_its_quota_stops_nobody_else(control: Pool, guarded: Served) -> None:
    """Its append is refused with a code that says when to come again, nothing is stored, and others append on."""
    ours, theirs = await key(control, "ours"), await key(control, "theirs")
    await AccessStore(control).set_quotas("ours", {"events_per_s": 0.001})
    new = {name: value for name, value in event("e1").items() if name != "participants"}
    assert "event_id" in await tool(guarded, ours, "append_event", {**new, "source_event_key": "1"})
    error = (await tool(guarded, ours, "append_event", {**new, "source_event_key": "2"}))["error"]
    assert (error["code"], error["retryable"]) == ("quota_exceeded", True)
    assert error["details"]["retry_after_s"] > 0
    for number in range(5):
        assert "event_id" in await tool(guarded, theirs, "append_event", {**new, "source_event_key": str(number)})
    async with control.read("ours") as connection:
        assert await connection.fetchval("SELECT count(*) FROM myria.events WHERE tenant_id = 'ours'") == 1


async def test_no_role_goes_round_row_level_security(database: Database) -> None:
    """No role of the planes is a superuser or has BYPASSRLS, and every table of tenants forces its policies."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        roles = await connection.fetch("SELECT * FROM pg_roles WHERE rolname LIKE 'myria%'")
        assert {role["rolname"] for role in roles} >= {"myria_server", "myria_builder", "myria_operator"}
        assert not [role["rolname"] for role in roles if role["rolbypassrls"] or role["rolsuper"]]
        unforced = await connection.fetch(
            "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' "
            "WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind = 'r' "
            "AND NOT (c.relrowsecurity AND c.relforcerowsecurity)"
        )
        assert not unforced
    finally:
        await connection.close()


async def test_without_keys_a_tenant_that_is_being_deleted_is_not_read(memory: Memory, control: Pool) -> None:
    """From a second after the mark on every call is refused; when the deletion is called off, they go on."""
    store, clock = AccessStore(control), Clock()
    await store.ensure_tenant("default")
    deletion = TenantDeletion(control, Registry(control, Settings()), "default", actor="test")
    name = "myria_query_event_nodes"
    async with serving(memory, Settings(), ticks=clock) as served:

        async def ask() -> httpx.Response:
            return await served.post(call(name, {}), headers(name))

        assert (await ask()).status_code == 200
        await deletion.stop()
        clock.at += TENANT_CHECK_S
        refused = await ask()
        assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (403, "tenant_suspended")
        assert (await ask()).status_code == 403
        await store.resume_tenant("default")
        clock.at += TENANT_CHECK_S
        assert (await ask()).status_code == 200
