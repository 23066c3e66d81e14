"""What a search gives: the best hits, with the view they were found in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from myria.index.corpus import Corpus
from myria.search.best import Hit
from myria.search.pin import Pinned
from myria.search.scopes import VisibleScope
from myria.search.subjects import NamedSubject
from myria.search.successors import Succession


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """The best hits of a query with the view they were found in.

    `corpora` stand in the order that `Hit.corpus` counts, and `owners` beside them: the scope of each, None for one
    that scopes share; `scopes` are all that were looked at; `more` tells that hits were left out. `newest` is the
    newest visible moment not ahead of the clock, None where nothing is ahead of it (see `Ranking`). `by_meaning` tells
    that the question's vector was compared, and `without_words` are the hits that were found by that alone.
    """

    pinned: Pinned
    scopes: tuple[VisibleScope, ...]
    owners: tuple[VisibleScope | None, ...]
    corpora: tuple[Corpus, ...]
    hits: tuple[Hit, ...]
    more: bool
    newest: int | None = None
    changed: Succession | None = None
    by_meaning: bool = False
    without_words: frozenset[int] = frozenset()
    looked: bool = False
    """Whether a second look moved the best hits."""
    under: NamedSubject | None = None
    """The subject below which was looked, where one was asked for."""

    def scope(self, hit: Hit) -> VisibleScope:
        """Return the scope of a hit."""
        owner = self.owners[hit.corpus]
        if owner is None:
            view, _ = self.corpora[hit.corpus].parts()[hit.view]
            owner = None if view.scope_id is None else self.pinned.scope(int(view.scope_id[hit.doc]))
        if owner is None:
            raise AssertionError("a hit lies in a visible scope")
        return owner

    def change_of(self, hit: Hit) -> Literal["newer", "older"] | None:
        """Return which side of a change a hit tells of, where the question asks for that."""
        if self.changed is None or hit.event_seq not in (self.changed.older, self.changed.newer):
            return None
        return "newer" if hit.event_seq == self.changed.newer else "older"

    def is_indexed(self, hit: Hit) -> bool:
        """Tell whether a tree of the snapshot holds a hit, which is not fresh, internal or restored since."""
        return hit.view < len(self.corpora[hit.corpus].blocks)
