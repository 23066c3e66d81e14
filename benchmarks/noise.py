"""The noise beside a quiet tenant (`benchmarks/noisy.py`), made by a process until its standard input closes.

`within`: a key's requests at the rate that it may send. `credential`: many times that, whatever is answered. `slow`:
connections that send their headers a byte at a time and never end, and others that send a body as slowly. `giant`:
bodies as large as may be and larger, with and without a key. At the end it prints how often which answer came, and the
processor time that the noise took itself.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import orjson

from benchmarks.mcp_http import tool_call
from benchmarks.noisy import GIANT_BYTES, GIANT_CLIENTS, LIMIT_PER_S, NOISY_CONNECTIONS, OWN, SLOW_CLIENTS, TIMES

_SLOW_EVERY_S = 1.0
_PAUSE_S = 0.05


async def _at_a_rate(port: int, key: str, told: Counter[str], times: int) -> None:
    """Send a key's questions at so many times its limit, over some connections in turn."""
    question = {"participants": list(OWN), "query": "anything at all", "limit": 5}
    request = tool_call(port, "query_event_nodes", question)
    head = request.head.removesuffix("\r\n\r\n")
    message = f"{head}\r\nAuthorization: Bearer {key}\r\n\r\n{request.body}".encode()
    every_s = NOISY_CONNECTIONS / (LIMIT_PER_S * times)
    loop = asyncio.get_running_loop()

    async def connection(delay_s: float) -> None:
        at = loop.time() + delay_s
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    while True:
                        await asyncio.sleep(max(0.0, at - loop.time()))
                        at = max(at + every_s, loop.time() - every_s)
                        writer.write(message)
                        told[f"credential {await _status(reader)}"] += 1
                finally:
                    writer.close()
            await asyncio.sleep(_PAUSE_S)

    async with asyncio.TaskGroup() as group:
        for number in range(NOISY_CONNECTIONS):
            group.create_task(connection(every_s * number / NOISY_CONNECTIONS))


async def _slowly(port: int, start: bytes, told: Counter[str], name: str) -> None:
    """Send a request that never ends, a byte a second, again and again."""
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(start)
                ended = asyncio.ensure_future(reader.readline())
                while not ended.done():
                    await asyncio.wait([ended], timeout=_SLOW_EVERY_S)
                    writer.write(b"a")
                answer = ended.result()
                told[f"{name} {answer.split()[1].decode() if len(answer.split()) > 1 else 'closed'}"] += 1
            finally:
                writer.close()
        await asyncio.sleep(_PAUSE_S)


async def _giants(port: int, key: str, told: Counter[str]) -> None:
    """Send giant bodies: no JSON, and more than may be, with a key and without."""
    body = b"{" * GIANT_BYTES
    turn = 0
    while True:
        turn += 1
        credential = f"Authorization: Bearer {key}\r\n" if turn % 2 else ""
        claimed = GIANT_BYTES if turn % 4 < 2 else 4 * GIANT_BYTES
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n{credential}"
            f"Accept: application/json\r\nContent-Length: {claimed}\r\n\r\n"
        )
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(head.encode())
                sending = asyncio.ensure_future(_send(writer, body, claimed // GIANT_BYTES))
                try:
                    told[f"giant {await _status(reader)}"] += 1
                finally:
                    sending.cancel()
            finally:
                writer.close()
        await asyncio.sleep(_PAUSE_S)


async def _send(writer: asyncio.StreamWriter, body: bytes, times: int) -> None:
    with suppress(OSError):
        for _ in range(times):
            for start in range(0, len(body), 1 << 18):
                writer.write(body[start : start + (1 << 18)])
                await writer.drain()


async def _status(reader: asyncio.StreamReader) -> str:
    """Read one answer and return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    at = head.lower().find(b"\r\ncontent-length:")
    if at >= 0:
        await reader.readexactly(int(head[at + 17 :].split(b"\r\n", 1)[0]))
    return head.split(b" ", 2)[1].decode()


async def _until_told(kind: str, port: int, key: str) -> Counter[str]:
    told: Counter[str] = Counter()
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    slow_head = f"{head}X-Slow: ".encode()
    slow_body = (
        f"{head}Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    ).encode()
    noise: list[Coroutine[Any, Any, None]] = {
        "within": lambda: [_at_a_rate(port, key, told, 1)],
        "credential": lambda: [_at_a_rate(port, key, told, TIMES)],
        "slow": lambda: [
            _slowly(port, *(slow_head, told, "slow head") if number % 2 else (slow_body, told, "slow body"))
            for number in range(SLOW_CLIENTS)
        ],
        "giant": lambda: [_giants(port, key, told) for _ in range(GIANT_CLIENTS)],
    }[kind]()
    tasks = [asyncio.create_task(one) for one in noise]
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    told["processor ms"] = round(time.process_time() * 1000)
    return told


def main() -> None:
    """Make noise of one kind at a port; the key is the first line of standard input."""
    kind, port = sys.argv[1], int(sys.argv[2])
    key = sys.stdin.readline().strip()
    told = asyncio.run(_until_told(kind, port, key))
    sys.stdout.write(orjson.dumps(told).decode())


if __name__ == "__main__":
    main()
