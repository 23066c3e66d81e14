"""The ASGI application: MCP at a path for each face, and beside them /livez (also /healthz), /readyz and /metrics."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import orjson
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from myria.access.addresses import Proxies
from myria.access.grants import Grants
from myria.access.issuers import load_issuers
from myria.access.journal import Journal
from myria.access.key_cache import KeyCache
from myria.access.limits import CredentialLimits, Failures
from myria.access.principal import Face, local_principal
from myria.errors import MethodNotAllowed, MyriaError, PathNotFound
from myria.memory import Memory
from myria.settings import Settings, variable_of
from myria_server.api.memtrace.documents import rest_documents
from myria_server.api.memtrace.handlers import RestFace
from myria_server.api.memtrace.schemas import PREFIX as REST_PREFIX
from myria_server.api.tools import PATH_OF, SWITCH_OF, TURNS_OVER_HTTP, served_faces
from myria_server.http.authentication import Anybody, Authentication, KeysAndTokens
from myria_server.http.authorization import OAUTH_PREFIX, AuthorizationServer, RegistrationRates
from myria_server.http.compression import accepts_gzip, compressing
from myria_server.http.cors import CrossOrigins
from myria_server.http.failure_limiter import Door
from myria_server.http.gate import FaceParts, Gate, HostList, foreign_refusal
from myria_server.http.health import Health
from myria_server.http.jwt_tokens import Tokens
from myria_server.http.resource import ProtectedResource
from myria_server.http.sse import MESSAGE_PATH, STREAM_PATH, Endpoint, LegacyTransport, idle_stream, refuse_legacy
from myria_server.mcp.answers import Answers, in_pieces
from myria_server.mcp.background import running
from myria_server.mcp.bodies import Bodies
from myria_server.mcp.calls import Calls
from myria_server.mcp.server import build_server
from myria_server.mcp.toolbox import Toolbox
from myria_server.metrics import ServerMetrics
from myria_server.readiness import Readiness

BODY_TIMEOUT_S = 30.0

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
"""Headers of every answer that does not name them itself: no browser guesses its type, no cache keeps it."""

_SECURITY_NAMES = frozenset(name for name, _ in SECURITY_HEADERS)
_METRICS_PATH = "/metrics"


class ServerApp:
    """One serving process as an ASGI application.

    While `readiness.draining`, every answer asks its client to close the connection and connect to another process.
    """

    def __init__(
        self,
        gate: Gate,
        beside: Starlette,
        metrics: ServerMetrics,
        readiness: Readiness,
        *,
        paths: frozenset[str],
        below: tuple[str, ...] = (),
        open_below: frozenset[str] = frozenset(),
        compress_bytes: int = 0,
        origins: CrossOrigins | None = None,
        hosts: HostList | None = None,
    ) -> None:
        self._origins = origins or CrossOrigins(())
        self._hosts = hosts or HostList(())
        self.metrics = metrics
        self.readiness = readiness
        self._gate = gate
        self._paths = paths
        self._below = below
        self._open_below = open_below
        self._compress_bytes = compress_bytes
        self._beside = beside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI scope."""
        if scope["type"] == "http":
            extra: tuple[tuple[bytes, bytes], ...] = SECURITY_HEADERS
            if self._origins:
                if (preflight := self._origins.preflight(scope)) is not None:
                    await send({"type": "http.response.start", "status": 204, "headers": [*extra, *preflight]})
                    await send({"type": "http.response.body", "body": b""})
                    return
                extra += self._origins.headers(scope)
            if self.readiness.draining:
                extra += ((b"connection", b"close"),)
            send = _adding(in_pieces(send), extra)
        if scope["type"] == "http" and self._is_guarded(scope["path"]):
            if self._compress_bytes and accepts_gzip(scope):
                send = compressing(send, self._compress_bytes)
            await self._gate(scope, receive, send)
        elif scope["type"] == "http" and (refused := self._foreign(scope)) is not None:
            await _json({"error": refused.to_json()}, refused.http_status)(scope, receive, send)
        else:
            await self._beside(scope, receive, send)

    def _foreign(self, scope: Scope) -> MyriaError | None:
        """Return the refusal of a request for figures, or for tokens, that names another host.

        Probes answer under every name: what they say is no secret, and who probes knows only an address. Prometheus
        knows only an address too, and no page can rebind that.
        """
        path: str = scope["path"]
        if path != _METRICS_PATH and not path.startswith(OAUTH_PREFIX):
            return None
        named = [value for name, value in scope["headers"] if name == b"host"]
        host = named[0] if len(named) == 1 else b""
        if self._hosts.refusal(host, None) is None:
            return None
        if path == _METRICS_PATH and _is_address(host):
            return None
        return foreign_refusal("host", host.decode("latin-1"))

    def _is_guarded(self, path: str) -> bool:
        """Tell whether the gate stands before a path."""
        return path in self._paths or (path.startswith(self._below) and path not in self._open_below)


def build_app(
    memory: Memory,
    settings: Settings | None = None,
    *,
    tenant: str = "default",
    metrics: ServerMetrics | None = None,
    body_timeout: float = BODY_TIMEOUT_S,
    now: Callable[[], float] = time.time,
    ticks: Callable[[], float] = time.monotonic,
) -> ServerApp:
    """Return the application over one memory.

    Args:
        memory: the domain; opened and closed by the caller.
        tenant: whose memory is used where there are no credentials (auth.mode none).
        metrics: where to count; share it with the memory's hooks.
        body_timeout: seconds within which a request body must have arrived.
        now: seconds since 1970, by which credentials expire.
        ticks: a steady clock in seconds, by which rates count, and what is known of credentials grows old.

    Raises:
        ConfigurationError: section `auth` is not whole, or the file of issuers is not as it must be.
    """
    settings = settings or Settings()
    auth = settings.auth
    auth.require_servable()
    metrics = metrics or ServerMetrics(tenant_label=settings.metrics.tenant_label)
    served = served_faces(settings)
    local = local_principal(tenant, fallback=settings.auth.local_participants)
    authentication: Authentication = Anybody(local, memory.appending, ticks=ticks)
    journal = Journal(memory.appending, settings.audit, dropped=metrics.record_dropped)
    door = Door(Failures(auth.failures_per_minute, ticks=ticks), Proxies(auth.proxies), journal)
    work: list[Callable[[], Coroutine[Any, Any, None]]] = [journal.run, memory.forgetting.run]
    open_routes: list[Route] = []
    if settings.auth.mode == "keys":
        anyone = settings.auth.append_others == "anyone"
        key_cache = KeyCache(memory.appending, appends_for_anyone=anyone, now=now, ticks=ticks)
        work.append(key_cache.run)
        tokens = resource = None
        if auth.public_url is not None and (auth.issuers_file is not None or auth.server):
            issuers = () if auth.issuers_file is None else load_issuers(auth.issuers_file)
            resource = ProtectedResource(auth.public_url, issuers, own=auth.server, faces=served)
            open_routes += resource.routes()
            if issuers:
                tokens = Tokens(issuers, key_cache, resource.urls, appends_for_anyone=anyone, now=now, ticks=ticks)
                work += [keys.run for keys in tokens.key_sets]
            if auth.server:
                grants = Grants(memory.appending, per_key=auth.grants_per_key, per_tenant=auth.grants_per_tenant)
                rates = RegistrationRates(auth, ticks=ticks)
                open_routes += AuthorizationServer(
                    auth.public_url, resource.urls, grants=grants, key_cache=key_cache, door=door, rates=rates
                ).routes()
        authentication = KeysAndTokens(key_cache, tokens, resource)
    answers = Answers.within(settings)
    faces: dict[str, FaceParts] = {}
    below: dict[str, FaceParts] = {}
    servers: dict[Face, Server[Any]] = {}
    managers: list[StreamableHTTPSessionManager] = []
    for face in served:
        path = PATH_OF[face]
        toolbox = Toolbox(memory, settings, metrics, face=face, journal=journal, answers=answers)
        server = servers[face] = build_server(toolbox, settings, local)
        manager = StreamableHTTPSessionManager(
            app=server, json_response=True, stateless=True, max_request_body_size=settings.mcp.body_bytes
        )
        managers.append(manager)
        faces[path] = FaceParts(
            toolbox=toolbox,
            calls=Calls(toolbox, server.server_info_stamp),
            sdk=manager.handle_request,
            body_bytes=min(settings.mcp.body_bytes, settings.turns.request_bytes) if face == "turns" else None,
        )
        if face == "turns":
            for plain_path, tool in TURNS_OVER_HTTP.items():
                faces[plain_path] = replace(faces[path], tool=tool)
        if face == "rest":
            faces[REST_PREFIX] = below[REST_PREFIX + "/"] = replace(faces[path], rest=RestFace(memory, settings))
    origins = CrossOrigins(settings.mcp.cors_origins)
    public = () if auth.public_url is None else (urlsplit(auth.public_url).netloc,)
    hosts = HostList((*settings.mcp.allowed_hosts, *public), origins)
    bodies = Bodies(values=settings.mcp.body_values, wait_s=body_timeout)
    limits = CredentialLimits(requests_per_s=auth.requests_per_s, concurrency=auth.concurrency, ticks=ticks)
    gate = Gate(
        faces=faces,
        below=below,
        hosts=hosts,
        metrics=metrics,
        bodies=bodies,
        answers=answers,
        body_bytes=settings.mcp.body_bytes,
        body_timeout=body_timeout,
        authentication=authentication,
        limits=limits,
        door=door,
        streams=idle_stream if settings.mcp.legacy_sse else None,
    )
    legacy = None
    if settings.mcp.legacy_sse and "agent" in servers:
        legacy = LegacyTransport(
            servers["agent"],
            authentication=authentication,
            limits=limits,
            door=door,
            hosts=hosts,
            bodies=bodies,
            body_bytes=settings.mcp.body_bytes,
            body_timeout=body_timeout,
        )

    readiness = Readiness(memory.ready, grace_s=settings.mcp.ready_grace_s)

    async def livez(_request: Request) -> Response:
        return _json({"status": "ok"}, 200)

    async def readyz(_request: Request) -> Response:
        if readiness.draining:
            return _json({"status": "draining"}, 503)
        await readiness.look()
        if (refusal := readiness.refusal) is not None:
            return _json({"status": "unready", "error": refusal.to_json()}, 503)
        return _json({"status": "ready"}, 200)

    report = Health(
        readiness, service=settings.service.name, tenant=tenant, sessions=lambda: legacy.sessions if legacy else 0
    )

    async def health(_request: Request) -> Response:
        return _json(*await report.health())

    async def ready(_request: Request) -> Response:
        return _json(*await report.ready())

    async def show_metrics(_request: Request) -> Response:
        return Response(await metrics.text(readiness), headers={"content-type": CONTENT_TYPE_LATEST})

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in managers:
                await stack.enter_async_context(manager.run())
            for start in work:
                await stack.enter_async_context(running(start()))
            yield
        await readiness.close()

    beside = Starlette(
        routes=[
            Route("/livez", livez),
            Route("/healthz", livez),
            Route("/readyz", readyz),
            Route("/health", health),
            Route("/ready", ready),
            Route(_METRICS_PATH, show_metrics),
            *((Route(REST_PREFIX + "/health", health), Route(REST_PREFIX + "/ready", ready)) if below else ()),
            *(rest_documents() if below else ()),
            Route(STREAM_PATH, Endpoint(refuse_legacy if legacy is None else legacy.stream)),
            Route(MESSAGE_PATH, Endpoint(refuse_legacy if legacy is None else legacy.message)),
            *open_routes,
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _refused_beside},
    )
    beside.state.settings = settings
    paths = frozenset(name for path in faces for name in (path, path + "/"))
    open_below = frozenset(route.path for route in beside.routes if isinstance(route, Route))
    return ServerApp(
        gate,
        beside,
        metrics,
        readiness,
        paths=paths,
        below=tuple(below),
        open_below=open_below,
        compress_bytes=settings.mcp.compress_bytes,
        origins=origins,
        hosts=hosts,
    )


def _is_address(host: bytes) -> bool:
    """Tell whether a Host header is an address, with any port, and no name that somebody could point here."""
    try:
        ip_address(re.sub(r":[0-9]+$", "", host.decode("latin-1")).strip("[]"))
    except ValueError:
        return False
    return True


def _adding(send: Send, extra: tuple[tuple[bytes, bytes], ...]) -> Send:
    """Return a `send` that adds headers to the answer: of those for security the ones that it does not name itself."""

    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            own = {name for name, _ in headers} & _SECURITY_NAMES
            headers += [header for header in extra if header[0] not in own] if own else extra
            message = {**message, "headers": headers}
        await send(message)

    return send_with


_SWITCHES: Mapping[str, tuple[str, ...]] = {
    SWITCH_OF["agent"]: (PATH_OF["agent"],),
    SWITCH_OF["turns"]: (PATH_OF["turns"], *TURNS_OVER_HTTP),
    SWITCH_OF["rest"]: (PATH_OF["rest"], REST_PREFIX),
    "auth.server": ("/oauth", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"),
}
"""Settings that are true or false, each with the paths that it serves, and all below them."""


def _switch_of(path: str) -> str | None:
    """Return the setting that serves a path, None where none would; what it serves now answers by itself."""
    for setting, prefixes in _SWITCHES.items():
        if any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes):
            return setting
    return None


async def _refused_beside(request: Request, refused: Exception) -> Response:
    """Answer what no path beside MCP takes, in the form of every refusal."""
    settings: Settings = request.app.state.settings
    status = refused.status_code if isinstance(refused, HTTPException) else 500
    headers = dict(refused.headers or {}) if isinstance(refused, HTTPException) else {}
    error: MyriaError
    if status == MethodNotAllowed.http_status:
        error = MethodNotAllowed(f"{request.url.path[:200]} takes {headers.get('Allow', 'GET')} alone")
    elif (switch := _switch_of(request.url.path)) is not None and not settings.get(switch):
        error = PathNotFound(
            f"{switch} is false here, so nothing is served at this path; set it in the settings file, or "
            f"{variable_of(switch)}=true, and start the server again",
            setting=switch,
        )
    else:
        served = ", ".join(PATH_OF[face] for face in served_faces(settings))
        error = PathNotFound(f"nothing is served here; MCP is at {served}")
    return _json({"error": error.to_json()}, error.http_status, headers)


def _json(body: object, status: int, headers: Mapping[str, str] | None = None) -> Response:
    content = orjson.dumps(body, default=str)
    return Response(content, status_code=status, media_type="application/json", headers=headers)
