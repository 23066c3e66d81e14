"""From the events of a scope to units, and from late or new events to the units that change.

`plan_unit` and `UnitSplitter` serve a full plan, page by page; `changed_units` an incremental one. Both give the same
units, because unit boundaries are local (see `myria.topics.segments`).
"""

from __future__ import annotations

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

_UnitEvents = tuple[PlanEvent, ...]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Branch:
    """A node inside a unit, with the node_ids of the leaves beneath it, joined in their order."""

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
        for inside, leaf in zip(leaves, reading.leaf_descriptions, strict=True)
    ]
    return [branch.node for branch in row] + grown(scope, row, reading.describe, settings)


def leaf_over(
    scope: Participants,
    events: Sequence[PlanEvent],
    reading: LeafDescription,
    description: Description,
    *,
    is_unit: bool,
) -> Branch:
    """Return the leaf over some events with a description: the planner's own or a model's.

    `reading` gives the weights of the events in either case.
    """
    node = leaf_node(
        scope,
        description,
        refs=tuple(
            Ref(event_seq=event.event_seq, event_id=event.event_id, weight=weight)
            for event, weight in zip(events, reading.weights, strict=True)
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
    """Return the nodes above a row of branches on `level`, the top of their unit last; none above a single branch.

    More branches than a node may have are first gathered in parts, level by level.

    Raises:
        InternalError: the branches are too many for the ladder of levels.
    """
    nodes: list[Node] = []
    while len(row) > settings.max_children:
        level += 1
        if level > MAX_PART_LEVEL:
            raise InternalError("a unit is too long for the ladder of levels", branches=len(row))
        row = [
            parent_of(scope, neighbours, level, describe_part) for neighbours in balanced(row, settings.max_children)
        ]
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
    """A step of an incremental plan: keys of old units that are gone or changed, and events of new or changed units."""

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
        gone: the position of every event that the old tree covers and the new one must not.
        reader: all events of the scope, old (the gone ones included) and new.
        settings: the planner's settings, the same as for the old tree.

    Yields:
        Steps that together give all removed keys and all added units, each once; memory is bounded by the longest
        unit and the positions of the new events.
    """
    new_positions, gone_positions = set(new), set(gone)
    positions = sorted(new_positions | gone_positions)
    next_index = 0
    while next_index < len(positions):
        region = _Region(reader, settings, late=new_positions, leaving=gone_positions)
        async for changes in region.run(positions[next_index]):
            yield changes
        while next_index < len(positions) and positions[next_index] <= region.reached:
            next_index += 1


class _Region:
    """Neighbouring events, split into units twice, as the old tree has them and as the new one shall.

    Reading goes on until both splits agree again. `late` are positions that only the new tree has, `leaving` those that
    only the old one has.
    """

    def __init__(
        self,
        reader: EventReader,
        settings: PlannerSettings,
        *,
        late: AbstractSet[tuple[int, int]],
        leaving: AbstractSet[tuple[int, int]],
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._late = late
        self._leaving = leaving
        self._surely_new_units: list[_UnitEvents] = []
        self._old_units: dict[tuple[int, int], _UnitEvents] = {}
        self._new_units: dict[tuple[int, int], _UnitEvents] = {}
        """New units without late events, by their first position: the old tree may have the same."""

    async def run(self, position: tuple[int, int]) -> AsyncIterator[UnitChanges]:
        """Yield the changes around an event; afterwards `reached` is the last position that was read."""
        events = await self._start_at_boundary(position)
        since_change: int | None = None
        size = _FIRST_PAGE
        has_more = True
        while True:
            for event in events:
                self.reached = event.position
                is_old, is_new = event.position not in self._late, event.position not in self._leaving
                new_cut = is_new and self._keep_new(list(self._new.feed(event)))
                old_cut = is_old and self._keep_old(list(self._old.feed(event)))
                if not (is_old and is_new):
                    since_change = 0
                elif since_change is not None:
                    since_change += 1
                if (new_cut or old_cut) and (changes := self._take_settled()):
                    yield changes
                # Both splits cut before this event, and both trees have every event on which that cut depends: from
                # here on nothing differs.
                # An earlier common cut may be chance: the change may still move a boundary behind it.
                if new_cut and old_cut and since_change is not None and since_change > BEFORE + AFTER:
                    return
            if not has_more:
                break
            events = await self._reader.after(self.reached, size)
            has_more = len(events) == size
            size = min(size * 2, _MOST_PAGE)
        self._keep_new(list(self._new.finish()))
        self._keep_old(list(self._old.finish()))
        if changes := self._take_settled():
            yield changes

    async def _start_at_boundary(self, position: tuple[int, int]) -> list[PlanEvent]:
        """Start both splits at the nearest unit boundary that an event at `position` cannot move.

        Returns the events from there that lie before `position`.
        """
        size = _FIRST_PAGE
        while True:
            before = await self._reader.before(position, size)
            at_start = len(before) < size
            starts = unit_starts(before, self._settings, at_start=at_start, at_end=False)
            start = next((index for index in reversed(range(len(starts))) if starts[index]), 0 if at_start else None)
            if start is not None:
                context = before[max(0, start - BEFORE) : start]
                self._old, self._new = UnitSplitter(self._settings, context), UnitSplitter(self._settings, context)
                self.reached = before[-1].position if before else (position[0], position[1] - 1)
                return before[start:]
            size *= 4

    def _keep_old(self, units: Sequence[_UnitEvents]) -> bool:
        self._old_units.update((unit[0].position, unit) for unit in units)
        return bool(units)

    def _keep_new(self, units: Sequence[_UnitEvents]) -> bool:
        for unit in units:
            if any(event.position in self._late for event in unit):
                self._surely_new_units.append(unit)  # no old unit has such an event
            else:
                self._new_units[unit[0].position] = unit
        return bool(units)

    def _take_settled(self) -> UnitChanges | None:
        """Return, once each, the changes among units that begin before those still open; None if there are none."""
        removed: list[UnitKey] = []
        added, self._surely_new_units = self._surely_new_units, []
        open_positions = [position for position in (self._old.open_at, self._new.open_at) if position is not None]
        for start in sorted(self._old_units.keys() | self._new_units.keys()):
            if open_positions and start >= min(open_positions):
                break
            old_unit, new_unit = self._old_units.pop(start, ()), self._new_units.pop(start, ())
            if [event.event_seq for event in old_unit] != [event.event_seq for event in new_unit]:
                removed.extend([(old_unit[0].timestamp, old_unit[0].key)] if old_unit else [])
                added.extend([new_unit] if new_unit else [])
        return UnitChanges(removed=tuple(removed), added=tuple(added)) if removed or added else None


def balanced(row: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield a row in as few parts of at most `most` neighbours as possible, of nearly equal lengths."""
    groups = -(-len(row) // most)
    for index in range(groups):
        yield row[index * len(row) // groups : (index + 1) * len(row) // groups]


class _NoTree:
    """The old tree of a scope that has none."""

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        raise InternalError("a scope without a tree was read", nodes=len(rendering_ids))

    async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
        raise InternalError("a scope without a tree was read", rendering_id=rendering_id.hex())
