"""The outermost part of serving: refusals in one form, browsers of other origins, headers of every answer."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from myria.errors import ConfigurationError
from myria.memory import Memory
from myria.settings import AuthSettings, McpSettings, Settings
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.http.answer_headers import CrossOrigins
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import Served, call, headers, serving
from tests.support.patience import PATIENCE_S

NAME = "myria_query_event_nodes"
ORIGIN = "https://app.example.com"


def coded(response: httpx.Response) -> tuple[int, str]:
    """Return the status and code of a refusal by MCP, after checking its form."""
    body = response.json()
    assert response.headers["content-type"] == "application/json"
    assert body["jsonrpc"] == "2.0"
    assert body["error"]["message"] == body["error"]["data"]["message"]
    assert body["error"]["data"].keys() == {"code", "message", "retryable", "details"}
    return response.status_code, body["error"]["data"]["code"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS"])
async def test_a_method_that_is_not_taken_says_so_in_json(served: Served, method: str) -> None:
    """With the methods that are, as HTTP wants."""
    response = await served.client.request(method, "/mcp")
    assert coded(response) == (405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


async def test_a_foreign_host_is_told_how_to_become_a_known_one(served: Served) -> None:
    """Containers and Services are where people meet this refusal."""
    response = await served.post(call(NAME, {}), headers(NAME) | {"host": "host.docker.internal:8321"})
    assert coded(response) == (421, "host_not_allowed")
    message = response.json()["error"]["message"]
    for words in ("'host.docker.internal:8321'", "mcp.allowed_hosts", "host.docker.internal", "Service"):
        assert words in message


async def test_a_foreign_origin_is_told_which_setting_lets_it_in(served: Served) -> None:
    """In the same form."""
    response = await served.post(call(NAME, {}), headers(NAME) | {"origin": ORIGIN})
    assert coded(response) == (403, "origin_not_allowed")
    assert "mcp.cors_origins" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "refusal"),
    [
        ("GET", "/", (404, "path_not_found")),
        ("POST", "/mcp/elsewhere", (404, "path_not_found")),
        ("GET", "/.env", (404, "path_not_found")),
        ("POST", "/livez", (405, "method_not_allowed")),
    ],
)
async def test_what_is_beside_mcp_refuses_in_json(
    served: Served, method: str, path: str, refusal: tuple[int, str]
) -> None:
    """A program that mistook the path reads why."""
    response = await served.client.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == refusal
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"NONSENSE\r\n\r\n", b"400"),
        (b"NONSENSE\r\n\r\n" + b"a" * 70_000, b"400"),
        (b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx-filler: " + b"a" * 70_000, b"431"),
    ],
)
async def test_what_never_became_a_request_is_refused_in_json(
    served: Served, request_text: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by the part of the server that only reads HTTP, once, however many bytes there are."""
    head, _, body = (await served.raw(request_text)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert json.loads(body)["error"]["data"]["code"] == "invalid_argument"
    ours = [record for record in caplog.records if record.name.startswith(("myria_server", "uvicorn"))]
    assert not [record for record in ours if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /api/v1/health HTTP/1.1\r\nhost: localhost\r\nx-filler: " + b"a" * 70_000 + b"\r\n\r\n"],
        [b"GET /api/v1/health?a=" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"],
        [b"GET /api/v1/health HTTP/1.1\r\nhost: localhost\r\n" + b"x: a\r\n" * 12_000 + b"\r\n"],
        [b"GET /api/v1/health?a=", b"a" * 40_000, b"a" * 40_000],
    ],
)
async def test_a_head_is_bounded_however_it_arrives(served: Served, pieces: list[bytes]) -> None:
    """By what it holds: a head that comes whole in one piece is refused as one that comes slowly."""
    head, _, body = (await served.raw(*pieces, pause=0.02)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"referrer-policy: no-referrer" in head
    refusal = json.loads(body)
    assert refusal.keys() == {"error", "code", "retryable"}
    assert refusal["code"] == "invalid_argument"
    assert "65536 bytes" in refusal["error"]


async def test_a_head_is_not_charged_for_the_body_before_it(served: Served) -> None:
    """A small request behind a large one, begun in the same piece, is answered."""
    body = json.dumps({"agent_id": "bot", "content": "a" * 90_000}).encode()
    first = b"POST /api/v1/memories HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    second = b"GET /api/v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answers = await served.raw(first + second[:40], second[40:], pause=0.02)
    assert answers.startswith(b"HTTP/1.1 201 ")
    assert answers.count(b"HTTP/1.1 200 ") == 1


@pytest.mark.parametrize(
    "line",
    [
        b"get /api/v1/memories HTTP/1.1",
        "GET /api/v1/memories?tags=caf\u00e9 HTTP/1.1".encode(),
        b"GET /api/v1/x y HTTP/1.1",
    ],
)
async def test_what_was_meant_for_rest_is_refused_in_its_form(served: Served, line: bytes) -> None:
    """Also where the request line itself is no HTTP."""
    head, _, body = (await served.raw(line + b"\r\nhost: localhost\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert "no HTTP request" in json.loads(body)["error"]


async def test_who_goes_on_sending_can_still_read_the_refusal(served: Served) -> None:
    """What comes after the refusal is dropped, not answered by a reset, which would take the answer away."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"NONSENSE / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n")
    async with asyncio.timeout(PATIENCE_S):
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        for _ in range(64):
            writer.write(b"a" * 65_536)
            await writer.drain()
        writer.close()
        await writer.wait_closed()


async def test_every_answer_has_the_headers_that_keep_browsers_from_guessing(served: Served) -> None:
    """Answers and refusals, of MCP and beside it."""
    answers = [
        await served.post(call(NAME, {}), headers(NAME)),
        await served.client.get("/mcp"),
        await served.client.get("/livez"),
        await served.client.get("/nowhere"),
    ]
    for response in answers:
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers.get_list("cache-control") == ["no-store"]
        assert "access-control-allow-origin" not in response.headers


async def test_a_page_of_a_configured_origin_may_call(memory: Memory) -> None:
    """Its preflight, which carries no credential, is answered before authentication; its refusals can be read."""
    settings = Settings(mcp=McpSettings(cors_origins=(ORIGIN,)), auth=AuthSettings(mode="keys"))
    async with serving(memory, settings) as served:
        asking = {"origin": ORIGIN, "access-control-request-method": "POST"}
        for path in ("/mcp", "/mcp/", "/mcp/admin", f"{PREFIX}/memories/x"):
            response = await served.client.options(
                path, headers=asking | {"access-control-request-headers": "authorization,content-type,x-own"}
            )
            assert response.status_code == 204
            assert response.headers["access-control-allow-origin"] == ORIGIN
            allowed = response.headers["access-control-allow-methods"].split(", ")
            assert {route.method for route in ROUTES} <= set(allowed), "a page may call every route of REST"
            assert response.headers["access-control-allow-headers"] == "authorization,content-type,x-own"
            assert "access-control-allow-credentials" not in response.headers
        refused = await served.post(call(NAME, {}), headers(NAME) | {"origin": ORIGIN})
        assert coded(refused) == (401, "credential_missing")
        assert refused.headers["access-control-allow-origin"] == ORIGIN
        exposed = refused.headers["access-control-expose-headers"].lower()
        for name in ("www-authenticate", "mcp-session-id", "ratelimit-remaining", "retry-after"):
            assert name in exposed


async def test_pages_of_other_origins_stay_out(memory: Memory) -> None:
    """Naming one origin opens the server to no other, however alike; a call without an origin is none of a page."""
    async with serving(memory, Settings(mcp=McpSettings(cors_origins=(ORIGIN,)))) as served:
        for origin in ("https://evil.example", f"{ORIGIN}.evil.example", "http://app.example.com", f"{ORIGIN}:444"):
            asking = {"origin": origin, "access-control-request-method": "POST"}
            response = await served.client.options("/mcp", headers=asking)
            assert coded(response) == (403, "origin_not_allowed")
            assert "access-control-allow-origin" not in response.headers
            assert coded(await served.post(call(NAME, {}), headers(NAME) | {"origin": origin}))[0] == 403
        response = await served.post(call(NAME, {}), headers(NAME))
        assert response.status_code == 200
        assert response.headers["vary"] == "Origin"


async def test_a_preflight_cannot_put_lines_into_the_answer(memory: Memory) -> None:
    """What is no list of header names is not repeated."""
    async with serving(memory, Settings(mcp=McpSettings(cors_origins=("*",)))) as served:
        asking = {"origin": ORIGIN, "access-control-request-method": "POST"}
        response = await served.client.options("/mcp", headers=asking | {"access-control-request-headers": "a b; <c>"})
        assert response.headers["access-control-allow-headers"].startswith("Authorization, ")


@pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/path", "https://*.example.com", ""])
def test_what_is_no_origin_is_refused_at_the_start(origin: str) -> None:
    """A misspelt origin would let nobody in, silently."""
    with pytest.raises(ConfigurationError, match="cors_origins"):
        CrossOrigins((origin,))
