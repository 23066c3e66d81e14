"""The words of a note's text, counted once for all that is inferred from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from myria.text.words import MAX_TERM_CHARACTERS, ascii_words, counted_surfaces, is_stopword, term_of
from myria.topics.wording import Votes

_SHORTEST = 2
_CACHED_WORDS = 65_536


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How often a text says each term that may be a subject or a keyword, in the order of their first places.

    Stop words, numbers and single letters may not. `shown` is how each stands first in the text. `ranked` are the
    terms, the most frequent first, of equals the earlier. `words` counts all, numbers too; `votes` is what the words
    tell of the language.
    """

    counts: dict[str, int]
    shown: dict[str, str]
    ranked: list[str]
    words: int
    votes: Votes

    @classmethod
    def of(cls, words: Iterable[tuple[str, str, int]]) -> WordCounts:
        """Return the counts of words, each given with its term and how often it stands there."""
        counts: dict[str, int] = {}
        shown: dict[str, str] = {}
        total, votes = 0, Votes()
        for surface, term, count in words:
            total += count
            if surface.isdigit():
                continue
            votes.add(term, count)
            if len(surface) < _SHORTEST or is_stopword(term):
                continue
            if term in counts:
                counts[term] += count
            else:
                counts[term], shown[term] = count, surface
        return cls(counts, shown, _ranked(counts), total, votes)

    @classmethod
    def of_text(cls, text: str) -> WordCounts:
        """Return the counts of the words of a text, in lower case."""
        if not text.isascii():
            return cls.of(counted_surfaces(text))
        counts: dict[str, int] = {}
        shown: dict[str, str] = {}
        plain, votes = 0, Votes()
        words = ascii_words(text)
        look = _about if max(map(len, words), default=0) <= MAX_TERM_CHARACTERS else _look
        for word, count in words.items():
            term, subject, votes_at_all = look(word)
            if subject:
                if term in counts:
                    counts[term] += count
                else:
                    counts[term], shown[term] = count, word
            if votes_at_all:
                votes.add(term, count)
            elif term:
                plain += count
        votes.words += plain
        return cls(counts, shown, _ranked(counts), sum(words.values()), votes)


def _ranked(counts: dict[str, int]) -> list[str]:
    return sorted(counts, key=counts.__getitem__, reverse=True)


def _look(word: str) -> tuple[str, bool, bool]:
    """Return the term of a word of plain letters, none for a number; if it may be a subject; if a language knows it."""
    if word.isdigit():
        return "", False, False
    term = term_of(word)
    return term, len(word) >= _SHORTEST and not is_stopword(term), Votes.counts(term)


_about = lru_cache(maxsize=_CACHED_WORDS)(_look)
