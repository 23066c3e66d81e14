"""What is visible in all: how much, of which time, and whose names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from myria.analysis import term_id
from myria.index.block import View, name_terms
from myria.index.corpus import Corpus, Mask
from myria.retrieval.called import names_like
from myria.retrieval.frequency import frequencies
from myria.values import short_value

_OWN_MENTIONS: Final = 10
"""Of a name that somebody says in each tenth text that holds it, somebody else is the bearer."""


@short_value
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

    def called(self, term: str) -> set[str]:
        """Return the name of the one visible speaker whom a term that is no name is short for, or misspells.

        None where it is somebody else's: people hardly say their own name, and a misspelling stands in no text.
        """
        views = [view for corpus in self.corpora for view, _ in corpus.parts()]
        likely = {first for view in views for first in names_like(term, view.first_names)}
        names = {name for first in likely for name in self._speakers_beginning_with(first)}
        if len(names) != 1:
            return set()
        said, by_themselves = self._mentions(term, names)
        is_short = all(first.startswith(term) for name in names for first in name_terms(name)[:1])
        return names if by_themselves * _OWN_MENTIONS <= said and (is_short or not said) else set()

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

    def _mentions(self, term: str, names: set[str]) -> tuple[int, int]:
        """Return how many visible texts hold a term, and how many of those somebody of these names told."""
        said = by_them = 0
        _, located = frequencies(np.array([term_id(term)], dtype=np.int64), self.corpora)
        for corpus, rows in zip(self.corpora, located, strict=True):
            for (view, mask), spans in zip(corpus.parts(), rows, strict=True):
                theirs = [code for code, name in enumerate(view.speakers) if name in names]
                for _, start, end in spans.T.tolist():
                    docs = view.posting_doc[start:end]
                    docs = docs if mask is None else docs[mask[docs]]
                    said += len(docs)
                    by_them += int(np.isin(view.speaker[docs], theirs).sum())
        return said, by_them

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
