"""An id of something that a visitor may not see answers exactly as one of nothing: nobody learns that it exists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.finding import anybody
from myria.settings import Settings
from tests.console.things import FACES, STRANGER, Known, Owner, Somebody, a_browser, fill, fill_more
from tests.server.wire import Served
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

MINE, OTHERS = "default", "one"
ALL = ("read", "append", "admin", "erase")
OPENED = {
    "/events/{id}": "events",
    "/events/{id}/payload.json": "events",
    "/events/{id}/forget": "events",
    "/ask?q=plan&expected={id}": "events",
    "/ask?q=plan&view=topics&expected={id}": "events",
    "/ask?q=plan&view=text&expected={id}": "events",
    "/ask?expected={id}&q=plan": "notes",
    "/topics/{id}": "topics",
    "/topics/{id}?cursor=x": "topics",
    "/notes/{id}": "notes",
    "/notes/{id}/correct": "notes",
    "/notes/{id}/forget": "notes",
    "/people/one?name={id}": "people",
    "/people/export?name={id}": "people",
    "/erasures/{id}": "erasures",
    "/changes/rollback?snapshot={id}": "snapshots",
    "/changes/publish?snapshot={id}": "snapshots",
    "/changes/diff?from={id}&to=active": "snapshots",
    "/changes/diff?from=active&to={id}": "snapshots",
    "/changes/builds/{id}": "builds",
    "/changes/abort?build={id}": "builds",
    "/changes?before={id}": "builds",
    "/keys?before={id}": "keys",
    "/keys/{id}/revoke": "keys",
    "/keys/{id}/rotate": "keys",
    "/keys/grants?before={id}": "grants",
    "/keys/grants/{id}": "grants",
}
"""Addresses below the console's that name something, and of what kind it is."""

SENT: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "/events/{id}/forget": ("events", {}),
    "/events/{id}/restore": ("events", {}),
    "/notes/{id}/correct": ("notes", {"content": "otherwise"}),
    "/notes/{id}/correct?done": ("notes", {"content": "otherwise", "version": "1", "confirmed": "on"}),
    "/notes/{id}/forget": ("notes", {"force": "on"}),
    "/notes/restore": ("notes", {"note": "{id}"}),
    "/notes/restore?event": ("events", {"note": "{id}"}),
    "/review/decide": ("held", {"note": "{id}", "decision": "approve"}),
    "/review/decide?many": ("held", {"pick_{id}": "on", "decision": "hold"}),
    "/changes/abort": ("builds", {"build": "{id}"}),
    "/changes/publish": ("snapshots", {"snapshot": "{id}"}),
    "/changes/discard": ("snapshots", {"snapshot": "{id}"}),
    "/changes/rollback": ("snapshots", {"snapshot": "{id}"}),
    "/keys/{id}/revoke": ("keys", {}),
    "/keys/{id}/rotate": ("keys", {"overlap": "at once"}),
    "/keys/grants/{id}": ("grants", {}),
    "/erasures/{id}/receipt": ("erasures", {}),
}
"""Where forms go that name something, its kind, and their fields."""

TOKEN = re.compile(r"\b[0-9a-f]{88}\b")


def made_up(name: str) -> str:
    """Return a name of the same form that nothing has."""
    shifted = str.maketrans("0123456789abcdefghijklmnopqrstuvwxyz", "123456789abcdef0hijklmnopqrstuvwxyzg")
    return name[:-6] + name[-6:].translate(shifted)


def seen(answer: httpx.Response, name: str) -> tuple[Any, ...]:
    """Return all that a browser gets to see, but for what it asked about and for tokens of forms."""
    headers = {field: value.replace(name, "ID") for field, value in answer.headers.items() if field != "date"}
    return answer.status_code, headers, TOKEN.sub("TOKEN", answer.text.replace(name, "ID"))


@pytest.fixture
def settings(settings_with_grants: Settings) -> Settings:
    """Callers need a key; programs may ask for a grant."""
    return settings_with_grants


@pytest.fixture
async def known(served: Served, memory: Memory, database: Database) -> Known:
    """What two tenants keep; of each owner one event is forgotten, and the note that was kept last."""
    async with access_store(database, MINE, OTHERS) as store:
        known = await fill(memory, database, (MINE, OTHERS))
        notes = Notes(memory.log, content_characters=1_000)
        for owner, event_id in {owner: event_id for event_id, owner in reversed(known.events.items())}.items():
            await memory.withdrawals.withdraw(owner.tenant, [event_id], "forgotten", may_see=anybody)
        for owner, note_id in {owner: note_id for note_id, owner in known.notes.items()}.items():
            await notes.forget(owner.tenant, note_id, may_see=anybody, force=True)
        await fill_more(served, store, database, known)
    known.people = {STRANGER: Owner(MINE, (STRANGER,))}
    return known


async def test_what_one_may_not_see_answers_as_what_is_not_there(
    served: Served, database: Database, known: Known
) -> None:
    """Pages and forms about things of another tenant, or of other people, differ in nothing from those about nothing:
    status, headers, length and text, also where it is asked why something is not in an answer."""
    async with access_store(database, MINE) as store:
        key = await make_key(store, "ada", tenant=MINE, roles=ALL, faces=FACES)
    somebody = Somebody(MINE, ("ada",), ALL, a_browser(served), key)
    client = somebody.browser.client
    await somebody.browser.sign_in(key)
    token = await somebody.form_token()
    situation = (await client.get("/console/changes/build")).text.partition('name="situation" value="')[2][:16]
    origin = {"origin": str(client.base_url).rstrip("/")}

    async def send(path: str, fields: Mapping[str, str], name: str) -> httpx.Response:
        form = {field.format(id=name): value.format(id=name) for field, value in fields.items()}
        return await client.post(
            "/console" + path.format(id=name),
            data={**form, "form_token": token, "situation": situation},
            headers=origin,
        )

    compared = 0
    forgotten = dict(reversed(known.events.items()))
    for kind, owners in (*vars(known).items(), ("notes", known.held), ("events", forgotten)):
        # A reviewer sees what is held of everybody, also on the page of a note.
        reviewed = {name for name, owner in known.held.items() if owner.tenant == MINE}
        hidden = {  # one of each owner
            owner: name
            for name, owner in owners.items()
            if not somebody.sees(owner) and not (kind == "held" and name in reviewed)
        }
        for name in hidden.values():
            nothing = made_up(name)
            assert nothing not in owners
            assert nothing != name
            for path in (path for path, of in OPENED.items() if of == kind):
                if path == "/notes/{id}" and name in reviewed:
                    continue
                there = await client.get("/console" + path.format(id=name))
                absent = await client.get("/console" + path.format(id=nothing))
                assert seen(there, name) == seen(absent, nothing), path
                compared += 1
            for path, (of, fields) in SENT.items():
                if of == kind:
                    there, absent = await send(path, fields, name), await send(path, fields, nothing)
                    assert seen(there, name) == seen(absent, nothing), path
                    compared += 1
    assert compared > len(OPENED) + len(SENT)
    await client.aclose()
