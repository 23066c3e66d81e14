"""How often words occur in what is visible, and where: what every score begins with. Integers only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from myria.index.block import Ints
from myria.index.corpus import Corpus

_NOWHERE: Final[Ints] = np.zeros((3, 0), dtype=np.int64)


@lru_cache(maxsize=65_536)
def rarity(docs: int, frequency: int) -> int:
    """Return log2((docs + 1) / (frequency + 1/2)) in 1/256, at least 1: BM25's idf, always positive."""
    return max(1, log2(2 * docs + 2) - log2(2 * frequency + 1))


@lru_cache(maxsize=65_536)
def log2(number: int) -> int:
    """Return log2 in 1/256, rounded down, by squaring: exact on every machine."""
    whole = number.bit_length() - 1
    mantissa = number << 62 >> whole
    result = whole
    for _ in range(8):
        mantissa = mantissa * mantissa >> 62
        result <<= 1
        if mantissa >> 63:
            mantissa >>= 1
            result |= 1
    return result


def frequencies(ids: Ints, corpora: Sequence[Corpus]) -> tuple[Ints, list[list[Ints]]]:
    """Return how many visible documents hold each term, and where its postings are by corpus and view.

    A term that no text holds is as frequent as among the hints of events.
    """
    total, hinted = np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    places: list[list[Ints]] = []
    for corpus in corpora:
        rows: list[Ints] = []
        for view, mask in corpus.parts():
            spans = spans_of(ids, view.terms, view.offsets)
            rows.append(spans)
            if mask is None:
                total[spans[0]] += spans[2] - spans[1]
            else:
                for at, start, end in spans.T.tolist():
                    total[at] += np.count_nonzero(mask[view.posting_doc[start:end]])
            for at, start, end in spans_of(ids, view.hint_terms, view.hint_offsets).T.tolist():
                docs = view.hint_doc[start:end]
                hinted[at] += len(docs) if mask is None else np.count_nonzero(mask[docs])
        places.append(rows)
    return np.where(total, total, hinted), places


def spans_of(ids: Ints, known: Ints, offsets: npt.NDArray[np.int32]) -> Ints:
    """Return rows (positions in ids, starts, ends) of the postings of those ids that a view knows."""
    if not len(ids) or not len(known):
        return _NOWHERE
    at = known.searchsorted(ids)
    at[at == len(known)] = 0
    hit = (known[at] == ids).nonzero()[0]
    at = at[hit]
    spans = np.empty((3, len(hit)), dtype=np.int64)
    spans[0], spans[1], spans[2] = hit, offsets[at], offsets[at + 1]
    return spans
