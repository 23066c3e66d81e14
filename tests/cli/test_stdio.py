"""`myria serve --stdio` as a host starts it: on its own it builds, beside others it leaves that to them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from myria_embedded.locks import FileLock
from tests.cli.conftest import call
from tests.server.wire import call as tool_call
from tests.server.wire import event
from tests.support.patience import PATIENCE_S
from tests.support.place import throw_away_folder
from tests.support.processes import Guardian

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def data_dir(guardian: Guardian) -> Iterator[Path]:
    """A data folder whose database was made once."""
    with throw_away_folder(guardian) as folder:
        assert call("migrate", "--data-dir", folder / "data").status == 0
        yield folder / "data"


class Host:
    """A host's side of the pipe."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._number = 0

    async def call(self, name: str, arguments: Any) -> Any:
        """Return what a tool answers; every line that comes back must be an answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._number += 1
        message = tool_call(f"myria_{name}", arguments, request_id=self._number)
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        answer = json.loads(await self._process.stdout.readline())
        assert answer["id"] == self._number
        return answer["result"]["structuredContent"]


@asynccontextmanager
async def host(data_dir: Path, **environment: str) -> AsyncIterator[Host]:
    """Start `myria serve --stdio` on a data folder, with triggers that do not wait long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "myria_cli.main", "serve", "--stdio", "--data-dir", str(data_dir)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "MYRIA_BUILDER_MAX_UNINDEXED_EVENTS": "3",
            "MYRIA_BUILDER_INACTIVITY_TIMEOUT_S": "1",
            **environment,
        },
    )
    try:
        yield Host(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def test_a_host_that_starts_nothing_else_gets_topics(data_dir: Path) -> None:
    """Events appended over the pipe are built without anybody else, and nothing but answers is written to it."""
    async with host(data_dir) as one:
        for number in range(4):
            await one.call("append_event", event(f"k{number}"))
        async with asyncio.timeout(PATIENCE_S):
            while (await one.call("get_active_snapshot", {}))["snapshot"] is None:
                await asyncio.sleep(0.1)
        status = await one.call("get_snapshot_status", {})
        assert status["last_build"]["status"] == "succeeded"


async def test_builds_are_left_to_who_attends_to_them(data_dir: Path) -> None:
    """Only one process of a data folder builds: a second waits for its turn, and one that is told not to never does."""
    lock = FileLock(data_dir / "control.lock")
    async with host(data_dir, MYRIA_MCP_STDIO_BUILDS="false") as one:
        await one.call("get_snapshot_status", {})
        assert lock.try_acquire()
        async with host(data_dir) as other:
            await other.call("get_snapshot_status", {})
            lock.release()
            async with asyncio.timeout(PATIENCE_S):
                while lock.try_acquire():
                    lock.release()
                    await asyncio.sleep(0.1)
