"""Where segments and units begin: decided from an event's nearest neighbours alone.

A segment boundary depends on an event and the one before it. A unit is what is planned at once: a segment, with the
lone one-event segments beside it, or a run of one-event segments. Whether a unit begins at an event depends on the
three events before it and the two after it, so a late event moves unit boundaries only within three positions, and
every unit has at least two events where the scope has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from myria.settings.planner import PlannerSettings
from myria.topics.model import PlanEvent

BEFORE = 3
"""Events before a position that its unit boundary may depend on."""

AFTER = 2
"""Events after a position that its unit boundary may depend on."""

_RUN_CUT = 32
"""In a run of one-event segments, about one event in so many starts a unit, chosen by its key."""


def segment_starts(before: PlanEvent | None, event: PlanEvent, settings: PlannerSettings) -> bool:
    """Tell whether a segment begins at `event`, whose predecessor in its scope is `before`."""
    return (
        before is None
        or event.timestamp - before.timestamp >= settings.gap_s * 1_000_000
        or event.type in settings.marker_types
        or (event.task is not None and before.task is not None and event.task != before.task)
        or (event.context_id is not None and before.context_id is not None and event.context_id != before.context_id)
        or _key_hash(event, 0) % settings.hash_cut == 0
    )


def unit_starts(
    events: Sequence[PlanEvent], settings: PlannerSettings, *, at_start: bool, at_end: bool
) -> list[bool | None]:
    """Tell for each event whether a unit begins there.

    Args:
        events: neighbours in the order of their scope, none left out.
        settings: the planner's settings.
        at_start: whether the first one is the scope's first.
        at_end: whether the last one is the scope's last.

    Returns:
        One verdict per event; None where the context does not suffice (the first three unless `at_start`, the last
        two unless `at_end`).
    """
    window = _Window(settings, at_start=at_start)
    for event in events:
        window.append(event)
    size = len(events)
    known_from = 0 if at_start else BEFORE
    known_to = size if at_end else size - AFTER
    return [
        window.unit_starts(at, size if at_end else None) if known_from <= at < known_to else None for at in range(size)
    ]


class UnitSplitter:
    """Splits a scope's events into units as they stream by, holding one unit and its context at a time.

    Args:
        settings: the planner's settings.
        context: the (up to three) events before the first one fed; fewer only at the scope's start.
        begins_unit: whether the first event fed is known to begin a unit. If not, what belongs to a unit that began
            before it is left out.
    """

    def __init__(
        self, settings: PlannerSettings, context: Sequence[PlanEvent] = (), *, begins_unit: bool = True
    ) -> None:
        self._window = _Window(settings, at_start=len(context) < BEFORE)
        for event in context:
            self._window.append(event)
        self._next = len(context)
        self._start = self._next if begins_unit else None

    @property
    def open_at(self) -> tuple[int, int] | None:
        """The first position, among those of the events fed, at which the next unit may begin."""
        start = self._next if self._start is None else self._start
        return self._window.position(start) if start < len(self._window) else None

    def feed(self, event: PlanEvent) -> Iterator[tuple[PlanEvent, ...]]:
        """Take the next event and yield the unit that is now known to be complete, if any."""
        self._window.append(event)
        if self._next + AFTER < len(self._window):
            yield from self._decide_next(None)

    def finish(self) -> Iterator[tuple[PlanEvent, ...]]:
        """Yield the remaining units: the last event fed was the scope's last."""
        size = len(self._window)
        while self._next < size:
            yield from self._decide_next(size)
        if self._start is not None and self._start < size:
            yield self._window.cut(self._start, size)
            self._start = size

    def _decide_next(self, size: int | None) -> Iterator[tuple[PlanEvent, ...]]:
        """Decide whether a unit begins at the next position; if so, yield the unit that ends there."""
        position, self._next = self._next, self._next + 1
        if position == self._start:
            return
        if self._window.unit_starts(position, size):
            if self._start is not None:
                yield self._window.cut(self._start, position)
            self._start = position
        if self._start is None or self._start == position:
            self._window.forget_before(position - BEFORE)


def split_units(events: Iterable[PlanEvent], settings: PlannerSettings) -> Iterator[tuple[PlanEvent, ...]]:
    """Yield the units of a whole scope, given its events in order."""
    splitter = UnitSplitter(settings)
    for event in events:
        yield from splitter.feed(event)
    yield from splitter.finish()


class _Window:
    """Neighbouring events with their segment boundaries; positions count from the first event ever appended."""

    def __init__(self, settings: PlannerSettings, *, at_start: bool) -> None:
        self._settings = settings
        self._at_start = at_start
        self._events: list[PlanEvent] = []
        self._starts: list[bool] = []
        self._offset = 0

    def __len__(self) -> int:
        return self._offset + len(self._events)

    def append(self, event: PlanEvent) -> None:
        before = self._events[-1] if self._events else None
        self._events.append(event)
        self._starts.append(segment_starts(before, event, self._settings))

    def position(self, index: int) -> tuple[int, int]:
        return self._event(index).position

    def cut(self, start: int, end: int) -> tuple[PlanEvent, ...]:
        return tuple(self._events[start - self._offset : end - self._offset])

    def forget_before(self, position: int) -> None:
        if position > self._offset:
            del self._events[: position - self._offset]
            del self._starts[: position - self._offset]
            self._offset = position

    def unit_starts(self, position: int, size: int | None) -> bool:
        """Tell whether a unit begins at a position; `size` is the scope's number of events, None while unknown.

        Between two lone one-event segments the events' keys decide, so that a long run of such is cut somewhere.
        """
        if position == 0 and self._at_start:
            return True
        if not self._is_boundary(position, size):
            return False
        is_single, is_single_before = self._is_single(position, size), self._is_single(position - 1, size)
        if not is_single_before and not is_single:
            return True
        if not is_single_before:
            return self._is_single(position + 1, size) or not self._joins_before(position, size)
        if not is_single:
            return self._is_single(position - 2, size) or self._joins_before(position - 1, size)
        # Bytes 8 to 15 of the key: `segment_starts` chooses by the first 8, and both choices must be independent.
        return (
            _key_hash(self._event(position), 8) % _RUN_CUT == 0
            and _key_hash(self._event(position - 1), 8) % _RUN_CUT != 0
            and self._is_single(position - 2, size)
            and self._is_single(position + 1, size)
        )

    def _event(self, position: int) -> PlanEvent:
        return self._events[position - self._offset]

    def _is_boundary(self, position: int, size: int | None) -> bool:
        return position == size or self._starts[position - self._offset]

    def _is_single(self, position: int, size: int | None) -> bool:
        """Tell whether the event at a position is a segment of its own; False outside the scope."""
        if position < 0 or position == size:
            return False
        return self._is_boundary(position, size) and self._is_boundary(position + 1, size)

    def _joins_before(self, position: int, size: int | None) -> bool:
        """Tell whether a lone one-event segment joins the segment before it, as the nearer or only neighbour."""
        if position == 0:
            return False
        if position + 1 == size:
            return True
        event = self._event(position)
        return (
            event.timestamp - self._event(position - 1).timestamp
            <= self._event(position + 1).timestamp - event.timestamp
        )


def _key_hash(event: PlanEvent, offset: int) -> int:
    return int.from_bytes(event.key[offset : offset + 8], "big")
