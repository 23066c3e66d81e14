"""Wider words for those of a question, from WordNet: nouns that mean the same, or kinds of the thing.

A table of some thousand everyday nouns made from WordNet 3.1 (Miller, "WordNet: a lexical database for English", 1995;
scripts/wordnet_words.py). The lists written by hand (`related`, `members`, `states`) know what people tell of their
lives; this one knows little of everything and is worth less. It widens questions only; texts are indexed as they are.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import resources
from typing import Final

from myria.analysis.tokens import is_stopword, terms

_CACHED_TERMS: Final = 8_192


@lru_cache(maxsize=_CACHED_TERMS)
def wider(term: str) -> tuple[str, ...]:
    """Return the terms of words that may be told where a term is asked for, in a fixed order; none for most."""
    told = dict.fromkeys(other for line in _lines().get(term, ()) for other in terms(line))
    return tuple(other for other in told if other != term and not is_stopword(other))


@cache
def _lines() -> dict[str, list[str]]:
    """Return the lists beside words that have a term; they are read where they are asked for."""
    told_by_term: dict[str, list[str]] = {}
    for line in resources.files("myria.analysis").joinpath("wordnet.txt").read_text(encoding="utf-8").splitlines():
        word, _, told = line.partition(": ")
        if told and not line.startswith("#"):
            for term in terms(word)[:1]:
                if not is_stopword(term):
                    told_by_term.setdefault(term, []).append(told)
    return told_by_term
