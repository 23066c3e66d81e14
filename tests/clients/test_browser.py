"""A real browser, Debian's Chromium, at the page of consent: by keyboard alone, with scripts and without."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.http.listening import reserve_port
from tests.clients.conftest import Outside
from tests.clients.test_oauth import SCRIPT
from tests.server.wire import serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database
from tests.support.skips import not_here

BROWSER = (Path(__file__).parent / "node" / "browser.mjs").read_text()


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One visit of a page: what a person types and presses, and where the pictures of it go."""

    url: str
    key: str | None
    press: Literal["Allow", "Deny"]
    shot: str
    mistype: bool = False
    javascript: bool = True
    scheme: Literal["light", "dark"] = "light"
    width: int = 1280


@pytest.fixture
def chromium() -> str:
    """The browser's program, of Debian's package `chromium`."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (path := shutil.which(name)) is not None:
            return path
    return not_here("no Chromium (apt-get install chromium)")


async def visit(outside: Outside, chromium: str, *visits: Visit) -> list[dict[str, Any]]:
    """Make visits with one browser; return what was seen at each."""
    wanted = json.dumps([asdict(visit) for visit in visits])
    status, out, err = await outside.node("--input-type=module", "-", chromium, wanted, text=BROWSER)
    if status and "No usable sandbox" in err:
        not_here("Chromium finds no sandbox for this user")
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()]


async def test_a_person_allows_and_denies_by_keyboard(
    memory: Memory, database: Database, outside: Outside, chromium: str, tmp_path: Path
) -> None:
    """What a program asks for is on the page; a mistyped key is said; allowing and denying bring the answer back."""
    sock = reserve_port("127.0.0.1", 0)
    public_url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    settings = Settings(auth=AuthSettings(mode="keys", public_url=public_url, server=True))
    async with (
        access_store(database) as store,
        serving(memory, settings, sock=sock),
        outside.node_talking("--input-type=module", "--eval", SCRIPT, f"{public_url}/mcp", "2") as program,
    ):
        url = (await program.hear())["browse"]
        key = await make_key(store, "ada")
        shot = str(tmp_path / "wide")
        allowing = Visit(url=url, key=key, press="Allow", shot=shot, mistype=True)
        narrow = {"url": url, "width": 320, "scheme": "dark"}
        denying = Visit(**narrow, key=None, press="Deny", shot=str(tmp_path / "narrow"), mistype=True)
        plain = Visit(url=url, key=key, press="Allow", shot=str(tmp_path / "plain"), javascript=False)
        allowed, denied, without_scripts = await visit(outside, chromium, allowing, denying, plain)
        # The program got the code, and exchanged it: it has connected and called by now.
        assert "expire" in await program.hear()
    place = httpx.URL(url).params["redirect_uri"].removesuffix("/callback")
    for seen in (allowed, denied, without_scripts):
        for said in ("TypeScript Editor", f"{public_url}/mcp", place, "add events", "read"):
            assert said in seen["text"]
        assert seen["before"] is None, "whoever hears the page begins at its beginning"
        # Of the refused key's status the browser speaks too; of the page's policy, of a form or a picture it does not.
        assert [said for said in seen["complaints"] if "401 (Unauthorized)" not in said] == []
        places = {request.split()[1] for request in seen["requests"]}
        assert places == {public_url, place, place.replace("127.0.0.1", "localhost")}
        answer = httpx.URL(seen["end"]["url"]).params
        assert (answer["state"], answer["iss"]) == ("state-1", public_url)
        assert seen["end"]["text"] == "You can close this page."
        assert key not in json.dumps(seen)
    assert allowed["order"] == without_scripts["order"] == ["key", "Allow"]
    assert denied["order"] == ["key", "Allow", "Deny"]
    assert "code" in httpx.URL(allowed["end"]["url"]).params
    assert "code" in httpx.URL(without_scripts["end"]["url"]).params
    assert httpx.URL(denied["end"]["url"]).params["error"] == "access_denied"
    for seen in (allowed, denied):
        assert "This is no key" in seen["again"]["problem"]
        assert seen["again"]["before"] == "key"
        for page in (seen["first"], seen["again"]):
            assert page["violations"] == []
            assert page["passes"] > 10, "axe has looked at something"
            assert page["fits"], "nothing is cut off, and nobody scrolls sideways"
