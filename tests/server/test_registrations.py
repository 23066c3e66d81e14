"""Programs that register themselves are bounded by network, key and tenant, and push nobody out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from tests.server.signing_in import CALLBACK, PUBLIC_URL, client_id, consent, request_of, send, tokens
from tests.server.wire import Served, serving
from tests.support.clock import Clock
from tests.support.keys import make_key
from tests.support.postgres import Database


@asynccontextmanager
async def signing(memory: Memory, clock: Clock | None = None, **auth: Any) -> AsyncIterator[Served]:
    """Run an authorization server behind a proxy on this machine."""
    settings = Settings(
        auth=AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True, proxies=("127.0.0.0/8",), **auth)
    )
    async with serving(memory, settings, ticks=clock or time.monotonic) as served:
        yield served


async def register(served: Served, address: str = "192.0.2.1") -> httpx.Response:
    """Register a program from an address."""
    body = {"client_name": "Editor", "redirect_uris": [CALLBACK]}
    return await served.client.post("/oauth/register", json=body, headers={"x-forwarded-for": address})


async def owner(database: Database, statement: str) -> None:
    """Run a statement on all tenants' rows."""
    connection = await asyncpg.connect(database.dsn)
    try:
        await connection.execute("SELECT set_config('myria.tenant', '*', false)")
        await connection.execute(statement)
    finally:
        await connection.close()


def refused(response: httpx.Response) -> tuple[int, str]:
    """Return a refusal's status and error, and check that it says when to come again."""
    assert int(response.headers["retry-after"]) > 0
    return response.status_code, response.json()["error"]


@pytest.mark.parametrize(
    ("same", "another"),
    [("192.0.2.1", "192.0.2.2"), ("2001:db8:1:2::3", "2001:db8:2:2::3"), ("2001:db8:1:ffff::1", "192.0.2.1")],
)
async def test_one_network_registers_so_often_a_minute(memory: Memory, same: str, another: str) -> None:
    """Good and bad registrations count; another network goes on, and the first one does after a while."""
    clock = Clock()
    async with signing(memory, clock, registrations_per_minute=3) as served:
        bad = await served.client.post("/oauth/register", content=b"{", headers={"x-forwarded-for": same})
        assert bad.status_code == 400
        neighbour = "2001:db8:1:5::9" if ":" in same else same
        assert [(await register(served, address)).status_code for address in (same, neighbour)] == [201, 201]
        assert refused(await register(served, same)) == (429, "temporarily_unavailable")
        assert (await register(served, another)).status_code == 201
        clock.at += 60
        assert (await register(served, same)).status_code == 201


async def test_a_flood_ends_no_sign_in_under_way(
    memory: Memory, store: AccessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from the same network nor from many: further ones are refused, and whoever was first signs in."""
    monkeypatch.setattr("myria.access.grants.MAX_UNUSED_EACH", 3)
    monkeypatch.setattr("myria.access.grants.MAX_UNUSED", 8)
    key = await make_key(store, "ada")
    async with signing(memory, registrations_per_minute=None) as served:
        waiting, used = (await register(served)).json()["client_id"], await client_id(served)
        kept = await tokens(served, used, key)
        same = [await register(served) for _ in range(5)]
        assert [answer.status_code for answer in same] == [201, 201, 429, 429, 429]
        assert refused(same[-1]) == (429, "temporarily_unavailable")
        others = [await register(served, f"198.51.100.{number}") for number in range(8)]
        assert [answer.status_code for answer in others] == [201] * 5 + [429] * 3
        assert (await send(served, kept["access_token"])).status_code == 200
        assert (await send(served, (await tokens(served, waiting, key))["access_token"])).status_code == 200
        assert (await register(served, "203.0.113.1")).status_code == 201, "what is used makes room"


async def test_what_nobody_uses_ends_after_an_hour(memory: Memory, store: AccessStore, database: Database) -> None:
    """It is as if it had never been; what somebody signed in with stays, also when its grant has ended."""
    key = await make_key(store, "ada")
    async with signing(memory) as served:
        unused, used = await client_id(served), await client_id(served)
        kept = await tokens(served, used, key)
        await owner(database, "UPDATE myria.oauth_clients SET created_at = created_at - interval '59 minutes'")
        assert (await served.client.get("/oauth/authorize", params=request_of(unused))).status_code == 200
        await owner(database, "UPDATE myria.oauth_clients SET created_at = created_at - interval '1 minute'")
        assert (await served.client.get("/oauth/authorize", params=request_of(unused))).status_code == 400
        form = {"grant_type": "refresh_token", "client_id": unused, "refresh_token": "myf_" + "a" * 40}
        gone = await served.client.post("/oauth/token", data=form)
        assert (gone.status_code, gone.json()["error"]) == (401, "invalid_client")
        await served.client.post("/oauth/revoke", data={"client_id": used, "token": kept["refresh_token"]})
        assert (await tokens(served, used, key))["access_token"]
        assert (await register(served)).status_code == 201
        connection = await asyncpg.connect(database.dsn)
        try:
            rows = await connection.fetch("SELECT client_id, registered_from FROM myria.oauth_clients")
        finally:
            await connection.close()
        assert unused not in {row["client_id"] for row in rows}
        assert {row["client_id"]: row["registered_from"] for row in rows}[used] is None, "no address is kept of it"


async def test_a_key_and_a_tenant_have_so_many_grants(memory: Memory, store: AccessStore) -> None:
    """Further programs are refused on the page, which says what to do; others sign in, and an end makes room."""
    first, second, third = [await make_key(store, "ada") for _ in range(3)]
    elsewhere = await make_key(store, "ada", tenant="other")
    async with signing(memory, grants_per_key=2, grants_per_tenant=3) as served:
        program = await client_id(served)
        kept = await tokens(served, program, first)
        await tokens(served, await client_id(served), first)
        page = await consent(served, request_of(await client_id(served)), first)
        assert page.status_code == 429
        assert "myria grant revoke" in page.text
        await tokens(served, program, second)
        full = await consent(served, request_of(program), third)
        assert (full.status_code, "tenant" in full.text) == (429, True)
        await tokens(served, program, elsewhere)
        await served.client.post("/oauth/revoke", data={"client_id": program, "token": kept["refresh_token"]})
        await tokens(served, program, third)


async def test_a_key_allows_so_much_a_minute(memory: Memory, store: AccessStore) -> None:
    """A key has a rate and its tenant has one; neither counts for another tenant."""
    clock = Clock()
    keys = [await make_key(store, "ada") for _ in range(6)]
    elsewhere = await make_key(store, "ada", tenant="other")
    async with signing(memory, clock, sign_ins_per_minute=1) as served:
        program = await client_id(served)
        await tokens(served, program, keys[0])
        assert (await consent(served, request_of(program), keys[0])).status_code == 429
        for key in keys[1:5]:
            await tokens(served, program, key)
        assert (await consent(served, request_of(program), keys[5])).status_code == 429
        await tokens(served, program, elsewhere)
        clock.at += 60
        await tokens(served, program, keys[0])


async def test_sign_ins_at_once_keep_the_bound(memory: Memory, store: AccessStore) -> None:
    """Of many at the same moment as many are granted as may be."""
    key = await make_key(store, "ada")
    async with signing(memory, grants_per_key=2) as served:
        programs = [await client_id(served) for _ in range(6)]
        pages = await asyncio.gather(*(consent(served, request_of(program), key) for program in programs))
        assert sorted(page.status_code for page in pages) == [303, 303, 429, 429, 429, 429]
