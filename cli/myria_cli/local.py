"""All planes on one machine (`myria up`): the same triggers, queue and builder that Kubernetes runs, as processes.

The control loop runs here; the serving plane and each builder are child processes. The listening socket belongs to this
process and is passed to the server, so that a server that dies and is started again keeps its port, and clients that
connect meanwhile wait instead of being refused. PostgreSQL has its own supervisor.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

import httpx
from prometheus_client.core import Metric

from myria.access.principal import ApiName
from myria.builds.model import Outcome
from myria.control import ControlLoop
from myria.db import schema
from myria.db.database import Database
from myria.db.options import pool_options
from myria.errors import ConfigurationError, InternalError, MyriaError, OperationalError
from myria.settings import McpSettings, Settings
from myria_cli.children import WITH_PARENT, Child, command_line, how_it_ended, keep_running
from myria_cli.options import DATA_DIR_VARIABLES, Options
from myria_cli.place import Place
from myria_embedded.locks import FileLock
from myria_monitoring.exposition import about_memory
from myria_monitoring.figures import FigureReader
from myria_monitoring.port import scraped
from myria_server.paths import CONSOLE_PREFIX, PATH_OF, REST_PREFIX, served_apis

READY_WAIT_S = 60.0
FIRST_FAILURES = 3
"""Times the server may end before it was ever ready; after that a restart is not expected to help."""

LOCK_POLL_S = 2.0
"""Seconds between two attempts to take the data folder's builder lock."""

BUILDER_PATIENCE_S = 5.0
"""Seconds a builder gets to stop; what it did not finish is done again from its leases."""

_log = logging.getLogger("myria.local")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPlanes:
    """The running planes: where each API and the console are served, the server's process, and what runs here."""

    urls: Mapping[ApiName, str]
    console: str | None
    server: Child
    tasks: Sequence[asyncio.Task[None]]

    @property
    def url(self) -> str:
        """Where programs speak MCP."""
        return self.urls["core"]

    async def run(self) -> None:
        """Never return; raise when a plane has ended that cannot be started again."""
        await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
        _check_running(self.tasks)


@asynccontextmanager
async def all_planes(
    options: Options, settings: Settings, place: Place, sock: socket.socket, *, verbose: bool
) -> AsyncIterator[RunningPlanes]:
    """Run every plane for the block, ready to serve; stop all of them after it.

    Args:
        sock: from `reserve_port`; stays the caller's.
        verbose: whether child processes log what they do, and not only what goes wrong.

    Raises:
        InternalError: the server does not become ready.
    """
    if place.embedded is None:
        if settings.postgres.migrate_on_start is False:
            await schema.require_current(place.owner)
        else:
            await schema.migrate(place.owner)
    await schema.adopt(place.owner)  # after a restore from another server's dump
    tasks: list[asyncio.Task[None]] = []
    ready = asyncio.Event()
    early_errors: list[MyriaError] = []

    def on_server_exit(status: int) -> None:
        if not ready.is_set():
            early_errors.append(child_error("the server", status, server.stderr_tail))

    pool = pool_options(settings, size=4)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(Database(place.control, pool))
        figures = FigureReader(database)
        stack.push_async_callback(figures.close)

        async def families() -> list[Metric]:
            return list(about_memory(await figures.latest(), tenant_label=settings.metrics.tenant_label))

        # The server may not read all tenants: this process makes their metrics, and the server's scrape includes them.
        port = stack.enter_context(scraped("127.0.0.1", 0, families, process=False))
        control_metrics_url = f"http://127.0.0.1:{port}/metrics"
        server = _server(settings, options, place, sock, control_metrics_url, verbose=verbose)
        control = ControlLoop(database, settings, launch=_Launcher(settings, place, verbose=verbose))
        try:
            if place.embedded is not None:
                tasks.append(asyncio.create_task(place.embedded.supervise(), name="postgres"))
            serving = keep_running(server, patience_s=settings.mcp.drain_s + 5, on_exit=on_server_exit)
            tasks.append(asyncio.create_task(serving, name="server"))
            address = url_of(sock, settings.mcp)
            await _wait_ready(address, early_errors, tasks)
            ready.set()
            tasks.append(asyncio.create_task(control.run(), name="control"))
            tasks.append(asyncio.create_task(_hold_builder_lock(place), name="builder lock"))
            paths = {**PATH_OF, "rest": REST_PREFIX}
            urls = {api: address + paths[api] for api in served_apis(settings)}
            console_url = address + CONSOLE_PREFIX if settings.console.enabled else None
            yield RunningPlanes(urls=urls, console=console_url, server=server, tasks=tasks)
        finally:
            # The control loop is stopped first: it must not start a builder that would have to be stopped at once.
            for task in reversed(tasks):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def builds_in_process(settings: Settings, place: Place) -> AsyncIterator[None]:
    """Run triggers, queue and builders of a data folder for the block, while no other process of this machine does.

    A `myria up` that starts later runs its own beside these, which does no harm. With --dsn nothing is run: another
    program may be responsible for that database's builds.
    """

    async def build(data_dir: Path) -> None:
        try:
            async with Database(place.control, pool_options(settings, size=4)) as database, _builder_lock(data_dir):
                await ControlLoop(database, settings, launch=_Launcher(settings, place, verbose=False)).run()
        except Exception:  # noqa: BLE001 - the server goes on, and its log says why nothing is built
            _log.exception("nothing is built any more", extra={"action": "control_failed"})

    if place.embedded is None:
        yield
        return
    building = asyncio.create_task(build(place.embedded.data_dir), name="control")
    try:
        yield
    finally:
        building.cancel()
        await asyncio.gather(building, return_exceptions=True)


def _builder_lock(data_dir: Path) -> AbstractAsyncContextManager[None]:
    """Return what waits until no other process builds for the data folder, and holds that right for the block."""
    return FileLock(data_dir / "control.lock").held(math.inf, poll_s=LOCK_POLL_S)


async def _hold_builder_lock(place: Place) -> None:
    """Hold the data folder's builder lock, if there is a folder, until cancelled."""
    if place.embedded is not None:
        async with _builder_lock(place.embedded.data_dir):
            await asyncio.Event().wait()
    await asyncio.Event().wait()


def with_console(settings: Settings, sock: socket.socket) -> Settings:
    """Return settings that say whether the console is served: where nothing says so, it is on a loopback address."""
    if settings.console.enabled is not None:
        return settings
    is_loopback = ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback
    return replace(settings, console=replace(settings.console, enabled=is_loopback))


def url_of(sock: socket.socket, mcp: McpSettings) -> str:
    """Return `http://host:port` of a listening socket, or `https` where TLS is set up."""
    host, port = sock.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{mcp.scheme}://{name}:{port}"


class _Launcher:
    """Starts builder processes. A call returns a builder's exit status; cancelling the call stops the builder.

    A builder that works for longer than `builder.turn_s` continues at low priority, so others get the processors.
    """

    def __init__(self, settings: Settings, place: Place, *, verbose: bool) -> None:
        self._turn_s = settings.builder.turn_s
        self._environment = _environment(settings, place.building, verbose=verbose)

    async def __call__(self, tenant: str, build_id: str) -> int:
        child = Child(
            "builder",
            command_line("build", "--tenant", tenant, "--build", build_id, WITH_PARENT),
            environment=self._environment,
        )
        await child.start()
        overrun = asyncio.get_running_loop().call_later(self._turn_s, child.lower_priority)
        try:
            status = await child.wait()
        finally:
            overrun.cancel()
            await asyncio.shield(child.stop(BUILDER_PATIENCE_S))
        if status not in _OUTCOMES:
            raise child_error("a builder", status, child.stderr_tail)
        return status


def child_error(who: str, status: int, stderr_tail: str) -> MyriaError:
    """Return why a child died, from its exit status and the end of its standard error."""
    matches = re.findall(r"^error\[(\w+)\]: (.+)$", stderr_tail, re.MULTILINE)
    code, message = matches[-1] if matches else ("", (stderr_tail.strip().splitlines() or ["it said nothing"])[-1])
    if status == OperationalError.exit_status:
        error_classes = {error_class.code: error_class for error_class in OperationalError.__subclasses__()}
        return error_classes.get(code, ConfigurationError)(message)
    return InternalError(f"{who} {how_it_ended(status)}: {message}")


def _server(
    settings: Settings, options: Options, place: Place, sock: socket.socket, control_metrics_url: str, *, verbose: bool
) -> Child:
    """Return the serving plane as a child process that inherits the listening socket, not yet started.

    Args:
        control_metrics_url: the metrics of this process, which the server adds to its own at each scrape.
    """
    # No check of the address: `sock` is loopback, or --auth or --insecure has allowed it already.
    return Child(
        "server",
        command_line(
            "serve",
            "--tenant",
            options.tenant,
            "--descriptor",
            str(sock.fileno()),
            "--beside",
            control_metrics_url,
            WITH_PARENT,
        ),
        environment=_environment(settings, place.serving, verbose=verbose),
        descriptors=[sock.fileno()],
    )


_RESOLVED_VARIABLES = ("MYRIA_CONFIG", "MYRIA_TENANT", *DATA_DIR_VARIABLES)
"""Variables that children must not inherit: this process has resolved them, and passes the results on explicitly."""

_OUTCOMES = frozenset(outcome.exit_status for outcome in Outcome)


def _environment(settings: Settings, dsn: str, *, verbose: bool) -> dict[str, str]:
    """Return a child's environment: this process's settings in force, but with the child's own `dsn`.

    Settings go into the environment and not onto the command line, which other users can read: the DSN may hold a
    password.
    """
    service = settings.service
    if service.log_format == "auto":  # a child whose lines we pass on sees no terminal
        service = replace(service, log_format="text" if sys.stderr.isatty() else "json")
    if not verbose:
        service = replace(service, log_level="warning")
    postgres = replace(settings.postgres, dsn=dsn)
    setting_variables = replace(settings, service=service, postgres=postgres).variables()
    return (
        {name: value for name, value in os.environ.items() if name not in _RESOLVED_VARIABLES}
        | setting_variables
        | {"PYTHONUNBUFFERED": "1"}
    )


def _check_running(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Raise why a plane has ended, if one has."""
    for task in tasks:
        if task.done():
            raise task.exception() or InternalError(f"the {task.get_name()} plane ended by itself")


async def _wait_ready(address: str, early_errors: list[MyriaError], tasks: Sequence[asyncio.Task[None]]) -> None:
    """Return once the server answers /readyz; raise what keeps it from getting ready."""
    # verify=False: the address is our own server's, whose certificate need not name it.
    http_client = httpx.AsyncClient(timeout=2.0, trust_env=False, verify=False)  # noqa: S501
    try:
        async with asyncio.timeout(READY_WAIT_S), http_client as client:
            while True:
                _check_running(tasks)
                if len(early_errors) >= FIRST_FAILURES or any(
                    isinstance(error, OperationalError) for error in early_errors
                ):
                    raise early_errors[-1]
                try:
                    if (await client.get(f"{address}/readyz")).status_code == httpx.codes.OK:
                        return
                except httpx.HTTPError:
                    _log.debug("the server does not answer yet")
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise InternalError(f"the server was not ready within {READY_WAIT_S:.0f} seconds") from error
