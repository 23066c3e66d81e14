"""The best hits in an order, and the page of them that a caller asks for.

Hits are taken one corpus after another, so memory is bounded by the largest one; what follows is told by the last hit
of the page before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from myria.index.block import Ints
from myria.index.corpus import Mask, Timeline
from myria.search.states import MOST
from myria.search.successors import Leader, Succession

Order = Literal["relevance", "newest", "oldest"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """A place in a ranking: hits after it follow. Which fields count depends on the order."""

    score: int
    timestamp: int
    event_seq: int


@dataclass(frozen=True, kw_only=True, slots=True)
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


@dataclass(frozen=True, kw_only=True, slots=True)
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


Sorting = Literal["relevance", "newest", "oldest", "hinted"]
"""An order, or `hinted`: by score, then the newest first."""


class Best:
    """The best hits so far, over corpora taken one after another; some more are kept, since they may still be moved."""

    def __init__(self, *, order: Sorting, limit: int, after: Key | None) -> None:
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
