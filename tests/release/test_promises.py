"""scripts/compare_promises.py: what an older commit promised and this one does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.conftest import copied


@pytest.mark.processes
def test_what_is_gone_is_named(tmp_path: Path) -> None:
    """A setting with another default, a lost argument and a lost route are named; what is new is no loss."""
    checkout = copied(tmp_path / "checkout")
    settings, tools = checkout / "docs/settings.md", checkout / "docs/tools.md"
    routes = checkout / "server/myria_server/api/memtrace/handlers.py"

    def compared() -> tuple[int, str]:
        command = [sys.executable, "scripts/compare_promises.py", "HEAD"]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    settings.write_text(settings.read_text("utf-8") + "\n## new\n\n- `x` (text; `1`): New.\n", "utf-8")
    status, said = compared()
    assert (status, "gone:" in said) == (0, False), said

    settings.write_text(settings.read_text("utf-8").replace("- `port` (0..65535; `8321`)", "- `port` (`1`)"), "utf-8")
    tools.write_text(tools.read_text("utf-8").replace("- `channel` (required)", "- `canal` (required)"), "utf-8")
    routes.write_text(routes.read_text("utf-8").replace('"/search"', '"/found"'), "utf-8")
    status, said = compared()
    assert status == 1
    assert [line for line in said.splitlines() if line.startswith("gone:")] == [
        "gone: arguments of tools: myria_append_event(channel)",
        "gone: routes: POST /search",
        "gone: settings with defaults: mcp.port: 8321",
    ]
