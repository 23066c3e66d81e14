"""MCP over standard input and output: one client, the same tools, the same strict JSON.

When the input ends, requests under way are still answered, so that `echo '...' | myria serve --stdio` works. While
serving, file descriptor 1 is standard error: a stray print must not corrupt the protocol.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import anyio
import mcp_types
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from myria.access.journal import Journal
from myria.access.principal import ApiName, local_principal
from myria.errors import BodyTooLarge, MyriaError
from myria.memory import Memory
from myria.settings import Settings
from myria_server.mcp.answers import ANSWERS_AT_ONCE
from myria_server.mcp.background import running
from myria_server.mcp.bodies import Bodies, Refused
from myria_server.mcp.calls import Calls
from myria_server.mcp.messages import call_at_fault, cancelled_id, fault, id_of, rpc_error, with_object_arguments
from myria_server.mcp.server import build_server
from myria_server.mcp.toolbox import Toolbox
from myria_server.metrics import ServerMetrics


async def serve_stdio(
    memory: Memory,
    settings: Settings | None = None,
    *,
    tenant: str = "default",
    api: ApiName = "core",
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
) -> None:
    """Serve one client over a pair of byte streams until its input ends.

    Args:
        api: the API whose tools are offered.
        stdin: where messages come from, one JSON text per line; the process's own by default.
        stdout: where answers go.
    """
    settings = settings or Settings()
    metrics = ServerMetrics()
    journal = Journal(memory.appending, settings.audit, dropped=metrics.record_dropped)
    toolbox = Toolbox(memory, settings, metrics, api=api, journal=journal)
    local = local_principal(tenant, actor="stdio", fallback=settings.auth.local_participants)
    server = build_server(toolbox, settings, local)
    async with running(journal.run()), running(memory.forgetting.run()):
        if stdin is not None and stdout is not None:
            await _Pipe(stdin, stdout, server, toolbox, settings).run()
            return
        with _claim_descriptors() as (wire_in, wire_out):
            await _Pipe(stdin or wire_in, stdout or wire_out, server, toolbox, settings).run()


class _Pipe:
    def __init__(self, stdin: BinaryIO, stdout: BinaryIO, server: Any, toolbox: Toolbox, settings: Settings) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._server = server
        self._toolbox = toolbox
        self._line_bytes = settings.mcp.body_bytes
        self._drain_s = settings.mcp.request_deadline_s
        self._calls = Calls(toolbox, server.server_info_stamp)
        self._bodies = Bodies(values=settings.mcp.body_values, wait_s=settings.mcp.request_deadline_s)
        self._unanswered: set[object] = set()
        self._unanswered_changed = asyncio.Condition()
        self._write_lock = asyncio.Lock()

    async def run(self) -> None:
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read_lines, to_server)
            group.start_soon(self._write_answers, from_server)
            await self._server.run(from_client, to_client, self._server.create_initialization_options())
            group.cancel_scope.cancel()

    async def _read_lines(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Hand the lines of the input to the server until it ends, then wait for answers under way."""
        lines: asyncio.Queue[bytes | MyriaError | None] = asyncio.Queue(maxsize=1)
        loop = asyncio.get_running_loop()

        def pump() -> None:
            line: bytes | MyriaError | None = b""
            with suppress(RuntimeError, CancelledError):
                while line is not None:
                    line = self._next_line()
                    asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

        # A daemon: it may still be blocked in a read when the server stops.
        threading.Thread(target=pump, name="stdin", daemon=True).start()
        async with to_server:
            while (line := await lines.get()) is not None:
                if isinstance(line, MyriaError):
                    await self._write_line(rpc_error(None, mcp_types.INVALID_REQUEST, line.message, line.to_json()))
                elif line.strip():
                    await self._take_line(line, to_server)
            with anyio.move_on_after(self._drain_s):
                await self._wait_for_unanswered(0)

    def _next_line(self) -> bytes | MyriaError | None:
        """Return the next line, an error where it is too long, or None at the end of the input."""
        line = self._stdin.readline(self._line_bytes + 1)
        if not line:
            return None
        if len(line) <= self._line_bytes:
            return line
        while line and not line.endswith(b"\n"):
            line = self._stdin.readline(1024 * 1024)
        return BodyTooLarge(f"a message is longer than {self._line_bytes} bytes", limit=self._line_bytes)

    async def _take_line(self, line: bytes, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        """Decode and check one line, then hand its message to the server, or answer with what is wrong."""
        try:
            decoded = with_object_arguments(await self._bodies.decode(line))
        except Refused as refused:
            await self._write_line(self._refusal_of(refused))
            return
        if type(decoded) is list:
            text = "send one JSON-RPC message per line; batches are not taken over stdio"
            await self._write_line(rpc_error(None, mcp_types.INVALID_REQUEST, text))
            return
        if (problem := fault(decoded)) is not None:
            await self._write_line(rpc_error(id_of(decoded), *problem))
            return
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_python(decoded, by_name=False)
        except ValidationError:
            text = "not a JSON-RPC 2.0 request, notification or response"
            await self._write_line(rpc_error(id_of(decoded), mcp_types.INVALID_REQUEST, text))
            return
        if isinstance(message, mcp_types.JSONRPCRequest):
            # Wait until the client has read some answers: one that reads none would fill the memory with them.
            await self._wait_for_unanswered(ANSWERS_AT_ONCE - 1)
            self._unanswered.add(message.id)
        elif isinstance(message, mcp_types.JSONRPCNotification) and message.method == "notifications/cancelled":
            await self._mark_answered(cancelled_id(decoded))
        await to_server.send(SessionMessage(message))

    def _refusal_of(self, refused: Refused) -> bytes:
        error, outline = refused.error, refused.outline
        blamed = call_at_fault(outline, error)
        if blamed is None or not self._toolbox.knows(blamed[1]):
            return rpc_error(id_of(outline), mcp_types.PARSE_ERROR, error.message, error.to_json())
        meta = outline["params"].get("_meta")
        is_modern = isinstance(meta, dict) and mcp_types.PROTOCOL_VERSION_META_KEY in meta
        return self._calls.written(blamed[0], self._toolbox.refusal(blamed[2]), is_modern=is_modern)

    async def _write_answers(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for item in from_server:
                body = item.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
                await self._write_line(orjson.dumps(body))
                if isinstance(item.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
                    await self._mark_answered(item.message.id)

    async def _wait_for_unanswered(self, most: int) -> None:
        """Wait until at most `most` requests are unanswered."""
        async with self._unanswered_changed:
            await self._unanswered_changed.wait_for(lambda: len(self._unanswered) <= most)

    async def _mark_answered(self, request_id: object) -> None:
        async with self._unanswered_changed:
            self._unanswered.discard(request_id)
            self._unanswered_changed.notify_all()

    async def _write_line(self, text: bytes) -> None:
        async with self._write_lock:
            await anyio.to_thread.run_sync(self._write_bytes, text + b"\n")

    def _write_bytes(self, text: bytes) -> None:
        self._stdout.write(text)
        self._stdout.flush()


@contextmanager
def _claim_descriptors() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Take descriptors 0 and 1 for the protocol, leaving the null device and standard error in their place."""
    sys.stdout.flush()
    wire_in, wire_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    try:
        # Never closed: a thread may still be reading when the server ends.
        yield os.fdopen(wire_in, "rb", closefd=False), os.fdopen(wire_out, "wb", closefd=False)
    finally:
        sys.stdout.flush()
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
