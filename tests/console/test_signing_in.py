"""Signing in to the console with a key: what a session may do, and when it ends."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from myria.access.store import AccessStore
from myria.settings import Settings
from tests.console.conftest import WITH_KEYS, Browser, text_of
from tests.server.wire import Served, event
from tests.support.keys import make_key
from tests.support.patience import PATIENCE_S


@pytest.fixture
def settings() -> Settings:
    """Callers need a key."""
    return WITH_KEYS


def another(served: Served) -> Browser:
    """Return a browser with cookies of its own."""
    return Browser(httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S))


async def test_a_page_asks_for_a_key_and_leads_back(served: Served, browser: Browser, store: AccessStore) -> None:
    """Who is not signed in comes to the page that was asked for after signing in."""
    key = await make_key(store, "ada")
    asked = await browser.get("/console/changes")
    assert asked.url.path == "/console/sign-in"
    page = await browser.submit(asked, "/console/sign-in", {"key": key})
    assert page.url.path == "/console/changes"
    assert page.status_code == 200


async def test_signing_in_again_ends_the_session_before(served: Served, browser: Browser, store: AccessStore) -> None:
    """A browser that signs in with another key leaves no session behind, in whosever hands its cookie is by then."""
    await browser.sign_in(await make_key(store, "ada"))
    copied = another(served)
    copied.client.cookies.update(dict(browser.client.cookies))
    assert (await copied.client.get("/console/changes")).status_code == 200
    await browser.sign_in(await make_key(store, "bob"))
    while (await copied.client.get("/console/changes")).status_code == 200:
        pass
    assert (await browser.client.get("/console/changes")).status_code == 200
    await copied.client.aclose()


async def test_the_cookie_is_out_of_reach(served: Served, browser: Browser, store: AccessStore) -> None:
    """No script can read the session, and it is no credential of the APIs."""
    key = await make_key(store, "ada")
    page = await browser.get("/console/sign-in")
    signed_in = await browser.client.post(
        "/console/sign-in",
        data={"key": key, "next": "/console/ask"},
        headers={"origin": str(browser.client.base_url).rstrip("/")},
    )
    cookie = signed_in.headers["set-cookie"].lower()
    assert page.status_code == 200
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "path=/console" in cookie
    session = signed_in.headers["set-cookie"].partition("=")[2].partition(";")[0]
    for text in (session, "mya_" + session.removeprefix("mys_")):
        bearer = {"authorization": f"Bearer {text}", "accept": "application/json", "content-type": "application/json"}
        refused = await served.client.post("/mcp", content=b"{}", headers=bearer)
        assert refused.status_code == 401


async def test_a_session_sees_what_its_key_sees(served: Served, store: AccessStore) -> None:
    """Two people of one tenant, and one of another, each see their own, and nothing of the rest."""
    keys = {
        "ada": await make_key(store, "ada"),
        "bob": await make_key(store, "bob"),
        "eve": await make_key(store, "ada", tenant="other"),
    }
    for who, key in keys.items():
        sent = {"authorization": f"Bearer {key}"}
        kept = await served.client.post(
            "/mcp",
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {
                    "name": "myria_append_event",
                    "arguments": {**event(who, text=f"the secret of {who}"), "participants": None},
                },
            },
            headers={"accept": "application/json", "mcp-protocol-version": "2025-06-18", **sent},
        )
        assert kept.status_code == 200, kept.text
    for who, key in keys.items():
        theirs = another(served)
        await theirs.sign_in(key)
        said = text_of((await theirs.get("/console/ask", q="secret")).text)
        assert f"the secret of {who}" in said
        assert not any(f"the secret of {other}" in said for other in keys if other != who)
        # Names of others in the address widen nothing.
        as_bob = await theirs.get("/console/ask", q="secret", **{"as": "bob,ada"})
        assert not any(f"the secret of {other}" in text_of(as_bob.text) for other in keys if other != who)
        await theirs.client.aclose()


async def test_a_session_ends_with_its_key(served: Served, browser: Browser, store: AccessStore) -> None:
    """Once the key is revoked, the next page asks for another one, and says why."""
    key = await make_key(store, "ada")
    assert "You were signed out" not in text_of((await browser.get("/console/sign-in")).text)
    await browser.sign_in(key)
    assert (await browser.get("/console/ask")).url.path == "/console/ask"
    await store.revoke_key(key.split("_")[1])
    for _ in range(100):
        page = await browser.get("/console/ask")
        if page.url.path == "/console/sign-in":
            break
    assert page.url.path == "/console/sign-in"
    assert "You were signed out" in text_of(page.text)


async def test_signing_out_ends_the_session_everywhere(served: Served, browser: Browser, store: AccessStore) -> None:
    """A copied cookie is worth nothing after its session was signed out."""
    await browser.sign_in(await make_key(store, "ada"))
    copied = dict(browser.client.cookies)
    thief = another(served)
    thief.client.cookies.update(copied)
    page = await browser.get("/console/ask")
    out = await browser.submit(page, "/console/sign-out")
    assert out.url.path == "/console/sign-in"
    for _ in range(100):
        stolen = await thief.get("/console/ask")
        if stolen.url.path == "/console/sign-in":
            break
    assert stolen.url.path == "/console/sign-in"
    await thief.client.aclose()


async def test_a_bad_key_is_refused_and_counted(served: Served, browser: Browser, store: AccessStore) -> None:
    """A key that is none, or unknown, says so; too many of them are slowed down."""
    assert "This is no key" in text_of((await browser.sign_in("password")).text)
    unknown = "myr_abcdefghijkm_" + "a" * 32
    assert "not known" in text_of((await browser.sign_in(unknown)).text)


@pytest.mark.parametrize(
    "place",
    ["https://evil.example/", "//evil.example", "/console/../mcp", "/console/%2e%2e/mcp", "/console/\\evil", "x"],
)
async def test_signing_in_leads_nowhere_else(served: Served, browser: Browser, store: AccessStore, place: str) -> None:
    """An address to go on to that is not a page of the console is dropped."""
    key = await make_key(store, "ada")
    origin = str(browser.client.base_url).rstrip("/")
    done = await browser.client.post("/console/sign-in", data={"key": key, "next": place}, headers={"origin": origin})
    assert done.status_code == 303
    assert done.headers["location"] == "/console/"
    assert ".." not in done.headers["location"]


@pytest.mark.parametrize("sent", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {}])
async def test_a_form_of_another_site_signs_nobody_in(
    served: Served, browser: Browser, store: AccessStore, sent: dict[str, str]
) -> None:
    """A page of another site cannot sign a browser in with a key of its own (login CSRF)."""
    key = await make_key(store, "ada")
    done = await browser.client.post("/console/sign-in", data={"key": key}, headers=sent)
    assert done.status_code == 403
    assert "set-cookie" not in done.headers


async def test_only_administrators_read_operations_and_audit(
    served: Served, browser: Browser, store: AccessStore
) -> None:
    """An administrator sees how the parts do and who did what in its tenant; nobody else sees either."""
    roles = ("read", "append")
    await browser.sign_in(await make_key(store, "ada", roles=roles))
    for path in ("/console/operations", "/console/audit", "/console/audit.jsonl", "/console/settings"):
        refused = await browser.get(path)
        assert refused.status_code == 403
        assert "role_required" in text_of(refused.text)
    token = refused.text.partition('name="form_token" value="')[2].partition('"')[0]
    sent = {"origin": str(browser.client.base_url).rstrip("/")}
    resumed = await browser.client.post("/console/changes/resume", data={"form_token": token}, headers=sent)
    assert resumed.status_code == 403
    admin, foreign = another(served), another(served)
    await admin.sign_in(await make_key(store, "root", roles=("read", "admin"), faces=("core", "admin")))
    both = ("core", "admin")
    await foreign.sign_in(await make_key(store, "root", roles=("read", "admin"), faces=both, tenant="other"))
    outside = another(served)
    await outside.sign_in(await make_key(store, "root", roles=("read", "admin"), faces=("core",)))
    for path in ("/console/operations", "/console/audit", "/console/changes/diff"):
        assert "face_not_allowed" in text_of((await outside.get(path)).text)  # not a key for the API admin
    await outside.client.aclose()
    assert "Settings in force" in text_of((await admin.get("/console/settings")).text)
    said = text_of((await admin.get("/console/audit")).text)
    assert "console.sign_in" in said
    assert "No entry fits" in text_of((await admin.get("/console/audit", q="no such act")).text)
    exported = (await admin.get("/console/audit.jsonl", q="console.sign_in")).text.splitlines()
    assert len(exported) == 3  # of this tenant, not of the other
    noted: dict[str, int] = {}
    async with asyncio.timeout(PATIENCE_S):
        while sum(noted.values()) < 5:  # refusals are written every second
            lines = (await admin.get("/console/audit.jsonl", outcome="role_required")).text.splitlines()
            noted = {entry["action"]: entry["times"] for entry in map(json.loads, lines)}
    assert noted == {f"/console/{place}": 1 for place in ("operations", "audit", "audit.jsonl", "settings", "changes")}
    assert "console.sign_in" in text_of((await foreign.get("/console/audit")).text)
    assert len((await foreign.get("/console/audit.jsonl", q="console.sign_in")).text.splitlines()) == 1
    await admin.client.aclose()
    await foreign.client.aclose()
