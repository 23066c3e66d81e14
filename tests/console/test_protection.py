"""What the console's answers tell browsers and caches, and which requests it refuses, whatever their method or host."""

from __future__ import annotations

from urllib.parse import quote, urljoin, urlsplit

import httpx
import pytest

from myria.access.store import AccessStore
from myria.settings import AuthSettings, ConsoleSettings, Settings
from tests.console.conftest import WITH_KEYS, Browser, elements, text_of
from tests.server.wire import Served, event
from tests.support.keys import make_key

PAGE, STATIC, NOWHERE = "/console/ask", "/console/static/console.css", "/console/nowhere"


@pytest.fixture
def settings() -> Settings:
    """Callers need a key."""
    return WITH_KEYS


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/console", 303),
        ("GET", "/console/", 303),
        ("GET", PAGE, 303),
        ("HEAD", PAGE, 303),
        ("GET", "/console/sign-in", 200),
        ("HEAD", "/console/sign-in", 200),
        ("POST", "/console/sign-in", 403),
        ("POST", "/console/sign-out", 303),
        ("GET", NOWHERE, 303),
        ("GET", STATIC, 200),
        ("HEAD", STATIC, 200),
        ("GET", "/console/static/none", 303),
        ("GET", "/console/static/", 303),
        ("GET", PAGE + "/", 303),
        ("OPTIONS", PAGE, 303),
        ("DELETE", PAGE, 303),
    ],
)
async def test_every_answer_protects_itself(
    browser: Browser, store: AccessStore, method: str, path: str, status: int
) -> None:
    """No answer may be framed, guessed at or kept by a cache, be it a page, a redirect, a refusal or a file; nor once
    somebody is signed in."""
    answers = [await browser.client.request(method, path)]
    assert answers[0].status_code == status
    await browser.sign_in(await make_key(store, "ada"))
    answers.append(await browser.client.request(method, path))
    for answer in answers:
        assert answer.status_code < 500
        assert answer.headers.get("location", "/").startswith("/")
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        is_file = path.startswith(STATIC)
        assert ("immutable" in answer.headers["cache-control"]) == is_file
        assert is_file or answer.headers["cache-control"] == "no-store"
        if method == "HEAD":
            assert not answer.content


async def test_a_method_that_a_page_does_not_have_is_named(
    served: Served, browser: Browser, store: AccessStore
) -> None:
    """Another method than a page knows is refused as such, with those that it knows, and changes nothing."""
    await browser.sign_in(await make_key(store, "ada"))
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "POST"):
        answer = await browser.client.request(method, PAGE)
        assert answer.status_code == 405, method
        assert "GET" in answer.headers["allow"]
        assert "method_not_allowed" in text_of(answer.text)
    assert (await browser.client.get("/console/sign-out")).status_code == 405
    assert (await browser.client.get(PAGE)).status_code == 200


@pytest.mark.parametrize(
    "place",
    [
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https:evil.example",
        "https:/evil.example",
        "javascript:alert(1)",
        " //evil.example",
        "\t//evil.example",
        "/\t/evil.example",
        "/console/../..//evil.example",
        "/console/%2e%2e/%2e%2e//evil.example",
        "/console/.%2E/mcp",
        "/console/%252e%252e/mcp",
        "/console/%5c%5cevil.example",
        "/console\\..\\mcp",
        "/console/\r\nset-cookie: a=b",
        "/console/\u2028ask",
        "/console@evil.example",
        "/console.evil.example/",
        "/console/ask#//evil.example",
        "/consoles/ask",
        "/CONSOLE/ask",
        "",
        "x" * 5_000,
    ],
)
@pytest.mark.parametrize("way", ["form", "address", "htmx", "referer"])
async def test_no_redirect_leads_out_of_the_console(
    served: Served, browser: Browser, store: AccessStore, place: str, way: str
) -> None:
    """However a place to go on to is written, and however it gets there, browsers stay on pages of the console."""
    origin = str(browser.client.base_url).rstrip("/")
    if way == "form":
        key = await make_key(store, "ada")
        answer = await browser.client.post(
            "/console/sign-in", data={"key": key, "next": place}, headers={"origin": origin}
        )
        assert answer.status_code == 303
        locations = [answer.headers["location"]]
    elif way == "address":
        page = await browser.client.get(f"/console/sign-in?next={quote(place)}")
        locations = [
            attributes["value"] or "" for _, attributes in elements(page.text) if attributes.get("name") == "next"
        ]
    else:
        raw = place.encode().replace(b"\r", b"").replace(b"\n", b"").strip()
        if way == "htmx":
            sent = {b"hx-request": b"true", b"hx-current-url": raw}
            answer = await browser.client.get(PAGE, headers=sent)
            locations = [answer.headers["hx-redirect"]]
        else:
            answer = await browser.client.post("/console/sign-out", headers={b"referer": raw})
            locations = [answer.headers["location"]]
    [location] = locations
    assert location.isprintable()
    landed = urlsplit(urljoin(origin + "/console/sign-in", location))
    assert f"{landed.scheme}://{landed.netloc}" == origin
    assert landed.path.startswith("/console/")
    assert ".." not in landed.path


async def test_another_host_is_refused(served: Served, browser: Browser, store: AccessStore) -> None:
    """A name that is not this server's is refused before a page is made (DNS rebinding), and no redirect repeats it."""
    key = await make_key(store, "ada")
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1@evil.example", ""):
        for path in ("/console", PAGE, "/console/sign-in", STATIC, NOWHERE):
            answer = await browser.client.get(path, headers={"host": host})
            assert answer.status_code in (400, 403, 421), (host, path)
            assert "location" not in answer.headers
        forged = await browser.client.post(
            "/console/sign-in", data={"key": key}, headers={"host": host, "origin": f"http://{host}"}
        )
        assert forged.status_code in (400, 403, 421)
        assert "set-cookie" not in forged.headers
    for header in ("x-forwarded-host", "x-forwarded-proto", "forwarded", "x-original-url", "x-rewrite-url"):
        answer = await browser.client.get(PAGE, headers={header: "evil.example"})
        assert answer.headers["location"].startswith("/console/sign-in?next=%2Fconsole%2Fask")
        assert "evil" not in answer.headers["location"]


async def test_a_planted_session_is_worth_nothing(served: Served, browser: Browser, store: AccessStore) -> None:
    """Signing in gives a secret of its own, so one that somebody planted before is none, then and later."""
    origin = str(browser.client.base_url).rstrip("/")
    for planted in ("planted", "mys_" + "a" * 43, "", '"; path=/', "x" * 4_000):
        sent = {"cookie": f"myria_console={planted}", "origin": origin}
        key = await make_key(store, "ada", name="fixed")
        async with httpx.AsyncClient(base_url=origin, headers=sent) as client:
            signed_in = await client.post("/console/sign-in", data={"key": key})
            assert signed_in.status_code == 303
            assert signed_in.headers["set-cookie"].partition("=")[2].partition(";")[0] not in ("", planted)
        async with httpx.AsyncClient(base_url=origin, headers=sent) as thief:
            assert (await thief.get(PAGE)).status_code == 303


async def test_what_is_too_large_is_refused(served: Served, browser: Browser, store: AccessStore) -> None:
    """Addresses, cookies and forms beyond any use have an answer, and the server goes on."""
    await browser.sign_in(await make_key(store, "ada"))
    for address in (
        f"{PAGE}?q={'x' * 20_000}",
        f"{PAGE}?q={'%F0%9F%98%80' * 3_000}",
        f"{PAGE}?{'as=b&' * 8_000}",
        f"{PAGE}?as={'b,' * 15_000}",
        f"/console/events/{'e' * 30_000}",
        f"/console/topics/{'%2F' * 10_000}",
        f"{PAGE}?cursor={'c' * 40_000}",
        f"{PAGE}?{'q&' * 15_000}",
        f"{PAGE}?q=%FF%FE%00&as=%ED%A0%80",
    ):
        answer = await browser.client.get(address)
        assert answer.status_code in (200, 400, 404, 414), (address[:60], answer.status_code)
        assert len(answer.content) < 150_000, address[:60]
    endless = f"GET {PAGE}?q={'x' * 200_000} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
    said = await served.raw(endless.encode())
    assert not said or said.startswith(b"HTTP/1.1 4")  # to hang up is an answer, too
    page = await browser.get(PAGE)
    token = page.text.partition('name="form_token" value="')[2].partition('"')[0]
    origin = str(browser.client.base_url).rstrip("/")
    for content in (
        f"form_token={token}&x=".encode() + b"x" * 300_000,
        f"form_token={token}&".encode() + b"a=b&" * 5_000,
        f"form_token={token}&x=%FF".encode(),
        b"\xff\xfe",
        b"",
    ):
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"):
            sent = {"origin": origin, "content-type": kind}
            answer = await browser.client.post("/console/sign-out", content=content, headers=sent)
            assert answer.status_code in (400, 403), (content[:30], kind)
    assert (await browser.client.get(PAGE)).status_code == 200  # still signed in


async def test_no_private_word_is_on_a_page_after_signing_out(
    served: Served, browser: Browser, store: AccessStore
) -> None:
    """Whatever a browser asks for after signing out, it gets the page to sign in at, also where a script asks."""
    key = await make_key(store, "ada")
    sent = {"authorization": f"Bearer {key}", "accept": "application/json", "mcp-protocol-version": "2025-06-18"}
    arguments = {**event("e", text="a private word"), "participants": ["ada"]}
    message = {"name": "myria_append_event", "arguments": arguments}
    kept = await served.client.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": message}, headers=sent
    )
    assert kept.status_code == 200
    await browser.sign_in(key)
    page = await browser.get(PAGE)
    assert "a private word" in page.text
    out = await browser.submit(page, "/console/sign-out")
    assert out.url.path == "/console/sign-in"
    assert not browser.client.cookies
    for headers in ({}, {"hx-request": "true", "hx-target": "answer"}):
        again = await browser.client.get(PAGE, headers=headers)
        assert "private word" not in again.text
        assert again.status_code in (204, 303)


class TestOverTls:
    """A server that browsers reach over TLS."""

    @pytest.fixture
    def settings(self) -> Settings:
        """Its address is known."""
        return Settings(
            console=ConsoleSettings(enabled=True),
            auth=AuthSettings(mode="keys", public_url="https://memory.example"),
        )

    async def test_its_cookie_never_travels_without(self, served: Served, browser: Browser, store: AccessStore) -> None:
        """The session's cookie is Secure, by its name, too."""
        origin = str(browser.client.base_url).rstrip("/")
        key = await make_key(store, "ada")
        answer = await browser.client.post("/console/sign-in", data={"key": key}, headers={"origin": origin})
        cookie = answer.headers["set-cookie"].lower()
        assert cookie.startswith("__secure-")
        for flag in ("secure", "httponly", "samesite=lax", "path=/console"):
            assert flag in cookie.split("; ")


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("/console/keys?as=ada", "/console/keys?as=ada"),
        ("https://evil.example/phish", "/console/"),
        ("https://evil.example/console/keys", "/console/keys"),
        ("http://[", "/console/"),
        ("javascript:alert(1)", "/console/"),
        ("/console/../mcp", "/console/"),
    ],
)
async def test_a_refusal_leads_back_to_pages_of_the_console_alone(
    browser: Browser, store: AccessStore, sent: str, shown: str
) -> None:
    """Whatever a browser says of where it came from, the way back is a page of this server."""
    await browser.sign_in(await make_key(store, "ada"))
    for headers in ({"referer": sent}, {"referer": sent, "hx-current-url": sent, "hx-request": "true"}):
        refused = await browser.client.get("/console/operations", headers=headers)
        assert refused.status_code == 403
        links = [attributes.get("href") for tag, attributes in elements(refused.text) if tag == "a"]
        assert shown in links
        assert all((link or "").startswith(("/console/", "#")) for link in links)
    nobody = Browser(httpx.AsyncClient(base_url=browser.client.base_url))
    asked = await nobody.client.get("/console/ask", headers={"hx-request": "true", "hx-current-url": sent})
    assert asked.headers["hx-redirect"].startswith("/console/sign-in?next=%2Fconsole%2F")
    await nobody.client.aclose()
