"""A real browser signs in to the console through an issuer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, ConsoleSettings, Settings
from myria_server.http.listening import reserve_port
from tests.clients.conftest import Outside
from tests.clients.test_console import chromium
from tests.server.wire import Served, serving
from tests.support.login import Login
from tests.support.skips import not_here

__all__ = ["chromium"]

BROWSER = (Path(__file__).parent / "node" / "console_issuer.mjs").read_text()


@pytest.fixture
def login() -> Iterator[Login]:
    """An issuer that asks who is there."""
    with Login() as running:
        running.ways.asks = True
        yield running


@pytest.fixture
async def served(memory: Memory, store: AccessStore, login: Login, tmp_path: Path) -> AsyncIterator[Served]:
    """A server at whose console one signs in there."""
    del store
    entry = {
        "name": "login",
        "issuer": login.url,
        "algorithms": ["RS256"],
        "tenant": {"always": ["default"]},
        "participants": {"claim": "sub", "prefix": "user:"},
        "roles": {"always": ["read"]},
        "console": {"client_id": "console", "scopes": ["openid"]},
    }
    path = tmp_path / "issuers.json"
    path.write_text(json.dumps({"issuers": [entry]}))
    sock = reserve_port("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    auth = AuthSettings(mode="keys", public_url=url, issuers_file=str(path))
    async with serving(memory, Settings(console=ConsoleSettings(enabled=True), auth=auth), sock=sock) as one:
        yield one


async def test_a_person_signs_in_by_clicks_and_comes_back(outside: Outside, chromium: str, served: Served) -> None:
    """The cookies survive the way there and back, the policy of the pages stops nothing, and no script reads them."""
    url = str(served.client.base_url).rstrip("/")
    wanted = json.dumps({"url": url, "path": "/console/people?q=a"})
    status, out, err = await outside.node("--input-type=module", "-", chromium, wanted, text=BROWSER)
    if status and "No usable sandbox" in err:
        not_here("Chromium finds no sandbox for this user")
    assert status == 0, err
    seen = json.loads(out)
    assert seen["place"] == "/console/people?q=a"
    assert "token:login:ada" in seen["who"]
    assert [cookie["name"] for cookie in seen["cookies"]] == ["myria_console"]  # that of the sign-in is gone
    assert all(cookie["httpOnly"] and cookie["sameSite"] == "Lax" for cookie in seen["cookies"])
    assert not seen["complaints"], seen
    assert not seen["violations"], seen
