"""Every rule of §12 lets a sound tree pass and names what breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.settings.planner import PlannerSettings
from myria.topics.identity import internal_node, leaf_node
from myria.topics.model import INTERNAL, LEAF, Description, Node, Outline, PlanEvent, Ref, Unit, UnitKey
from myria.topics.scope_plan import changed_units, plan_scope, plan_unit
from myria.topics.trie import assemble
from myria.topics.validation import RULE_NAMES, Candidate, SourceEvent, validate
from tests.planning.generators import DENSE, GAPS, MINUTE, SCOPE, SETTINGS, key_of, scopes
from tests.support.counts import examples
from tests.support.trees import MemoryEvents, MemoryTree, RememberingReader


def sources(events: Iterable[PlanEvent]) -> list[SourceEvent]:
    """The events as the store knows them."""
    return [SourceEvent(event_seq=event.event_seq, event_id=event.event_id, participants=SCOPE) for event in events]


@settings(max_examples=examples(60), deadline=None)
@given(scopes(80), st.sampled_from([SETTINGS, DENSE]))
async def test_every_full_plan_is_sound(events: list[PlanEvent], rules: PlannerSettings) -> None:
    """The deterministic planner breaks no rule, whatever the events."""
    root, nodes = await plan_scope(SCOPE, events, rules)
    tree = Candidate(
        participants=SCOPE,
        settings=rules,
        root=root.rendering_id if root else None,
        nodes=nodes,
        events=sources(events),
        scope_events=len(events),
    )
    assert validate(tree) == []


@settings(max_examples=examples(60), deadline=None)
@given(scopes(80, gaps=GAPS), st.data())
async def test_every_incremental_part_is_sound(events: list[PlanEvent], data: st.DataObject) -> None:
    """The replanned units with the groups above them pass as a part, the old nodes standing beside."""
    late = data.draw(st.sets(st.sampled_from(range(len(events))), max_size=3)) if events else set()
    old = [event for at, event in enumerate(events) if at not in late]
    root, nodes = await plan_scope(SCOPE, old, DENSE)
    reader = RememberingReader(MemoryTree(nodes))
    removed: set[UnitKey] = set()
    written: list[Node] = []
    units: list[Unit] = []
    inside: list[PlanEvent] = []
    async for step in changed_units([events[at].position for at in late], MemoryEvents(events), DENSE):
        removed.update(step.removed)
        for unit in step.added:
            inside.extend(unit)
            written.extend(plan_unit(SCOPE, unit, DENSE))
            units.append(Unit.of(plan_unit(SCOPE, unit, DENSE)))
    top, groups = await assemble(
        root.rendering_id if root else None, removed, units, reader, participants=SCOPE, settings=DENSE
    )
    tree = Candidate(
        participants=SCOPE,
        settings=DENSE,
        root=top.rendering_id if top else None,
        nodes=written + groups,
        events=sources(inside),
        scope_events=len(events),
        kept=reader.seen,
    )
    assert validate(tree) == []


@cache
def sound() -> Candidate:
    """A small sound tree: two days, several units, leaves and groups."""
    events = [
        PlanEvent(
            event_seq=seq,
            event_id=f"evt_{seq:03}",
            key=key_of(f"evt_{seq:03}"),
            timestamp=seq // 15 * 1500 * MINUTE + seq % 15 * MINUTE,
            text=f"the kiln {seq} glaze",
            speaker="Ana",
        )
        for seq in range(150)
    ]
    root, nodes = asyncio.run(plan_scope(SCOPE, events, SETTINGS))
    assert root is not None
    return Candidate(
        participants=SCOPE,
        settings=SETTINGS,
        root=root.rendering_id,
        nodes=nodes,
        events=sources(events),
        scope_events=len(events),
    )


def first(kind: str) -> Node:
    """The first leaf or the first internal node of the sound tree."""
    return next(node for node in sound().nodes if node.node_type == kind)


def with_node(node: Node, **changes: Any) -> Candidate:
    """The sound tree with one node changed in place."""
    tree = sound()
    return replace(tree, nodes=[replace(node, **changes) if other is node else other for other in tree.nodes])


def cross_scope() -> Candidate:
    """A leaf that was hashed for other participants."""
    leaf = first(LEAF)
    other = leaf_node(
        ("ana",),
        Description(label=leaf.label, summary=leaf.summary, metadata=leaf.metadata),
        refs=leaf.refs,
        key_digest=leaf.key_digest,
        first_at=leaf.first_at,
        last_at=leaf.last_at,
        is_unit=leaf.is_unit,
    )
    return replace(sound(), nodes=[other if node is leaf else node for node in sound().nodes])


def giant() -> Candidate:
    """One internal node over all leaves."""
    leaves = [node for node in sound().nodes if node.node_type == LEAF]
    root = internal_node(
        SCOPE,
        Description(label="all", summary="all", metadata=sound().nodes[-1].metadata),
        level=8,
        children=[Outline.of(leaf) for leaf in leaves],
        leaf_ids=b"".join([leaf.node_id for leaf in leaves]),
        is_unit=True,
    )
    return replace(sound(), nodes=[*leaves, root], root=root.rendering_id)


def with_event(**changes: Any) -> Candidate:
    """The sound tree with its first event changed."""
    tree = sound()
    return replace(tree, events=[replace(tree.events[0], **changes), *tree.events[1:]])


BROKEN: dict[str, Callable[[], Candidate]] = {
    "refs_resolve": lambda: replace(sound(), events=sound().events[1:]),
    "no_orphan_children": lambda: replace(sound(), nodes=sound().nodes[1:]),
    "valid_parents": lambda: with_node(first(INTERNAL), children=first(INTERNAL).children[::-1]),
    "root_present": lambda: replace(sound(), root=b"r" * 32),
    "internal_without_refs": lambda: with_node(first(INTERNAL), refs=first(LEAF).refs),
    "refs_only_in_leaves": lambda: with_node(first(LEAF), level=3),
    "no_avoidable_singleton_leaf": lambda: with_node(first(LEAF), refs=first(LEAF).refs[:1]),
    "summaries_have_refs": lambda: with_node(first(INTERNAL), summary=""),
    "child_coverage_preserved": lambda: with_node(first(INTERNAL), events=first(INTERNAL).events + 1),
    "no_cross_scope": cross_scope,
    "no_private_refs_in_shared": lambda: with_event(participants=("ana",)),
    "no_giant_root": giant,
    "no_dust": lambda: with_node(first(INTERNAL), leaves=first(INTERNAL).events),
    "summary_bounded": lambda: with_node(first(LEAF), summary="s" * 401),
    "depth_bounded": lambda: with_node(sound().nodes[-1], level=92),
    "each_event_exactly_once": lambda: with_node(
        first(LEAF), refs=(*first(LEAF).refs, Ref(event_seq=149, event_id="evt_149", weight=1))
    ),
    "identities_recompute": lambda: with_node(first(LEAF), label="another label"),
}


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_each_rule_names_what_breaks_it(rule: str) -> None:
    """A tree broken in one way is refused under that rule's name, with a message."""
    found = [violation for violation in validate(BROKEN[rule]()) if violation.rule == rule]
    assert found
    assert all(violation.message for violation in found)


def test_internal_events_are_refused_in_leaves() -> None:
    """An internal event in a leaf is a breach, and outside one it is none."""
    assert {violation.rule for violation in validate(with_event(internal=True))} == {"no_private_refs_in_shared"}
    extra = SourceEvent(event_seq=999, event_id="evt_inner", participants=SCOPE, internal=True)
    assert validate(replace(sound(), events=[*sound().events, extra])) == []


def test_a_cycle_ends() -> None:
    """A node that is its own child is refused, not followed for ever."""
    root = sound().nodes[-1]
    rules = {
        violation.rule for violation in validate(with_node(root, children=(*root.children[1:], root.rendering_id)))
    }
    assert "valid_parents" in rules


def test_a_scope_without_events_needs_no_root() -> None:
    """Nothing is sound; events without a root are not."""
    empty = replace(sound(), root=None, nodes=[], events=[], scope_events=0)
    assert validate(empty) == []
    assert {violation.rule for violation in validate(replace(empty, scope_events=2))} == {"root_present"}
