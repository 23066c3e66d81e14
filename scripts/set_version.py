"""Write the version of pyproject.toml into the files that cannot read it from there.

Usage: set_version.py [--check]

A new version is one edit of pyproject.toml and `make docs`. `--check` writes nothing and exits 1 where a file says
another version.
"""

from __future__ import annotations

import re
import sys
import tomllib
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.generated import ROOT, write_or_check

NUMBER = r"\d+\.\d+\.\d+"
PROGRAM = rf"(?<=\bmyria[:-]){NUMBER}|(?<=\bmyria[_-]client-){NUMBER}|(?<=/myria, tag: ){NUMBER}"
"""The version in names of images, wheels and tarballs."""

COPIES = {
    "clients/python/myria_client/__init__.py": rf'(?<=^__version__ = "){NUMBER}',
    "clients/typescript/package.json": rf'(?<=^  "version": "){NUMBER}',
    "clients/typescript/package-lock.json": rf'(?<="@myria/client",\n  "version": "){NUMBER}'
    rf'|(?<="@myria/client",\n      "version": "){NUMBER}',
    "charts/myria/Chart.yaml": rf"(?<=^appVersion: ){NUMBER}",
    "Dockerfile": rf"{PROGRAM}|(?<=^ARG VERSION=){NUMBER}",
    "compose.yaml": PROGRAM,
    "README.md": PROGRAM,
    "clients/typescript/README.md": PROGRAM,
    "docs/**/*.md": PROGRAM,
    "examples/**/*.md": PROGRAM,
    "examples/**/*.yaml": PROGRAM,
}
"""Files, or patterns of files, with the expression that matches the version in them."""


def with_version(path: Path, expression: str) -> str:
    """Return a file with the version of pyproject.toml in it."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return re.sub(expression, version, path.read_text(encoding="utf-8"), flags=re.MULTILINE)


if __name__ == "__main__":
    files = {path: expression for pattern, expression in COPIES.items() for path in sorted(ROOT.glob(pattern))}
    written = {path: partial(with_version, path, expression) for path, expression in files.items()}
    raise SystemExit(write_or_check(written))
