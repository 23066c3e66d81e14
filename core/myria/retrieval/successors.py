"""What was said later that replaces what was found: facts that are no longer as they were, told in talk.

The older statement mostly holds the question's words; the newer one often tells of the change alone ("the Golf is
sold"). It is looked for among what the same speaker said later in the same scope: what tells of a change
(`myria.analysis.changes`) of something that the older statement or the question is about. Talk tells many things, so
the bar is high, and nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from myria.analysis import stop_ids, term_id
from myria.analysis.common_words import weak_ids
from myria.index.block import ASKS, Ints, View, changed_ids, name_terms
from myria.index.corpus import VOICES, Corpus, Mask, Timeline
from myria.retrieval.frequency import frequencies, rarity, spans_of
from myria.retrieval.plan import Plan
from myria.retrieval.scoring import announced
from myria.values import value

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


@value
class Succession:
    """Two statements by event_seq, the later of which changes what the other says; `at` is its place in the corpus."""

    older: int
    newer: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leader:
    """The best hit so far: a place in the timeline of the corpus that stands at `corpus`, with all scores there.

    `held` says how much of the words of the question each document holds, in 1/25600 bits; `day` is the one (since
    1970) on which what is asked for holds: what holds from a later day on has replaced nothing
    yet.
    """

    corpus: int
    at: int
    timeline: Timeline
    score: Ints
    held: Ints
    allowed: Mask | None
    day: int
    _words: dict[int, frozenset[int]] = field(default_factory=dict, init=False, repr=False)
    _later: dict[int, Later] = field(default_factory=dict, init=False, repr=False)

    def words(self, corpus: Corpus, at: int) -> frozenset[int]:
        """Return the ids of the words that a document of its corpus holds, looked up once."""
        known = self._words.get(at)
        if known is None:
            known = self._words[at] = words_of(*place(corpus, self.timeline, at))
        return known

    def later(self, corpus: Corpus, at: int | None = None) -> Later:
        """Return what was said after it, or after another document of its corpus, looked up once."""
        at = self.at if at is None else at
        known = self._later.get(at)
        if known is None:
            known = self._later[at] = Later.than(self, corpus, at)
        return known

    @property
    def worth(self) -> int:
        """Return its score."""
        return int(self.score[self.at])

    @classmethod
    def of(
        cls, before: Leader | None, corpus: int, of: Corpus, *, score: Ints, held: Ints, allowed: Mask | None, day: int
    ) -> Leader | None:
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
        return cls(corpus=corpus, at=at, timeline=timeline, score=score, held=held, allowed=allowed, day=day)


def succession(leader: Leader, corpora: Sequence[Corpus], docs: int, plan: Plan) -> Succession | None:
    """Return what was said later that changes what the best hit says, or None.

    Args:
        docs: how many documents are visible in all corpora.
        plan: what is asked for.
    """
    corpus = corpora[leader.corpus]
    later = leader.later(corpus)
    names = names_in(corpus, leader, later.speaker)
    asked = frozenset(identity for concept in plan.concepts for identity, _ in concept.alternatives)
    said = leader.words(corpus, leader.at)
    about = said - names - stop_ids()
    ids = np.array(sorted(about | (asked - names)), dtype=np.int64)
    if not len(ids):
        return None
    counts, _ = frequencies(ids, corpora)
    worth = np.array([rarity(docs, count) for count in counts.tolist()], dtype=np.int64)
    least = min(rarity(docs, 1) * _RARE // 100, rarity(docs, 2))
    of_older = _among(ids, about)
    of_question = _among(ids, asked - weak_ids())
    found = leader.score * 100 >= leader.worth * _ASKED
    evidence = np.zeros(len(leader.timeline), dtype=np.int64)
    if later.tells_of_changes:
        rare = of_older & (worth >= least) & _among(ids, asked | (about - weak_ids()))
        telling = rare | of_question & (worth >= least)
        evidence += later.telling_of_change(
            ids[telling], (worth * rare * _MARKED)[telling], (worth * of_question)[telling], found
        )
    return _likeliest(leader, corpus, evidence, least=least)


def _likeliest(leader: Leader, corpus: Corpus, evidence: Ints, *, least: int) -> Succession | None:
    """Return the later statement with most evidence, of those alike the last; none that says the same words again."""
    timeline, said = leader.timeline, leader.words(corpus, leader.at)
    evidence = np.where(leader.later(corpus).holding, evidence, 0)
    for _ in range(_REPEATED):
        most = int(evidence.max(initial=0))
        if most < least:
            return None
        best = np.flatnonzero(evidence == most)
        at = int(best[np.lexsort((timeline.seq[best], timeline.timestamp[best]))[-1]])
        if leader.words(corpus, at) != said:
            return Succession(older=int(timeline.seq[leader.at]), newer=int(timeline.seq[at]), at=at)
        evidence[at] = 0
    return None


@value
class _Voice:
    """Which documents are somebody's: `told` by view, `spoken` by place in the timeline."""

    told: Sequence[Mask]
    spoken: Mask

    @classmethod
    def of(cls, speaker: str, timeline: Timeline, parts: Sequence[tuple[View, Mask | None]]) -> _Voice:
        """Return which are a speaker's: the timeline keeps those of the last few who were asked for."""
        kept = timeline.derived(_voices)
        known = kept.get(speaker)
        if known is None:
            told = [
                np.array([name == speaker for name in view.speakers], dtype=np.bool_)[view.speaker] for view, _ in parts
            ]
            spoken = np.zeros(len(timeline), dtype=np.bool_)
            for (_, mask), by_speaker, places in zip(parts, told, timeline.places, strict=True):
                where = places[by_speaker]
                spoken[where if mask is None else where[where >= 0]] = True
            if len(kept) >= VOICES:
                kept.clear()
            known = kept[speaker] = cls(told=told, spoken=spoken)
        return known


def _voices(_: Timeline) -> dict[str, _Voice]:
    return {}


def _stating(timeline: Timeline) -> Mask:
    """Return which documents ask nothing."""
    mask: Mask = timeline.flags & ASKS == 0
    return mask


@dataclass(frozen=True, eq=False)
class Later:
    """What was said in the best hit's scope after it or after another statement, may be shown, asks nothing: `mask`.

    `holding` are those of them that hold on the day that is asked for: others are announced, and replace nothing yet.
    `here` tells which documents are of that scope, None where all are; `told` by view which of its documents are by the
    speaker of the statement, and `spoken` by place.
    """

    timeline: Timeline
    parts: Sequence[tuple[View, Mask | None]]
    speaker: str
    told: Sequence[Mask]
    spoken: Mask
    here: Mask | None
    mask: Mask
    holding: Mask

    @property
    def count(self) -> int:
        """How many documents are of that scope."""
        return len(self.timeline) if self.here is None else int(np.count_nonzero(self.here))

    @classmethod
    def than(cls, leader: Leader, corpus: Corpus, at: int) -> Later:
        timeline = leader.timeline
        view, doc = place(corpus, timeline, at)
        speaker = view.speakers[int(view.speaker[doc])]
        voice = _Voice.of(speaker, timeline, corpus.parts())
        after = timeline.timestamp[at] + _LATER_US
        mask = (timeline.timestamp > after) & timeline.derived(_stating)
        scope = timeline.scope
        here = None if scope is None else scope == scope[leader.at]
        if here is not None:
            mask &= here
        if leader.allowed is not None:
            mask &= leader.allowed
        holding = mask & ~announced(corpus, leader.day)
        return cls(timeline, corpus.parts(), speaker, voice.told, voice.spoken, here, mask, holding)

    @property
    def tells_of_changes(self) -> bool:
        """Whether any document may tell of a change, or has a topic hint, which stands beside these."""
        return any(len(view.hint_terms) for view, _ in self.parts)

    def telling_of_change(self, ids: Ints, of_older: Ints, of_question: Ints, found: Mask) -> Ints:
        """Return by document what the words are worth of whose things it tells that they changed.

        Args:
            of_older, of_question: what each word is worth to the older statement, and to the question.
            found: which documents the question's words count in.
        """
        evidence = np.zeros(len(self.timeline), dtype=np.int64)
        changed = changed_ids(ids)
        order = np.argsort(changed)
        for at, where in self._changed(changed[order]):
            evidence[where] += of_older[order[at]] + of_question[order[at]] * found[where]
        return evidence

    def _changed(self, ids: Ints) -> Iterator[tuple[int, Ints]]:
        """Yield the position of each id of a change, and the places of the speaker's documents that tell of it."""
        for (view, mask), told, places in zip(self.parts, self.told, self.timeline.places, strict=True):
            for at, start, end in spans_of(ids, view.hint_terms, view.hint_offsets).T.tolist():
                rows = view.hint_doc[start:end]
                where = places[rows[told[rows]]]
                yield at, where if mask is None else where[where >= 0]


def _among(ids: Ints, some: frozenset[int]) -> Mask:
    """Return which ids are among some: sets of words are large beside the few ids, and are not to be sorted."""
    return np.array([identity in some for identity in ids.tolist()], dtype=np.bool_)


def place(corpus: Corpus, timeline: Timeline, at: int) -> tuple[View, int]:
    """Return the view and the document at a place of a corpus's timeline."""
    return corpus.parts()[int(timeline.view[at])][0], int(timeline.doc[at])


def words_of(view: View, doc: int) -> frozenset[int]:
    """Return the ids of the words that a document holds."""
    rows = (view.posting_doc == doc).nonzero()[0]
    return frozenset(view.terms[np.searchsorted(view.offsets, rows, side="right") - 1].tolist())


def names_in(corpus: Corpus, leader: Leader, speaker: str) -> frozenset[int]:
    """Return the ids of the words of the names of those who took part."""
    scopes, scope = corpus.scopes, leader.timeline.scope
    people = scopes.participants[0 if scope is None else int(scope[leader.at])]
    return frozenset(term_id(term) for name in (*people, speaker) for term in name_terms(name))
