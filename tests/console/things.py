"""What several tenants keep, whose each thing is, and browsers of keys with all roles: for tests of who sees what."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from myria.access.store import AccessStore
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.holding import Holding
from myria.notes.model import Changes
from tests.console.conftest import PUBLIC_URL, Browser
from tests.server.signing_in import client_id, tokens
from tests.server.wire import Served, event
from tests.support import builds
from tests.support.keys import make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

TENANTS = ("default", "one", "two", "three", "four")
PEOPLE = ("ada", "bob", "cy")
PAIRS = (("ada", "bob"), ("bob", "cy"), ("ada",), ("cy",))
STRANGER = "some_stranger"
"""Somebody of whom each tenant keeps one event, shared with nobody."""

ROLES = (
    ("read",),
    ("append",),
    ("read", "append"),
    ("read", "append", "admin"),
    ("read", "admin", "erase"),
    ("admin",),
)
FACES = ("core", "agent", "admin")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose something is: a tenant's, or of some people of it."""

    tenant: str
    people: tuple[str, ...] = ()


@dataclass
class Somebody:
    """One key's browser: whose it is and what it may."""

    tenant: str
    own: tuple[str, ...]
    roles: tuple[str, ...]
    browser: Browser
    key: str

    def sees(self, owner: Owner) -> bool:
        """Tell whether something is of this one's tenant, and of all of these people where it is of people."""
        return owner.tenant == self.tenant and (not owner.people or set(self.own) <= set(owner.people))

    async def form_token(self) -> str:
        """Return a form's token of this one's session."""
        page = await self.browser.client.get("/console/nowhere")
        assert page.status_code == 404, page.text
        return page.text.partition('name="form_token" value="')[2].partition('"')[0]


@dataclass
class Known:
    """What there is of all tenants, and whose, by its id."""

    events: dict[str, Owner] = field(default_factory=dict)
    notes: dict[str, Owner] = field(default_factory=dict)
    held: dict[str, Owner] = field(default_factory=dict)
    people: dict[str, Owner] = field(default_factory=dict)
    topics: dict[str, Owner] = field(default_factory=dict)
    snapshots: dict[str, Owner] = field(default_factory=dict)
    builds: dict[str, Owner] = field(default_factory=dict)
    keys: dict[str, Owner] = field(default_factory=dict)
    grants: dict[str, Owner] = field(default_factory=dict)
    erasures: dict[str, Owner] = field(default_factory=dict)


async def fill(memory: Memory, database: Database, tenants: Sequence[str] = TENANTS) -> Known:
    """Store a secret for each pair of people of each tenant, half of them built in; return what was made."""
    known = Known()
    notes = Notes(memory.log, content_characters=1_000, holding=Holding(kinds=frozenset({"decision"})))
    for tenant in tenants:
        await memory.log.append_events(tenant, [parse_event(event(participants=[STRANGER]), Limits())])
        for number, pair in enumerate(PAIRS):
            name = f"secret-{tenant}-{pair[0]}-{pair[-1]}"
            owner = Owner(tenant, pair)
            talk = [
                parse_event(
                    event(f"{name}{part}", text=f"the plan {part} is {name}", participants=list(pair), context_id=name),
                    Limits(),
                )
                for part in range(4)
            ]
            results = await memory.log.append_events(tenant, talk)
            known.events |= {result.event_id: owner for result in results}
            held = Draft(content=f"the held plan is {name}", kind="decision")
            kept = await notes.remember(tenant, tuple(sorted(pair)), held, contract="memento")
            known.held[kept.note_id] = owner
            known.notes |= dict.fromkeys(await _noted(notes, tenant, pair, name), owner)
            if number == 2:
                built = await builds.build(database, tenant=tenant)
                known.snapshots[built.snapshot_id or ""] = Owner(tenant)
                known.builds[built.build_id] = Owner(tenant)
        async with memory.database.read(tenant) as connection:
            rows = await connection.fetch(
                "SELECT topic_id, participants FROM myria.topics JOIN myria.scopes USING (tenant_id, scope_id)"
                " WHERE tenant_id = $1",
                tenant,
            )
        known.topics |= {row["topic_id"]: Owner(tenant, tuple(row["participants"])) for row in rows}
    return known


async def fill_more(served: Served, store: AccessStore, database: Database, known: Known) -> None:
    """Make keys, a grant and an erasure in each tenant of which something is known, and a snapshot that is held.

    The settings must be `settings_with_grants`.
    """
    client = await client_id(served)
    for tenant in {owner.tenant: None for owner in known.events.values()}:
        held = await builds.build(database, tenant=tenant, hold=True)
        known.snapshots[held.snapshot_id or ""] = Owner(tenant)
        known.builds[held.build_id] = Owner(tenant)
        for number in range(4):
            text = await make_key(store, "ada", tenant=tenant, name=f"victim {number}")
            known.keys[text.split("_")[1]] = Owner(tenant)
        await tokens(served, client, text, resource=f"{PUBLIC_URL}/mcp")
        known.grants |= {grant["grant_id"]: Owner(tenant) for grant in await store.grants(tenant)}
        browser = a_browser(served)
        await browser.sign_in(await make_key(store, "ada", tenant=tenant, roles=("append", "erase"), faces=FACES))
        page = await browser.get("/console/people/erase", name=STRANGER)
        done = await browser.submit(page, "/console/people/erase", {"confirmed": STRANGER, "reason": "x"})
        assert done.url.path.startswith("/console/erasures/"), done.text
        known.erasures[done.url.path.rpartition("/")[2]] = Owner(tenant)
        await browser.client.aclose()


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


async def all_kinds(
    served: Served, store: AccessStore, rng: random.Random, tenants: Sequence[str] = TENANTS
) -> list[Somebody]:
    """Sign in with keys of all tenants and roles, each of some of the people."""
    everybody: list[Somebody] = []
    for tenant in tenants:
        for roles in ROLES:
            own = rng.choice((("ada",), ("bob",), ("cy",), ("ada", "bob")))
            key = await make_key(store, *own, tenant=tenant, roles=roles, name=f"{tenant}{roles}", faces=FACES)
            everybody.append(Somebody(tenant, own, roles, a_browser(served), key))
            await everybody[-1].browser.sign_in(key)
    return everybody


def a_browser(served: Served) -> Browser:
    """Return a browser with cookies of its own. Its answers are not compressed: their length can be compared."""
    return Browser(
        httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S, headers={"accept-encoding": "identity"})
    )
