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
"""References that a summary may name as what it rests on."""

TOPIC_ID_CHARACTERS = 36


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """What a node says: label, summary, and the events (by id) that the summary rests on."""

    label: str
    summary: str
    rests_on: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafShape:
    """A leaf: its events by id, in any order, and the topic_id of an earlier topic that it goes on with."""

    events: tuple[str, ...]
    words: Words
    continues: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupShape:
    """Leaves under a common parent inside the unit, by their positions in the shape."""

    leaves: tuple[int, ...]
    words: Words


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitShape:
    """How one unit is divided. `words` are the unit's own, unless it is a single leaf, whose words count."""

    leaves: tuple[LeafShape, ...]
    groups: tuple[GroupShape, ...]
    words: Words

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> UnitShape:
        """Return a stored shape: what `orjson.dumps` makes of one."""
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
    """Return the same shape with events, leaves and groups in the order of time, which decides everything else.

    The shape names every event exactly once (`problems` is empty).
    """
    at = {event.event_id: position for position, event in enumerate(events)}
    leaves = [
        LeafShape(events=tuple(sorted(leaf.events, key=at.__getitem__)), words=leaf.words, continues=leaf.continues)
        for leaf in shape.leaves
    ]
    order = sorted(range(len(leaves)), key=lambda position: at[leaves[position].events[0]])
    moved = {position: place for place, position in enumerate(order)}
    groups = [
        GroupShape(leaves=tuple(sorted(moved[position] for position in group.leaves)), words=group.words)
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
    """Return in words what keeps a shape from being used; empty when it may be.

    Args:
        names: what events are called in the words, where not by their ids.
    """
    return list(_problems(shape, events, settings, names or {}))


def plan_shaped(
    scope: Participants, events: Sequence[PlanEvent], shape: UnitShape, settings: PlannerSettings
) -> list[Node]:
    """Return a unit's nodes as `plan_unit` does, the top node last, but divided and described as the shape says.

    `problems` must be empty. More children than a node may have are divided evenly.
    """
    shape = in_order(shape, events)
    by_id = {event.event_id: event for event in events}
    leaves = [
        _leaf(scope, [by_id[event_id] for event_id in leaf.events], leaf, settings, is_unit=len(shape.leaves) == 1)
        for leaf in shape.leaves
    ]
    grouped = {leaf: group for group in shape.groups for leaf in group.leaves}
    row: list[Branch] = []
    groups: list[Branch] = []
    for position, leaf in enumerate(leaves):
        group = grouped.get(position)
        if group is None:
            row.append(leaf)
        elif group.leaves[0] == position:
            groups.append(parent_of(scope, [leaves[at] for at in group.leaves], 1, partial(_worded, group.words)))
            row.append(groups[-1])
    describe_unit = partial(_worded, shape.words, is_unit=True)
    below = [branch.node for branch in (*leaves, *groups)]
    return below + grown(scope, row, describe_unit, settings, level=1 if shape.groups else LEAF_LEVEL)


def _leaf(
    scope: Participants, inside: Sequence[PlanEvent], shape: LeafShape, settings: PlannerSettings, *, is_unit: bool
) -> Branch:
    (read,) = UnitReading([inside], participants=scope, settings=settings).leaf_descriptions
    metadata = {**read.description.metadata, "units": int(is_unit), **_origin(shape.words, len(inside))}
    if shape.continues is not None:
        metadata["continues"] = shape.continues
    description = Description(label=shape.words.label, summary=shape.words.summary, metadata=metadata)
    return leaf_over(scope, inside, read, description, is_unit=is_unit)


def _worded(words: Words, children: Sequence[Outline], *, is_unit: bool = False) -> Description:
    """Return the metadata that children give, with a model's words."""
    metadata = describe_part(children, is_unit=is_unit).metadata
    return Description(
        label=words.label, summary=words.summary, metadata={**metadata, **_origin(words, metadata["events"])}
    )


def _origin(words: Words, events: int) -> dict[str, Any]:
    """Return what a node's metadata keeps of its words: who wrote them, what they rest on, the subject they name."""
    return {"written_by": "model", "rests_on": list(words.rests_on), "subjects": [[words.label, events]]}


def _problems(
    shape: UnitShape, events: Sequence[PlanEvent], settings: PlannerSettings, names: Mapping[str, str]
) -> Iterator[str]:
    known = {event.event_id for event in events}
    times: dict[str, int] = {}
    if not shape.leaves:
        yield "there is no leaf"
    for position, leaf in enumerate(shape.leaves, 1):
        where = f"leaf {position}"
        for event_id in leaf.events:
            times[event_id] = times.get(event_id, 0) + 1
        if len(leaf.events) > settings.leaf_max:
            yield f"{where} has {len(leaf.events)} events, at most {settings.leaf_max} are allowed"
        if len(leaf.events) < min(settings.leaf_min, len(events)):
            yield f"{where} has {len(leaf.events)} events, at least {settings.leaf_min} are needed: merge it"
        if leaf.continues is not None and len(leaf.continues) > TOPIC_ID_CHARACTERS:
            yield f"{where} continues what is no topic"
        yield from _word_problems(leaf.words, where, set(leaf.events), LEAF_SUMMARY_CHARACTERS, names)
    for event in events:
        if times.get(event.event_id, 0) != 1:
            count = times.get(event.event_id, 0)
            yield f"{names.get(event.event_id, event.event_id)} is in {count} leaves instead of one"
    for event_id in sorted(set(times) - known):
        yield f"{names.get(event_id, event_id)} is no event of this unit"
    yield from _group_problems(shape, settings, names)
    if len(shape.leaves) > 1:
        yield from _word_problems(shape.words, "the unit", known, INTERNAL_SUMMARY_CHARACTERS, names)


def _group_problems(shape: UnitShape, settings: PlannerSettings, names: Mapping[str, str]) -> Iterator[str]:
    times: dict[int, int] = {}
    for position, group in enumerate(shape.groups, 1):
        where = f"group {position}"
        for leaf in group.leaves:
            times[leaf] = times.get(leaf, 0) + 1
        inside = [shape.leaves[leaf] for leaf in group.leaves if 0 <= leaf < len(shape.leaves)]
        if len(inside) != len(group.leaves):
            yield f"{where} names a leaf that is not there"
        if not 2 <= len(group.leaves) <= settings.max_fan_out:
            yield f"{where} has {len(group.leaves)} leaves instead of 2 to {settings.max_fan_out}"
        if len(shape.leaves) > 1 and len(set(group.leaves)) == len(shape.leaves):
            yield f"{where} holds every leaf: leave it out, the unit is their parent"
        below = {event_id for leaf in inside for event_id in leaf.events}
        yield from _word_problems(group.words, where, below, INTERNAL_SUMMARY_CHARACTERS, names)
    for leaf in sorted(times):
        if times[leaf] > 1:
            yield f"leaf {leaf + 1} is in {times[leaf]} groups"


def _word_problems(words: Words, where: str, inside: set[str], most: int, names: Mapping[str, str]) -> Iterator[str]:
    for what, text, limit in (("label", words.label, LABEL_CHARACTERS), ("summary", words.summary, most)):
        if not text:
            yield f"{where} has no {what}"
        elif clean(text) != text:
            yield f"the {what} of {where} is not one line of plain text"
        if len(text) > limit:
            yield f"the {what} of {where} has {len(text)} characters, at most {limit} are allowed"
    if not words.rests_on:
        yield f"{where} does not say which events its summary rests on"
    if len(words.rests_on) > RESTS_ON_MOST:
        yield f"{where} rests on {len(words.rests_on)} events, name at most {RESTS_ON_MOST}"
    for event_id in sorted(set(words.rests_on) - inside):
        yield f"{where} rests on {names.get(event_id, event_id)}, which it does not hold"
