"""The record: files below `tests/golden/recorded`, compared byte for byte or, on purpose, rewritten."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("recorded")
MAX_DIFF_LINES = 200


def check(name: str, text: str) -> None:
    """Compare a text with the file of that name; with MYRIA_TEST_GOLDEN=write, write it instead.

    Fails with the lines that differ.
    """
    file = FOLDER / name
    if os.environ.get("MYRIA_TEST_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return
    recorded = file.read_text(encoding="utf-8") if file.exists() else ""
    if text == recorded:
        return
    difference = list(
        difflib.unified_diff(recorded.splitlines(), text.splitlines(), f"recorded/{name}", "now", n=3, lineterm="")
    )
    shown = "\n".join(difference[:MAX_DIFF_LINES])
    left_out = f"\n... and {len(difference) - MAX_DIFF_LINES} lines more" if len(difference) > MAX_DIFF_LINES else ""
    pytest.fail(f"{name} differs from what is on record:\n{shown}{left_out}", pytrace=False)
