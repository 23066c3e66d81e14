"""What was said later that replaces what was found: facts that are no longer as they were, told in talk.

The older statement mostly holds the question's words; the newer one often tells of the change alone ("the Golf is
sold"). It is looked for among what the same speaker said later in the same scope: what tells of a change
(`myria.text.changes`) of something that the older statement or the question is about. Talk tells many things, so
the bar is high, and nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from myria.index.block import ASKS, Ints, View, changed_ids, name_terms
from myria.index.corpus import Corpus, Mask, Timeline
from myria.search.frequency import frequencies, rarity, spans_of
from myria.search.plan import Plan
from myria.search.scoring import announced, spoken_by
from myria.text import stop_ids, term_id
from myria.text.common_words import weak_ids

_RARE: Final = 65
"""Percent of the rarity of a word that one document holds, above which a word names what a statement is about."""
_MARKED: Final = 2
"""How often a word counts of whose thing a document tells that it changed."""
_ASKED: Final = 30
"""Percent of the best hit's score from which a document counts by the question's words alone."""
_REPEATED: Final = 4
"""How many of the likeliest documents are looked at: one that only says the same again changes nothing."""
_LATER_US: Final = 3600 * 1_000_000
"""How much later a statement must be made: in the same breath people explain rather than change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Succession:
    """Two statements by event_seq, the later of which changes what the other says; `at` is its place in the corpus."""

    older: int
    newer: int
    at: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Leader:
    """The best hit so far: the place `at` in the timeline of the corpus that stands at `number`, with all scores there.

    `held` says how much of the words of the question each document holds, in 1/25600 bits; `day` is the one (since
    1970) on which what is asked for holds: what holds from a later day on has replaced nothing yet.
    """

    number: int
    corpus: Corpus
    at: int
    score: Ints
    held: Ints
    allowed: Mask | None
    day: int

    @property
    def timeline(self) -> Timeline:
        """Return the timeline of its corpus."""
        return self.corpus.laid_out

    @property
    def worth(self) -> int:
        """Return its score."""
        return int(self.score[self.at])

    @cached_property
    def said(self) -> frozenset[int]:
        """Return the ids of the words that it holds."""
        return self.words(self.at)

    def words(self, at: int) -> frozenset[int]:
        """Return the ids of the words that a document of its corpus holds."""
        view, doc = self._place(at)
        rows = (view.posting_doc == doc).nonzero()[0]
        return frozenset(view.terms[np.searchsorted(view.offsets, rows, side="right") - 1].tolist())

    @cached_property
    def speaker(self) -> str:
        """Return who said it."""
        view, doc = self._place(self.at)
        return view.speakers[int(view.speaker[doc])]

    @cached_property
    def names(self) -> frozenset[int]:
        """Return the ids of the words of the names of those who took part."""
        scope = self.timeline.scope
        people = self.corpus.scopes.participants[0 if scope is None else int(scope[self.at])]
        return frozenset(term_id(term) for name in (*people, self.speaker) for term in name_terms(name))

    @cached_property
    def here(self) -> Mask | None:
        """Tell which documents are of its scope, None where all are."""
        scope = self.timeline.scope
        return None if scope is None else scope == scope[self.at]

    @cached_property
    def spoken(self) -> Mask:
        """Tell which documents are by its speaker."""
        return spoken_by(frozenset({self.speaker}), self.corpus)

    @cached_property
    def later(self) -> Mask:
        """Tell what was said after it in its scope, may be shown, and asks nothing."""
        timeline = self.timeline
        mask: Mask = (timeline.timestamp > timeline.timestamp[self.at] + _LATER_US) & (timeline.flags & ASKS == 0)
        for only in (self.here, self.allowed):
            if only is not None:
                mask &= only
        return mask

    @cached_property
    def announced(self) -> Mask:
        """Tell what holds from a later day on: it replaces nothing yet."""
        return announced(self.corpus, self.day)

    def _place(self, at: int) -> tuple[View, int]:
        return self.corpus.parts()[int(self.timeline.view[at])][0], int(self.timeline.doc[at])

    @classmethod
    def of(
        cls,
        before: Leader | None,
        number: int,
        corpus: Corpus,
        *,
        score: Ints,
        held: Ints,
        allowed: Mask | None,
        day: int,
    ) -> Leader | None:
        """Return the best hit of a corpus, or the best one before it where that stays ahead; None without evidence."""
        seq = corpus.laid_out.seq
        worth = score if allowed is None else np.where(allowed, score, 0)
        top = int(worth.max(initial=0))
        if not top or (before is not None and top < before.worth):
            return before
        ties = np.flatnonzero(worth == top)
        at = int(ties[seq[ties].argmin()])
        if before is not None and top == before.worth and before.timeline.seq[before.at] < seq[at]:
            return before
        return cls(number=number, corpus=corpus, at=at, score=score, held=held, allowed=allowed, day=day)


def told_to_change(leader: Leader, corpora: Sequence[Corpus], docs: int, plan: Plan) -> int | None:
    """Return the place of what was said later that changes what the best hit says, or None.

    Args:
        docs: how many documents are visible in all corpora.
        plan: what is asked for.
    """
    asked = frozenset(identity for concept in plan.concepts for identity, _ in concept.alternatives)
    about = leader.said - leader.names - stop_ids()
    ids = np.array(sorted(about | (asked - leader.names)), dtype=np.int64)
    counts, _ = frequencies(ids, corpora)
    worth = np.array([rarity(docs, count) for count in counts.tolist()], dtype=np.int64)
    least = min(rarity(docs, 1) * _RARE // 100, rarity(docs, 2))
    rare = _among(ids, about & (asked | (about - weak_ids()))) & (worth >= least)
    of_question = _among(ids, asked - weak_ids()) & (worth >= least)
    found = leader.score * 100 >= leader.worth * _ASKED
    evidence = np.zeros(len(leader.timeline), dtype=np.int64)
    changed = changed_ids(ids)
    order = np.argsort(changed)
    for (view, _), places in zip(leader.corpus.parts(), leader.timeline.places, strict=True):
        for at, start, end in spans_of(changed[order], view.hint_terms, view.hint_offsets).T.tolist():
            where = places[view.hint_doc[start:end]]
            where = where[where >= 0]
            where = where[leader.spoken[where]]
            one = order[at]
            evidence[where] += worth[one] * (rare[one] * _MARKED + of_question[one] * found[where])
    evidence[~leader.later | leader.announced] = 0
    return _likeliest(leader, evidence, least=least)


def _likeliest(leader: Leader, evidence: Ints, *, least: int) -> int | None:
    """Return the later statement with most evidence, of those alike the last; none that says the same words again."""
    timeline = leader.timeline
    found = np.flatnonzero(evidence >= least)
    best = found[np.lexsort((timeline.seq[found], timeline.timestamp[found], evidence[found]))][::-1]
    return next((at for at in best[:_REPEATED].tolist() if leader.words(at) != leader.said), None)


def _among(ids: Ints, some: frozenset[int]) -> Mask:
    """Return which ids are among some: sets of words are large beside the few ids, and are not to be sorted."""
    return np.array([identity in some for identity in ids.tolist()], dtype=np.bool_)
