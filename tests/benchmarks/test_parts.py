"""Every part runs from its command line at the smallest size, on PostgreSQL and processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.counts import SOAK
from tests.support.place import throw_away_folder
from tests.support.processes import Guardian
from tests.support.skips import MACHINE

ROOT = Path(__file__).resolve().parents[2]

in_soak_runs = pytest.mark.skipif(not SOAK, reason=f"{MACHINE}these measurements are tried by make soak alone")
"""Each of these starts servers of its own, up to twenty seconds of CPU; the others run the same machinery."""


@pytest.fixture(scope="module")
def work_dir(guardian: Guardian) -> Iterator[Path]:
    """A work folder that the parts share, as they do in life."""
    with throw_away_folder(guardian) as folder:
        yield folder


def run_part(part: str, work_dir: Path, *arguments: str) -> dict[str, object]:
    """Run a part and return its report; a broken promise does not matter at this size, anything else does."""
    command = [sys.executable, "-m", f"benchmarks.{part}", "--work-dir", str(work_dir), "--out", str(work_dir / "out")]
    ended = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode in {0, 1}, ended.stderr[-3000:]
    assert "Traceback" not in ended.stderr, ended.stderr[-3000:]
    report: dict[str, object] = json.loads((work_dir / "out" / f"{part}.json").read_text(encoding="utf-8"))
    return report


def test_appends(work_dir: Path) -> None:
    """Both endpoints take appends, and what is stored is what was acknowledged."""
    report = run_part("appends", work_dir, "--rounds", "1", "--seconds", "0.5", "--pool", "4")
    checks = {check["promise"]: check for check in report["checks"]}  # type: ignore[attr-defined]
    assert checks["rows that differ from what was acknowledged"]["value"] == 0
    assert checks["requests that failed"]["value"] == 0
    for shape in ("32 connections", "1 connection", "batches of 100, 4 connections"):
        assert report[f"myria over MCP, {shape}"]["acknowledged"] > 0  # type: ignore[index]


def test_reads_and_builds(work_dir: Path) -> None:
    """Databases are loaded, built, read and built upon; the second part finds what the first has prepared."""
    small = ("--sizes", "400", "--rounds", "1")
    report = run_part("reads", work_dir, *small, "--requests", "20")
    assert report["scopes of 1,000-2,500 at 400"]["requests_per_round"] == 20  # type: ignore[index]
    few = ("--one-scope", "300", "--targets", "2", "--target-events", "300", "--publishes", "1")
    report = run_part("builds", work_dir, *small, *few)
    assert report["2 x 100 events at 400"]["rows_by_table"]["scope_roots"] == 2  # type: ignore[index]


def test_against_refuses_a_file_of_few_events(work_dir: Path) -> None:
    """What a start costs cannot be taken off a log that is no longer than the one that measures it."""
    few = work_dir / "few.jsonl"
    few.write_bytes(b"{}\n\n" * 20)
    for path in (few, work_dir / "none.jsonl"):
        command = [sys.executable, "-m", "benchmarks.against", "HEAD", "--events", str(path)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
        assert ended.returncode == 2
        assert f"{path} is no file of more than 20 events" in ended.stderr


@pytest.mark.soak
@in_soak_runs
def test_against(work_dir: Path) -> None:
    """An older commit makes and builds its own memory by its own code, in turn with this one."""
    if subprocess.run(["git", "cat-file", "-e", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no history")
    logs = ("one scope", "many scopes")
    chosen = [word for log in logs for word in ("--log", log)]
    report = run_part("against", work_dir, "HEAD", "--sizes", "200", "--rounds", "1", *chosen)
    for log in logs:
        assert len(report[f"{log}, 200 events"]["ratios"]) == 1  # type: ignore[index]
    own = work_dir / "own.jsonl"
    own.write_bytes(b"".join((ROOT / "examples/workshop.jsonl").read_bytes().splitlines(keepends=True)[:60]))
    report = run_part("against", work_dir, "HEAD", "--events", str(own), "--rounds", "1")
    assert len(report["own.jsonl, 60 events"]["ratios"]) == 1  # type: ignore[index]


@pytest.mark.soak
@in_soak_runs
def test_queries(work_dir: Path) -> None:
    """An older commit and this one answer the same questions over memories of their own."""
    if subprocess.run(["git", "cat-file", "-e", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no history")
    report = run_part("queries", work_dir, "HEAD", "--sizes", "400", "--rounds", "1", "--requests", "40")
    measured = report["400 events"]
    assert len(measured["p95_ratios"]) == 1  # type: ignore[index]
    assert measured["old"]["server_ms"] > 0 < measured["new"]["server_ms"]  # type: ignore[index]


@pytest.mark.soak
def test_sharing(work_dir: Path) -> None:
    """Builds by one process and by two end with the same roots."""
    logs = ("many scopes", "one scope") if SOAK else ("one scope",)
    only = () if SOAK else ("--only", "one")
    report = run_part("sharing", work_dir, "--sizes", "400", "--rounds", "1", *only)
    checks = {check["promise"]: check for check in report["checks"]}  # type: ignore[attr-defined]
    for log in logs:
        assert checks[f"{log} at 400: distinct results"]["value"] == 1


@pytest.mark.soak
@in_soak_runs
def test_many_scopes(work_dir: Path) -> None:
    """An agent of many scopes is asked beside one scope of as many events, and appends go on beside its readers."""
    small = ("--scopes", "30", "--each", "3", "--rounds", "1", "--requests", "4", "--seconds", "0.5")
    report = run_part("many_scopes", work_dir, *small, "--cold-starts", "1")
    assert report["30 scopes of 3"]["warm_p50_ms"] > 0  # type: ignore[index]
    assert report["append_event beside 16 readers"]["p95_ratio"] > 0  # type: ignore[index]


@pytest.mark.soak
@in_soak_runs
def test_auth(work_dir: Path) -> None:
    """The server takes the same appends and questions without and with keys."""
    report = run_part("auth", work_dir, "--blocks", "2")
    checks = {check["promise"]: check for check in report["checks"]}  # type: ignore[attr-defined]
    assert checks["calls that failed"]["value"] == 0, report["first_error"]
    for kind in ("append", "query"):
        for side in ("none", "keys", "none again"):
            assert report[f"{kind}, {side}"]["cpu"]["blocks"] == 2  # type: ignore[index]


@pytest.mark.soak
@in_soak_runs
def test_noisy(work_dir: Path) -> None:
    """The quiet key is answered beside each noise; what a key sends beyond its limit is refused."""
    report = run_part("noisy", work_dir, "--rounds", "1", "--seconds", "0.5", "--no-warm-up")
    checks = {check["promise"]: check for check in report["checks"]}  # type: ignore[attr-defined]
    assert checks["quiet calls that failed"]["value"] == 0
    assert checks["giant bodies that were taken"]["value"] == 0
    assert report["noise"]["credential"]["credential 429"] > 0  # type: ignore[index]
    for noise in ("alone", "within", "credential", "slow", "giant"):
        assert report[f"append, {noise}"]["per_s"] > 0  # type: ignore[index]


@pytest.mark.soak
@in_soak_runs
def test_attacks(work_dir: Path) -> None:
    """Another tenant is answered beside each attack, and every forged token and most registrations are refused."""
    report = run_part("attacks", work_dir, "--seconds", "2", "--attack", "tokens", "--attack", "registrations")
    checks = {check["promise"]: check for check in report["checks"]}  # type: ignore[attr-defined]
    assert checks["tokens, beside: quiet calls that failed"]["value"] == 0
    assert checks["registrations, beside: quiet calls that failed"]["value"] == 0
    told = report["registrations"]["told"]  # type: ignore[index]
    assert told["registration 429"] > told["registration 201"] > 0
    assert report["tokens"]["told"]["token 200"] > 0  # type: ignore[index]


@pytest.mark.soak
@in_soak_runs
def test_remembering(work_dir: Path) -> None:
    """Notes are kept beside events, one event is withdrawn from a built log, and recalled from what is left."""
    report = run_part("remembering", work_dir, "--sizes", "400", "--rounds", "1", "--calls", "40", "--questions", "10")
    assert report["remember, 1 clients"]["server_cpu_us"] >= 0  # type: ignore[index]
    assert 0 < report["forgetting at 400"]["rows_total"] <= 1_000  # type: ignore[index]
    assert report["recall at 400"]["p50_ms"] > 0  # type: ignore[index]


def test_memories(work_dir: Path) -> None:
    """Batches are kept beside events, and what they hold is searched in both ways beside recall."""
    report = run_part("memories", work_dir, "--rounds", "1", "--batches", "1", "--questions", "4")
    assert report["batches"]["ratio"] > 0  # type: ignore[index]
    assert report["search by words"]["p95_ratio"] > 0  # type: ignore[index]


def test_turns(work_dir: Path) -> None:
    """Turns of several sessions are prepared and kept, and what they cost stands beside calls of the log."""
    report = run_part("turns", work_dir, "--sizes", "400", "--rounds", "1", "--calls", "20", "--sessions", "1")
    for tool in ("memory_before_turn", "memory_after_turn"):
        assert report[f"{tool}, 32 clients"]["p95_ms"] > 0  # type: ignore[index]
    for clients in (1, 32):
        assert report[f"memory_after_turn of 2, {clients} clients"]["cpu_ratio"] > 0  # type: ignore[index]


@pytest.mark.soak
@in_soak_runs
def test_erasing(work_dir: Path) -> None:
    """Events of a built log are erased beside a client that appends and asks, and the receipt is proved."""
    report = run_part("erasing", work_dir, "--sizes", "400", "--events", "20", "--blocks", "1")
    assert report["at 400"]["rows"]["events"] == 20  # type: ignore[index]
    assert report["append_event at 400"]["p95_ms"] > 0  # type: ignore[index]


def test_hostile(work_dir: Path) -> None:
    """Every hostile body is refused with a code, and the server's loop and memory are measured."""
    report = run_part("hostile", work_dir, "--bodies", "6")
    checks = {check["promise"]: check for check in report["checks"]}  # type: ignore[attr-defined]
    assert checks["answers without a code"]["value"] == 0
    assert report["loop"]["ticks"] > 0  # type: ignore[index]
