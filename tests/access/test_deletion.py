"""Deleting a tenant: nothing is written from the mark on, everything goes, others keep all of theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest

from myria.access.grants import Grants, challenge_of
from myria.access.secrets import MadeKey
from myria.access.store import AccessStore, NewKey
from myria.builds.snapshots import Registry
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.erasure.tenants import TenantDeletion
from myria.errors import TenantDeleting, TenantNotFound
from myria.memory import Memory
from myria.notes.folding import event_log
from myria.search.queries import EventNodesQuery
from myria.settings import Settings
from tests.support.builds import build
from tests.support.events import conversation, event
from tests.support.postgres import Database

SETTINGS = Settings()
TABLES_OF_TENANTS = """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'myria'::regnamespace AND c.relkind = 'r' AND a.attname = 'tenant_id'
        AND c.relname <> 'access_log'"""


@pytest.fixture
async def control(database: Database) -> AsyncIterator[Pool]:
    """The control plane's connections, with the tenants `gone` and `kept`: each with a key, tokens and events."""
    async with Pool(database.operator_dsn) as pool, Pool(database.server_dsn) as serving:
        store, ingest = AccessStore(pool), event_log(serving)
        for tenant in ("gone", "kept"):
            await store.create_tenant(tenant)
            made, _ = await store.create_key(NewKey(name="a", tenant=tenant, own=("ana",)))
            await grant_tokens(Grants(serving), made)
            await ingest.append_events(tenant, conversation(60))
            await build(database, tenant=tenant)
        yield pool


async def grant_tokens(grants: Grants, key: MadeKey) -> None:
    """Allow a program to use a key, through to its tokens."""
    uri, verifier = "https://app.example.com/", "v" * 43
    client = await grants.register("Editor", [uri], network="192.0.2.1")
    challenge = challenge_of(verifier)
    assert challenge is not None
    code = await grants.grant(key, client, face="core", scopes=("read",), redirect_uri=uri, challenge=challenge)
    assert code is not None
    assert await grants.exchange_code(code, client, redirect_uri=uri, verifier=verifier, face=None) is not None


def deletion(pool: Pool, tenant: str = "gone") -> TenantDeletion:
    """Return the deletion of a tenant."""
    return TenantDeletion(pool, Registry(pool, SETTINGS), tenant, actor="test")


async def rows(database: Database) -> Counter[tuple[str, str]]:
    """Return how many rows of which table each tenant has, as a superuser counts them."""
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        counted: Counter[tuple[str, str]] = Counter()
        for (table,) in await connection.fetch(TABLES_OF_TENANTS):
            for tenant, number in await connection.fetch(
                f"SELECT tenant_id, count(*) FROM myria.{table} GROUP BY tenant_id"
            ):
                counted[table, tenant] = number
        return counted
    finally:
        await connection.close()


async def test_everything_of_a_tenant_goes_and_nothing_of_another(database: Database, control: Pool) -> None:
    """Every table is empty of the one and as it was for the other, whatever the size of a part."""
    before = await rows(database)
    assert {table for table, tenant in before if tenant == "gone"} >= {
        "events", "scopes", "scope_members", "keys", "builds", "snapshots", "active_snapshots", "renderings", "tenants",
        "oauth_grants", "oauth_tokens",
    }  # fmt: skip
    gone = deletion(control)
    assert await gone.stop()
    removed = await gone.remove(at_once=7)
    after = await rows(database)
    assert {key: count for key, count in before.items() if key[1] == "kept"} == dict(after)
    assert removed["events"] == before["events", "gone"]
    assert await gone.remains() == []
    with pytest.raises(TenantNotFound, match="nothing of it is left"):
        await AccessStore(control).tenant("gone")
    with pytest.raises(TenantNotFound):
        await deletion(control).stop()


async def test_a_killed_deletion_goes_on(database: Database, control: Pool) -> None:
    """What was removed stays removed, the rest follows, and nothing that is not whole counts as whole."""

    class KilledError(Exception):
        pass

    def kill(removed: Counter[str]) -> None:
        if removed["events"] >= 20:
            raise KilledError

    gone = deletion(control)
    assert await gone.stop()
    with pytest.raises(KilledError):
        await gone.remove(at_once=10, on_progress=kill)
    assert 0 < (await rows(database))["events", "gone"] < 60
    with pytest.raises(TenantDeleting):
        await AccessStore(control).resume_tenant("gone")
    again = deletion(control)
    assert not await again.stop()
    await again.remove()
    assert not [key for key in await rows(database) if key[1] == "gone"]


async def test_from_the_mark_on_nothing_is_written(database: Database, control: Pool) -> None:
    """Not by a process that knows the scopes, not by one that does not; no build, no request, no key."""
    async with Pool(database.server_dsn) as serving:
        ingest = event_log(serving)
        await ingest.append_events("gone", [event(1, "one")])
        await deletion(control).stop()
        before = await rows(database)
        for participants in (("ana", "ben"), ("somebody", "new")):
            with pytest.raises(TenantDeleting):
                await ingest.append_events("gone", [event(2, "two", participants=participants)])
        with pytest.raises(TenantDeleting):
            await Registry(serving, SETTINGS).request_build("gone")
        with pytest.raises(TenantDeleting):
            await AccessStore(control).create_key(NewKey(name="b", tenant="gone", own=("ana",)))
        await ingest.append_events("kept", [event(2, "two")])
        after = await rows(database)
    assert {k: v for k, v in after.items() if k[1] == "gone"} == {k: v for k, v in before.items() if k[1] == "gone"}


async def test_a_build_that_waits_is_ended_and_none_follows(database: Database, control: Pool) -> None:
    """The control loop starts no builder for a tenant that is being deleted, though requests wait."""
    registry, launched = Registry(control, SETTINGS), []

    async def launch(tenant: str, build_id: str) -> int:
        launched.append(tenant)
        return 0

    await registry.request_build("gone")
    await deletion(control).stop()
    loop = ControlLoop(control, SETTINGS, launch)
    await loop.look("gone")
    await loop.close()
    assert launched == []


async def test_a_deletion_can_be_called_off_while_all_is_there(database: Database, control: Pool) -> None:
    """Resumed before anything was removed, the tenant is written again."""
    await deletion(control).stop()
    assert (await AccessStore(control).tenant("gone"))["state"] == "deleting"
    assert (await AccessStore(control).resume_tenant("gone"))["state"] == "active"
    async with Pool(database.server_dsn) as serving:
        await event_log(serving).append_events("gone", [event(1, "one")])


@pytest.mark.parametrize("is_used_again", [False, True])
async def test_a_process_that_remembers_scopes_of_a_deleted_tenant_makes_them_anew(
    database: Database, control: Pool, *, is_used_again: bool
) -> None:
    """An event never names a scope that is gone, and is found by those who may see it."""
    async with Pool(database.server_dsn) as serving:
        ingest = event_log(serving)
        await ingest.append_events("gone", [event(1, "one")])
        gone = deletion(control)
        await gone.stop()
        await gone.remove()
        if is_used_again:
            await event_log(serving).append_events("gone", [event(4, "four", participants=["carol"])])
        await ingest.append_events("gone", [event(2, "two"), event(3, "three")])
        await ingest.append_events("gone", [event(5, "five")])
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        found = await connection.fetchval(
            "SELECT count(*) FROM myria.events e JOIN myria.scopes s USING (tenant_id, scope_id) "
            "JOIN myria.tenants USING (tenant_id) WHERE tenant_id = 'gone'"
        )
        assert found == 3 + is_used_again
        assert found == await connection.fetchval("SELECT count(*) FROM myria.events WHERE tenant_id = 'gone'")
    finally:
        await connection.close()


@pytest.mark.parametrize("is_built", [False, True])
async def test_a_name_that_is_used_again_is_a_new_memory(database: Database, control: Pool, *, is_built: bool) -> None:
    """A serving process that has read the deleted tenant shows all events of the new one, and none of the old."""
    asked = EventNodesQuery(participants=("ana",), limit=200)
    new = conversation(12, seed=9)

    async def seen(memory: Memory) -> set[str]:
        answer = await memory.retrieval.query_event_nodes("gone", asked)
        return {node["event_id"] for node in answer["root"]["children"]}

    async with Memory(database.server_dsn, SETTINGS) as memory:
        old = await seen(memory)
        assert old
        gone = deletion(control)
        await gone.stop()
        await gone.remove()
        assert await seen(memory) == set()
        stored = await memory.log.append_events("gone", new)
        if is_built:
            await build(database, tenant="gone")
        visible = {result.event_id for result in stored if "ana" in result.participants}
        assert visible
        assert await seen(memory) == visible
        assert not visible & old


@pytest.mark.parametrize("role", ["server_dsn", "builder_dsn", "operator_dsn"])
async def test_only_the_control_plane_removes_and_only_what_is_marked(
    database: Database, control: Pool, role: str
) -> None:
    """No role deletes of the log by itself; the function refuses tenants without the mark, and other roles."""
    async with Pool(getattr(database, role)) as pool:
        for statement in (
            "DELETE FROM myria.events",
            "SELECT myria.remove_of_tenant('kept', 'events', 10)",
            "SELECT myria.remove_of_tenant('gone', 'tenants', 10)",
        ):
            with pytest.raises(Exception, match=r"permission|may be removed"):
                async with pool.write("kept") as connection:
                    await connection.execute(statement)
        if role != "operator_dsn":
            with pytest.raises(Exception, match="permission"):
                async with pool.write("gone") as connection:
                    await connection.execute("UPDATE myria.tenants SET deleting_at = now() WHERE tenant_id = 'gone'")
    assert (await rows(database))["events", "kept"] == 60
