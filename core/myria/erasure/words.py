"""Which words and phrases of erased events are looked for elsewhere."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

from myria.analysis import terms
from myria.planning.common_words import plain_terms, weak_terms

_WORD = re.compile(r"\w+")
_PHRASE = 3
"""Words of a phrase that is looked for."""
_TELLING = 5
_NUMBERED = 4
_IN_A_PAIR = 3
_ESCAPES = re.compile(r"\\\\[nrtbf\"/\\\\]")


def strings(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value, names of fields too, and every number."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            yield str(item)


def words(text: str) -> list[str]:
    """Return the words of a text, which may be JSON, in their order, case folded."""
    return _WORD.findall(_ESCAPES.sub(" ", text).casefold())


def telling(text: str) -> set[str]:
    """Return what betrays a text where it is quoted: words that few texts have, and pairs of neighbours."""
    row = words(text)
    found = {word for word in row if _is_telling(word)}
    found.update(
        f"{first} {second}" for first, second in pairwise(row) if len(first) >= _IN_A_PAIR and len(second) >= _IN_A_PAIR
    )
    return found


@lru_cache(maxsize=65_536)
def _is_telling(word: str) -> bool:
    if len(word) >= _NUMBERED and any(letter.isdigit() for letter in word):
        return True
    common = weak_terms() | plain_terms()
    return len(word) >= _TELLING and not any(term in common for term in terms(word))


def phrases(text: str) -> set[str]:
    """Return what a receipt proves the absence of: each three words in a row (a shorter text whole), and numbers.

    Words that people use about everything are no phrase: somebody would say them again tomorrow.
    """
    row = words(text)
    runs = [row[at : at + _PHRASE] for at in range(max(1, len(row) - _PHRASE + 1))]
    found = {" ".join(run) for run in runs if any(_is_telling(word) for word in run)}
    found.update(word for word in row if len(word) >= _TELLING and any(letter.isdigit() for letter in word))
    return found


def digests(key: bytes, found: Iterable[str]) -> set[bytes]:
    """Return the 32-byte HMACs of phrases under a receipt's key."""
    return {hmac.digest(key, phrase.encode(), "sha256") for phrase in found}


def candidates(text: str) -> set[str]:
    """Return every phrase of a text that `phrases` may have given for some other text within it."""
    row = words(text)
    found: set[str] = set(row)
    for size in range(2, _PHRASE + 1):
        found.update(" ".join(row[at : at + size]) for at in range(len(row) - size + 1))
    return found
