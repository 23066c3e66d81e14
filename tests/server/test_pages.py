"""What pages of other origins may do: nothing but what a browser asks the server about first."""

from __future__ import annotations

import json

import httpx
import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, McpSettings, Settings, TurnsSettings
from myria_server.paths import PATH_OF, TURNS_OVER_HTTP
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server import signing_in
from tests.server.signing_in import PUBLIC_URL
from tests.server.wire import Served, serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

LOCAL = Settings(turns=TurnsSettings(enabled=True))
SIGNING_IN = Settings(auth=AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True))
MEMORY = {"agent_id": "bot", "content": "planted"}
TURN = {"turn_id": "t", "input_items": [{"role": "user", "content": "My name is Mallory"}]}
REQUESTS = [
    (f"{PREFIX}/memories", MEMORY),
    (f"{PREFIX}/agents", {"name": "mallory"}),
    (f"{PREFIX}/search", {}),
    (f"{PREFIX}/sessions", {"agent_id": "bot"}),
    ("/v1/turns:after", TURN),
    ("/v1/turns:before", {"current_input": "Who?"}),
    (PATH_OF["turns"], {}),
    (PATH_OF["agent"], {}),
    ("/mcp", {}),
]
"""Requests that a page could want to send, with bodies that nothing is wrong with over plain HTTP."""


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1:1", "http://[::1]:8080"])
@pytest.mark.parametrize(
    "kind",
    ["text/plain", "text/plain;application/json", "application/x-www-form-urlencoded", "multipart/form-data", None],
)
async def test_a_page_of_another_port_sends_no_form(memory: Memory, origin: str, kind: str | None) -> None:
    """A browser sends these without asking first, and this server asks for no key."""
    async with serving(memory, LOCAL) as served:
        for path, body in REQUESTS:
            sent = {"origin": origin} | ({} if kind is None else {"content-type": kind})
            response = await served.client.post(path, content=json.dumps(body).encode(), headers=sent)
            assert 400 <= response.status_code < 500, (path, response.text)
        listed = await served.client.get(f"{PREFIX}/memories")
        assert listed.json()["memories"] == []
        assert (await served.client.get(f"{PREFIX}/agents")).json()["agents"] == []


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
async def test_json_of_a_page_is_taken_and_what_is_no_page_needs_no_type(memory: Memory, kind: str) -> None:
    """A browser asks before it sends JSON elsewhere; a program without an Origin is none."""
    async with serving(memory, LOCAL) as served:
        body = json.dumps(MEMORY).encode()
        sent = {"origin": "http://localhost:3000", "content-type": kind}
        assert (await served.client.post(f"{PREFIX}/memories", content=body, headers=sent)).status_code == 201
        other = json.dumps(MEMORY | {"content": "another"}).encode()
        plain = {"content-type": "text/plain"}
        assert (await served.client.post(f"{PREFIX}/memories", content=other, headers=plain)).status_code == 201
        for path in TURNS_OVER_HTTP:
            told = await served.client.post(path, content=b"{}", headers=sent)
            assert told.status_code != 403, told.text


@pytest.mark.parametrize("host", ["evil.example", "memory.example.com.evil.example", "", "127.0.0.1.evil.example"])
async def test_tokens_and_figures_answer_under_known_names_alone(memory: Memory, host: str) -> None:
    """A page that rebinds its own name to this address reads neither; probes answer whoever asks."""
    async with serving(memory, SIGNING_IN) as served:
        for method, path in (
            ("GET", "/metrics"),
            ("GET", "/oauth/authorize"),
            ("POST", "/oauth/authorize"),
            ("POST", "/oauth/register"),
            ("POST", "/oauth/token"),
            ("POST", "/oauth/revoke"),
        ):
            response = await served.client.request(method, path, headers={"host": host})
            assert (response.status_code, response.json()["error"]["code"]) == (421, "host_not_allowed"), path
        for path in ("/livez", "/healthz", "/readyz"):
            assert (await served.client.get(path, headers={"host": host})).status_code == 200


async def test_they_answer_under_the_names_of_the_server(memory: Memory) -> None:
    """Those that are set, and its public address; figures under any address without a name, as Prometheus asks."""
    named = Settings(auth=SIGNING_IN.auth, mcp=McpSettings(allowed_hosts=("myria", "*.internal.example")))
    async with serving(memory, named) as served:
        for address in ("10.0.0.7", "10.0.0.7:8321", "[fd00::7]:8321"):
            assert (await served.client.get("/metrics", headers={"host": address})).status_code == 200, address
        for host in ("memory.example.com", "myria:8321", "a.internal.example", f"localhost:{served.port}"):
            assert (await served.client.get("/metrics", headers={"host": host})).status_code == 200, host
            registered = await served.client.post(
                "/oauth/register", json={"redirect_uris": [signing_in.CALLBACK]}, headers={"host": host}
            )
            assert registered.status_code == 201, host


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", f"{PUBLIC_URL}.evil.example"]
)
async def test_consent_is_given_on_its_own_page_alone(database: Database, memory: Memory, origin: str) -> None:
    """A form of another page grants nothing, whatever it holds."""
    async with access_store(database) as store, serving(memory, SIGNING_IN) as served:
        key = await make_key(store, "ada", faces=("core",))
        response = await allow(served, key, {"origin": origin})
        assert response.status_code == 403, response.text
        assert "another page" in response.text


@pytest.mark.parametrize("origin", [PUBLIC_URL, "own", None])
async def test_consent_is_taken_from_its_own_page(database: Database, memory: Memory, origin: str | None) -> None:
    """Under its public address, under the one it was opened at, and from a program that names none."""
    async with access_store(database) as store, serving(memory, SIGNING_IN) as served:
        key = await make_key(store, "ada", faces=("core",))
        named = f"http://127.0.0.1:{served.port}" if origin == "own" else origin
        response = await allow(served, key, {} if named is None else {"origin": named})
        assert response.status_code == 303, response.text
        assert "code=" in response.headers["location"]


async def allow(served: Served, key: str, sent: dict[str, str]) -> httpx.Response:
    """Answer a page of consent with a good key."""
    fields = signing_in.request_of(await signing_in.client_id(served)) | {"key": key, "decision": "allow"}
    page = await served.client.get("/oauth/authorize", params=signing_in.request_of(fields["client_id"]))
    assert page.headers.get_list("referrer-policy") == ["same-origin"]  # else a browser would send Origin: null
    return await served.client.post("/oauth/authorize", data=fields, headers=sent)
