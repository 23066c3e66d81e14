"""Malformed requests of every kind, with and without credentials: refused with a code, at once, and never a 5xx."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import random
import resource
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from myria.access.principal import ROLES
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database as Pool
from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import AuthSettings, Settings, TurnsSettings
from myria_server.api.tools import TOOLS, input_schema
from myria_server.paths import PATH_OF
from tests.server.wire import META, MODERN, Served, call, event, headers, serving
from tests.support.counts import CHECK, SOAK
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

BODIES, INPUTS, LINES = (60_000, 30_000, 10_000) if SOAK else (600, 450, 150) if CHECK else (1_600, 1_100, 300)
"""Malformed bodies and headers, arguments that break a tool's schema, and bytes that are no HTTP."""

ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    2**64,
    10**40,
    1.5,
    -0.0,
    1e308,
    "",
    " ",
    "\x00",
    "\u202e",
    "a" * 70_000,
    "'; DROP TABLE myria.events; --",
    "%00",
    "../../etc/passwd",
    "${jndi:ldap://x}",
    "2026-13-45T99:99:99Z",
    "0000-00-00T00:00:00Z",
    [],
    [[]],
    {},
    {"$ref": "#"},
    {"__proto__": {}},
    ["a"] * 300,
    [None],
    {"a": {"a": {"a": {}}}},
)
"""Values that stand where something else belongs."""

RAW = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b'"\\ud800"',
    b'"\\u0000"',
    b"01",
    b"+1",
    b"'a'",
    b"[" * 300,
    b'{"a":1,"a":2}',
    b"\xff",
)
"""Text that is no JSON, or none that is strict."""


@pytest.fixture
async def texts(database: Database) -> list[str | None]:
    """Credentials: none, one that is bad, one of a reader and writer, one of an administrator."""
    async with Pool(database.operator_dsn) as pool:
        store = AccessStore(pool)
        await store.ensure_tenant("default")
        keys = []
        for roles in (("append", "read"), ROLES):
            new = NewKey(name=" ".join(roles), tenant="default", own=("ada",), roles=roles, faces=tuple(PATH_OF))
            keys.append((await store.create_key(new))[0].text)
    return [None, "myr_aaaaaaaaaaaa_" + "a" * 32, *keys, *keys]


@pytest.fixture
async def guarded(memory: Memory) -> AsyncIterator[Served]:
    """A server that asks for keys."""
    settings = Settings(auth=AuthSettings(mode="keys", failures_per_minute=None), turns=TurnsSettings(enabled=True))
    async with serving(memory, settings) as served:
        yield served


def refused(response: httpx.Response) -> str | None:
    """Return the code of an answer that refuses something, None where nothing was wrong; fail on any other."""
    assert response.status_code < 500, (response.status_code, response.text)
    if response.request.method == "HEAD":
        return None if response.status_code < 400 else str(response.status_code)
    if not response.content:
        assert response.status_code in (202, 204), response.status_code
        return None
    body = response.json()
    if isinstance(body, list):
        assert response.status_code == 200
        return next((code for part in body if (code := code_of(part)) is not None), None)
    code = code_of(body)
    assert code is not None or response.status_code == 200, response.text
    return code


def code_of(message: Any) -> str | None:
    """Return the code of a JSON-RPC error or of a tool's refusal."""
    if "error" in message:
        error = message["error"]
        data = error.get("data")
        code = data.get("code") if isinstance(data, dict) else None
        code = code if code is not None else error["code"]
        assert isinstance(code, int | str)
        assert isinstance(error["message"], str)
        assert code not in (-32603, "internal_error"), message
        return str(code)
    content = (message.get("result") or {}).get("structuredContent") or {}
    if message.get("result", {}).get("isError"):
        code = content["error"]["code"] if isinstance(content.get("error"), dict) else content["code"]  # core, others
        assert code not in ("internal_error", "INTERNAL_ERROR"), message
        return str(code)
    return None


def arguments_of(name: str, rng: random.Random) -> dict[str, Any]:
    """Return arguments that nothing is wrong with."""
    chosen: dict[str, Any] = {
        "append_event": event(participants=["ada"]),
        "append_events": {"events": [event(participants=["ada"])]},
        "query_event_nodes": {
            "query": "garden",
            "limit": rng.randint(1, 5),
            "types": ["a"],
            "since": "2026-01-01T00:00:00Z",
        },
        "query_references": {"query": "garden", "topic_hints": ["a"], "max_depth": 2, "root": "top_1"},
        "get_event": {"event_id": "evt_1"},
        "get_topic": {"topic_id": "top_1"},
        "list_snapshots": {"limit": 1, "cursor": "abc"},
        "publish_snapshot": {"snapshot_id": "snp_1"},
        "discard_snapshot": {"snapshot_id": "snp_1"},
        "abort_build": {"build_id": "bld_1"},
        "rollback": {"to": "snp_1"},
    }
    return copy.deepcopy(chosen.get(name, {}))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a JSON value."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        found += places(item)
    return found


def spoiled(message: dict[str, Any], rng: random.Random) -> bytes:
    """Return the text of a message with one to three things wrong."""
    for _ in range(rng.randint(1, 3)):
        spots = places(message)
        if not spots:
            break
        container, key = rng.choice(spots)
        match rng.randrange(4):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[rng.choice(("extra", "", "a" * 300, "participants", "\u0000", "_meta", "id", "method"))] = (
                    copy.deepcopy(rng.choice(ODD))
                )
            case _:
                container[key] = copy.deepcopy(rng.choice(ODD))
    text = json.dumps(message).encode()
    match rng.randrange(12):
        case 0:
            return text[: rng.randrange(len(text) + 1)]
        case 1:
            at = rng.randrange(len(text) + 1)
            return text[:at] + bytes([rng.randrange(256)]) + text[at:]
        case 2:
            return text.replace(b'"jsonrpc": "2.0"', b'"jsonrpc": ' + rng.choice(RAW), 1)
        case 3:
            return text.replace(b'"arguments": {', b'"arguments": {"query": ' + rng.choice(RAW) + b", ", 1)
        case 4:
            return b"[" + b",".join([text] * rng.choice((0, 1, 2, 101))) + b"]"
        case 5:
            return rng.choice(
                (b"\xef\xbb\xbf" + text, text.decode().encode("utf-16"), rng.randbytes(40), b"", b"null", b"7")
            )
        case _:
            return text


def headers_for(message: dict[str, Any], rng: random.Random, text: str | None) -> dict[str, str]:
    """Return the headers of a message, in one case of three with something wrong."""
    modern = "_meta" in message["params"]
    sent = dict(headers(message["params"].get("name"), version=MODERN if modern else None, method=message["method"]))
    if text is not None:
        sent["authorization"] = f"Bearer {text}"
    if rng.random() < 0.33:
        name = rng.choice(
            (
                *sorted(sent),
                "content-encoding",
                "transfer-encoding-x",
                "mcp-session-id",
                "last-event-id",
                "x-forwarded-for",
            )
        )
        wrong = (
            "",
            "x",
            "text/plain",
            "application/json; charset=utf-16",
            "gzip",
            "1999-01-01",
            "a" * 5000,
            "myria_rollback",
            ",",
            "*/*;q=0",
        )
        sent[name] = rng.choice(wrong)
    return sent


@pytest.mark.soak
async def test_malformed_bodies_are_refused_with_a_code(guarded: Served, texts: list[str | None]) -> None:
    """Messages, headers and methods with something wrong, at both faces, in both protocols, with any credential."""
    rng = random.Random(3)
    codes: Counter[str | None] = Counter()
    memory = Growth()
    for number in range(BODIES):
        tool = rng.choice(TOOLS)
        method = rng.choice(("tools/call",) * 6 + ("tools/list", "initialize", "ping", "resources/read", "nothing", ""))
        version = rng.choice((MODERN, None))
        message = call(tool.plain(), arguments_of(tool.name, rng), version=version)
        if method != "tools/call":
            message |= {"method": method, "params": {"_meta": copy.deepcopy(META)} if version == MODERN else {}}
        message = copy.deepcopy(message)
        sent = headers_for(message, rng, rng.choice(texts))
        body = spoiled(message, rng)
        own = PATH_OF[rng.choice(tool.apis)]
        path = rng.choice(
            (*[own] * 4, *PATH_OF.values(), "/mcp/", "/mcp//", "/metrics", "/livez", "/nowhere", "/%2e%2e/mcp")
        )
        verb = (
            "POST" if rng.random() < 0.95 else rng.choice(("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"))
        )
        try:
            response = await guarded.client.request(verb, path, content=body, headers=sent)
            codes[refused(response) if path != "/metrics" or response.status_code >= 400 else None] += 1
        except (AssertionError, httpx.HTTPError) as error:
            raise AssertionError(number, verb, path, sent, len(body), body[:2000]) from error
        memory.look(number)
    memory.check()
    for code in ("credential_missing", "credential_invalid", "invalid_argument", "role_required", "path_not_found"):
        assert codes[code] > 0, (code, codes)


def breaking(schema: Any, rng: random.Random) -> Any:
    """Return a value that a schema describes, or nearly: at its bounds, beyond them, or of another type."""
    if rng.random() < 0.12:
        return copy.deepcopy(rng.choice(ODD))
    if "anyOf" in schema:
        return breaking(rng.choice(schema["anyOf"]), rng)
    if "enum" in schema or "const" in schema:
        return rng.choice([*schema.get("enum", [schema.get("const")]), "other"])
    match schema.get("type"):
        case "object":
            value = {
                name: breaking(inner, rng)
                for name, inner in schema.get("properties", {}).items()
                if name in schema.get("required", ()) or rng.random() < 0.3
            }
            if rng.random() < 0.1:
                value[rng.choice(("extra", "Participants", "limit ", "tenant"))] = rng.choice(ODD)
            if value and rng.random() < 0.1:
                value.pop(rng.choice(sorted(value)))
            return value
        case "array":
            sizes = (0, 1, 2, min(schema.get("maxItems", 5), 20), min(schema.get("maxItems", 5) + 1, 65))
            return [breaking(schema.get("items", {}), rng) for _ in range(rng.choice(sizes))]
        case "integer" | "number":
            low, high = schema.get("minimum", 0), schema.get("maximum", 100)
            return rng.choice((low, low - 1, high, high + 1, low + 0.5, float(low), str(low)))
        case "boolean":
            return rng.choice((True, False, 0, "true"))
        case "string" if schema.get("format") == "date-time":
            return rng.choice(
                ("2026-03-19T20:00:00Z", "2026-03-19", "9999-12-31T23:59:60Z", "0001-01-01T00:00:00+14:00", "now")
            )
        case "string":
            most = schema.get("maxLength", 30)
            return rng.choice(
                ("ada", "a", "", "a" * min(most, 3000), "a" * min(most + 1, 3001), "\u0000", "\ud83d\ude00", "e\u0301")
            )
    return rng.choice(ODD)


@pytest.mark.soak
async def test_inputs_that_break_a_schema_are_refused_with_a_code(guarded: Served, texts: list[str | None]) -> None:
    """Arguments at and beyond the bounds of every tool's published schema."""
    rng = random.Random(5)
    schemas = {tool.name: input_schema(tool, Limits()) for tool in TOOLS}
    codes: Counter[str | None] = Counter()
    memory = Growth()
    for number in range(INPUTS):
        tool = rng.choice(TOOLS)
        version = rng.choice((MODERN, MODERN, None))
        arguments = breaking(schemas[tool.name], rng)
        text = texts[-1] if rng.random() < 0.95 else rng.choice(texts)
        sent = headers(tool.plain(), version=version) | ({} if text is None else {"authorization": f"Bearer {text}"})
        body = json.dumps(call(tool.plain(), arguments, version=version)).encode()
        path = PATH_OF[tool.apis[0]]
        response = await guarded.client.post(path, content=body, headers=sent)
        try:
            codes[refused(response)] += 1
        except AssertionError as error:
            raise AssertionError(number, tool.name, body[:3000], response.text) from error
        memory.look(number)
    memory.check()
    assert codes[None] > INPUTS // 50, codes
    for code in ("invalid_argument", "unknown_field", "invalid_participants", "invalid_timestamp"):
        assert codes[code] > 0, (code, codes)


def no_http(rng: random.Random) -> bytes:
    """Return bytes that no client of HTTP sends, or a request that contradicts itself."""
    body = b"{}"
    start = rng.choice(
        (
            b"POST /mcp HTTP/1.1",
            b"GET /mcp HTTP/1.0",
            b"POST /mcp",
            b"PRI * HTTP/2.0",
            b"post /mcp HTTP/1.1",
            b"POST  /mcp HTTP/9.9",
            b"POST http://x/mcp HTTP/1.1",
            rng.randbytes(20),
        )
    )
    lines = [b"host: 127.0.0.1", b"content-type: application/json"]
    lines += rng.sample(
        (
            b"content-length: 2",
            b"content-length: -1",
            b"content-length: 2, 3",
            b"content-length: 99999999999999999999",
            b"transfer-encoding: chunked",
            b"transfer-encoding: gzip, chunked",
            b"transfer-encoding: chunked\r\ncontent-length: 2",
            b"authorization Bearer x",
            b"a\x00b: c",
            b": nothing",
            b"x: " + b"a" * 70_000,
            b"expect: 100-continue",
            b"upgrade: websocket\r\nconnection: upgrade",
            b" folded: x",
            rng.randbytes(30).replace(b"\n", b""),
        ),
        rng.randint(1, 3),
    )
    end = rng.choice((b"\r\n\r\n", b"\n\n", b"\r\n", b""))
    return (
        start
        + b"\r\n"
        + b"\r\n".join(lines)
        + end
        + rng.choice((body, b"", b"zz\r\n{}\r\n0\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"))
    )


@pytest.mark.soak
async def test_bytes_that_are_no_http_end_at_once_or_with_a_4xx(guarded: Served) -> None:
    """The sender closes its side, and the server answers or closes: it neither waits for more nor fails."""
    rng = random.Random(8)
    statuses: Counter[int] = Counter()
    for _ in range(LINES):
        sent = no_http(rng)
        reader, writer = await asyncio.open_connection("127.0.0.1", guarded.port)
        try:
            writer.write(sent)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        except ConnectionError:
            answer = b""
        finally:
            writer.close()
        if answer:
            status = int(answer.split(b" ", 2)[1])
            assert status < 500, (sent[:500], answer[:500])
            statuses[status] += 1
    assert statuses[400] > 0, statuses
    assert (await guarded.client.get("/livez")).status_code == 200


class Growth:
    """What this process holds in memory; looked at in soak runs alone, where it has time to grow."""

    def __init__(self) -> None:
        self._sizes: list[int] = []

    def look(self, number: int) -> None:
        """Note the size now and then."""
        if SOAK and number % 5_000 == 4_999:
            gc.collect()
            self._sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    def check(self) -> None:
        """Check that the greatest size is not much more than when every path had been taken often."""
        if len(self._sizes) > 2:
            assert self._sizes[-1] < self._sizes[1] * 1.2 + 50_000, self._sizes
