"""Writes files, or the ends of pages, out of the code: for `make docs`, and for tests that ask whether it ran."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = "<!-- What follows is written by `make docs`. -->\n"
"""Ends what people write in a page; the rest of it is generated."""


def below_mark(path: Path, body: str) -> str:
    """Return a page with what stands below its mark replaced."""
    return path.read_text(encoding="utf-8").partition(MARK)[0] + MARK + body


def write_or_check(files: Mapping[Path, Callable[[], str]]) -> int:
    """Write files, or with `--check` print which are not current; return the exit status."""
    status = 0
    for path, written in files.items():
        text = written()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        name = path.relative_to(ROOT)
        if "--check" in sys.argv:
            print(f"{name} is not current: run `make docs`.")
            status = 1
        else:
            path.write_text(text, encoding="utf-8")
            print(name)
    return status
