"""The memory and its server as in tests/server; clients as their makers ship them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from myria_server.api.tools import TOOLS
from tests.clients import toolchain
from tests.server.conftest import memory, served, settings
from tests.support.counts import SOAK
from tests.support.guardian import started
from tests.support.patience import PATIENCE_S
from tests.support.processes import Guardian

__all__ = ["memory", "served", "settings"]

_PYTHON = getattr(sys, "_base_executable", sys.executable)

CORE_TOOLS = [tool for tool in TOOLS if "core" in tool.apis]

Row = TypeVar("Row")


def rows_by(way: str, ways: Sequence[str], rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of a table to try in one of several ways: the ways in turn, in a soak run all in each.

    What a row proves of its tool does not hang on the way; tests/server tries them all.
    """
    return rows if SOAK else rows[ways.index(way) :: len(ways)]


class Talking:
    """A program that writes a line of JSON for each thing it wants or has to say."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def hear(self) -> dict[str, Any]:
        """Return the next line of JSON; raise with all that came instead, where the program ended."""
        assert self._process.stdout is not None
        others = []
        while not (text := (await self._process.stdout.readline()).decode()).startswith("{"):
            others.append(text)
            if not text:
                raise AssertionError("the program ended, and had said:\n" + "".join(others))
        heard: dict[str, Any] = json.loads(text)
        return heard

    async def hear_of(self, pattern: str) -> str:
        """Return the first match of a pattern in what it says from now on."""
        assert self._process.stdout is not None
        others = []
        while line := (await self._process.stdout.readline()).decode():
            if (match := re.search(pattern, line)) is not None:
                return match[0]
            others.append(line)
        raise AssertionError("the program ended, and had said:\n" + "".join(others))

    async def ended(self) -> str:
        """Return what it says until it ends."""
        assert self._process.stdout is not None
        rest = (await self._process.stdout.read()).decode()
        await self._process.wait()
        return rest

    async def say(self, text: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")
        await self._process.stdin.drain()


class Outside:
    """Runs programs of other worlds, with a home of their own, and returns what they printed."""

    def __init__(self, home: Path, node: Path, node_folder: Path, mcp1: Path, guardian: Guardian) -> None:
        self._guardian = guardian
        self._home = home
        self._node = node
        self._node_folder = node_folder
        self._mcp1 = mcp1

    async def node(self, *arguments: str | Path, text: str = "") -> tuple[int, str, str]:
        """Run Node.js where the npm packages are; return (exit status, standard output, standard error)."""
        return await self._run((self._node, *arguments), self._node_folder, text, {})

    def node_talking(self, *arguments: str | Path) -> AbstractAsyncContextManager[Talking]:
        """Run Node.js where the npm packages are, to talk with line by line; it is ended with the block."""
        return self._talking((self._node, *arguments), self._node_folder, {})

    def mcp1_talking(self, *arguments: str | Path) -> AbstractAsyncContextManager[Talking]:
        """The same with a Python that sees mcp 1.x."""
        return self._talking((_PYTHON, "-S", *arguments), self._home, {"PYTHONPATH": str(self._mcp1)})

    async def mcp1(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Run a Python that sees mcp 1.x and nothing of this environment."""
        return await self._run((_PYTHON, "-S", *arguments), self._home, "", {"PYTHONPATH": str(self._mcp1)})

    async def memtrace(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Run a Python that sees memtrace-sdk and nothing of this environment."""
        seen = {"PYTHONPATH": str(toolchain.memtrace())}
        return await self._run((_PYTHON, "-S", *arguments), self._home, "", seen)

    async def _run(
        self, command: Sequence[str | Path], cwd: Path, text: str, environment: Mapping[str, str]
    ) -> tuple[int, str, str]:
        async with self._started(command, cwd, environment, stderr=asyncio.subprocess.PIPE) as process:
            out, err = await process.communicate(text.encode())
        return process.returncode or 0, out.decode(), err.decode()

    @asynccontextmanager
    async def _talking(
        self, command: Sequence[str | Path], cwd: Path, environment: Mapping[str, str]
    ) -> AsyncIterator[Talking]:
        async with self._started(command, cwd, environment, stderr=asyncio.subprocess.STDOUT) as process:
            yield Talking(process)

    @asynccontextmanager
    async def _started(
        self, command: Sequence[str | Path], cwd: Path, environment: Mapping[str, str], *, stderr: int
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a program in a group of its own, which ends with the block, and with this process should it be killed."""
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=cwd,
            env=self._environment(**environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
        self._guardian.tell(f"process {process.pid} {started(process.pid)}")
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            self._guardian.tell(f"done {process.pid}")

    def _environment(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self._home), "NO_COLOR": "1", **more}


@pytest.fixture
def outside(tmp_path: Path, guardian: Guardian) -> Outside:
    """The clients that other people make; the first test of a machine installs them."""
    return Outside(tmp_path, toolchain.node(), toolchain.node_folder(), toolchain.mcp1(), guardian)
