"""A real browser at the pages of keys, signed in as an administrator."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from myria.access.store import AccessStore
from myria.settings import AuthSettings, ConsoleSettings, Settings
from tests.clients.conftest import Outside
from tests.clients.test_console import LONG, WAYS, chromium, look
from tests.server.wire import Served
from tests.support.keys import make_key

__all__ = ["chromium"]


@pytest.fixture
def settings() -> Settings:
    """The console is on, and asks for a key."""
    return Settings(console=ConsoleSettings(enabled=True), auth=AuthSettings(mode="keys"))


async def test_the_pages_of_keys_are_accessible_and_whole(
    outside: Outside, chromium: str, served: Served, store: AccessStore
) -> None:
    """No page breaks a rule of WCAG 2.2 AA, its own policy or its width, also the one that shows a new key."""
    admin = {"roles": ("append", "read", "admin"), "faces": ("core", "admin")}
    key = await make_key(store, "root", name="the administrator", **admin)
    other = await make_key(store, "user:7", name=LONG[:100], roles=("read",))
    path = f"/console/keys/{other.split('_')[1]}"
    paths = ["/console/keys", "/console/keys/new", "/console/keys/grants", f"{path}/revoke", f"{path}/rotate"]
    act = {"path": "/console/keys/new", "fields": {"name": "a robot"}, "press": "main button.main"}
    url = str(served.client.base_url).rstrip("/")
    wanted = {"url": url, "paths": paths, "acts": [act], "ways": [asdict(way) for way in WAYS], "key": key}
    looks = await look(outside, chromium, wanted)
    assert len(looks) == (len(paths) + 1) * len(WAYS)
    for seen in looks:
        assert not seen["complaints"], seen
        assert not seen.get("violations"), seen
        assert seen["fits"] is not False, seen
    assert sum(seen["title"] == "Key made · Myria" for seen in looks) == len(WAYS)
    assert len(await store.keys("default")) == 2 + len(WAYS)
