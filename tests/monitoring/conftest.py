"""Prometheus for these tests: promtool and the server, as scripts/get_prometheus.py finds them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.monitoring.rules import ROOT

LOUD = "NO PROMETHEUS"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it once more, in red: a green run without Prometheus has tested no rule."""
    skipped = [one for one in terminalreporter.getreports("skipped") if LOUD in str(one.longrepr)]
    if skipped:
        terminalreporter.section(
            f"{LOUD}: {len(skipped)} tests skipped; `python scripts/get_prometheus.py` fetches it", red=True
        )


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The folder with `prometheus` and `promtool`. Without them the test is skipped; in CI it fails."""
    found = subprocess.run(
        [sys.executable, ROOT / "scripts/get_prometheus.py", "--find"], capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        message = f"{LOUD}: {found.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return Path(found.stdout.strip())
