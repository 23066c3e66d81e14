"""The filters of a question: which events may be hits. The rule stands here twice, for one event and for columns.

A test holds both forms to the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from myria.index.block import View
from myria.index.corpus import Mask, Timeline
from myria.search.queries import EventNodesQuery, ReferencesQuery


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
        allowed = np.zeros(len(timeline), dtype=np.bool_)
        allowed[between(timeline, self.since, self.until)] = True
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


def between(timeline: Timeline, start: int | None, end: int | None) -> slice | Mask:
    """Return which documents have start <= timestamp < end."""
    stamps = timeline.timestamp
    if timeline.scope is None:
        return slice(
            0 if start is None else int(np.searchsorted(stamps, start)),
            len(stamps) if end is None else int(np.searchsorted(stamps, end)),
        )
    inside = np.ones(len(stamps), dtype=np.bool_)
    if start is not None:
        inside &= stamps >= start
    if end is not None:
        inside &= stamps < end
    return inside


def _coded(names: Sequence[str], wanted: Sequence[str]) -> Mask:
    return np.array([at > 0 and name in wanted for at, name in enumerate(names)], dtype=np.bool_)
