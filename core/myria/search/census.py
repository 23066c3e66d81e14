"""What is visible in all: how much, of which time, whose names, and how often words occur in it. Integers only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from myria.index.block import Ints, name_terms
from myria.index.corpus import Corpus


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
        """Return the time of the newest visible document at or before a moment, or None if all are after it."""
        stamps = self.corpus.laid_out.timestamp
        before = stamps[stamps <= moment]
        return int(before.max()) if len(before) else None

    def utc_offset_at(self, moment: int) -> int:
        """Return the UTC offset, in minutes, of the last visible document at exactly a moment; 0 without one.

        Questions that name no moment count from the newest document, and by its clock.
        """
        timeline = self.corpus.laid_out
        places = np.flatnonzero(timeline.timestamp == moment)
        if not len(places):
            return 0
        last = places[timeline.seq[places].argmax()]
        view, _ = self.corpus.parts[timeline.view[last]]
        return int(view.utc_offset[timeline.doc[last]])

    def beginning_with(self, term: str) -> set[str]:
        """Return the visible names of speakers and participants whose first term is `term`."""
        return self._speakers_beginning_with(term) | self._participants_beginning_with(term)

    def speakers(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these visible names are speakers'."""
        return frozenset(
            name for name in names for term in name_terms(name)[:1] if name in self._speakers_beginning_with(term)
        )

    def participants(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of these names are those of participants of visible documents."""
        return frozenset(name for name in names if self._count_scopes(name))

    def shared(self, name: str) -> bool:
        """Tell whether a participant belongs to every scope with a visible document."""
        return self._count_scopes(name) == np.count_nonzero(self.corpus.present)

    def _speakers_beginning_with(self, term: str) -> set[str]:
        return {
            view.speakers[code]
            for view, mask in self.corpus.parts
            for code in view.speakers_by_term.get(term, ())
            # A speaker counts who has a visible document.
            if code in view.heard and (mask is None or bool((mask & (view.speaker == code)).any()))
        }

    def _participants_beginning_with(self, term: str) -> set[str]:
        return {name for name in self.corpus.scopes.names_by_term.get(term, ()) if self._count_scopes(name)}

    def _count_scopes(self, name: str) -> int:
        """Return how many scopes with a visible document a participant belongs to."""
        places = self.corpus.scopes.holders.get(name)
        return 0 if places is None else int(np.count_nonzero(self.corpus.present[places]))


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


def frequencies(query_ids: Ints, corpus: Corpus) -> Ints:
    """Return how many visible documents hold each term.

    Terms that occur in no text get their count among hints.
    """
    in_texts, in_hints = np.zeros(len(query_ids), dtype=np.int64), np.zeros(len(query_ids), dtype=np.int64)
    for view, mask in corpus.parts:
        for counts, (terms, offsets, posting_docs) in (
            (in_texts, (view.terms, view.offsets, view.posting_doc)),
            (in_hints, (view.hint_terms, view.hint_offsets, view.hint_doc)),
        ):
            for term_index, start, end in spans_of(query_ids, terms, offsets).T.tolist():
                counts[term_index] += end - start if mask is None else np.count_nonzero(mask[posting_docs[start:end]])
    return np.where(in_texts, in_texts, in_hints)


def spans_of(ids: Ints, view_ids: Ints, offsets: npt.NDArray[np.int32]) -> Ints:
    """Find the postings of ids in a view; ids that it does not know are left out.

    Args:
        ids: what to find.
        view_ids: the view's ids, ascending; the postings of `known[i]` are `offsets[i]:offsets[i + 1]`.

    Returns:
        three rows: positions in `ids`, and where the postings of each begin and end.
    """
    if not len(ids) or not len(view_ids):
        return _NOWHERE
    view_places = view_ids.searchsorted(ids)
    view_places[view_places == len(view_ids)] = 0
    known_positions = (view_ids[view_places] == ids).nonzero()[0]
    view_places = view_places[known_positions]
    spans = np.empty((3, len(known_positions)), dtype=np.int64)
    spans[0], spans[1], spans[2] = known_positions, offsets[view_places], offsets[view_places + 1]
    return spans
