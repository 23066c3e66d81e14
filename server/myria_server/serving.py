"""Running the application on a TCP port that `listening` reserved, and a drain of bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import AsyncIterator, Generator

import mcp_types
import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from myria.errors import ConfigurationError, DeadlineExceeded, InvalidArgument, MyriaError
from myria.memory import Memory
from myria.settings import McpSettings, Settings
from myria_server.api.memtrace.answer_schemas import refused
from myria_server.app import BODY_TIMEOUT_S, ServerApp, build_app
from myria_server.http.certificate import Certificate
from myria_server.mcp.messages import rpc_error
from myria_server.metrics import ServerMetrics
from myria_server.paths import REST_PREFIX

logger = logging.getLogger(__name__)

HEADER_TIMEOUT_S = 10.0
"""How long a client may take to send its request line and headers."""

LINGER_S = 10.0
"""How long the rest of what was refused is read and dropped, so that its sender sees the answer."""

TAKING_TIMEOUT_S = 30.0
"""How long a client may read nothing of an answer, which is held until then, before its connection is aborted."""

HEADER_BYTES = 64 * 1024
"""How many bytes the request line and the headers of one request may have."""

KEEP_ALIVE_S = 75

YOUNG_OBJECTS = 10_000
"""New objects after which the garbage collector looks at them. A batch makes thousands and no cycle: at Python's own
700 it would be looked through several times while it is worked on, for a microsecond per event."""

_REST_PATH = f"{REST_PREFIX}/".encode()
_SHOWN_LINE_BYTES = 128
_SWEEP_S = 1.0


class Shutdown:
    """A request to stop a server: the first signal starts the orderly end, the second skips its waiting."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()

    def request(self) -> None:
        """Ask the server to stop; for a signal handler."""
        if self.requested.is_set():
            self.forced.set()
        self.requested.set()


class HttpServer:
    """A running server. `address` is where it listens.

    Raises:
        ConfigurationError: the files of TLS cannot be used.
    """

    def __init__(
        self, app: ServerApp, sock: socket.socket, *, drain_seconds: float, mcp: McpSettings | None = None
    ) -> None:
        mcp = mcp or McpSettings()
        self.app = app
        self._scheme = mcp.scheme
        self.address: tuple[str, int] = sock.getsockname()[:2]
        self._sock = sock
        self._certificate: Certificate | None = None
        if mcp.tls_certificate is not None and mcp.tls_key is not None:
            self._certificate = Certificate(mcp.tls_certificate, mcp.tls_key)
        config = uvicorn.Config(
            app,
            http=_GuardedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
        )
        config.load()
        config.ssl = None if self._certificate is None else self._certificate.context
        self._server = _Uvicorn(config)

    @property
    def url(self) -> str:
        """Where MCP is served."""
        host, port = self.address
        name = f"[{host}]" if ":" in host else host
        return f"{self._scheme}://{name}:{port}/mcp"

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Serve until `stop` is called, then drain."""
        self._server.ready = ready
        sweep = asyncio.create_task(self._sweep_connections())
        try:
            await self._server.serve(sockets=[self._sock])
        finally:
            sweep.cancel()
            self._sock.close()

    def stop(self) -> None:
        """Take no new connections, let open requests finish within the drain time, then return from `run`."""
        self.app.readiness.draining = True
        self._server.should_exit = True

    def force(self) -> None:
        """Stop waiting for open requests."""
        self._server.force_exit = True

    async def _sweep_connections(self) -> None:
        """Every `_SWEEP_S`, look for a renewed certificate and close connections that are too slow."""
        loop = asyncio.get_running_loop()
        last_sweep = loop.time()
        while True:
            await asyncio.sleep(_SWEEP_S)
            if self._certificate is not None:
                self._certificate.refresh()
            now = loop.time()
            # A sweep that comes late means that the event loop stood still; some lateness is normal.
            stalled_s, last_sweep = max(0.0, now - last_sweep - 2 * _SWEEP_S), now
            for connection in list(self._server.server_state.connections):
                if isinstance(connection, _GuardedProtocol):
                    if stalled_s:
                        connection.discount_stall(stalled_s, now)
                    connection.close_if_slow(now)


async def serve_http(
    memory: Memory,
    settings: Settings,
    sock: socket.socket,
    *,
    shutdown: Shutdown,
    tenant: str = "default",
    metrics: ServerMetrics | None = None,
    linger_s: float | None = None,
    ready: asyncio.Event | None = None,
) -> None:
    """Serve MCP over HTTP until the shutdown asked for is over, or the task is cancelled.

    A shutdown: readiness fails at once, and serving goes on, each answer closing its connection, until routers have
    noticed; then nothing new is accepted, and open requests get the drain time to finish. Signals are the caller's
    business: call `shutdown.request` from a handler.

    Args:
        sock: from `reserve_port`.
        linger_s: seconds of serving on; by default those of the settings.
        ready: set once requests are answered.

    Raises:
        ConfigurationError: before anything else.
    """
    app = build_app(memory, settings, tenant=tenant, metrics=metrics)
    try:
        server = HttpServer(app, sock, drain_seconds=settings.mcp.drain_s, mcp=settings.mcp)
    except ConfigurationError:
        sock.close()
        raise
    # The program's own objects are hardly ever garbage, and scanning them would take a tenth of a second.
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
    linger_s = settings.mcp.linger_s if linger_s is None else linger_s
    async with _running(server, ready, shutdown.forced):
        await shutdown.requested.wait()
        app.readiness.draining = True
        logger.info("leaving in %g s", linger_s, extra={"action": "server_leaving", "linger_s": linger_s})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(linger_s):
                await shutdown.forced.wait()


@contextlib.asynccontextmanager
async def _running(server: HttpServer, ready: asyncio.Event | None, forced: asyncio.Event) -> AsyncIterator[None]:
    """Run a server for the block, then drain it, until `forced` is set; if the server fails, cancel the block."""

    async def force_when_asked() -> None:
        await forced.wait()
        server.force()

    task = asyncio.create_task(server.run(ready))
    serving_task = asyncio.current_task()
    if serving_task is not None:
        task.add_done_callback(lambda done: serving_task.cancel() if done.exception() is not None else None)
    try:
        yield
    finally:
        server.stop()
        forcing = asyncio.create_task(force_when_asked())
        try:
            await asyncio.shield(task)
        finally:
            forcing.cancel()


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers, telling when it has started."""

    ready: asyncio.Event | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.ready is not None:
            self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _DroppedTrailers(list[tuple[bytes, bytes]]):
    """A list that drops the trailers put into it: as headers they could change who calls after that was decided."""

    def append(self, _field: tuple[bytes, bytes]) -> None:
        """Keep nothing."""


_DROPPED_TRAILERS = _DroppedTrailers()


class _GuardedProtocol(HttpToolsProtocol):
    """HTTP/1.1 with a bound on the time and size of a request's line and headers, and without trailers."""

    _waiting_since: float | None = None
    _body_since: float | None = None
    _write_paused_since: float | None = None
    _refused_at: float | None = None
    _current_piece = b""
    _piece_is_mixed = False
    """Whether the current piece also holds bytes that are not part of the head being read."""
    _too_large = False
    _head_bytes = 0
    """Bytes of earlier pieces that held nothing but parts of this head."""
    _overhead_bytes = 0
    """Bytes since the last piece of the body: trailers, or the framing and extensions of chunks."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; end a connection whose head, or whose bytes beside a body, are too large."""
        if self._refused_at is not None:
            return
        self._current_piece, self._piece_is_mixed = data, self._body_since is not None
        self._overhead_bytes += len(data)
        super().data_received(data)
        self._current_piece = b""
        if self._body_since is not None and self._overhead_bytes > HEADER_BYTES and self._refused_at is None:
            self.transport.close()
            return
        if self._refused_at is not None or self._waiting_since is None or self._piece_is_mixed:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEADER_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_paused_since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_paused_since = None

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a request whose client closed its side (RFC 9112, 9.6), then close; return whether to wait for that.

        An answer that has begun already is given up: a stream has no other way to learn that its reader is gone. TLS
        has no half of a connection that could be closed.
        """
        if self.cycle is None or self.cycle.more_body or self.cycle.response_started:
            return False
        self.cycle.keep_alive = False
        return self.transport.can_write_eof()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._waiting_since = self.loop.time()

    def on_headers_complete(self) -> None:
        if self._head_bytes + len(self._current_piece) > HEADER_BYTES and self._head_size() > HEADER_BYTES:
            self._too_large = True
            raise ValueError("a head too large")  # stops the parser, which has it refused
        self._head_bytes, self._piece_is_mixed = 0, True
        self._body_since = self._waiting_since
        self._waiting_since = None
        super().on_headers_complete()
        # From here the parser adds only trailers; the application holds the list of real headers already.
        self.headers, self._overhead_bytes = _DROPPED_TRAILERS, 0

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_since = None
        super().on_message_complete()

    def discount_stall(self, stalled_s: float, now: float) -> None:
        """Do not count time in which this process was stalled against the client, whose data may have waited unread."""
        if self._waiting_since is not None:
            self._waiting_since = min(now, self._waiting_since + stalled_s)
        if self._body_since is not None:
            self._body_since = min(now, self._body_since + stalled_s)
        if self._write_paused_since is not None:
            self._write_paused_since = min(now, self._write_paused_since + stalled_s)

    def close_if_slow(self, now: float) -> None:
        """End the connection if its client is too slow.

        That is: it reads no answer; sends its headers, or the first piece of a body, too late; or goes on sending a
        body although it was refused or answered.
        """
        if self._write_paused_since is not None and now - self._write_paused_since > TAKING_TIMEOUT_S:
            self.transport.abort()
            return
        if self.transport.is_closing():
            return
        if self._refused_at is not None:
            if now - self._refused_at > LINGER_S:
                self.transport.close()
            return
        if self._body_since is not None and self.cycle.response_complete:
            if now - self._body_since > LINGER_S:
                self.transport.close()
            return
        are_headers_late = self._waiting_since is not None and now - self._waiting_since > HEADER_TIMEOUT_S
        is_body_late = self._body_since is not None and now - self._body_since > BODY_TIMEOUT_S + _SWEEP_S
        if are_headers_late or (is_body_late and not self.cycle.response_started and not self.cycle.body):
            self._answer_and_close(b"408 Request Timeout", DeadlineExceeded("the request did not arrive in time"))

    def send_400_response(self, msg: str) -> None:
        """Refuse the request that stopped the parser: it is no HTTP, or its head is too large."""
        if self._too_large:
            self._refuse_head()
            return
        self._answer_and_close(b"400 Bad Request", InvalidArgument(f"this is no HTTP request: {msg}"))

    def _head_size(self) -> int:
        """Return the size of the head that was read, in bytes, as if the client wrote it without extra white space."""
        line_bytes = len(self.parser.get_method()) + len(self.url) + len(b"  HTTP/1.1\r\n\r\n")
        return line_bytes + sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)

    def _refuse_head(self) -> None:
        message = f"the request line and the headers of a request may have {HEADER_BYTES} bytes"
        self._answer_and_close(b"431 Request Header Fields Too Large", InvalidArgument(message, limit=HEADER_BYTES))

    def _answer_and_close(self, status: bytes, error: MyriaError) -> None:
        """Send an error without the application, which never saw the request, and close the connection.

        For `LINGER_S` further input is read and dropped: closed at once, the connection would be reset, and the client
        could lose the answer before reading it.
        """
        url: bytes = getattr(self, "url", b"")
        if not url:  # a line that is no HTTP names no path, but may hold one
            url = b"".join(self._current_piece[:_SHOWN_LINE_BYTES].split(b" ", 2)[1:2])
        if url.startswith(_REST_PATH):
            body = orjson.dumps(refused(error))
        else:
            body = rpc_error(None, mcp_types.INVALID_REQUEST, error.message, error.to_json())
        fixed_headers = (
            b"content-type: application/json\r\ncache-control: no-store\r\n"
            b"x-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n"
        )
        last_headers = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + fixed_headers + last_headers + body)
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()
            return
        self._refused_at = self.loop.time()
        if self.transport.can_write_eof():  # not with TLS
            self.transport.write_eof()
        self.flow.resume_reading()
