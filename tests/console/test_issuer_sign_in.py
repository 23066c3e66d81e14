"""Signing in to the console through an issuer: whose answers count, what a session may do, and when it ends."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import httpx
import pytest

from myria.access.console_sessions import ConsoleSessions, SealedToken
from myria.access.journal import entries
from myria.access.secrets import MadeSession, make_secret
from myria.access.store import AccessStore
from myria.db.database import Database as Pool
from myria.errors import ConfigurationError, CredentialInvalid
from myria.memory import Memory
from myria.settings import AuthSettings, ConsoleSettings, Settings
from myria_server.http.listening import reserve_port
from tests.console.conftest import Browser, elements, text_of
from tests.server.wire import MODERN, Served, call, event, headers, serving
from tests.support.issuer import rsa_key
from tests.support.login import Login, Ways
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

CLIENT = {"client_id": "myria console", "scopes": ["memory:read", "memory:write"]}


@dataclass
class Clock:
    """The server's clocks: the real ones, moved by what a test says."""

    later_s: float = 0.0
    ticked_s: float = 0.0

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.later_s

    def ticks(self) -> float:
        """Steady seconds."""
        return time.monotonic() + self.ticked_s


@pytest.fixture
def login() -> Iterator[Login]:
    """An issuer that runs."""
    with Login() as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    """The clock of one test."""
    return Clock()


Serve = Callable[..., Any]


@pytest.fixture
def serve(memory: Memory, store: AccessStore, login: Login, tmp_path: Path, clock: Clock) -> Serve:
    """Run a server whose console one signs in to at the issuer, with changes of its entry and of `auth`."""
    del store

    @asynccontextmanager
    async def serve_with(
        *,
        console: dict[str, Any] | Literal[False] | None = None,
        auth: dict[str, Any] | None = None,
        beside: Login | None = None,
        **changes: Any,
    ) -> AsyncIterator[Served]:
        entry: dict[str, Any] = {
            "name": "login",
            "issuer": login.url,
            "algorithms": ["RS256"],
            "refresh_s": 10,
            "tenant": {"claim": "team", "values": {"a": ["default"], "b": ["other"]}},
            "participants": {"claim": "sub", "prefix": "user:"},
            "roles": {
                "claim": "scope",
                "values": {"memory:read": ["read"], "memory:write": ["append"], "memory:steer": ["read", "admin"]},
            },
            "faces": {"always": ["core", "admin"]},
            "console": None if console is False else {**CLIENT, **(console or {})},
            **changes,
        }
        path = tmp_path / "issuers.json"
        others = [] if beside is None else [{**entry, "name": "beside", "issuer": beside.url}]
        path.write_text(json.dumps({"issuers": [entry, *others]}))
        sock = reserve_port("127.0.0.1", 0)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        more = {"mode": "keys", "public_url": url, "issuers_file": str(path), **(auth or {})}
        settings = Settings(console=ConsoleSettings(enabled=True, sessions_per_key=2), auth=AuthSettings(**more))
        async with serving(memory, settings, sock=sock, now=clock.now, ticks=clock.ticks) as served:
            yield served

    return serve_with


@pytest.fixture(autouse=True)
def team(login: Login) -> None:
    """Everybody is in the team of the tenant `default`."""
    login.ways.access = {"team": "a"}


def another(served: Served) -> Browser:
    """Return a browser with cookies of its own."""
    return Browser(httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S, verify=False))


async def sign_in(served: Served, place: str = "/console/ask") -> tuple[Browser, httpx.Response]:
    """Sign in at the issuer in a browser of its own; return it, and the page that it comes to."""
    browser = another(served)
    asked = await browser.get(place)
    assert asked.url.path == "/console/sign-in"
    links = [attributes.get("href") or "" for tag, attributes in elements(asked.text) if tag == "a"]
    return browser, await browser.get(next(link for link in links if "/sign-in/with/" in link))


async def signed_out(browser: Browser) -> bool:
    """Tell whether a browser is asked to sign in, at the latest once the server has noticed."""
    for _ in range(200):
        if (await browser.get("/console/people")).url.path == "/console/sign-in":
            return True
    return False


async def append(served: Served, token: str, text: str) -> None:
    """Append an event as a token's subject, through the API."""
    arguments = {name: value for name, value in event(text, text=text).items() if name != "participants"}
    sent = headers("myria_append_event", version=MODERN) | {"authorization": f"Bearer {token}"}
    response = await served.post(call("myria_append_event", arguments), sent, path="/mcp")
    assert response.status_code == 200, response.text


async def test_a_person_signs_in_and_comes_back(serve: Serve, login: Login, database: Database) -> None:
    """A link leads to the issuer and back to the page that was asked for, as the token's subject and no more."""
    async with serve() as served:
        api = str(served.client.base_url).rstrip("/") + "/mcp"
        await append(served, login.access_token(api, team="a"), "the secret of ada")
        await append(served, login.access_token(api, team="a", sub="bob"), "the secret of bob")
        browser, page = await sign_in(served, "/console/ask?q=secret")
        assert (page.url.path, page.url.query) == ("/console/ask", b"q=secret")
        said = text_of(page.text)
        assert "signed in as token:login:ada" in said
        assert "the secret of ada" in said
        assert "the secret of bob" not in said
        (exchange,) = login.exchanges
        assert exchange["resource"] == str(served.client.base_url).rstrip("/") + "/console"
        assert exchange["client_id"] == "myria console"
        assert (exchange["authorization"], "client_secret" in exchange) == ("", False)
        assert (await browser.get("/console/operations")).status_code == 403
        await browser.submit(page, "/console/sign-out")
        await browser.client.aclose()
    async with Pool(database.operator_dsn) as pool:
        noted = [(row["action"], row["actor"], row["address"]) for row in await entries(pool, "default", 10)]
    for action in ("console.sign_out", "console.sign_in"):
        assert (action, "token:login:ada", "127.0.0.1") in noted


async def test_the_token_lies_nowhere_in_plain_text(serve: Serve, login: Login, database: Database) -> None:
    """The database holds what only the browser's secret opens, and neither that secret nor the token."""
    async with serve() as served:
        login.ways.access_token = login.access_token(f"{str(served.client.base_url).rstrip('/')}/console", team="a")
        browser, _ = await sign_in(served)
        (secret,) = [cookie.value or "" for cookie in browser.client.cookies.jar if cookie.name == "myria_console"]
        await browser.client.aclose()
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        row = await connection.fetchrow("SELECT s::text AS text, s.* FROM myria.console_sessions s")
    finally:
        await connection.close()
    assert row is not None
    assert row["key_id"] is None
    assert secret not in row["text"]
    for text in (login.ways.access_token, secret):
        assert text.encode() not in row["sealed_token"]
    sealed = SealedToken(row["sealed_token"])
    assert sealed.opened(MadeSession("", secret)) == login.ways.access_token
    changed = SealedToken(sealed.content[:-1] + bytes([sealed.content[-1] ^ 1]))
    stranger = MadeSession("", make_secret("mys_"))
    for wrong, session in ((sealed, stranger), (changed, MadeSession("", secret)), (SealedToken(b""), stranger)):
        with pytest.raises(CredentialInvalid):
            wrong.opened(session)


BAD_TOKENS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"aud": "https://memory.example.com/mcp"}, "another audience"),
    ({"iss": "https://login.example.com"}, "issuer is not known"),
    ({"exp": time.time() - 3600}, "expired"),
    ({"team": "c"}, "stands for nothing here"),
    ({"team": None}, "team"),
    ({"sub": None}, "sub"),
    ({"scope": "memory:none"}, "gives you no role here"),
    ({"key": rsa_key(9)}, "signature is not its issuer's"),
    ({"kid": "k9", "key": rsa_key(9)}, "signed with a key"),
    ({"padding": "x" * 9_000}, "8192 bytes"),
)


async def test_a_token_that_the_apis_refuse_signs_nobody_in(serve: Serve, login: Login) -> None:
    """It passes the very checks that it would pass at an API, and the page says what is wrong."""
    async with serve() as served:
        for claims, said in BAD_TOKENS:
            login.ways.access = {"team": "a", **claims}
            browser, page = await sign_in(served)
            assert 400 <= page.status_code < 500
            assert said in text_of(page.text)
            assert "myria_console" not in browser.client.cookies
            await browser.client.aclose()


BAD_ANSWERS: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"access_token": "opaque"}, 401, "no signed token"),
    ({"tokens": {"token_type": "DPoP"}}, 401, "no bearer token"),
    ({"tokens": {"access_token": 7}}, 401, "no bearer token"),
    ({"tokens": {"id_token": 7}}, 401, "ID token that is none"),
    ({"raw": b"[]"}, 503, "cannot be asked now"),
    ({"raw": b"{"}, 503, "cannot be asked now"),
    ({"raw": b" " * 1_000_000}, 503, "cannot be asked now"),
    ({"status": 302, "raw": b"{}"}, 401, "gave no token"),
    ({"status": 500, "raw": b"{}"}, 503, "cannot be asked now"),
    ({"status": 400, "raw": b'{"error": "invalid_client\\u0000<b>"}'}, 401, "invalid_client <b>"),
    ({"answer": {"code": None}}, 401, "brought no code"),
    ({"answer": {"code": "another"}}, 401, "<b>this code is not good</b>"),
    ({"answer": {"code": None, "error": "access_denied", "error_description": "<i>no</i>"}}, 401, "<i>no</i>"),
    ({"answer": {"iss": "https://login.example.com"}}, 401, "not from the issuer"),
    ({"answer": {"iss": None}}, 401, "not from the issuer"),
    ({"answer": {"state": "forged"}}, 401, "no answer to the sign-in"),
    ({"answer": {"state": "x" * 20_000}}, 401, "cannot be read"),
)


async def refused(served: Served, login: Login, status: int, said: str) -> None:
    """Try to sign in, and check that nobody is, and that the page shows what was said as text."""
    browser, page = await sign_in(served)
    assert page.status_code == status, page.text
    assert said in text_of(page.text)
    assert not {"b", "i"} & {tag for tag, _ in elements(page.text)}
    assert "myria_console" not in browser.client.cookies
    assert "/elsewhere" not in login.seen
    assert (await browser.get("/console/ask")).url.path == "/console/sign-in"
    await browser.client.aclose()


async def test_an_answer_that_is_not_as_it_must_be_is_refused(serve: Serve, login: Login) -> None:
    """The page shows what the issuer says as text; nobody is signed in, and no redirect is followed."""
    async with serve() as served:
        for ways, status, said in BAD_ANSWERS:
            login.ways = Ways(**{"access": {"team": "a"}, **ways})
            await refused(served, login, status, said)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://login.example.com"},
        {"token_endpoint": "http://10.0.0.1/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
async def test_nobody_is_sent_where_the_metadata_may_not_lead(
    serve: Serve, login: Login, metadata: dict[str, Any]
) -> None:
    """Metadata of another issuer, or with an address that may not be asked, leads nowhere."""
    login.ways.metadata = metadata
    async with serve() as served:
        await refused(served, login, 503, "cannot be asked now")


async def test_an_answer_counts_in_its_own_browser_and_once(serve: Serve, login: Login) -> None:
    """Who is sent an answer to somebody else's sign-in is not signed in, nor is who repeats an own one."""
    async with serve() as served:
        attacker, victim = another(served), another(served)
        begun = await attacker.client.get("/console/sign-in/with/login")
        back = await attacker.client.get(begun.headers["location"])
        address = back.headers["location"]
        planted = await victim.get(address)
        assert planted.status_code == 401
        assert "No sign-in is under way" in text_of(planted.text)
        await victim.client.get("/console/sign-in/with/login")
        assert "no answer to the sign-in" in text_of((await victim.get(address)).text)
        assert "myria_console" not in victim.client.cookies
        assert not login.exchanges
        assert (await attacker.get(address)).url.path == "/console/ask"
        again = await attacker.get(address)
        assert "No sign-in is under way" in text_of(again.text)
        assert len(login.exchanges) == 1
        await victim.client.get("/console/sign-in/with/login")
        twice = await victim.client.get("/console/signed-in/login?state=a&state=a")
        assert "cannot be read" in text_of(twice.text)
        await attacker.client.aclose()
        await victim.client.aclose()


async def test_an_issuer_gets_no_code_of_another(serve: Serve, login: Login) -> None:
    """One that sends a browser on to another issuer, which does not name itself, is not sent the code that comes back;
    nor where it names the address that is registered there."""
    login.ways.metadata = {"authorization_response_iss_parameter_supported": False}
    login.ways.answer = {"iss": None}
    with Login() as attacker:
        attacker.ways.metadata = login.ways.metadata
        async with serve(beside=attacker) as served:
            victim = another(served)
            begun = await victim.client.get("/console/sign-in/with/beside")
            asked = httpx.URL(begun.headers["location"])
            assert asked.copy_with(query=None) == httpx.URL(attacker.url + "/authorize")
            registered = str(served.client.base_url).rstrip("/") + "/console/signed-in/login"
            assert asked.params["redirect_uri"] == registered.replace("/login", "/beside")
            passed_on = asked.copy_set_param("redirect_uri", registered)
            back = await victim.client.get(f"{login.url}/authorize", params=passed_on.params)
            assert back.headers["location"].startswith(registered + "?code=")
            page = await victim.client.get(back.headers["location"])
            assert page.status_code == 401
            assert "address of another issuer" in text_of(page.text)
            assert not attacker.exchanges
            assert not login.exchanges
            await victim.client.aclose()


async def test_what_a_sign_in_sends_tells_nothing_else(serve: Serve, login: Login) -> None:
    """The address at the issuer holds no secret of the browser, another state each time, and PKCE by S256."""
    async with serve(console={"scopes": ["openid"]}) as served:
        seen = []
        for _ in range(2):
            browser = another(served)
            begun = await browser.client.get("/console/sign-in/with/login", params={"next": "/console/people"})
            assert begun.status_code == 303
            cookie = begun.headers["set-cookie"]
            assert all(part in cookie.lower() for part in ("httponly", "samesite=lax", "max-age=600"))
            fields = dict(parse_qsl(urlsplit(begun.headers["location"]).query))
            secret = cookie.partition("=")[2].split(".")[1]
            assert secret not in begun.headers["location"]
            assert (fields["code_challenge_method"], fields["response_type"]) == ("S256", "code")
            seen += [fields["state"], fields["nonce"], fields["code_challenge"]]
            await browser.client.aclose()
        assert len(set(seen)) == 6
        assert (await served.client.get("/console/sign-in/with/nobody")).status_code == 404


ID_TOKENS: tuple[tuple[dict[str, Any] | None, str | None], ...] = (
    ({}, None),
    (None, "no ID token"),
    ({"nonce": "another"}, "another sign-in"),
    ({"nonce": None}, "another sign-in"),
    ({"aud": "another client"}, "another audience"),
    ({"aud": ["myria console", "other"], "azp": "other"}, "another client"),
    ({"sub": "bob"}, "names somebody else"),
    ({"exp": 1}, "expired"),
    ({"iss": "https://login.example.com"}, "issuer is not known"),
)


async def test_an_id_token_must_be_of_this_sign_in(serve: Serve, login: Login) -> None:
    """With the scope `openid`, it must name this client, this sign-in, and the subject of the access token."""
    async with serve(console={"scopes": ["openid", "memory:read"]}) as served:
        for identity, said in ID_TOKENS:
            login.ways.identity = identity
            browser, page = await sign_in(served)
            if said is None:
                assert page.url.path == "/console/ask"
            else:
                assert page.status_code == 401
                assert said in text_of(page.text)
            await browser.client.aclose()


@pytest.mark.parametrize("posted", [False, True])
async def test_a_confidential_client_shows_its_secret(serve: Serve, login: Login, tmp_path: Path, posted: bool) -> None:
    """In the header, or in the form where the issuer takes it there alone."""
    secret = "s%cret :&é"
    (tmp_path / "secret").write_text(secret + "\n")
    if posted:
        login.ways.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    async with serve(console={"client_secret": f"${{file:{tmp_path}/secret}}"}) as served:
        browser, page = await sign_in(served)
        assert page.url.path == "/console/ask"
        await browser.client.aclose()
    (exchange,) = login.exchanges
    if posted:
        assert exchange["client_secret"] == secret
    else:
        encoded = base64.b64decode(exchange["authorization"].removeprefix("Basic ")).decode()
        assert encoded == "myria%20console:s%25cret%20%3A%26%C3%A9"
        assert "client_secret" not in exchange


async def test_a_secret_that_is_not_there_is_said_at_the_start(serve: Serve) -> None:
    """The server does not start without it, and the message names the place."""
    with pytest.raises(ConfigurationError, match="NO_SUCH_VARIABLE"):
        async with serve(console={"client_secret": "${NO_SUCH_VARIABLE}"}):
            pass


async def test_a_session_ends_with_its_token(serve: Serve, login: Login, clock: Clock) -> None:
    """Once the token has ended, the next page leads to sign in, and from there back."""
    async with serve() as served:
        browser, _ = await sign_in(served)
        clock.later_s = 600 + 25  # within the leeway of 30 s
        assert (await browser.get("/console/people")).url.path == "/console/people"
        clock.later_s = 600 + 35
        asked = await browser.get("/console/people")
        assert (asked.url.path, asked.url.params["next"]) == ("/console/sign-in", "/console/people")
        clock.later_s = 0.0
        links = [attributes.get("href") or "" for tag, attributes in elements(asked.text) if tag == "a"]
        back = await browser.get(next(link for link in links if "/sign-in/with/" in link))
        assert back.url.path == "/console/people"
        await browser.client.aclose()


async def test_a_session_ends_with_a_withdrawn_key_and_a_suspended_tenant(
    serve: Serve, login: Login, store: AccessStore, clock: Clock
) -> None:
    """The token is verified at each request, so what ends it at the APIs ends it here."""
    async with serve() as served:
        browser, _ = await sign_in(served)
        await store.suspend_tenant("default")
        for _ in range(200):
            page = await browser.get("/console/people")
            if page.status_code == 403:
                break
        assert "suspended" in text_of(page.text)
        await store.resume_tenant("default")
        login.ways.access = {"team": "b"}
        other, _ = await sign_in(served)
        assert "tenant other" in text_of((await other.get("/console/people")).text)
        login.keys = {"k2": rsa_key(2)}
        clock.ticked_s = 11.0
        api = str(served.client.base_url).rstrip("/") + "/mcp"
        await append(served, login.access_token(api, team="b", kid="k2"), "this fetches the keys anew")
        assert (await other.get("/console/people")).url.path == "/console/sign-in"
        await browser.client.aclose()
        await other.client.aclose()


async def test_signing_out_ends_the_session_everywhere(serve: Serve) -> None:
    """A copied cookie is worth nothing after its session was signed out."""
    async with serve() as served:
        browser, page = await sign_in(served)
        thief = another(served)
        thief.client.cookies.update(dict(browser.client.cookies))
        assert (await thief.get("/console/people")).url.path == "/console/people"
        await browser.submit(page, "/console/sign-out")
        assert await signed_out(thief)
        await browser.client.aclose()
        await thief.client.aclose()


async def test_sessions_and_sign_ins_of_a_subject_are_bounded(serve: Serve) -> None:
    """One more browser signs the oldest out; too many sign-ins a minute are refused."""
    async with serve(auth={"sign_ins_per_minute": 4}) as served:
        browsers = [(await sign_in(served))[0] for _ in range(3)]
        assert await signed_out(browsers[0])
        assert (await browsers[1].get("/console/people")).url.path == "/console/people"
        browsers.append((await sign_in(served))[0])
        last, page = await sign_in(served)
        assert page.status_code == 429
        for browser in (*browsers, last):
            await browser.client.aclose()


async def test_answers_from_one_address_are_bounded(serve: Serve, login: Login) -> None:
    """Who sends answer after answer makes the server ask the issuer no more often than it may."""
    login.ways.answer = {"code": "guess"}
    async with serve(auth={"failures_per_minute": 3}) as served:
        for _ in range(6):
            browser, page = await sign_in(served)
            await browser.client.aclose()
        assert page.status_code == 429
        assert len(login.exchanges) == 3


async def test_an_administrator_by_token_has_what_needs_no_proof(serve: Serve, login: Login) -> None:
    """It sees operations and changes; the audit and keys, which the database gives for a proof alone, ask for a key."""
    login.ways.access = {"team": "a", "scope": "memory:steer"}
    async with serve() as served:
        browser, _ = await sign_in(served)
        assert "What it uses, and may" in text_of((await browser.get("/console/operations")).text)
        for path in ("keys", "keys/grants", "audit"):
            page = await browser.get(f"/console/{path}")
            assert page.status_code == 200
            assert "nly a" in text_of(page.text)
        refused = await browser.get("/console/keys/new")
        assert "signed in with a key" in text_of(refused.text)
        await browser.client.aclose()


async def test_an_audience_of_the_issuer_counts_here_too(serve: Serve, login: Login) -> None:
    """With `audiences`, a token for one of these is good at the console; then no resource need be asked for."""
    login.ways.access = {"team": "a", "aud": "memory"}
    async with serve(console={"resource": ""}, audiences=["memory"]) as served:
        browser, page = await sign_in(served)
        assert page.url.path == "/console/ask"
        assert "resource" not in login.exchanges[0]
        assert not any("resource" in asked for asked in login.codes.values())
        await browser.client.aclose()


async def test_a_sign_in_may_end_at_another_server(serve: Serve, login: Login) -> None:
    """Nothing of it is in a process: one server begins it, another one finishes it, and both know the session."""
    async with serve() as first, serve(auth={"public_url": str(first.client.base_url).rstrip("/")}) as second:
        browser, same = another(first), another(second)
        begun = await browser.client.get("/console/sign-in/with/login", params={"next": "/console/people"})
        same.client.cookies.update(dict(browser.client.cookies))
        back = await same.client.get(begun.headers["location"])
        page = await same.get(back.headers["location"].replace(str(first.client.base_url), str(second.client.base_url)))
        assert str(page.url).startswith(str(second.client.base_url))
        assert page.url.path == "/console/people"
        browser.client.cookies.update(dict(same.client.cookies))
        assert (await browser.get("/console/people")).url.path == "/console/people"
        await browser.client.aclose()
        await same.client.aclose()


async def test_signing_in_leads_nowhere_else(serve: Serve) -> None:
    """An address to go on to that is not a page of the console is dropped, also a long one, or one in the cookie."""
    evil = ("https://evil.example/", "//evil.example", "/console/../mcp", "/console/\\evil", "x")
    async with serve() as served:
        for asked in (*evil, "/console/ask?q=" + "x" * 3_000):
            browser = another(served)
            page = await browser.get("/console/sign-in/with/login", next=asked)
            assert (page.url.host, page.url.path, page.url.query) == ("127.0.0.1", "/console/ask", b"")
            await browser.client.aclose()
        kept = base64.urlsafe_b64encode(evil[0].encode()).decode().rstrip("=")
        planted = another(served)
        begun = await planted.client.get("/console/sign-in/with/login")
        name, secret, _ = begun.headers["set-cookie"].partition("=")[2].partition(";")[0].split(".")
        planted.client.cookies.set("myria_signing_in", f"{name}.{secret}.{kept}", domain="127.0.0.1", path="/")
        back = await planted.client.get(begun.headers["location"])
        done = await planted.client.get(back.headers["location"])
        assert "evil" not in done.headers.get("location", "")
        await planted.client.aclose()


async def test_over_tls_no_other_site_can_plant_the_cookie(serve: Serve) -> None:
    """The cookie is for this host alone, and travels over TLS alone."""
    async with serve(auth={"public_url": "https://memory.example.com"}) as served:
        begun = await served.client.get("/console/sign-in/with/login", headers={"host": "memory.example.com"})
        cookie = begun.headers["set-cookie"]
        assert cookie.startswith("__Host-myria_signing_in=login.")
        assert all(part in cookie.lower() for part in ("secure", "path=/;"))
        fields = dict(parse_qsl(urlsplit(begun.headers["location"]).query))
        assert fields["redirect_uri"] == "https://memory.example.com/console/signed-in/login"
        assert fields["resource"] == "https://memory.example.com/console"


async def test_limits_of_a_subject_hold_for_pages(serve: Serve) -> None:
    """The requests that the issuer's entry allows a subject are those of its pages too."""
    async with serve(requests_per_s=0.01) as served:
        browser, _ = await sign_in(served)
        statuses = [(await browser.get("/console/people")).status_code for _ in range(3)]
        assert statuses[-1] == 429
        await browser.client.aclose()


async def test_without_a_client_nothing_is_offered(serve: Serve, store: AccessStore) -> None:
    """An issuer of the APIs alone is no way to sign in."""
    async with serve(console=False) as served:
        page = await served.client.get("/console/sign-in")
        assert "Sign in with" not in text_of(page.text)
        for path in ("/console/sign-in/with/login", "/console/signed-in/login?code=a&state=b"):
            assert (await served.client.get(path)).status_code == 404


async def test_a_token_that_is_too_long_is_not_kept(database: Database, store: AccessStore) -> None:
    """The bound is that of the APIs; a tenant that is not there keeps none either."""
    del store
    async with Pool(database.server_dsn) as pool:
        sessions = ConsoleSessions(pool, lifetime_s=60, most=2)
        with pytest.raises(CredentialInvalid):
            await sessions.keep_token("x" * 8_193, tenant="default", subject="login:ada", lifetime_s=60)
        assert await sessions.keep_token("x" * 8_192, tenant="default", subject="login:ada", lifetime_s=60)
        assert await sessions.keep_token("x", tenant="nobody", subject="login:ada", lifetime_s=60) is None
