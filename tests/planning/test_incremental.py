"""Incremental equals full: any split of a log into builds, any order of arrival (rule 7 of docs/architecture.md)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.settings.planner import PlannerSettings
from myria.topics.model import Node, Outline, PlanEvent, Unit, UnitKey
from myria.topics.scope_plan import changed_units, plan_scope, plan_unit, split_units
from myria.topics.trie import assemble
from tests.planning.generators import DENSE, GAPS, MINUTE, SCOPE, SETTINGS, key_of, scopes
from tests.support.counts import CHECK, SOAK, examples
from tests.support.trees import MemoryEvents, MemoryTree


async def incremental(
    tree: MemoryTree,
    root: Outline | None,
    known: Sequence[PlanEvent],
    new: Sequence[PlanEvent],
    rules: PlannerSettings,
    *,
    gone: Sequence[PlanEvent] = (),
) -> tuple[Outline | None, list[Node], MemoryEvents]:
    """Bring a tree over `known` up to `known` + `new` - `gone`; return the root and the nodes written."""
    events = MemoryEvents([*known, *new])
    removed: set[UnitKey] = set()
    written: list[Node] = []
    units: list[Unit] = []
    positions, leaving = [event.position for event in new], [event.position for event in gone]
    async for changes in changed_units(positions, events, rules, gone=leaving):
        assert removed.isdisjoint(changes.removed)
        removed.update(changes.removed)
        for unit in changes.added:
            planned = plan_unit(SCOPE, unit, rules)
            written.extend(planned)
            units.append(Unit.of(planned))
    tree.add(written)
    top, groups = await assemble(
        root.rendering_id if root else None, removed, units, tree, participants=SCOPE, settings=rules
    )
    tree.add(groups)
    return top, written + groups, events


def arrived(events: Sequence[PlanEvent]) -> list[PlanEvent]:
    """The same events with the sequence numbers of this order of arrival."""
    return [replace(event, event_seq=seq) for seq, event in enumerate(events)]


async def full(events: Sequence[PlanEvent], rules: PlannerSettings) -> bytes | None:
    """The root rendering id of a full plan."""
    root, _ = await plan_scope(SCOPE, sorted(events, key=lambda event: event.position), rules)
    return root.rendering_id if root else None


@settings(max_examples=examples(150), deadline=None)
@given(scopes(90, gaps=GAPS), st.sampled_from([SETTINGS, DENSE]), st.data())
async def test_any_split_and_any_order_of_arrival(
    events: list[PlanEvent], rules: PlannerSettings, data: st.DataObject
) -> None:
    """Builds after any events, in any order of arrival, end with the root of one full build."""
    order = arrived(data.draw(st.permutations(events)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(order)), max_size=6)))
    tree, root, start = MemoryTree(), None, 0
    for end in [*cuts, len(order)]:
        root, _, _ = await incremental(tree, root, order[:start], order[start:end], rules)
        start = end
    assert (root.rendering_id if root else None) == await full(order, rules)
    assert await full(order, rules) == await full(arrived(events), rules)
    if root:
        reached = tree.under(root.rendering_id)
        seqs = sorted(ref.event_seq for node in reached for ref in node.refs)
        assert seqs == list(range(len(order)))
        assert root.anchor_seq == 0


@settings(max_examples=examples(50), deadline=None)
@given(scopes(60, gaps=GAPS), st.sampled_from([SETTINGS, DENSE]), st.data())
async def test_events_may_go_and_come_back(
    events: list[PlanEvent], rules: PlannerSettings, data: st.DataObject
) -> None:
    """Builds that bring any events in, back, and take any out, down to none, each end with the root of a full build."""
    tree, root = MemoryTree(), None
    present: list[PlanEvent] = []
    numbers = st.sets(st.sampled_from(range(len(events)))) if events else st.just(set[int]())
    for _ in range(data.draw(st.integers(1, 4))):
        chosen = data.draw(numbers | st.just(set(range(len(events)))) | st.just(set[int]()))
        wanted = [event for at, event in enumerate(events) if at in chosen]
        known = set(present)
        new = [event for event in wanted if event not in known]
        gone = [event for event in present if event not in set(wanted)]
        root, _, _ = await incremental(tree, root, present, new, rules, gone=gone)
        present = wanted
        assert (root.rendering_id if root else None) == await full(wanted, rules)


@settings(max_examples=examples(60), deadline=None)
@given(scopes(60), st.sampled_from([SETTINGS, DENSE]), st.data())
async def test_any_split_with_equal_timestamps(
    events: list[PlanEvent], rules: PlannerSettings, data: st.DataObject
) -> None:
    """With equal timestamps too, any split of the log in its order of arrival ends with the full root."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=6)))
    late_first = data.draw(st.booleans())
    parts = [events[a:b] for a, b in zip([0, *cuts], [*cuts, len(events)], strict=True)]
    if late_first:
        parts.reverse()
    tree, root = MemoryTree(), None
    known: list[PlanEvent] = []
    for part in parts:
        root, _, _ = await incremental(tree, root, known, part, rules)
        known.extend(part)
    assert (root.rendering_id if root else None) == await full(events, rules)


@settings(max_examples=examples(60), deadline=None)
@given(scopes(120, gaps=GAPS), st.data())
async def test_units_may_go_and_come_in_any_order(events: list[PlanEvent], data: st.DataObject) -> None:
    """The tree is a function of its set of units: grown past a flat group, shrunk back, emptied."""
    units = [Unit.of(plan_unit(SCOPE, unit, DENSE)) for unit in split_units(events, DENSE)]
    tree = MemoryTree(node for unit in split_units(events, DENSE) for node in plan_unit(SCOPE, unit, DENSE))
    present: dict[UnitKey, Unit] = {}
    root = None
    for _ in range(data.draw(st.integers(1, 4))):
        chosen = data.draw(st.sets(st.sampled_from(range(len(units))))) if units else set()
        wanted = {units[index].key: units[index] for index in chosen}
        replaced = {key for key in wanted if key in present and key[0] % 2}
        removed = (present.keys() - wanted.keys()) | replaced
        added = [unit for key, unit in wanted.items() if key not in present or key in replaced]
        root, groups = await assemble(
            root.rendering_id if root else None, removed, added, tree, participants=SCOPE, settings=DENSE
        )
        tree.add(groups)
        present = wanted
        expected, _ = await assemble(None, set(), list(wanted.values()), tree, participants=SCOPE, settings=DENSE)
        assert (root.rendering_id if root else None) == (expected.rendering_id if expected else None)


def long_scope(count: int) -> list[PlanEvent]:
    """Conversations of six events, one every two hours."""
    return [
        PlanEvent(
            event_seq=seq,
            event_id=f"evt_{seq:07}",
            key=key_of(f"evt_{seq:07}"),
            timestamp=(seq // 6) * 120 * MINUTE + seq % 6 * MINUTE,
            text=f"kiln{seq % 37} glaze{seq % 11} pottery",
            speaker="Ana",
        )
        for seq in range(count)
    ]


@pytest.mark.parametrize("count", [600, 12_000 if SOAK else 4_000])
async def test_one_changed_unit_opens_one_path(count: int) -> None:
    """A late event costs the nodes on its path and their children, however long the scope."""
    events = long_scope(count)
    root, nodes = await plan_scope(SCOPE, events, SETTINGS)
    tree = MemoryTree(nodes)
    late = replace(
        events[count // 2],
        event_seq=count,
        event_id="evt_late",
        key=key_of("evt_late"),
        timestamp=events[count // 2].timestamp + 7,
    )
    top, written, read = await incremental(tree, root, events, [late], SETTINGS)
    assert top is not None
    assert top.rendering_id == await full([*events, late], SETTINGS)
    assert len(written) < 20
    assert tree.opened < 100
    assert tree.calls < 90
    assert read.read < 300


async def test_appended_events_touch_the_end_alone() -> None:
    """New events at the end replan the last unit at most, and read only around it."""
    before = 2_001 if CHECK else 6_001
    events = long_scope(before + 2)
    root, nodes = await plan_scope(SCOPE, events[:before], SETTINGS)
    tree = MemoryTree(nodes)
    top, written, read = await incremental(tree, root, events[:before], events[before:], SETTINGS)
    assert top is not None
    assert top.rendering_id == await full(events, SETTINGS)
    assert len(written) < 15
    assert read.read < 200


async def test_a_great_import_streams() -> None:
    """Steps of an import of many new events come as units complete, not all at the end."""
    events = long_scope(3_000)
    steps = [
        step async for step in changed_units([event.position for event in events[10:]], MemoryEvents(events), SETTINGS)
    ]
    assert max(len(step.added) for step in steps) <= 3
    assert sum(len(unit) for step in steps for unit in step.added) >= 2_990


@pytest.mark.parametrize("count", [600, 12_000 if SOAK else 4_000])
async def test_one_withdrawn_event_opens_one_path(count: int) -> None:
    """An event that goes costs the nodes on its path and their children, however long the scope."""
    events = long_scope(count)
    root, nodes = await plan_scope(SCOPE, events, SETTINGS)
    tree = MemoryTree(nodes)
    gone = events[count // 2]
    top, written, read = await incremental(tree, root, events, [], SETTINGS, gone=[gone])
    assert top is not None
    assert top.rendering_id == await full([event for event in events if event is not gone], SETTINGS)
    assert len(written) < 20
    assert tree.opened < 100
    assert tree.calls < 90
    assert read.read < 300


async def test_an_unchanged_rebuild_writes_no_group() -> None:
    """Replacing a unit by itself gives the old root and no new node."""
    events = long_scope(600)
    root, nodes = await plan_scope(SCOPE, events, SETTINGS)
    assert root is not None
    unit = Unit.of(plan_unit(SCOPE, next(split_units(events, SETTINGS)), SETTINGS))
    top, groups = await assemble(
        root.rendering_id, {unit.key}, [unit], MemoryTree(nodes), participants=SCOPE, settings=SETTINGS
    )
    assert top is not None
    assert (top.rendering_id, groups) == (root.rendering_id, [])


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([SETTINGS, DENSE]))
async def test_changed_units_turn_the_old_units_into_the_new(seed: int, rules: PlannerSettings) -> None:
    """Late and withdrawn events anywhere: old units less the removed, with the added, are the new units."""
    chance = random.Random(seed)
    steps = chance.choices(GAPS, weights=[4, 4, 4, chance.choice([1, 30]), chance.choice([1, 30]), 1, 1, 0], k=400)
    events = [
        PlanEvent(event_seq=seq, event_id=f"evt_{seed}_{seq}", key=key_of(f"evt_{seed}_{seq}"), timestamp=at)
        for seq, at in enumerate(accumulate(steps))
    ]
    changed = set(chance.sample(range(400), chance.choice([1, 1, 2, 5, 40])))
    changed |= {seq for first in list(changed)[:2] for seq in range(first, min(400, first + chance.choice([1, 3, 80])))}
    share_gone = chance.choice([0, 0.5, 1])
    gone = {seq for seq in sorted(changed) if chance.random() < share_gone}
    late = changed - gone
    old = {unit[0].position: unit for unit in split_units([e for e in events if e.event_seq not in late], rules)}
    wanted = list(split_units([e for e in events if e.event_seq not in gone], rules))
    keys = {(unit[0].timestamp, unit[0].key): position for position, unit in old.items()}
    reader = MemoryEvents(events)
    added: list[tuple[PlanEvent, ...]] = []
    leaving = [events[seq].position for seq in gone]
    async for step in changed_units([events[seq].position for seq in late], reader, rules, gone=leaving):
        for key in step.removed:
            del old[keys.pop(key)]
        added.extend(step.added)
    assert sorted([*old.values(), *added], key=lambda unit: unit[0].position) == wanted
