"""What a release stands on: one version, a chart whose version moves with it, notices, and the workflow."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release.conftest import ROOT, git

WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
OURS = {
    "*.py",
    "*.sql",
    "py.typed",
    "README.md",
    "members.toml",
    "kinds.toml",
    "facts.toml",
    "*.html",
    "console.*",
    "icon.svg",
}
"""Files of the packages that nobody else wrote."""


def script(checkout: Path, name: str, *arguments: str) -> tuple[int, str]:
    """Run a script of a checkout; return its status and what it said."""
    done = subprocess.run(
        [sys.executable, checkout / "scripts" / name, *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_every_file_says_the_version_of_the_project() -> None:
    """Clients, chart, image, Compose file and pages; `make docs` writes it into them."""
    assert script(ROOT, "set_version.py", "--check") == (0, "")


@pytest.mark.processes
def test_a_new_version_is_one_edit(checkout: Path) -> None:
    """After it and `set_version.py` no file but the change log and other packages' names the old version."""
    about = checkout / "pyproject.toml"
    text = about.read_text(encoding="utf-8")
    (old,) = re.findall(r'^version = "(.+)"$', text, re.MULTILINE)
    about.write_text(text.replace(f'version = "{old}"', 'version = "98.7.6"'), encoding="utf-8")
    status, said = script(checkout, "set_version.py", "--check")
    assert status == 1
    assert "clients/typescript/package.json" in said
    assert script(checkout, "set_version.py")[0] == 0
    assert script(checkout, "set_version.py", "--check") == (0, "")
    elsewhere = re.compile(rf"myria[^\n]{{0,20}}(?<![\w.]){re.escape(old)}(?![\w.]*\d)", re.IGNORECASE)
    for name in ("README.md", "Dockerfile", "compose.yaml", "charts/myria/Chart.yaml", "clients", "docs", "examples"):
        place = checkout / name
        for path in [place] if place.is_file() else place.rglob("*.*"):
            if path.suffix in {".md", ".yaml", ".json", ".toml", ".py", ""}:
                assert not elsewhere.search(path.read_text(encoding="utf-8")), path


@pytest.mark.processes
def test_a_changed_chart_needs_a_greater_version(checkout: Path) -> None:
    """Once a chart was released, another one under its version is a breach; a greater version is none."""
    git(checkout, "tag", "v0.1.0")
    assert "charts/myria: changed" not in of_charts(checkout)
    with (checkout / "charts/myria/templates/NOTES.txt").open("a", encoding="utf-8") as notes:
        notes.write("One line more.\n")
    assert "charts/myria: changed" in of_charts(checkout)
    about = checkout / "charts/myria/Chart.yaml"
    about.write_text(re.sub(r"(?m)^version: .*", "version: 99.0.0", about.read_text(encoding="utf-8")))
    assert "charts/myria: changed" not in of_charts(checkout)


def of_charts(checkout: Path) -> str:
    """Return the breaches of the rule for charts; the other rules read every file."""
    rule = "import check_house; print(*check_house.chart_breaches())"
    command = [sys.executable, "-c", rule]
    folder = checkout / "scripts"
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_notice_names_what_others_wrote() -> None:
    """Each file of the packages that is neither ours nor code stands in NOTICE, which goes into the image, too."""
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for folder in ROOT.glob("*/myria*/"):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and folder.parent.name != "charts":
                assert any(fnmatch(path.name, pattern) for pattern in OURS) or path.name in notice, path
    assert "COPY LICENSE NOTICE " in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_workflow_runs_targets_that_exist() -> None:
    """Every `make` of it names a target, and every job it waits for is there."""
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = [name for step in STEPS for name in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))]
    assert set(named) <= targets
    assert "release" in named
    for job in WORKFLOW["jobs"].values():
        needed = job.get("needs", [])
        assert set([needed] if isinstance(needed, str) else needed) <= set(WORKFLOW["jobs"])


def test_the_workflow_pins_and_grants_little() -> None:
    """Actions by commit; each job writes only what it publishes; no host and no token of a registry stands in it."""
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", one) for one in used)
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in WORKFLOW["jobs"]["build"]
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    assert not re.search(r"https?://|\b(ghcr|docker|pypi|npmjs)\.\w+", text)
