"""The first change of docs/contributing.md, followed literally in a copy of this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.release.conftest import ROOT, copied

PAGE = (ROOT / "docs/contributing.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """Return the fenced blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.processes
def test_the_change_applies_and_its_test_passes(tmp_path: Path) -> None:
    """Its command applies all diffs, `make docs` shows the argument, the test passes, and fails without the change."""
    checkout = copied(tmp_path / "checkout")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = settings["tool"]["hatch"]["build"]["dev-mode-dirs"]
    path = os.pathsep.join(str(checkout / folder) for folder in packages)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    (apply,) = [block for block in blocks("sh") if "git apply" in block]
    (target,) = re.findall(r'make test ARGS="(\S+) -k (\w+)"\n```\n\nIt fails', PAGE)
    test = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", target[0], "-k", target[1])

    assert run("sh", "-c", apply).returncode == 0
    made = run("git", "diff", "--name-only").stdout.split()
    assert made == sorted(re.findall(r"^\+\+\+ b/(\S+)$", "".join(blocks("diff")), re.MULTILINE))
    passed = run(*test)
    assert "1 passed" in passed.stdout, passed.stdout
    assert run(sys.executable, "scripts/generate_docs.py").stdout == "docs/tools.md\n"

    assert run("git", "checkout", "--quiet", "--", "core", "server").returncode == 0
    assert "1 failed" in run(*test).stdout
