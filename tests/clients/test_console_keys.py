"""A real browser at the pages of keys, signed in as an administrator."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from myria.access.store import AccessStore
from myria.settings import AuthSettings, ConsoleSettings, Settings
from tests.clients.conftest import Outside
from tests.clients.test_console import LONG, WAYS, chromium, in_each_way, look
from tests.clients.test_console_acts import hands
from tests.server.signing_in import client_id, tokens
from tests.server.wire import Served
from tests.support.counts import SOAK
from tests.support.keys import make_key

__all__ = ["chromium"]

PUBLIC_URL = "http://127.0.0.1"  # over TLS alone, browsers would keep the cookie from this server
PAGES = (
    "/keys",
    "/keys/new",
    "/keys/{key}/revoke",
    "/keys/{key}/rotate",
    "/keys/grants",
    "/keys/grants/{grant}",
    "/audit",
)
"""The address of each page of keys below the console's; `{name}` stands for what the test keeps."""


@pytest.fixture
def settings() -> Settings:
    """The console is on, and asks for a key; programs may ask for a grant."""
    auth = AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True)
    return Settings(console=ConsoleSettings(enabled=True), auth=auth)


@pytest.mark.soak
async def test_the_pages_of_keys_are_accessible_and_whole(
    outside: Outside, chromium: str, served: Served, store: AccessStore
) -> None:
    """No page breaks a rule of WCAG 2.2 AA, its own policy or its width, also the one that shows a new key."""
    admin = {"roles": ("append", "read", "admin"), "faces": ("core", "admin")}
    key = await make_key(store, "root", name="the administrator", **admin)
    other = await make_key(store, "user:7", name=LONG[:100], roles=("read",))
    await tokens(served, await client_id(served), other, resource=f"{PUBLIC_URL}/mcp")
    (grant,) = await store.grants("default")
    paths = ["/console" + page.format(key=other.split("_")[1], grant=grant["grant_id"]) for page in PAGES]
    act = {"path": "/console/keys/new", "press": "main button.main"}
    url = str(served.client.base_url).rstrip("/")
    many = await make_key(store, "root", **admin, may_ask=("*",))
    as_many = {"paths": ["/console/ask"], "key": many}
    ways = [
        {**way, "acts": [{**act, "fields": {"name": f"robot {number}"}}]}
        for number, way in enumerate(in_each_way(paths))
    ]
    others = [{**asdict(way), **as_many} for way in (WAYS if SOAK else WAYS[:1])]
    wanted = {"url": url, "paths": paths, "ways": [*ways, *others], "key": key}
    looks = await look(outside, chromium, wanted)
    assert len(looks) == sum(len(way["paths"]) + 1 for way in ways) + len(others)
    for seen in looks:
        assert not seen["complaints"], seen
        assert not seen.get("violations"), seen
        assert seen["fits"] is not False, seen
    assert sum(seen["title"] == "Key made · Myria" for seen in looks) == len(WAYS)
    assert len(await store.keys("default")) == 3 + len(WAYS)


@pytest.mark.soak
@pytest.mark.parametrize("scripts", [True, *([False] if SOAK else [])])
async def test_a_key_is_made_and_revoked_by_keyboard(
    outside: Outside, chromium: str, served: Served, store: AccessStore, scripts: bool
) -> None:
    """Somebody signs in, makes a key, replaces it, and revokes the new one."""
    key = await make_key(store, "root", name="mine", roles=("read", "admin"), faces=("core", "admin"))
    (person_key,) = await store.keys("default")
    async with hands(outside, chromium, served, scripts=scripts) as person:
        await person.open("/console/operations")
        await person.write("#key", key)
        await person.go("main button.main", "What it uses, and may")
        await person.go("main a[href$='/console/keys']", "(yours)")
        await person.go("main a[href$='/console/keys/new']", "Make a key")
        await person.write("#name", "a robot")
        await person.go("main button.main", "shown this once")
        (robot,) = [found for found in await store.keys("default") if found["name"] == "a robot"]
        assert (robot["roles"], robot["faces"], robot["as"]) == (["read"], ["core"], ["root"])
        await person.open("/console/keys")
        await person.go(f"main a[href$='/{robot['key_id']}/rotate']", "Replace the key")
        await person.go("main button.main", "Key replaced")
        if scripts:
            await person.do("to", "[data-copies]")
            await person.do("press", "Enter")
            await person.do("sees", "Copied")
        await person.open("/console/keys")
        known = {robot["key_id"], person_key["key_id"]}
        (new,) = [found for found in await store.keys("default") if found["key_id"] not in known]
        await person.go(f"main a[href$='/{new['key_id']}/revoke']", "Nobody can use the key again")
        await person.write("#reason", "lost")
        await person.go("main button.danger", "Revoked.")
        assert person.path == "/console/keys"
    states = {found["key_id"]: found["state"] for found in await store.keys("default")}
    assert states[robot["key_id"]] == "expired"  # replaced keys end at once unless somebody chooses otherwise
    assert states[new["key_id"]] == "revoked"
    assert sorted(states.values()) == ["active", "expired", "revoked"]
