"""The SQL of the benchmarks, by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from myria.db.queries import named


def statement(name: str) -> str:
    """Return a statement of statements.sql.

    Raises:
        KeyError: no such name.
    """
    return _statements()[name]


@cache
def _statements() -> dict[str, str]:
    return named(Path(__file__).with_name("statements.sql").read_text(encoding="utf-8"))
