"""Words akin to those of a question: what people tell in other words ("Which seat?", "the one by the window").

A fixed table of some eight thousand everyday words with the forty beside each that mean the nearest to it, made once
from vectors of single words (scripts/akin_words.py). Half of them are nothing of the kind, so the table is worth less
than any other list, and is asked only for words that occur nowhere. It widens questions only; texts are indexed as they
are. It is read where it is asked for, and no model runs.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import resources
from typing import Final

from myria.analysis.tokens import is_stopword, terms

_CACHED_TERMS: Final = 4_096


@lru_cache(maxsize=_CACHED_TERMS)
def akin(term: str) -> tuple[str, ...]:
    """Return the terms of words akin to a term's, the nearest first; none for rare words, numbers and dates."""
    line = _lines().get(term, "")
    told = dict.fromkeys(other for other in terms(line) if other != term and not is_stopword(other))
    return tuple(told)


@cache
def _lines() -> dict[str, str]:
    """Return the list beside each term."""
    told_by_term: dict[str, str] = {}
    for line in resources.files("myria.analysis").joinpath("akin.txt").read_text(encoding="utf-8").splitlines():
        word, separator, told = line.partition(": ")
        if separator and not line.startswith("#"):
            for term in terms(word)[:1]:
                told_by_term.setdefault(term, told)
    return told_by_term
