"""The memory and its server as in tests/server; clients as their makers ship them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.clients import toolchain
from tests.server.conftest import memory, served, settings

__all__ = ["memory", "served", "settings"]


class Outside:
    """Runs programs of other worlds, with a home of their own, and returns what they printed."""

    def __init__(self, home: Path, node: Path, node_folder: Path, mcp1: Path) -> None:
        self._home = home
        self._node = node
        self._node_folder = node_folder
        self._mcp1 = mcp1

    async def node(self, *arguments: str | Path, text: str = "") -> tuple[int, str, str]:
        """Run Node.js where the npm packages are; return (exit status, standard output, standard error)."""
        return await self._run((self._node, *arguments), self._node_folder, text, {})

    async def mcp1(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Run a Python that sees mcp 1.x and nothing of this environment."""
        python = getattr(sys, "_base_executable", sys.executable)
        return await self._run((python, "-S", *arguments), self._home, "", {"PYTHONPATH": str(self._mcp1)})

    async def _run(
        self, command: Sequence[str | Path], cwd: Path, text: str, environment: Mapping[str, str]
    ) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *map(str, command),
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "HOME": str(self._home), "NO_COLOR": "1", **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(text.encode()), 120)
        finally:
            if process.returncode is None:
                process.kill()
        return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    """The clients that other people make; the first test of a machine installs them."""
    return Outside(tmp_path, toolchain.node(), toolchain.node_folder(), toolchain.mcp1())
