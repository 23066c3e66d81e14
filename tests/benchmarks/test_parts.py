"""Every part runs from its command line at the smallest size, on PostgreSQL and processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.console import MOST_PAGE_BYTES
from benchmarks.console_pages import PAGES
from tests.support.counts import in_soak_runs
from tests.support.place import throw_away_folder
from tests.support.processes import Guardian

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def work_dir(guardian: Guardian) -> Iterator[Path]:
    """A work folder that the parts share, as they do in life."""
    with throw_away_folder(guardian) as folder:
        yield folder


def run_part(part: str, work_dir: Path, *arguments: str) -> dict[str, Any]:
    """Run a part at its smallest and return its report; a broken promise does not matter here, anything else does."""
    folders = ("--work-dir", str(work_dir), "--out", str(work_dir / "out"))
    small = ("--sizes", "400", "--rounds", "1", "--requests", "10", "--seconds", "0.3")
    command = [sys.executable, "-m", f"benchmarks.{part}", *folders, *small, *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode in {0, 1}, ended.stderr[-3000:]
    assert "the cost model" in ended.stdout, ended.stderr[-3000:]
    report: dict[str, Any] = json.loads((work_dir / "out" / f"{part}.json").read_text(encoding="utf-8"))
    report["checks"] = {check["promise"]: check for check in report["checks"]}
    return report


def test_appends(work_dir: Path) -> None:
    """Both endpoints take appends, and what is stored is what was acknowledged."""
    checks = run_part("appends", work_dir)["checks"]
    assert checks["rows that differ from what was acknowledged"]["value"] == 0
    assert checks["batches: rate / unnest"]["value"] > 0


@in_soak_runs
def test_builds(work_dir: Path) -> None:
    """Databases are loaded, built and built upon, and the pointer moves."""
    report = run_part("builds", work_dir)
    assert report["bench_400_in_many_built_target"]["rows"][0] > 0
    assert report["checks"]["rollback: p95"]["value"] > 0


@in_soak_runs
def test_console(work_dir: Path) -> None:
    """Each page of the console is opened and weighed, and what differs between two snapshots is read to its end."""
    report = run_part("console", work_dir)
    figures = report["pages at 400"]
    assert set(figures) == set(PAGES)
    assert all(figure["bytes"] <= MOST_PAGE_BYTES for figure in figures.values())
    assert report["difference: 1,000 new events among 400"]["seconds"]
    assert report["difference: 1,000 late events in one scope of 400"]["seconds"]


@in_soak_runs
def test_console_browser(work_dir: Path) -> None:
    """A browser paints the first page, and keeps pages open that nothing moves."""
    checks = run_part("console_browser", work_dir)["checks"]
    assert checks["layout shifts on open pages"]["value"] == 0


@in_soak_runs
def test_reads(work_dir: Path) -> None:
    """Logs of each kind are asked, and an agent in very many scopes."""
    checks = run_part("reads", work_dir)["checks"]
    assert checks["500 scopes of 8: warm p50"]["value"] > 0


@in_soak_runs
def test_attacks(work_dir: Path) -> None:
    """Another tenant is answered beside each attack, and what is attacked with is refused with a code."""
    report = run_part("attacks", work_dir)
    assert report["checks"]["bodies: refusals without a code"]["value"] == 0
    told = {kind: report[kind]["told"] for kind in ("answers", "tokens", "registrations", "bodies", "noise")}
    assert all(told.values())
    assert told["registrations"]["registration 429"] > told["registrations"]["registration 201"] > 0


@in_soak_runs
def test_against(work_dir: Path) -> None:
    """An older commit makes, builds and serves its own memory by its own code, in turn with this one."""
    if subprocess.run(["git", "cat-file", "-e", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no history")
    checks = run_part("against", work_dir, "HEAD")["checks"]
    assert len(checks) == 4
    assert all(check["value"] > 0 for check in checks.values())
