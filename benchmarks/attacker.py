"""One of the attacks of `benchmarks/attacks.py`, made by a process until its standard input closes.

`answers`: a key that asks for as much as it may, by batches, lists and single calls, reading all or nothing of it.
`tokens`: forged tokens of turns that would open to megabytes. `registrations`: programs that register as fast as they
can, and sign in with one key. `bodies`: tool calls that are made to cost much, of every shape and size. `noise`: a key
that sends ten times what it may. At the end it prints how often which answer came.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import math
import random
import re
import socket
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from benchmarks.mcp_http import request
from myria.settings import Settings

TOKEN_BYTES = 8_400
LIMIT_PER_S = 100
"""Requests per second that the noisy key may send; it sends ten times as many."""
UNCODED = "body without a code"
_SMALLEST = 1_000
_HELD_S = 20.0
_PAUSE_S = 0.01

Message = tuple[str, bytes]


def _call(tool: str, arguments: dict[str, Any], request_id: int = 1) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def answers(port: int, key: str) -> Iterator[Message]:
    """Yield what asks for much, of all kinds in turn."""
    query = _call("myria_query_event_nodes", {"query": "garden", "limit": 200})
    batch = [{**query, "id": number} for number in range(100)]
    search = {"content_contains": "garden", "limit": 1000}
    searches = [_call("memtrace_search", search, number) for number in range(100)]
    kinds = {
        "batch": request(port, "/mcp", batch, key=key),
        "batch of searches": request(port, "/mcp/memtrace", searches, key=key),
        "list": request(port, "/api/v1/memories?limit=1000", key=key),
        "search": request(port, "/api/v1/search", {"query": "garden", "limit": 1000}, key=key),
        "query": request(port, "/mcp", query, key=key),
    }
    yield from itertools.cycle(kinds.items())


def tokens(port: int, key: str) -> Iterator[Message]:
    """Yield calls with tokens that nobody gave out."""
    bomb = base64.urlsafe_b64encode(zlib.compress(b'{"current":[' + b"{}," * 1_500_000 + b"{}]}", 9))[:TOKEN_BYTES]
    for forged in itertools.cycle((bomb, bomb + b"." + bomb[:40], b"A" * TOKEN_BYTES, b"")):
        arguments = {"session_id": "s", "turn_id": "t", "operation_token": forged.decode(), "output_items": []}
        yield "token", request(port, "/mcp/turns", _call("memory_run_turn", arguments), key=key)


def registrations(port: int, key: str) -> Iterator[Message]:
    """Yield registrations, pages of consent and sign-ins."""
    body = {"client_name": "x" * 100, "redirect_uris": [f"https://a.example/{'y' * 400}/{n}" for n in range(10)]}
    form = urlencode({"client_id": "0" * 32, "redirect_uri": "https://a.example/", "decision": "allow", "key": key})
    while True:
        yield "registration", request(port, "/oauth/register", body)
        sign_in = request(port, "/oauth/authorize", form.encode(), kind="application/x-www-form-urlencoded")
        yield "sign-in", sign_in


def bodies(port: int, key: str) -> Iterator[Message]:
    """Yield calls of every shape, from a kilobyte to the largest (evenly over the logarithm, one in twenty largest)."""
    chance, largest = random.Random(1), Settings().mcp.body_bytes
    for number in itertools.count():
        size = largest if number % 20 == 0 else math.exp(chance.uniform(math.log(_SMALLEST), math.log(largest)))
        body = hostile(chance.choice(sorted(SHAPES)), int(size) - 200, call_first=chance.random() < 0.5)
        yield "body", request(port, "/mcp", body[:largest], key=key)


def noise(port: int, key: str) -> Iterator[Message]:
    """Yield questions of a key."""
    question = _call("myria_query_event_nodes", {"query": "anything at all", "limit": 5})
    while True:
        yield "question", request(port, "/mcp", question, key=key)


NAME = "myria_append_events"

SHAPES: dict[str, Callable[[int], bytes]] = {
    "duplicate_key": lambda size: b'{"events":[' + b'{"a":"b"},' * (size // 10) + b'{"a":1,"a":1}]}',
    "duplicate_keys": lambda size: b"{" + b'"a":1,' * (size // 6) + b'"a":1}',
    "empty_objects": lambda size: b'{"events":[' + b"{}," * (size // 3) + b"{}]}",
    "unknown_fields": lambda size: b"{" + b",".join(b'"field_%d":%d' % (n, n) for n in range(size // 21)) + b"}",
    "deep": lambda size: b'{"events":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
    "deep_objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "long_number": lambda size: b'{"events":[' + b"9" * size + b"]}",
    "long_fraction": lambda size: b'{"events":[0.' + b"9" * size + b"]}",
    "many_long_numbers": lambda size: b'{"events":[' + (b"9" * 400 + b",") * (size // 401) + b"1]}",
    "bad_utf8": lambda size: b'{"events":["' + b"a" * size + b'\xff"]}',
    "bad_utf8_each": lambda size: b'{"events":[' + b'"\xff",' * (size // 4) + b'"a"]}',
    "lone_surrogates": lambda size: b'{"events":[' + b'"\\ud800",' * (size // 9) + b'"a"]}',
    "huge_text": lambda size: b'{"events":["' + b"a" * size + b'"]}',
    "escapes": lambda size: b'{"events":["' + b"\\u00e9" * (size // 6) + b'"]}',
    "unfinished": lambda size: b'{"events":[' + b'{"a":[' * (size // 6),
    "text": lambda size: b"}" * size,
    "nothing": lambda size: b"\x00" * size,
    "small_events": lambda size: b'{"events":[' + b'{"channel":"c"},' * (size // 16) + b"{}]}",
}


def hostile(shape: str, size: int, *, call_first: bool = True) -> bytes:
    """Return a tool call whose arguments are of a shape and about `size` bytes."""
    call = (NAME.encode(), SHAPES[shape](size))
    if call_first:
        return b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"%s","arguments":%s}}' % call
    return b'{"params":{"arguments":%s,"name":"%s"},"method":"tools/call","id":7,"jsonrpc":"2.0"}' % call[::-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is sent, over how many connections, how often at most on each, and how many more read no answer."""

    messages: Callable[[int, str], Iterator[Message]]
    connections: int = 4
    every_s: float = 0.0
    unread: int = 0


ATTACKS = {
    "answers": Attack(messages=answers, unread=24),
    "tokens": Attack(messages=tokens),
    "registrations": Attack(messages=registrations),
    "bodies": Attack(messages=bodies),
    "noise": Attack(messages=noise, connections=300, every_s=300 / (10 * LIMIT_PER_S)),
}


async def _send(port: int, messages: Iterator[Message], every_s: float, told: Counter[str]) -> None:
    """Send one message after the other over one connection, reading every answer."""
    loop = asyncio.get_running_loop()
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            try:
                for kind, message in messages:
                    next_at = loop.time() + every_s
                    writer.write(message)
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
                    answer = await reader.readexactly(length)
                    told[f"{kind} {head.split(b' ', 2)[1].decode()}"] += 1
                    if kind == "body" and not re.search(rb'"code": ?"', answer):
                        told[UNCODED] += 1
                    await asyncio.sleep(next_at - loop.time())
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


async def _until_told(attack: Attack, port: int, key: str) -> Counter[str]:
    told: Counter[str] = Counter()
    messages = attack.messages(port, key)
    sending = [_send(port, messages, attack.every_s, told) for _ in range(attack.connections)]
    tasks = [asyncio.create_task(one) for one in sending]
    tasks += [asyncio.create_task(_take_nothing(port, messages, told)) for _ in range(attack.unread)]
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return told


def main() -> None:
    """Attack a port; the key is the first line of standard input."""
    kind, port = sys.argv[1], int(sys.argv[2])
    told = asyncio.run(_until_told(ATTACKS[kind], port, sys.stdin.readline().strip()))
    sys.stdout.write(orjson.dumps(told).decode())


if __name__ == "__main__":
    main()
