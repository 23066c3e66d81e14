"""When two texts say the same, and how much two notes are alike. Pure."""

from __future__ import annotations

import re
from typing import Any

ALIKE = 0.5
"""Share of common words, of all words of both, from which two notes are alike."""

BEGINNING = 2_000
"""Characters of a text that are compared."""

_LEAST_KEYWORDS = 3
"""Keywords from which on two notes are compared by them: of fewer, too many notes have the same."""

_WORD = re.compile(r"\w+")
_FINAL_STOP = re.compile(r"(?<=[^\s.。．])[.。．]\Z")

Said = tuple[frozenset[str], frozenset[str]]
"""What a note says: the words of its text's beginning, and its keywords, whatever their case."""


def essence(text: str) -> str:
    """Return what a text says: two texts are the same, everywhere in Myria, where this is equal.

    Space around it and one final stop are nothing; case and all else count: "5 mW" is not "5 MW". Where a note is kept,
    a narrower rule finds repeats at once (the same but for space around it); maintenance finds the rest.
    """
    return _FINAL_STOP.sub("", text.strip())


def said_by(text: str, keywords: Any = ()) -> Said:
    """Return what a note says. Keywords that are no list of texts, as imports may bring them, are none."""
    named = [word for word in keywords if isinstance(word, str)] if isinstance(keywords, list | tuple) else []
    return frozenset(_WORD.findall(text[:BEGINNING].casefold())), frozenset(map(str.casefold, named))


def similarity(one: Said, other: Said) -> float:
    """Return how much two notes are alike by their words, or by their keywords; 0 where that is not enough."""
    (words, keywords), (other_words, other_keywords) = one, other
    alike = _share(words, other_words)
    if min(len(keywords), len(other_keywords)) >= _LEAST_KEYWORDS:
        alike = max(alike, _share(keywords, other_keywords))
    return round(alike, 3) if alike >= ALIKE else 0.0


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of words that both have, of all words of both (Jaccard's index)."""
    return len(one & other) / len(one | other) if one or other else 0.0
