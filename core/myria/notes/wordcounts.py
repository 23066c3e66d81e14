"""The words of a note's text, counted once for all that is inferred from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from myria.text.words import counted_surfaces, is_stopword
from myria.topics.wording import Votes

_SHORTEST = 2


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
        ranked = sorted(counts, key=counts.__getitem__, reverse=True)
        return cls(counts, shown, ranked, total, votes)

    @classmethod
    def of_text(cls, text: str) -> WordCounts:
        """Return the counts of the words of a text, in lower case."""
        return cls.of(counted_surfaces(text))
