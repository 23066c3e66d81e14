"""A watch reports what there is and what changes, and begins anew whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from myria_operator import watch as watch_module
from myria_operator.watch import watch
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import JOBS
from tests.support.patience import PATIENCE_S

Json = dict[str, Any]


def event(kind: str, version: str, name: str | None = None) -> Json:
    """Return a line of a watch; a bookmark has no name."""
    metadata = {"resourceVersion": version} | ({} if name is None else {"name": name})
    return {"type": kind, "object": {"metadata": metadata}}


class ApiServer:
    """Answers each list with one object named after its version, and each watch with the next stream of a script."""

    def __init__(self, *streams: list[Json | bytes]) -> None:
        self._streams = iter(streams)
        self.lists = 0
        self.since: list[str] = []
        """From which version each watch went on."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch; a watch for which there is no stream stays silent."""
        if not request.query.get("watch"):
            self.lists += 1
            name, version = f"listed-{self.lists}", f"{self.lists}0"
            return web.json_response(
                {"metadata": {"resourceVersion": version}, "items": [{"metadata": {"name": name}}]}
            )
        self.since.append(request.query["resourceVersion"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        stream = next(self._streams, None)
        if stream is None:
            await asyncio.sleep(3600)
        for line in stream or ():
            await answer.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        return answer


@asynccontextmanager
async def heard_of(server: ApiServer) -> AsyncIterator[list[str]]:
    """Watch Jobs for the block; yield the names that were heard."""
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    heard: list[str] = []
    async with TestServer(app) as running:
        configured = Configuration(host=str(running.make_url("")).rstrip("/"))
        async with Connection(configured, "memory", "myria-operator") as api:
            watching = asyncio.create_task(watch(api, JOBS, lambda one: heard.append(one["metadata"]["name"])))
            try:
                yield heard
            finally:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching


@pytest.mark.parametrize(
    ("stream", "heard", "since"),
    [
        ([event("ADDED", "11", "a"), event("BOOKMARK", "15"), event("DELETED", "17", "a")], ["a", "a"], "17"),
        ([event("ADDED", "11", "a"), {"type": "ERROR", "object": {"code": 410}}], ["a", "listed-2"], "20"),
        ([event("ADDED", "11", "a"), b'{"type": "MODIFIED", "obj'], ["a", "listed-2"], "20"),
        ([b"<html>Welcome</html>\n"], ["listed-2"], "20"),
    ],
    ids=["ended", "error", "half a line", "a page"],
)
async def test_a_watch_that_ends_goes_on(
    stream: list[Json | bytes], heard: list[str], since: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the server ends goes on from the last version; after anything else it is listed again."""
    monkeypatch.setattr(watch_module, "_SHORTEST_WAIT_S", 0.01)
    server = ApiServer(stream)
    async with heard_of(server) as names, asyncio.timeout(PATIENCE_S):
        while len(server.since) < 2:
            await asyncio.sleep(0.01)
    assert names == ["listed-1", *heard]
    assert server.since == ["10", since]
