"""What is visible in all: how much, of which time, and whose names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from myria.index.block import View, name_terms
from myria.index.corpus import Corpus, Mask


@dataclass(frozen=True, slots=True)
class Census:
    """Totals of everything visible. Names are looked up, not listed: there may be very many."""

    corpora: Sequence[Corpus]
    docs: int
    first: int
    last: int

    @classmethod
    def of(cls, corpora: Sequence[Corpus]) -> Census:
        """Count what is visible."""
        docs = 0
        spans: list[int] = []
        for corpus in corpora:
            for view, mask in corpus.parts():
                if mask is None:
                    seen = len(view)
                    first, last = view.span
                else:
                    stamps = view.timestamp[mask]
                    seen = len(stamps)
                    first, last = (int(stamps.min()), int(stamps.max())) if seen else (0, 0)
                if seen:
                    docs += seen
                    spans += (first, last)
        return cls(corpora=corpora, docs=docs, first=min(spans, default=0), last=max(spans, default=0))

    def newest_until(self, moment: int) -> int | None:
        """Return the time of the newest visible document not after a moment, or None where all lie after it."""
        newest: list[int] = []
        for corpus in self.corpora:
            for view, mask in corpus.parts():
                shown = view.timestamp <= moment if mask is None else (view.timestamp <= moment) & mask
                if shown.any():
                    newest.append(int(view.timestamp[shown].max()))
        return max(newest, default=None)

    def utc_offset_at(self, moment: int) -> int:
        """Return the offset of the last visible document of a moment, which stands for now: 0 where there is none."""
        newest = (0, 0)
        for corpus in self.corpora:
            for view, mask in corpus.parts():
                at = np.flatnonzero(view.timestamp == moment if mask is None else (view.timestamp == moment) & mask)
                if len(at):
                    last = at[view.seq[at].argmax()]
                    newest = max(newest, (int(view.seq[last]), int(view.utc_offset[last])))
        return newest[1]

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
        return frozenset(name for name in names if any(self._present(corpus, name) for corpus in self.corpora))

    def shared(self, name: str) -> bool:
        """Tell whether a participant belongs to every scope with a visible document."""
        return all(self._present(corpus, name) == np.count_nonzero(corpus.present) for corpus in self.corpora)

    def _speakers_beginning_with(self, term: str) -> set[str]:
        names: set[str] = set()
        for corpus in self.corpora:
            for view, mask in corpus.parts():
                for code in view.speakers_by_term.get(term, ()):
                    if view.speakers[code] not in names and _is_heard(view, mask, code):
                        names.add(view.speakers[code])
        return names

    def _participants_beginning_with(self, term: str) -> set[str]:
        return {
            name
            for corpus in self.corpora
            for name in corpus.scopes.names_by_term.get(term, ())
            if self._present(corpus, name)
        }

    @staticmethod
    def _present(corpus: Corpus, name: str) -> int:
        """Return in how many scopes of a corpus with a visible document a participant is."""
        places = corpus.scopes.holders.get(name)
        return 0 if places is None else int(np.count_nonzero(corpus.present[places]))


def _is_heard(view: View, mask: Mask | None, code: int) -> bool:
    return code in view.heard and (mask is None or bool((mask & (view.speaker == code)).any()))
