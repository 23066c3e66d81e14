"""The ASGI application: MCP at /mcp, and beside it /healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import orjson
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from myria.contract.memory import MemoryApi
from myria.errors import DatabaseUnavailable, MyriaError
from myria.settings import Settings
from myria_server.fastpath import FastPath
from myria_server.gate import Authenticate, Gate, HostList
from myria_server.metrics import ServerMetrics
from myria_server.protocol import build_server
from myria_server.toolbox import Caller, Toolbox

PATHS = frozenset({"/mcp", "/mcp/"})
BODY_TIMEOUT_S = 30.0
_READY_TIMEOUT_S = 2.0


class ServerApp:
    """One serving process as an ASGI application.

    `draining` makes /readyz fail while open requests finish, so that nothing new is sent here.
    """

    def __init__(self, gate: Gate, beside: Starlette, metrics: ServerMetrics, toolbox: Toolbox) -> None:
        self.metrics = metrics
        self.toolbox = toolbox
        self.draining = False
        self._gate = gate
        self._beside = beside
        beside.state.server = self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI scope."""
        if scope["type"] == "http" and scope["path"] in PATHS:
            await self._gate(scope, receive, send)
        else:
            await self._beside(scope, receive, send)


def build_app(
    memory: MemoryApi,
    settings: Settings | None = None,
    *,
    tenant: str = "default",
    metrics: ServerMetrics | None = None,
    authenticate: Authenticate | None = None,
    body_timeout: float = BODY_TIMEOUT_S,
    fast: bool = True,
) -> ServerApp:
    """Return the application over one memory.

    Args:
        memory: the domain; opened and closed by the caller.
        tenant: whose memory unauthenticated callers use.
        metrics: where to count; share it with the memory's hooks.
        authenticate: tells who calls; by default everybody is `tenant`.
        body_timeout: seconds within which a request body must have arrived.
        fast: False sends every call through the SDK (for comparison).
    """
    settings = settings or Settings()
    metrics = metrics or ServerMetrics()
    toolbox = Toolbox(memory, settings, metrics)
    anybody = Caller(tenant=tenant)
    server = build_server(toolbox, settings, anybody)
    manager = StreamableHTTPSessionManager(
        app=server, json_response=True, stateless=True, max_request_body_size=settings.mcp.body_bytes
    )
    fast_path = FastPath(toolbox, server.server_info_stamp)
    gate = Gate(
        toolbox=toolbox,
        fast_path=fast_path if fast else None,
        render=fast_path,
        sdk=manager.handle_request,
        hosts=HostList(settings.mcp.allowed_hosts),
        metrics=metrics,
        body_bytes=settings.mcp.body_bytes,
        body_timeout=body_timeout,
        authenticate=authenticate or (lambda _scope: anybody),
    )

    async def healthz(_request: Request) -> Response:
        return _json({"status": "ok"}, 200)

    async def readyz(request: Request) -> Response:
        if request.app.state.server.draining:
            return _json({"status": "draining"}, 503)
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await memory.ready()
        except TimeoutError:
            late = DatabaseUnavailable(f"the database did not answer within {_READY_TIMEOUT_S:g} s")
            return _json({"status": "unready", "error": late.to_json()}, 503)
        except MyriaError as error:
            return _json({"status": "unready", "error": error.to_json()}, 503)
        return _json({"status": "ready"}, 200)

    async def show_metrics(_request: Request) -> Response:
        return Response(await metrics.text(memory, tenant), headers={"content-type": CONTENT_TYPE_LATEST})

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    beside = Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", show_metrics),
        ],
        lifespan=lifespan,
    )
    return ServerApp(gate, beside, metrics, toolbox)


def _json(body: object, status: int) -> Response:
    return Response(orjson.dumps(body, default=str), status_code=status, media_type="application/json")
