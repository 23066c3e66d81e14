"""Scoring every document of a corpus against a plan. Integers only; the same input, the same bytes.

A document's score is its own words' (BM25, Robertson and Zaragoza 2009, over stems, idf over all visible scopes)
plus a discounted share of what its neighbours in time, its leaf and its unit hold for each word; multiplied by
evidence of who spoke, when, and how the text is worded. Structure is evidence and never a filter (soft topic trees
after RAPTOR, Sarthi et al. 2024; cluster-based smoothing, Liu and Croft 2004).

Superseded documents are scored by their own words, and their scores go to their successors (`Replaced`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from myria.index.block import ASKS, DATED, FAR_AWAY, NAMING, Ints, days_between
from myria.index.corpus import REACH, Corpus, Mask, Timeline
from myria.index.loose import LooseBlock
from myria.search.census import spans_of
from myria.search.explaining import Trace
from myria.search.plan import WISHES, Concept, Plan
from myria.search.reasons import Signal
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

    `held` is the rarity of the question's words that each document holds, in 1/25600 bits; `by_meaning` is a mask of
    the documents that hold none but are near in meaning, None if no vectors are compared.
    """

    score: Ints
    held: Ints
    by_meaning: Mask | None


def scored(
    plan: Plan,
    corpus: Corpus,
    *,
    matched_only: bool,
    near: tuple[Ints, Mask, Ints] | None,
    trace: Trace | None = None,
) -> Scores:
    """Score every document of a corpus.

    Args:
        matched_only: score only documents with evidence of their own, none by neighbours alone; for orders by time.
        near: how near each document is to the question in meaning, as `Near.measured` returns it.
        trace: is told what each step makes of the scores; None: nobody asks why.
    """
    note = _nobody_asks if trace is None else trace.note
    timeline, weights, reading = corpus.laid_out, plan.weights, plan.reading
    postings = _postings(plan, corpus)
    evidence = _Evidence.of(plan.concepts, postings, timeline, weights)
    note("words", evidence.score * 100)
    by_meaning: Mask | None = None
    if near is not None:
        gain, is_near, _ = near
        by_meaning = is_near & (evidence.score == 0)
        evidence.is_about[is_near] = True
        if not plan.concepts:
            gain = np.where(is_near, gain, 0)
        if reading.asks_for == "before":
            # What something was and what it became are alike in meaning: only words tell them apart.
            gain = np.where(evidence.score > 0, 0, gain)
        # Counted as a further word is, so that neighbours, leaf and unit get their share of it.
        places = gain.nonzero()[0]
        worth = gain[places] * max(_NEAR_ALONE, plan.rarity) * weights.near // 100
        evidence.add(places, worth * weights.read // np.maximum(weights.read, timeline.length[places]), timeline)
    by_named_speaker = spoken_by(reading.speakers, corpus) if reading.speakers else None
    total = evidence.score * 100
    note("meaning", total)
    # Who and when alone are evidence of a document itself: neighbours are lent words only.
    if reading.by_speaker and by_named_speaker is not None:
        total[by_named_speaker] += _ALONE * 100
        note("speaker", total)
    if reading.only_when:
        total[_time_gains(plan, corpus) > 0] += _ALONE * 100
        note("time", total)
    unmatched = total == 0 if matched_only else None
    if reading.asked:
        _lend(weights, evidence.score, total, timeline)
        note("neighbours", total)
        total += weights.leaf * evidence.in_leaf[timeline.leaf]
        note("passage", total)
        total += weights.unit * evidence.in_unit[timeline.unit] * (total > 0)
        note("conversation", total)
        if unmatched is not None:
            total[unmatched] = 0
            note("not_about", total)
        if reading.asks_help:
            _raise_by(total, _may_wish(postings, timeline, weights), weights.wish)
            note("wish", total)
        _weigh_evidence(plan, corpus, total, by_named_speaker, note)
    if plan.hint_ids or plan.hint_concepts:
        _add_hints(plan, total, postings, corpus)
        note("hints", total)
    if reading.has_meaning:
        # A note stands for itself, where a turn of talk may be answered by the next one.
        total[corpus.notes & ~evidence.is_about] = 0
        note("not_about", total)
    has_evidence = total > 0
    score = np.maximum(total * _SCALE // UNITY, has_evidence)
    if trace is not None:
        trace.note_score("words", score)  # what has any evidence counts 1 at least
    return Scores(score=score, held=evidence.held, by_meaning=by_meaning)


Note = Callable[[Signal, Ints], None]
"""Is told what a step made of the totals of all documents."""


def _nobody_asks(_signal: Signal, _total: Ints) -> None:
    """Note nothing: the way of all searches that need no explanation."""


def _score_alone(plan: Plan, corpus: Corpus) -> Ints:
    """Score documents by their own words, speakers and times: no neighbour, leaf or unit adds anything."""
    weights = plan.weights
    evidence = _Evidence.of(plan.concepts, _postings(plan, corpus), corpus.laid_out, weights)
    total = evidence.score * (100 + weights.leaf + weights.unit)
    speakers = plan.reading.speakers
    _weigh_evidence(plan, corpus, total, spoken_by(speakers, corpus) if speakers else None, _nobody_asks)
    return total * _SCALE // UNITY


def _postings(plan: Plan, corpus: Corpus) -> Postings:
    """Collect the postings of a plan's words from all views.

    Returns:
        by term id, rows (places in the timeline, how often each text holds it, percent that it counts): first those of
        texts, then those of hints and descriptions.
    """
    parts_of: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
    query_ids = plan.ids.tolist()
    for (view, _), places in zip(corpus.parts, corpus.laid_out.places, strict=True):
        for index, start, end in spans_of(plan.ids, view.terms, view.offsets).T.tolist():
            doc_places = places[view.posting_doc[start:end]]
            is_visible = doc_places >= 0
            times = view.posting_tf[start:end].astype(np.int64)
            parts_of.setdefault((query_ids[index], 100), []).append((doc_places[is_visible], times[is_visible]))
        for index, start, end in spans_of(plan.ids, view.hint_terms, view.hint_offsets).T.tolist():
            doc_places = places[view.hint_doc[start:end]]
            doc_places = doc_places[doc_places >= 0]
            parts_of.setdefault((query_ids[index], plan.weights.aside), []).append(
                (doc_places, np.ones_like(doc_places))
            )
    postings: Postings = {}
    for (term_id, percent), parts in parts_of.items():
        doc_places, times = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        postings.setdefault(term_id, []).append((doc_places, times, percent))
    return postings


@dataclass(frozen=True, kw_only=True, slots=True)
class _Evidence:
    """How well the documents of a timeline match some words.

    By document: `score` is that of its own words, `held` the rarity of the words that it holds, `lends` how much of its
    evidence counts for others (permille), and `is_about` whether it holds a word that the question can be about. By
    leaf and by unit: `in_leaf` and `in_unit` are the sums, over the words, of each word's best match in the group.
    """

    score: Ints
    held: Ints
    in_leaf: Ints
    in_unit: Ints
    lends: Ints
    is_about: Mask

    @classmethod
    def of(cls, concepts: Sequence[Concept], postings: Postings, timeline: Timeline, weights: Weights) -> _Evidence:
        """Score documents by the words that they hold.

        A score grows with the share of the words held: two words of a question together say more than one of them
        twice.
        """
        size = len(timeline)
        evidence = cls(
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
                (places, count, percent * row_percent // 100)
                for term_id, percent in concept.alternatives
                for places, count, row_percent in postings.get(term_id, ())
            ]
            if not rows:
                continue
            for places, count, percent in rows:
                times[places] = np.maximum(times[places], count * percent)
                best[places] = np.maximum(best[places], percent)
            where = rows[0][0] if len(rows) == 1 else np.unique(np.concatenate([places for places, _, _ in rows]))
            evidence.held[where] += concept.idf * best[where]
            evidence.is_about[where] |= concept.subject
            evidence.add(where, concept.idf * _saturate(times[where], norms[where], weights), timeline)
            times[where] = best[where] = 0  # both arrays serve the next word
        if concepts:
            share = evidence.held * weights.together // sum(concept.idf for concept in concepts)
            evidence.score[:] += evidence.score * share // 10_000 * evidence.lends // 1_000
        return evidence

    def add(self, places: Ints, gain: Ints, timeline: Timeline) -> None:
        """Add one word's worth to the scores of documents, and the best of each group to leaves and units.

        Args:
            places: the documents' places, each once.
            gain: beside them, what the word is worth there.
        """
        self.score[places] += gain
        lent = gain * self.lends[places] // 1_000
        for groups, group_of in ((self.in_leaf, timeline.leaf), (self.in_unit, timeline.unit)):
            best = np.zeros(len(groups), dtype=np.int64)
            np.maximum.at(best, group_of[places], lent)
            groups += best


def _norms(length: Ints, weights: Weights) -> Ints:
    """Return BM25's allowance for the length of each document."""
    k1, b = weights.saturation, weights.length
    norms: Ints = (
        k1 * (1000 - b) // 1000 + np.minimum(length, weights.longest) * (k1 * b // 1000) // weights.usual_length
    )
    return norms


def _saturate(times: Ints, norms: Ints, weights: Weights) -> Ints:
    """Return BM25's share of a word that occurs `times` / 100 times, in 1/256."""
    gain: Ints = times * (256 * (1000 + weights.saturation) // 100) // (times * 10 + norms)
    return gain


def _lending(timeline: Timeline, weights: Weights) -> Ints:
    """Return by document how much of what it holds counts for others, in permille."""
    lends: Ints = weights.lending * 1_000 // np.maximum(weights.lending, timeline.length)
    return lends


def _lend(weights: Weights, own_score: Ints, total: Ints, timeline: Timeline) -> None:
    """Add to `total`, for each document, shares of the own scores of its neighbours in the same thread."""
    lends = _lending(timeline, weights)
    for index, (linked, answered) in enumerate(zip(timeline.linked, timeline.answered, strict=True)):
        step = index + 1
        if len(linked) == 0:
            continue
        share = linked * np.minimum(lends[step:], lends[:-step])
        total[step:] += own_score[:-step] * share * weights.before[index] // 1_000
        total[:-step] += own_score[step:] * share * weights.after[index] // 1_000
        # What follows a question answers it, and tells more of the statement before it.
        total[answered + step] += own_score[answered] * share[answered] * weights.answers[index] // 1_000
    for step, percent in enumerate(weights.farther, REACH + 1):
        # What lies within few words of one document lies so of all between them.
        starts = np.flatnonzero(timeline.far >= step)
        total[starts + step] += own_score[starts] * percent
        total[starts] += own_score[starts + step] * percent


def _weigh_evidence(plan: Plan, corpus: Corpus, total: Ints, by_named_speaker: Mask | None, note: Note) -> None:
    """Raise or lower scores in place by who spoke, when, and how a text is worded.

    Args:
        by_named_speaker: which documents are by a speaker whom the question names, None if it names none.
    """
    timeline, reading, weights = corpus.laid_out, plan.reading, plan.weights
    if by_named_speaker is not None:
        _raise_by(total, by_named_speaker, weights.speaker)
        note("speaker", total)
    if reading.asks_when:
        _raise_by(total, timeline.flags & DATED != 0, weights.says_when)
        note("says_when", total)
    if reading.asks_name:
        _raise_by(total, timeline.flags & NAMING != 0, weights.names)
        note("names", total)
    _weigh_wording(total, timeline, weights)
    note("wording", total)
    if reading.windows:
        total += total * _time_gains(plan, corpus) // 100
        note("time", total)
    if reading.asks_for == "present":
        _raise_by(total, announced(corpus, reading.day), -weights.not_yet)
        note("not_yet", total)
    holders = corpus.scopes.holders
    places = [holders[name] for name in sorted(plan.distinctive) if name in holders]
    if places:
        preferred = np.zeros(len(corpus.scopes.ids), dtype=np.bool_)
        preferred[np.concatenate(places)] = True
        scope = np.zeros(len(timeline), dtype=np.int64) if timeline.scope is None else timeline.scope
        _raise_by(total, preferred[scope], weights.participant)
        note("participants", total)


def _weigh_wording(total: Ints, timeline: Timeline, weights: Weights) -> None:
    """Lower the scores of texts that end in a question and of texts of very few words."""
    (asks_loss, asks_each), (few_loss, few_each) = weights.asking, weights.few_words
    for places, base_loss, less_per_term in (
        (np.flatnonzero(timeline.flags & ASKS), asks_loss, asks_each),
        (np.flatnonzero(timeline.length * few_each < few_loss), few_loss, few_each),
    ):
        total[places] -= total[places] * np.maximum(0, base_loss - less_per_term * timeline.length[places]) // 1_000


def _may_wish(postings: Postings, timeline: Timeline, weights: Weights) -> Mask:
    """Return a mask of the documents that may tell a standing wish: short texts with one of the words of `WISHES`."""
    mask = np.zeros(len(timeline), dtype=np.bool_)
    for identity in WISHES:
        for where, _, _ in postings.get(identity, ()):
            mask[where] = True
    mask &= timeline.length <= weights.lending
    return mask


def _raise_by(total: Ints, is_raised: Mask, percent: int) -> None:
    """Raise the scores of a mask's documents, in place, by so many percent; a negative number lowers them."""
    places = np.flatnonzero(is_raised)
    total[places] += total[places] * percent // 100


def announced(corpus: Corpus, day: int) -> Mask:
    """Return a mask of the timeline's documents that say that something holds only from after a day (since 1970) on."""
    timeline = corpus.laid_out
    mask = np.zeros(len(timeline), dtype=np.bool_)
    for (view, _), places in zip(corpus.parts, timeline.places, strict=True):
        _, docs = days_between(view, day + 1, FAR_AWAY, begins=True)
        where = places[docs]
        mask[where[where >= 0]] = True
    return mask


def _time_gains(plan: Plan, corpus: Corpus) -> Ints:
    """Return by how many percent each document gains, because it was told or is about when the question means."""
    timeline, weights = corpus.laid_out, plan.weights
    percent = np.zeros(len(timeline), dtype=np.int64)
    names_days = np.zeros(len(timeline), dtype=np.bool_)
    for places, _ in _days_told_of(corpus, -FAR_AWAY, FAR_AWAY):
        names_days[places] = True
    asker = plan.reading.utc_offset * MINUTE_US
    for window in plan.reading.windows:
        told_at = timeline.timestamp + asker if window.is_relative else corpus.told_at
        told_inside = np.flatnonzero((told_at >= window.start) & (told_at < window.end))
        worth = _gains_of_days(window, told_at[told_inside] // DAY_US, weights)
        worth[(worth == weights.on_day) & names_days[told_inside]] = weights.told_on
        percent[told_inside] = np.maximum(percent[told_inside], worth)
        for places, days in _days_told_of(corpus, window.start // DAY_US, window.end // DAY_US):
            np.maximum.at(percent, places, _gains_of_days(window, days, weights))
    return percent


def _gains_of_days(window: Window, days: Ints, weights: Weights) -> Ints:
    """Return the percent that a document gains for each of these days, all of which lie within a window."""
    if not window.exact:
        return np.full(len(days), weights.period, dtype=np.int64)
    if window.last < window.first:
        return np.full(len(days), weights.around_day, dtype=np.int64)
    is_on_day = (window.first <= days) & (days <= window.last)
    return np.where(is_on_day, weights.on_day, weights.around_day)


def _days_told_of(corpus: Corpus, first: int, after: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield, view by view, documents' places in the timeline and beside them the days that they are about.

    Only days from `first` to before `after` (since 1970) count; a document stands there once for each.
    """
    for (view, _), places in zip(corpus.parts, corpus.laid_out.places, strict=True):
        days, docs = days_between(view, first, after)
        if len(days):
            where = places[docs]
            yield where[where >= 0], days[where >= 0]


def spoken_by(names: frozenset[str], corpus: Corpus) -> Mask:
    """Return a mask of the timeline's documents whose speaker has one of these names."""
    timeline = corpus.laid_out
    is_by_named = np.zeros(len(timeline), dtype=np.bool_)
    for (view, _), places in zip(corpus.parts, timeline.places, strict=True):
        is_named = np.array([name in names for name in view.speakers], dtype=np.bool_)
        if is_named.any():
            where = places[is_named[view.speaker]]
            is_by_named[where[where >= 0]] = True
    return is_by_named


def _add_hints(plan: Plan, total: Ints, postings: Postings, corpus: Corpus) -> None:
    """Raise in place the scores of documents that share a topic hint; if the question has no text, only hints match."""
    timeline, weights = corpus.laid_out, plan.weights
    shared = np.zeros(len(timeline), dtype=np.int64)
    worths = [weight for _, weight in plan.hint_ids]
    ids = np.array([identity for identity, _ in plan.hint_ids], dtype=np.int64)
    for (view, _), places in zip(corpus.parts, timeline.places, strict=True):
        for index, start, end in spans_of(ids, view.hint_terms, view.hint_offsets).T.tolist():
            where = places[view.hint_doc[start:end]]
            is_visible = where >= 0
            worth = view.hint_permille[start:end].astype(np.int64) * worths[index] // 1000
            shared[where[is_visible]] = np.maximum(shared[where[is_visible]], worth[is_visible])
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
        """Score superseded documents; return their successors' event_seqs, ascending, and the best score for each.

        Args:
            corpus: the superseded documents, as the method `corpus` returns them.
        """
        total = _score_alone(plan, corpus)
        has_score = total > 0
        successors = self.successors[self.seqs.searchsorted(corpus.laid_out.seq)][has_score]
        distinct, places = np.unique(successors, return_inverse=True)
        worth = np.zeros(len(distinct), dtype=np.int64)
        np.maximum.at(worth, places, total[has_score])
        return distinct, worth


def raise_scores(score: Ints, seqs: Ints, successors: Ints, worth: Ints) -> None:
    """Give successors the scores of those that they replaced, where these are greater."""
    present = np.flatnonzero(np.isin(seqs, successors))
    score[present] = np.maximum(score[present], worth[successors.searchsorted(seqs[present])])
