"""The rules a tree must keep before it may be served, each with its name.

Every rule is a pure function of a `Candidate`: the nodes that were planned, the old nodes beside them, and the events
of the planned part. A builder validates the units it replanned and their paths; `verify` validates whole trees. A plan
from a model is held to the same rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from myria.settings.planner import PlannerSettings
from myria.topics.describe import (
    HINTS,
    INTERNAL_SUMMARY_CHARACTERS,
    KEYWORDS,
    LABEL_CHARACTERS,
    LEAF_SUMMARY_CHARACTERS,
    SPEAKERS,
    SUBJECTS,
)
from myria.topics.identity import internal_node_id, leaf_node_id, rendering_id, topic_id
from myria.topics.model import LEAF_LEVEL, UNIT_LEVEL, Node, Participants, PlanEvent, group_level, leaf_ids_of
from myria.topics.phrases import PHRASES
from myria.topics.trie import key_digits

_COUNTED_FIELDS = ("events", "leaves", "units", "first_at", "last_at")
_LISTS = {"keywords": KEYWORDS, "phrases": PHRASES, "speakers": SPEAKERS, "hints": HINTS, "subjects": SUBJECTS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """A broken rule; `node_id` is the node's identity, or None when it concerns the tree or an event."""

    rule: str
    message: str
    node_id: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceEvent:
    """What validation needs to know of a stored event."""

    event_seq: int
    event_id: str
    participants: Participants
    internal: bool = False


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A tree that is to be validated, or the part of one that was planned.

    Args:
        participants: the scope.
        settings: the planner's settings.
        root: rendering id of the scope's new root; None for a scope without events.
        nodes: the planned nodes: all of the tree, or the replanned units and the groups above them.
        kept: old nodes that are children of planned nodes, and the root if it is an old node.
        events: the events of the planned units, or of the whole scope; internal ones too if they are known.
        scope_events: how many events the scope's tree covers.
    """

    participants: Participants
    settings: PlannerSettings
    root: bytes | None
    nodes: Sequence[Node]
    events: Sequence[SourceEvent]
    scope_events: int
    kept: Mapping[bytes, Node] = field(default_factory=dict)

    @cached_property
    def planned(self) -> Mapping[bytes, Node]:
        """The planned nodes by rendering id."""
        return {node.rendering_id: node for node in self.nodes}

    @cached_property
    def events_by_id(self) -> Mapping[str, SourceEvent]:
        """The events by event_id."""
        return {event.event_id: event for event in self.events}

    def node(self, rendering: bytes) -> Node | None:
        """Return a planned or kept node."""
        return self.planned.get(rendering) or self.kept.get(rendering)

    def children(self, node: Node) -> list[Node]:
        """Return the known children of a node, in order."""
        return [child for child in map(self.node, node.children) if child is not None]


Broken = tuple[str, Node | None]
"""A message of what is wrong, and the node that it concerns, if it is one."""

Rule = Callable[[Candidate], Iterator[Broken]]


def refs_resolve(tree: Candidate) -> Iterator[Broken]:
    """Every reference names an event of the planned part, by the same id and sequence, weighed 0..1000."""
    by_id = tree.events_by_id
    for node in tree.nodes:
        for ref in node.refs:
            event = by_id.get(ref.event_id)
            if event is None or event.event_seq != ref.event_seq:
                yield f"reference to {ref.event_id} finds no such event", node
            elif not 0 <= ref.weight <= 1000:
                yield f"reference to {ref.event_id} weighs {ref.weight}", node


def no_orphan_children(tree: Candidate) -> Iterator[Broken]:
    """Every child of a planned node exists, and its parent records whether it is a leaf."""
    for node in tree.nodes:
        if len(node.child_leaves) != len(node.children):
            yield "children and their leaf ids differ in number", node
            continue
        for rendering, leaf_id in zip(node.children, node.child_leaves, strict=True):
            child = tree.node(rendering)
            if child is None:
                yield f"child {rendering.hex()} does not exist", node
            elif leaf_id != (child.node_id if child.is_leaf else b""):
                yield f"child {rendering.hex()} is named by another leaf id", node


def valid_parents(tree: Candidate) -> Iterator[Broken]:
    """One parent per node but the root, at least two children per parent, lower levels below, children in order."""
    parents = Counter(rendering for node in tree.nodes for rendering in node.children)
    for node in tree.nodes:
        if not node.is_leaf and len(node.children) < 2:
            yield "an internal node needs at least two children", node
        if not node.children:
            continue
        children = tree.children(node)
        if any(child.level >= node.level for child in children):
            yield "a child stands as high as its parent", node
        keys = [_child_order(node, child) for child in children]
        if keys != sorted(keys):
            yield "children are out of order", node
    for rendering, times in parents.items():
        kept_child = tree.kept.get(rendering)
        if times > 1 and kept_child is not None and rendering not in tree.planned:
            yield f"{times} parents where 1 belong", kept_child
    for node in tree.nodes:
        expected = 0 if node.rendering_id == tree.root else 1
        if parents[node.rendering_id] != expected:
            yield f"{parents[node.rendering_id]} parents where {expected} belong", node


def root_present(tree: Candidate) -> Iterator[Broken]:
    """A scope with events has a root that covers them all; one without has none."""
    if tree.root is None:
        if tree.scope_events or tree.nodes:
            yield f"{tree.scope_events} events and no root", None
        return
    root = tree.node(tree.root)
    if root is None:
        yield f"root {tree.root.hex()} does not exist", None
    elif root.events != tree.scope_events:
        yield f"root covers {root.events} of {tree.scope_events} events", root


def internal_without_refs(tree: Candidate) -> Iterator[Broken]:
    """Internal nodes refer to no event directly."""
    for node in tree.nodes:
        if not node.is_leaf and node.refs:
            yield f"an internal node holds {len(node.refs)} references", node


def refs_only_in_leaves(tree: Candidate) -> Iterator[Broken]:
    """A leaf holds its references and no child; its level is the lowest."""
    for node in tree.nodes:
        if node.is_leaf and (not node.refs or node.children or node.level != LEAF_LEVEL):
            yield "a leaf needs references, no children and level 0", node
        if not node.is_leaf and node.level <= LEAF_LEVEL:
            yield "an internal node stands on the level of leaves", node


def no_avoidable_singleton_leaf(tree: Candidate) -> Iterator[Broken]:
    """A leaf of one event stands only in a scope of one event."""
    for node in tree.nodes:
        if node.is_leaf and len(node.refs) < 2 <= tree.scope_events:
            yield "one event alone where it could be merged", node


def summaries_have_refs(tree: Candidate) -> Iterator[Broken]:
    """Every label and summary says something, and rests on events."""
    for node in tree.nodes:
        if not node.label or not node.summary:
            yield "label or summary is empty", node
        if node.events < 1 or node.leaves < 1:
            yield "a summary without events beneath it", node


def child_coverage_preserved(tree: Candidate) -> Iterator[Broken]:
    """A parent counts and spans exactly what its children do; a leaf what its references do."""
    for node in tree.nodes:
        children = tree.children(node)
        if node.is_leaf:
            counts: tuple[int, ...] = (len(node.refs), 1)
        elif len(children) < len(node.children) or not children:
            continue
        else:
            counts = (sum(child.events for child in children), sum(child.leaves for child in children))
            span = (min(child.first_at for child in children), max(child.last_at for child in children))
            anchor = min((child.anchor_seq, child.anchor_event_id) for child in children)
            if (node.first_at, node.last_at) != span or node.key != children[0].key:
                yield "the time span is not that of the children", node
            if (node.anchor_seq, node.anchor_event_id) != anchor:
                yield "the anchor is not the oldest of the children's", node
        units = 1 if node.is_unit else sum(child.units for child in children)
        if (node.events, node.leaves) != counts or node.units != units:
            yield "counts differ from what lies beneath", node
        counted = tuple(map(node.metadata.get, _COUNTED_FIELDS))
        if counted != (node.events, node.leaves, node.units, node.first_at, node.last_at):
            yield "metadata tells other counts than the node", node


def no_cross_scope(tree: Candidate) -> Iterator[Broken]:
    """Every node belongs to exactly this scope: its topic id is made of these participants."""
    for node in tree.nodes:
        if node.topic_id != topic_id(tree.participants, node.node_type, node.level, node.anchor_event_id):
            yield "the topic id is not that of this scope and anchor", node


def no_private_refs_in_shared(tree: Candidate) -> Iterator[Broken]:
    """Only events of exactly these participants are referred to, and no internal ones."""
    by_id = tree.events_by_id
    for node in tree.nodes:
        for ref in node.refs:
            event = by_id.get(ref.event_id)
            if event is None:
                continue
            if event.participants != tree.participants:
                yield f"{ref.event_id} belongs to other participants", node
            if event.internal:
                yield f"{ref.event_id} is internal", node


def no_giant_root(tree: Candidate) -> Iterator[Broken]:
    """No node has more children, and no leaf more references, than the settings allow (no over-merging)."""
    for node in tree.nodes:
        if len(node.children) > tree.settings.max_children:
            yield f"{len(node.children)} children", node
        if len(node.refs) > tree.settings.leaf_max:
            yield f"{len(node.refs)} references in one leaf", node


def no_dust(tree: Candidate) -> Iterator[Broken]:
    """No more leaves than the smallest leaf allows (no under-merging)."""
    for node in tree.nodes:
        if node.leaves > max(1, node.events // 2):
            yield f"{node.leaves} leaves over {node.events} events", node


def summary_bounded(tree: Candidate) -> Iterator[Broken]:
    """Labels, summaries and metadata keep their bounds; metadata holds integers and texts only."""
    for node in tree.nodes:
        limit = LEAF_SUMMARY_CHARACTERS if node.is_leaf else INTERNAL_SUMMARY_CHARACTERS
        if len(node.label) > LABEL_CHARACTERS or len(node.summary) > limit:
            yield "label or summary is too long", node
        for name, most in _LISTS.items():
            pairs = node.metadata.get(name, [])
            if len(pairs) > most or not _are_weighed(pairs):
                yield f"metadata {name} is malformed or too long", node


def depth_bounded(tree: Candidate) -> Iterator[Broken]:
    """Levels stay on the ladder; as they fall on the way down, they bound the depth."""
    for node in tree.nodes:
        if not LEAF_LEVEL <= node.level <= group_level(0):
            yield f"level {node.level} is not on the ladder", node
        if node.is_unit and node.level not in (LEAF_LEVEL, UNIT_LEVEL):
            yield f"a unit on level {node.level}", node


def each_event_exactly_once(tree: Candidate) -> Iterator[Broken]:
    """Each event of the planned part that is not internal is in exactly one leaf."""
    times = Counter(ref.event_id for node in tree.nodes for ref in node.refs)
    for event in tree.events:
        if not event.internal and times[event.event_id] != 1:
            yield f"{event.event_id} is in {times[event.event_id]} leaves", None


def identities_recompute(tree: Candidate) -> Iterator[Broken]:
    """Node and rendering ids are the hashes of what they name; a kept subtree may hide which leaves it has."""
    ids_beneath = {rendering: leaf_ids_of(node) for rendering, node in tree.kept.items()}
    for node in tree.nodes:  # children come before their parents
        if node.is_leaf:
            expected = leaf_node_id(tree.participants, [ref.event_id for ref in node.refs])
            ids_beneath[node.rendering_id] = node.node_id
        else:
            known_ids = [ids for child in node.children if (ids := ids_beneath.get(child)) is not None]
            is_known = len(known_ids) == len(node.children)
            ids_beneath[node.rendering_id] = b"".join(known_ids) if is_known else None
            expected = internal_node_id(tree.participants, b"".join(known_ids)) if is_known else node.node_id
        if node.node_id != expected:
            yield "node_id is not the hash of its body", node
        if node.rendering_id != rendering_id(
            node_id=node.node_id,
            level=node.level,
            label=node.label,
            summary=node.summary,
            metadata=node.metadata,
            children=node.children,
        ):
            yield "rendering_id is not the hash of its body", node


RULES: tuple[Rule, ...] = (
    refs_resolve,
    no_orphan_children,
    valid_parents,
    root_present,
    internal_without_refs,
    refs_only_in_leaves,
    no_avoidable_singleton_leaf,
    summaries_have_refs,
    child_coverage_preserved,
    no_cross_scope,
    no_private_refs_in_shared,
    no_giant_root,
    no_dust,
    summary_bounded,
    depth_bounded,
    each_event_exactly_once,
    identities_recompute,
)
"""Every validation rule; a rule's name is its function's name."""

RULE_NAMES: tuple[str, ...] = tuple(rule.__name__ for rule in RULES)


def validate(tree: Candidate) -> list[Violation]:
    """Return every broken rule; an empty list means that the tree may be served."""
    return [
        Violation(rule=rule.__name__, message=message, node_id=None if node is None else node.node_id)
        for rule in RULES
        for message, node in rule(tree)
    ]


def validate_unit(
    nodes: Sequence[Node], events: Sequence[PlanEvent], *, participants: Participants, settings: PlannerSettings
) -> list[Violation]:
    """Return every rule that a planned unit of these events breaks; its top node is last."""
    return validate(
        Candidate(
            participants=participants,
            settings=settings,
            root=nodes[-1].rendering_id,
            nodes=nodes,
            events=[
                SourceEvent(event_seq=event.event_seq, event_id=event.event_id, participants=participants)
                for event in events
            ],
            scope_events=len(events),
        )
    )


def _child_order(parent: Node, child: Node) -> tuple[int, str]:
    """Return a child's sort key: the unit's key under a group, the time under a unit or a part."""
    if parent.level > UNIT_LEVEL:
        return (0, key_digits(child.key))
    return (child.first_at, "")


def _are_weighed(pairs: Sequence[Sequence[object]]) -> bool:
    """Tell whether a list in metadata holds only pairs of a text and an integer weight."""
    return all(len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int for pair in pairs)
