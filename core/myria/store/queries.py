"""Named SQL: blocks of .sql files, loaded once and referred to by subject and name.

A block starts with `-- name: some_name`; the comment lines after it say what it is for.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_HEADER = re.compile(r"^-- name: ([a-z0-9_]+)$", re.MULTILINE)


def sql(reference: str) -> str:
    """Return the statement `subject.name`.

    Raises:
        KeyError: no such subject or name; a programming error.
    """
    subject, _, name = reference.partition(".")
    return _subject(subject)[name]


def subjects() -> dict[str, dict[str, str]]:
    """Return every statement by subject and name, for tests that EXPLAIN them."""
    folder = resources.files("myria.store.sql")
    names = sorted(entry.name[:-4] for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return {name: _subject(name) for name in names}


@cache
def _subject(subject: str) -> dict[str, str]:
    text = (resources.files("myria.store.sql") / f"{subject}.sql").read_text(encoding="utf-8")
    parts = _HEADER.split(text)
    return {name: body.strip().removesuffix(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
