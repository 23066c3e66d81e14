"""Whoever sends whatever form about whatever there is: nothing happens outside what the sender's key may do."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import asyncpg
import httpx
import pytest

from myria.memory import Memory
from myria.settings import Settings
from tests.console.conftest import elements
from tests.console.forms import FORMS, fields, watching
from tests.console.test_isolation import foreign_secrets
from tests.console.things import PAIRS, PEOPLE, TENANTS, Known, Owner, Somebody, all_kinds, fill, fill_more
from tests.server.wire import Served
from tests.support.counts import SOAK, share
from tests.support.keys import access_store
from tests.support.postgres import Database

SENT = share(200, least=50)
SEEDS = (47, *(range(48, 57) if SOAK else ()))
SOME = TENANTS[:3]


@pytest.fixture
def settings(settings_with_grants: Settings) -> Settings:
    """Callers need a key; programs may ask for a grant."""
    return settings_with_grants


async def hidden_in(somebody: Somebody, path: str) -> dict[str, str]:
    """Return what the forms of a page hide: how many events it counted, and what it has seen of the snapshots."""
    page = await somebody.browser.client.get(path)
    return {
        attributes["name"] or "": attributes.get("value") or ""
        for tag, attributes in elements(page.text)
        if tag == "input" and attributes.get("type") == "hidden" and attributes.get("name") != "form_token"
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form, filled in; `may`: its sender may do what it asks for, as far as keys and owners say."""

    sender: Somebody
    template: str
    address: str
    fields: Mapping[str, str]
    may: bool

    async def send(self) -> httpx.Response:
        """Send it as a browser does."""
        client = self.sender.browser.client
        return await client.post(self.address, data=self.fields, headers={"origin": str(client.base_url).rstrip("/")})


class Forms:
    """Fills in random forms about things of anybody."""

    def __init__(self, rng: random.Random, known: Known, everybody: list[Somebody]) -> None:
        self._rng = rng
        self._known = known
        self._everybody = everybody

    async def fill_in(self) -> Form:
        """Fill in a form, as somebody who opened its page first; half of them honestly, about things of one's own."""
        rng, known = self._rng, self._known
        template, is_honest = rng.choice([*FORMS]), rng.random() < 0.5
        with_role = [one for one in self._everybody if FORMS[template] in (None, *one.roles)]
        somebody = rng.choice(with_role if is_honest else self._everybody)

        def one_of(owners: Mapping[str, Owner]) -> str:
            """Return something of the sender's own, or of anybody's."""
            own = [name for name, owner in owners.items() if somebody.sees(owner)]
            return rng.choice(own if own and is_honest else [*owners])

        things = {
            "event": one_of(known.events),
            "note": one_of({**known.notes, **known.held}),
            "snapshot": one_of(known.snapshots),
            "build": one_of(known.builds),
            "key": one_of(known.keys),
            "grant": one_of(known.grants),
            "erasure": one_of(known.erasures),
            "name": rng.choice(PEOPLE),
        }
        query = (
            {name: things[name] for name in ("snapshot", "build")}
            if is_honest
            else rng.choice(({}, {"as": rng.choice(PEOPLE)}))
        )
        path = "/console" + template.format_map(things)
        address = f"{path}{'&' if '?' in path else '?'}{urlencode(query)}"
        token, is_right = await somebody.form_token(), is_honest or rng.random() < 0.5
        if not is_right:
            other = await rng.choice([one for one in self._everybody if one is not somebody]).form_token()
            token = rng.choice((other, token[:-1], token[:24] + other[24:], secrets.token_hex(44), ""))
        form = {
            **fields(things),
            **await hidden_in(somebody, address),
            "form_token": token,
            "snapshot": things["snapshot"],
            "build": things["build"],
            "decision": rng.choice(("approve", "refuse", "hold", "x")),
            "own": "\n".join(somebody.own if is_honest else rng.choice(PAIRS)),
            "force": "on",
            **{f"pick_{note}": "on" for note in rng.sample([*known.held], 3)},
        }
        if rng.random() < 0.5:
            del form["note"]
        return Form(
            sender=somebody,
            template=template,
            address=address,
            fields=form,
            may=is_right and self._may(somebody, template, things, form),
        )

    def _may(self, somebody: Somebody, template: str, things: dict[str, str], form: dict[str, str]) -> bool:
        """Tell whether somebody may do what a form with a token of its session asks for."""
        role, known = FORMS[template], self._known
        if role is not None and role not in somebody.roles:
            return False
        match template.split("/")[1:]:
            case ["events", *_]:
                return somebody.sees(known.events[things["event"]])
            case ["notes", "{note}", _]:
                return somebody.sees({**known.notes, **known.held}[things["note"]])
            case ["notes", "restore"]:
                return "note" in form and somebody.sees({**known.notes, **known.held}[form["note"]])
            case ["review", _]:
                picked = [form["note"]] if "note" in form else [name[5:] for name in form if name.startswith("pick_")]
                return any({**known.notes, **known.held}[note].tenant == somebody.tenant for note in picked)
            case ["keys", "{key}", _]:
                return somebody.sees(known.keys[things["key"]])
            case ["keys", "grants", _]:
                return somebody.sees(known.grants[things["grant"]])
            case ["erasures", *_]:
                return somebody.sees(known.erasures[things["erasure"]])
            case ["changes", "publish" | "discard" | "rollback"]:
                return somebody.sees(known.snapshots[form["snapshot"]])
            case ["changes", "abort"]:
                return somebody.sees(known.builds[form["build"]])
        return True


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_form_does_more_than_its_sender_may(
    served: Served, database: Database, memory: Memory, seed: int
) -> None:
    """Random forms about things of anybody, with tokens right and wrong, by keys of three tenants and all roles: what
    changes is the sender's own, and where the sender may not, nothing."""
    rng = random.Random(seed)
    async with access_store(database, *SOME) as store:
        known = await fill(memory, database, SOME)
        await fill_more(served, store, database, known)
        everybody = await all_kinds(served, store, rng, SOME)
    forms = Forms(rng, known, everybody)
    acted = set()
    async with watching(database) as digests:
        before = await digests()
        for _ in range(SENT):
            form = await forms.fill_in()
            answer = await form.send()
            after = await digests()
            what = (form, answer.status_code, answer.text)
            assert answer.status_code < 500, what
            assert not foreign_secrets(answer.text, form.sender, form.address), what
            changed = {place for place in {*before, *after} if before.get(place) != after.get(place)}
            assert form.may or not changed, (changed, what)
            # A page lists the notes about which nothing was decided, each with the reason.
            assert form.may or answer.is_error or form.template == "/review/decide", what
            for table, tenant, people in changed:
                assert tenant in ("", form.sender.tenant), (table, what)
                if people and FORMS[form.template] == "append":
                    assert set(form.sender.own) <= set(people.split()), (table, people, what)
            if changed:
                acted.add(form.template)
            before = after
            if form.template == "/sign-out" and form.may:
                await form.sender.browser.sign_in(form.sender.key)
                before = await digests()
    assert len(acted) >= len(FORMS) / 3, acted
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        strangers = await connection.fetch(
            "SELECT l.* FROM myria.access_log l JOIN myria.keys k ON l.actor = 'key:' || k.key_id"
            " WHERE l.tenant_id <> k.tenant_id"
        )
        assert not strangers
    finally:
        await connection.close()
    for somebody in everybody:
        await somebody.browser.client.aclose()
