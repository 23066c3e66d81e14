"""The way of a program through our authorization server, a step at a time, as it goes over the wire."""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.server.wire import MODERN, Served, call, headers
from tests.support.consent import press

PUBLIC_URL = "https://memory.example.com"
CALLBACK = "https://app.example.com/callback?from=myria"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()


async def register(served: Served, **changes: Any) -> httpx.Response:
    """Register a program."""
    return await served.client.post(
        "/oauth/register", json={"client_name": "Editor", "redirect_uris": [CALLBACK], **changes}
    )


async def client_id(served: Served) -> str:
    """Register a program and return its id."""
    response = await register(served)
    assert response.status_code == 201, response.text
    return str(response.json()["client_id"])


def request_of(client: str, **changes: Any) -> dict[str, str]:
    """Return the parameters of an authorization request; None leaves one out."""
    fields = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": CALLBACK,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "st&ate=\"<'",
        "resource": f"{PUBLIC_URL}/mcp",
        **changes,
    }
    return {name: value for name, value in fields.items() if value is not None}


async def consent(served: Served, fields: dict[str, str], text: str, decision: str = "allow") -> httpx.Response:
    """Open the page as a person does, type a key and press a button."""
    return await press(served.client, str(httpx.URL("/oauth/authorize", params=fields)), text, decision)


def answer(response: httpx.Response) -> dict[str, str]:
    """Return what a redirect brings back to the program."""
    assert response.status_code == 303, response.text
    assert response.headers["location"].startswith("https://app.example.com/callback?from=myria&")
    return dict(parse_qsl(urlsplit(response.headers["location"]).query))


async def code_for(served: Served, client: str, text: str, **changes: Any) -> str:
    """Return the code of a whole consent."""
    return answer(await consent(served, request_of(client, **changes), text))["code"]


async def exchange(served: Served, client: str, shown: str, **changes: Any) -> httpx.Response:
    """Exchange a code."""
    fields = {
        "grant_type": "authorization_code",
        "client_id": client,
        "code": shown,
        "redirect_uri": CALLBACK,
        "code_verifier": VERIFIER,
        **changes,
    }
    return await served.client.post("/oauth/token", data={k: v for k, v in fields.items() if v is not None})


async def refresh(served: Served, client: str, token: str, **changes: Any) -> httpx.Response:
    """Exchange a refresh token."""
    fields = {"grant_type": "refresh_token", "client_id": client, "refresh_token": token, **changes}
    return await served.client.post("/oauth/token", data=fields)


async def tokens(served: Served, client: str, text: str, **changes: Any) -> dict[str, Any]:
    """Return the tokens of a whole consent."""
    response = await exchange(served, client, await code_for(served, client, text, **changes))
    assert response.status_code == 200, response.text
    return dict(response.json())


async def send(
    served: Served, token: str, name: str = "query_references", arguments: Any = None, path: str = "/mcp"
) -> httpx.Response:
    """Call a tool with a token."""
    full = f"myria_{name}"
    sent = headers(full, version=MODERN) | {"authorization": f"Bearer {token}"}
    return await served.post(call(full, {"query": "plan"} if arguments is None else arguments), sent, path=path)
