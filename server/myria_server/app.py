"""The ASGI application: each API at its path, and beside them probes, figures, OAuth and documents."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, get_args
from urllib.parse import urlsplit

import orjson
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from myria.access.addresses import Proxies
from myria.access.console_sessions import ConsoleSessions
from myria.access.grants import Grants
from myria.access.issuers import Issuer, load_issuers
from myria.access.journal import Journal
from myria.access.key_cache import KeyCache
from myria.access.limits import CredentialLimits, Failures, Rates
from myria.access.principal import ApiName, local_principal
from myria.access.vault import opened_secrets
from myria.errors import MethodNotAllowed, MyriaError, PathNotFound
from myria.memory import Memory
from myria.settings import Profile, Settings, variable_of
from myria_server.api.memtrace.openapi import rest_documents
from myria_server.console.app import Console
from myria_server.console.signing_in import CALLBACK, IssuerSignIn
from myria_server.console.visitors import Visitors
from myria_server.http.admission import Access, Admission
from myria_server.http.answer_headers import AnswerHeaders, CrossOrigins
from myria_server.http.authentication import Authentication, KeysAndTokens, NoCredentials
from myria_server.http.authorization import AuthorizationServer
from myria_server.http.body import BodyReader, WholeBody
from myria_server.http.compression import Compression
from myria_server.http.endpoint import McpEndpoint
from myria_server.http.exchange import ServedApi
from myria_server.http.failure_limiter import FailureLimiter
from myria_server.http.health import Health
from myria_server.http.hosts import HostCheck, HostCheckBeside, HostList
from myria_server.http.jwt_tokens import Resource, Tokens
from myria_server.http.oauth_client import IssuerClient
from myria_server.http.resource import ProtectedResource
from myria_server.http.rest import PlainCallEndpoint, RestEndpoint
from myria_server.http.sse import MESSAGE_PATH, STREAM_PATH, LegacyTransport, idle_stream, refuse_legacy
from myria_server.mcp.answers import Answers
from myria_server.mcp.background import running
from myria_server.mcp.bodies import Bodies
from myria_server.mcp.calls import Calls
from myria_server.mcp.requestlog import RequestLog
from myria_server.mcp.server import build_server
from myria_server.mcp.toolbox import Toolbox
from myria_server.metrics import ServerMetrics
from myria_server.paths import CONSOLE_PREFIX, PATH_OF, REST_PREFIX, SWITCH_OF, TURNS_OVER_HTTP, served_apis
from myria_server.readiness import Readiness

BODY_TIMEOUT_S = 30.0

_SWITCHES: Mapping[str, tuple[str, ...]] = {
    SWITCH_OF["agent"]: (PATH_OF["agent"],),
    SWITCH_OF["turns"]: (PATH_OF["turns"], *TURNS_OVER_HTTP),
    SWITCH_OF["rest"]: (PATH_OF["rest"], REST_PREFIX),
    "auth.server": ("/oauth", "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"),
}
"""Settings that are true or false, each with the paths that it serves, and all below them."""

_BackgroundWork = Callable[[], Coroutine[Any, Any, None]]


class ServerApp:
    """One serving process as an ASGI application.

    Args:
        at: what answers at each path, with or without a slash at its end.
        below: what answers at every path that begins with a prefix, unless `beside` has a route for that path.
        beside: serves the open routes and refuses all other paths; its lifespan runs the background work, too.
        reader: reads the bodies of requests to APIs.
        console: the pages for people, which `at` and `below` lead to; None where they are off.
    """

    def __init__(
        self,
        *,
        at: Mapping[str, ASGIApp],
        below: Mapping[str, ASGIApp],
        beside: Starlette,
        origins: CrossOrigins,
        reader: BodyReader,
        metrics: ServerMetrics,
        readiness: Readiness,
        console: Console | None,
    ) -> None:
        self.at = at
        self.below = below
        self.beside = beside
        self.reader = reader
        self.metrics = metrics
        self.readiness = readiness
        self.console = console
        self._apps = {name: app for path, app in at.items() for name in (path, path + "/")}
        self._apps |= {route.path: beside for route in beside.routes if isinstance(route, Route)}
        self._front = AnswerHeaders(self._answer, origins=origins, readiness=readiness)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI scope."""
        await (self._front if scope["type"] == "http" else self.beside)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        app = self._apps.get(path)
        if app is None:
            app = next((app for prefix, app in self.below.items() if path.startswith(prefix)), self.beside)
        await app(scope, receive, send)


@dataclass(kw_only=True, slots=True)
class _Credentials:
    """How callers prove who they are; the open routes and the background work that this needs."""

    authentication: Authentication
    key_cache: KeyCache | None = None
    issuers: tuple[Issuer, ...] = ()
    tokens: Tokens | None = None
    routes: list[Route] = field(default_factory=list)
    work: list[_BackgroundWork] = field(default_factory=list)


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
        now: clock for the expiry of credentials, in seconds since 1970.
        ticks: steady clock in seconds, for rates and for the age of cached credentials.

    Raises:
        ConfigurationError: section `auth` is not whole, or the file of issuers is not as it must be.
    """
    settings = settings or Settings()
    auth, mcp = settings.auth, settings.mcp
    auth.require_servable()
    metrics = metrics or ServerMetrics(tenant_label=settings.metrics.tenant_label)
    served = served_apis(settings)
    local_caller = local_principal(tenant, fallback=auth.local_participants)
    journal = Journal(memory.appending, settings.audit, dropped=metrics.record_dropped)
    limiter = FailureLimiter(Failures(auth.failures_per_minute, ticks=ticks), Proxies(auth.proxies), journal)
    if auth.mode == "keys":
        credentials = _accept_keys_and_tokens(memory, settings, limiter, served, now=now, ticks=ticks)
    else:
        credentials = _Credentials(authentication=NoCredentials(local_caller, memory.appending, ticks=ticks))
    limits = CredentialLimits(requests_per_s=auth.requests_per_s, concurrency=auth.concurrency, ticks=ticks)
    access = Access(authentication=credentials.authentication, limits=limits, limiter=limiter)
    origins = CrossOrigins(mcp.cors_origins)
    public_hosts = () if auth.public_url is None else (urlsplit(auth.public_url).netloc,)
    hosts = HostList((*mcp.allowed_hosts, *public_hosts), origins)
    bodies = Bodies(values=mcp.body_values, wait_s=body_timeout)
    reader = BodyReader(bodies, body_bytes=mcp.body_bytes, timeout_s=body_timeout)
    answers = Answers.within(settings)
    readiness = Readiness(memory.ready, grace_s=mcp.ready_grace_s)

    def guarded(endpoint: ASGIApp, api: ServedApi) -> ASGIApp:
        """Return an endpoint of an API behind these checks; a request passes them from the first to the last."""
        return _wrap_in_checks(
            endpoint,
            # Outermost, so that every answer passes it; the host before anything that waits or counts.
            Middleware(Compression, least_bytes=mcp.compress_bytes),
            Middleware(RequestLog, api=api.toolbox.api),
            Middleware(HostCheck, api=api, hosts=hosts),
            Middleware(Admission, api=api, access=access, reader=reader),
            Middleware(WholeBody, api=api, reader=reader),
        )

    managers: list[StreamableHTTPSessionManager] = []
    at: dict[str, ASGIApp] = {}
    below: dict[str, ASGIApp] = {}
    legacy: LegacyTransport | None = None
    for api_name in served:
        toolbox = Toolbox(memory, settings, metrics, api=api_name, journal=journal, answers=answers)
        server = build_server(toolbox, settings, local_caller)
        manager = StreamableHTTPSessionManager(
            app=server, json_response=True, stateless=True, max_request_body_size=mcp.body_bytes
        )
        managers.append(manager)
        max_body_bytes = min(mcp.body_bytes, settings.turns.request_bytes) if api_name == "turns" else mcp.body_bytes
        api = ServedApi(toolbox=toolbox, body_bytes=max_body_bytes)
        plain = replace(api, refuses="contract")
        endpoint = McpEndpoint(
            api=api,
            calls=Calls(toolbox, server.server_info_stamp),
            sdk=manager.handle_request,
            access=access,
            bodies=bodies,
            streams=idle_stream if mcp.legacy_sse else None,
        )
        at[PATH_OF[api_name]] = guarded(endpoint, api)
        if api_name == "turns":
            for path, tool in TURNS_OVER_HTTP.items():
                at[path] = guarded(PlainCallEndpoint(api=plain, tool=tool, bodies=bodies), plain)
        if api_name == "rest":
            routes = RestEndpoint(api=plain, memory=memory, settings=settings, access=access, bodies=bodies)
            at[REST_PREFIX] = below[REST_PREFIX + "/"] = guarded(routes, plain)
        if api_name == "agent" and mcp.legacy_sse:
            legacy = LegacyTransport(server, api, guarded, bodies)

    console: Console | None = None
    if settings.console.enabled:
        # Pages may call the tools of every profile, whatever the MCP endpoints offer.
        every_tool = replace(settings, mcp=replace(mcp, profiles=get_args(Profile)))
        toolboxes = {
            api_name: Toolbox(memory, every_tool, metrics, api=api_name, journal=journal, answers=answers, is_use=False)
            for api_name in served
        }
        console = _console(
            memory,
            settings,
            toolboxes=toolboxes,
            credentials=credentials,
            limits=limits,
            limiter=limiter,
            ticks=ticks,
            readiness=readiness,
        )
        refusing = ServedApi(toolbox=toolboxes["core"], body_bytes=0, refuses="error")
        at[CONSOLE_PREFIX] = below[CONSOLE_PREFIX + "/"] = _wrap_in_checks(
            console,
            Middleware(Compression, least_bytes=mcp.compress_bytes),
            Middleware(RequestLog, api="console"),
            Middleware(HostCheck, api=refusing, hosts=hosts),
        )
    at[STREAM_PATH] = refuse_legacy if legacy is None else legacy.stream
    at[MESSAGE_PATH] = refuse_legacy if legacy is None else legacy.message

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for manager in managers:
                await stack.enter_async_context(manager.run())
            for start in (journal.run, memory.forgetting.run, *credentials.work):
                await stack.enter_async_context(running(start()))
            yield
        await readiness.close()

    health = Health(
        readiness,
        metrics,
        service=settings.service.name,
        tenant=tenant,
        sessions=lambda: legacy.sessions if legacy else 0,
    )
    beside = Starlette(
        routes=[
            *health.routes(),
            *(health.routes_of_clients(REST_PREFIX) if below else ()),
            *(rest_documents() if below else ()),
            *credentials.routes,
        ],
        middleware=[Middleware(HostCheckBeside, hosts=hosts)],
        lifespan=lifespan,
        exception_handlers={HTTPException: _refuse_unserved},
    )
    beside.state.settings = settings
    return ServerApp(
        at=at,
        below=below,
        beside=beside,
        origins=origins,
        reader=reader,
        metrics=metrics,
        readiness=readiness,
        console=console,
    )


def _wrap_in_checks(endpoint: ASGIApp, *checks: Middleware) -> ASGIApp:
    for check in reversed(checks):  # each wraps what is there already, so the first check must wrap last
        endpoint = check.cls(endpoint, *check.args, **check.kwargs)
    return endpoint


def _console(
    memory: Memory,
    settings: Settings,
    *,
    toolboxes: Mapping[ApiName, Toolbox],
    credentials: _Credentials,
    limits: CredentialLimits,
    limiter: FailureLimiter,
    ticks: Callable[[], float],
    readiness: Readiness,
) -> Console:
    """Return the console over toolboxes with the tools of every profile."""
    public_url = settings.auth.public_url or ""
    is_secure = public_url.startswith("https:") or settings.mcp.scheme == "https"
    sessions = ConsoleSessions(
        memory.appending, lifetime_s=settings.console.session_s, most=settings.console.sessions_per_key
    )
    sign_ins = Rates(
        settings.auth.sign_ins_per_minute,
        limit="sign_ins_per_minute",
        message="You signed in too often within a minute. Wait a little.",
        ticks=ticks,
    )
    visitors = Visitors(
        local=credentials.authentication if credentials.key_cache is None else None,
        key_cache=credentials.key_cache,
        sessions=sessions,
        limiter=limiter,
        session_s=settings.console.session_s,
        sign_ins=sign_ins,
        tokens=credentials.tokens,
        is_secure=is_secure,
    )
    issuer_sign_in: IssuerSignIn | None = None
    if credentials.tokens is not None and any(issuer.console is not None for issuer in credentials.issuers):
        issuer_sign_in = IssuerSignIn(
            _issuer_clients(settings, credentials.issuers, public_url, ticks=ticks),
            tokens=credentials.tokens,
            sessions=sessions,
            limiter=limiter,
            answers=Rates(
                settings.auth.failures_per_minute,
                limit="failures_per_minute",
                message="Too many sign-ins came from this address within a minute. Wait a little.",
                ticks=ticks,
            ),
            sign_ins=sign_ins,
            is_secure=is_secure,
        )
    return Console(
        memory,
        settings,
        toolboxes=toolboxes,
        visitors=visitors,
        issuer_sign_in=issuer_sign_in,
        limits=limits,
        limiter=limiter,
        is_leaving=lambda: readiness.draining,
    )


def _issuer_clients(
    settings: Settings, issuers: Sequence[Issuer], public_url: str, *, ticks: Callable[[], float]
) -> dict[str, IssuerClient]:
    """Return a client of each issuer at which people sign in to the console, by the issuer's name.

    Raises:
        ConfigurationError: a client's secret is not where the file of issuers says.
    """
    kept = opened_secrets(settings.secrets)
    return {
        issuer.name: IssuerClient(
            issuer,
            issuer.console.secret(os.environ, kept),
            redirect_uri=public_url + CONSOLE_PREFIX + CALLBACK.format(name=issuer.name),
            resource=public_url + CONSOLE_PREFIX,
            ticks=ticks,
        )
        for issuer in issuers
        if issuer.console is not None
    }


def _accept_keys_and_tokens(
    memory: Memory,
    settings: Settings,
    limiter: FailureLimiter,
    served: tuple[ApiName, ...],
    *,
    now: Callable[[], float],
    ticks: Callable[[], float],
) -> _Credentials:
    """Return credentials for auth.mode keys: keys, and tokens of the authorization servers that the settings name."""
    auth = settings.auth
    appends_for_anyone = auth.append_others == "anyone"
    key_cache = KeyCache(memory.appending, appends_for_anyone=appends_for_anyone, now=now, ticks=ticks)
    if auth.public_url is None or (auth.issuers_file is None and not auth.server):
        return _Credentials(authentication=KeysAndTokens(key_cache), key_cache=key_cache, work=[key_cache.run])
    issuers = () if auth.issuers_file is None else load_issuers(auth.issuers_file)
    resource = ProtectedResource(auth.public_url, issuers, own=auth.server, apis=served)
    tokens = None
    if issuers:
        resources: dict[Resource, str] = {"console": auth.public_url + CONSOLE_PREFIX}
        resources.update(resource.urls.items())
        tokens = Tokens(issuers, key_cache, resources, appends_for_anyone=appends_for_anyone, now=now, ticks=ticks)
    credentials = _Credentials(
        authentication=KeysAndTokens(key_cache, tokens, resource),
        key_cache=key_cache,
        issuers=issuers,
        tokens=tokens,
        routes=resource.routes(),
        work=[key_cache.run, *(keys.run for keys in (tokens.key_sets if tokens else ()))],
    )
    if auth.server:
        grants = Grants(memory.appending, per_key=auth.grants_per_key, per_tenant=auth.grants_per_tenant)
        credentials.routes += AuthorizationServer(
            auth,
            auth.public_url,
            resource.urls,
            grants=grants,
            key_cache=key_cache,
            limiter=limiter,
            ticks=ticks,
        ).routes()
    return credentials


def _switch_of(path: str) -> str | None:
    """Return the setting that serves a path, None where none would; what it serves now answers by itself."""
    for setting, prefixes in _SWITCHES.items():
        if any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes):
            return setting
    return None


async def _refuse_unserved(request: Request, refused: Exception) -> Response:
    """Answer a request that nothing takes, in the form of every refusal; for Starlette's `exception_handlers`."""
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
        served = ", ".join(PATH_OF[api] for api in served_apis(settings))
        error = PathNotFound(f"nothing is served here; MCP is at {served}")
    body = orjson.dumps({"error": error.to_json()}, default=str)
    return Response(body, status_code=error.http_status, media_type="application/json", headers=headers)
