"""What is visible in all: how much, of which time, whose names, and how often words occur in it. Integers only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from myria.index.block import Ints, View, name_terms
from myria.index.corpus import Corpus, Mask


@dataclass(frozen=True, slots=True)
class Census:
    """Totals of everything visible. Names are looked up, not listed: there may be very many."""

    corpus: Corpus
    docs: int
    first: int
    last: int

    @classmethod
    def of(cls, corpus: Corpus) -> Census:
        """Count what is visible."""
        stamps = corpus.laid_out.timestamp
        first, last = (int(stamps.min()), int(stamps.max())) if len(stamps) else (0, 0)
        return cls(corpus=corpus, docs=len(stamps), first=first, last=last)

    def newest_until(self, moment: int) -> int | None:
        """Return the time of the newest visible document not after a moment, or None where all lie after it."""
        stamps = self.corpus.laid_out.timestamp
        before = stamps[stamps <= moment]
        return int(before.max()) if len(before) else None

    def utc_offset_at(self, moment: int) -> int:
        """Return the offset of the last visible document of a moment, which stands for now: 0 where there is none."""
        timeline = self.corpus.laid_out
        at = np.flatnonzero(timeline.timestamp == moment)
        if not len(at):
            return 0
        last = at[timeline.seq[at].argmax()]
        view, _ = self.corpus.parts()[timeline.view[last]]
        return int(view.utc_offset[timeline.doc[last]])

    def beginning_with(self, term: str) -> set[str]:
        """Return the visible names, of speakers and of participants, whose first term is this."""
        return self._speakers_beginning_with(term) | self._participants_beginning_with(term)

    def speakers(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these visible names are speakers'."""
        return frozenset(
            name for name in names for term in name_terms(name)[:1] if name in self._speakers_beginning_with(term)
        )

    def participants(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these names are those of participants of visible documents."""
        return frozenset(name for name in names if self._present(name))

    def shared(self, name: str) -> bool:
        """Tell whether a participant belongs to every scope with a visible document."""
        return self._present(name) == np.count_nonzero(self.corpus.present)

    def _speakers_beginning_with(self, term: str) -> set[str]:
        return {
            view.speakers[code]
            for view, mask in self.corpus.parts()
            for code in view.speakers_by_term.get(term, ())
            if _is_heard(view, mask, code)
        }

    def _participants_beginning_with(self, term: str) -> set[str]:
        return {name for name in self.corpus.scopes.names_by_term.get(term, ()) if self._present(name)}

    def _present(self, name: str) -> int:
        """Return in how many scopes with a visible document a participant is."""
        places = self.corpus.scopes.holders.get(name)
        return 0 if places is None else int(np.count_nonzero(self.corpus.present[places]))


def _is_heard(view: View, mask: Mask | None, code: int) -> bool:
    return code in view.heard and (mask is None or bool((mask & (view.speaker == code)).any()))


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


def frequencies(ids: Ints, corpus: Corpus) -> Ints:
    """Return how many visible documents hold each term; one that no text holds is as frequent as among hints."""
    total, hinted = np.zeros(len(ids), dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    for view, mask in corpus.parts():
        for counts, (terms, offsets, docs) in (
            (total, (view.terms, view.offsets, view.posting_doc)),
            (hinted, (view.hint_terms, view.hint_offsets, view.hint_doc)),
        ):
            for at, start, end in spans_of(ids, terms, offsets).T.tolist():
                counts[at] += end - start if mask is None else np.count_nonzero(mask[docs[start:end]])
    return np.where(total, total, hinted)


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
