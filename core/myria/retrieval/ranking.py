"""Ranking events by evidence: words, structure, speakers, time, meaning. Integers only; the same input, the same bytes.

Two passes over the corpora: the first counts (`myria.retrieval.plan`), the second scores one corpus after another
(`myria.retrieval.scoring`) and keeps the best `limit` hits, so memory is bounded by the largest corpus. Small scopes
share a corpus, so nothing here loops over scopes. All numbers stand in `myria.retrieval.weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from myria.index.block import Ints
from myria.index.corpus import Corpus, Mask, Timeline
from myria.index.loose import LooseBlock
from myria.index.vectors import ABSENT, WHOLE
from myria.retrieval.filters import Filters
from myria.retrieval.nearness import Near
from myria.retrieval.plan import Census, Plan
from myria.retrieval.question import Question, Reading, read
from myria.retrieval.scoring import scored, scored_alone
from myria.retrieval.states import MOST, later_states
from myria.retrieval.successors import Leader, Succession
from myria.retrieval.weights import WEIGHTS, Weights
from myria.values import value

_LEAST_FIT: Final = 50
"""Percent to which the share of a question's words that some text holds, by rarity, and the greatest cosine must come
together: with less nothing answers it. So .011 of the questions whose answer was told find nothing, and .008 without
it; with 60, half as many again. By words alone people's chats would lose .05 of R@10."""

Order = Literal["relevance", "newest", "oldest"]


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
    weights: Weights = WEIGHTS,
) -> Ranking:
    """Rank everything visible.

    Order `relevance` is by score, then lower event_seq; `newest` and `oldest` order the documents that hold at least
    one of the words by (timestamp, event_seq). A question without text gives all documents, most recent first; with
    topic hints those that share them come first. Where vectors are compared, a question that is near to no text in
    meaning, and of whose words none holds enough, finds nothing.

    Args:
        corpora: the visible scopes, in a fixed order of the caller's.
        limit: how many hits to return.
        after: only hits that come after this place.
        clock: microseconds since 1970; documents ahead of it do not move what relative dates count from.
        replaced: superseded documents; what their own words are worth counts for their successors.
        late: documents that were withdrawn after a first page was ranked: no hits, but they count as they did then.
        near: the question's vector and those of documents, which count by relevance alone.
        weights: what each signal counts.
    """
    census = Census.of(corpora)
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
    plan = Plan.of(reading, corpora, census, former, weights)
    raised = None if replaced is None or former is None else _raised(plan, len(corpora), former, replaced)
    ordered = _order_of(reading, order)
    best = _Best(order=ordered, limit=limit, after=after)
    follows = ordered == "relevance" and reading.asks_for in ("present", "change")
    leader: Leader | None = None
    by_meaning: set[int] = set()
    measured = None if near is None or ordered != "relevance" or not reading.has_meaning else near.measured(corpora)
    # What replaced something may hold none of its words.
    may_fit = measured is None or not plan.sought or raised is not None
    held, likeness = 0, 0
    for at, corpus in enumerate(corpora):
        if not (plan.concepts or plan.scores_without_words or measured is not None):
            break
        timeline = corpus.laid_out
        if len(timeline):
            scores = scored(
                plan, at, corpus, matched_only=order != "relevance", near=None if measured is None else measured[at]
            )
            if measured is not None:
                _, is_near, like = measured[at]
                held, likeness = max(held, int(scores.held.max())), max(likeness, int(like.max()))
                may_fit = may_fit or bool((is_near | ((like == ABSENT) & (scores.held > 0))).any())
            if scores.by_meaning is not None:
                by_meaning.update(timeline.seq[scores.by_meaning].tolist())
            if raised is not None:
                _raise(scores.score, timeline.seq, *raised)
            allowed = (filters or Filters()).allowed(timeline, corpus.parts())
            if follows:
                leader = Leader.of(
                    leader, at, corpus, score=scores.score, held=scores.held, allowed=allowed, day=reading.day
                )
            best.take(at, timeline, scores.score, _without(late, timeline, allowed), everything=not reading.asked)
    if not may_fit and held + likeness * plan.sought * 100 // WHOLE < plan.sought * _LEAST_FIT:
        return Ranking(hits=(), matched=0, newest=last if has_ahead else None)
    percent = weights.newer if reading.asks_for == "present" else weights.also_newer
    newer = later_states(leader, corpora, census.docs, plan) if leader is not None and percent else ()
    if leader is not None:
        for place, state in enumerate(newer):
            best.put(leader, state, leader.worth * max(0, percent - place) // 100, late)
    ranking = best.ranking(newest=last if has_ahead else None, changed=newer[0] if newer else None)
    return replace(ranking, by_meaning=frozenset(hit.event_seq for hit in ranking.hits if hit.event_seq in by_meaning))


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


def _raised(plan: Plan, at: int, former: Corpus, replaced: Replaced) -> tuple[Ints, Ints]:
    """Return successors of superseded documents, ascending, and what their predecessors' words are worth."""
    total, timeline = scored_alone(plan, at, former), former.laid_out
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
        moved = np.column_stack((*row, [leader.number], timeline.view[one], timeline.doc[one]))
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
