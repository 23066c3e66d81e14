"""Tell when two texts count as equal, and how similar two notes are. Pure."""

from __future__ import annotations

import re
from typing import Any

ALIKE = 0.5
"""Share of common words, of all words of both, from which two notes are alike."""

BEGINNING = 2_000
"""Characters of a text that are compared."""

_LEAST_KEYWORDS = 3
"""Keywords from which on two notes are compared by them: too many notes share one or two."""

_WORD = re.compile(r"\w+")
_FINAL_STOP = re.compile(r"(?<=[^\s.。．])[.。．]\Z")

Said = tuple[frozenset[str], frozenset[str]]
"""What a note says: the words of its text's beginning, and its keywords, whatever their case."""


def essence(text: str) -> str:
    """Return the part of a text that counts: everywhere in Myria, texts with an equal essence count as the same.

    Space around the text and one final stop do not count; case and all else do: "5 mW" is not "5 MW". When a note is
    kept, only texts that are equal but for space around them are found at once; maintenance finds the other repeats.
    """
    return _FINAL_STOP.sub("", text.strip())


def said_by(text: str, keywords: Any = ()) -> Said:
    """Return a note's words and keywords for `similarity`; keywords that are no texts, as in imports, are ignored."""
    keyword_texts = [word for word in keywords if isinstance(word, str)] if isinstance(keywords, list | tuple) else []
    return frozenset(_WORD.findall(text[:BEGINNING].casefold())), frozenset(map(str.casefold, keyword_texts))


def similarity(one: Said, other: Said) -> float:
    """Return the similarity (0..1) of two notes by their words or their keywords; 0 where it is below `ALIKE`."""
    (words, keywords), (other_words, other_keywords) = one, other
    share = _jaccard(words, other_words)
    if min(len(keywords), len(other_keywords)) >= _LEAST_KEYWORDS:
        share = max(share, _jaccard(keywords, other_keywords))
    return round(share, 3) if share >= ALIKE else 0.0


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of words that both have, of all words of both (Jaccard's index)."""
    return len(one & other) / len(one | other) if one or other else 0.0
