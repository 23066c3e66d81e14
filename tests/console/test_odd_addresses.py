"""Addresses and forms with text that no page of ours writes: each has an answer, and none adds a header."""

from __future__ import annotations

import random
import re
from urllib.parse import unquote_to_bytes

import pytest

from myria.memory import Memory
from myria.settings import Settings
from tests.console.conftest import Browser
from tests.console.forms import FORMS, fields
from tests.console.test_isolation import PAGES
from tests.console.things import FACES, Somebody
from tests.server.wire import Served
from tests.support.counts import share, some
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

ALL = ("read", "append", "admin", "erase")
ODD = (
    "%00",
    "a%00b",
    "%ED%A0%80",
    "%FF%FE",
    "%0D%0Aodd:%20yes",
    "a%22%3B%0D%0Aodd:%20yes",
    "..",
    "%2E%2E%2F%2E%2E",
    "%E2%80%AE%E2%80%8B",
    "'%22%3E%3Cb%3E%7B%7B7*7%7D%7D",
    "-1",
    "9" * 30,
    "%D9%A3",
    "x" * 1_500,
    "%F0%9F%98%80" * 150,
    "2026-13-40T25:61",
    "%20",
    "%25s",
)
"""Escaped: NUL, half of a surrogate pair, no UTF-8, ends of lines, dots, marks of direction, markup, numbers, long."""

PARAMETERS = (
    *("as", "q", "view", "why", "expected", "since", "until", "channel", "context", "order", "superseded", "cursor"),
    *("tokens", "name", "shared", "from", "to", "snapshot", "before", "after", "kind", "topic", "participant", "upto"),
    *("note", "done", "count", "actor", "action", "outcome", "next", "status"),
)
TRIES = share(4_000)


@pytest.fixture
def settings(settings_with_grants: Settings) -> Settings:
    """Callers need a key; programs may ask for a grant."""
    return settings_with_grants


@pytest.fixture
async def administrator(served: Served, browser: Browser, database: Database) -> Somebody:
    """Somebody who may all."""
    async with access_store(database) as store:
        key = await make_key(store, "ada", roles=ALL, faces=FACES)
    await browser.sign_in(key)
    return Somebody("default", ("ada",), ALL, browser, key)


async def test_odd_text_in_addresses_is_answered(administrator: Somebody, memory: Memory) -> None:
    """Whatever stands in the place of an id or a parameter, no page breaks, and it gets into no header."""
    del memory
    rng, client = random.Random(48), administrator.browser.client
    addresses = [re.sub(r"{\w+}", odd, page) for page in PAGES for odd in ODD if "{" in page]
    for _ in range(TRIES):
        given = "&".join(f"{name}={rng.choice(ODD)}" for name in rng.sample(PARAMETERS, rng.choice((1, 1, 2, 4))))
        addresses.append(f"{re.sub(r'{.*?}', 'x', rng.choice(PAGES))}?{given}")
    for address in addresses:
        async with client.stream("GET", "/console" + address) as answer:
            assert answer.status_code < 500, address
            assert "odd" not in answer.headers, address
            assert answer.headers.get("location", "/console").startswith("/console"), address


async def test_odd_text_in_forms_is_answered(administrator: Somebody) -> None:
    """Whatever stands in the place of an id, in a form's address or in its fields, nothing breaks."""
    rng, client = random.Random(49), administrator.browser.client
    origin = {"origin": str(client.base_url).rstrip("/")}
    forms = [form for form in FORMS if form != "/sign-out"]
    token = await administrator.form_token()
    for form in forms:
        for odd in some(ODD):
            address = "/console" + re.sub(r"{\w+}", odd, form)
            text = unquote_to_bytes(odd).decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()
            filled = fields({}) | {"form_token": token, "expected_events": "0"}
            for name in rng.sample(sorted(set(filled) - {"form_token"}), 4):
                filled[name] = text
            filled |= {f"pick_{text}": "on", "own": rng.choice(("ada", text)), "situation": text}
            answer = await client.post(address, data=filled, headers=origin)
            assert answer.status_code < 500, (form, odd, filled)
            assert "odd" not in answer.headers
    assert (await client.get("/console/changes")).status_code == 200
