"""A copy of this checkout with one commit, to change and to release from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMITTER = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_CONFIG_GLOBAL": os.devnull,
}
COMMITTER |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in COMMITTER.items() if "AUTHOR" in name}


def git(folder: Path, *arguments: str) -> str:
    """Return what git says in a folder."""
    environment = {**os.environ, **COMMITTER}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def copied(folder: Path) -> Path:
    """Copy all files that git knows, or would take, into a folder, and commit them there."""
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all of it")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this checkout."""
    return copied(tmp_path / "checkout")
