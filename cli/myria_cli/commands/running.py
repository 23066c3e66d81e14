"""`myria up`, `demo` and `serve`: all planes on one machine, or the serving plane alone.

The MCP library takes longer to import than most commands take to run, so only the commands that serve import it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import httpx
import typer
from rich.panel import Panel
from rich.text import Text

from myria.access.principal import FACES, Face
from myria.access.secrets import MadeKey
from myria.db import schema
from myria.db.database import Database
from myria.db.waiting import until_current
from myria.errors import ConfigurationError, InvalidArgument, MyriaError
from myria.index.embeddings.choosing import chosen
from myria.memory import Memory
from myria.program import importing
from myria.settings import Settings, variable_of
from myria_cli import console, logs
from myria_cli.children import WithParent, stop_with_parent
from myria_cli.letting_in import first_key, how_to_connect
from myria_cli.local import Household, built_beside, household, url_of
from myria_cli.options import Options, command
from myria_cli.place import Place, data_dir_of, opened
from myria_server.api.tools import SWITCH_OF, served_faces
from myria_server.http.listening import reserve_port

if TYPE_CHECKING:
    from myria_server.serving import Departure

PANEL = "Run"

Host = Annotated[str | None, typer.Option(help="Address to listen on. Default: mcp.host, which is 127.0.0.1.")]
Port = Annotated[int | None, typer.Option(help="TCP port, 0 for any free one. Default: mcp.port, which is 8321.")]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Listen where others can reach it, without authentication."),
]
Auth = Annotated[
    bool,
    typer.Option(
        "--auth", help="Ask for keys (auth.mode keys), and make a tenant and a first key where there are none."
    ),
]
As = Annotated[
    list[str] | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help="As whom callers ask and keep who name nobody. Repeatable. Default: auth.local_participants.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""

    @command(
        app,
        "up",
        panel=PANEL,
        examples="""
myria up

myria up --port 9000 --data-dir ./memory

myria up --auth --host 0.0.0.0

myria up --as ana --as assistant

myria up --dsn postgresql://myria@localhost/myria
""",
    )
    async def up(
        options: Options,
        *,
        host: Host = None,
        port: Port = None,
        insecure: Insecure = False,
        auth: Auth = False,
        as_: As = None,
    ) -> None:
        """Run the whole memory on this machine until Ctrl-C: PostgreSQL, MCP server, triggers and builder.

        PostgreSQL is embedded and keeps its data in the data folder; with --dsn it is yours, and is migrated. Whatever
        of it dies is started again; Ctrl-C stops all that was started.
        """
        _expect_server()
        settings = options.settings(
            mcp__host=host,
            mcp__port=port,
            auth__mode="keys" if auth else None,
            auth__local_participants=tuple(as_) if as_ else None,
        )
        settings.auth.require_servable()
        guarded = settings.auth.mode == "keys"
        logs.configure(settings.service, "up", settings.log)
        sock = reserve_port(settings.mcp.host, settings.mcp.port, insecure=insecure, guarded=guarded)
        with sock:
            async with (
                opened(options, settings, create=True, exclusive=True) as place,
                household(options, settings, place, sock, verbose=True) as running,
            ):
                key = await first_key(place, settings, options.tenant) if guarded else None
                _introduce(options, settings, place, running, key)
                await running.run()

    @command(
        app,
        "demo",
        panel=PANEL,
        examples="""
myria demo

myria demo --once --data-dir ./try --port 9000
""",
    )
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
        """
        with importing():
            from myria_cli import sample  # noqa: PLC0415 - see the module's docstring

        settings = options.settings(mcp__host=host, mcp__port=port)
        settings.auth.require_servable()
        quiet = settings.service if options.debug else replace(settings.service, log_level="warning")
        logs.configure(quiet, "demo", settings.log)
        sample.folder()
        sock = reserve_port(settings.mcp.host, settings.mcp.port, insecure=insecure)
        with sock:
            async with (
                opened(options, settings, create=True, exclusive=True) as place,
                household(options, settings, place, sock, verbose=False) as running,
            ):
                if not options.json:
                    console.say(f"serving MCP at {running.url}; embeddings are {chosen(settings).why}", "dim")
                telling = asyncio.create_task(sample.tell(running.url, as_json=options.json))
                watching = asyncio.create_task(running.run())
                try:
                    await asyncio.wait({telling, watching}, return_when=asyncio.FIRST_COMPLETED)
                    if watching.done():
                        await watching
                    await telling
                finally:
                    telling.cancel()
                    watching.cancel()
                if once:
                    return
                _introduce(options, settings, place, running)
                console.say(sample.what_next(options, running.url), "")
                await running.run()

    @command(
        app,
        "serve",
        panel=PANEL,
        examples="""
myria serve --dsn postgresql://myria_server@db/myria --port 8321

myria serve --stdio --face agent --as ana --as assistant
""",
    )
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
        """
        if with_parent:
            stop_with_parent()
        with importing():  # see the module's docstring
            from myria_server.mcp.stdio import serve_stdio  # noqa: PLC0415
            from myria_server.metrics import ServerMetrics  # noqa: PLC0415
            from myria_server.serving import Departure, serve_http  # noqa: PLC0415

        settings = options.settings(
            mcp__host=host, mcp__port=port, auth__local_participants=tuple(as_) if as_ else None
        )
        settings.auth.require_servable()
        logs.configure(settings.service, "server", settings.log)
        if stdio and (host is not None or port is not None or descriptor is not None):
            raise InvalidArgument("--stdio listens on no port; leave --host and --port out", field="stdio")
        if face not in FACES:
            raise InvalidArgument(f"--face must be one of {', '.join(FACES)}", field="face")
        if stdio and face not in served_faces(settings):
            switch = SWITCH_OF[face]
            raise ConfigurationError(
                f"{switch} is false; set it in the settings file, or {variable_of(switch)}=true, for --face {face}",
                field=switch,
            )
        async with AsyncExitStack() as stack:
            sock = None
            if not stdio:
                sock = stack.enter_context(_listen(settings, descriptor, insecure=insecure))
            place = await stack.enter_async_context(opened(options, settings, create=True))
            if settings.postgres.migrate_on_start and place.embedded is None and not with_parent:
                await schema.migrate_if_pending(place.owner)
            metrics = ServerMetrics(tenant_label=settings.metrics.tenant_label)
            memory = await stack.enter_async_context(
                Memory(place.serving, settings, on_commit=metrics.commit_done, on_redacted=metrics.redacted)
            )
            metrics.watch_cache("retrieval", memory.retrieval.cache.figures)
            if memory.retrieval.questions is not None:
                metrics.watch_questions(memory.retrieval.questions.figures)
            if memory.retrieval.look is not None:
                metrics.watch_looks(memory.retrieval.look.figures)
            for name, pool in memory.pools.items():
                metrics.watch_pool(name, pool.figures)
            if sock is None:
                if settings.mcp.stdio_builds:
                    await stack.enter_async_context(built_beside(settings, place))
                await serve_stdio(memory, settings, tenant=options.tenant, face=face)
                return
            if descriptor is None:
                console.say(f"serving MCP at {url_of(sock, settings.mcp)}/mcp")
            if beside is not None:
                metrics.beside = _fetch(beside)
            departure = Departure()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, departure.ask)
            awaiting = asyncio.create_task(_expect_schema(memory.database, settings.migrate.wait_s, departure))
            # A parent that stops this process sends it no requests any more, so it need not linger.
            linger_s = 0.0 if with_parent else settings.mcp.linger_s
            try:
                await serve_http(
                    memory,
                    settings,
                    sock=sock,
                    tenant=options.tenant,
                    metrics=metrics,
                    departure=departure,
                    linger_s=linger_s,
                )
            finally:
                awaiting.cancel()
                await asyncio.wait({awaiting})
            if not awaiting.cancelled() and (error := awaiting.exception()) is not None:
                raise error


def _expect_server() -> None:
    """Raise at once where the child process that serves could not import its libraries.

    Raises:
        ModuleNotFoundError: one is not installed; `options.run` names the extra that brings it.
    """
    for library in ("mcp", "uvicorn"):
        if find_spec(library) is None:
            raise ModuleNotFoundError(f"No module named {library!r}", name=library)


def _listen(settings: Settings, descriptor: int | None, *, insecure: bool) -> socket.socket:
    if descriptor is not None:
        sock = socket.socket(fileno=descriptor)
        sock.setblocking(False)
        return sock
    guarded = settings.auth.mode == "keys"
    return reserve_port(settings.mcp.host, settings.mcp.port, insecure=insecure, guarded=guarded)


async def _expect_schema(database: Database, wait_s: float, departure: Departure) -> None:
    """End a server whose schema does not come in time; meanwhile it lives, and is not ready."""
    if not wait_s:
        return
    try:
        await until_current(database, wait_s)
    except MyriaError:
        departure.ask()
        departure.ask()
        raise


def _fetch(url: str) -> Callable[[], Awaitable[bytes]]:
    async def fetch() -> bytes:
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
            return (await client.get(url)).raise_for_status().content

    return fetch


_WHOM: tuple[tuple[Face, str, str], ...] = (
    ("agent", "agents", "a model's own memory"),
    ("core", "programs", "events and topics, over MCP"),
    ("rest", "REST", "described at /api/v1/docs"),
    ("turns", "turns", "hosts, around each turn"),
    ("admin", "admin", "builds and snapshots"),
)
"""Which address is for whom, in a few words."""


def _introduce(
    options: Options, settings: Settings, place: Place, running: Household, key: MadeKey | None = None
) -> None:
    """Say where everything is, and how to connect to it; `key` is the one that was made now, shown this once."""
    if options.json:
        console.write_json(
            {
                "url": running.url,
                **{f"{face}_url": running.urls.get(face) for face in FACES if face != "core"},
                "tenant": options.tenant,
                "auth": settings.auth.mode,
                "embeddings": chosen(settings).why,
                "key": None if key is None else key.text,
                "data_dir": str(data_dir_of(options)) if place.embedded is not None else None,
                "pid": os.getpid(),
                "server_pid": running.server.pid,
                "postgres_pid": place.embedded.pid if place.embedded is not None else None,
            }
        )
        return
    text = Text()
    for face, name, whom in _WHOM:
        if face in running.urls:
            text.append(f"{name:<11}", style="dim")
            text.append(running.urls[face], style="bold cyan")
            text.append(f"  {whom}\n", style="dim")
    text.append(f"{'memory':<11}", style="dim")
    text.append(f"{place.name}" + (f", tenant {options.tenant}" if options.tenant != "default" else "") + "\n")
    text.append(f"{'embeddings':<11}", style="dim")
    text.append(chosen(settings).why + "\n\n")
    text.append_text(how_to_connect(running.urls.get("agent", running.url), settings, key))
    console.write(Panel(text, title="Myria is up", subtitle="Ctrl-C stops everything", expand=False, padding=(1, 2)))
