"""An MCP client that can misbehave: it hangs up in the middle of a request, and forgets answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from typing import Any

import orjson

from myria_server.api.tools import TOOLS, path_of
from tests.support.patience import PATIENCE_S

MODERN = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "soak", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_numbers = itertools.count(1)


class HungUp(Exception):
    """The connection broke before an answer came: what became of the request is unknown."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool answered."""

    content: Any
    is_error: bool

    @property
    def code(self) -> str | None:
        """The error's code, or None."""
        return self._refusal["code"] if self.is_error else None

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.is_error and bool(self._refusal["retryable"])

    @property
    def _refusal(self) -> Any:
        """The refusal, which the faces of agents and of turns tell at the top."""
        error = self.content.get("error")
        return error if isinstance(error, dict) else self.content


def request(tool: str, arguments: dict[str, Any], port: int) -> bytes:
    """Return a tool call as the bytes of an HTTP request."""
    name = next(one.dotted() for one in TOOLS if one.name == tool)
    params = {"name": name, "arguments": arguments, "_meta": _META}
    body = orjson.dumps({"jsonrpc": "2.0", "id": next(_numbers), "method": "tools/call", "params": params})
    head = (
        f"POST {path_of(tool)} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\n"
        f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Client:
    """One connection at a time, kept open between calls and made anew when it broke."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, tool: str, arguments: dict[str, Any], *, patience_s: float = PATIENCE_S) -> Reply:
        """Call a tool and return what it answered.

        Raises:
            HungUp: no whole answer came.
        """
        try:
            async with asyncio.timeout(patience_s):
                reader, writer = await self._connected()
                writer.write(request(tool, arguments, self.port))
                await writer.drain()
                return await _reply(reader)
        except (OSError, EOFError, TimeoutError) as error:
            self.hang_up()
            raise HungUp(repr(error)) from error

    async def call_and_hang_up(self, tool: str, arguments: dict[str, Any], *, sent: float, after_s: float) -> None:
        """Send the first part (`sent` of 1.0) of a call, wait a moment, and close the connection without reading."""
        raw = request(tool, arguments, self.port)
        with contextlib.suppress(OSError):
            _, writer = await self._connected()
            writer.write(raw[: max(1, round(len(raw) * sent))])
            await writer.drain()
            await asyncio.sleep(after_s)
        self.hang_up()

    async def call_until_answered(
        self, tool: str, arguments: dict[str, Any], *, patience_s: float = PATIENCE_S
    ) -> Reply:
        """Call again and again, whatever breaks, until the answer is none that asks for a retry.

        Raises:
            AssertionError: not within `patience_s` seconds.
        """
        last: object = None
        deadline = asyncio.get_running_loop().time() + patience_s
        while asyncio.get_running_loop().time() < deadline:
            try:
                reply = await self.call(tool, arguments)
            except HungUp as error:
                last = error
            else:
                if not reply.retryable:
                    return reply
                last = reply
            await asyncio.sleep(0.05)
        raise AssertionError(f"{tool} was not answered within {patience_s} s: {last}")

    def hang_up(self) -> None:
        """Close the connection at once."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None or self._streams[1].is_closing():
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        return self._streams


async def _reply(reader: asyncio.StreamReader) -> Reply:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    body = await reader.readexactly(int(fields[b"content-length"]))
    if status >= 500:
        raise EOFError(f"HTTP {status}: {body[:200]!r}")
    assert status == 200, (status, body[:500])
    result = orjson.loads(body)["result"]
    return Reply(result["structuredContent"], result["isError"])
