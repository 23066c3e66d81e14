"""Whoever asks for whatever page: nobody is shown what their key may not see, and no page breaks."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from myria.access.store import AccessStore
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.holding import Holding
from myria.notes.model import Changes
from myria.settings import Settings
from tests.console.conftest import WITH_KEYS, Browser
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.counts import share
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

TENANTS = ("default", "one", "two", "three", "four")
PEOPLE = ("ada", "bob", "cy")
ROLES = (
    ("read",),
    ("append",),
    ("read", "append"),
    ("read", "append", "admin"),
    ("read", "admin", "erase"),
    ("admin",),
)
FACES = ("core", "agent", "admin")
REQUESTS = share(2_000)
SECRET = re.compile(r"secret-([a-z]+)-([a-z]+)-([a-z]+)")
PAGES = (
    "",
    "/",
    "/sign-in",
    "/sign-in/with/x",
    "/signed-in",
    "/static/console.css",
    "/ask",
    "/events/{event}",
    "/events/{event}/forget",
    "/topics",
    "/topics/{topic}",
    "/notes",
    "/notes/{note}",
    "/notes/{note}/forget",
    "/people",
    "/people/one",
    "/people/export",
    "/people/erase",
    "/erasures/era_x",
    "/changes",
    "/changes/diff",
    "/changes/builds",
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

ACTS = ("build", "publish", "discard", "rollback", "resume", "x")


@pytest.fixture
def settings() -> Settings:
    """Callers need a key."""
    return WITH_KEYS


@dataclass
class Somebody:
    """One key's browser: whose it is and what it may."""

    tenant: str
    own: tuple[str, ...]
    roles: tuple[str, ...]
    browser: Browser
    session: str = ""


@dataclass
class Known:
    """What there is to ask for, of all tenants."""

    events: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    builds: list[str] = field(default_factory=list)


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """The keys of five tenants."""
    async with access_store(database, *TENANTS[1:]) as opened:
        yield opened


async def _fill(memory: Memory, database: Database) -> Known:
    """Store a secret for each pair of people of each tenant, half of them built in; return what was made."""
    known = Known()
    notes = Notes(memory.log, content_characters=1_000, holding=Holding(kinds=frozenset({"decision"})))
    for tenant in TENANTS:
        for number, pair in enumerate((("ada", "bob"), ("bob", "cy"), ("ada",), ("cy",))):
            name = f"secret-{tenant}-{pair[0]}-{pair[-1]}"
            talk = [
                parse_event(
                    event(f"{name}{part}", text=f"the plan {part} is {name}", participants=list(pair), context_id=name),
                    Limits(),
                )
                for part in range(4)
            ]
            results = await memory.log.append_events(tenant, talk)
            known.events += [result.event_id for result in results]
            held = Draft(content=f"the held plan is {name}", kind="decision")
            await notes.remember(tenant, tuple(sorted(pair)), held, contract="memento")
            known.notes += await _noted(notes, tenant, pair, name)
            if number == 2:
                built = await builds.build(database, tenant=tenant)
                known.snapshots.append(built.snapshot_id or "")
                known.builds.append(built.build_id)
        rows = await _topics(memory, tenant)
        known.topics += rows
    return known


async def _noted(notes: Notes, tenant: str, pair: tuple[str, ...], name: str) -> list[str]:
    """Keep a note in place of another one, and amend it; return the ids of both."""
    everybody = tuple(sorted(set(pair)))
    older = Draft(content=f"the old plan is {name}", kind="fact")
    kept = await notes.remember(tenant, everybody, older, contract="memento")
    newer = await notes.remember(
        tenant,
        everybody,
        Draft(content=f"the plan is {name}", kind="fact"),
        contract="memento",
        supersedes=[kept.note_id],
        may_see=Masks.containing(everybody).sees,
    )
    await notes.amend(
        tenant,
        newer.note_id,
        Changes(content=f"the plan is now {name}"),
        may_see=Masks.containing(everybody).sees,
        contract="memento",
    )
    return [kept.note_id, newer.note_id]


async def _topics(memory: Memory, tenant: str) -> list[str]:
    async with memory.database.read(tenant) as connection:
        rows = await connection.fetch("SELECT topic_id FROM myria.topics WHERE tenant_id = $1", tenant)
    return [row["topic_id"] for row in rows]


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
        "snapshot": rng.choice(known.snapshots),
        "before": rng.choice(known.builds),
        "after": rng.choice(("", "0", "ada", "-1", "9" * 30)),
    }
    chosen = rng.sample(sorted(parameters), rng.randrange(1, 7))
    query = "&".join(f"{name}={quote(parameters[name])}" for name in chosen)
    path = rng.choice(PAGES).format(
        event=rng.choice(known.events),
        topic=rng.choice(known.topics),
        note=rng.choice(known.notes),
        build=rng.choice(known.builds),
        act=rng.choice(ACTS),
    )
    return f"/console{path}?{query}"


async def test_nobody_is_shown_what_their_key_may_not_see(
    served: Served, database: Database, memory: Memory, store: AccessStore
) -> None:
    """Random pages by keys of five tenants and all roles show only events of the key's own tenant and people."""
    known = await _fill(memory, database)
    rng = random.Random(46)
    everybody: list[Somebody] = []
    for tenant in TENANTS:
        for roles in ROLES:
            own = rng.choice((("ada",), ("bob",), ("cy",), ("ada", "bob")))
            browser = Browser(httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S))
            await browser.sign_in(
                await make_key(store, *own, tenant=tenant, roles=roles, name=f"{tenant}{roles}", faces=FACES)
            )
            everybody.append(Somebody(tenant, own, roles, browser))

    async def ask(somebody: Somebody, address: str, *, is_part: bool) -> None:
        sent = {"hx-request": "true", "hx-target": "answer"} if is_part else {}
        page = await somebody.browser.client.get(address, headers=sent)
        assert page.status_code < 500, (address, page.text)
        asked_for = address  # the page repeats what it was asked for
        for tenant, first, last in SECRET.findall(page.text):
            if f"secret-{tenant}-{first}-{last}" in asked_for:
                continue
            may_see = tenant == somebody.tenant and set(somebody.own) <= {first, last} and "read" in somebody.roles
            may_diff = tenant == somebody.tenant and "admin" in somebody.roles and "/changes/diff" in address
            may_erase = tenant == somebody.tenant and "erase" in somebody.roles and "/people/erase" in address
            is_reviewer = {"admin", "read"} <= {*somebody.roles}
            may_review = tenant == somebody.tenant and is_reviewer and "/console/review" in address
            assert may_see or may_diff or may_erase or may_review, (somebody, address)

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
        assert bool(seen) == ("read" in somebody.roles and somebody.own != ("none",))
        await somebody.browser.client.aclose()
    assert shown
