"""Write the version of pyproject.toml into the files that cannot read it from there.

Usage: set_version.py [--check]

A new version is one edit of pyproject.toml and `make docs`. `--check` writes nothing and exits 1 where a file says
another version.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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


def main(arguments: list[str]) -> int:
    """Write or check the copies; return the exit status."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    status = 0
    for pattern, expression in COPIES.items():
        for path in sorted(ROOT.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            written = re.sub(expression, version, text, flags=re.MULTILINE)
            if written == text:
                continue
            name = path.relative_to(ROOT)
            if "--check" in arguments:
                print(f"{name} does not say version {version}: run `make docs`.")
                status = 1
            else:
                path.write_text(written, encoding="utf-8")
                print(name)
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
