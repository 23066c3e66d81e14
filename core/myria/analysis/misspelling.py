"""How else a word may stand in a text that was typed in a hurry.

One letter is left out, two are exchanged, one is written twice or drawn out ("looove"): the errors that hands make most
(Damerau, "A technique for computer detection and correction of spelling errors", 1964). Never in the first letter,
which is seldom wrong, nor in short words, which become other words. No letter is replaced by another: that finds other
words more often than errors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from myria.analysis.tokens import term_id

_SHORTEST: Final = 5
_LONGEST: Final = 24
_DRAWN_OUT: Final = 3
_CLIPPED: Final = (4, 5)
"""Letters that are left of a word cut short: fest, prof, photo."""
_SHORTEST_WHOLE: Final = 6
_CACHED_TERMS: Final = 4_096


def misspellings(term: str) -> tuple[str, ...]:
    """Return the terms that one error makes of a term, some five for each letter; none of short or other terms."""
    size = len(term)
    if not (_SHORTEST <= size <= _LONGEST and term.isascii() and term.isalpha()):
        return ()
    shorter = [term[:at] + term[at + 1 :] for at in range(1, size)]
    exchanged = [term[:at] + term[at + 1] + term[at] + term[at + 2 :] for at in range(1, size - 1)]
    longer = [term[:at] + term[at] * more + term[at:] for at in range(size) for more in range(1, _DRAWN_OUT + 1)]
    return tuple(other for other in dict.fromkeys((*shorter, *exchanged, *longer)) if other != term)


@lru_cache(maxsize=_CACHED_TERMS)
def misspelling_ids(term: str) -> tuple[int, ...]:
    """Return the ids of `misspellings`, ascending."""
    return tuple(sorted(map(term_id, misspellings(term))))


def clipped(term: str) -> tuple[str, ...]:
    """Return what is left of a term where people cut it short (festival: fest); none of short or other terms."""
    if len(term) < _SHORTEST_WHOLE or not (term.isascii() and term.isalpha()):
        return ()
    return tuple(term[:size] for size in _CLIPPED if size <= len(term) - 2)
