"""The words of a note's text, counted once for all that is inferred from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from myria.analysis.tokens import counted_surfaces, is_stopword

_SHORTEST = 2


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How often a text says each term, in the order of their first places.

    `counts` has those that may be a subject or a keyword: no stop words, numbers and single letters. `shown` is how
    each of these stands first in the text. `others` has the rest but numbers. `words` counts all, numbers too.
    """

    counts: dict[str, int]
    shown: dict[str, str]
    others: dict[str, int]
    words: int

    @classmethod
    def of(cls, words: Iterable[tuple[str, str, int]]) -> WordCounts:
        """Return the counts of words, each given with its term and how often it stands there."""
        counts: dict[str, int] = {}
        shown: dict[str, str] = {}
        others: dict[str, int] = {}
        total = 0
        for surface, term, count in words:
            total += count
            if surface.isdigit():
                continue
            if len(surface) < _SHORTEST or is_stopword(term):
                others[term] = others.get(term, 0) + count
            elif term in counts:
                counts[term] += count
            else:
                counts[term] = count
                shown[term] = surface
        return cls(counts, shown, others, total)

    @classmethod
    def of_text(cls, text: str) -> WordCounts:
        """Return the counts of the words of a text, in lower case."""
        return cls.of(counted_surfaces(text))

    def terms(self) -> dict[str, int]:
        """Return how often the text says each term that is no number."""
        terms = self.counts.copy()
        for term, count in self.others.items():
            terms[term] = terms.get(term, 0) + count
        return terms
