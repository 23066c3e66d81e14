"""Put data into prompts so that it cannot pass for instructions, and name things by aliases valid in one prompt only.

Events and topics enter a prompt as JSON between two lines of a delimiter that is a function of the data and does not
occur in it. Inside, characters that markup, terminals or templates of chat models treat as special are escaped. What a
model may name has a short alias (e1, t1, c1) that means something in this one prompt only: an id it invents, or reads
in an event, resolves to nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Generic, TypeVar

from myria.llm.failures import Kind, failed

_SPECIAL = re.compile("[<>&`|#=\u007f-\u009f\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f"
                      "\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff"
                      "\U000e0000-\U000e0fff]")  # fmt: skip


def escaped(value: Any) -> str:
    """Return a value as JSON on one line, with characters escaped that are special outside JSON (`_SPECIAL`)."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _SPECIAL.sub(_as_escape, text)


def fenced(value: Any) -> str:
    """Return a value as JSON between two equal delimiter lines that do not occur in it."""
    text = escaped(value)
    mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    while mark in text:
        mark = hashlib.sha256(mark.encode()).hexdigest()[:16]
    return f"=== data {mark} ===\n{text}\n=== data {mark} ==="


T = TypeVar("T")


class Aliases(Generic[T]):
    """Short names (e1, e2, ...) for things of one kind, numbered in the order in which one prompt shows them."""

    def __init__(self, letter: str, what: str) -> None:
        self._letter = letter
        self._what = what
        self._by_alias: dict[str, T] = {}
        self._by_key: dict[Any, str] = {}

    def __len__(self) -> int:
        return len(self._by_alias)

    def of(self, key: Any, value: T) -> str:
        """Return the alias of `key`; a new key gets the next alias, a known one keeps its first value."""
        alias = self._by_key.get(key)
        if alias is None:
            alias = self._by_key[key] = f"{self._letter}{len(self._by_key) + 1}"
            self._by_alias[alias] = value
        return alias

    def alias(self, key: Any) -> str | None:
        """Return the alias of `key`; None if it has none."""
        return self._by_key.get(key)

    def resolve(self, alias: str) -> T:
        """Return what an alias stands for.

        Raises:
            ModelFailed: unknown_id.
        """
        if alias not in self._by_alias:
            shown = alias[:40].encode("ascii", "backslashreplace").decode()
            raise failed(Kind.UNKNOWN_ID, f"there is no {self._what} {shown!r} here")
        return self._by_alias[alias]


def _as_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    # JSON escapes a character beyond 16 bits as two surrogates.
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
