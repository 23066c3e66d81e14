"""Ranking events by evidence: words, structure, speakers, time, meaning. Integers only; the same input, the same bytes.

The words of a question are counted in everything visible (`myria.search.plan`), every document is scored
(`myria.search.scoring`), and what replaces the best hit is put before it (`myria.search.successors`). The best hits are
told, and a next page goes on after the last of them. All numbers stand in `myria.search.weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from myria.index.block import Ints, View
from myria.index.corpus import Corpus, Mask, Timeline
from myria.index.vectors import ABSENT, WHOLE, Near
from myria.search.census import Census
from myria.search.kept import kept_later
from myria.search.plan import Plan
from myria.search.queries import EventNodesQuery, Order, ReferencesQuery
from myria.search.question import Question, read
from myria.search.scoring import Replaced, Scores, raise_scores, scored
from myria.search.successors import Leader, Succession, likely_state, told_to_change
from myria.search.weights import WEIGHTS, Weights


class Key(NamedTuple):
    """A place in a ranking: hits after it follow. Which fields count depends on the order."""

    score: int
    timestamp: int
    event_seq: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One event found: `view` is its position in `Corpus.parts()`, `doc` that in the view."""

    event_seq: int
    timestamp: int
    score: int
    view: int
    doc: int

    @property
    def key(self) -> Key:
        """Return where a next page goes on."""
        return Key(score=self.score, timestamp=self.timestamp, event_seq=self.event_seq)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The best hits after the given key.

    `newest` is the moment that relative dates counted from, in microseconds since 1970, only where visible documents
    lie ahead of the clock: on a next page it stands for the clock. `changed` names the best hit of all pages and what
    was said later that it changed, where the question asks for that. `by_meaning` are hits without a word of the
    question, found by their vectors.
    """

    hits: tuple[Hit, ...]
    newest: int | None = None
    changed: Succession | None = None
    by_meaning: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Filters:
    """Which documents may be hits; the others still lend evidence. `since <= timestamp < until`."""

    channel: str | None = None
    types: tuple[str, ...] = ()
    context_id: str | None = None
    since: int | None = None
    until: int | None = None

    @classmethod
    def of(cls, query: EventNodesQuery | ReferencesQuery) -> Filters:
        """Return the filters of a query."""
        return cls(
            channel=query.channel,
            types=query.types,
            context_id=query.context_id,
            since=query.since,
            until=query.until,
        )

    def fits(self, *, channel: str | None, type: str | None, context_id: str | None, timestamp: int) -> bool:  # noqa: A002
        """Tell whether an event with these facts may be a hit; `timestamp` in microseconds since 1970."""
        return (
            (self.channel is None or channel == self.channel)
            and (not self.types or type in self.types)
            and (self.context_id is None or context_id == self.context_id)
            and (self.since is None or timestamp >= self.since)
            and (self.until is None or timestamp < self.until)
        )

    def allowed(self, timeline: Timeline, parts: Sequence[tuple[View, Mask | None]]) -> Mask | None:
        """Return which documents of a timeline may be hits, None for all; `parts` are those of its corpus."""
        if self == Filters():
            return None
        allowed = np.ones(len(timeline), dtype=np.bool_)
        if self.since is not None:
            allowed &= timeline.timestamp >= self.since
        if self.until is not None:
            allowed &= timeline.timestamp < self.until
        if self.channel is None and not self.types and self.context_id is None:
            return allowed
        for (view, mask), places in zip(parts, timeline.places, strict=True):
            fits = np.ones(len(view), dtype=np.bool_)
            if self.channel is not None:
                fits &= _coded(view.channels, (self.channel,))[view.channel]
            if self.types:
                fits &= _coded(view.types, self.types)[view.type]
            if self.context_id is not None:
                fits &= _coded(view.contexts, (self.context_id,))[view.context]
            refused = ~fits if mask is None else ~fits & mask
            allowed[places[refused]] = False
        return allowed


def _coded(names: Sequence[str], wanted: Sequence[str]) -> Mask:
    return np.array([at > 0 and name in wanted for at, name in enumerate(names)], dtype=np.bool_)


_MOST_STATES: Final = 2
"""Statements that are put before the best hit, at most."""
_LEAST_FIT: Final = 50
"""Percent to which the share of a question's words that some text holds, by rarity, and the greatest cosine must come
together: with less nothing answers it. So .011 of the questions whose answer was told find nothing, and .008 without
it; with 60, half as many again. By words alone people's chats would lose .05 of R@10."""


def rank(
    question: Question,
    corpus: Corpus,
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
        limit: how many hits to return.
        after: only hits that come after this place.
        clock: microseconds since 1970; documents ahead of it do not move what relative dates count from.
        replaced: superseded documents; what their own words are worth counts for their successors.
        late: documents that were withdrawn after a first page was ranked: no hits, but they count as they did then.
        near: the question's vector and those of documents, which count by relevance alone.
        weights: what each signal counts.
    """
    census = Census.of(corpus)
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
    nothing = Ranking(hits=(), newest=last if has_ahead else None)
    former = None if replaced is None or not len(replaced.seqs) else replaced.corpus()
    plan = Plan.of(reading, corpus, census, former, weights)
    has_vectors = near is not None and order == "relevance" and reading.has_meaning
    timeline = corpus.laid_out
    if not len(timeline) or not (plan.concepts or plan.scores_without_words or has_vectors):
        return nothing
    measured = near.measured(corpus) if near is not None and has_vectors else None
    raised = None if replaced is None or former is None else replaced.worth(plan, former)
    scores = scored(plan, corpus, matched_only=order != "relevance", near=measured)
    # What replaced something may hold none of its words.
    if measured is not None and plan.sought and raised is None and not _may_fit(plan, scores, measured):
        return nothing
    if raised is not None:
        raise_scores(scores.score, timeline.seq, *raised)
    allowed = (filters or Filters()).allowed(timeline, corpus.parts())
    changed = None
    if order == "relevance" and reading.asked and reading.asks_for in ("present", "change"):
        changed = _put_later_states_first(scores, corpus, allowed, plan, census.docs)
    if late is not None and len(late):
        kept = ~np.isin(timeline.seq, late)
        allowed = kept if allowed is None else allowed & kept
    found = np.ones(len(timeline), dtype=np.bool_) if not reading.asked else scores.score > 0
    chosen = np.flatnonzero(found if allowed is None else found & allowed)
    sorting: Sorting = order if order != "relevance" or reading.asked else "hinted" if reading.hints else "newest"
    best = _best(timeline, scores.score, chosen, sorting, limit=limit, after=after)
    by_meaning = best[:0] if scores.by_meaning is None else best[scores.by_meaning[best]]
    return Ranking(
        hits=tuple(
            Hit(event_seq=seq, timestamp=stamp, score=score, view=view, doc=doc)
            for seq, stamp, score, view, doc in zip(
                timeline.seq[best].tolist(),
                timeline.timestamp[best].tolist(),
                scores.score[best].tolist(),
                timeline.view[best].tolist(),
                timeline.doc[best].tolist(),
                strict=True,
            )
        ),
        newest=nothing.newest,
        changed=changed,
        by_meaning=frozenset(timeline.seq[by_meaning].tolist()),
    )


def _may_fit(plan: Plan, scores: Scores, measured: tuple[Ints, Mask, Ints]) -> bool:
    """Tell whether some text may be what is asked for: by words and meaning together, or by one of them alone."""
    _, is_near, likeness = measured
    if bool((is_near | ((likeness == ABSENT) & (scores.held > 0))).any()):
        return True
    fit = int(scores.held.max()) + max(0, int(likeness.max())) * plan.sought * 100 // WHOLE
    return fit >= plan.sought * _LEAST_FIT


def _put_later_states_first(
    scores: Scores, corpus: Corpus, allowed: Mask | None, plan: Plan, docs: int
) -> Succession | None:
    """Raise the scores of what was said later and replaces the best hit; return the newest such statement.

    Args:
        docs: how many documents are visible.
    """
    weights = plan.weights
    percent = weights.newer if plan.reading.asks_for == "present" else weights.also_newer
    leader = Leader.of(corpus, score=scores.score, held=scores.held, allowed=allowed, day=plan.reading.day)
    if leader is None or not percent:
        return None
    told = told_to_change(leader, docs, plan)
    likely = likely_state(leader, plan, told) if plan.reading.of_state else None
    states = [at for at in dict.fromkeys((*kept_later(leader, docs, plan), likely, told)) if at is not None]
    worth = leader.worth
    for place, at in enumerate(states[:_MOST_STATES]):
        scores.score[at] = max(int(scores.score[at]), worth * max(0, percent - place) // 100)
    if not states:
        return None
    seq = corpus.laid_out.seq
    return Succession(older=int(seq[leader.at]), newer=int(seq[states[0]]))


Sorting = Literal["relevance", "newest", "oldest", "hinted"]
"""An order, or `hinted`: by score, then the newest first."""


def _best(timeline: Timeline, score: Ints, chosen: Ints, sorting: Sorting, *, limit: int, after: Key | None) -> Ints:
    """Return the places of the first `limit` of chosen documents in an order, after a key where one is given."""
    keys = _sort_keys(sorting, score[chosen], timeline.timestamp[chosen], timeline.seq[chosen])
    if after is not None:
        score, stamp, seq = (np.array([value], dtype=np.int64) for value in after)
        follows = _comes_after(_sort_keys(sorting, score, stamp, seq), keys)
        chosen, keys = chosen[follows], tuple(key[follows] for key in keys)
    if len(chosen) > 4 * limit:
        # Sorting by three keys takes long: only what the leading one lets among the first is sorted.
        leading = keys[-1] <= np.partition(keys[-1], limit - 1)[limit - 1]
        chosen, keys = chosen[leading], tuple(key[leading] for key in keys)
    best: Ints = chosen[np.lexsort(keys)[:limit]]
    return best


def _sort_keys(sorting: Sorting, score: Ints, stamp: Ints, seq: Ints) -> tuple[Ints, ...]:
    """Return keys for lexsort, the last one leading."""
    match sorting:
        case "relevance":
            return seq, -score
        case "oldest":
            return seq, stamp
        case "newest":
            return -seq, -stamp
        case "hinted":
            return -seq, -stamp, -score


def _comes_after(place: tuple[Ints, ...], keys: tuple[Ints, ...]) -> Mask:
    """Return which documents come after a place, given the keys of both."""
    later = np.zeros(len(keys[0]), dtype=np.bool_)
    equal = np.ones(len(keys[0]), dtype=np.bool_)
    for key, bound in zip(reversed(keys), reversed(place), strict=True):
        later |= equal & (key > bound)
        equal &= key == bound
    return later
