"""What people granted to programs: listed, taken back, and written down, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from myria.access import journal
from myria.access.grants import Grants
from myria.access.secrets import parse_key
from myria.access.store import AccessStore
from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from tests.cli.conftest import call
from tests.server.signing_in import PUBLIC_URL, client_id, code_for, exchange, refresh, send, tokens
from tests.server.wire import Served, serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database


@pytest.fixture
async def served(memory: Memory, store: AccessStore) -> AsyncIterator[Served]:
    """A server that is an authorization server too."""
    del store
    auth = AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True, failures_per_minute=None)
    async with serving(memory, Settings(auth=auth)) as served:
        yield served


async def noted(database: Database, tenant: str) -> list[tuple[str, str, str, str]]:
    """Return what the journal has of a tenant's grants, oldest first: who, what, to which grant, and how it ended."""
    async with Pool(database.operator_dsn) as pool:
        entries = await journal.entries(pool, tenant, 100)
    return [
        (entry["actor"], entry["action"], entry["target"], entry["outcome"])
        for entry in reversed(entries)
        if entry["action"].startswith("grant.")
    ]


async def test_a_grant_is_listed_and_taken_back(served: Served, store: AccessStore, database: Database) -> None:
    """Its tokens are refused soon, its key stays good, and another tenant's grants are untouched and not listed."""
    mine, theirs = await make_key(store, "ada"), await make_key(store, "bob", tenant="other")
    program = await client_id(served)
    issued, others = await tokens(served, program, mine), await tokens(served, program, theirs)
    async with Pool(database.operator_dsn) as pool:
        store = AccessStore(pool, actor="cli:test")
        (grant,) = await store.grants("default")
        assert (grant["client"], grant["state"], grant["face"]) == ("Editor", "active", "core")
        assert (grant["key_id"], grant["scopes"]) == (mine.split("_")[1], ["append", "read"])
        assert len(await store.grants()) == 2
        assert await store.grant(grant["grant_id"]) == grant
        ended = await store.revoke_grant(grant["grant_id"])
        assert (ended["state"], ended["ended_at"] is None) == ("ended", False)
        while (await send(served, issued["access_token"])).status_code == 200:
            pass
        assert (await refresh(served, program, issued["refresh_token"])).json()["error"] == "invalid_grant"
        assert (await send(served, others["access_token"])).status_code == 200
        assert (await send(served, mine)).status_code == 200
        assert await store.revoke_grant(grant["grant_id"]) == ended
    assert (await noted(database, "default"))[-1] == ("cli:test", "grant.revoke", grant["grant_id"], "ok")


def test_the_commands_list_show_and_revoke(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --json one object each; an id that is none, or of no grant, ends with status 3 and where they are listed."""
    monkeypatch.setenv("COLUMNS", "200")  # a table that must not depend on who runs the tests

    async def granted() -> str | None:
        async with access_store(database) as store, Pool(database.server_dsn) as pool:
            key, grants = parse_key(await make_key(store, "ada")), Grants(pool)
            program = await grants.register("Editor", ["https://app.example.com"], network="192.0.2.1")
            assert key is not None
            return await grants.grant(
                key, program, face="core", scopes=["read"], redirect_uri=program.redirect_uris[0], challenge="c" * 43
            )

    assert asyncio.run(granted()) is not None
    place = ("--dsn", database.dsn, "--json")
    (grant,) = call("grant", "list", *place).json["grants"]
    assert (grant["state"], grant["last_used_at"]) == ("waiting", None)
    assert "Editor" in call("grant", "list", "--dsn", database.dsn).out
    assert call("grant", "show", grant["grant_id"], *place).json == grant
    ended = call("grant", "revoke", grant["grant_id"], "--reason", "it is gone", *place).json
    assert (ended["state"], ended["ended_reason"][:14]) == ("ended", "revoked by cli")
    (revoked, *_) = call("audit", "--access", *place).json["access"]
    assert (revoked["action"], revoked["target"]) == ("grant.revoke", grant["grant_id"])
    assert (revoked["details"]["client"], revoked["details"]["reason"]) == ("Editor", "it is gone")
    for wrong in ("nothing", "6f1c0b52-5ae4-4c3b-9b5b-000000000000"):
        for verb in ("show", "revoke"):
            refused = call("grant", verb, wrong, "--dsn", database.dsn)
            assert refused.status == 3
            assert "grant list" in refused.err


async def test_what_becomes_of_grants_is_written_down(served: Served, store: AccessStore, database: Database) -> None:
    """Issued, exchanged, refreshed, revoked by the program, and shown twice: each once, with who and which."""
    text = await make_key(store, "ada")
    key, program = f"key:{text.split('_')[1]}", await client_id(served)
    client = f"client:{program}"
    issued = await tokens(served, program, text)
    again = (await refresh(served, program, issued["refresh_token"])).json()
    await served.client.post("/oauth/revoke", data={"token": again["access_token"], "client_id": program})
    code = await code_for(served, program, text)
    await exchange(served, program, code)
    await exchange(served, program, code)
    entries = await noted(database, "default")
    first, second = entries[0][2], entries[-1][2]
    assert first != second
    assert entries == [
        (key, "grant.issue", first, "ok"),
        (client, "grant.exchange", first, "ok"),
        (client, "grant.refresh", first, "ok"),
        (client, "grant.revoke", first, "ok"),
        (key, "grant.issue", second, "ok"),
        (client, "grant.exchange", second, "ok"),
        (client, "grant.misuse", second, "credential_invalid"),
    ]
    async with Pool(database.operator_dsn) as pool:
        everything = str(await journal.entries(pool, None, 100))
    for secret in (text, code, *(issued[name] for name in ("access_token", "refresh_token"))):
        assert secret not in everything
