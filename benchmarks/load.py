"""The load process: closed-loop HTTP/1.1 clients on kept-alive connections, cheap enough not to be the bottleneck.

Every client sends its next request when the answer to the last one is there. The process reads one plan per line from
standard input and answers with one result per line, so that the same process drives everything that is compared.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from benchmarks.figures import quantile
from benchmarks.mcp_http import KEY_SLOT, Request

ROOT = Path(__file__).resolve().parents[1]

_GRACE_S = 15.0
_MOST_ERRORS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latencies of one kind of request, in milliseconds."""

    count: int
    p50: float
    p95: float
    p99: float
    mean: float

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Latency:
        """Return the summary of latencies in nanoseconds."""
        ordered = sorted(nanoseconds)
        if not ordered:
            return cls(count=0, p50=0.0, p95=0.0, p99=0.0, mean=0.0)
        p50, p95, p99 = (quantile(ordered, q) / 1e6 for q in (0.5, 0.95, 0.99))
        return cls(count=len(ordered), p50=p50, p95=p95, p99=p99, mean=sum(ordered) / len(ordered) / 1e6)

    def to_json(self) -> dict[str, float]:
        """Return it for a report, rounded to microseconds."""
        return {
            "count": self.count,
            **{name: round(getattr(self, name), 3) for name in ("p50", "p95", "p99", "mean")},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one plan gave.

    `acknowledged` counts every good answer; `throughput` is good answers per second within the time of the plan.
    `latency` is over all requests, `by_tag` for each tag. `client_cpu_s` tells how busy the load process was.
    """

    acknowledged: int
    errors: int
    first_error: str
    seconds: float
    throughput: float
    latency: Latency
    by_tag: dict[str, Latency]
    client_cpu_s: float


class LoadProcess:
    """The load process as its users see it. An async context manager."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> LoadProcess:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.load",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()

    async def run(
        self,
        requests: Sequence[Request],
        *,
        port: int,
        connections: int,
        seconds: float | None = None,
        count: int | None = None,
        key_prefix: str = "",
        pause_s: float = 0.0,
    ) -> Result:
        """Send the requests round-robin, for a time or a number of requests, and return the result.

        Each connection pauses between an answer and its next request.
        """
        plan = {
            "requests": [request.to_json() for request in requests],
            "port": port,
            "connections": connections,
            "seconds": seconds,
            "count": count,
            "key_prefix": key_prefix,
            "pause_s": pause_s,
        }
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(orjson.dumps(plan, option=orjson.OPT_APPEND_NEWLINE))
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            raise RuntimeError("the load process ended; its error is above")
        answer = orjson.loads(line)
        return Result(
            latency=Latency(**answer.pop("latency")),
            by_tag={tag: Latency(**values) for tag, values in answer.pop("by_tag").items()},
            **answer,
        )


# -- inside the load process ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """The state that the clients of one plan share."""

    heads: list[bytes]
    parts: list[tuple[bytes, bytes] | None]
    bodies: list[bytes]
    tags: list[str]
    key_prefix: str
    deadline: float
    count: int
    done: asyncio.Future[None]
    pause_s: float = 0.0
    sent: int = 0
    open: int = 0
    good: int = 0
    in_time: int = 0
    errors: int = 0
    first_error: str = ""
    latencies: dict[str, array[int]] = field(default_factory=dict)
    last: float = 0.0

    def next(self) -> tuple[bytes, str] | None:
        """Return the next request and its tag, or None at the end."""
        number = self.sent
        if number >= self.count or time.perf_counter() >= self.deadline or self.errors >= _MOST_ERRORS:
            return None
        self.sent = number + 1
        i = number % len(self.heads)
        parts = self.parts[i]
        if parts is None:
            return self.heads[i] + self.bodies[i], self.tags[i]
        key = f"{self.key_prefix}{number:0{len(KEY_SLOT) - len(self.key_prefix)}d}".encode()
        return b"".join((self.heads[i], parts[0], key, parts[1])), self.tags[i]

    def finished(self, tag: str, nanoseconds: int, error: str) -> None:
        """Count one answer."""
        if error:
            self.errors += 1
            self.first_error = self.first_error or error
            return
        self.good += 1
        self.last = time.perf_counter()
        if self.last <= self.deadline:
            self.in_time += 1
        self.latencies[tag].append(nanoseconds)

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
        self._tag = ""
        self._began = 0
        self._chunks: list[bytes] = []
        self._missing = -1
        self._waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting:
            self._run.finished(self._tag, 0, f"connection lost: {exc}")
        self._run.closed()

    def _send(self) -> None:
        transport = self._transport
        assert transport is not None
        request = self._run.next()
        if request is None:
            transport.close()
            return
        self._tag = request[1]
        self._missing = -1
        self._waiting = True
        self._began = time.perf_counter_ns()
        transport.write(request[0])

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        if self._missing < 0:
            so_far = data if len(self._chunks) == 1 else b"".join(self._chunks)
            end = so_far.find(b"\r\n\r\n")
            if end < 0:
                return
            self._missing = end + 4 + _content_length(so_far[:end]) - len(so_far)
        else:
            self._missing -= len(data)
        if self._missing > 0:
            return
        took = time.perf_counter_ns() - self._began
        answer = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._waiting = False
        # An answer of ours that failed says so in its status, or in the result's isError.
        bad = (
            not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201"))
            or b'"isError":true' in answer
            or b'"error":{' in answer[:2000]
        )
        self._run.finished(self._tag, took, answer[:600].decode("utf-8", "replace") if bad else "")
        if self._run.pause_s:
            asyncio.get_running_loop().call_later(self._run.pause_s, self._send)
        else:
            self._send()


def _content_length(head: bytes) -> int:
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    if at < 0:
        raise RuntimeError(f"the answer has no Content-Length: {head!r}")
    return int(lower[at + 17 :].split(b"\r\n", 1)[0])


async def _carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    slot = KEY_SLOT.encode()
    bodies = [request["body"].encode() for request in plan["requests"]]
    parts: list[tuple[bytes, bytes] | None] = []
    for body in bodies:
        before, separator, after = body.partition(slot)
        parts.append((before, after) if separator else None)
    loop = asyncio.get_running_loop()
    cpu = time.process_time()
    began = time.perf_counter()
    run = _Run(
        heads=[request["head"].encode() for request in plan["requests"]],
        parts=parts,
        bodies=bodies,
        tags=[request["tag"] for request in plan["requests"]],
        key_prefix=plan["key_prefix"],
        deadline=began + (plan["seconds"] or 1e9),
        count=plan["count"] or 1 << 60,
        done=loop.create_future(),
        pause_s=plan["pause_s"],
        latencies={request["tag"]: array("q") for request in plan["requests"]},
    )
    for _ in range(plan["connections"]):
        run.open += 1
        await loop.create_connection(lambda: _Client(run), "127.0.0.1", plan["port"])
    try:
        async with asyncio.timeout(None if plan["seconds"] is None else plan["seconds"] + _GRACE_S):
            await run.done
    except TimeoutError:
        run.errors += 1
        run.first_error = run.first_error or "answers were missing at the end of the plan"
    seconds = plan["seconds"] or run.last - began
    everything = [value for latencies in run.latencies.values() for value in latencies]
    return {
        "acknowledged": run.good,
        "errors": run.errors,
        "first_error": run.first_error,
        "seconds": seconds,
        "throughput": (run.in_time if plan["seconds"] else run.good) / seconds if seconds > 0 else 0.0,
        "latency": Latency.of(everything).to_json(),
        "by_tag": {tag: Latency.of(latencies).to_json() for tag, latencies in sorted(run.latencies.items())},
        "client_cpu_s": time.process_time() - cpu,
    }


def main() -> None:
    """Carry out plans until standard input ends."""
    import uvloop  # noqa: PLC0415 - only this process needs it

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin.buffer:
            result = runner.run(_carry_out(orjson.loads(line)))
            sys.stdout.buffer.write(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE))
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
