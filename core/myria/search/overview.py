"""What a caller sees as a whole: how many events there are, of whom, and when. Pure.

It counts exactly the events that a question without filters goes through, from the same columns in memory, so a count
here is the number of events that the query tools list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from myria.index.block import Ints
from myria.index.corpus import Corpus

_EARLIEST, _LATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """What is visible of a participant: how many events, of how many scopes, and when the first and last one were.

    Moments are in microseconds since 1970 UTC, None where there is no event.
    """

    name: str
    events: int
    scopes: int
    first_at: int | None
    last_at: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """What is earlier and later than a time: how many events, and the nearest, in microseconds since 1970 UTC."""

    earlier: int
    last_before: int | None
    later: int
    first_after: int | None


class Overview:
    """Counts of one corpus.

    Args:
        late: events of notes that have ended, ascending: they are not shown, though the corpus holds them.
    """

    def __init__(self, corpus: Corpus, late: Ints) -> None:
        self._corpus = corpus
        timeline = corpus.laid_out
        shown = ~np.isin(timeline.seq, late) if len(late) else None
        self._times = timeline.timestamp if shown is None else timeline.timestamp[shown]
        scope = timeline.scope
        self._scopes = scope if scope is None or shown is None else scope[shown]
        self._each: tuple[Ints, Ints, Ints] | None = None

    @property
    def events(self) -> int:
        """How many events are visible."""
        return len(self._times)

    def span(self) -> tuple[int, int] | None:
        """Return when the first and the last visible event were, in microseconds since 1970 UTC; None without any."""
        return (int(self._times.min()), int(self._times.max())) if len(self._times) else None

    def counts(self, bounds: Sequence[int]) -> list[int]:
        """Return how many events each interval of time holds.

        Args:
            bounds: ascending, in microseconds since 1970 UTC; an interval goes from one to before the next.
        """
        edges = np.array(bounds, dtype=np.int64)
        inside = self._times[(self._times >= edges[0]) & (self._times < edges[-1])]
        places = edges.searchsorted(inside, side="right") - 1
        counted: list[int] = np.bincount(places, minlength=len(edges) - 1).tolist()
        return counted

    def beside(self, start: int, end: int) -> Beside:
        """Return how many events there are outside of a time, and the nearest of them.

        Args:
            start: in microseconds since 1970 UTC, as `end`, before which it ends.
        """
        earlier, later = self._times[self._times < start], self._times[self._times >= end]
        return Beside(
            earlier=len(earlier),
            last_before=int(earlier.max()) if len(earlier) else None,
            later=len(later),
            first_after=int(later.min()) if len(later) else None,
        )

    def of_people(self, names: Sequence[str]) -> list[Activity]:
        """Return the activity of participants: of the visible events those that each was part of."""
        return [self._of(name) for name in names]

    def _of(self, name: str) -> Activity:
        positions = self._corpus.scopes.holders.get(name)
        if positions is None:
            return Activity(name=name, events=0, scopes=0, first_at=None, last_at=None)
        if self._scopes is None:  # the only scope holds this participant
            times = self._times
            counted, scopes = len(times), 1
            first, last = times.min(initial=_LATEST), times.max(initial=_EARLIEST)
        else:
            events, firsts, lasts = self._by_scope()
            counted, scopes = int(events[positions].sum()), int(np.count_nonzero(events[positions]))
            first, last = firsts[positions].min(initial=_LATEST), lasts[positions].max(initial=_EARLIEST)
        if not counted:
            return Activity(name=name, events=0, scopes=0, first_at=None, last_at=None)
        return Activity(name=name, events=counted, scopes=scopes, first_at=int(first), last_at=int(last))

    def _by_scope(self) -> tuple[Ints, Ints, Ints]:
        """Return, by the position of each scope, how many events it has, and when its first and last one were."""
        if self._each is None:
            assert self._scopes is not None  # noqa: S101 - the caller has looked
            size = len(self._corpus.scopes.ids)
            firsts = np.full(size, _LATEST)
            lasts = np.full(size, _EARLIEST)
            # Events stand scope after scope in order of time, so each scope's first and last ones are at its ends.
            begins = np.flatnonzero(np.diff(self._scopes, prepend=-1))
            ends = np.flatnonzero(np.diff(self._scopes, append=-1))
            firsts[self._scopes[begins]] = self._times[begins]
            lasts[self._scopes[begins]] = self._times[ends]
            self._each = (np.bincount(self._scopes, minlength=size), firsts, lasts)
        return self._each
