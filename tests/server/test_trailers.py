"""Fields behind a body are dropped: who calls, from where and for whom is said before it, or not at all."""

from __future__ import annotations

import json

import pytest

from myria.memory import Memory
from myria.settings import AuthSettings, Settings, TurnsSettings
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import BASE_HEADERS, Served, call, event, serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

BODY = json.dumps(call("myria_append_event", event(), version=None)).encode()


def chunked(body: bytes, trailers: bytes, *, path: str = "/mcp", more: bytes = b"") -> bytes:
    """Return a request in one piece whose body is one chunk, with trailers behind it."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in BASE_HEADERS.items()).encode()
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n" % path.encode() + fields + more
    return head + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n" + trailers + b"\r\n"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/agent", f"{PREFIX}/memories", "/v1/turns:after"])
async def test_a_key_behind_the_body_proves_nothing(database: Database, memory: Memory, path: str) -> None:
    """Neither as a bearer's nor under a name of its own; before the body it does."""
    guarded = Settings(auth=AuthSettings(mode="keys"), turns=TurnsSettings(enabled=True))
    async with access_store(database) as store, serving(memory, guarded) as served:
        key = (await make_key(store, "ada", "user_42", "agent_1")).encode()
        for field in (b"authorization: Bearer " + key, b"x-api-key: " + key, b"memento-access-key: " + key):
            answer = await served.raw(chunked(BODY, field + b"\r\n", path=path))
            assert answer.startswith(b"HTTP/1.1 401"), (field, answer)
        before = await served.raw(chunked(BODY, b"", path=path, more=b"authorization: Bearer " + key + b"\r\n"))
        assert not before.startswith(b"HTTP/1.1 401"), before


@pytest.mark.parametrize(
    "field",
    [
        b"host: evil.example",
        b"origin: https://evil.example",
        b"x-forwarded-for: 203.0.113.7",
        b"mcp-protocol-version: 1999-01-01",
        b"content-type: text/plain",
        b"authorization: Bearer nonsense",
    ],
)
async def test_what_stands_behind_a_body_changes_nothing(served: Served, field: bytes) -> None:
    """Whatever a header of that name would do."""
    answer = await served.raw(chunked(BODY, field + b"\r\n"))
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b'"isError":false' in answer


async def test_endless_trailers_end_the_connection(served: Served) -> None:
    """As do chunks that say endlessly much of themselves; nothing of either is kept."""
    trailers = (b"x-more: " + b"y" * 1_000 + b"\r\n") * 1_000
    extension = b"0;" + b"y" * 1_000_000 + b"\r\n\r\n"
    whole = chunked(BODY, b"")
    for endless in (whole[: -len(b"\r\n")] + trailers, whole[: -len(b"0\r\n\r\n")] + extension):
        pieces = [endless[at : at + 50_000] for at in range(0, len(endless), 50_000)]
        assert b"200 OK" not in await served.raw(*pieces)
    assert (await served.raw(chunked(BODY, b""))).startswith(b"HTTP/1.1 200")
