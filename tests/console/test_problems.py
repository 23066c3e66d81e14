"""A page that is refused says what happened and what to do, and leads on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import Settings
from tests.console.conftest import LOCAL, WITH_KEYS, Browser, elements, text_of
from tests.server.test_outage_answers import NOWHERE
from tests.server.wire import Served, serving
from tests.support import builds
from tests.support.events import append, conversation
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

ASK = "/console/ask"


@pytest.fixture
def settings() -> Settings:
    """Callers need a key."""
    return WITH_KEYS


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """Keys may be made."""
    async with access_store(database) as opened:
        yield opened


def leads(page: httpx.Response) -> dict[str, str]:
    """Return where the buttons of a page lead, by their texts."""
    buttons = page.text.partition('<p class="buttons">')[2].partition("</p>")[0].split("<a ")[1:]
    return {text_of("<a " + one): elements("<a " + one)[0][1]["href"] or "" for one in buttons}


async def test_what_is_not_there_leads_to_its_section(browser: Browser, store: AccessStore) -> None:
    """Nothing tells whether it never was, was removed, or is hidden."""
    await browser.sign_in(await make_key(store, "ada", roles=("read", "admin"), faces=("core", "admin")))
    for path, section in (
        ("/console/nowhere", "Ask"),
        ("/console/events/evt_x", "Ask"),
        ("/console/topics/top_x", "Topics"),
        ("/console/changes/builds/bld_x", "Changes"),
        ("/console/changes/publish?snapshot=snap_x", "Changes"),
        ("/console/keys/x/revoke", "Operations"),
    ):
        page = await browser.get(path)
        assert page.status_code == 404, path
        assert "There is nothing here" in text_of(page.text)
        assert leads(page) == {f"Go to {section}": f"/console/{section.lower()}"}


async def test_a_key_without_the_right_is_told_whom_to_ask(browser: Browser, store: AccessStore) -> None:
    """It leads back to where the visitor came from, and to a section that is open."""
    await browser.sign_in(await make_key(store, "ada"))
    came_from = {"referer": f"{browser.client.base_url}/console/changes?done=x"}
    page = await browser.client.get("/console/operations", headers=came_from)
    assert page.status_code == 403
    assert "You may not do this This page needs the role admin" in text_of(page.text)
    assert "Ask whoever gave you the key" in text_of(page.text)
    assert leads(page) == {"Back": "/console/changes?done=x", "Go to Ask": ASK}


async def test_a_key_that_opens_nothing_is_told_what_would(browser: Browser, store: AccessStore) -> None:
    """A program's key is told which roles and APIs pages need; no name of a tool stands as a word."""
    page = await browser.sign_in(await make_key(store, "ada", roles=("read",), faces=("rest",)))
    assert page.status_code == 403
    said = text_of(page.text)
    assert "This key opens no page. Pages need the role read at the API core or agent" in said
    assert "for appending" not in said
    for path in ("/console/ask", "/console/topics", "/console/notes", "/console/people"):
        said = text_of((await browser.get(path)).text)
        assert "the API" in said, path
        assert "face " not in said, path
        assert "Query_event" not in said, path


async def test_too_many_requests_say_when_to_come_again(browser: Browser, store: AccessStore) -> None:
    """The page, and a header for programs, say for how long to wait; the button asks for the same page."""
    await browser.sign_in(await make_key(store, "ada", requests_per_s=0.1))
    for _ in range(100):
        page = await browser.get(ASK, q="kiln")
        if page.status_code == 429:
            break
    wait_s = page.headers["retry-after"]
    assert f"Wait {wait_s} seconds, then try again" in text_of(page.text)
    assert leads(page)["Try again"] == f"{ASK}?q=kiln"


async def test_a_list_that_has_moved_on_begins_again(
    browser: Browser, store: AccessStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later page of a list that an older release made leads to the first page of the same list."""
    await append(database.server_dsn, conversation(80, participants=("ada",)))
    await browser.sign_in(await make_key(store, "ada"))
    first = await browser.get(ASK, order="oldest")
    more = next(a["href"] or "" for _, a in elements(first.text) if "cursor=" in (a.get("href") or ""))
    monkeypatch.setattr("myria.search.cursors.RANKING_VERSION", 0)
    page = await browser.get(more)
    assert page.status_code == 400
    assert "This list has moved on" in text_of(page.text)
    again = await browser.get(leads(page)["From the beginning"])
    assert again.url.params["order"] == "oldest"
    assert text_of(again.text) == text_of(first.text)
    cut = await browser.get(ASK, cursor="zzz")
    assert "This list cannot be continued" in text_of(cut.text)


async def test_a_form_that_no_page_sent_says_to_open_it_again(browser: Browser, store: AccessStore) -> None:
    """Nothing was done; the page that it is on is one click away."""
    await browser.sign_in(await make_key(store, "ada", roles=("admin",), faces=("admin",)))
    form = "/console/changes/build"
    page = await browser.client.post(form, data={}, headers={"referer": f"{browser.client.base_url}{form}"})
    assert page.status_code == 403
    assert "This form cannot be sent" in text_of(page.text)
    assert leads(page) == {"Back": form, "Go to Changes": "/console/changes"}


@pytest.mark.parametrize("with_keys", [False, True])
async def test_an_outage_asks_for_patience_and_for_no_key(
    served: Served, browser: Browser, store: AccessStore, with_keys: bool
) -> None:
    """While the database is away, also where nobody can say who asks, the page says to try again, not to sign in."""
    await browser.sign_in(await make_key(store, "ada"))
    settings = WITH_KEYS if with_keys else LOCAL
    async with Memory(NOWHERE, settings) as memory, serving(memory, settings) as away:
        away.client.cookies = served.client.cookies
        page = await away.client.get("/console/changes", params={"done": "build"})
    assert page.status_code == 503
    assert page.headers["retry-after"] == "5"
    assert "Not just now" in text_of(page.text)
    assert "database_unavailable" in text_of(page.text)
    assert leads(page)["Try again"] == "/console/changes?done=build"
    assert 'name="key"' not in page.text


async def test_an_unforeseen_error_is_a_page_with_a_code_and_a_way_on(
    browser: Browser, store: AccessStore, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """It says nothing of the error itself, which the log holds; the connection and other pages go on."""
    await browser.sign_in(await make_key(store, "ada", roles=("read", "admin"), faces=("core", "admin")))
    await append(database.dsn, conversation(3))
    await builds.build(database)
    breaking = await asyncpg.connect(database.superuser_dsn)
    await breaking.execute("ALTER TABLE myria.pointer_moves ALTER COLUMN moved_at TYPE text USING 'mango'")
    await breaking.close()
    page = await browser.client.get("/console/changes")
    assert page.status_code == 500
    assert "This is a fault of the server" in text_of(page.text)
    assert "internal_error" in text_of(page.text)
    assert leads(page) == {"Go to Changes": "/console/changes"}
    assert "mango" not in page.text
    assert "a page failed" in caplog.text
    assert (await browser.client.get("/console/people", params={"as": "ada"})).status_code == 200
