"""What was said later that replaces what was found: facts that are no longer as they were, in talk or in notes.

The older statement mostly holds the question's words; the newer one often tells of the change alone ("the Golf is
sold"). It is looked for among what the same speaker said later in the same scope: what tells of a change
(`myria.text.changes`) of something that the older statement or the question is about. Talk tells many things, so
the bar is high, and nothing is hidden.

Whoever tells how something is now often uses none of the words by which it was told before: "I weigh 88 kilos", "Scale
says 84 this morning". No sign of such a statement is strong alone, so they are added up (`likely_state`): how good a
hit it is and how much of the question it holds, whether the same person says it, how rare a word it shares with the
older statement, and whether both hold a number or name something. Each counts in bits, and the sum must exceed what the
likeliest of so many statements has by chance: the logarithm of their number and a margin, which is smaller the shorter
the older statement is. A short one tells a state, a long one many things. In talk where nothing changed this puts a
wrong statement first in some six of a hundred questions: `_LIKELY` was chosen between that and what it finds
(docs/retrieval.md).

A kept statement, or note, says how something is, and what replaces it may hold no word of the question: asked who the
intern is, "The intern is Callum" answers, and "Callum left, Beatriz sits at his desk" names only whom it replaces. Each
note says one thing, so for notes the bar is lower (`kept_later`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

import numpy as np

from myria.index.block import ASKS, NAMING, Ints, View, changed_ids, name_terms
from myria.index.corpus import Corpus, Mask, Timeline
from myria.search.census import frequencies, log2, rarity, spans_of
from myria.search.plan import Plan
from myria.search.scoring import announced, spoken_by
from myria.text import stop_ids, term_id
from myria.text.common_words import weak_ids
from myria.text.function_words import FUNCTION_WORDS
from myria.text.languages import function_terms

_RARE: Final = 65
"""Percent of the rarity of a word that one document holds, above which a word names what a statement is about."""
_ASKED: Final = 30
"""Percent of the best hit's score from which a document counts by the question's words alone."""
_LATER_US: Final = 3600 * 1_000_000
"""How much later a statement must be made: in the same breath people explain rather than change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Succession:
    """Two statements, by event_seq: the newer one changes what the older one says."""

    older: int
    newer: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Leader:
    """The best hit of a ranking, at place `at` of its corpus's timeline.

    By document: `score`, `held` (the rarity of the question's words that it holds, in 1/25600 bits), and `allowed`
    (whether it may be a hit; None: all may). The question is about `day` (since 1970): what holds only from a later day
    on has replaced nothing yet.
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
        """Return the best hit's score."""
        return int(self.score[self.at])

    @cached_property
    def said(self) -> frozenset[int]:
        """Return the ids of the words that the best hit holds."""
        return self.words(self.at)

    def words(self, at: int) -> frozenset[int]:
        """Return the ids of the words that a document of its corpus holds."""
        view, doc = self._place(at)
        rows = (view.posting_doc == doc).nonzero()[0]
        return frozenset(view.terms[np.searchsorted(view.offsets, rows, side="right") - 1].tolist())

    @cached_property
    def speaker(self) -> str:
        """Return the name of the best hit's speaker, empty without one."""
        view, doc = self._place(self.at)
        return view.speakers[int(view.speaker[doc])]

    @cached_property
    def names(self) -> frozenset[int]:
        """Return the ids of all words in the names of its speaker and of its scope's participants."""
        scope = self.timeline.scope
        people = self.corpus.scopes.participants[0 if scope is None else int(scope[self.at])]
        return frozenset(term_id(term) for name in (*people, self.speaker) for term in name_terms(name))

    @cached_property
    def here(self) -> Mask | None:
        """Return a mask of the documents in the best hit's scope, None if all are."""
        scope = self.timeline.scope
        return None if scope is None else scope == scope[self.at]

    @cached_property
    def spoken(self) -> Mask:
        """Return a mask of the documents by the best hit's speaker."""
        return spoken_by(frozenset({self.speaker}), self.corpus)

    @cached_property
    def later(self) -> Mask:
        """Return a mask of the documents said later in the best hit's scope that may be hits and ask nothing."""
        timeline = self.timeline
        mask: Mask = (timeline.timestamp > timeline.timestamp[self.at] + _LATER_US) & (timeline.flags & ASKS == 0)
        for only in (self.here, self.allowed):
            if only is not None:
                mask &= only
        return mask

    @cached_property
    def announced(self) -> Mask:
        """Return a mask of the documents that hold only from a later day on, and so replace nothing yet."""
        return announced(self.corpus, self.day)

    def unless_repeated(self, at: int) -> int | None:
        """Return a place, None if what is said there has exactly the best hit's words."""
        return at if self.words(at) != self.said else None

    def _place(self, at: int) -> tuple[View, int]:
        """Return the view of a document and its position there, by its place in the timeline."""
        return self.corpus.parts[int(self.timeline.view[at])][0], int(self.timeline.doc[at])

    @classmethod
    def of(cls, corpus: Corpus, *, score: Ints, held: Ints, allowed: Mask | None, day: int) -> Leader | None:
        """Return the best hit of a corpus, of equal ones the one appended first; None if no score is above 0."""
        worth = score if allowed is None else np.where(allowed, score, 0)
        top = int(worth.max(initial=0))
        if not top:
            return None
        ties = np.flatnonzero(worth == top)
        at = int(ties[corpus.laid_out.seq[ties].argmin()])
        return cls(corpus=corpus, at=at, score=score, held=held, allowed=allowed, day=day)


def told_to_change(leader: Leader, docs: int, plan: Plan) -> int | None:
    """Find a later statement by the same speaker that says that something in the best hit or the question has changed.

    Args:
        docs: how many documents are visible.
        plan: what is asked for.

    Returns:
        its place in the timeline, None without one.
    """
    question_ids = frozenset(identity for concept in plan.concepts for identity, _ in concept.alternatives)
    about = leader.said - leader.names - stop_ids()
    ids = np.array(sorted(about | (question_ids - leader.names)), dtype=np.int64)
    frequency = frequencies(ids, leader.corpus)
    rarities = np.array([rarity(docs, count) for count in frequency.tolist()], dtype=np.int64)
    least = min(rarity(docs, 1) * _RARE // 100, rarity(docs, 2))
    is_rare = _among(ids, about & (question_ids | (about - weak_ids()))) & (rarities >= least)
    of_question = _among(ids, question_ids - weak_ids()) & (rarities >= least)
    is_good_hit = leader.score * 100 >= leader.worth * _ASKED
    evidence = np.zeros(len(leader.timeline), dtype=np.int64)
    change_ids = changed_ids(ids)
    order = np.argsort(change_ids)
    for (view, _), places in zip(leader.corpus.parts, leader.timeline.places, strict=True):
        for sorted_index, start, end in spans_of(change_ids[order], view.hint_terms, view.hint_offsets).T.tolist():
            where = places[view.hint_doc[start:end]]
            where = where[where >= 0]
            where = where[leader.spoken[where]]
            id_index = order[sorted_index]
            evidence[where] += rarities[id_index] * (is_rare[id_index] + of_question[id_index] * is_good_hit[where])
    evidence[~leader.later | leader.announced] = 0
    candidates = np.flatnonzero(evidence >= least)
    if not len(candidates):
        return None
    timeline = leader.timeline
    order = np.lexsort((timeline.seq[candidates], timeline.timestamp[candidates], evidence[candidates]))
    return leader.unless_repeated(int(candidates[order[-1]]))


def _among(ids: Ints, some: frozenset[int]) -> Mask:
    """Return a mask of the ids that a set holds; by look-up, as sorting a large set for numpy would cost more."""
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
_LIKELY: Final = 300
"""Percent of a bit by which the likeliest statement exceeds the logarithm of their number, to be put first."""
_TELLS_A_STATE: Final = 400
"""Percent of a bit by which that is smaller if the best hit is short."""
_SHORT: Final = (8, 40)
"""Terms of a best hit that is short in full, and of one that is not short at all."""
_LONG: Final = 64
"""Terms of a later statement, at most: a longer one touches many things."""
_IMAGINED: Final = 48
"""Statements that are thought beside those there are: of three, the likeliest is not likely for that, and a word that
two notes share still tells something."""


def likely_state(leader: Leader, plan: Plan) -> int | None:
    """Find the later statement that most likely says how something is now; return its place, None if none is likely."""
    timeline, older = leader.timeline, leader.at
    later_count = int(np.count_nonzero(leader.later))
    places = np.flatnonzero(leader.later & (timeline.length <= _LONG))
    if not len(places):
        return None
    evidence = _AS_GOOD * _BIT * np.minimum(leader.score[places], leader.worth) // leader.worth
    evidence += _HOLDS * _BIT * leader.held[places] // (100 * max(1, plan.rarity))
    evidence += _SAME_SPEAKER * _BIT * leader.spoken[places]
    numbered, naming = leader.corpus.numbered, timeline.flags & NAMING != 0
    for percent, has_trait in ((_BOTH_NUMBERS, numbered), (_BOTH_NAME, naming)):
        if has_trait[older]:
            evidence += (
                percent * rarity(later_count, int(np.count_nonzero(has_trait & leader.later))) * has_trait[places]
            )
    shared_rarity = _shared_rarity(leader)[places]
    evidence += _SHARES * shared_rarity
    is_candidate = (leader.held[places] > 0) | (shared_rarity > 0) | (numbered[older] & numbered[places])
    places, evidence = places[is_candidate], evidence[is_candidate]
    if not len(places):
        return None
    likeliest = int(np.lexsort((places, evidence))[-1])
    place = int(places[likeliest])
    # What is announced has replaced nothing yet, and what comes after it in likelihood is no state.
    is_likely = not leader.announced[place] and _surplus(leader, int(evidence[likeliest]), later_count) >= _LIKELY
    return leader.unless_repeated(place) if is_likely else None


def _shared_rarity(leader: Leader) -> Ints:
    """Return, by document, the rarity of the rarest word that it shares with the best hit; everyday words do not count.

    Rarity is counted within the best hit's scope alone.
    """
    here = leader.here
    docs = len(leader.timeline) if here is None else int(np.count_nonzero(here))
    ids = np.array(sorted(leader.said - leader.names - stop_ids() - weak_ids()), dtype=np.int64)
    holding: dict[int, list[Ints]] = {}
    for (view, _), places in zip(leader.corpus.parts, leader.timeline.places, strict=True):
        for id_index, start, end in spans_of(ids, view.terms, view.offsets).T.tolist():
            doc_places = places[view.posting_doc[start:end]]
            doc_places = doc_places[doc_places >= 0]
            holding.setdefault(id_index, []).append(doc_places if here is None else doc_places[here[doc_places]])
    shared = np.zeros(len(leader.timeline), dtype=np.int64)
    for lists in holding.values():
        word_rarity = rarity(docs, sum(map(len, lists)))
        for doc_places in lists:
            shared[doc_places] = np.maximum(shared[doc_places], word_rarity)
    return shared


def _surplus(leader: Leader, evidence: int, count: int) -> int:
    """Return by how much evidence exceeds what chance gives, in hundredths of a bit.

    Args:
        evidence: in 1/256 of a hundredth of a bit.
        count: how many later statements there are: the likeliest of many is likely by chance.
    """
    fully_short, not_short = _SHORT
    shortness = min(not_short - fully_short, max(0, not_short - int(leader.timeline.length[leader.at])))
    return (evidence - 100 * log2(count + _IMAGINED)) // _BIT + _TELLS_A_STATE * shortness // (not_short - fully_short)


_REPEATED: Final = 25
"""Percent of the words of an older note, by rarity, that a later one must repeat."""
_ANSWERED: Final = 50
"""Percent of what the older note holds of the question that a later one must hold, if it repeats nothing else: of two
notes that only name the same person, neither says anew what the other says."""
_LOOKED_AT: Final = 16
"""Notes whose words are read one by one, the newest: to read those of one costs as much as the log is long."""


def kept_later(leader: Leader, docs: int, plan: Plan) -> tuple[int, ...]:
    """Find later notes that may update the best hit, which is a note; return their places, the newest first.

    Empty if the best hit is no note.

    Args:
        docs: how many documents are visible.
        plan: what is asked for.
    """
    corpus, timeline, best_place = leader.corpus, leader.timeline, leader.at
    notes = corpus.notes
    if not notes[best_place]:
        return ()
    is_later = timeline.timestamp > timeline.timestamp[best_place]
    is_later |= (timeline.timestamp == timeline.timestamp[best_place]) & (timeline.seq > timeline.seq[best_place])
    is_later &= notes & ~leader.announced
    for condition in (leader.here, leader.allowed):
        if condition is not None:
            is_later &= condition
    if not is_later.any():
        return ()
    unspecific = leader.names | stop_ids() | _function_ids()
    own_words = leader.said - unspecific
    ids = np.array(sorted(own_words), dtype=np.int64)
    rarities = [rarity(docs + _IMAGINED, max(2, count)) for count in frequencies(ids, corpus).tolist()]
    question_ids = {identity for concept in plan.concepts for identity, _ in concept.alternatives}
    repeated = np.zeros(len(timeline), dtype=np.int64)
    answers = leader.held * 100 >= leader.held[best_place] * _ANSWERED
    for (part, _), places in zip(corpus.parts, timeline.places, strict=True):
        for index, start, end in spans_of(ids, part.terms, part.offsets).T.tolist():
            where = places[part.posting_doc[start:end]]
            where = where[where >= 0]
            repeated[where] += rarities[index]
            if int(ids[index]) not in question_ids:
                answers[where] = True
    candidates = np.flatnonzero(is_later & answers & (repeated * 100 >= max(1, sum(rarities)) * _REPEATED))
    newest = candidates[np.lexsort((timeline.seq[candidates], timeline.timestamp[candidates]))][::-1][:_LOOKED_AT]
    # What is written with signs, such as a version, means one thing and no other.
    signed = {term_id(word.term) for word in plan.reading.words if not word.term.isalnum()}

    def says_anew(words: frozenset[int]) -> bool:
        """Tell whether a note's words say something new about the thing that is asked about.

        One that repeats the best hit does not, nor one that says the same of another thing: "server beta runs Debian"
        shares most words with "server alpha runs Debian", but lacks "alpha".
        """
        missing = own_words & question_ids - words
        is_parallel = bool(missing) and 2 * len(words & own_words) >= len(words)
        return words != own_words and not (is_parallel or signed & missing)

    return tuple(index for index in newest.tolist() if says_anew(leader.words(index) - unspecific))


@cache
def _function_ids() -> frozenset[int]:
    return frozenset(term_id(term) for language in FUNCTION_WORDS for term in function_terms(language))
