"""One of the attacks of `benchmarks/attacks.py`, made by a process until its standard input closes.

`answers`: a key that asks for as much as it may, by batches, lists and single calls, reading all or nothing of it.
`tokens`: forged tokens of turns that would open to megabytes. `registrations`: programs that register as fast as they
can, and sign in with one key. At the end it prints how often which answer came.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import socket
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import orjson

CONNECTIONS = 4
UNREAD = 24
"""Connections that take nothing of their answer."""

TOKEN_BYTES = 8_400
_HELD_S = 20.0
_PAUSE_S = 0.01

Message = tuple[str, bytes]


def _request(port: int, path: str, body: bytes | None, *, key: str = "", kind: str = "application/json") -> bytes:
    """Return an HTTP request: POST of a body, or GET."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}"]
    lines += [f"Content-Type: {kind}", "Accept: application/json, text/event-stream"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    lines += [f"Content-Length: {len(body)}"] if body is not None else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


def _call(tool: str, arguments: dict[str, Any], *, request_id: int = 1, **meta: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def answers(port: int, key: str) -> Iterator[Message]:
    """Yield what asks for much, of all kinds in turn."""
    query = {"query": "garden", "limit": 200}
    batch = [_call("myria_query_event_nodes", query, request_id=number) for number in range(100)]
    several = [
        _call("memtrace_search", {"content_contains": "garden", "limit": 1000}, request_id=n) for n in range(100)
    ]
    search = orjson.dumps({"query": "garden", "limit": 1000})
    kinds = {
        "batch": _request(port, "/mcp", orjson.dumps(batch), key=key),
        "batch of searches": _request(port, "/mcp/memtrace", orjson.dumps(several), key=key),
        "list": _request(port, "/api/v1/memories?limit=1000", None, key=key),
        "list of agents": _request(port, "/api/v1/agents?limit=1000", None, key=key),
        "search": _request(port, "/api/v1/search", search, key=key),
        "query": _request(port, "/mcp", orjson.dumps(_call("myria_query_event_nodes", query)), key=key),
        "query by the SDK": _request(
            port, "/mcp", orjson.dumps(_call("myria_query_event_nodes", query, trace="x")), key=key
        ),
    }
    yield from itertools.cycle(kinds.items())


def tokens(port: int, key: str) -> Iterator[Message]:
    """Yield calls with tokens that nobody gave out."""
    bomb = base64.urlsafe_b64encode(zlib.compress(b'{"current":[' + b"{}," * 1_500_000 + b"{}]}", 9))[:TOKEN_BYTES]
    for forged in itertools.cycle((bomb, bomb + b"." + bomb[:40], b"A" * TOKEN_BYTES, b"")):
        arguments = {"session_id": "s", "turn_id": "t", "operation_token": forged.decode(), "output_items": []}
        yield "token", _request(port, "/mcp/turns", orjson.dumps(_call("memory_run_turn", arguments)), key=key)


def registrations(port: int, key: str) -> Iterator[Message]:
    """Yield registrations, pages of consent and sign-ins."""
    body = orjson.dumps(
        {"client_name": "x" * 100, "redirect_uris": [f"https://a.example/{'y' * 400}/{n}" for n in range(10)]}
    )
    form = urlencode({"client_id": "0" * 32, "redirect_uri": "https://a.example/", "decision": "allow", "key": key})
    while True:
        yield "registration", _request(port, "/oauth/register", body)
        yield (
            "sign-in",
            _request(port, "/oauth/authorize", form.encode(), kind="application/x-www-form-urlencoded"),
        )


ATTACKS: dict[str, Callable[[int, str], Iterator[Message]]] = {
    "answers": answers,
    "tokens": tokens,
    "registrations": registrations,
}


async def _send(port: int, messages: Iterator[Message], told: Counter[str]) -> None:
    """Send one message after the other over one connection, reading every answer."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            try:
                for kind, message in messages:
                    writer.write(message)
                    head = await reader.readuntil(b"\r\n\r\n")
                    told[f"{kind} {head.split(b' ', 2)[1].decode()}"] += 1
                    left = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                    told[f"{kind} MiB at most"] = max(told[f"{kind} MiB at most"], -(-left >> 20))
                    while left:
                        left -= len(await reader.readexactly(min(left, 1 << 18)))
            finally:
                writer.close()
        await asyncio.sleep(_PAUSE_S)


async def _take_nothing(port: int, messages: Iterator[Message], told: Counter[str]) -> None:
    """Ask, take nothing of the answer for a while, and ask again over another connection."""
    loop = asyncio.get_running_loop()
    while True:
        with suppress(OSError), socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.setblocking(False)
            await loop.sock_connect(unread, ("127.0.0.1", port))
            kind, message = next(messages)
            await loop.sock_sendall(unread, message)
            told[f"{kind} unread"] += 1
            await asyncio.sleep(_HELD_S)


async def _until_told(kind: str, port: int, key: str) -> Counter[str]:
    told: Counter[str] = Counter()
    messages = ATTACKS[kind](port, key)
    tasks = [asyncio.create_task(_send(port, messages, told)) for _ in range(CONNECTIONS)]
    if kind == "answers":
        tasks += [asyncio.create_task(_take_nothing(port, messages, told)) for _ in range(UNREAD)]
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    told["processor ms"] = round(time.process_time() * 1000)
    return told


def main() -> None:
    """Attack a port; the key is the first line of standard input."""
    kind, port = sys.argv[1], int(sys.argv[2])
    told = asyncio.run(_until_told(kind, port, sys.stdin.readline().strip()))
    sys.stdout.write(orjson.dumps(told).decode())


if __name__ == "__main__":
    main()
