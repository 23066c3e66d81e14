"""Expressions of RE2: linear in the text, whatever it holds."""

from __future__ import annotations

from typing import Any

import re2

_MEMORY_BYTES = 32 << 20


def compiled(pattern: str) -> Any:
    """Return an expression over bytes of UTF-8, with groups."""
    return re2.compile(pattern, _options())


def first_look(pattern: str) -> Any:
    """Return an expression over bytes that only tells whether it matches, in any case of letters."""
    options = _options()
    options.case_sensitive = False
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    return re2.compile(pattern, options)


def literal(text: str) -> str:
    """Return the expression of a text itself."""
    escaped: str = re2.escape(text)
    return escaped


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options
