"""What a watch tells, and from which version the next one goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from myria.errors import ClusterRefused, ClusterUnavailable
from myria_rebuilds.connection import Connection
from myria_rebuilds.resource import REBUILDS

REFUSAL = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}


def event(kind: str, version: int, name: str = "one") -> bytes:
    body = {"kind": "MyriaRebuild", "metadata": {"name": name, "resourceVersion": str(version)}}
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


@asynccontextmanager
async def serving(*pieces: bytes, status: int = 200) -> AsyncIterator[tuple[Connection, list[dict[str, str]]]]:
    """Serve a stream to every watch; yield a connection, and the queries that came."""
    queries: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        queries.append(dict(request.query))
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    application = web.Application()
    application.router.add_get("/apis/myria.dev/v1alpha1/namespaces/here/myriarebuilds", answer)
    server = TestServer(application)
    await server.start_server()
    async with server, Connection(Configuration(host=str(server.make_url("")).rstrip("/")), "here", "tests") as api:
        yield api, queries


async def test_a_watch_tells_changes_and_where_to_go_on() -> None:
    """An event may come in pieces; a bookmark tells a version alone; the version of a list is asked for once known."""
    first = event("ADDED", 3)
    told: list[Any] = []
    async with serving(first[:20], first[20:] + event("DELETED", 5, "two"), event("BOOKMARK", 8)) as (api, queries):
        assert await api.watch(REBUILDS, "", told.append, labelSelector="a=b") == "8"
        assert await api.watch(REBUILDS, "8", told.append) == "8"
    assert [body["metadata"]["name"] for body in told] == ["one", "two", "one", "two"]
    assert "resourceVersion" not in queries[0]
    assert queries[0]["labelSelector"] == "a=b"
    assert queries[1]["resourceVersion"] == "8"


@pytest.mark.parametrize(
    "end",
    [
        b'{"type": "MODIFIED", "obj',
        json.dumps({"type": "ERROR", "object": REFUSAL}).encode() + b"\n",
        b"<html></html>\n",
    ],
    ids=["half", "error", "page"],
)
async def test_a_stream_that_does_not_end_well_is_told(end: bytes) -> None:
    """What came before was told already; what was missed nobody knows."""
    told: list[Any] = []
    async with serving(event("ADDED", 3), end) as (api, _):
        with pytest.raises(ClusterUnavailable):
            await api.watch(REBUILDS, "", told.append)
    assert len(told) == 1


async def test_a_refused_watch_is_an_error_as_any_request() -> None:
    """It is counted with its status, as all requests are."""
    async with serving(json.dumps(REFUSAL).encode(), status=410) as (api, _):
        with pytest.raises(ClusterRefused, match="too old"):
            await api.watch(REBUILDS, "1", lambda _: None)
        assert api.answers["watch", "myriarebuilds", "410"] == 1
