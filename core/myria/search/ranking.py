"""Ranking events by evidence: words, structure, speakers, time, meaning. Integers only; the same input, the same bytes.

The words of a question are counted in everything visible (`myria.search.plan`), every document is scored
(`myria.search.scoring`), and what replaces the best hit is put before it (`myria.search.successors`). The best hits are
told, and a next page goes on after the last of them. All numbers stand in `myria.search.weights`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from myria.index.block import Ints, View
from myria.index.corpus import Corpus, Mask, Timeline
from myria.index.vectors import ABSENT, WHOLE, Near
from myria.search.census import Census
from myria.search.explaining import Placed, Shares, Trace
from myria.search.plan import Plan
from myria.search.queries import EventNodesQuery, Order, ReferencesQuery
from myria.search.question import Question, read
from myria.search.reasons import Filter, Stage
from myria.search.scoring import Replaced, Scores, raise_scores, scored
from myria.search.successors import Leader, Succession, kept_later, likely_state, told_to_change
from myria.search.weights import WEIGHTS, Weights


class Key(NamedTuple):
    """A place in a ranking: hits after it follow. Which fields count depends on the order."""

    score: int
    timestamp: int
    event_seq: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """One event found: `view` is its position in `Corpus.parts`, `doc` that in the view."""

    event_seq: int
    timestamp: int
    score: int
    view: int
    doc: int

    @property
    def key(self) -> Key:
        """Return the place of this hit, after which a next page starts."""
        return Key(score=self.score, timestamp=self.timestamp, event_seq=self.event_seq)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The best hits after the given key.

    `newest` is the moment from which relative dates counted, in microseconds since 1970; it is set only if visible
    documents lie ahead of the clock, and a next page takes it for the clock. `changed`, if the question asks for
    changes, names the best hit of all pages and the later statement that changes it. `by_meaning` are the event_seqs
    of hits that hold no word of the question and were found by their vectors. `shares` and `expected` are there where
    an explanation was asked for.
    """

    hits: tuple[Hit, ...]
    newest: int | None = None
    changed: Succession | None = None
    by_meaning: frozenset[int] = frozenset()
    shares: Shares = field(default_factory=dict)
    expected: Mapping[int, Placed] = field(default_factory=dict)


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
        return not self.excluding(channel=channel, type=type, context_id=context_id, timestamp=timestamp)

    def excluding(
        self,
        *,
        channel: str | None,
        type: str | None,  # noqa: A002
        context_id: str | None,
        timestamp: int,
    ) -> tuple[Filter, ...]:
        """Return the filters that an event with these facts does not pass; see `fits`."""
        passes: dict[Filter, bool] = {
            "channel": self.channel is None or channel == self.channel,
            "types": not self.types or type in self.types,
            "context_id": self.context_id is None or context_id == self.context_id,
            "since": self.since is None or timestamp >= self.since,
            "until": self.until is None or timestamp < self.until,
        }
        return tuple(name for name, is_passed in passes.items() if not is_passed)

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
                fits &= _is_wanted(view.channels, (self.channel,))[view.channel]
            if self.types:
                fits &= _is_wanted(view.types, self.types)[view.type]
            if self.context_id is not None:
                fits &= _is_wanted(view.contexts, (self.context_id,))[view.context]
            refused = ~fits if mask is None else ~fits & mask
            allowed[places[refused]] = False
        return allowed


def _is_wanted(names: Sequence[str], wanted: Sequence[str]) -> Mask:
    """Return, by code, whether a name is one of those wanted; code 0 means no name."""
    return np.array([code > 0 and name in wanted for code, name in enumerate(names)], dtype=np.bool_)


_MOST_STATES: Final = 2
"""Statements that are put before the best hit, at most."""
_LEAST_FIT: Final = 50
"""Percent that two numbers must reach together: the greatest share of a question's words, by rarity, that a text holds,
and the greatest cosine. With less, no text answers the question. So .011 of the questions whose answer was told find
nothing, and .008 without it; with 60, half as many again. By words alone people's chats would lose .05 of R@10."""


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
    explain: Ints | None = None,
    weights: Weights = WEIGHTS,
) -> Ranking:
    """Rank every visible document and return the best hits.

    Order `relevance` is by score, then lower event_seq; `newest` and `oldest` order the documents that hold at least
    one of the words by (timestamp, event_seq). A question without text gives all documents, most recent first; with
    topic hints those that share them come first. Where vectors are compared, a question that is near to no text in
    meaning, and of whose words none holds enough, finds nothing.

    Args:
        limit: how many hits to return.
        after: only hits that come after this place.
        clock: microseconds since 1970; documents ahead of it do not move what relative dates count from.
        replaced: superseded documents; their own words' scores count for their successors.
        late: documents withdrawn after the first page was ranked: they are no hits, but still move others' scores.
        near: the vectors of the question and of documents; they count only in order of relevance.
        explain: explain the scores of the hits, and of these events (by event_seq), which were expected; None: do not.
        weights: what each signal counts.
    """
    census = Census.of(corpus)
    has_future = clock is not None and census.last > clock
    last = census.newest_until(clock) if clock is not None and has_future else None
    last = census.last if last is None else last
    reading = read(
        question,
        names=census,
        first=min(census.first, last),
        last=last,
        utc_offset=census.utc_offset_at(last) if question.now is None else question.utc_offset,
    )
    newest = last if has_future else None
    superseded = None if replaced is None or not len(replaced.seqs) else replaced.corpus()
    plan = Plan.of(reading, corpus, census, superseded, weights)
    has_vectors = near is not None and order == "relevance" and reading.has_meaning
    timeline = corpus.laid_out
    allowed = (filters or Filters()).allowed(timeline, corpus.parts)
    if not len(timeline) or not (plan.concepts or plan.scores_without_words or has_vectors):
        return _without_hits(newest, "not_matched", explain, timeline, allowed)
    nearness = near.measured(corpus) if near is not None and has_vectors else None
    successor_scores = None if replaced is None or superseded is None else replaced.worth(plan, superseded)
    scores = scored(plan, corpus, matched_only=order != "relevance", near=nearness)
    # Not with superseded documents: a successor may answer although it holds none of the question's words.
    if nearness is not None and plan.sought and successor_scores is None and not _may_answer(plan, scores, nearness):
        return _without_hits(newest, "nothing_fits", explain, timeline, allowed)
    if successor_scores is not None:
        raise_scores(scores.score, timeline.seq, *successor_scores)
    changed = None
    if order == "relevance" and reading.asked and reading.asks_for in ("present", "change"):
        changed = _put_later_states_first(scores, corpus, allowed, plan, census.docs)
    if late is not None and len(late):
        is_not_late = ~np.isin(timeline.seq, late)
        allowed = is_not_late if allowed is None else allowed & is_not_late
    is_match = np.ones(len(timeline), dtype=np.bool_) if not reading.asked else scores.score > 0
    chosen = np.flatnonzero(is_match if allowed is None else is_match & allowed)
    sorting: Sorting = order if order != "relevance" or reading.asked else "hinted" if reading.hints else "newest"
    best = _first_places(timeline, scores.score, chosen, sorting, limit=limit, after=after)
    by_meaning = best[:0] if scores.by_meaning is None else best[scores.by_meaning[best]]
    shares: Shares = {}
    expected: Mapping[int, Placed] = {}
    if explain is not None:
        wanted = np.flatnonzero(np.isin(timeline.seq, explain))
        trace = Trace(np.union1d(best, wanted))
        again = scored(plan, corpus, matched_only=order != "relevance", near=nearness, trace=trace)
        if successor_scores is not None:
            raise_scores(again.score, timeline.seq, *successor_scores)
            trace.note_score("replaces", again.score)
        trace.note_score("later_state", scores.score)
        shares = dict(zip(timeline.seq[trace.places].tolist(), trace.shares(), strict=True))
        expected = {
            int(timeline.seq[at]): _placed(
                int(at), timeline, scores.score, is_match, chosen=chosen, sorting=sorting, shown=best
            )
            for at in wanted
        }
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
        newest=newest,
        changed=changed,
        by_meaning=frozenset(timeline.seq[by_meaning].tolist()),
        shares=shares,
        expected=expected,
    )


def _without_hits(
    newest: int | None, stage: Stage, explain: Ints | None, timeline: Timeline, allowed: Mask | None
) -> Ranking:
    """Return the ranking of nothing; the stage is that of all expected events that the filters let pass."""
    wanted = () if explain is None else np.flatnonzero(np.isin(timeline.seq, explain))
    expected = {
        int(timeline.seq[at]): Placed(stage=stage if allowed is None or allowed[at] else "filtered") for at in wanted
    }
    return Ranking(hits=(), newest=newest, expected=expected)


def _placed(
    at: int, timeline: Timeline, score: Ints, is_match: Mask, *, chosen: Ints, sorting: Sorting, shown: Ints
) -> Placed:
    """Return where an expected document stands, and the stage that left it out.

    Args:
        at: its place in the timeline.
        chosen: the places of all that are ranked.
        shown: the places of this page's hits.
    """
    if at not in chosen:
        return Placed(stage="filtered" if is_match[at] else "not_matched", score=int(score[at]))
    keys = _sort_keys(sorting, score[chosen], timeline.timestamp[chosen], timeline.seq[chosen])
    own = tuple(key[chosen == at] for key in keys)
    place = len(chosen) - int(_comes_after(own, keys).sum())
    return Placed(stage="shown" if at in shown else "no_room", place=place, score=int(score[at]))


def _may_answer(plan: Plan, scores: Scores, nearness: tuple[Ints, Mask, Ints]) -> bool:
    """Tell whether some text may be what is asked for: by words and meaning together, or by one of them alone."""
    _, is_near, likeness = nearness
    if bool((is_near | ((likeness == ABSENT) & (scores.held > 0))).any()):
        return True
    fit = int(scores.held.max()) + max(0, int(likeness.max())) * plan.sought * 100 // WHOLE
    return fit >= plan.sought * _LEAST_FIT


def _put_later_states_first(
    scores: Scores, corpus: Corpus, allowed: Mask | None, plan: Plan, docs: int
) -> Succession | None:
    """Put later statements that replace the best hit before it, by raising their scores in place.

    Returns:
        the best hit and the first of these statements; None if nothing replaces it.

    Args:
        docs: how many documents are visible.
    """
    weights = plan.weights
    percent = weights.newer if plan.reading.asks_for == "present" else weights.also_newer
    leader = Leader.of(corpus, score=scores.score, held=scores.held, allowed=allowed, day=plan.reading.day)
    if leader is None or not percent:
        return None
    told_change = told_to_change(leader, docs, plan)
    likely = likely_state(leader, plan) if plan.reading.of_state else None
    states = [
        state for state in dict.fromkeys((*kept_later(leader, docs, plan), likely, told_change)) if state is not None
    ]
    worth = leader.worth
    for order_of_state, state in enumerate(states[:_MOST_STATES]):
        scores.score[state] = max(int(scores.score[state]), worth * max(0, percent - order_of_state) // 100)
    if not states:
        return None
    seq = corpus.laid_out.seq
    return Succession(older=int(seq[leader.at]), newer=int(seq[states[0]]))


Sorting = Literal["relevance", "newest", "oldest", "hinted"]
"""An order, or `hinted`: by score, then the newest first."""


def _first_places(
    timeline: Timeline, score: Ints, chosen: Ints, sorting: Sorting, *, limit: int, after: Key | None
) -> Ints:
    """Return the places of the first `limit` chosen documents, sorted; with `after`, only those that follow it."""
    keys = _sort_keys(sorting, score[chosen], timeline.timestamp[chosen], timeline.seq[chosen])
    if after is not None:
        score, stamp, seq = (np.array([value], dtype=np.int64) for value in after)
        follows = _comes_after(_sort_keys(sorting, score, stamp, seq), keys)
        chosen, keys = chosen[follows], tuple(key[follows] for key in keys)
    if len(chosen) > 4 * limit:
        # Sorting by three keys takes long: first drop what the leading key alone keeps out of the first `limit`.
        may_be_first = keys[-1] <= np.partition(keys[-1], limit - 1)[limit - 1]
        chosen, keys = chosen[may_be_first], tuple(key[may_be_first] for key in keys)
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
    """Return a mask of the documents that come after a place.

    Args:
        place: the sort keys of the place, the last one leading.
        keys: those of the documents.
    """
    is_later = np.zeros(len(keys[0]), dtype=np.bool_)
    is_equal = np.ones(len(keys[0]), dtype=np.bool_)
    for key, bound in zip(reversed(keys), reversed(place), strict=True):
        is_later |= is_equal & (key > bound)
        is_equal &= key == bound
    return is_later
