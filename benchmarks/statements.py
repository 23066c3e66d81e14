"""The SQL of the benchmarks, by name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HEADER = re.compile(r"^-- name: ([a-z0-9_]+)$", re.MULTILINE)


def statement(name: str) -> str:
    """Return a statement of statements.sql.

    Raises:
        KeyError: no such name.
    """
    return _statements()[name]


@cache
def _statements() -> dict[str, str]:
    text = Path(__file__).with_name("statements.sql").read_text(encoding="utf-8")
    parts = _HEADER.split(text)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
