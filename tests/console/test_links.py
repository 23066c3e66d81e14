"""Whatever a page links to opens, for whoever sees the link."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import AsyncIterator
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

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
from tests.support.postgres import Database

OF_ONE_SORT = 60 if SOAK else 1
"""Links that are followed of those that lead from one sort of page to one other; in `make check`, from any page."""

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


def _sort(address: str) -> tuple[str, ...]:
    """Return what a page is like: its path without ids, and which fields its address has."""
    parts = urlsplit(address)
    return _ID.sub("ID", parts.path), *sorted(parse_qs(parts.query))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: "-".join((*key[1], *key[2], *key[3])))
@pytest.mark.usefixtures("filled")
async def test_every_link_opens(
    browser: Browser,
    store: AccessStore,
    key: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]],
) -> None:
    """From the first page after signing in, no link leads to a refusal, be it of a key that may do all or little."""
    own, roles, faces, may_ask = key
    first = await browser.sign_in(await make_key(store, *own, roles=roles, faces=faces, may_ask=may_ask))
    assert first.status_code == 200, text_of(first.text)
    waiting = deque([(str(first.url), "sign-in")])
    if may_ask:
        waiting.append(("/console/ask?as=bob", "sign-in"))
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
            way = (() if CHECK else _sort(str(page.url)), _sort(link))
            if followed[way] < OF_ONE_SORT:
                followed[way] += 1
                seen.add(link)
                waiting.append((link, address))
    assert not refused, "\n".join(refused)
    assert len(seen) > (3 if "read" in roles else 0)
