"""Named SQL: blocks of .sql files, loaded once and referred to by subject (the file's name) and name.

A block starts with `-- name: some_name`; the comment lines after it say what it is for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

_HEADER: Final = re.compile(r"^-- name: ([a-z0-9_]+)$", re.MULTILINE)


class Statements:
    """The statements of some packages of .sql files; each file is read when its first statement is asked for."""

    def __init__(self, *packages: str) -> None:
        self._packages = packages
        self._read: dict[str, dict[str, str]] = {}

    def __call__(self, reference: str) -> str:
        """Return the statement `subject.name`.

        Raises:
            KeyError: no such subject or name; a programming error.
        """
        subject, _, name = reference.partition(".")
        return self.subject(subject)[name]

    def subject(self, subject: str) -> Mapping[str, str]:
        """Return every statement of a subject by name."""
        if subject not in self._read:
            self._read[subject] = self._file(subject)
        return self._read[subject]

    def _file(self, subject: str) -> dict[str, str]:
        for package in self._packages:
            path = resources.files(package) / f"{subject}.sql"
            if path.is_file():
                return named(path.read_text(encoding="utf-8"))
        raise KeyError(subject)


sql: Final = Statements("myria.db.sql")
"""The core's own statements."""


def named(text: str) -> dict[str, str]:
    """Return the statements of a file's text by name, without their closing semicolons."""
    parts = _HEADER.split(text)
    return {name: body.strip().removesuffix(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
