"""Keeping memories while the server may be away: first on disk, then at the server, each of them once.

`remember` returns when the memory is on disk (SQLite, written through). A kill of the program, of the server or of the
machine loses nothing that was acknowledged, and a batch that went out before is known by its key. A memory's time is
when it reached the server. Without a `path` on a disk that keeps its promises nothing of this holds.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from types import TracebackType
from typing import Unpack

from myria_client import _flows as flows
from myria_client._client import AsyncClient, Client, MemoryFields
from myria_client._errors import MyriaClientError
from myria_client._outbox import Outbox, RefusedMemory

_AGAIN_S = 5.0


class _Shared:
    """What both buffers are."""

    def __init__(self, path: Path | str) -> None:
        self._outbox = Outbox(path)
        self.error: Exception | None = None
        """Why the last try to send failed; None after one that succeeded."""

    @property
    def waiting(self) -> int:
        """How many memories are not yet at the server."""
        return self._outbox.waiting

    def refused(self) -> list[RefusedMemory]:
        """Return what the server refused for good, and why."""
        return self._outbox.refused()

    def drop(self, number: int) -> None:
        """Forget a refused memory."""
        self._outbox.drop(number)


class Buffer(_Shared):
    """A buffer on disk before a client that waits; a thread of its own sends.

    Args:
        client: sends; it is not closed before the buffer.
        path: the file; what an earlier run left in it is sent, too. Programs may share it.
        again_s: how long it waits, in seconds, after the server could not be reached.
    """

    def __init__(self, client: Client, path: Path | str, *, again_s: float = _AGAIN_S) -> None:
        super().__init__(path)
        self._client = client
        self._again_s = again_s
        self._wanted = threading.Event()
        self._leaving = threading.Event()
        self._wanted.set()
        self._sender = threading.Thread(target=self._run, name="myria-buffer", daemon=True)
        self._sender.start()

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def remember(self, content: str, **fields: Unpack[MemoryFields]) -> None:
        """Keep a memory on disk; it is sent soon.

        Raises:
            sqlite3.Error: it could not be written, and is not kept.
        """
        self._outbox.add([self._client.draft(content, fields).to_json()])
        self._wanted.set()

    def flush(self) -> None:
        """Send all that waits.

        Raises:
            Refused, Unreachable: not now; it stays on disk.
        """
        while self._client.run(flows.send_batch(self._outbox)):
            pass

    def close(self) -> None:
        """Send what can be sent at once, and close the file; the rest stays on disk."""
        self._leaving.set()
        self._wanted.set()
        self._sender.join()
        self._outbox.close()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                self.flush()
                self.error = None
            except (MyriaClientError, sqlite3.Error) as error:
                self.error = error
                if not self._leaving.wait(self._again_s):
                    self._wanted.set()
                    continue
            if self._leaving.is_set():
                return


class AsyncBuffer(_Shared):
    """A buffer on disk before a client that is awaited; a task of its own sends. Use it with `async with`.

    Its arguments are those of `Buffer`.
    """

    def __init__(self, client: AsyncClient, path: Path | str, *, again_s: float = _AGAIN_S) -> None:
        super().__init__(path)
        self._client = client
        self._again_s = again_s
        self._wanted = asyncio.Event()
        self._leaving = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncBuffer:
        self._wanted.set()
        self._sender = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    async def remember(self, content: str, **fields: Unpack[MemoryFields]) -> None:
        """Keep a memory on disk; see `Buffer.remember`."""
        body = self._client.draft(content, fields).to_json()
        await asyncio.to_thread(self._outbox.add, [body])
        self._wanted.set()

    async def flush(self) -> None:
        """Send all that waits; see `Buffer.flush`."""
        while await self._client.run(flows.send_batch(self._outbox)):
            pass

    async def close(self) -> None:
        """Send what can be sent at once, and close the file; the rest stays on disk."""
        self._leaving.set()
        self._wanted.set()
        if self._sender is not None:
            await self._sender
        self._outbox.close()

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.flush()
                self.error = None
            except (MyriaClientError, sqlite3.Error) as error:
                self.error = error
                try:
                    await asyncio.wait_for(self._leaving.wait(), self._again_s)
                except TimeoutError:
                    self._wanted.set()
                    continue
            if self._leaving.is_set():
                return
