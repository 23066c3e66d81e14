"""What assistants and editors send when they sign in, as public reports of them show it; docs/oauth.md lists them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from myria.access.store import AccessStore
from myria.memory import Memory
from myria.settings import AuthSettings, McpSettings, Settings
from tests.server.signing_in import CHALLENGE, PUBLIC_URL, VERIFIER, send
from tests.server.wire import Served, serving
from tests.support.consent import press
from tests.support.keys import make_key

PAGE = "https://inspector.example.com"


@dataclass(frozen=True, kw_only=True)
class Host:
    """How a program registers and asks.

    Attributes:
        answered_at: where it asks to be answered, one of its `redirect_uris` but for the port of loopback.
        registration: what it sends beside these.
        request: what it adds to an authorization request.
        exchange: what it adds to a form for tokens.
    """

    redirect_uris: tuple[str, ...]
    answered_at: str
    registration: dict[str, Any] = field(default_factory=dict)
    request: dict[str, str] = field(default_factory=dict)
    exchange: dict[str, str] = field(default_factory=dict)


PUBLIC = {"token_endpoint_auth_method": "none", "response_types": ["code"]}
BOTH = {"grant_types": ["authorization_code", "refresh_token"]}
RESOURCE = {"resource": f"{PUBLIC_URL}/mcp"}

HOSTS = {
    "Claude": Host(
        redirect_uris=("https://claude.ai/api/mcp/auth_callback",),
        answered_at="https://claude.ai/api/mcp/auth_callback",
        registration={**BOTH, "token_endpoint_auth_method": "client_secret_post", "scope": "append read"},
        request={**RESOURCE, "scope": "append read"},
        exchange=RESOURCE,
    ),
    # Its scopes are the resource's, and one for refresh tokens; the registration names none.
    "Claude Code": Host(
        redirect_uris=("http://localhost:51234/callback",),
        answered_at="http://localhost:51234/callback",
        registration={**BOTH, **PUBLIC},
        request={**RESOURCE, "scope": "append read offline_access", "prompt": "consent"},
        exchange=RESOURCE,
    ),
    # Connecting a second time it names no scope.
    "ChatGPT": Host(
        redirect_uris=("https://chatgpt.com/connector_platform_oauth_redirect",),
        answered_at="https://chatgpt.com/connector_platform_oauth_redirect",
        registration={**BOTH, "token_endpoint_auth_method": "client_secret_basic"},
        request=RESOURCE,
    ),
    # Its own port may be taken; then it listens on another one than it registered.
    "Visual Studio Code": Host(
        redirect_uris=(
            "https://insiders.vscode.dev/redirect",
            "https://vscode.dev/redirect",
            "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
        ),
        answered_at="http://127.0.0.1:59656/",
        registration={**BOTH, **PUBLIC, "application_type": "native", "client_uri": "https://code.visualstudio.com"},
        request={**RESOURCE, "scope": "openid profile email"},
    ),
    "Copilot CLI": Host(
        redirect_uris=("http://127.0.0.1:56679/",),
        answered_at="http://127.0.0.1:61234/",
        registration={**BOTH, **PUBLIC, "application_type": "native"},
        request=RESOURCE,
    ),
    "Cursor": Host(
        redirect_uris=(
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "https://www.cursor.com/agents/mcp/oauth/callback",
            "http://localhost:8787/callback",
        ),
        answered_at="cursor://anysphere.cursor-mcp/oauth/callback",
        registration={**BOTH, **PUBLIC},
        request={"scope": "append read"},
    ),
    # Where it learned of no scope, it asks for these.
    "mcp-remote": Host(
        redirect_uris=("http://localhost:3334/oauth/callback",),
        answered_at="http://localhost:3334/oauth/callback",
        registration={**BOTH, **PUBLIC, "software_id": "2e6dc280", "scope": "openid email profile"},
        request={**RESOURCE, "scope": "openid email profile"},
        exchange=RESOURCE,
    ),
}


@pytest.fixture
async def served(memory: Memory, store: AccessStore) -> AsyncIterator[Served]:
    """An authorization server which pages of one origin may call."""
    del store
    auth = AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True)
    async with serving(memory, Settings(auth=auth, mcp=McpSettings(cors_origins=(PAGE,)))) as served:
        yield served


@pytest.mark.parametrize("name", HOSTS)
async def test_a_host_signs_in_as_it_does(served: Served, store: AccessStore, name: str) -> None:
    """It registers, is answered where it listens, gets tokens for all that the key may do, and refreshes them."""
    host = HOSTS[name]
    body = {"client_name": name, "redirect_uris": [*host.redirect_uris], **host.registration}
    registered = await served.client.post("/oauth/register", json=body)
    assert registered.status_code == 201, registered.text
    client = registered.json()
    assert client["redirect_uris"] == [*host.redirect_uris]
    assert client["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in client
    fields = {
        "response_type": "code",
        "client_id": client["client_id"],
        "redirect_uri": host.answered_at,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "s",
        **host.request,
    }
    asked = served.client.build_request("GET", "/oauth/authorize", params=fields)
    answered = await press(served.client, str(asked.url), await make_key(store, "ada"))
    assert answered.status_code == 303, answered.text
    location = answered.headers["location"]
    assert location.startswith(host.answered_at + "?")
    code = dict(part.split("=") for part in location.partition("?")[2].split("&"))["code"]
    form = {"client_id": client["client_id"], **host.exchange}
    shown = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER}
    exchanged = await served.client.post("/oauth/token", data={**form, **shown, "redirect_uri": host.answered_at})
    assert exchanged.status_code == 200, exchanged.text
    assert exchanged.json()["scope"] == "append read"
    shown = {"grant_type": "refresh_token", "refresh_token": exchanged.json()["refresh_token"]}
    scope = {"scope": host.request["scope"]} if "scope" in host.request else {}
    refreshed = await served.client.post("/oauth/token", data={**form, **shown, **scope})
    assert refreshed.status_code == 200, refreshed.text
    assert (await send(served, refreshed.json()["access_token"])).status_code == 200


@pytest.mark.parametrize(
    ("registered", "asked"),
    [
        ("http://127.0.0.1:7777/callback", "http://127.0.0.1:8888/other"),
        ("http://127.0.0.1:7777/callback", "http://127.0.0.1:8888/callback?more=1"),
        ("http://127.0.0.1:7777/callback", "http://localhost:7777/callback"),
        ("http://127.0.0.1:7777/callback", "https://127.0.0.1:8888/callback"),
        ("http://127.0.0.1:7777/callback", "http://127.0.0.1:99999/callback"),
        ("http://127.0.0.1:7777/callback", "http://127.0.0.1:8888@evil.example/callback"),
        ("http://127.0.0.1:7777/callback", "http://127.0.0.1.evil.example:8888/callback"),
        ("https://app.example.com/callback", "https://app.example.com:8443/callback"),
    ],
)
async def test_of_a_loopback_address_the_port_alone_may_differ(served: Served, registered: str, asked: str) -> None:
    """RFC 8252, section 7.3; of all others nothing may."""
    response = await served.client.post("/oauth/register", json={"redirect_uris": [registered]})
    fields = {
        "response_type": "code",
        "client_id": response.json()["client_id"],
        "redirect_uri": asked,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    page = await served.client.get("/oauth/authorize", params=fields)
    assert page.status_code == 400
    assert "location" not in page.headers


async def test_a_program_finds_its_way_from_wherever_it_begins(served: Served) -> None:
    """The challenge, the resource's description with and without its path, the server's; no OpenID Connect."""
    for method in ("GET", "POST"):
        refused = await served.client.request(method, "/mcp")
        assert refused.status_code == 401
        well_known = f"{PUBLIC_URL}/.well-known/oauth-protected-resource/mcp"
        assert f'resource_metadata="{well_known}"' in refused.headers["www-authenticate"]
    at_path, at_root = [
        (await served.client.get(f"/.well-known/oauth-protected-resource{path}")).json() for path in ("/mcp", "")
    ]
    assert at_path == at_root
    assert at_path["authorization_servers"] == [PUBLIC_URL]
    server = (await served.client.get("/.well-known/oauth-authorization-server")).json()
    assert server["issuer"] == PUBLIC_URL
    # Programs that know of client id metadata documents register instead.
    assert "client_id_metadata_document_supported" not in server
    assert server["registration_endpoint"] == f"{PUBLIC_URL}/oauth/register"
    for path in ("openid-configuration", "openid-configuration/mcp", "oauth-authorization-server/mcp"):
        assert (await served.client.get(f"/.well-known/{path}")).status_code == 404


async def test_a_registration_that_is_gone_is_said_so(served: Served) -> None:
    """401 with invalid_client makes hosts register anew (RFC 6749, section 5.2)."""
    form = {"grant_type": "refresh_token", "client_id": "0" * 32, "refresh_token": "myf_" + "a" * 40}
    refused = await served.client.post("/oauth/token", data=form)
    assert (refused.status_code, refused.json()["error"]) == (401, "invalid_client")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("POST", "/oauth/register"),
        ("POST", "/oauth/token"),
        ("POST", "/oauth/revoke"),
    ],
)
async def test_a_host_in_a_page_may_sign_in(served: Served, method: str, path: str) -> None:
    """Browsers ask first, since the SDK names the protocol's version in a header of its own; others stay out."""
    wanted = {"access-control-request-method": method, "access-control-request-headers": "mcp-protocol-version"}
    preflight = await served.client.options(path, headers={"origin": PAGE, **wanted})
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert preflight.headers["access-control-allow-headers"] == "mcp-protocol-version"
    answered = await served.client.request(method, path, headers={"origin": PAGE})
    assert answered.headers["access-control-allow-origin"] == PAGE
    foreign = await served.client.request(method, path, headers={"origin": "https://evil.example.com"})
    assert "access-control-allow-origin" not in foreign.headers
