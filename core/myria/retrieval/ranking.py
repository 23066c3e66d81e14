"""Ranking events by evidence: words, structure, speakers, time. Integers only; the same input, the same bytes.

A document's score is its own words' (BM25, Robertson and Zaragoza 2009, over stems, idf over all visible scopes)
plus a discounted share of what its neighbours in time, its leaf and its unit hold for each word; multiplied by
evidence of who spoke, when, whether the text tells or asks, and the question's topic hints. Structure is evidence
and never a filter: this is what turned out best on long conversations (soft topic trees after RAPTOR, Sarthi et al.
2024, and cluster-based smoothing, Liu and Croft 2004; the date and speaker priors follow the temporal and
single-speaker questions of LoCoMo, Maharana et al. 2024). No model, no training, and few weights, each named below.

Two passes over the corpora: the first counts, the second scores one corpus after another and keeps the best `limit`
hits, so memory is bounded by the largest corpus. Small scopes share a corpus, so nothing here loops over scopes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from myria.analysis import term_id
from myria.analysis.dates import DAY_US, MINUTE_US, Window
from myria.analysis.misspelling import clipped, misspelling_ids
from myria.index.block import (
    ASKS,
    DATED,
    EMPTY,
    FAR_AWAY,
    NAMING,
    Ints,
    View,
    days_between,
    hint_ids,
    name_terms,
    whole_hint_id,
)
from myria.index.corpus import FAR, REACH, Corpus, Mask, Timeline
from myria.index.loose import LooseBlock
from myria.retrieval.filters import Filters
from myria.retrieval.frequency import frequencies, rarity, spans_of
from myria.retrieval.nearness import Near
from myria.retrieval.question import Question, Reading, Word, read, without_names
from myria.retrieval.states import MOST, later_states
from myria.retrieval.successors import (
    AskedAbout,
    Leader,
    Succession,
    announced,
    latest_by_meaning,
    succession,
    succession_by_meaning,
    succession_by_score,
)
from myria.values import short_value, value

Order = Literal["relevance", "newest", "oldest"]

MAX_CONCEPTS: Final = 48
"""Words of a question that are scored: the rarest of those that occur."""

_MOST_UNSEEN: Final = 8
"""Words of a question that occur nowhere and are looked for as they may be told otherwise, at most."""

_K1: Final = 900
"""BM25's saturation of repeated words, in permille."""
_B: Final = 500
"""BM25's allowance for length, in permille."""
_LONGEST: Final = 2_000
"""The most terms that count as a document's length: in a book among messages a word would else come to nothing."""
_PREVIOUS: Final = (40, 20)
"""Percent of their own score that the 1st and 2nd document before lend."""
_ANSWERS: Final = (45, 20)
"""Percent more that these lend to what follows a question: the question, and the statement that it asks about."""
_DATED_ANSWERS: Final = (30, 0)
"""The same if the question asks when: texts that say when count for it already."""
_NEXT: Final = (30, 20)
"""Percent of their own score that the 1st and 2nd document after lend."""
_FAR: Final = (20, 15, 10, 5)
"""Percent that documents beyond lend in both directions where few words lie between, as in bursts of short ones."""
_MANY: Final = 50
"""Percent of what neighbours lend if the question asks for many things: each is told in a place of its own."""
_LEAF: Final = 30
"""Percent of the best match of each word within the leaf."""
_UNIT: Final = 40
"""Percent of the best match of each word within the unit (a stretch of conversation)."""
_RELATED: Final = 50
"""Percent of a word's own weight that a related word counts."""
_MEMBER: Final = 40
"""The same of a word that names one of the kind of thing asked for: "my cat" answers "what pets"."""
_WIDER: Final = 25
"""The same of a word that WordNet has for the same or for a kind of it: it knows little of everything."""
_MISSPELT: Final = 80
"""The same of what a word that occurs nowhere may be written as in a hurry."""
_CLIPPED: Final = 60
"""The same of what is left of it where people cut it short."""
_AKIN: Final = 15
"""The same of a word that means something near to one that occurs nowhere."""
_INSTEAD_OF_MANY: Final = 150
"""Percent of both if the question asks for many things: few of them are told by its own words."""
_COVERED: Final = 100
"""Percent that a document's own words gain if it holds all words of the question, by idf; less as it holds fewer."""
_EXACT: Final = 200
"""Percent of an equally rare word's weight that an identifier counts."""
_SPEAKER: Final = 200
"""Percent of the score of what a named person said."""
_PARTICIPANT: Final = 125
"""Percent of the score in scopes with a named participant, where others have none."""
_SAYS_WHEN: Final = 150
"""Percent of the score of a text that says when, if the question asks when."""
_NAMES: Final = 130
"""Percent of the score of a text that names something, if the question asks which, where or what it is called."""
_HAS_NUMBER: Final = 150
"""Percent of the score of a text that holds a number, if the question asks for one."""
_HAS_COUNT: Final = 130
"""The same if it asks how many or how long: what is counted may be told one by one."""
_ASKS: Final = 85
"""Percent of the score of a text that ends in a question: it holds fewer answers."""
_ONLY_ASKS: Final = 60
"""The same of a short one: it tells nothing before it asks."""
_SHORT_QUESTION: Final = 15
"""Terms of a text that only asks, at most."""
_SAYS_NOTHING: Final = 50
"""The same of a text that only shows that somebody heard ("omg yesss")."""
_FEW_WORDS: Final = (30, 30, 50, 70, 85, 95)
"""The same of a text of no term, of one, of two, and so on: it tells little, whatever stands around it."""
_PERIOD: Final = 250
"""Percent of the score within a month, year or other period that the question names."""
_ON_DAY: Final = 600
"""Percent of the score on a day that the question names, and of what tells of that day."""
_TOLD_ON: Final = 500
"""The same of what was told on that day and names others."""
_AROUND_DAY: Final = 400
"""Percent of the score around a day that the question names."""
_FARTHER: Final = 10
"""Percent that each day between takes of that."""
_NOT_YET: Final = 50
"""Percent of the score of what holds from a later day on, where the question asks for the present."""
_SUCCESSOR: Final = 115
"""Percent of the best hit's score that what replaced it is worth, where the question asks for the present."""
_ALSO: Final = 95
"""The same where the question asks what changed: both are an answer, in order."""
_HINT: Final = 100
"""Percent that a shared topic hint adds when both confidences are 1."""
_HINT_TERM: Final = 40
"""Percent of a whole shared hint that a single shared word counts."""
_HINT_TEXT: Final = 25
"""Percent of the question's own words that a hint's words in the text count."""

_NEAR: Final = 25
"""Percent of all words of the question that a standard deviation of nearness in meaning is worth."""
_NEAR_BEFORE: Final = 50
"""Percent of its nearness that a document counts where the question asks for before; none where it holds a word of the
question. What something was and what it became are alike in meaning: only words tell them apart."""
_NEAR_ALONE: Final = 8 * 256
"""The rarity of all words, in 1/256 bits, that is taken where those of a question come to less: about one word's."""

_UNITY: Final = 65_536
_ALONE: Final = 8 * _UNITY
"""What the right speaker or time is worth when the question says nothing else: about a word."""
_SCALE: Final = 100


@value
class Key:
    """A place in a ranking: hits after it follow. Which fields count depends on the order."""

    score: int
    timestamp: int
    event_seq: int


@value
class Hit:
    """One event found: `corpus` is its position in the corpora given, `view` in `Corpus.parts()`, `doc` in the view."""

    corpus: int
    event_seq: int
    timestamp: int
    score: int
    view: int
    doc: int

    @property
    def key(self) -> Key:
        """Return where a next page goes on."""
        return Key(score=self.score, timestamp=self.timestamp, event_seq=self.event_seq)


@dataclass(frozen=True, kw_only=True, eq=False)
class Replaced:
    """Superseded documents, which are never hits, and what stands in their place.

    `seqs` are those of `block` that count, ascending; `successors` stand beside them, by event_seq.
    """

    block: LooseBlock
    seqs: Ints
    successors: Ints

    def corpus(self) -> Corpus:
        """Return the documents that count as a corpus of their own."""
        return Corpus(tail=self.block, tail_mask=np.isin(self.block.seq, self.seqs))


@value
class Ranking:
    """The best hits after the given key, and how many documents matched in all (on every page the same).

    `newest` is the moment that relative dates counted from, in microseconds since 1970, only where visible documents
    lie ahead of the clock: on a next page it stands for the clock. `changed` names the best hit of all pages and what
    was said later that it changed, where the question asks for that. `by_meaning` are hits without a word of the
    question, found by their vectors.
    """

    hits: tuple[Hit, ...]
    matched: int
    newest: int | None = None
    changed: Succession | None = None
    by_meaning: frozenset[int] = frozenset()


def rank(
    question: Question,
    corpora: Sequence[Corpus],
    *,
    filters: Filters | None = None,
    order: Order = "relevance",
    limit: int = 20,
    after: Key | None = None,
    clock: int | None = None,
    replaced: Replaced | None = None,
    late: Ints | None = None,
    near: Near | None = None,
) -> Ranking:
    """Rank everything visible.

    Order `relevance` is by score, then lower event_seq; `newest` and `oldest` order the documents that hold at least
    one of the words by (timestamp, event_seq). A question without text gives all documents, most recent first; with
    topic hints those that share them come first.

    Args:
        corpora: the visible scopes, in a fixed order of the caller's.
        limit: how many hits to return.
        after: only hits that come after this place.
        clock: microseconds since 1970; documents ahead of it do not move what relative dates count from.
        replaced: superseded documents; what their own words are worth counts for their successors.
        late: documents that were withdrawn after a first page was ranked: no hits, but they count as they did then.
        near: the question's vector and those of documents, which count by relevance alone.
    """
    census = _Census.of(corpora)
    has_ahead = clock is not None and census.last > clock
    last = _newest_until(clock, corpora) if clock is not None and has_ahead else None
    last = census.last if last is None else last
    reading = read(
        question,
        names=census,
        first=min(census.first, last),
        last=last,
        utc_offset=_utc_offset_at(last, corpora) if question.now is None else question.utc_offset,
    )
    former = None if replaced is None or not len(replaced.seqs) else replaced.corpus()
    plan = _Plan.of(reading, corpora, census, former)
    raised = None if replaced is None or former is None else _raised(plan, len(corpora), former, replaced)
    ordered = _order_of(reading, order)
    best = _Best(order=ordered, limit=limit, after=after)
    follows = ordered == "relevance" and reading.asks_for in ("present", "change")
    leader: Leader | None = None
    by_meaning: set[int] = set()
    measured = None if near is None or ordered != "relevance" or not reading.has_meaning else near.measured(corpora)
    for at, corpus in enumerate(corpora):
        if not (plan.concepts or plan.scores_without_words or measured is not None):
            break
        timeline = corpus.laid_out
        if len(timeline):
            parts = corpus.parts()
            score, held, alone = _scores(
                plan,
                at,
                corpus,
                timeline,
                parts,
                matched_only=order != "relevance",
                near=None if measured is None else measured[at],
            )
            if alone is not None:
                by_meaning.update(timeline.seq[alone].tolist())
            if raised is not None:
                _raise(score, timeline.seq, *raised)
            allowed = (filters or Filters()).allowed(timeline, parts)
            if follows:
                leader = Leader.of(leader, at, corpus, score=score, held=held, allowed=allowed, day=reading.day)
            best.take(at, timeline, score, _without(late, timeline, allowed), everything=not reading.asked)
    newer: tuple[Succession, ...] = ()
    if leader is not None:
        gains = None if measured is None else [gain for gain, _ in measured]
        newer = _newer(leader, corpora, census.docs, plan.asked, near=near, gains=gains)
        percent = _SUCCESSOR if reading.asks_for == "present" else _ALSO
        for place, changed in enumerate(newer):
            best.put(leader, changed, leader.worth * (percent - place) // 100, late)
    ranking = best.ranking(newest=last if has_ahead else None, changed=newer[0] if newer else None)
    return replace(ranking, by_meaning=frozenset(hit.event_seq for hit in ranking.hits if hit.event_seq in by_meaning))


def _newer(
    leader: Leader,
    corpora: Sequence[Corpus],
    docs: int,
    asked: AskedAbout,
    *,
    near: Near | None,
    gains: Sequence[Ints] | None,
) -> tuple[Succession, ...]:
    """Return what was said later that changes what the best hit says, the newest first.

    Args:
        docs: how many documents are visible in all corpora.
        gains: by how much the meaning of each document stands out, by corpus.
    """
    changed = succession(leader, corpora, docs, asked)
    if not asked.of_state:
        return () if changed is None else (changed,)
    if near is not None and gains is not None:
        beside = near.beside(leader.corpus, int(leader.timeline.seq[leader.at]))
        if beside is not None:
            nearness, likeness = gains[leader.corpus], beside.gains(corpora)[leader.corpus]
            changed = changed or succession_by_meaning(leader, corpora, nearness, likeness)
            changed = changed and latest_by_meaning(leader, corpora, changed, nearness, likeness)
    certain = changed is not None
    if changed is None and not asked.asks_many:
        changed = succession_by_score(leader, corpora, asked)
    return later_states(leader, corpora, asked, changed, certain=certain)


def meaning(question: Question, corpora: Sequence[Corpus]) -> str:
    """Return what of a question is compared by meaning: its text without the visible names and common names in it.

    A name draws the vector of a question to every text that greets that person, or says something else of them.
    """
    census = _Census.of(corpora)
    words = read(question, names=census, first=census.first, last=census.last).words
    ids = np.array(sorted({term_id(term) for word in words for term in (word.term, *word.stems)}), dtype=np.int64)
    frequency = dict(zip(ids.tolist(), frequencies(ids, corpora)[0].tolist(), strict=True))
    subjects = _subjects(words, frequency, census.docs)
    common = {word.term for word in words if word.name and word.subject and word.term not in subjects}
    return without_names(question, names=census, also=common)


def _without(late: Ints | None, timeline: Timeline, allowed: Mask | None) -> Mask | None:
    """Return what is allowed and was not withdrawn late."""
    if late is None or not len(late):
        return allowed
    kept = ~np.isin(timeline.seq, late)
    return kept if allowed is None else allowed & kept


def _newest_until(moment: int, corpora: Sequence[Corpus]) -> int | None:
    """Return the time of the newest visible document not after a moment, or None where all lie after it."""
    newest: list[int] = []
    for corpus in corpora:
        for view, mask in corpus.parts():
            shown = view.timestamp <= moment if mask is None else (view.timestamp <= moment) & mask
            if shown.any():
                newest.append(int(view.timestamp[shown].max()))
    return max(newest, default=None)


def _utc_offset_at(moment: int, corpora: Sequence[Corpus]) -> int:
    """Return the offset of the last visible document of a moment, which stands for now: 0 where there is none."""
    newest = (0, 0)
    for corpus in corpora:
        for view, mask in corpus.parts():
            at = np.flatnonzero(view.timestamp == moment if mask is None else (view.timestamp == moment) & mask)
            if len(at):
                last = at[view.seq[at].argmax()]
                newest = max(newest, (int(view.seq[last]), int(view.utc_offset[last])))
    return newest[1]


@short_value
class _Census:
    """Totals of everything visible: the first pass. Names are looked up, not listed: there may be very many."""

    corpora: Sequence[Corpus]
    docs: int
    length: int
    first: int
    last: int

    @classmethod
    def of(cls, corpora: Sequence[Corpus]) -> _Census:
        docs = length = 0
        spans: list[int] = []
        for corpus in corpora:
            for view, mask in corpus.parts():
                if mask is None:
                    seen = len(view)
                    total, first, last = view.totals
                else:
                    stamps = view.timestamp[mask]
                    seen = len(stamps)
                    total = int(view.length[mask].sum(dtype=np.int64))
                    first, last = (int(stamps.min()), int(stamps.max())) if seen else (0, 0)
                if seen:
                    docs += seen
                    length += total
                    spans += (first, last)
        return cls(corpora=corpora, docs=docs, length=length, first=min(spans, default=0), last=max(spans, default=0))

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


@value
class _Concept:
    """A word to score: its ids with the percent each counts, and its idf in 1/256 bits.

    Those in `akin` only mean something near to it, which is no sign that a text is about the same. `subject` tells that
    a text that holds nothing else of the question may be what it asks for.
    """

    alternatives: tuple[tuple[int, int], ...]
    idf: int
    akin: frozenset[int] = frozenset()
    subject: bool = True

    @property
    def is_sign(self) -> bool:
        """Tell whether something visible is about what the question asks for as far as this word tells."""
        return self.subject and len(self.sure) > 0

    @property
    def sure(self) -> list[tuple[int, int]]:
        """Return those that are a sign of the same: all but the words akin to it."""
        return [(identity, percent) for identity, percent in self.alternatives if identity not in self.akin]


@value
class _Plan:
    """A reading with the weights of its words: all that is needed to score a corpus."""

    reading: Reading
    concepts: tuple[_Concept, ...]
    hint_concepts: tuple[_Concept, ...]
    hint_ids: tuple[tuple[int, int], ...]
    distinctive: frozenset[str]
    ids: Ints
    located: list[list[Ints]]
    mean_length: int

    @property
    def scores_without_words(self) -> bool:
        """Tell whether documents can match without holding a word of the question."""
        return not self.reading.asked or self.reading.by_speaker or self.reading.only_when

    @property
    def asked(self) -> AskedAbout:
        """Return what the question asks about, as far as something visible may be about it."""
        return AskedAbout(
            ids=frozenset(identity for concept in self.concepts for identity, _ in concept.sure),
            states=frozenset(term_id(state) for word in self.reading.words for state in word.states),
            covered=self._covered,
            of_state=self.reading.of_state,
            weight=max(1, sum(concept.idf for concept in self.concepts)),
            asks_many=self.reading.asks_many,
            asks_name=self.reading.asks_name,
            asks_number=self.reading.asks_number or self.reading.asks_many,
        )

    def _covered(self, words: frozenset[int]) -> int:
        held = sum(
            concept.idf * max((percent for identity, percent in concept.sure if identity in words), default=0)
            for concept in self.concepts
        )
        return held // max(1, sum(concept.idf for concept in self.concepts))

    @classmethod
    def of(cls, reading: Reading, corpora: Sequence[Corpus], census: _Census, former: Corpus | None) -> _Plan:
        wanted = sorted(
            {
                term_id(term)
                for word in (*reading.words, *reading.hint_words)
                for term in (
                    word.term,
                    *word.stems,
                    *word.instead,
                    *word.members,
                    *word.states,
                    *word.wider,
                    *word.parts,
                )
            }
        )
        ids = np.array(wanted, dtype=np.int64)
        total, located = frequencies(ids, corpora)
        if former is not None:
            formerly, places = frequencies(ids, (former,))
            # A word that only superseded documents hold is as rare as there; any other is as rare as without them.
            total = np.where(total, total, formerly)
            located += places
        frequency = dict(zip(wanted, total.tolist(), strict=True))
        unseen = [word for word in reading.words if not _occurring(word, frequency)][:_MOST_UNSEEN]
        others = sorted({identity for word in unseen for identity in _otherwise(word)}.difference(wanted))
        if others:
            more = np.array(others, dtype=np.int64)
            seen, places = frequencies(more, corpora)
            if former is not None:
                formerly, former_places = frequencies(more, (former,))
                seen = np.where(seen, seen, formerly)
                places += former_places
            frequency.update(zip(others, seen.tolist(), strict=True))
            located = _both_located(located, places, len(ids))
            ids = np.concatenate((ids, more))
        concepts = _concepts(reading.words, frequency, census.docs, _INSTEAD_OF_MANY if reading.asks_many else 100)
        if not any(concept.is_sign for concept in concepts):
            concepts = ()
        hint_concepts = _concepts(reading.hint_words, frequency, census.docs, 100)
        return cls(
            reading=reading,
            concepts=concepts,
            hint_concepts=hint_concepts,
            hint_ids=_hint_weights(reading.hints),
            distinctive=frozenset(name for name in reading.participants if not census.shared(name)),
            ids=ids,
            located=located,
            mean_length=max(1, census.length // max(1, census.docs)),
        )


def _occurring(word: Word, frequency: dict[int, int]) -> list[int]:
    """Return the ids of a word itself, and of its stems, that occur."""
    return [identity for identity in map(term_id, (word.term, *word.stems)) if frequency[identity]]


def _otherwise(word: Word) -> set[int]:
    """Return the ids of what a word that occurs nowhere may be told by."""
    return {*misspelling_ids(word.term), *map(term_id, (*clipped(word.term), *word.akin))}


def _both_located(one: list[list[Ints]], other: list[list[Ints]], ids: int) -> list[list[Ints]]:
    """Return where the postings of two lists of ids are, as of one list with the second behind the first of `ids`."""
    for rows, more in zip(one, other, strict=True):
        for at, spans in enumerate(more):
            if spans.size:
                spans[0] += ids
                rows[at] = np.concatenate((rows[at], spans), axis=1)
    return one


def _concepts(words: Sequence[Word], frequency: dict[int, int], docs: int, share: int) -> tuple[_Concept, ...]:
    """Return what to score of these words.

    Args:
        share: percent of its usual weight that counts of what stands in for a word.
    """
    related, member, wider, akin = (percent * share // 100 for percent in (_RELATED, _MEMBER, _WIDER, _AKIN))
    subjects = _subjects(words, frequency, docs)
    candidates: list[tuple[int, int, _Concept]] = []
    for at, word in enumerate(words):
        own = _occurring(word, frequency)
        misspelt: list[int] = []
        near: list[int] = []
        instead = [(identity, related) for identity in map(term_id, word.instead) if frequency[identity]]
        if not own:
            parts = [term_id(part) for part in word.parts]
            pairs = zip(parts[::2], parts[1::2], strict=True)
            instead += [(part, related) for pair in pairs if frequency[pair[0]] and frequency[pair[1]] for part in pair]
            misspelt = [identity for identity in misspelling_ids(word.term) if frequency.get(identity)]
        if not (own or misspelt):
            instead += [
                (identity, _CLIPPED) for identity in map(term_id, clipped(word.term)) if frequency.get(identity)
            ]
            near = [identity for identity in map(term_id, word.akin) if frequency.get(identity)]
        named = dict.fromkeys(map(term_id, (*word.members, *word.states)))
        members = [(identity, member) for identity in named if frequency[identity]]
        members += [
            (identity, wider) for identity in map(term_id, word.wider) if frequency[identity] and identity not in named
        ]
        known = {identity for identity, _ in (*instead, *members)}
        near = [identity for identity in near if identity not in known]
        members += [(identity, akin) for identity in near]
        if not (own or misspelt or instead or members):
            continue
        if own or misspelt:
            idf = min(rarity(docs, frequency[identity]) for identity in own or misspelt)
        else:
            idf = max(rarity(docs, frequency[identity]) for identity, _ in instead or members)
        alternatives = [(identity, 100) for identity in own] + [(identity, _MISSPELT) for identity in misspelt]
        # Another word that is more common than the word itself counts proportionally less.
        alternatives += [
            (identity, percent * min(idf, rarity(docs, frequency[identity])) // idf)
            for identity, percent in (*instead, *members)
        ]
        if word.exact:
            idf = idf * _EXACT // 100
        concept = _Concept(
            alternatives=tuple(alternatives), idf=idf, akin=frozenset(near), subject=word.term in subjects
        )
        candidates.append((-idf, at, concept))
    return tuple(concept for _, _, concept in sorted(candidates, key=lambda row: row[:2])[:MAX_CONCEPTS])


def _subjects(words: Sequence[Word], frequency: dict[int, int], docs: int) -> frozenset[str]:
    """Return the terms of the words by any of which alone a text may be what is asked for.

    A name that many texts hold is none beside other words: asked for somebody's mother, a text that only names
    somebody is no answer.
    """
    subjects = [word for word in words if word.subject]

    def is_common_name(word: Word) -> bool:
        most = max((frequency[identity] for identity in _occurring(word, frequency)), default=0)
        return word.name and most > 1 and most * most >= docs

    others = [word for word in subjects if not is_common_name(word)]
    return frozenset(word.term for word in others or subjects)


def _hint_weights(hints: Sequence[tuple[str, int]]) -> tuple[tuple[int, int], ...]:
    weights: dict[int, int] = {}
    for hint, permille in hints:
        whole = whole_hint_id(hint)
        for identity in hint_ids(hint):
            weight = max(0, min(1000, permille)) * (100 if identity == whole else _HINT_TERM) // 100
            weights[identity] = max(weights.get(identity, 0), weight)
    return tuple(sorted(weights.items()))


def _scores(
    plan: _Plan,
    at: int,
    corpus: Corpus,
    timeline: Timeline,
    parts: Sequence[tuple[View, Mask | None]],
    *,
    matched_only: bool,
    near: tuple[Ints, Mask] | None,
) -> tuple[Ints, Ints, Mask | None]:
    """Return every document's score in one scope, 0 for no evidence, and how much of the question's words it holds.

    The last tells which hold none and are near, where vectors are compared.

    Args:
        near: by how much the meaning of each stands out and which are near, as `Near.measured` has it.
    """
    postings = _postings(plan, at, timeline, parts)
    own, held, in_leaf, in_unit, is_about = _evidence(plan, plan.concepts, postings, timeline)
    alone: Mask | None = None
    if near is not None:
        gain, is_near = near
        alone = is_near & (own == 0)
        is_about |= is_near
        if not plan.concepts:
            gain = np.where(is_near, gain, 0)
        # Counted as a further word is, so that neighbours, leaf and unit get their share of it.
        if plan.reading.asks_for == "before":
            gain = np.where(own > 0, 0, gain * _NEAR_BEFORE // 100)
        worth = gain * max(_NEAR_ALONE, sum(concept.idf for concept in plan.concepts)) * _NEAR // 100
        own += worth
        _add_best(in_leaf, timeline.leaf, worth)
        _add_best(in_unit, timeline.unit, worth)
    reading = plan.reading
    voiced = _spoken_by(reading.speakers, timeline, parts) if reading.speakers else None
    total = own * 100
    # Who and when alone are evidence of a document itself: neighbours are lent words only.
    if reading.by_speaker and voiced is not None:
        total[voiced] += _ALONE * 100
    if reading.only_when:
        total[_within(plan, corpus) > 100] += _ALONE * 100
    unmatched = total == 0 if matched_only else None
    if reading.asked:
        _lend(reading, own, total, timeline)
        total += _LEAF * in_leaf[timeline.leaf]
        total += _UNIT * in_unit[timeline.unit] * (total > 0)
        if unmatched is not None:
            total[unmatched] = 0
        _weigh(plan, corpus, total, timeline, voiced)
    if plan.hint_ids or plan.hint_concepts:
        _add_hints(plan, total, postings, timeline, parts)
    if reading.has_meaning:
        # A note stands for itself, where a turn of talk may be answered by the next one.
        total[corpus.notes() & ~is_about] = 0
    has_evidence = total > 0
    total *= _SCALE
    total //= _UNITY
    return np.maximum(total, has_evidence), held, alone


Postings = dict[int, tuple[Ints, Ints]]
_NOWHERE: Ints = np.zeros(0, dtype=np.int64)


def _raised(plan: _Plan, at: int, former: Corpus, replaced: Replaced) -> tuple[Ints, Ints]:
    """Return successors of superseded documents, ascending, and what their predecessors' words are worth.

    A predecessor counts as a document that stands alone: no neighbour, leaf or unit adds anything to it.
    """
    timeline, parts = former.laid_out, former.parts()
    postings = _postings(plan, at, timeline, parts)
    total = _evidence(plan, plan.concepts, postings, timeline)[0] * (100 + _LEAF + _UNIT)
    reading = plan.reading
    voiced = _spoken_by(reading.speakers, timeline, parts) if reading.speakers else None
    _weigh(plan, former, total, timeline, voiced)
    total *= _SCALE
    total //= _UNITY
    successors = replaced.successors[replaced.seqs.searchsorted(timeline.seq)]
    worth = total > 0
    order = np.lexsort((-total[worth], successors[worth]))
    named, scores = successors[worth][order], total[worth][order]
    first = np.concatenate(([True], named[1:] != named[:-1]))[: len(named)]
    return named[first], scores[first]


def _raise(score: Ints, seqs: Ints, successors: Ints, worth: Ints) -> None:
    """Give successors the scores of those that they replaced, where these are greater."""
    if not len(successors):
        return
    at = successors.searchsorted(seqs)
    at[at == len(successors)] = 0
    here = np.flatnonzero(successors[at] == seqs)
    score[here] = np.maximum(score[here], worth[at[here]])


def _postings(plan: _Plan, corpus: int, timeline: Timeline, parts: Sequence[tuple[View, Mask | None]]) -> Postings:
    """Return (positions, times) by term id; positions are unique within a term.

    A word that only the hints of an event have counts as if its text had it once.
    """
    rows_by_id: dict[int, list[tuple[Ints, Ints]]] = {}
    wanted = plan.ids.tolist()
    for (view, mask), places, located in zip(parts, timeline.places, plan.located[corpus], strict=True):
        for at, start, end in located.T.tolist():
            where = places[view.posting_doc[start:end]]
            times = view.posting_tf[start:end].astype(np.int64)
            if mask is not None:
                shown = where >= 0
                where, times = where[shown], times[shown]
            rows_by_id.setdefault(wanted[at], []).append((where, times))
        for at, start, end in spans_of(plan.ids, view.hint_terms, view.hint_offsets).T.tolist():
            rows = rows_by_id.setdefault(wanted[at], [])
            where = np.unique(places[view.hint_doc[start:end]])
            where = where[(where >= 0) & ~np.isin(where, np.concatenate([_NOWHERE, *(row[0] for row in rows)]))]
            rows.append((where, np.ones_like(where)))
    return {
        identity: rows[0]
        if len(rows) == 1
        else (np.concatenate([row[0] for row in rows]), np.concatenate([row[1] for row in rows]))
        for identity, rows in rows_by_id.items()
    }


def _evidence(
    plan: _Plan, concepts: Sequence[_Concept], postings: Postings, timeline: Timeline
) -> tuple[Ints, Ints, Ints, Ints, Mask]:
    """Return the words' score by document, how much of them it holds, and their best matches summed by leaf and unit.

    The last tells for each document whether it holds a word by which alone it may be what is asked for.

    A document's own score grows with the share of the words that it holds: two words of a question together say more
    than one of them twice.
    """
    own = np.zeros(len(timeline), dtype=np.int64)
    covered = np.zeros(len(timeline), dtype=np.int64)
    in_leaf = np.zeros(timeline.leaves, dtype=np.int64)
    in_unit = np.zeros(timeline.units, dtype=np.int64)
    is_about = np.zeros(len(timeline), dtype=np.bool_)
    scratch: tuple[Ints, Ints] | None = None
    norms = _norms(timeline.length, plan.mean_length) if concepts else own
    for concept in concepts:
        rows = [(*postings[identity], percent) for identity, percent in concept.alternatives if identity in postings]
        if not rows:
            continue
        if concept.subject:
            for identity, _ in concept.sure:
                if identity in postings:
                    is_about[postings[identity][0]] = True
        if len(rows) == 1:
            where, count, percent = rows[0]
            times = count * percent
            covered[where] += concept.idf * percent
        else:
            if scratch is None:
                scratch = np.zeros(len(timeline), dtype=np.int64), np.zeros(len(timeline), dtype=np.int64)
            most, best = scratch
            for places, count, percent in rows:
                most[places] = np.maximum(most[places], count * percent)
                best[places] = np.maximum(best[places], percent)
            where = most.nonzero()[0]
            times = most[where]
            covered[where] += concept.idf * best[where]
            most[where] = best[where] = 0
        gain = concept.idf * _saturated(times, norms[where])
        own[where] += gain
        _add_best(in_leaf, timeline.leaf[where], gain)
        _add_best(in_unit, timeline.unit[where], gain)
    if concepts:
        own += own * (covered * _COVERED // sum(concept.idf for concept in concepts)) // (100 * 100)
    return own, covered, in_leaf, in_unit, is_about


def _norms(length: Ints, mean: int) -> Ints:
    """Return BM25's allowance for the length of each document."""
    norms: Ints = _K1 * (1000 - _B) // 1000 + np.minimum(length, _LONGEST) * (_K1 * _B // 1000) // mean
    return norms


def _saturated(times: Ints, norms: Ints) -> Ints:
    """Return BM25's share of a word that occurs `times` / 100 times, in 1/256."""
    gain: Ints = times * (256 * (1000 + _K1) // 100) // (times * 10 + norms)
    return gain


def _add_best(groups: Ints, where: Ints, gain: Ints) -> None:
    best = np.zeros(len(groups), dtype=np.int64)
    np.maximum.at(best, where, gain)
    groups += best


def _lend(reading: Reading, own: Ints, total: Ints, timeline: Timeline) -> None:
    share = _MANY if reading.asks_many else 100
    answers = _DATED_ANSWERS if reading.asks_when else _ANSWERS
    for at, (linked, answered) in enumerate(zip(timeline.linked, timeline.answered, strict=True)):
        step = at + 1
        if len(linked) == 0:
            continue
        total[step:] += own[:-step] * (linked * (_PREVIOUS[at] * share // 100))
        total[:-step] += own[step:] * (linked * (_NEXT[at] * share // 100))
        if answers[at]:
            # What follows a question answers it, and tells more of the statement before it.
            total[answered + step] += own[answered] * (answers[at] * share // 100)
    if timeline.reaches_far:
        _lend_far(share, own, total, timeline)


def _lend_far(share: int, own: Ints, total: Ints, timeline: Timeline) -> None:
    for step, percent in enumerate(_FAR, REACH + 1):
        at = timeline.derived(_reaching)[step - REACH - 1]
        if not len(at):
            break
        total[at + step] += own[at] * (percent * share // 100)
        total[at] += own[at + step] * (percent * share // 100)


def _reaching(timeline: Timeline) -> tuple[Ints, ...]:
    """Return by step beyond `REACH` the documents that lend so far.

    There are few, and fewer the farther: what lies within few words of one document lies so of all between them.
    """
    return tuple(np.flatnonzero(timeline.far >= step) for step in range(REACH + 1, FAR + 1))


def _weigh(plan: _Plan, corpus: Corpus, total: Ints, timeline: Timeline, voiced: Mask | None) -> None:
    reading = plan.reading
    if voiced is not None:
        _times(total, voiced, _SPEAKER)
    if reading.asks_when:
        _times(total, timeline.flags & DATED != 0, _SAYS_WHEN)
    if reading.asks_name:
        _times(total, timeline.flags & NAMING != 0, _NAMES)
    if reading.asks_number:
        _times(total, corpus.numbered(), _HAS_NUMBER)
    elif reading.asks_count:
        _times(total, corpus.numbered(), _HAS_COUNT)
    _weigh_wording(total, timeline)
    if reading.windows:
        total *= _within(plan, corpus)
        total //= 100
    if reading.asks_for == "present":
        _times(total, announced(corpus, reading.day), _NOT_YET)
    _weigh_participants(plan.distinctive, corpus, total, timeline)


def _weigh_wording(total: Ints, timeline: Timeline) -> None:
    at, percent = timeline.derived(_wording)
    total[at] = total[at] * percent // (100 * 100 * 100)


def _wording(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the documents that count otherwise for how they are worded, and the millionths that each counts."""
    at = np.flatnonzero((timeline.flags & (ASKS | EMPTY) != 0) | (timeline.length < len(_FEW_WORDS)))
    flags, length = timeline.flags[at], timeline.length[at]
    asking = np.where(length <= _SHORT_QUESTION, _ONLY_ASKS, _ASKS)
    percent = np.where(flags & ASKS, asking, 100) * np.where(flags & EMPTY, _SAYS_NOTHING, 100)
    percent *= np.array((*_FEW_WORDS, 100))[np.minimum(length, len(_FEW_WORDS))]
    return at, percent


def _weigh_participants(names: frozenset[str], corpus: Corpus, total: Ints, timeline: Timeline) -> None:
    holders = corpus.scopes.holders
    places = [holders[name] for name in sorted(names) if name in holders]
    if not places:
        return
    if timeline.scope is None:
        total *= _PARTICIPANT
        total //= 100
        return
    preferred = np.zeros(len(corpus.scopes.ids), dtype=np.bool_)
    preferred[np.concatenate(places)] = True
    _times(total, preferred[timeline.scope], _PARTICIPANT)


def _times(total: Ints, where: Mask, percent: int) -> None:
    at = np.flatnonzero(where)
    total[at] = total[at] * percent // 100


def _within(plan: _Plan, corpus: Corpus) -> Ints:
    """Return the percent that a document's time is worth to the question, or that of which it tells."""
    timeline = corpus.laid_out
    percent = np.full(len(timeline), 100, dtype=np.int64)
    names_days = np.zeros(len(timeline), dtype=np.bool_)
    for places, _ in _told_of(corpus, -FAR_AWAY, FAR_AWAY):
        names_days[places] = True
    asker = plan.reading.utc_offset * MINUTE_US
    for window in plan.reading.windows:
        told = timeline.timestamp + asker if window.is_relative else corpus.told_at()
        inside = np.flatnonzero((told >= window.start) & (told < window.end))
        worth = _worth_of(window, told[inside] // DAY_US)
        worth[(worth == _ON_DAY) & names_days[inside]] = _TOLD_ON
        percent[inside] = np.maximum(percent[inside], worth)
        for places, days in _told_of(corpus, window.start // DAY_US, window.end // DAY_US):
            np.maximum.at(percent, places, _worth_of(window, days))
    return percent


def _worth_of(window: Window, days: Ints) -> Ints:
    """Return the percent that days within a window are worth."""
    if not window.exact:
        return np.full(len(days), _PERIOD, dtype=np.int64)
    if window.last < window.first:
        return np.full(len(days), _AROUND_DAY, dtype=np.int64)
    away = np.maximum(window.first - days, days - window.last)
    worth: Ints = np.where(away <= 0, _ON_DAY, _AROUND_DAY - _FARTHER * away)
    return worth


def _told_of(corpus: Corpus, first: int, after: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield places in the timeline and the days there that documents are about, of those from `first` to `after`."""
    for (view, _), places in zip(corpus.parts(), corpus.laid_out.places, strict=True):
        days, docs = days_between(view, first, after)
        if len(days):
            where = places[docs]
            yield where[where >= 0], days[where >= 0]


def _spoken_by(names: frozenset[str], timeline: Timeline, parts: Sequence[tuple[View, Mask | None]]) -> Mask:
    heard = np.zeros(len(timeline), dtype=np.bool_)
    for (view, mask), places in zip(parts, timeline.places, strict=True):
        table = np.array([name in names for name in view.speakers], dtype=np.bool_)
        if table.any():
            spoken = table[view.speaker]
            heard[places[spoken if mask is None else spoken & mask]] = True
    return heard


def _add_hints(
    plan: _Plan,
    total: Ints,
    postings: Postings,
    timeline: Timeline,
    parts: Sequence[tuple[View, Mask | None]],
) -> None:
    """Raise the score of matches that share a topic hint; without a text, hints are the only match."""
    shared = np.zeros(len(timeline), dtype=np.int64)
    weights = [weight for _, weight in plan.hint_ids]
    ids = np.array([identity for identity, _ in plan.hint_ids], dtype=np.int64)
    for (view, mask), places in zip(parts, timeline.places, strict=True):
        for at, start, end in spans_of(ids, view.hint_terms, view.hint_offsets).T.tolist():
            where = places[view.hint_doc[start:end]]
            worth = view.hint_permille[start:end].astype(np.int64) * weights[at] // 1000
            if mask is not None:
                shown = where >= 0
                where, worth = where[shown], worth[shown]
            shared[where] = np.maximum(shared[where], worth)
    in_text = _evidence(plan, plan.hint_concepts, postings, timeline)[0] * _HINT_TEXT
    if plan.reading.asked:
        total += np.minimum(in_text, total)
        total *= 1000 * 100 + shared * _HINT
        total //= 1000 * 100
    else:
        total += in_text
        total += shared * _HINT * (_UNITY // 100)


_Order = Literal["relevance", "newest", "oldest", "hinted"]


def _order_of(reading: Reading, order: Order) -> _Order:
    if order != "relevance" or reading.asked:
        return order
    return "hinted" if reading.hints else "newest"


class _Best:
    """The best hits so far, over corpora taken one after another; some more are kept, since they may still be moved."""

    def __init__(self, *, order: _Order, limit: int, after: Key | None) -> None:
        self._order = order
        self._limit = limit
        self._kept = limit + MOST
        self._after = after
        self._matched = 0
        self._rows = np.zeros((0, 6), dtype=np.int64)

    def take(self, corpus: int, timeline: Timeline, score: Ints, allowed: Mask | None, *, everything: bool) -> None:
        """Take the hits of one corpus. A row is (score, timestamp, event_seq, corpus, view, doc)."""
        if everything:
            chosen = np.arange(len(timeline)) if allowed is None else np.flatnonzero(allowed)
        else:
            chosen = np.flatnonzero(score > 0 if allowed is None else (score > 0) & allowed)
        self._matched += len(chosen)
        if self._after is not None:
            chosen = chosen[
                self._comes_after(self._after, score[chosen], timeline.timestamp[chosen], timeline.seq[chosen])
            ]
        if len(chosen) > 4 * self._kept:
            leading = self._leading(score[chosen], timeline.timestamp[chosen])
            chosen = chosen[leading <= np.partition(leading, self._kept - 1)[self._kept - 1]]
        score, stamp, seq = score[chosen], timeline.timestamp[chosen], timeline.seq[chosen]
        rows = np.column_stack(
            (score, stamp, seq, np.full(len(chosen), corpus), timeline.view[chosen], timeline.doc[chosen])
        )
        rows = np.concatenate((self._rows, rows))
        self._rows = rows[np.lexsort(self._sort_keys(rows[:, 0], rows[:, 1], rows[:, 2]))[: self._kept]]

    def put(self, leader: Leader, changed: Succession, score: int, late: Ints | None) -> None:
        """Move one document of a corpus taken before to where a greater score places it."""
        timeline = leader.timeline
        at = changed.at
        before = int(leader.score[at])
        if score <= before:
            return
        if not before:
            self._matched += 1
        if late is not None and changed.newer in late:
            return
        self._rows = self._rows[self._rows[:, 2] != changed.newer]
        one = np.array([at])
        row = (np.array([score]), timeline.timestamp[one], timeline.seq[one])
        if self._after is not None and not self._comes_after(self._after, *row)[0]:
            return
        moved = np.column_stack((*row, [leader.corpus], timeline.view[one], timeline.doc[one]))
        rows = np.concatenate((self._rows, moved))
        self._rows = rows[np.lexsort(self._sort_keys(rows[:, 0], rows[:, 1], rows[:, 2]))]

    def ranking(self, *, newest: int | None, changed: Succession | None) -> Ranking:
        """Return the ranking of the hits taken."""
        rows = self._rows[: self._limit]
        return Ranking(
            hits=tuple(
                Hit(corpus=corpus, event_seq=seq, timestamp=stamp, score=score, view=view, doc=doc)
                for score, stamp, seq, corpus, view, doc in rows.tolist()
            ),
            matched=self._matched,
            newest=newest,
            changed=changed,
        )

    def _leading(self, score: Ints, stamp: Ints) -> Ints:
        if self._order in ("relevance", "hinted"):
            return -score
        return stamp if self._order == "oldest" else -stamp

    def _sort_keys(self, score: Ints, stamp: Ints, seq: Ints) -> tuple[Ints, ...]:
        """Return keys for lexsort, the last one leading."""
        if self._order == "relevance":
            return seq, -score
        if self._order == "oldest":
            return seq, stamp
        if self._order == "newest":
            return -seq, -stamp
        return -seq, -stamp, -score

    def _comes_after(self, key: Key, score: Ints, stamp: Ints, seq: Ints) -> Mask:
        place = self._sort_keys(*(np.array([value]) for value in (key.score, key.timestamp, key.event_seq)))
        columns = self._sort_keys(score, stamp, seq)
        later = np.zeros(len(seq), dtype=np.bool_)
        equal = np.ones(len(seq), dtype=np.bool_)
        for column, bound in zip(reversed(columns), reversed(place), strict=True):
            later |= equal & (column > bound)
            equal &= column == bound
        return later


assert len(_PREVIOUS) == len(_NEXT) == REACH  # noqa: S101
assert len(_FAR) == FAR - REACH  # noqa: S101
