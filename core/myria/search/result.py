"""What a search gives: the best hits, with the view they were found in, and which of them are told.

Where tokens are bounded, a fact takes its room once (`myria.text.restating`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from myria.index.block import View
from myria.index.corpus import Corpus
from myria.search.cursors import Cursor
from myria.search.explaining import Placed, Shares
from myria.search.ranking import Hit
from myria.search.scopes import VisibleScope
from myria.search.snapshot_view import SnapshotView
from myria.search.successors import Succession
from myria.search.topics import NamedSubject
from myria.text.restating import alike


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """The best hits of a query with the view they were found in.

    `scopes` are all scopes that were searched; `more` tells that further hits follow. `newest` is the newest visible
    moment that is not ahead of the clock; None if no visible event is ahead of it (see `Ranking`). `by_meaning` tells
    that the question's vector was compared, and `without_words` are the event_seqs of the hits found by that alone.
    """

    snapshot: SnapshotView
    scopes: tuple[VisibleScope, ...]
    corpus: Corpus
    hits: tuple[Hit, ...]
    more: bool
    newest: int | None = None
    changed: Succession | None = None
    by_meaning: bool = False
    without_words: frozenset[int] = frozenset()
    looked: bool = False
    """Whether a second look moved the best hits."""
    shares: Shares = field(default_factory=dict)
    """What each signal gave to the scores of hits, where the query asks for that."""
    expected: Placed | None = None
    """What became of the event that the query expected; None if it expected none."""
    expected_seq: int | None = None
    under: NamedSubject | None = None
    """The subject below which was searched, None if the query's root is none."""

    def view(self, hit: Hit) -> View:
        """Return the view that holds a hit's document, at position `hit.doc`."""
        return self.corpus.parts[hit.view][0]

    def scope(self, hit: Hit) -> VisibleScope:
        """Return the scope of a hit."""
        if self.corpus.table is None:
            return self.scopes[0]
        scope_id = self.view(hit).scope_id
        scope = None if scope_id is None else self.snapshot.scope(int(scope_id[hit.doc]))
        if scope is None:
            raise AssertionError("a hit lies in a visible scope")
        return scope

    def cursor_after(self, hit: Hit, *, period_end: int) -> Cursor:
        """Return the cursor of a page that starts after a hit, in the same snapshot view."""
        return self.cursor(hit.key, period_end=period_end)

    def cursor(self, after: tuple[int, int, int], *, period_end: int) -> Cursor:
        """Return the cursor of a page that starts after a key, in the same snapshot view."""
        return Cursor(
            snapshot_id=self.snapshot.snapshot_id or "",
            visible=self.snapshot.visibility.text,
            after=tuple(after),
            period_end=period_end,
            newest=self.newest,
            by_meaning=self.by_meaning,
            looked=self.looked,
        )

    def change_of(self, hit: Hit) -> Literal["newer", "older"] | None:
        """Tell which side of the found change a hit is; None if it is neither, or the question asks for none."""
        if self.changed is None or hit.event_seq not in (self.changed.older, self.changed.newer):
            return None
        return "newer" if hit.event_seq == self.changed.newer else "older"

    def is_indexed(self, hit: Hit) -> bool:
        """Tell whether a tree of the snapshot holds a hit, which is not fresh, internal or restored since."""
        return hit.view < len(self.corpus.blocks)


MOST_COMPARED = 64
"""Hits of a page that are compared: more than a bounded answer shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToldHits:
    """Hits in the order of the ranking, in groups that say the same.

    `groups` are indices into `hits`; `said` gives speaker and text by event_seq. The newest hit of each group is
    `shown`, in the place of the group's first, and stands for the others.
    """

    hits: tuple[Hit, ...]
    groups: tuple[tuple[int, ...], ...]
    said: Mapping[int, tuple[Hashable, str]]

    @classmethod
    def of(cls, hits: Sequence[Hit], said: Mapping[int, tuple[Hashable, str]]) -> ToldHits:
        """Group hits that say the same.

        Args:
            said: speaker and text of a hit, by event_seq; a hit that is not in it is a group of its own.
        """
        groups = (
            alike([said.get(hit.event_seq, (hit.event_seq, "")) for hit in hits])
            if said
            else [[index] for index in range(len(hits))]
        )
        return cls(hits=tuple(hits), groups=tuple(map(tuple, groups)), said=said)

    @property
    def shown(self) -> tuple[Hit, ...]:
        """The newest hit of each group, in the order of the groups."""
        return tuple(map(self._newest, self.groups))

    @property
    def alike(self) -> dict[int, int]:
        """By event_seq, how many others a shown hit stands for; only hits that stand for some."""
        return {self._newest(group).event_seq: len(group) - 1 for group in self.groups if len(group) > 1}

    def covered(self, taken: int) -> int:
        """Return after how many hits a next page must start if this one shows the first `taken` groups.

        These are all hits before the first one of the next group.
        """
        return self.groups[taken][0] if taken < len(self.groups) else len(self.hits)

    def within(self, taken: int) -> ToldHits:
        """Return the groups of a page on which only the first `taken` have room.

        A group keeps only hits that come before the next page's first hit: those after it are for that page to show.
        """
        covered = self.covered(taken)
        if all(group[-1] < covered for group in self.groups[:taken]):
            return self
        return ToldHits.of(self.hits[:covered], self.said)

    def _newest(self, group: Sequence[int]) -> Hit:
        return max((self.hits[index] for index in group), key=lambda hit: (hit.timestamp, hit.event_seq))
