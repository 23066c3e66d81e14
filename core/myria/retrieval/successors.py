"""What was said later that changes what was found: facts that are no longer as they were.

The older statement mostly holds the question's words; the newer one often tells of the change alone ("the Golf is
sold"). It is looked for among what the same speaker said later in the same scope, by three kinds of evidence: it tells
of a change (`myria.analysis.changes`) of something that the older statement is about; it tells of a change of what the
question asks about; or it is short and about a thing that hardly anything else is about, or of the state that the
question asks for. A short statement is about each of its words, a long one touches many. Where none of these finds one
and vectors are compared, a short statement counts whose meaning stands out to the question and beside the older
statement both; where that finds none either, a later hit that is nearly as good by the question's own words. Soft
evidence: nothing is hidden, and of every question one document at most is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from myria.analysis import stop_ids, term_id
from myria.analysis.common_words import everyday_ids, weak_ids
from myria.index.block import ASKS, FAR_AWAY, Ints, View, changed_ids, days_between, name_terms
from myria.index.corpus import VOICES, Corpus, Mask, Timeline
from myria.retrieval.frequency import frequencies, rarity, rows_of, spans_of
from myria.values import value

_RARE: Final = 65
"""Percent of the rarity of a word that one document holds, above which a word names what a statement is about."""
_MARKED: Final = 2
"""How often a word counts of whose thing a document tells that it changed."""
_ASKED: Final = 30
"""Percent of the best hit's score from which a document counts by the question's words alone."""
_ASKED_OF: Final = 35
"""Percent of the question's words, by rarity, that the best hit must hold where a later one tells of no change: less
than a member of a kind counts."""
_BREVITY: Final = 65
"""Terms of a statement that tells of no change, times one more than the documents that hold its word: at most so many,
or it is not about that word alone. Of the question's words, only what the same speaker said is counted."""
_REPEATED: Final = 4
"""How many of the likeliest documents are looked at: one that only says the same again changes nothing."""
_OUT_BY: Final = 2 * 256
"""By how much the meaning of a newer statement stands out at least, as `Near.gains` has it: three deviations in all."""
_AS_NEAR: Final = 60
"""Percent of the older statement's nearness to the question that it has at least."""
_SHORT: Final = 16
"""Terms of a statement that is about what it is near to: a long one touches many things."""
_RIVALS: Final = 68
"""Percent of the best hit's score from which a later one is another state of the same, where it holds as much of the
question."""
_STILL_ASKED: Final = 45
"""Percent of the best hit's score from which a still later statement of like meaning stands for the newer one: it holds
something of the question, and whoever says it."""
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

    `held` says how much of the question's words each document holds, in 1/25600 bits; `day` is the one (since 1970) on
    which what is asked for holds: what holds from a later day on has replaced nothing yet.
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


@value
class AskedAbout:
    """What a question asks about: the ids of its words and of those that stand in for them.

    `states` are the ids of the words by which people tell of a state that it asks for. `covered` is the percent of its
    words, by rarity, that a document with certain words holds. `of_state` tells that it asks how something is, of one
    person at most: a statement without a word of change may then be newer. `weight` is the rarity of its words in all,
    in 1/256 bits, at least 1; `asks_many`, `asks_name` and `asks_number` tell what is likely to answer it.
    """

    ids: frozenset[int]
    states: frozenset[int]
    covered: Callable[[frozenset[int]], int]
    of_state: bool
    weight: int
    asks_many: bool
    asks_name: bool
    asks_number: bool


def succession(leader: Leader, corpora: Sequence[Corpus], docs: int, asked: AskedAbout) -> Succession | None:
    """Return what was said later that changes what the best hit says, or None.

    Args:
        docs: how many documents are visible in all corpora.
        asked: what the question asks about.
    """
    corpus = corpora[leader.corpus]
    later = leader.later(corpus)
    names = names_in(corpus, leader, later.speaker)
    said = leader.words(corpus, leader.at)
    about = said - names - stop_ids()
    ids = np.array(sorted(about | (asked.ids - names)), dtype=np.int64)
    if not len(ids):
        return None
    counts, located = frequencies(ids, corpora)
    worth = np.array([rarity(docs, count) for count in counts.tolist()], dtype=np.int64)
    least = min(rarity(docs, 1) * _RARE // 100, rarity(docs, 2))
    of_older = _among(ids, about)
    things = asked.ids - weak_ids()
    of_question = _among(ids, things)
    found = leader.score * 100 >= leader.worth * _ASKED
    evidence = np.zeros(len(leader.timeline), dtype=np.int64)
    if later.tells_of_changes:
        rare = of_older & (worth >= least) & _among(ids, asked.ids | (about - weak_ids()))
        telling = rare | of_question & (worth >= least)
        evidence += later.telling_of_change(
            ids[telling], (worth * rare * _MARKED)[telling], (worth * of_question)[telling], found
        )
    if asked.of_state and asked.covered(said) >= _ASKED_OF:
        state = ~of_older & _among(ids, asked.states) & (worth >= least)
        telling = state | of_older & (of_question | (counts * 2 < _BREVITY) & ~_among(ids, everyday_ids()))
        holding = np.where(of_question | state, 0, counts)
        evidence += later.short_about(
            located[leader.corpus], telling=telling, worth=worth, counts=holding, state=state, found=found
        )
    return _likeliest(leader, corpus, evidence, least=least)


def succession_by_meaning(
    leader: Leader, corpora: Sequence[Corpus], nearness: Ints, likeness: Ints
) -> Succession | None:
    """Return what was said later that means the like of the best hit and of a question about a state, or None.

    Args:
        nearness: by how much each document of the best hit's corpus stands out to the question, as `Near.gains` has it.
        likeness: the same beside the best hit.
    """
    corpus, timeline = corpora[leader.corpus], leader.timeline
    later = leader.later(corpus)
    counts = later.spoken & (timeline.length <= _SHORT) & (leader.score * 100 >= leader.worth * _ASKED)
    counts &= (nearness >= _OUT_BY) & (likeness >= _OUT_BY) & (nearness * 100 >= nearness[leader.at] * _AS_NEAR)
    evidence = np.where(counts, nearness + likeness, 0)
    return _likeliest(leader, corpus, evidence, least=1)


def latest_by_meaning(
    leader: Leader, corpora: Sequence[Corpus], changed: Succession, nearness: Ints, likeness: Ints
) -> Succession:
    """Return a change with what was said last in place of the newer statement, where that means the like of all.

    What changed once may change again, in words that the question does not hold.

    Args:
        nearness, likeness: as of `succession_by_meaning`.
    """
    corpus, timeline = corpora[leader.corpus], leader.timeline
    later = leader.later(corpus)
    counts = later.holding & (timeline.timestamp > timeline.timestamp[changed.at] + _LATER_US)
    counts &= (nearness >= _OUT_BY) & (likeness >= _OUT_BY) & (nearness * 100 >= nearness[changed.at] * _AS_NEAR)
    last = np.flatnonzero(counts & (leader.score * 100 >= leader.worth * _STILL_ASKED))
    if not len(last):
        return changed
    at = int(last[np.lexsort((timeline.seq[last], timeline.timestamp[last]))[-1]])
    return Succession(older=changed.older, newer=int(timeline.seq[at]), at=at)


def succession_by_score(leader: Leader, corpora: Sequence[Corpus], asked: AskedAbout) -> Succession | None:
    """Return the newest of what the same speaker said later that is nearly as good a hit as the best, or None.

    It must hold as much of the question in its own words, by rarity, and not only say the same again.
    """
    corpus, timeline = corpora[leader.corpus], leader.timeline
    rivals = np.flatnonzero(leader.score * 100 >= leader.worth * _RIVALS)
    if len(rivals) < 2:
        return None
    later = leader.later(corpus)
    rivals = rivals[(later.holding & later.spoken)[rivals]]
    if not len(rivals):
        return None
    best = rivals[np.lexsort((timeline.seq[rivals], -leader.score[rivals]))][:_REPEATED]
    said = leader.words(corpus, leader.at)
    least = asked.covered(said)
    for at in best[np.lexsort((timeline.seq[best], timeline.timestamp[best]))[::-1]].tolist():
        words = leader.words(corpus, at)
        if words != said and asked.covered(words) >= least:
            return Succession(older=int(timeline.seq[leader.at]), newer=int(timeline.seq[at]), at=at)
    return None


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


def announced(corpus: Corpus, day: int) -> Mask:
    """Return which documents of a corpus's timeline say that what they tell holds from later than a day on."""
    timeline = corpus.laid_out
    mask = np.zeros(len(timeline), dtype=np.bool_)
    for (view, _), places in zip(corpus.parts(), timeline.places, strict=True):
        _, docs = days_between(view, day + 1, FAR_AWAY, begins=True)
        where = places[docs]
        mask[where[where >= 0]] = True
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

    def short_about(
        self, located: Sequence[Ints], *, telling: Mask, worth: Ints, counts: Ints, state: Mask, found: Mask
    ) -> Ints:
        """Return by document what the words are worth that it holds, where it is short enough to be about them.

        Args:
            located: where the postings of words are, as `frequencies` has it.
            telling: which of the words count.
            counts: how many documents hold each word; 0 to count those of the speaker's.
            state: which words tell of a state that the question asks for; they count in what was `found`.
        """
        evidence = np.zeros(len(self.timeline), dtype=np.int64)
        spoken: list[tuple[Ints, Ints]] = []
        for spans, (view, mask), told, places in zip(located, self.parts, self.told, self.timeline.places, strict=True):
            rows, at = rows_of(spans[:, telling[spans[0]]])
            docs = view.posting_doc[rows]
            by_speaker = told[docs]
            at, where = at[by_speaker], places[docs[by_speaker]]
            if mask is not None:
                shown = where >= 0
                at, where = at[shown], where[shown]
            spoken.append((at, where))
        at, where = spoken[0] if len(spoken) == 1 else map(np.concatenate, zip(*spoken, strict=True))
        of_scope = at if self.here is None else at[self.here[where]]
        holding = np.where(counts, counts, np.bincount(of_scope, minlength=len(counts)))
        short = self.timeline.length[where] * (holding[at] + 1) <= _BREVITY
        at, where = at[short], where[short]
        np.add.at(evidence, where, worth[at] * (found[where] | ~state[at]))
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
