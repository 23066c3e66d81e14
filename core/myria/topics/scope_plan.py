"""From the events of a scope to units, and from late or new events to the units that change.

`plan_unit` and `UnitSplitter` serve a full plan, page by page; `changed_units` an incremental one. Both give the same
units, because unit boundaries are local (see `myria.topics.segments`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from myria.errors import InternalError
from myria.settings.planner import PlannerSettings
from myria.topics.describe import LeafDescription, UnitReading, describe_part
from myria.topics.identity import internal_node, leaf_node
from myria.topics.leaves import leaf_spans
from myria.topics.model import (
    LEAF_LEVEL,
    MAX_PART_LEVEL,
    UNIT_LEVEL,
    Description,
    EventReader,
    Node,
    Outline,
    Participants,
    PlanEvent,
    Ref,
    Unit,
    UnitKey,
)
from myria.topics.segments import AFTER, BEFORE, UnitSplitter, split_units, unit_starts
from myria.topics.trie import assemble

__all__ = ["UnitChanges", "UnitSplitter", "changed_units", "plan_scope", "plan_unit", "split_units", "units_between"]

_FIRST_PAGE = 64
_MOST_PAGE = 2048

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Branch:
    """A node inside a unit, with the node_ids of the leaves beneath it in a row."""

    node: Node
    leaf_ids: bytes


def plan_unit(scope: Participants, events: Sequence[PlanEvent], settings: PlannerSettings) -> list[Node]:
    """Plan one unit: its leaves, the parts over them if there are many, and its top node last.

    A pure function of the unit's events and the settings. A unit of one leaf is that leaf.
    """
    leaves = [events[start:end] for start, end in leaf_spans(events, settings)]
    reading = UnitReading(leaves, participants=scope, settings=settings)
    row = [
        leaf_over(scope, inside, leaf, leaf.description, is_unit=len(leaves) == 1)
        for inside, leaf in zip(leaves, reading.described, strict=True)
    ]
    return [branch.node for branch in row] + grown(scope, row, reading.describe, settings)


def leaf_over(
    scope: Participants,
    events: Sequence[PlanEvent],
    read: LeafDescription,
    description: Description,
    *,
    is_unit: bool,
) -> Branch:
    """Return the leaf over some events, by its own words or others; `read` weighs the events."""
    node = leaf_node(
        scope,
        description,
        refs=tuple(
            Ref(event_seq=event.event_seq, event_id=event.event_id, weight=weight)
            for event, weight in zip(events, read.weights, strict=True)
        ),
        key_digest=events[0].key,
        first_at=events[0].timestamp,
        last_at=events[-1].timestamp,
        is_unit=is_unit,
    )
    return Branch(node, node.node_id)


def parent_of(
    scope: Participants, below: Sequence[Branch], level: int, describe: Callable[[Sequence[Outline]], Description]
) -> Branch:
    """Return the node over neighbours inside a unit, described from their outlines."""
    outlines = [Outline.of(branch.node) for branch in below]
    leaf_ids = b"".join([branch.leaf_ids for branch in below])
    node = internal_node(
        scope, describe(outlines), level=level, children=outlines, leaf_ids=leaf_ids, is_unit=level == UNIT_LEVEL
    )
    return Branch(node, leaf_ids)


def grown(
    scope: Participants,
    row: Sequence[Branch],
    describe_unit: Callable[[Sequence[Outline]], Description],
    settings: PlannerSettings,
    *,
    level: int = LEAF_LEVEL,
) -> list[Node]:
    """Return the nodes above a row of branches that stand on a level, the top of their unit last.

    Raises:
        InternalError: they are too many for the ladder of levels.
    """
    nodes: list[Node] = []
    while len(row) > settings.max_fan_out:
        level += 1
        if level > MAX_PART_LEVEL:
            raise InternalError("a unit is too long for the ladder of levels", branches=len(row))
        row = [parent_of(scope, part, level, describe_part) for part in balanced(row, settings.max_fan_out)]
        nodes.extend(branch.node for branch in row)
    if len(row) > 1:
        nodes.append(parent_of(scope, row, UNIT_LEVEL, describe_unit).node)
    return nodes


async def plan_scope(
    scope: Participants, events: Iterable[PlanEvent], settings: PlannerSettings
) -> tuple[Outline | None, list[Node]]:
    """Plan a whole scope in memory: the root's outline (None without events) and every node, children first.

    A builder streams instead: `UnitSplitter`, `plan_unit`, `Unit.of` per unit, then `assemble` without an old root.
    """
    nodes: list[Node] = []
    units: list[Unit] = []
    for unit_events in split_units(events, settings):
        planned = plan_unit(scope, unit_events, settings)
        nodes.extend(planned)
        units.append(Unit.of(planned))
    root, groups = await assemble(None, set(), units, _NoTree(), participants=scope, settings=settings)
    return root, nodes + groups


async def units_between(
    before: Sequence[PlanEvent],
    pages: AsyncIterator[list[PlanEvent]],
    settings: PlannerSettings,
    *,
    end: tuple[int, int] | None,
) -> AsyncGenerator[tuple[PlanEvent, ...], None]:
    """Yield the units that begin in a range of a scope, as a plan of the whole scope has them.

    Args:
        before: the three events before the range, fewer at the scope's start.
        pages: the events of the scope from the range's first on.
        settings: the planner's settings.
        end: the position (timestamp, event_seq) of the first event beyond the range; None where it ends with the scope.
    """
    splitter = UnitSplitter(settings, before, begins_unit=False)

    def is_beyond(position: tuple[int, int] | None) -> bool:
        return end is not None and position is not None and position >= end

    async for page in pages:
        for event in page:
            for unit in splitter.feed(event):
                if is_beyond(unit[0].position):
                    return
                yield unit
        if is_beyond(splitter.open_at):
            return
    for unit in splitter.finish():
        if is_beyond(unit[0].position):
            return
        yield unit


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitChanges:
    """A step of an incremental plan: keys of old units that are gone or changed, and the events of new ones."""

    removed: tuple[UnitKey, ...]
    added: tuple[tuple[PlanEvent, ...], ...]


async def changed_units(
    new: Iterable[tuple[int, int]],
    reader: EventReader,
    settings: PlannerSettings,
    *,
    gone: Iterable[tuple[int, int]] = (),
) -> AsyncIterator[UnitChanges]:
    """Yield the units that new and withdrawn events change, reading only the units around them.

    Args:
        new: the position (timestamp, event_seq) of every event that the old tree does not cover, in any order.
        gone: that of every event that the old tree covers and the new one must not.
        reader: all the events of the scope, old (those that go included) and new.
        settings: the planner's settings, the same as for the old tree.

    Yields:
        Steps that together give all removed keys and all added units, each once; memory is bounded by the longest
        unit and the positions of the new events.
    """
    late, leaving = set(new), set(gone)
    positions = sorted(late | leaving)
    at = 0
    while at < len(positions):
        region = await _Region.begin(positions[at], reader, settings)
        async for changes in region.run(late, leaving):
            yield changes
        while at < len(positions) and positions[at] <= region.reached:
            at += 1


class _Region:
    """Neighbouring events split twice, as the old tree has them and as the new one shall, until both agree again."""

    def __init__(
        self,
        *,
        context: Sequence[PlanEvent],
        events: Sequence[PlanEvent],
        cursor: tuple[int, int],
        reader: EventReader,
        settings: PlannerSettings,
    ) -> None:
        self._events = list(events)
        self._cursor = cursor
        self._reader = reader
        self._old = UnitSplitter(settings, context)
        self._new = UnitSplitter(settings, context)
        self._old_units: deque[tuple[PlanEvent, ...]] = deque()
        self._new_units: deque[tuple[PlanEvent, ...]] = deque()
        self.reached = cursor

    @classmethod
    async def begin(cls, position: tuple[int, int], reader: EventReader, settings: PlannerSettings) -> _Region:
        """Return the region that starts at the nearest unit boundary that an event at `position` cannot move."""
        size = _FIRST_PAGE
        while True:
            before = await reader.before(position, size)
            at_start = len(before) < size
            starts = unit_starts(before, settings, at_start=at_start, at_end=False)
            start = next((at for at in reversed(range(len(starts))) if starts[at]), 0 if at_start else None)
            if start is not None:
                return cls(
                    context=before[max(0, start - BEFORE) : start],
                    events=before[start:],
                    cursor=before[-1].position if before else (position[0], position[1] - 1),
                    reader=reader,
                    settings=settings,
                )
            size *= 4

    async def run(
        self, late: AbstractSet[tuple[int, int]], leaving: AbstractSet[tuple[int, int]]
    ) -> AsyncIterator[UnitChanges]:
        """Yield the changes of the region; `reached` is then the last position it has seen."""
        since_change: int | None = None
        size = _FIRST_PAGE
        more = True
        while True:
            for event in self._events:
                self.reached = event.position
                is_old, is_new = event.position not in late, event.position not in leaving
                new_cut = is_new and self._feed(self._new, event, self._new_units)
                old_cut = is_old and self._feed(self._old, event, self._old_units)
                if not (is_old and is_new):
                    since_change = 0
                elif since_change is not None:
                    since_change += 1
                if (new_cut and self._new_units) or old_cut:
                    for changes in self._settled(late):
                        yield changes
                # Both cut before the same event, whose whole window is in both: from there on nothing differs.
                if new_cut and old_cut and since_change is not None and since_change > BEFORE + AFTER:
                    return
            if not more:
                break
            self._events = await self._reader.after(self._cursor, size)
            more = len(self._events) == size
            if self._events:
                self._cursor = self._events[-1].position
            size = min(size * 2, _MOST_PAGE)
        self._old_units.extend(self._old.finish())
        self._new_units.extend(self._new.finish())
        for changes in self._settled(late):
            yield changes

    @staticmethod
    def _feed(splitter: UnitSplitter, event: PlanEvent, units: deque[tuple[PlanEvent, ...]]) -> bool:
        before = len(units)
        units.extend(splitter.feed(event))
        return len(units) > before

    def _settled(self, late: AbstractSet[tuple[int, int]]) -> list[UnitChanges]:
        """Return the changes that are certain by now, comparing old and new units in their order."""
        removed: list[UnitKey] = []
        fresh = [any(event.position in late for event in unit) for unit in self._new_units]
        added = [unit for unit, is_fresh in zip(self._new_units, fresh, strict=True) if is_fresh]
        if added:
            unchanged = [unit for unit, is_fresh in zip(self._new_units, fresh, strict=True) if not is_fresh]
            self._new_units = deque(unchanged)
        old, new = self._old_units, self._new_units
        while old or new:
            old_at = old[0][0].position if old else self._old.open_at
            new_at = new[0][0].position if new else self._new.open_at
            if old and new and old_at == new_at:
                was, now = old.popleft(), new.popleft()
                if _differ(was, now):
                    removed.append(_key(was))
                    added.append(now)
            elif old and (new_at is None or (old_at is not None and old_at < new_at)):
                removed.append(_key(old.popleft()))
            elif new and (old_at is None or (new_at is not None and new_at < old_at)):
                added.append(new.popleft())
            else:
                break
        return [UnitChanges(removed=tuple(removed), added=tuple(added))] if removed or added else []


def balanced(row: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield runs of neighbours, no longer than `most`, whose lengths differ by one at most."""
    groups = -(-len(row) // most)
    for index in range(groups):
        yield row[index * len(row) // groups : (index + 1) * len(row) // groups]


def _differ(was: Sequence[PlanEvent], now: Sequence[PlanEvent]) -> bool:
    return len(was) != len(now) or any(a.event_seq != b.event_seq for a, b in zip(was, now, strict=True))


def _key(events: Sequence[PlanEvent]) -> UnitKey:
    return (events[0].timestamp, events[0].key)


class _NoTree:
    """The old tree of a scope that has none."""

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        raise InternalError("a scope without a tree was read", nodes=len(rendering_ids))

    async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
        raise InternalError("a scope without a tree was read", rendering_id=rendering_id.hex())
