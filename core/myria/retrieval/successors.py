"""What was said later that changes what was found: facts that are no longer as they were.

The older statement mostly holds the question's words; the newer one often tells of the change alone ("the Golf is
sold"). It is found by the rare words of the older one, among the documents of which the index says that they tell of
a change of just these (`myria.analysis.changes`): by the same speaker, in the same scope, later. Soft evidence:
nothing is hidden, and of every question one document at most is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from myria.analysis import stop_ids, term_id
from myria.index.block import ASKS, Ints, View, changed_id, name_terms
from myria.index.corpus import Corpus, Mask, Timeline
from myria.retrieval.frequency import frequencies, rarity, spans_of

_RARE: Final = 65
"""Percent of the rarity of a word that one document holds, above which a word names what a statement is about."""
_LATER_US: Final = 3600 * 1_000_000
"""How much later a statement must be made: in the same breath people explain rather than change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """Two statements by event_seq, the later of which changes what the other says; `at` is its place in the corpus."""

    older: int
    newer: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leader:
    """The best hit so far: a place in the timeline of the corpus that stands at `corpus`, with all scores there."""

    corpus: int
    at: int
    timeline: Timeline
    score: Ints
    allowed: Mask | None

    @property
    def worth(self) -> int:
        """Return its score."""
        return int(self.score[self.at])

    @classmethod
    def of(cls, before: Leader | None, corpus: int, of: Corpus, score: Ints, allowed: Mask | None) -> Leader | None:
        """Return the best hit of a corpus, or the best one before it where that stays ahead; None without evidence."""
        timeline = of.laid_out
        worth = score if allowed is None else np.where(allowed, score, 0)
        top = int(worth.max(initial=0))
        if not top or (before is not None and top < before.worth):
            return before
        ties = np.flatnonzero(worth == top)
        at = int(ties[timeline.seq[ties].argmin()])
        if before is not None and top == before.worth and before.timeline.seq[before.at] < timeline.seq[at]:
            return before
        return cls(corpus=corpus, at=at, timeline=timeline, score=score, allowed=allowed)


def succession(leader: Leader, corpora: Sequence[Corpus], docs: int) -> Succession | None:
    """Return what was said later that changes what the best hit says, or None.

    Args:
        docs: how many documents are visible in all corpora.
    """
    corpus, timeline = corpora[leader.corpus], leader.timeline
    parts = corpus.parts()
    view = parts[int(timeline.view[leader.at])][0]
    speaker = view.speakers[int(view.speaker[int(timeline.doc[leader.at])])]
    ids = _about(view, int(timeline.doc[leader.at]), _names(corpus, leader, speaker))
    if not len(ids):
        return None
    least = min(rarity(docs, 1) * _RARE // 100, rarity(docs, 2))
    worth = np.array([rarity(docs, count) for count in frequencies(ids, corpora)[0].tolist()], dtype=np.int64)
    ids, worth = ids[worth >= least], worth[worth >= least]
    evidence = np.zeros(len(timeline), dtype=np.int64)
    changed = np.array([changed_id(identity) for identity in ids.tolist()], dtype=np.int64)
    order = np.argsort(changed)
    changed, worth = changed[order], worth[order]
    for (other, mask), places in zip(parts, timeline.places, strict=True):
        told = [at for at, name in enumerate(other.speakers) if name == speaker]
        for at, start, end in spans_of(changed, other.hint_terms, other.hint_offsets).T.tolist():
            rows = other.hint_doc[start:end]
            rows = rows[np.isin(other.speaker[rows], told)]
            where = places[rows]
            if mask is not None:
                where = where[where >= 0]
            evidence[where] += worth[at]
    evidence[timeline.timestamp <= timeline.timestamp[leader.at] + _LATER_US] = 0
    if timeline.scope is not None:
        evidence[timeline.scope != timeline.scope[leader.at]] = 0
    if leader.allowed is not None:
        evidence[~leader.allowed] = 0
    evidence[timeline.flags & ASKS != 0] = 0
    most = int(evidence.max(initial=0))
    if most < least:
        return None
    best = np.flatnonzero(evidence == most)
    at = int(best[np.lexsort((timeline.seq[best], timeline.timestamp[best]))[-1]])
    return Succession(older=int(timeline.seq[leader.at]), newer=int(timeline.seq[at]), at=at)


def _about(view: View, doc: int, names: frozenset[int]) -> Ints:
    """Return the ids of the words that a document is about, ascending: neither stop words nor names."""
    rows = np.flatnonzero(view.posting_doc == doc)
    ids = view.terms[np.searchsorted(view.offsets, rows, side="right") - 1]
    held = [identity for identity in ids.tolist() if identity not in names and identity not in stop_ids()]
    return np.array(held, dtype=np.int64)


def _names(corpus: Corpus, leader: Leader, speaker: str) -> frozenset[int]:
    """Return the ids of the words of the names of those who took part."""
    scopes, scope = corpus.scopes, leader.timeline.scope
    people = scopes.participants[0 if scope is None else int(scope[leader.at])]
    return frozenset(term_id(term) for name in (*people, speaker) for term in name_terms(name))
