"""Prometheus for these tests: promtool and the server, as scripts/get_prometheus.py finds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.monitoring.rules import ROOT
from tests.support.skips import missing


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The folder with `prometheus` and `promtool`. Without them the test is skipped; in CI it fails."""
    found = subprocess.run(
        [sys.executable, ROOT / "scripts/get_prometheus.py", "--find"], capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        missing(f"no Prometheus (`python scripts/get_prometheus.py` fetches it): {found.stderr.strip()}")
    return Path(found.stdout.strip())
