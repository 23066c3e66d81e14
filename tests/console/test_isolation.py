"""Whoever asks for whatever page: nobody is shown what their key may not see, and no page breaks."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import pytest

from myria.memory import Memory
from myria.settings import Settings
from tests.console.conftest import WITH_KEYS
from tests.console.things import PEOPLE, TENANTS, Known, Somebody, all_kinds, fill
from tests.server.wire import Served
from tests.support.counts import SOAK, share
from tests.support.keys import access_store
from tests.support.postgres import Database

REQUESTS = share(2_000)
SOME = TENANTS if SOAK else TENANTS[:3]
SECRET = re.compile(r"secret-([a-z]+)-([a-z]+)-([a-z]+)")
PAGES = (
    "",
    "/",
    "/sign-in",
    "/sign-in/with/x",
    "/signed-in/x",
    "/static/console.css",
    "/ask",
    "/events/{event}",
    "/events/{event}/payload.json",
    "/events/{event}/forget",
    "/topics",
    "/topics/{topic}",
    "/notes",
    "/notes/{note}",
    "/notes/{held}",
    "/notes/new",
    "/notes/{note}/correct",
    "/notes/{note}/forget",
    "/people",
    "/people/one",
    "/people/export",
    "/people/erase",
    "/erasures/era_x",
    "/changes",
    "/changes/diff",
    "/changes/builds/{build}",
    "/changes/{act}",
    "/review",
    "/operations",
    "/settings",
    "/audit",
    "/audit.jsonl",
    "/keys",
    "/keys/new",
    "/keys/grants",
    "/keys/grants/x",
    "/keys/abcdef/revoke",
    "/keys/abcdef/rotate",
    "/nowhere",
)
"""The addresses below the console's; `{name}` stands for one of what there is, of all tenants."""

ACTS = ("build", "abort", "publish", "discard", "rollback", "resume", "x")


@pytest.fixture
def settings() -> Settings:
    """Callers need a key."""
    return WITH_KEYS


def _address(rng: random.Random, known: Known) -> str:
    """Return the address of a random page, about somebody else's things as often as not."""
    anybody = rng.choice((*PEOPLE, "nobody", "", "ada,bob", "*"))
    parameters = {
        "as": anybody,
        "q": rng.choice(("plan", "secret", "", "who?", f"secret-{rng.choice(TENANTS)}-ada-bob", "\u202e<b>")),
        "view": rng.choice(("best", "topics", "text", "time", "subject", "timeline", "x")),
        "why": rng.choice(("on", "")),
        "expected": rng.choice((*known.events, "")),
        "context": rng.choice(("", f"secret-{rng.choice(TENANTS)}-ada-bob")),
        "name": rng.choice(PEOPLE),
        "from": rng.choice((*known.snapshots, "1", "2020-01-01", "")),
        "to": rng.choice((*known.snapshots, "active")),
        "snapshot": rng.choice([*known.snapshots]),
        "before": rng.choice([*known.builds]),
        "build": rng.choice([*known.builds]),
        "after": rng.choice(("", "0", "ada", "-1", "9" * 30)),
    }
    chosen = rng.sample(sorted(parameters), rng.randrange(1, 7))
    query = "&".join(f"{name}={quote(parameters[name])}" for name in chosen)
    path = rng.choice(PAGES).format(
        event=rng.choice([*known.events]),
        topic=rng.choice([*known.topics]),
        note=rng.choice([*known.notes]),
        held=rng.choice([*known.held]),
        build=rng.choice([*known.builds]),
        act=rng.choice(ACTS),
    )
    return f"/console{path}?{query}"


async def test_nobody_is_shown_what_their_key_may_not_see(served: Served, database: Database, memory: Memory) -> None:
    """Random pages by keys of several tenants and all roles show only events of the key's own tenant and people."""
    rng = random.Random(46)
    async with access_store(database, *SOME) as store:
        known = await fill(memory, database, SOME)
        everybody = await all_kinds(served, store, rng, SOME)

    async def ask(somebody: Somebody, address: str, *, is_part: bool) -> None:
        sent = {"hx-request": "true", "hx-target": "answer"} if is_part else {}
        page = await somebody.browser.client.get(address, headers=sent)
        assert page.status_code < 500, (address, page.text)
        assert not foreign_secrets(page.text, somebody, address, held=known.held), (somebody, address)

    requests = [(rng.choice(everybody), _address(rng, known), rng.random() < 0.2) for _ in range(REQUESTS)]
    for start in range(0, REQUESTS, 10):
        await asyncio.gather(
            *(ask(who, address, is_part=is_part) for who, address, is_part in requests[start : start + 10])
        )
    shown = 0
    for somebody in everybody:
        page = await somebody.browser.get("/console/ask", q="plan")
        seen: list[Any] = SECRET.findall(page.text)
        shown += len(seen)
        assert bool(seen) == ("read" in somebody.roles)
        await somebody.browser.client.aclose()
    assert shown


def foreign_secrets(page: str, somebody: Somebody, asked_for: str, held: Iterable[str] = ()) -> set[str]:
    """Return the secrets on a page that somebody may not see there; a page repeats what it was asked for.

    Args:
        held: the ids of notes under review.
    """
    found = set()
    is_of_review = "/console/review" in asked_for or any(f"/notes/{note}?" in asked_for for note in held)
    for tenant, first, last in SECRET.findall(page):
        name = f"secret-{tenant}-{first}-{last}"
        is_own = tenant == somebody.tenant
        may_see = is_own and set(somebody.own) <= {first, last} and "read" in somebody.roles
        may_diff = is_own and "admin" in somebody.roles and "/changes/diff" in asked_for
        may_erase = is_own and "erase" in somebody.roles and "/people/erase" in asked_for
        may_review = is_own and {"admin", "read"} <= {*somebody.roles} and is_of_review
        if name not in asked_for and not (may_see or may_diff or may_erase or may_review):
            found.add(name)
    return found
