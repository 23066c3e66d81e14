"""Closed-loop HTTP/1.1 clients on kept-alive connections, cheap enough not to be the bottleneck.

Every client sends its next request when the answer to the last one is there. What is measured are other processes; this
one does nothing else meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from benchmarks.mcp_http import KEY_SLOT
from benchmarks.report import quantile

_GRACE_S = 15.0
_RUNS = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run gave: good answers, how many came in a second, and their milliseconds, ascending."""

    acknowledged: int
    throughput: float
    latencies_ms: list[float]

    def ms(self, q: float) -> float:
        """Return a quantile of the latencies."""
        return quantile(self.latencies_ms, q)


async def drive(
    requests: Sequence[bytes],
    *,
    port: int,
    connections: int = 1,
    seconds: float | None = None,
    count: int | None = None,
    pause_s: float = 0.0,
) -> Result:
    """Send requests round-robin, for a time or a number of requests (by default each once).

    Each connection pauses between an answer and its next request.

    Raises:
        RuntimeError: a request failed.
    """
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    run = _Run(
        messages=[request.split(KEY_SLOT.encode(), 1) for request in requests],
        key_prefix=f"run-{next(_RUNS):05d}-",
        deadline=began + (seconds or 1e9),
        count=count or (len(requests) if seconds is None else 1 << 60),
        pause_s=pause_s,
        done=loop.create_future(),
    )
    for _ in range(connections):
        run.open += 1
        await loop.create_connection(lambda: _Client(run), "127.0.0.1", port)
    async with asyncio.timeout(seconds and seconds + _GRACE_S):
        await run.done
    if run.error:
        raise RuntimeError(f"a request failed: {run.error}")
    return Result(
        acknowledged=len(run.latencies_ms),
        throughput=run.in_time / (seconds or time.perf_counter() - began),
        latencies_ms=sorted(run.latencies_ms),
    )


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state that the clients of one run share. `messages` are whole, or parted where a new key stands."""

    messages: list[list[bytes]]
    key_prefix: str
    deadline: float
    count: int
    pause_s: float
    done: asyncio.Future[None]
    latencies_ms: list[float] = field(default_factory=list)
    sent: int = 0
    open: int = 0
    in_time: int = 0
    error: str = ""

    def next(self) -> bytes | None:
        """Return the next request, or None at the end."""
        number = self.sent
        if number >= self.count or time.perf_counter() >= self.deadline or self.error:
            return None
        self.sent = number + 1
        key = f"{self.key_prefix}{number:0{len(KEY_SLOT) - len(self.key_prefix)}d}"
        return key.encode().join(self.messages[number % len(self.messages)])

    def closed(self) -> None:
        """Count one connection that has ended."""
        self.open -= 1
        if not self.open and not self.done.done():
            self.done.set_result(None)


class _Client(asyncio.Protocol):
    """One connection: one request under way at a time."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._transport: asyncio.Transport | None = None
        self._began = 0.0
        self._answer = b""
        self._length = 0
        self._waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting:
            self._run.error = self._run.error or f"connection lost: {exc}"
        self._run.closed()

    def _send(self) -> None:
        assert self._transport is not None
        message = self._run.next()
        if message is None:
            self._transport.close()
            return
        self._answer, self._length, self._waiting = b"", 0, True
        self._began = time.perf_counter()
        self._transport.write(message)

    def data_received(self, data: bytes) -> None:
        answer = self._answer = self._answer + data if self._answer else data
        if not self._length:
            end = answer.find(b"\r\n\r\n")
            if end < 0:
                return
            self._length = end + 4 + int(answer[:end].lower().partition(b"\r\ncontent-length:")[2].split(b"\r", 1)[0])
        if len(answer) < self._length:
            return
        run, now = self._run, time.perf_counter()
        self._waiting = False
        # An answer of ours that failed says so in its status, or in the result's isError.
        failed = b'"isError":true' in answer or b'"error":{' in answer[:2000]
        if failed or not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            run.error = run.error or answer[:600].decode("utf-8", "replace")
        run.latencies_ms.append((now - self._began) * 1e3)
        run.in_time += now <= run.deadline
        if run.pause_s:
            asyncio.get_running_loop().call_later(run.pause_s, self._send)
        else:
            self._send()
