"""Plans a unit to a given shape: its grouping, labels and summaries, the planner's identities and rules.

A shape says only what is inside one unit. Which events are the unit, what stands above it, and every identity stay the
planner's. A pure function of events, shape and settings, so that a stored shape gives the same nodes for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from myria.log.canonical import digest
from myria.settings.planner import PlannerSettings
from myria.topics.describe import (
    INTERNAL_SUMMARY_CHARACTERS,
    LABEL_CHARACTERS,
    LEAF_SUMMARY_CHARACTERS,
    UnitReading,
    describe_part,
)
from myria.topics.lines import clean
from myria.topics.model import LEAF_LEVEL, Description, Node, Outline, Participants, PlanEvent
from myria.topics.scope_plan import Branch, grown, leaf_over, parent_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter

RESTS_ON_MOST = 24
"""Most events that a summary may name as what it rests on."""

TOPIC_ID_CHARACTERS = 36


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """A node's label and summary, and the ids of the events that the summary rests on."""

    label: str
    summary: str
    rests_on: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafShape:
    """A leaf: its events by id, in any order, its words, and the topic_id of an earlier topic that it continues."""

    events: tuple[str, ...]
    words: Words
    continues: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupShape:
    """Leaves under a common parent inside the unit, by their indexes in the shape's `leaves`."""

    leaves: tuple[int, ...]
    words: Words


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitShape:
    """How one unit is divided. `words` are the unit's; they are ignored if it is a single leaf, whose words count."""

    leaves: tuple[LeafShape, ...]
    groups: tuple[GroupShape, ...]
    words: Words

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> UnitShape:
        """Return the shape that was stored as JSON with `orjson.dumps`."""
        return _stored_shapes().validate_python(stored)


@cache
def _stored_shapes() -> TypeAdapter[UnitShape]:
    # Only a build that a model planned reads shapes; for all others pydantic would be a third of their start.
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(UnitShape)


def unit_digest(events: Sequence[PlanEvent]) -> bytes:
    """Return the 32-byte identity of a unit's event set, under which its shape is kept."""
    return digest({"schema": 1, "unit": sorted(event.event_id for event in events)})


def in_order(shape: UnitShape, events: Sequence[PlanEvent]) -> UnitShape:
    """Return the same shape with events, leaves and groups in the order of time, so that equal shapes give equal nodes.

    The shape must name every event exactly once (`problems` is empty).
    """
    position_of = {event.event_id: position for position, event in enumerate(events)}
    leaves = [
        LeafShape(
            events=tuple(sorted(leaf.events, key=position_of.__getitem__)), words=leaf.words, continues=leaf.continues
        )
        for leaf in shape.leaves
    ]
    order = sorted(range(len(leaves)), key=lambda position: position_of[leaves[position].events[0]])
    new_position = {position: new_index for new_index, position in enumerate(order)}
    groups = [
        GroupShape(leaves=tuple(sorted(new_position[position] for position in group.leaves)), words=group.words)
        for group in shape.groups
    ]
    return UnitShape(
        leaves=tuple(leaves[position] for position in order),
        groups=tuple(sorted(groups, key=lambda group: group.leaves)),
        words=shape.words,
    )


def problems(
    shape: UnitShape, events: Sequence[PlanEvent], settings: PlannerSettings, names: Mapping[str, str] | None = None
) -> list[str]:
    """Return messages of what is wrong with a shape; an empty list means that it may be used.

    Args:
        names: names of events in these messages, by event id; an event without one appears by its id.
    """
    return list(_find_problems(shape, events, settings, names or {}))


def plan_shaped(
    scope: Participants, events: Sequence[PlanEvent], shape: UnitShape, settings: PlannerSettings
) -> list[Node]:
    """Return a unit's nodes as `plan_unit` does, the top node last, but divided and described as the shape says.

    `problems` must be empty. More children than a node may have are divided evenly.
    """
    shape = in_order(shape, events)
    by_id = {event.event_id: event for event in events}
    leaves = [
        _shaped_leaf(
            scope, [by_id[event_id] for event_id in leaf.events], leaf, settings, is_unit=len(shape.leaves) == 1
        )
        for leaf in shape.leaves
    ]
    group_of_leaf = {leaf: group for group in shape.groups for leaf in group.leaves}
    row: list[Branch] = []
    groups: list[Branch] = []
    for position, leaf in enumerate(leaves):
        group = group_of_leaf.get(position)
        if group is None:
            row.append(leaf)
        elif group.leaves[0] == position:
            groups.append(
                parent_of(scope, [leaves[index] for index in group.leaves], 1, partial(_with_words, group.words))
            )
            row.append(groups[-1])
    describe_unit = partial(_with_words, shape.words, is_unit=True)
    lower_nodes = [branch.node for branch in (*leaves, *groups)]
    return lower_nodes + grown(scope, row, describe_unit, settings, level=1 if shape.groups else LEAF_LEVEL)


def _shaped_leaf(
    scope: Participants, events: Sequence[PlanEvent], shape: LeafShape, settings: PlannerSettings, *, is_unit: bool
) -> Branch:
    (reading,) = UnitReading([events], participants=scope, settings=settings).leaf_descriptions
    metadata = {**reading.description.metadata, "units": int(is_unit), **_words_metadata(shape.words, len(events))}
    if shape.continues is not None:
        metadata["continues"] = shape.continues
    description = Description(label=shape.words.label, summary=shape.words.summary, metadata=metadata)
    return leaf_over(scope, events, reading, description, is_unit=is_unit)


def _with_words(words: Words, children: Sequence[Outline], *, is_unit: bool = False) -> Description:
    """Return a description with a model's words and the metadata that follows from the children."""
    metadata = describe_part(children, is_unit=is_unit).metadata
    return Description(
        label=words.label, summary=words.summary, metadata={**metadata, **_words_metadata(words, metadata["events"])}
    )


def _words_metadata(words: Words, events: int) -> dict[str, Any]:
    """Return the metadata about a node's words: that a model wrote them, what they rest on, and their subject."""
    return {"written_by": "model", "rests_on": list(words.rests_on), "subjects": [[words.label, events]]}


def _find_problems(
    shape: UnitShape, events: Sequence[PlanEvent], settings: PlannerSettings, names: Mapping[str, str]
) -> Iterator[str]:
    known = {event.event_id for event in events}
    leaves_with_event: dict[str, int] = {}
    if not shape.leaves:
        yield "there is no leaf"
    for position, leaf in enumerate(shape.leaves, 1):
        leaf_name = f"leaf {position}"
        for event_id in leaf.events:
            leaves_with_event[event_id] = leaves_with_event.get(event_id, 0) + 1
        if len(leaf.events) > settings.leaf_max:
            yield f"{leaf_name} has {len(leaf.events)} events, at most {settings.leaf_max} are allowed"
        if len(leaf.events) < min(settings.leaf_min, len(events)):
            yield f"{leaf_name} has {len(leaf.events)} events, at least {settings.leaf_min} are needed: merge it"
        if leaf.continues is not None and len(leaf.continues) > TOPIC_ID_CHARACTERS:
            yield f"{leaf_name} continues what is no topic"
        yield from _find_word_problems(leaf.words, leaf_name, set(leaf.events), LEAF_SUMMARY_CHARACTERS, names)
    for event in events:
        if leaves_with_event.get(event.event_id, 0) != 1:
            count = leaves_with_event.get(event.event_id, 0)
            yield f"{names.get(event.event_id, event.event_id)} is in {count} leaves instead of one"
    for event_id in sorted(set(leaves_with_event) - known):
        yield f"{names.get(event_id, event_id)} is no event of this unit"
    yield from _find_group_problems(shape, settings, names)
    if len(shape.leaves) > 1:
        yield from _find_word_problems(shape.words, "the unit", known, INTERNAL_SUMMARY_CHARACTERS, names)


def _find_group_problems(shape: UnitShape, settings: PlannerSettings, names: Mapping[str, str]) -> Iterator[str]:
    groups_with_leaf: dict[int, int] = {}
    for position, group in enumerate(shape.groups, 1):
        group_name = f"group {position}"
        for leaf in group.leaves:
            groups_with_leaf[leaf] = groups_with_leaf.get(leaf, 0) + 1
        inside = [shape.leaves[leaf] for leaf in group.leaves if 0 <= leaf < len(shape.leaves)]
        if len(inside) != len(group.leaves):
            yield f"{group_name} names a leaf that is not there"
        if not 2 <= len(group.leaves) <= settings.max_children:
            yield f"{group_name} has {len(group.leaves)} leaves instead of 2 to {settings.max_children}"
        if len(shape.leaves) > 1 and len(set(group.leaves)) == len(shape.leaves):
            yield f"{group_name} holds every leaf: leave it out, the unit is their parent"
        events_inside = {event_id for leaf in inside for event_id in leaf.events}
        yield from _find_word_problems(group.words, group_name, events_inside, INTERNAL_SUMMARY_CHARACTERS, names)
    for leaf in sorted(groups_with_leaf):
        if groups_with_leaf[leaf] > 1:
            yield f"leaf {leaf + 1} is in {groups_with_leaf[leaf]} groups"


def _find_word_problems(
    words: Words, node_name: str, events_inside: set[str], summary_limit: int, names: Mapping[str, str]
) -> Iterator[str]:
    for field, text, limit in (("label", words.label, LABEL_CHARACTERS), ("summary", words.summary, summary_limit)):
        if not text:
            yield f"{node_name} has no {field}"
        elif clean(text) != text:
            yield f"the {field} of {node_name} is not one line of plain text"
        if len(text) > limit:
            yield f"the {field} of {node_name} has {len(text)} characters, at most {limit} are allowed"
    if not words.rests_on:
        yield f"{node_name} does not say which events its summary rests on"
    if len(words.rests_on) > RESTS_ON_MOST:
        yield f"{node_name} rests on {len(words.rests_on)} events, name at most {RESTS_ON_MOST}"
    for event_id in sorted(set(words.rests_on) - events_inside):
        yield f"{node_name} rests on {names.get(event_id, event_id)}, which it does not hold"
