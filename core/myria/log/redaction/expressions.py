"""Regular expressions of RE2, whose time is linear in the text, so that no text can stall the server."""

from __future__ import annotations

from typing import Any

import re2

_MEMORY_BYTES = 32 << 20


def compiled(pattern: str) -> Any:
    """Return an expression over bytes of UTF-8, with groups."""
    return re2.compile(pattern, _options())


def first_look(pattern: str) -> Any:
    """Return an expression over bytes, without groups, that ignores case: it only tells whether it matches."""
    options = _options()
    options.case_sensitive = False
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    return re2.compile(pattern, options)


def literal(text: str) -> str:
    """Return the expression that matches exactly this text."""
    escaped: str = re2.escape(text)
    return escaped


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    return options
