"""What was said later that replaces what was found: facts that are no longer as they were, told in talk.

The older statement mostly holds the question's words; the newer one often tells of the change alone ("the Golf is
sold"). It is looked for among what the same speaker said later in the same scope: what tells of a change
(`myria.text.changes`) of something that the older statement or the question is about. Talk tells many things, so
the bar is high, and nothing is hidden.

Whoever tells how something is now often uses none of the words by which it was told before: "I weigh 88 kilos", "Scale
says 84 this morning". No sign of such a statement is strong alone, so they are added up (`likely_state`): how good a
hit it is and how much of the question it holds, whether the same person says it, how rare a word it shares with the
older statement, whether both hold a number or name something, and whether stronger evidence speaks for it. Each counts
in bits, and the sum must exceed what the likeliest of so many statements has by chance: the logarithm of their number
and a margin, which is smaller the shorter the older statement is. A short one tells a state, a long one many things. In
talk where nothing changed this puts a wrong statement first in some six of a hundred questions: `_LIKELY` was chosen
between that and what it finds (docs/retrieval.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from myria.index.block import ASKS, NAMING, Ints, View, changed_ids, name_terms
from myria.index.corpus import Corpus, Mask, Timeline
from myria.search.census import frequencies, log2, rarity, spans_of
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
    """Two statements by event_seq, the later of which changes what the other says."""

    older: int
    newer: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Leader:
    """The best hit: its place `at` in the timeline of the corpus, with all scores there.

    `held` says how much of the words of the question each document holds, in 1/25600 bits; `day` is the one (since
    1970) on which what is asked for holds: what holds from a later day on has replaced nothing yet.
    """

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
    def of(cls, corpus: Corpus, *, score: Ints, held: Ints, allowed: Mask | None, day: int) -> Leader | None:
        """Return the best hit of a corpus, of equal ones the first that was appended; None without evidence."""
        worth = score if allowed is None else np.where(allowed, score, 0)
        top = int(worth.max(initial=0))
        if not top:
            return None
        ties = np.flatnonzero(worth == top)
        at = int(ties[corpus.laid_out.seq[ties].argmin()])
        return cls(corpus=corpus, at=at, score=score, held=held, allowed=allowed, day=day)


def told_to_change(leader: Leader, docs: int, plan: Plan) -> int | None:
    """Return the place of what was said later that changes what the best hit says, or None.

    Args:
        docs: how many documents are visible.
        plan: what is asked for.
    """
    asked = frozenset(identity for concept in plan.concepts for identity, _ in concept.alternatives)
    about = leader.said - leader.names - stop_ids()
    ids = np.array(sorted(about | (asked - leader.names)), dtype=np.int64)
    counts = frequencies(ids, leader.corpus)
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


_BIT: Final = 256
_AS_GOOD: Final = 350
"""Percent of a bit that a statement counts which is as good a hit as the best; less as it is less good."""
_SAME_SPEAKER: Final = 150
"""The same if the older statement's speaker makes it."""
_HOLDS: Final = 150
"""The same if it holds all words of the question; less as it holds fewer."""
_SHARES: Final = 35
"""Percent of its rarity that the rarest word counts which it shares with the older statement."""
_BOTH_NUMBERS: Final = 80
"""Percent of the rarity of statements with numbers that it counts to be one where the older statement is."""
_BOTH_NAME: Final = 70
"""The same of statements that name something."""
_FOUND: Final = 470
"""Percent of a bit that a statement counts which stronger evidence found."""
_LIKELY: Final = 300
"""Percent of a bit by which the likeliest statement exceeds the logarithm of their number, to be put first."""
_TELLS_A_STATE: Final = 400
"""Percent of a bit by which that is smaller if the best hit is short."""
_SHORT: Final = (8, 40)
"""Terms of a best hit that is short in full, and of one that is not short at all."""
_IMAGINED: Final = 48
"""Statements that are thought beside the later ones: the likeliest of three is not likely for that."""
_LONG: Final = 64
"""Terms of a later statement, at most: a longer one touches many things."""
_LONGEST: Final = 128
"""Terms of an older statement, at most: a longer one shares words with everything."""


def likely_state(leader: Leader, plan: Plan, known: int | None) -> int | None:
    """Return the place of the likeliest state among what was said later, None if none is likely.

    Args:
        known: a statement that other evidence speaks for.
    """
    timeline, older = leader.timeline, leader.at
    count = int(np.count_nonzero(leader.later))
    if not count or timeline.length[older] > _LONGEST:
        return None
    mask = leader.later & (timeline.length <= _LONG)
    is_known = np.zeros(len(timeline), dtype=np.bool_)
    if known is not None:
        mask[known] = is_known[known] = True
    places = np.flatnonzero(mask)
    evidence = _AS_GOOD * _BIT * np.minimum(leader.score[places], leader.worth) // leader.worth
    evidence += _HOLDS * _BIT * leader.held[places] // (100 * max(1, plan.rarity))
    evidence += _SAME_SPEAKER * _BIT * leader.spoken[places]
    evidence += _FOUND * _BIT * is_known[places]
    numbered, naming = leader.corpus.numbered, timeline.flags & NAMING != 0
    for percent, alike in ((_BOTH_NUMBERS, numbered), (_BOTH_NAME, naming)):
        if alike[older]:
            evidence += percent * rarity(count, int(np.count_nonzero(alike & leader.later))) * alike[places]
    shared = _shared(leader)[places]
    evidence += _SHARES * shared
    likely = (leader.held[places] > 0) | (shared > 0) | (numbered[older] & numbered[places]) | is_known[places]
    places, evidence = places[likely], evidence[likely]
    for one in np.lexsort((places, evidence))[::-1][:_REPEATED].tolist():
        place = int(places[one])
        if leader.words(place) != leader.said:
            # What is announced has replaced nothing yet, and what comes after it in likelihood is no state.
            is_likely = not leader.announced[place] and _surplus(leader, int(evidence[one]), count) >= _LIKELY
            return place if is_likely else None
    return None


def _shared(leader: Leader) -> Ints:
    """Return by document how rare the rarest word is that it shares with the best hit, everyday words excepted: how
    rare a word is says its scope alone."""
    here = leader.here
    docs = len(leader.timeline) if here is None else int(np.count_nonzero(here))
    ids = np.array(sorted(leader.said - leader.names - stop_ids() - weak_ids()), dtype=np.int64)
    holding: dict[int, list[Ints]] = {}
    for (view, _), places in zip(leader.corpus.parts(), leader.timeline.places, strict=True):
        for one, start, end in spans_of(ids, view.terms, view.offsets).T.tolist():
            where = places[view.posting_doc[start:end]]
            where = where[where >= 0]
            holding.setdefault(one, []).append(where if here is None else where[here[where]])
    shared = np.zeros(len(leader.timeline), dtype=np.int64)
    for lists in holding.values():
        rare = rarity(docs, sum(map(len, lists)))
        for where in lists:
            shared[where] = np.maximum(shared[where], rare)
    return shared


def _surplus(leader: Leader, evidence: int, count: int) -> int:
    """Return by how many hundredths of a bit evidence, in 1/256 of them, exceeds what chance gives."""
    whole, none = _SHORT
    shortness = min(none - whole, max(0, none - int(leader.timeline.length[leader.at])))
    return (evidence - 100 * log2(count + _IMAGINED)) // _BIT + _TELLS_A_STATE * shortness // (none - whole)
