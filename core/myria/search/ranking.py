"""Ranking events by evidence: words, structure, speakers, time, meaning. Integers only; the same input, the same bytes.

Two passes over the corpora: the first counts (`myria.search.plan`), the second scores one corpus after another
(`myria.search.scoring`) and keeps the best `limit` hits, so memory is bounded by the largest corpus. Small scopes
share a corpus, so nothing here loops over scopes. All numbers stand in `myria.search.weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from myria.index.block import Ints
from myria.index.corpus import Corpus, Mask, Timeline
from myria.index.vectors import ABSENT, WHOLE
from myria.search.best import Best, Key, Order, Ranking, Sorting
from myria.search.census import Census
from myria.search.filters import Filters
from myria.search.nearness import Near
from myria.search.plan import Plan
from myria.search.question import Question, Reading, read
from myria.search.scoring import scored
from myria.search.states import later_states
from myria.search.successors import Leader
from myria.search.superseded import Replaced, raise_scores
from myria.search.weights import WEIGHTS, Weights

_LEAST_FIT: Final = 50
"""Percent to which the share of a question's words that some text holds, by rarity, and the greatest cosine must come
together: with less nothing answers it. So .011 of the questions whose answer was told find nothing, and .008 without
it; with 60, half as many again. By words alone people's chats would lose .05 of R@10."""


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
    last = census.newest_until(clock) if clock is not None and has_ahead else None
    last = census.last if last is None else last
    reading = read(
        question,
        names=census,
        first=min(census.first, last),
        last=last,
        utc_offset=census.utc_offset_at(last) if question.now is None else question.utc_offset,
    )
    former = None if replaced is None or not len(replaced.seqs) else replaced.corpus()
    plan = Plan.of(reading, corpora, census, former, weights)
    raised = None if replaced is None or former is None else replaced.worth(plan, len(corpora))
    ordered = _order_of(reading, order)
    best = Best(order=ordered, limit=limit, after=after)
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
                raise_scores(scores.score, timeline.seq, *raised)
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


def _order_of(reading: Reading, order: Order) -> Sorting:
    if order != "relevance" or reading.asked:
        return order
    return "hinted" if reading.hints else "newest"
