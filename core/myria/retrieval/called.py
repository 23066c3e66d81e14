"""Which names a word may stand for that is none as it is written: "Mel" for Melanie, "Jhon" for John."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Final

_LEAST_LETTERS: Final = 3
_LEAST_MISSPELT: Final = 4
_SAME_LETTERS: Final = 2
"""Letters that a name and another spelling of it begin with, so that few of very many names are compared."""


def names_like(word: str, names: Sequence[str]) -> Iterator[str]:
    """Yield those names that a word is short for, or misspells by one letter.

    Args:
        names: the terms of first names, ascending.
    """
    if len(word) < _LEAST_LETTERS:
        return
    begin = word[:_SAME_LETTERS]
    for name in takewhile(lambda name: name.startswith(begin), islice(names, bisect_left(names, begin), None)):
        if name != word and (name.startswith(word) or _is_misspelt(word, name)):
            yield name


def _is_misspelt(word: str, name: str) -> bool:
    """Tell whether one letter of a name is missing, added or another, or two have changed places.

    A letter behind the name is an ending in many languages, and says that somebody else may have told it.
    """
    if len(name) < _LEAST_MISSPELT or word.startswith(name):
        return False
    same = next(at for at, letter in enumerate(name) if word[at : at + 1] != letter)
    word, name = word[same:], name[same:]
    swapped = word[1::-1] + word[2:]
    return name in (swapped, word[1:]) or name[1:] in (word, word[1:])
