"""The load process: closed-loop HTTP/1.1 clients on kept-alive connections, cheap enough not to be the bottleneck.

Every client sends its next request when the answer to the last one is there. The process reads one plan per line from
standard input and answers with one result per line, so that the same process drives everything that is compared.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import orjson
import uvloop

from benchmarks.mcp_http import KEY_SLOT, Request
from benchmarks.processes import ROOT
from benchmarks.report import quantile

_GRACE_S = 15.0
_LONGEST_LINE = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one plan gave: good answers, how many came in a second, and their milliseconds by tag, ascending."""

    acknowledged: int
    throughput: float
    by_tag: dict[str, list[float]]

    def ms(self, q: float) -> float:
        """Return a quantile of the latencies."""
        return quantile(sorted(itertools.chain(*self.by_tag.values())), q)


class LoadProcess:
    """The load process as its users see it. An async context manager."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._plans = itertools.count()

    async def __aenter__(self) -> LoadProcess:
        pipe, command = asyncio.subprocess.PIPE, (sys.executable, "-m", "benchmarks.load")
        self._process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=pipe, stdout=pipe, limit=_LONGEST_LINE
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
        connections: int = 1,
        seconds: float | None = None,
        count: int | None = None,
        pause_s: float = 0.0,
    ) -> Result:
        """Send the requests round-robin, for a time or a number of requests (by default each once).

        Each connection pauses between an answer and its next request.

        Raises:
            RuntimeError: a request failed.
        """
        plan = {
            "requests": [asdict(request) for request in requests],
            "port": port,
            "connections": connections,
            "seconds": seconds,
            "count": count or (len(requests) if seconds is None else 1 << 60),
            "key_prefix": f"plan-{next(self._plans):05d}-",
            "pause_s": pause_s,
        }
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(orjson.dumps(plan, option=orjson.OPT_APPEND_NEWLINE))
        await process.stdin.drain()
        answer = orjson.loads(await process.stdout.readline() or b'{"error":"the load process ended"}')
        if error := answer.pop("error"):
            raise RuntimeError(f"a request failed: {error}")
        return Result(**answer)


# -- inside the load process ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """The state that the clients of one plan share. `messages` are whole, or parted where a new key stands."""

    messages: list[list[bytes]]
    tags: list[str]
    key_prefix: str
    deadline: float
    count: int
    pause_s: float
    done: asyncio.Future[None]
    latencies: dict[str, list[float]]
    sent: int = 0
    open: int = 0
    in_time: int = 0
    error: str = ""

    def next(self) -> tuple[bytes, str] | None:
        """Return the next request and its tag, or None at the end."""
        number = self.sent
        if number >= self.count or time.perf_counter() >= self.deadline or self.error:
            return None
        self.sent = number + 1
        at = number % len(self.messages)
        key = f"{self.key_prefix}{number:0{len(KEY_SLOT) - len(self.key_prefix)}d}"
        return key.encode().join(self.messages[at]), self.tags[at]

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
        request = self._run.next()
        if request is None:
            self._transport.close()
            return
        message, self._tag = request
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
        run.latencies[self._tag].append((now - self._began) * 1e3)
        run.in_time += now <= run.deadline
        if run.pause_s:
            asyncio.get_running_loop().call_later(run.pause_s, self._send)
        else:
            self._send()


async def _carry_out(plan: dict[str, Any]) -> dict[str, Any]:
    loop, timed, requests = asyncio.get_running_loop(), plan["seconds"], plan["requests"]
    began = time.perf_counter()
    run = _Run(
        messages=[(one["head"] + one["body"]).encode().split(KEY_SLOT.encode(), 1) for one in requests],
        tags=[one["tag"] for one in requests],
        key_prefix=plan["key_prefix"],
        deadline=began + (timed or 1e9),
        count=plan["count"],
        pause_s=plan["pause_s"],
        done=loop.create_future(),
        latencies={one["tag"]: [] for one in requests},
    )
    for _ in range(plan["connections"]):
        run.open += 1
        await loop.create_connection(lambda: _Client(run), "127.0.0.1", plan["port"])
    try:
        async with asyncio.timeout(timed and timed + _GRACE_S):
            await run.done
    except TimeoutError:
        run.error = run.error or "answers were missing at the end of the plan"
    return {
        "acknowledged": sum(map(len, run.latencies.values())),
        "throughput": run.in_time / (timed or time.perf_counter() - began),
        "by_tag": {tag: sorted(latencies) for tag, latencies in run.latencies.items()},
        "error": run.error,
    }


def main() -> None:
    """Carry out plans until standard input ends."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin.buffer:
            result = runner.run(_carry_out(orjson.loads(line)))
            sys.stdout.buffer.write(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE))
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
