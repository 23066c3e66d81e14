"""Text as a label or a summary may hold it: on one line, clipped at a word, put together as a sentence would be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNSEEN = "\x00-\x1f\x7f-\xa0\u2028\u2029\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
_INVISIBLE = re.compile(f"[ {_UNSEEN}]+")
_LETTER_CASE_ENDS = "\u0530"
"""From Armenian on, letters have no case, or one that may change with Python's Unicode tables."""

_FIRST_WORD = re.compile(r"[^\W\d_]++(?![\d_.:/]\S)")


def clean(text: str) -> str:
    """Return text on one line, without control or directional characters."""
    return _INVISIBLE.sub(" ", text).strip(" ")


def clip(text: str, limit: int) -> str:
    """Return text of at most `limit` characters, cut at a word where there is one, marked with an ellipsis."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ", limit * 2 // 3)
    return (cut[:space] if space > 0 else cut).rstrip(" ,;:") + "…"


def capitalised(text: str) -> str:
    """Return a title with a capital where its first word is all small letters: not `iPhone`, not `tool_result`."""
    if text.startswith(("¿", "¡")):
        return text[0] + capitalised(text[1:])
    word = _FIRST_WORD.match(text)
    first = text[:1]
    if word and "a" <= first < _LETTER_CASE_ENDS and word.group() == word.group().lower() and len(first.upper()) == 1:
        return first.upper() + text[1:]
    return text


def lowered(text: str) -> str:
    """Return text in lower case, except in scripts whose case may change with Python's Unicode tables."""
    return text.lower() if text.isascii() or max(text) < "\u1000" else text


def people(names: Sequence[str]) -> str:
    """Return names as an English sentence lists them, whatever their script."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def counted(number: int, noun: str) -> str:
    """Return `1 event`, `2 events`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def distinct(names: Iterable[str]) -> list[str]:
    """Return names without repeats, in order."""
    return list(dict.fromkeys(names))
