"""Each integration of the Python client with its real framework and a scripted model, against a real server.

Each framework is in an environment of its own, installed once per machine into the user's cache: `make integrations`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.clients import toolchain
from tests.server.wire import Served

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WANTED = os.environ.get("MYRIA_TEST_INTEGRATIONS", "")
"""`all`; `warm` for those that are installed; or nothing: some take minutes to install."""

NAMES = sorted(path.parent.name for path in HERE.glob("*/program.py"))
CHOSEN = [
    name for name in NAMES if WANTED == "all" or (WANTED == "warm" and toolchain.framework_place(HERE / name).exists())
]


async def runs(name: str, served: Served, tmp_path: Path) -> None:
    """Run a framework's program."""
    packages = await asyncio.to_thread(toolchain.framework, HERE / name)
    python = getattr(sys, "_base_executable", sys.executable)
    process = await asyncio.create_subprocess_exec(
        python,
        "-S",
        str(HERE / name / "program.py"),
        f"http://127.0.0.1:{served.port}",
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(map(str, (packages, ROOT / "clients/python", ROOT))),
            "LANGSMITH_TRACING": "false",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert said.decode().splitlines()[-1] == "sound", said.decode()


if CHOSEN:  # an empty list would be a skipped test

    @pytest.mark.processes
    @pytest.mark.parametrize("name", CHOSEN)
    async def test_a_framework(name: str, served: Served, tmp_path: Path) -> None:
        """Its program, which runs the example too, finds all as it should be."""
        await runs(name, served, tmp_path)


def test_the_pages_show_what_runs() -> None:
    """Each integration has a page; its code is that of the example which its program runs."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs/integrations").glob("*.md")}
    programs = {name.replace("_", "-"): (HERE / name / "program.py").read_text(encoding="utf-8") for name in NAMES}
    assert set(programs) <= set(pages)
    for name, program in programs.items():
        (module,) = re.findall(r"^from examples\.integrations\.(\w+) import", program, re.MULTILINE)
        example = (ROOT / f"examples/integrations/{module}.py").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", pages[name], re.MULTILINE | re.DOTALL)
        assert blocks, name
        assert all(block in example for block in blocks), name
        assert f"examples/integrations/{module}.py" in pages[name]
