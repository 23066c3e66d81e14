"""The MCP conformance suite: every scenario that applies to a server without the suite's own fixture tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Outside
from tests.server.wire import Served

SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
NEEDS_FIXTURE = "Not testable: server does not list the diagnostic tool"
"""How the suite says that a check wants a tool that only a test server has."""


@pytest.mark.parametrize(
    ("scenario", "passed"),
    [
        ("server-initialize", 2),
        ("ping", 2),
        ("server-stateless", 21),
        ("http-header-validation", 14),
        ("tools-list", 3),
        ("dns-rebinding-protection", 2),
        ("caching", 7),
        ("input-required-result-unsupported-methods", 2),
    ],
)
async def test_scenario(served: Served, outside: Outside, tmp_path: Path, scenario: str, passed: int) -> None:
    """No check fails but those that need the suite's diagnostic tools, and at least so many pass."""
    url = f"http://localhost:{served.port}/mcp"
    _, out, err = await outside.node(SUITE, "server", "--url", url, "--scenario", scenario, "--output-dir", tmp_path)
    checks = results_in(tmp_path)
    failed = [
        (check["id"], check.get("errorMessage"))
        for check in checks
        if check["status"] in ("FAILURE", "WARNING")
        and not str(check.get("errorMessage", "")).startswith(NEEDS_FIXTURE)
    ]
    assert not failed, out + err
    assert sum(check["status"] == "SUCCESS" for check in checks) >= passed


def results_in(folder: Path) -> list[dict[str, Any]]:
    """Return the checks of the one scenario that was run."""
    (results,) = folder.rglob("checks.json")
    checks: list[dict[str, Any]] = json.loads(results.read_text())
    return checks
