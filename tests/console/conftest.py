"""The console over a real memory, as a browser without scripts reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from myria.settings import AuthSettings, ConsoleSettings, Settings
from tests.server.conftest import memory, served
from tests.server.wire import Served

__all__ = ["memory", "served"]

LOCAL = Settings(console=ConsoleSettings(enabled=True))
PUBLIC_URL = "http://127.0.0.1"
"""Over TLS alone, browsers would keep the cookie from this server."""

WITH_KEYS = Settings(console=ConsoleSettings(enabled=True), auth=AuthSettings(mode="keys"))


class _Elements(HTMLParser):
    """Collects the elements of a page: their names and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the elements of a page, each with its attributes."""
    parser = _Elements()
    parser.feed(page)
    return parser.found


def text_of(page: str) -> str:
    """Return what a page says, without its markup."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.partition("<body>")[2] or page)).split())


@dataclass
class Browser:
    """A browser without scripts: it keeps cookies, follows redirects, and sends a page's forms with what they hide."""

    client: httpx.AsyncClient

    async def get(self, path: str, **parameters: Any) -> httpx.Response:
        """Open a page."""
        return await self.client.get(path, params=parameters or None, follow_redirects=True)

    async def submit(
        self, page: httpx.Response, action: str, fields: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send the form of a page that goes to an address beginning with `action`."""
        form = page.text[page.text.index(f'action="{action}') :].partition("</form>")[0]
        address = unescape(form.split('"', 2)[1])
        hidden = {
            attributes["name"] or "": attributes.get("value") or ""
            for tag, attributes in elements(form)
            if tag == "input" and attributes.get("type") == "hidden"
        }
        origin = str(self.client.base_url).rstrip("/")
        return await self.client.post(
            address, data={**hidden, **(fields or {})}, headers={"origin": origin}, follow_redirects=True
        )

    async def sign_in(self, key: str) -> httpx.Response:
        """Sign in with a key."""
        return await self.submit(await self.get("/console/sign-in"), "/console/sign-in", {"key": key})


@pytest.fixture
def settings() -> Settings:
    """The console is on, and nobody is asked for a key."""
    return LOCAL


@pytest.fixture
def settings_with_grants() -> Settings:
    """Callers need a key, may sign in as often as they like, and programs may ask for a grant."""
    auth = AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True, sign_ins_per_minute=None)
    return Settings(console=ConsoleSettings(enabled=True), auth=auth)


@pytest.fixture
def browser(served: Served) -> Browser:
    """A browser at the server."""
    return Browser(served.client)
