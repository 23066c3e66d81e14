"""Forms that no page of the visitor's session sent: whatever they ask for, by whomever, nothing is done."""

from __future__ import annotations

import random
import secrets

import httpx
import pytest

from myria.memory import Memory
from myria.settings import Settings
from tests.console.conftest import WITH_KEYS, Browser
from tests.console.forms import FORMS, fields, watching
from tests.server.wire import Served
from tests.support import builds
from tests.support.counts import share
from tests.support.events import append, conversation
from tests.support.keys import access_store, make_key
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

FORGED = share(1_000)
TENANTS = ("default", "other")
ALL = ("read", "append", "admin", "erase")


@pytest.fixture
def settings() -> Settings:
    """Callers need a key."""
    return WITH_KEYS


async def test_a_forged_form_does_nothing(served: Served, database: Database, memory: Memory) -> None:
    """Random forms with random tokens, those of others, or from other sites are refused, and no table changes."""
    rng = random.Random(46)
    people: list[Browser] = []
    tokens: list[str] = []
    snapshots: list[str] = []
    key_ids: list[str] = []
    for tenant in TENANTS:
        await append(database.server_dsn, conversation(20, participants=("ada",)), tenant=tenant)
        snapshots.append((await builds.build(database, tenant=tenant)).snapshot_id or "")
        await append(database.server_dsn, conversation(20, participants=("ada",), seed=2, start=10**6), tenant=tenant)
        snapshots.append((await builds.build(database, tenant=tenant)).snapshot_id or "")
        async with access_store(database, tenant) as store:
            key = await make_key(store, "ada", tenant=tenant, roles=ALL, faces=("core", "agent", "admin"))
        key_ids.append(key.split("_")[1])
        browser = Browser(httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S))
        await browser.sign_in(key)
        page = await browser.get("/console/changes/build")
        people.append(browser)
        tokens.append(page.text.partition('name="form_token" value="')[2].partition('"')[0])
    origin = str(served.client.base_url).rstrip("/")
    async with watching(database) as digests:
        before = await digests()
        for _ in range(FORGED):
            at = rng.randrange(len(people))
            own, foreign = tokens[at], tokens[1 - at]
            is_sent_by_another_site = rng.random() < 0.4
            token = rng.choice(
                (
                    own if is_sent_by_another_site else foreign,
                    foreign,
                    own[:-1] + ("1" if own[-1] == "0" else "0"),
                    own[:24] + foreign[24:],
                    secrets.token_hex(44),
                    "",
                    "\U0001f600" * 20,
                )
            )
            sent = rng.choice(
                (
                    {"origin": "https://evil.example"},
                    {"origin": "null"},
                    {},
                    {"origin": origin, "sec-fetch-site": "cross-site"},
                )
                if is_sent_by_another_site
                else ({"origin": origin}, {"origin": origin, "sec-fetch-site": "same-origin"})
            )
            names = {"snapshot": rng.choice(snapshots), "key": rng.choice(key_ids), "name": "ada"}
            path = rng.choice([*FORMS]).format_map(
                {"event": "evt_x", "note": "note_x", "grant": "x", "erasure": "era_x", **names}
            )
            form = {**fields(names), "form_token": token}
            answer = await people[at].client.post("/console" + path, data=form, headers=sent)
            assert answer.status_code == 403, (path, token, sent, answer.status_code)
            if is_sent_by_another_site:
                assert "set-cookie" not in answer.headers
        assert await digests() == before
    for browser in people:
        assert (await browser.client.get("/console/changes")).status_code == 200  # nobody was signed out
        await browser.client.aclose()
