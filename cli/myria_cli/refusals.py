"""Telling of the lines that an import refuses."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from myria.errors import UnknownField
from myria_cli import console

if TYPE_CHECKING:
    from myria.log.transfer import RefusedLine

SHOWN: Final = 10
"""Lines refused for the same reason that are named one by one; the others are counted."""

_REASONS: Final = 1_000
"""Different reasons that are counted, so that memory stays bounded; lines of further ones are all named."""


class Refusals:
    """Tells of each refused line, as JSON, or as sentences: of many refused for one reason, how many more there are."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, line: RefusedLine) -> None:
        """Tell of a line."""
        if self._as_json:
            sys.stderr.write(console.json_text({"line": line.line, "code": line.code, "message": line.message}) + "\n")
            return
        reason = line.code, line.message
        if reason in self._counts or len(self._counts) < _REASONS:
            self._counts[reason] += 1
        if self._counts[reason] <= SHOWN:
            console.say(f"line {line.line}: error[{line.code}]: {line.message}", "red")

    def finish(self, *, may_ignore: bool) -> None:
        """Say how many lines were not named, and what helps.

        Args:
            may_ignore: whether fields can be left out by an option.
        """
        for (code, message), count in self._counts.items():
            if count > SHOWN:
                console.say(f"{count - SHOWN:,} more lines: error[{code}]: {message}", "red")
        if may_ignore and any(code == UnknownField.code for code, _ in self._counts):
            console.say("--ignore-field NAME imports such lines without that field")
