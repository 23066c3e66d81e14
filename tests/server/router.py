"""What stands in front of serving processes in a cluster, played by two routers of the tests' own.

`Proxy` is an Ingress: it reads requests and keeps connections to the processes open between them. `Balancer` is a
Service: it knows connections only, and each stays with its process until somebody closes it. Both learn late that a
process is on its way out. Neither repeats anything: what fails is seen by the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_LIMIT = 1 << 24


class Endpoints:
    """The ports to which routers send, in turn; `sent` counts how often it was whose turn, `open` what is under way."""

    def __init__(self) -> None:
        self._ports: list[int] = []
        self._turn = itertools.count()
        self.sent: Counter[int] = Counter()
        self.open: Counter[int] = Counter()

    def add(self, port: int) -> None:
        """Send to a process from now on."""
        self._ports.append(port)

    def remove(self, port: int) -> None:
        """Send nothing new to a process any more."""
        self._ports.remove(port)

    @contextlib.contextmanager
    def next(self) -> Iterator[int]:
        """Lend the port whose turn it is, for a request or a connection."""
        port = self._ports[next(self._turn) % len(self._ports)]
        self.sent[port] += 1
        self.open[port] += 1
        try:
            yield port
        finally:
            self.open[port] -= 1

    def __contains__(self, port: object) -> bool:
        return port in self._ports


class _Router:
    """A listening port; `port` is its number once it runs."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.port = 0
        self._endpoints = endpoints
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> _Router:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=_LIMIT)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class Proxy(_Router):
    """Forwards request by request, over connections that it keeps open as long as the processes let it."""

    def __init__(self, endpoints: Endpoints) -> None:
        super().__init__(endpoints)
        self._idle: dict[int, list[Streams]] = defaultdict(list)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await _message(reader)
            with self._endpoints.next() as port:
                upstream = await self._connection(port)
                upstream[1].write(request)
                await upstream[1].drain()
                answer = await _message(upstream[0])
            if closes(answer):
                upstream[1].close()
                answer = answer.replace(b"\r\nconnection: close", b"", 1)
            else:
                self._idle[port].append(upstream)
            writer.write(answer)
            await writer.drain()

    async def _connection(self, port: int) -> Streams:
        while idle := self._idle[port]:
            reader, writer = idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", port, limit=_LIMIT)


class Balancer(_Router):
    """Forwards connection by connection, whatever goes over them."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._endpoints.next() as port:
            there, back = await asyncio.open_connection("127.0.0.1", port)
            onward = asyncio.create_task(_pipe(reader, back))
            try:
                await _pipe(there, writer)
            finally:
                onward.cancel()
                back.close()


def closes(answer: bytes) -> bool:
    """Tell whether an answer says that its connection ends with it."""
    return b"\r\nconnection: close\r\n" in answer.partition(b"\r\n\r\n")[0].lower() + b"\r\n"


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read a request or an answer whole; ours have a Content-Length."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    return head + await reader.readexactly(int(fields[b"content-length"]))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
