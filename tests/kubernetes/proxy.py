"""An HTTPS proxy between the operator and the API server that does to requests what bad days do.

It presents the control plane's own certificate, so a kubeconfig only needs its URL. Every share is of the requests that
a fault fits: conflicts are for writes, a lost version for lists and watches, broken streams for watches.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from tests.kubernetes.control_plane import ControlPlane
from tests.support.postgres import LoopThread
from tests.support.processes import free_port

_STATUSES: Mapping[str, tuple[int, str]] = {
    "409": (409, "Conflict"),
    "410": (410, "Expired"),
    "429": (429, "TooManyRequests"),
    "500": (500, "InternalError"),
    "502": (502, "BadGateway"),
    "503": (503, "ServiceUnavailable"),
    "504": (504, "Timeout"),
}
_ANY = ("429", "500", "502", "503", "504", "drop", "hang", "page", "nonsense", "absent")
_WRITES = ("409", "lost")
_LISTS = ("410",)
_WATCHES = ("410", "gone", "error", "half", "cut")
FAULTS = sorted({*_ANY, *_WRITES, *_LISTS, *_WATCHES})
"""A status each; `drop`: the connection is closed; `hang`: it is silent for a while, then closed; `page`: 502 with a
page instead of JSON; `nonsense`: 200 with one; `absent`: 404 as of a path that nobody serves; `lost`: the write
happens, its answer is lost; `gone`, `error`: an ERROR in the stream, of a lost version or another one; `half`: a stream
that ends within a line; `cut`: one that breaks off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """What share of the requests meets which fault; `hang_s`: how long a silence is; `cut_s`: until a stream breaks."""

    shares: Mapping[str, float] = field(default_factory=dict)
    retry_after_s: int = 1
    hang_s: float = 2.0
    cut_s: float = 0.5


CALM = Storm()


class Proxy:
    """Between `url` and the control plane's API server, from its making until `close()`."""

    def __init__(self, control_plane: ControlPlane, *, seed: int = 1) -> None:
        self.storm = CALM
        """What happens to the requests that come from now on."""
        self.done: Counter[str] = Counter()
        """What was done to requests: faults by name, `relayed` for the rest."""
        self.relayed_at: list[float] = []
        """When a request that is no watch was answered as the API server answered it, by the monotonic clock."""
        self.arrived: Counter[str] = Counter()
        """Requests by method."""
        self._random = random.Random(seed)
        self._streams: set[asyncio.Task[Any]] = set()
        self._upstream = control_plane.url
        self._trust = control_plane.trust
        self._served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._served.load_cert_chain(control_plane.folder / "server.crt", control_plane.folder / "server.key")
        self._port = free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self._loop = LoopThread()
        self._loop.run(self._start())

    def bring(self, storm: Storm) -> None:
        """Change the weather, and break the watches that are open."""
        self.storm = storm
        self._loop.run(self._break_streams())

    async def _break_streams(self) -> None:
        for one in self._streams:
            one.cancel()

    def close(self) -> None:
        """Close every connection."""
        self._loop.run(self._stop())
        self._loop.close()

    async def _start(self) -> None:
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._served).start()

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def _fault(self, request: web.Request) -> str | None:
        fitting = [*_ANY]
        if request.method != "GET":
            fitting += _WRITES
        elif request.query.get("watch"):
            fitting += _WATCHES
        elif request.path.endswith(("jobs", "myriarebuilds")):
            fitting += _LISTS
        shares = {name: self.storm.shares[name] for name in fitting if self.storm.shares.get(name)}
        thrown = self._random.random()
        if thrown >= sum(shares.values()):
            return None
        for name in shares:
            if not self.done[name]:  # A short storm has everything in it, too.
                return name
        return self._random.choices([*shares], weights=[*shares.values()])[0]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        storm, fault = self.storm, self._fault(request)
        self.arrived[request.method] += 1
        self.done[fault or "relayed"] += 1
        if fault is not None and fault in _STATUSES:
            return _refusal(fault, storm.retry_after_s)
        if fault == "page":
            return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
        if fault == "absent":
            return web.Response(status=404, text="404 page not found\n")
        if fault == "nonsense":
            return web.Response(text="<html>Welcome</html>", content_type="text/html")
        if fault == "hang":
            await asyncio.sleep(storm.hang_s)
        if fault in {"drop", "hang"}:
            return _dropped(request)
        if fault in {"gone", "error", "half"}:
            return await _stream_of(request, _LINES[fault])
        if not request.query.get("watch"):
            return await self._relay(request, fault, storm)
        relaying = asyncio.create_task(self._relay(request, fault, storm))
        self._streams.add(relaying)
        try:
            return await relaying
        except asyncio.CancelledError:
            relaying.cancel()
            return _dropped(request)
        finally:
            self._streams.discard(relaying)

    async def _relay(self, request: web.Request, fault: str | None, storm: Storm) -> web.StreamResponse:
        kept = {"Authorization", "Content-Type", "Accept", "Accept-Encoding", "User-Agent"}
        headers = {name: value for name, value in request.headers.items() if name in kept}
        headers.setdefault("Accept-Encoding", "identity")  # ours would be added, and its answer not be understood
        body = await request.read()
        url = f"{self._upstream}{request.path_qs}"
        try:
            async with self._session.request(request.method, url, data=body or None, headers=headers) as found:
                if fault == "lost":
                    await found.read()
                    return _dropped(request)
                answer = web.StreamResponse(status=found.status)
                for name in ("Content-Type", "Content-Encoding", "Retry-After"):
                    if name in found.headers:
                        answer.headers[name] = found.headers[name]
                await answer.prepare(request)
                with suppress(TimeoutError):
                    async with asyncio.timeout(storm.cut_s if fault == "cut" else None):
                        async for part in found.content.iter_any():
                            await answer.write(part)
                if fault == "cut":
                    return _dropped(request)
                if not request.query.get("watch"):
                    self.relayed_at.append(time.monotonic())
                await answer.write_eof()
                return answer
        except (aiohttp.ClientError, ConnectionError):
            return _dropped(request)


def _refusal(fault: str, retry_after_s: int) -> web.Response:
    code, reason = _STATUSES[fault]
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"the storm says {reason}",
        "reason": reason,
        "code": code,
    }
    headers = {"Retry-After": str(retry_after_s)} if code == 429 else {}
    return web.json_response(body, status=code, headers=headers)


def _dropped(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _stream_of(request: web.Request, line: bytes) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(request)
    await answer.write(line)
    await answer.write_eof()
    return answer


def _error(code: int, reason: str) -> bytes:
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({"type": "ERROR", "object": {**status, "message": "the storm says so"}}).encode() + b"\n"


_LINES = {
    "gone": _error(410, "Expired"),
    "error": _error(500, "InternalError"),
    "half": b'{"type":"MODIFIED","object":{"apiVersion":"myria.dev/v1alpha1","ki',
}
