"""Our own authorization server: a program that knows nothing but the address gets tokens for what a key may do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from myria.access.grants import ACCESS_S
from myria.access.secrets import hide_keys
from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.http.listening import reserve_port
from tests.server.signing_in import (
    CALLBACK,
    CHALLENGE,
    PUBLIC_URL,
    answer,
    client_id,
    code_for,
    consent,
    exchange,
    refresh,
    register,
    request_of,
    send,
    tokens,
)
from tests.server.wire import Served, event, serving
from tests.support.consent import Form, press
from tests.support.keys import make_key
from tests.support.postgres import Database


@pytest.fixture
async def served(memory: Memory, store: AccessStore) -> AsyncIterator[Served]:
    """A server that is an authorization server too."""
    del store
    auth = AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True, failures_per_minute=None)
    async with serving(memory, Settings(auth=auth)) as served:
        yield served


async def refused_soon(served: Served, token: str) -> str:
    """Wait until a token is refused; return the code."""
    while (response := await send(served, token)).status_code == 200:
        pass
    return str(response.json()["error"]["data"]["code"])


async def test_the_metadata_says_what_is_needed(served: Served) -> None:
    """A client finds the server by the resource's metadata, and its endpoints by its own (RFC 9728, RFC 8414)."""
    resource = (await served.client.get("/.well-known/oauth-protected-resource/mcp")).json()
    assert (resource["resource"], resource["authorization_servers"]) == (f"{PUBLIC_URL}/mcp", [PUBLIC_URL])
    assert resource["scopes_supported"] == ["append", "read"]
    server = (await served.client.get("/.well-known/oauth-authorization-server")).json()
    assert server["issuer"] == PUBLIC_URL
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["token_endpoint_auth_methods_supported"] == ["none"]


async def test_it_is_off_by_default(memory: Memory) -> None:
    """Then none of its paths exists."""
    async with serving(memory, Settings(auth=AuthSettings(mode="keys"))) as served:
        for path in ("/.well-known/oauth-authorization-server", "/oauth/authorize"):
            assert (await served.client.get(path)).status_code == 404


async def test_a_token_does_what_was_granted_and_no_more(served: Served, store: AccessStore) -> None:
    """The key's participants, the granted scopes of its roles, at the face that was named."""
    text = await make_key(store, "ada", roles=("read", "append", "admin"), faces=("core", "admin"))
    program = await client_id(served)
    whole = await tokens(served, program, text)
    assert (whole["token_type"], whole["scope"]) == ("Bearer", "append read")
    new = {name: value for name, value in event("e1").items() if name != "participants"}
    appended = (await send(served, whole["access_token"], "append_event", new)).json()["result"]["structuredContent"]
    assert appended["participants"] == ["ada"]
    at_admin = await send(served, whole["access_token"], "get_snapshot_status", {}, path="/mcp/admin")
    assert at_admin.status_code == 403
    reading = await tokens(served, program, text, scope="read")
    assert (await send(served, reading["access_token"])).status_code == 200
    refused = await send(served, reading["access_token"], "append_event", new)
    assert refused.status_code == 403
    assert 'scope="append"' in refused.headers["www-authenticate"]
    steering = await tokens(served, program, text, resource=f"{PUBLIC_URL}/mcp/admin")
    assert (await send(served, steering["access_token"], "trigger_build", {}, path="/mcp/admin")).status_code == 200
    assert (await send(served, steering["access_token"])).status_code == 403


async def test_a_token_ends_with_its_key_and_its_tenant(served: Served, store: AccessStore) -> None:
    """Access tokens within a second, refresh tokens and codes at once."""
    program = await client_id(served)
    text = await make_key(store, "ada")
    issued, waiting = await tokens(served, program, text), await code_for(served, program, text)
    assert (await send(served, issued["access_token"])).status_code == 200
    await store.revoke_key(text.split("_")[1])
    assert await refused_soon(served, issued["access_token"]) == "credential_invalid"
    assert (await refresh(served, program, issued["refresh_token"])).json()["error"] == "invalid_grant"
    assert (await exchange(served, program, waiting)).json()["error"] == "invalid_grant"
    other = await make_key(store, "ada", tenant="other")
    issued = await tokens(served, program, other)
    assert (await send(served, issued["access_token"])).status_code == 200
    await store.suspend_tenant("other")
    assert await refused_soon(served, issued["access_token"]) == "tenant_suspended"
    assert (await refresh(served, program, issued["refresh_token"])).json()["error"] == "invalid_grant"


async def test_a_code_is_good_once(served: Served, store: AccessStore) -> None:
    """Shown twice, it ends the tokens that it gave the first time."""
    program = await client_id(served)
    code = await code_for(served, program, await make_key(store, "ada"))
    issued = (await exchange(served, program, code)).json()
    assert (await send(served, issued["access_token"])).status_code == 200
    again = await exchange(served, program, code)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert await refused_soon(served, issued["access_token"]) == "credential_invalid"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": "w" * 43}, "invalid_grant"),
        ({"code_verifier": "v" * 42}, "invalid_grant"),
        ({"code_verifier": CHALLENGE}, "invalid_grant"),
        ({"code_verifier": None}, "invalid_request"),
        ({"redirect_uri": "https://app.example.com/callback"}, "invalid_grant"),
        ({"redirect_uri": None}, "invalid_request"),
        ({"resource": f"{PUBLIC_URL}/mcp/admin"}, "invalid_grant"),
        ({"resource": "https://elsewhere.example.com/mcp"}, "invalid_target"),
        ({"code": "myc_" + "a" * 40}, "invalid_grant"),
        ({"client_id": "0" * 32}, "invalid_client"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
    ],
)
async def test_a_code_wants_everything_as_it_was_asked_for(
    served: Served, store: AccessStore, changes: dict[str, Any], error: str
) -> None:
    """PKCE, the redirect address, the resource, the client."""
    program = await client_id(served)
    code = await code_for(served, program, await make_key(store, "ada"))
    response = await exchange(served, program, code, **changes)
    assert response.status_code in (400, 401)
    assert response.json()["error"] == error
    assert response.headers["cache-control"] == "no-store"


async def test_a_code_is_its_clients_alone_and_short_lived(
    served: Served, store: AccessStore, database: Database
) -> None:
    """Another program gets nothing for it, and after a minute nobody does."""
    first, second = await client_id(served), await client_id(served)
    text = await make_key(store, "ada")
    code = await code_for(served, first, text)
    assert (await exchange(served, second, code)).json()["error"] == "invalid_grant"
    assert (await exchange(served, first, code)).status_code == 200
    late = await code_for(served, first, text)
    await owner(database, "UPDATE myria.oauth_grants SET code_expires_at = clock_timestamp() - interval '1 second'")
    assert (await exchange(served, first, late)).json()["error"] == "invalid_grant"


async def owner(database: Database, statement: str) -> None:
    """Run a statement on all tenants' rows."""
    connection = await asyncpg.connect(database.dsn)
    try:
        await connection.execute("SELECT set_config('myria.tenant', '*', false)")
        await connection.execute(statement)
    finally:
        await connection.close()


async def test_a_refresh_token_is_good_once_and_reuse_ends_the_family(served: Served, store: AccessStore) -> None:
    """Whoever shows a used one may be a thief, so nobody keeps anything; other grants stay."""
    program, text = await client_id(served), await make_key(store, "ada")
    first, apart = await tokens(served, program, text), await tokens(served, program, text)
    second = (await refresh(served, program, first["refresh_token"])).json()
    assert len({first["access_token"], second["access_token"], first["refresh_token"], second["refresh_token"]}) == 4
    assert (await send(served, second["access_token"])).status_code == 200
    foreign = await refresh(served, await client_id(served), second["refresh_token"])
    assert foreign.json()["error"] == "invalid_grant"
    assert (await refresh(served, program, first["refresh_token"])).json()["error"] == "invalid_grant"
    assert (await refresh(served, program, second["refresh_token"])).json()["error"] == "invalid_grant"
    assert await refused_soon(served, second["access_token"]) == "credential_invalid"
    assert (await send(served, apart["access_token"])).status_code == 200
    assert (await refresh(served, program, apart["refresh_token"])).status_code == 200


async def test_of_exchanges_at_once_one_wins_and_the_grant_ends(served: Served, store: AccessStore) -> None:
    """A race is no way to two families of tokens, neither with a code nor with a refresh token."""
    program, text = await client_id(served), await make_key(store, "ada")
    code = await code_for(served, program, text)
    token = (await tokens(served, program, text))["refresh_token"]
    for answers in (
        await asyncio.gather(*(exchange(served, program, code) for _ in range(5))),
        await asyncio.gather(*(refresh(served, program, token) for _ in range(5))),
    ):
        won = [response.json() for response in answers if response.status_code == 200]
        assert len(won) == 1
        assert (await refresh(served, program, won[0]["refresh_token"])).json()["error"] == "invalid_grant"
        assert await refused_soon(served, won[0]["access_token"]) == "credential_invalid"


async def test_a_revoked_token_takes_its_family_along(served: Served, store: AccessStore) -> None:
    """RFC 7009: by either token, by its own client alone; an unknown one is as good as revoked."""
    program, text = await client_id(served), await make_key(store, "ada")
    for kind in ("access_token", "refresh_token"):
        issued = await tokens(served, program, text)
        form = {"token": issued[kind], "client_id": await client_id(served)}
        assert (await served.client.post("/oauth/revoke", data=form)).status_code == 200
        assert (await send(served, issued["access_token"])).status_code == 200
        form["client_id"] = program
        assert (await served.client.post("/oauth/revoke", data=form)).status_code == 200
        assert await refused_soon(served, issued["access_token"]) == "credential_invalid"
        assert (await refresh(served, program, issued["refresh_token"])).json()["error"] == "invalid_grant"
    form = {"token": "mya_" + "a" * 40, "client_id": program}
    assert (await served.client.post("/oauth/revoke", data=form)).status_code == 200


async def test_other_texts_are_no_access_tokens(served: Served, store: AccessStore, database: Database) -> None:
    """Neither a refresh token nor a code, nor an access token after its hour."""
    program, text = await client_id(served), await make_key(store, "ada")
    code = await code_for(served, program, text)
    issued = (await exchange(served, program, code)).json()
    for shown in (issued["access_token"], issued["refresh_token"], code):
        assert shown not in hide_keys(f"a log line with {shown} in it")
    for shown in (issued["refresh_token"], code, "mya_" + "a" * 40, issued["refresh_token"].replace("myf_", "mya_")):
        assert (await send(served, shown)).status_code == 401
    await owner(database, "UPDATE myria.oauth_tokens SET expires_at = clock_timestamp() - interval '1 second'")
    assert (await send(served, issued["access_token"])).status_code == 401
    assert (await refresh(served, program, issued["refresh_token"])).json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"scope": "read everything"}, "invalid_scope"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"resource": "https://elsewhere.example.com/mcp"}, "invalid_target"),
    ],
)
async def test_what_a_program_asks_wrongly_is_told_to_it(served: Served, changes: dict[str, Any], error: str) -> None:
    """At its registered address, with its state, and with who says so (RFC 9207); a form is checked as a link is."""
    fields = request_of(await client_id(served), **changes)
    for response in (
        await served.client.get("/oauth/authorize", params=fields),
        await served.client.post("/oauth/authorize", data={**fields, "decision": "allow", "key": "x"}),
    ):
        told = answer(response)
        assert (told["error"], told["state"], told["iss"]) == (error, fields["state"], PUBLIC_URL)


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "0" * 32},
        {"client_id": None},
        {"redirect_uri": "https://app.example.com/callback"},
        {"redirect_uri": CALLBACK + "&a=b"},
        {"redirect_uri": "https://app.example.com:443/callback?from=myria"},
        {"redirect_uri": "https://app.example.com.evil.example/callback?from=myria"},
        {"redirect_uri": None},
    ],
)
async def test_nothing_is_sent_to_an_address_that_was_not_registered(
    served: Served, store: AccessStore, changes: dict[str, Any]
) -> None:
    """Not one letter may differ; the person is told instead."""
    fields = request_of(await client_id(served), **changes)
    text = await make_key(store, "ada")
    for response in (
        await served.client.get("/oauth/authorize", params=fields),
        await served.client.post("/oauth/authorize", data={**fields, "decision": "allow", "key": text}),
        await served.client.post("/oauth/authorize", data={**fields, "decision": "deny"}),
    ):
        assert response.status_code == 400
        assert "location" not in response.headers
        assert 'role="alert"' in response.text


async def test_a_person_can_say_no(served: Served, store: AccessStore) -> None:
    """No key is needed for that, and none is used."""
    fields = request_of(await client_id(served))
    told = answer(await consent(served, fields, await make_key(store, "ada"), decision="deny"))
    assert (told["error"], told["state"]) == ("access_denied", fields["state"])


async def test_a_key_that_is_not_good_shows_the_page_again(served: Served, store: AccessStore) -> None:
    """With what is wrong; the program learns nothing."""
    fields = request_of(await client_id(served))
    revoked = await make_key(store, "ada")
    await store.revoke_key(revoked.split("_")[1])
    steering = await make_key(store, roles=("admin",), faces=("admin",))
    for text, status in (("", 401), ("nonsense", 401), ("myr_aaaaaaaaaaaa_" + "a" * 32, 401), (revoked, 401)):
        response = await consent(served, fields, text)
        assert (response.status_code, "location" in response.headers) == (status, False)
        assert 'role="alert"' in response.text
        assert Form(response.text).fields == fields
        assert not text or text not in response.text
    assert (await consent(served, fields, steering)).status_code == 403


async def test_guessing_keys_on_the_page_is_slowed_down(memory: Memory, store: AccessStore) -> None:
    """As at MCP: 429 after too many bad ones, while a good one is still taken."""
    auth = AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True, failures_per_minute=3)
    async with serving(memory, Settings(auth=auth), ticks=lambda: 1000.0) as served:
        fields = request_of(await client_id(served))
        statuses = [(await consent(served, fields, "nonsense")).status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        assert "code" in answer(await consent(served, fields, await make_key(store, "ada")))


async def test_the_page_is_safe_and_can_be_used_by_everybody(served: Served) -> None:
    """No scripts, nothing from elsewhere, no frames; a language, labels, and names escaped."""
    evil = "<script>alert('x')</script>\"&"
    program = (await register(served, client_name=evil)).json()["client_id"]
    response = await served.client.get("/oauth/authorize", params=request_of(program))
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action" not in policy, "it would hold the redirects of the client's own site"
    assert "unsafe" not in policy
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["cache-control"] == "no-store"
    style = re.search(r"<style>(.*?)</style>", response.text, re.DOTALL)
    assert style is not None
    assert base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode() in policy
    page = Form(response.text)
    names = [tag for tag, _ in page.tags]
    assert "script" not in names
    assert "<script" not in response.text
    assert ("html", {"lang": "en"}) in page.tags
    shown = [attributes for tag, attributes in page.tags if tag == "input" and attributes["type"] != "hidden"]
    labels = [attributes["for"] for tag, attributes in page.tags if tag == "label"]
    assert [attributes["id"] for attributes in shown] == labels == ["key"]
    assert names.count("button") == 2
    assert not any(name[:2] == "on" or name == "style" for _, attributes in page.tags for name in attributes)


@pytest.mark.parametrize(
    "uri",
    [
        "http://app.example.com/callback",
        "javascript:alert(1)",
        "data:text/html,x",
        "javascript://app.example.com/%0aalert(1)",
        "https://user:secret@app.example.com/",
        "https://app.example.com/#fragment",
        "https:///nowhere",
        "https://app.example.com/a b",
        "https://app.example.com/;script-src *",
        "https://app.example.com/" + "a" * 500,
        "//app.example.com/callback",
        "",
    ],
)
async def test_addresses_that_no_program_may_have_are_refused(served: Served, uri: str) -> None:
    """Coded as RFC 7591 does."""
    response = await register(served, redirect_uris=[CALLBACK, uri])
    assert (response.status_code, response.json()["error"]) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"redirect_uris": "x"}', 400),
        (b'{"client_name": 7}', 400),
        (b'{"redirect_uris": []}', 400),
        (b'{"redirect_uris": [7]}', 400),
        (b'{"client_name": "\\u0000", "redirect_uris": ["https://a.example/"]}', 400),
        (b" " * 20_000, 413),
    ],
)
async def test_registrations_that_are_none_are_refused(served: Served, body: bytes, status: int) -> None:
    """Bounded in size, coded."""
    response = await served.client.post("/oauth/register", content=body)
    assert response.status_code == status
    assert "error" in response.json()


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke", "/oauth/authorize"])
async def test_forms_that_are_none_are_refused(served: Served, path: str) -> None:
    """Repeated parameters, other encodings, too much: never a 5xx."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    for body, sent in (
        (b"client_id=a&client_id=b", form),
        (b"a=%00", form),
        (b"a=%ff", form),
        (b"\xff=1", form),
        (b"&".join(b"f%d=1" % number for number in range(100)), form),
        (b"a=" + b"x" * 20_000, form),
        (b'{"client_id": "a"}', {"content-type": "application/json"}),
        (b"--x\r\n\r\n--x--", {"content-type": "multipart/form-data; boundary=x"}),
        (b"", {}),
    ):
        response = await served.client.post(path, content=body, headers=sent)
        assert 400 <= response.status_code < 500, body[:20]


async def test_grants_are_nobodys_to_read(store: AccessStore, database: Database) -> None:
    """The serving role reaches them by showing a secret alone."""
    del store
    connection = await asyncpg.connect(database.server_dsn)
    try:
        for table in ("oauth_grants", "oauth_tokens"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch(f"SELECT * FROM myria.{table}")
    finally:
        await connection.close()


@dataclass
class Kept:
    """Where the SDK's client keeps what it got."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None
    asked: list[str] = field(default_factory=list)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registration."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a registration."""
        self.client = client_info


async def test_a_real_client_connects_with_nothing_but_the_address(
    memory: Memory, store: AccessStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The MCP SDK's own flow: challenge, metadata, registration, consent, tokens, calls, and a refresh on the way."""
    text = await make_key(store, "ada")
    sock = reserve_port("127.0.0.1", 0)
    public_url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    auth = AuthSettings(mode="keys", public_url=public_url, server=True)
    async with serving(memory, Settings(auth=auth), sock=sock) as served:
        kept = Kept()
        back: dict[str, str] = {}

        async def browse(url: str) -> None:
            kept.asked.append(url)
            response = await press(served.client, url, text)
            assert response.status_code == 303, response.text
            back.update(parse_qsl(urlsplit(response.headers["location"]).query))

        async def returned() -> AuthorizationCodeResult:
            return AuthorizationCodeResult(code=back["code"], state=back["state"], iss=back["iss"])

        provider = OAuthClientProvider(
            f"{public_url}/mcp",
            OAuthClientMetadata.model_validate(
                {"client_name": "Editor", "redirect_uris": ["http://127.0.0.1:7777/callback"]}
            ),
            kept,
            redirect_handler=browse,
            callback_handler=returned,
        )
        async with contextlib.AsyncExitStack() as stack:
            http = await stack.enter_async_context(create_mcp_http_client(auth=provider))
            transport = streamable_http_client(f"{public_url}/mcp", http_client=http)
            client = await stack.enter_async_context(Client(transport))
            new = {name: value for name, value in event("e1").items() if name != "participants"}
            appended = await client.call_tool("myria_append_event", new)
            assert appended.structured_content is not None
            assert appended.structured_content["participants"] == ["ada"]
            assert (first := kept.tokens) is not None
            over = SimpleNamespace(time=lambda: time.time() + ACCESS_S + 1)
            for module in ("mcp.client.auth.oauth2", "mcp.shared.auth_utils"):
                monkeypatch.setattr(f"{module}.time", over)
            found = await client.call_tool("myria_query_event_nodes", {"query": "memory"})
            assert found.structured_content is not None
            assert found.structured_content["counts"]["events"] == 1
        assert len(kept.asked) == 1
        assert kept.tokens is not None
        assert kept.tokens.access_token != first.access_token
        assert kept.tokens.scope == "append read"
