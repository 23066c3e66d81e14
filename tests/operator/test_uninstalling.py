"""An operator that stops takes its Deployment for deleted only where the API server says so of its very name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from myria_operator import uninstall
from myria_operator.uninstall import OwnDeployment
from myria_rebuilds.connection import Connection

NAME = "memory-operator"
Json = dict[str, Any]


def deployment(uid: str = "u1", **metadata: Any) -> tuple[int, Json]:
    """Return the answer of an API server that has the Deployment."""
    return 200, {"kind": "Deployment", "metadata": {"name": NAME, "uid": uid, **metadata}}


def status(code: int, **details: Any) -> tuple[int, Json]:
    """Return a refusal of an API server."""
    body = {"kind": "Status", "code": code, "message": "no", "reason": "NotFound" if code == 404 else "", **details}
    return code, body


@pytest.mark.parametrize(
    ("answer", "is_gone"),
    [
        (status(404, details={"name": NAME, "kind": "deployments"}), True),
        (deployment("u2"), True),
        (deployment(deletionTimestamp="2026-11-28T12:00:00Z"), True),
        (deployment(), False),
        (status(404), False),
        (status(404, details={"name": "memory", "kind": "namespaces"}), False),
        ((404, {"error": "no route"}), False),
        (status(401), False),
        (status(403, details={"name": NAME, "kind": "deployments"}), False),
        (status(410), False),
        (status(429), False),
        (status(500), False),
        (status(503, details={"name": NAME}), False),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
async def test_only_its_own_absence_ends_builds(
    answer: tuple[int, Json], is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else an API server, or a gateway before it, answers: builds go on."""
    monkeypatch.setattr(uninstall, "_ATTEMPTS", 1)
    answers = [deployment()]

    async def answered(_request: web.Request) -> web.Response:
        code, body = answers[-1]
        return web.json_response(body, status=code)

    app = web.Application()
    app.router.add_get("/{path:.*}", answered)
    async with TestServer(app) as server:
        configured = Configuration(host=str(server.make_url("")).rstrip("/"))
        async with Connection(configured, "memory", "myria-operator") as api:
            own = OwnDeployment(api, NAME)
            await own.find()
            answers.append(answer)
            assert await own.is_gone() is is_gone
