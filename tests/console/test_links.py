"""Whatever a page links to opens, for whoever sees the link."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import AsyncIterator
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, ConsoleSettings, ReviewSettings, Settings
from tests.console.conftest import Browser, elements, text_of
from tests.server.wire import MODERN, Served, call, headers
from tests.support import builds
from tests.support.counts import CHECK, SOAK
from tests.support.events import TENANT, conversation
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

OF_ONE_SORT = 60 if SOAK else 1
"""Links that are followed of those that lead from one sort of page to one other."""

_ID = re.compile(r"(evt|top|note|snap|bld|era)_[0-9A-Za-z]+|/keys/[0-9a-z]{8,}")

EVERY: tuple[str, ...] = ("read", "append", "admin", "erase")
KEYS = (
    (("ada",), EVERY, ("core", "agent", "admin"), ()),
    ((), EVERY, ("core", "agent", "admin"), ("*",)),
    (("ada",), ("read",), ("agent",), ()),
    (("ada",), ("read",), ("core",), ("b*",)),
    (("ada",), ("admin",), ("admin",), ()),
    (("ada",), ("erase",), ("admin",), ()),
)
"""Keys: their participants, roles, APIs, and patterns of those as whom they may ask."""


@pytest.fixture
def settings() -> Settings:
    """The console asks for keys, and some notes wait for a review."""
    return Settings(
        console=ConsoleSettings(enabled=True),
        auth=AuthSettings(mode="keys"),
        review=ReviewSettings(kinds=("decision",)),
    )


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """The keys."""
    async with access_store(database) as opened:
        yield opened


@pytest.fixture
async def filled(served: Served, memory: Memory, database: Database, store: AccessStore) -> None:
    """Keep a talk of several people and some notes; one is held, and one an agent keeps of somebody. Build twice."""
    keys = [
        await make_key(store, *own, roles=("read", "append"), faces=("agent",)) for own in (("ada",), ("ada", "desk"))
    ]
    await memory.log.append_events(TENANT, conversation(60, participants=("ada", "bob"), seed=1))
    await builds.build(database)
    for seed, people in ((2, ("ada", "bob", "cy")), (3, ("bob", "cy"))):
        await memory.log.append_events(TENANT, conversation(40, participants=people, seed=seed, start=100 * seed))

    async def use(tool: str, key: str, **arguments: Any) -> Any:
        sent = {**headers(tool, version=MODERN), "authorization": f"Bearer {key}"}
        made = await served.post(call(tool, arguments, version=MODERN), sent, path="/mcp/agent")
        assert not made.json()["result"].get("isError"), made.text
        return made.json()["result"]["structuredContent"]

    for number, kind in enumerate(("fact", "fact", "decision", "preference", "fact")):
        by = keys[number // 4]
        kept = await use("remember", by, content=f"The boiler is set to {number}0 degrees", type=kind, topic="boiler")
    rated = {"tool_name": "recall", "relevant": True, "sufficient": True, "suggestion": "more"}
    await use("tool_feedback", keys[1], fragment_ids=[kept["id"]], **rated)
    await builds.build(database)


def _path(address: str) -> str:
    """Return the path of a page without ids."""
    return _ID.sub("ID", urlsplit(address).path)


def _sort(address: str) -> tuple[str, ...]:
    """Return what a page is like: its path without ids, and which fields its address has."""
    return _path(address), *sorted(parse_qs(urlsplit(address).query))


def _way(page: str, link: str) -> tuple[object, ...]:
    """Return which links are of one sort: those from pages of one path, in a soak run with the same fields as well, to
    pages that are alike; in `make check`, from any page."""
    return () if CHECK else _sort(page) if SOAK else _path(page), _sort(link)


@pytest.mark.usefixtures("filled")
async def test_every_link_opens(served: Served, store: AccessStore) -> None:
    """From the first page after signing in, no link leads to a refusal, be it of a key that may do all or little."""
    for own, roles, faces, may_ask in KEYS:
        key = await make_key(store, *own, roles=roles, faces=faces, may_ask=may_ask)
        async with httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S, verify=False) as client:
            browser = Browser(client)
            first = await browser.sign_in(key)
            assert first.status_code == 200, text_of(first.text)
            refused, seen = await _follow(browser, str(first.url), *(["/console/ask?as=bob"] if may_ask else []))
        assert not refused, (roles, faces, may_ask, "\n".join(refused))
        assert len(seen) > (3 if "read" in roles else 0), (roles, faces, may_ask)


async def _follow(browser: Browser, *begin: str) -> tuple[list[str], set[str]]:
    """Follow the links from some pages on; return what was refused, and all that were followed."""
    waiting = deque((address, "sign-in") for address in begin)
    seen: set[str] = set()
    refused: list[str] = []
    followed: Counter[tuple[object, ...]] = Counter()
    while waiting:
        address, came_from = waiting.popleft()
        page = await browser.get(address)
        if page.status_code != 200:
            refused.append(f"{address} on {came_from}: {text_of(page.text)[-300:]}")
            continue
        if not page.headers["content-type"].startswith("text/html"):
            continue
        for tag, attributes in elements(page.text):
            link = unescape(attributes.get("href") or "")
            if tag != "a" or not link.startswith("/console/") or link in seen:
                continue
            way = _way(str(page.url), link)
            if followed[way] < OF_ONE_SORT:
                followed[way] += 1
                seen.add(link)
                waiting.append((link, address))
    return refused, seen
