"""Scoring every document of a corpus against a plan. Integers only; the same input, the same bytes.

A document's score is its own words' (BM25, Robertson and Zaragoza 2009, over stems, idf over all visible scopes)
plus a discounted share of what its neighbours in time, its leaf and its unit hold for each word; multiplied by
evidence of who spoke, when, and how the text is worded. Structure is evidence and never a filter (soft topic trees
after RAPTOR, Sarthi et al. 2024; cluster-based smoothing, Liu and Croft 2004).


What the words of superseded documents are worth to what stands in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from myria.index.block import ASKS, DATED, FAR_AWAY, NAMING, Ints, days_between
from myria.index.corpus import REACH, Corpus, Mask, Timeline
from myria.index.loose import LooseBlock
from myria.search.census import spans_of
from myria.search.plan import WISHES, Concept, Plan
from myria.search.weights import Weights
from myria.text.dates import DAY_US, MINUTE_US, Window

UNITY: Final = 65_536
"""What a whole bit of rarity comes to in the sums below, which count in 1/256 of 1/256 bits."""
_ALONE: Final = 8 * UNITY
"""What the right speaker or time is worth when the question says nothing else: about a word."""
_NEAR_ALONE: Final = 8 * 256
"""The rarity of all words, in 1/256 bits, that is taken where those of a question come to less: about one word's."""
_SCALE: Final = 100

Postings = dict[int, list[tuple[Ints, Ints, int]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """The score of every document of a corpus, 0 for no evidence.

    `held` says how much of the question's words each holds, in 1/25600 bits; `by_meaning` which hold none and are near
    in meaning, None where no vectors are compared.
    """

    score: Ints
    held: Ints
    by_meaning: Mask | None


def scored(plan: Plan, corpus: Corpus, *, matched_only: bool, near: tuple[Ints, Mask, Ints] | None) -> Scores:
    """Score a corpus.

    Args:
        matched_only: only documents with evidence of their own score, as when order is by time.
        near: by how much the meaning of each stands out and which are near, as `Near.measured` has it.
    """
    timeline, weights, reading = corpus.laid_out, plan.weights, plan.reading
    postings = _postings(plan, corpus)
    own = _Evidence.of(plan.concepts, postings, timeline, weights)
    by_meaning: Mask | None = None
    if near is not None:
        gain, is_near, _ = near
        by_meaning = is_near & (own.score == 0)
        own.is_about[is_near] = True
        if not plan.concepts:
            gain = np.where(is_near, gain, 0)
        if reading.asks_for == "before":
            # What something was and what it became are alike in meaning: only words tell them apart.
            gain = np.where(own.score > 0, 0, gain)
        # Counted as a further word is, so that neighbours, leaf and unit get their share of it.
        where = gain.nonzero()[0]
        worth = gain[where] * max(_NEAR_ALONE, plan.rarity) * weights.near // 100
        own.add(where, worth * weights.read // np.maximum(weights.read, timeline.length[where]), timeline)
    voiced = spoken_by(reading.speakers, corpus) if reading.speakers else None
    total = own.score * 100
    # Who and when alone are evidence of a document itself: neighbours are lent words only.
    if reading.by_speaker and voiced is not None:
        total[voiced] += _ALONE * 100
    if reading.only_when:
        total[_within(plan, corpus) > 0] += _ALONE * 100
    unmatched = total == 0 if matched_only else None
    if reading.asked:
        _lend(weights, own.score, total, timeline)
        total += weights.leaf * own.in_leaf[timeline.leaf]
        total += weights.unit * own.in_unit[timeline.unit] * (total > 0)
        if unmatched is not None:
            total[unmatched] = 0
        if reading.asks_help:
            _raise(total, _wishes(postings, timeline, weights), weights.wish)
        _weigh(plan, corpus, total, voiced)
    if plan.hint_ids or plan.hint_concepts:
        _add_hints(plan, total, postings, corpus)
    if reading.has_meaning:
        # A note stands for itself, where a turn of talk may be answered by the next one.
        total[corpus.notes & ~own.is_about] = 0
    has_evidence = total > 0
    return Scores(score=np.maximum(total * _SCALE // UNITY, has_evidence), held=own.held, by_meaning=by_meaning)


def _scored_alone(plan: Plan, corpus: Corpus) -> Ints:
    """Return the scores of documents that each stand alone: no neighbour, leaf or unit adds anything to them."""
    weights = plan.weights
    own = _Evidence.of(plan.concepts, _postings(plan, corpus), corpus.laid_out, weights)
    total = own.score * (100 + weights.leaf + weights.unit)
    speakers = plan.reading.speakers
    _weigh(plan, corpus, total, spoken_by(speakers, corpus) if speakers else None)
    return total * _SCALE // UNITY


def _postings(plan: Plan, corpus: Corpus) -> Postings:
    """Return (positions, times, percent) by term id, first of what texts hold, then of what stands beside them."""
    rows: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
    wanted = plan.ids.tolist()
    for (view, _), places in zip(corpus.parts(), corpus.laid_out.places, strict=True):
        for at, start, end in spans_of(plan.ids, view.terms, view.offsets).T.tolist():
            where = places[view.posting_doc[start:end]]
            shown = where >= 0
            times = view.posting_tf[start:end].astype(np.int64)
            rows.setdefault((wanted[at], 100), []).append((where[shown], times[shown]))
        for at, start, end in spans_of(plan.ids, view.hint_terms, view.hint_offsets).T.tolist():
            where = places[view.hint_doc[start:end]]
            where = where[where >= 0]
            rows.setdefault((wanted[at], plan.weights.aside), []).append((where, np.ones_like(where)))
    postings: Postings = {}
    for (identity, percent), found in rows.items():
        where, times = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        postings.setdefault(identity, []).append((where, times, percent))
    return postings


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evidence:
    """What the documents of a timeline hold of some words.

    `score` is that of each document's own words, `held` how much of the words it holds, `in_leaf` and `in_unit` the
    best match of each word summed by group; `is_about` tells which hold a word by which alone a text may be what is
    asked for.
    """

    score: Ints
    held: Ints
    in_leaf: Ints
    in_unit: Ints
    lends: Ints
    is_about: Mask

    @classmethod
    def of(cls, concepts: Sequence[Concept], postings: Postings, timeline: Timeline, weights: Weights) -> _Evidence:
        """Sum the words up. A score grows with the share of the words held: two words of a question together say more
        than one of them twice."""
        size = len(timeline)
        own = cls(
            score=np.zeros(size, dtype=np.int64),
            held=np.zeros(size, dtype=np.int64),
            in_leaf=np.zeros(timeline.leaves, dtype=np.int64),
            in_unit=np.zeros(timeline.units, dtype=np.int64),
            lends=_lending(timeline, weights),
            is_about=np.zeros(size, dtype=np.bool_),
        )
        norms = _norms(timeline.length, weights)
        times, best = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        for concept in concepts:
            rows = [
                (places, count, percent * worth // 100)
                for identity, percent in concept.alternatives
                for places, count, worth in postings.get(identity, ())
            ]
            if not rows:
                continue
            for places, count, percent in rows:
                times[places] = np.maximum(times[places], count * percent)
                best[places] = np.maximum(best[places], percent)
            where = rows[0][0] if len(rows) == 1 else np.unique(np.concatenate([places for places, _, _ in rows]))
            own.held[where] += concept.idf * best[where]
            own.is_about[where] |= concept.subject
            own.add(where, concept.idf * _saturated(times[where], norms[where], weights), timeline)
            times[where] = best[where] = 0
        if concepts:
            share = own.held * weights.together // sum(concept.idf for concept in concepts)
            own.score[:] += own.score * share // 10_000 * own.lends // 1_000
        return own

    def add(self, where: Ints, gain: Ints, timeline: Timeline) -> None:
        """Add what one word is worth to the documents at these places, and the best of it to their leaf and unit."""
        self.score[where] += gain
        lent = gain * self.lends[where] // 1_000
        for groups, of in ((self.in_leaf, timeline.leaf), (self.in_unit, timeline.unit)):
            best = np.zeros(len(groups), dtype=np.int64)
            np.maximum.at(best, of[where], lent)
            groups += best


def _norms(length: Ints, weights: Weights) -> Ints:
    """Return BM25's allowance for the length of each document."""
    k1, b = weights.saturation, weights.length
    norms: Ints = (
        k1 * (1000 - b) // 1000 + np.minimum(length, weights.longest) * (k1 * b // 1000) // weights.usual_length
    )
    return norms


def _saturated(times: Ints, norms: Ints, weights: Weights) -> Ints:
    """Return BM25's share of a word that occurs `times` / 100 times, in 1/256."""
    gain: Ints = times * (256 * (1000 + weights.saturation) // 100) // (times * 10 + norms)
    return gain


def _lending(timeline: Timeline, weights: Weights) -> Ints:
    """Return by document how much of what it holds counts for others, in permille."""
    lends: Ints = weights.lending * 1_000 // np.maximum(weights.lending, timeline.length)
    return lends


def _lend(weights: Weights, own: Ints, total: Ints, timeline: Timeline) -> None:
    lends = _lending(timeline, weights)
    for at, (linked, answered) in enumerate(zip(timeline.linked, timeline.answered, strict=True)):
        step = at + 1
        if len(linked) == 0:
            continue
        part = linked * np.minimum(lends[step:], lends[:-step])
        total[step:] += own[:-step] * part * weights.before[at] // 1_000
        total[:-step] += own[step:] * part * weights.after[at] // 1_000
        # What follows a question answers it, and tells more of the statement before it.
        total[answered + step] += own[answered] * part[answered] * weights.answers[at] // 1_000
    if timeline.reaches_far:
        for step, percent in enumerate(weights.farther, REACH + 1):
            # What lies within few words of one document lies so of all between them.
            where = np.flatnonzero(timeline.far >= step)
            total[where + step] += own[where] * percent
            total[where] += own[where + step] * percent


def _weigh(plan: Plan, corpus: Corpus, total: Ints, voiced: Mask | None) -> None:
    timeline, reading, weights = corpus.laid_out, plan.reading, plan.weights
    if voiced is not None:
        _raise(total, voiced, weights.speaker)
    if reading.asks_when:
        _raise(total, timeline.flags & DATED != 0, weights.says_when)
    if reading.asks_name:
        _raise(total, timeline.flags & NAMING != 0, weights.names)
    _weigh_wording(total, timeline, weights)
    if reading.windows:
        total += total * _within(plan, corpus) // 100
    if reading.asks_for == "present":
        _raise(total, announced(corpus, reading.day), -weights.not_yet)
    holders = corpus.scopes.holders
    places = [holders[name] for name in sorted(plan.distinctive) if name in holders]
    if places:
        preferred = np.zeros(len(corpus.scopes.ids), dtype=np.bool_)
        preferred[np.concatenate(places)] = True
        scope = np.zeros(len(timeline), dtype=np.int64) if timeline.scope is None else timeline.scope
        _raise(total, preferred[scope], weights.participant)


def _weigh_wording(total: Ints, timeline: Timeline, weights: Weights) -> None:
    """Let texts that only ask, or say next to nothing, count less."""
    (asks, asks_each), (few, few_each) = weights.asking, weights.few_words
    for where, most, each in (
        (np.flatnonzero(timeline.flags & ASKS), asks, asks_each),
        (np.flatnonzero(timeline.length * few_each < few), few, few_each),
    ):
        total[where] -= total[where] * np.maximum(0, most - each * timeline.length[where]) // 1_000


def _wishes(postings: Postings, timeline: Timeline, weights: Weights) -> Mask:
    """Return which documents may say what somebody wishes once and for all: in few words, among them one of those."""
    mask = np.zeros(len(timeline), dtype=np.bool_)
    for identity in WISHES:
        for where, _, _ in postings.get(identity, ()):
            mask[where] = True
    mask &= timeline.length <= weights.lending
    return mask


def _raise(total: Ints, where: Mask, percent: int) -> None:
    at = np.flatnonzero(where)
    total[at] += total[at] * percent // 100


def announced(corpus: Corpus, day: int) -> Mask:
    """Return which documents of a corpus's timeline say that what they tell holds from later than a day on."""
    timeline = corpus.laid_out
    mask = np.zeros(len(timeline), dtype=np.bool_)
    for (view, _), places in zip(corpus.parts(), timeline.places, strict=True):
        _, docs = days_between(view, day + 1, FAR_AWAY, begins=True)
        where = places[docs]
        mask[where[where >= 0]] = True
    return mask


def _within(plan: Plan, corpus: Corpus) -> Ints:
    """Return the percent that a document gains by its time, or by that of which it tells."""
    timeline, weights = corpus.laid_out, plan.weights
    percent = np.zeros(len(timeline), dtype=np.int64)
    names_days = np.zeros(len(timeline), dtype=np.bool_)
    for places, _ in _told_of(corpus, -FAR_AWAY, FAR_AWAY):
        names_days[places] = True
    asker = plan.reading.utc_offset * MINUTE_US
    for window in plan.reading.windows:
        told = timeline.timestamp + asker if window.is_relative else corpus.told_at
        inside = np.flatnonzero((told >= window.start) & (told < window.end))
        worth = _worth_of(window, told[inside] // DAY_US, weights)
        worth[(worth == weights.on_day) & names_days[inside]] = weights.told_on
        percent[inside] = np.maximum(percent[inside], worth)
        for places, days in _told_of(corpus, window.start // DAY_US, window.end // DAY_US):
            np.maximum.at(percent, places, _worth_of(window, days, weights))
    return percent


def _worth_of(window: Window, days: Ints, weights: Weights) -> Ints:
    """Return the percent that days within a window give."""
    if not window.exact:
        return np.full(len(days), weights.period, dtype=np.int64)
    if window.last < window.first:
        return np.full(len(days), weights.around_day, dtype=np.int64)
    away = np.maximum(window.first - days, days - window.last)
    worth: Ints = np.where(away <= 0, weights.on_day, weights.around_day - weights.day_between * away)
    return worth


def _told_of(corpus: Corpus, first: int, after: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield places in the timeline and the days there that documents are about, of those from `first` to `after`."""
    for (view, _), places in zip(corpus.parts(), corpus.laid_out.places, strict=True):
        days, docs = days_between(view, first, after)
        if len(days):
            where = places[docs]
            yield where[where >= 0], days[where >= 0]


def spoken_by(names: frozenset[str], corpus: Corpus) -> Mask:
    """Return which documents of a corpus's timeline are by speakers of these names."""
    timeline = corpus.laid_out
    heard = np.zeros(len(timeline), dtype=np.bool_)
    for (view, _), places in zip(corpus.parts(), timeline.places, strict=True):
        table = np.array([name in names for name in view.speakers], dtype=np.bool_)
        if table.any():
            where = places[table[view.speaker]]
            heard[where[where >= 0]] = True
    return heard


def _add_hints(plan: Plan, total: Ints, postings: Postings, corpus: Corpus) -> None:
    """Raise the score of matches that share a topic hint; without a text, hints are the only match."""
    timeline, weights = corpus.laid_out, plan.weights
    shared = np.zeros(len(timeline), dtype=np.int64)
    worths = [weight for _, weight in plan.hint_ids]
    ids = np.array([identity for identity, _ in plan.hint_ids], dtype=np.int64)
    for (view, _), places in zip(corpus.parts(), timeline.places, strict=True):
        for at, start, end in spans_of(ids, view.hint_terms, view.hint_offsets).T.tolist():
            where = places[view.hint_doc[start:end]]
            shown = where >= 0
            worth = view.hint_permille[start:end].astype(np.int64) * worths[at] // 1000
            shared[where[shown]] = np.maximum(shared[where[shown]], worth[shown])
    in_text = _Evidence.of(plan.hint_concepts, postings, timeline, weights).score * weights.hint_text
    if plan.reading.asked:
        total += np.minimum(in_text, total)
        total[:] = total * (1000 * 100 + shared * weights.hint) // (1000 * 100)
    else:
        total += in_text + shared * weights.hint * (UNITY // 100)


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

    def worth(self, plan: Plan, corpus: Corpus) -> tuple[Ints, Ints]:
        """Return the successors, ascending, and what the words of those before them are worth.

        Args:
            corpus: the superseded documents, which are those that `corpus` gives.
        """
        total = _scored_alone(plan, corpus)
        matched = total > 0
        successors = self.successors[self.seqs.searchsorted(corpus.laid_out.seq)][matched]
        named, places = np.unique(successors, return_inverse=True)
        worth = np.zeros(len(named), dtype=np.int64)
        np.maximum.at(worth, places, total[matched])
        return named, worth


def raise_scores(score: Ints, seqs: Ints, successors: Ints, worth: Ints) -> None:
    """Give successors the scores of those that they replaced, where these are greater."""
    here = np.flatnonzero(np.isin(seqs, successors))
    score[here] = np.maximum(score[here], worth[successors.searchsorted(seqs[here])])
