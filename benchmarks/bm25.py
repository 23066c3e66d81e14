"""Plain BM25 over what was said, to compare the ranking with: stems, stop words, nothing of speakers, times or places.

Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with k1 = 1.5 and b = 0.75.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from myria.text import terms

K1 = 1.5
B = 0.75
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's default list. The product's longer one also drops "I" and "my", which costs BM25 a tenth of its MRR on
agents' chats, where most answers are the user's own words."""


class Bm25:
    """Ranks the texts of one log.

    Args:
        texts: what was said, by number.
    """

    def __init__(self, texts: Mapping[int, str]) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._lengths: dict[int, int] = {}
        for number, text in texts.items():
            words = Counter(_words(text))
            self._lengths[number] = words.total()
            for word, times in words.items():
                self._postings[word].append((number, times))
        self._mean = max(1, sum(self._lengths.values())) / max(1, len(self._lengths))

    def first(self, question: str, limit: int) -> tuple[int, ...]:
        """Return the numbers of the best texts, best first; those that share no word with the question are not among
        them.
        """
        scores: dict[int, float] = defaultdict(float)
        for word in set(_words(question)):
            found = self._postings.get(word, ())
            rarity = math.log(1 + (len(self._lengths) - len(found) + 0.5) / (len(found) + 0.5))
            for number, times in found:
                length = 1 - B + B * self._lengths[number] / self._mean
                scores[number] += rarity * times * (K1 + 1) / (times + K1 * length)
        return tuple(sorted(scores, key=lambda number: (-scores[number], number))[:limit])


def _words(text: str) -> list[str]:
    return [word for word in terms(text) if word not in STOP_WORDS]
