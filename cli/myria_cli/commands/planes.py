"""`myria up`, `demo`, `serve`, `build` and `operate`: all planes on one machine, or one of them."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from myria.access.principal import API_NAMES, ApiName
from myria.errors import ConfigurationError, InvalidArgument, MyriaError
from myria_cli import console, logs
from myria_cli.children import WithParent, stop_with_parent
from myria_cli.options import Options, command
from myria_cli.place import opened

if TYPE_CHECKING:
    from myria.db.database import Database
    from myria.settings import Settings
    from myria_server.serving import Shutdown

PANEL = "Run"

app = typer.Typer(rich_help_panel=PANEL)

Host = Annotated[str | None, typer.Option(help="Address to listen on. Default: mcp.host, which is 127.0.0.1.")]
Port = Annotated[int | None, typer.Option(help="TCP port, 0 for any free one. Default: mcp.port, which is 8321.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Listen where others can reach it, without authentication.")]
As = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="As whom callers ask and keep who name nobody. Repeatable. Default: auth.local_participants.",
    ),
]


@command(app, "up")
async def up(
    options: Options,
    *,
    host: Host = None,
    port: Port = None,
    insecure: Insecure = False,
    auth: Annotated[
        bool,
        typer.Option(
            "--auth", help="Ask for keys (auth.mode keys), and make a tenant and a first key where there are none."
        ),
    ] = False,
    as_: As = None,
) -> None:
    """Run the whole memory on this machine until Ctrl-C: PostgreSQL, MCP server, triggers and builder.

    PostgreSQL is embedded and keeps its data in the data folder; with --dsn it is yours, and is migrated. Whatever
    of it dies is started again; Ctrl-C stops all that was started.

    Examples:
        myria up
        myria up --port 9000 --data-dir ./memory
        myria up --auth --host 0.0.0.0
        myria up --as ana --as assistant
        myria up --dsn postgresql://myria@localhost/myria
    """
    from myria_cli.local import all_planes, with_console
    from myria_cli.welcome import first_key, welcome

    settings = options.settings(
        mcp__host=host,
        mcp__port=port,
        auth__mode="keys" if auth else None,
        auth__local_participants=tuple(as_) if as_ else None,
    )
    settings.auth.require_servable()
    logs.configure(settings.service, "up", settings.log)
    with _listen(settings, insecure=insecure) as sock:
        settings = with_console(settings, sock)
        async with (
            opened(options, settings, create=True, exclusive=True) as place,
            all_planes(options, settings, place, sock, verbose=True) as running,
        ):
            key = await first_key(place, settings, options.tenant) if settings.auth.mode == "keys" else None
            welcome(options, settings, place, running, key)
            if running.console is not None and not options.json:
                console.say(f"look at the memory in a browser: {running.console}")
            await running.run()


@command(app, "demo")
async def demo(
    options: Options,
    *,
    host: Host = None,
    port: Port = None,
    insecure: Insecure = False,
    once: Annotated[bool, typer.Option("--once", help="Stop everything after the answers.")] = False,
) -> None:
    """Run everything with a sample conversation: load it over MCP, build its topics, ask three questions.

    A second run finds the sample there already.

    Examples:
        myria demo
        myria demo --once --data-dir ./try --port 9000
    """
    from myria.index.embeddings.choosing import chosen
    from myria_cli import sample
    from myria_cli.local import all_planes, with_console
    from myria_cli.welcome import welcome

    settings = options.settings(mcp__host=host, mcp__port=port)
    settings.auth.require_servable()
    demo_service = settings.service if options.debug else replace(settings.service, log_level="warning")
    logs.configure(demo_service, "demo", settings.log)
    sample.folder()
    # The sample is sent without a key, so a demo listens on this machine alone, whatever auth.mode says.
    with _listen(settings, insecure=insecure, guarded=False) as sock:
        settings = with_console(settings, sock)
        async with (
            opened(options, settings, create=True, exclusive=True) as place,
            all_planes(options, settings, place, sock, verbose=False) as running,
        ):
            if not options.json:
                console.say(f"serving MCP at {running.url}; embeddings are {chosen(settings).why}", "dim")
            sample_task = asyncio.create_task(sample.tell(running.url, as_json=options.json))
            planes_task = asyncio.create_task(running.run())
            try:
                await asyncio.wait({sample_task, planes_task}, return_when=asyncio.FIRST_COMPLETED)
                if planes_task.done():
                    await planes_task
                await sample_task
            finally:
                sample_task.cancel()
                planes_task.cancel()
            if once:
                return
            welcome(options, settings, place, running)
            console.say(sample.what_next(options, running.url))
            if running.console is not None and not options.json:
                console.say(f"look at the memory in a browser: {running.console}/ask?as={sample.READER}")
            await running.run()


@command(app, "serve")
async def serve(
    options: Options,
    *,
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve one client over stdin and stdout.")] = False,
    face: Annotated[
        str, typer.Option(metavar="FACE", help="With --stdio: which tools, core, agent, turns or admin.")
    ] = "core",
    host: Host = None,
    port: Port = None,
    insecure: Insecure = False,
    as_: As = None,
    descriptor: Annotated[int | None, typer.Option(hidden=True)] = None,
    beside: Annotated[str | None, typer.Option(hidden=True)] = None,
    with_parent: WithParent = False,
) -> None:
    """Run the serving plane alone: MCP over Streamable HTTP (at /mcp), or over standard input and output.

    Builds are the other planes' work: `myria up` runs them all. With --stdio they run in this process too when the
    memory is the data folder's and no `myria up` attends to it (mcp.stdio_builds); with --dsn somebody else must
    build: `myria up --dsn`, an operator, or `myria rebuild`. After SIGTERM /readyz fails and serving goes on for
    mcp.linger_s; then it ends with status 0.

    Examples:
        myria serve --dsn postgresql://myria_server@db/myria --port 8321
        myria serve --stdio --face agent --as ana --as assistant
    """
    if with_parent:
        stop_with_parent()
    from myria.db import schema
    from myria.memory import Memory
    from myria_cli.local import builds_in_process, url_of
    from myria_server.mcp.stdio import serve_stdio
    from myria_server.metrics import ServerMetrics
    from myria_server.serving import Shutdown, serve_http

    settings = options.settings(mcp__host=host, mcp__port=port, auth__local_participants=tuple(as_) if as_ else None)
    settings.auth.require_servable()
    logs.configure(settings.service, "server", settings.log)
    if stdio and (host is not None or port is not None or descriptor is not None):
        raise InvalidArgument("--stdio listens on no port; leave --host and --port out", field="stdio")
    served_api = _checked_api(settings, face, stdio=stdio)
    async with AsyncExitStack() as stack:
        sock = None
        if not stdio:
            sock = stack.enter_context(
                _listen(settings, insecure=insecure) if descriptor is None else _inherited_socket(descriptor)
            )
        place = await stack.enter_async_context(opened(options, settings, create=True))
        if settings.postgres.migrate_on_start and place.embedded is None and not with_parent:
            await schema.migrate_if_pending(place.owner)
        metrics = ServerMetrics(tenant_label=settings.metrics.tenant_label)
        memory = await stack.enter_async_context(
            Memory(place.serving, settings, on_commit=metrics.commit_done, on_redacted=metrics.redacted)
        )
        metrics.caches["retrieval"] = memory.retrieval.cache.figures
        if memory.retrieval.questions is not None:
            metrics.questions = memory.retrieval.questions.figures
        if memory.retrieval.look is not None:
            metrics.looks = memory.retrieval.look.figures
        for name, pool in memory.pools.items():
            metrics.pools[name] = pool.figures
        if sock is None:
            if settings.mcp.stdio_builds:
                await stack.enter_async_context(builds_in_process(settings, place))
            await serve_stdio(memory, settings, tenant=options.tenant, api=served_api)
            return
        if descriptor is None:
            console.say(f"serving MCP at {url_of(sock, settings.mcp)}/mcp")
        if beside is not None:
            metrics.beside = _fetcher(beside)
        shutdown = Shutdown()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shutdown.request)
        schema_task = asyncio.create_task(_end_without_schema(memory.database, settings.migrate.wait_s, shutdown))
        # A parent that stops this process sends it no requests any more, so it need not linger.
        linger_s = 0.0 if with_parent else settings.mcp.linger_s
        try:
            await serve_http(
                memory,
                settings,
                sock,
                shutdown=shutdown,
                tenant=options.tenant,
                metrics=metrics,
                linger_s=linger_s,
            )
        finally:
            schema_task.cancel()
            await asyncio.wait({schema_task})
        if not schema_task.cancelled() and (error := schema_task.exception()) is not None:
            raise error


@command(app, "build")
async def build(
    options: Options,
    *,
    build: Annotated[str, typer.Option(metavar="ID", help="The build to work on.")],
    processes: Annotated[
        int | None, typer.Option("--processes", "--workers", min=1, max=64, help="Default: builder.processes.")
    ] = None,
    with_parent: WithParent = False,
) -> int:
    """Work on one queued or running build until it has ended: the program of the build plane.

    Any number of these may work on one build, and any may be killed. Exit 0: published, held or
    nothing to do; 4: superseded or aborted; 7: failed.

    Examples:
        myria build --tenant default --build bld_0193c1… --processes 2
    """
    if with_parent:
        stop_with_parent()
    from myria.db.database import Database
    from myria.db.options import build_options
    from myria.db.schema import until_current
    from myria_builder import build as work_on

    settings = options.settings()
    logs.configure(settings.service, "builder", settings.log)
    async with opened(options, settings) as place:
        if settings.migrate.wait_s:
            async with Database(place.building, build_options(settings, size=1)) as database:
                await until_current(database, settings.migrate.wait_s)
        outcome = await work_on(
            settings, place.building, options.tenant, build, processes=processes or settings.builder.processes
        )
    options.answer({"build_id": build, "status": outcome.value})
    return outcome.exit_status


@command(app, "operate")
async def operate(
    options: Options,
    *,
    namespace: Annotated[
        str | None, typer.Option(help="The installation's namespace. Default: the pod's, or the kubeconfig's.")
    ] = None,
    pod_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PodTemplate of builds. Default: operator.pod_template.")
    ] = None,
) -> None:
    """Run the Kubernetes operator: MyriaRebuild resources become Jobs, triggers become MyriaRebuilds.

    It needs a database (--dsn or postgres.dsn), the definition in crds/ and the Role in examples/kubernetes/rbac.

    Examples:
        myria operate --dsn postgresql://myria_operator@db/myria --pod-template pod-template.yaml
    """
    settings = options.settings(
        operator__namespace=namespace,
        operator__pod_template=str(pod_template) if pod_template is not None else None,
    )
    logs.configure(settings.service, "operator", settings.log)
    dsn = options.dsn_of(settings)
    if dsn is None:
        raise ConfigurationError(
            "the operator needs a database that pods can reach: give --dsn or set postgres.dsn", field="postgres.dsn"
        )
    from myria_operator.app import operate as work  # after the checks, which need no Kubernetes client

    await work(settings, dsn)


def _listen(settings: Settings, *, insecure: bool, guarded: bool | None = None) -> socket.socket:
    """Return a socket that listens where the settings say.

    `guarded` tells whether callers need a key; None derives that from auth.mode.
    """
    from myria_server.http.listening import reserve_port

    if guarded is None:
        guarded = settings.auth.mode == "keys"
    return reserve_port(settings.mcp.host, settings.mcp.port, insecure=insecure, guarded=guarded)


def _inherited_socket(descriptor: int) -> socket.socket:
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    return sock


def _checked_api(settings: Settings, face: str, *, stdio: bool) -> ApiName:
    """Check the name of an API, and return it; with --stdio refuse one that the settings switch off."""
    from myria.settings import variable_of
    from myria_server.paths import SWITCH_OF, served_apis

    if face not in API_NAMES:
        raise InvalidArgument(f"--face must be one of {', '.join(API_NAMES)}", field="face")
    if stdio and face not in served_apis(settings):
        switch = SWITCH_OF[face]
        raise ConfigurationError(
            f"{switch} is false; set it in the settings file, or {variable_of(switch)}=true, for --face {face}",
            field=switch,
        )
    return face


async def _end_without_schema(database: Database, wait_s: float, shutdown: Shutdown) -> None:
    """Wait for the schema, and end the server if it is not current in `wait_s`; until then the server is not ready."""
    from myria.db.schema import until_current

    if not wait_s:
        return
    try:
        await until_current(database, wait_s)
    except MyriaError:
        shutdown.request()
        shutdown.request()  # twice means at once, without lingering: nothing was served yet
        raise


def _fetcher(url: str) -> Callable[[], Awaitable[bytes]]:
    import httpx

    async def fetch() -> bytes:
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
            return (await client.get(url)).raise_for_status().content

    return fetch
