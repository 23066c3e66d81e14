"""Identities of nodes, renderings and topics, and the nodes that carry them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from operator import attrgetter
from typing import Any

from myria.log.canonical import digest, quick_digest
from myria.log.scopes import scope_key
from myria.settings.planner import PlannerSettings
from myria.topics.model import (
    INTERNAL,
    LEAF,
    LEAF_LEVEL,
    SUBJECT,
    Description,
    Node,
    NodeBase,
    NodeType,
    Outline,
    Participants,
    Ref,
)
from myria.versions import PLANNER_VERSION

SCHEMA = 1
"""Version of the hashed bodies."""

_ANCHOR_SEQ, _EVENT_SEQ = attrgetter("anchor_seq"), attrgetter("event_seq")
_KEY = attrgetter("key")

ID_BYTES = 32
"""Bytes of an identity of a node or a rendering."""

_SUBJECT_LEVELS = 1000
"""Level of a node over all subjects; below it, a level is less by the length of the prefix. No path is so long."""


def leaf_node_id(participants: Participants, event_ids: Iterable[str]) -> bytes:
    """Return the 32-byte identity of a leaf: the hash of its participants and its set of events, nothing else."""
    return quick_digest(
        {
            "schema": SCHEMA,
            "node_type": LEAF,
            "participants": list(participants),
            "events": sorted(event_ids),
        }
    )


def internal_node_id(participants: Participants, leaf_ids: bytes) -> bytes:
    """Return the 32-byte identity of an internal node: its participants and its set of descendant leaves.

    `leaf_ids` are the leaves' identities, joined in any order.
    """
    return quick_digest(
        {
            "schema": SCHEMA,
            "node_type": INTERNAL,
            "participants": list(participants),
            "leaves": sorted(leaf_ids[start : start + ID_BYTES].hex() for start in range(0, len(leaf_ids), ID_BYTES)),
        }
    )


def rendering_id(
    *,
    node_id: bytes,
    level: int,
    label: str,
    summary: str,
    metadata: Mapping[str, Any],
    children: Sequence[bytes],
) -> bytes:
    """Return the 32-byte identity of a rendering: the hash of all that it shows and of its children, in order."""
    return quick_digest(
        {
            "schema": SCHEMA,
            "node_id": node_id.hex(),
            "level": level,
            "label": label,
            "summary": summary,
            "metadata": metadata,
            "children": [child.hex() for child in children],
        }
    )


@lru_cache(maxsize=64)
def _scope_hex(participants: Participants) -> str:
    return scope_key(participants).hex()


def topic_id(participants: Participants, node_type: NodeType, level: int, anchor_event_id: str) -> str:
    """Return the id of a topic: its scope, kind, height and the member event that arrived first.

    On a split the part that holds the anchor keeps the id; on a merge the older topic's id remains.
    """
    return _topic_id(participants, node_type=node_type, level=level, anchor=anchor_event_id)


def _topic_id(participants: Participants, **place: str | int) -> str:
    return f"top_{quick_digest({'scope': _scope_hex(participants), **place}).hex()[:32]}"


def leaf_node(
    participants: Participants,
    description: Description,
    *,
    refs: tuple[Ref, ...],
    key_digest: bytes,
    first_at: int,
    last_at: int,
    is_unit: bool,
) -> Node:
    """Return the leaf over `refs` (in the order of their events) with all its identities.

    `key_digest` is the content key of the first event.
    """
    anchor = min(refs, key=_EVENT_SEQ)
    return _rendered_node(
        description,
        node_id=leaf_node_id(participants, [ref.event_id for ref in refs]),
        node_type=LEAF,
        level=LEAF_LEVEL,
        topic_id=topic_id(participants, LEAF, LEAF_LEVEL, anchor.event_id),
        anchor_seq=anchor.event_seq,
        anchor_event_id=anchor.event_id,
        refs=refs,
        events=len(refs),
        leaves=1,
        units=int(is_unit),
        is_unit=is_unit,
        key_timestamp=first_at,
        key_digest=key_digest,
        key_event_id=refs[0].event_id,
        first_at=first_at,
        last_at=last_at,
    )


def internal_node(
    participants: Participants,
    description: Description,
    *,
    level: int,
    children: Sequence[Outline],
    leaf_ids: bytes,
    is_unit: bool = False,
) -> Node:
    """Return the internal node over `children` with all its identities; `leaf_ids` are those of its leaves."""
    anchor = min(children, key=_ANCHOR_SEQ)
    return _rendered_node(
        description,
        node_id=internal_node_id(participants, leaf_ids),
        node_type=INTERNAL,
        level=level,
        topic_id=topic_id(participants, INTERNAL, level, anchor.anchor_event_id),
        children=tuple(child.rendering_id for child in children),
        child_leaves=tuple(child.node_id if child.is_leaf else b"" for child in children),
        units=int(is_unit) or sum(child.units for child in children),
        is_unit=is_unit,
        **_totals(children, first=children[0], anchor=anchor),
    )


def subject_node_id(participants: Participants, prefix: str, children: Iterable[bytes]) -> bytes:
    """Return the 32-byte identity of a node of subjects: its place among them, and its children's node_ids.

    It hashes the children only, not all leaves beneath: a leaf that is filed otherwise then costs one path of nodes.
    """
    return quick_digest(
        {
            "schema": SCHEMA,
            "node_type": SUBJECT,
            "participants": list(participants),
            "prefix": prefix,
            "children": [child.hex() for child in sorted(children)],
        }
    )


def subject_node(
    participants: Participants,
    description: Description,
    *,
    prefix: str,
    children: Sequence[Node],
    is_subject: bool,
) -> Node:
    """Return the node of subjects over `children` with all its identities.

    `prefix` is what the paths of all that lies beneath begin with (`myria.topics.subjects.trie`); it is a part of the
    topic's id, so that two subjects that begin with the same event have different ids. `units` counts subjects.
    """
    anchor = min(children, key=_ANCHOR_SEQ)
    return _rendered_node(
        description,
        node_id=subject_node_id(participants, prefix, [child.node_id for child in children]),
        node_type=SUBJECT,
        level=_SUBJECT_LEVELS - len(prefix),
        topic_id=_topic_id(participants, node_type=SUBJECT, prefix=prefix, anchor=anchor.anchor_event_id),
        children=tuple(child.rendering_id for child in children),
        units=int(is_subject) or sum(child.units for child in children if child.node_type == SUBJECT),
        is_unit=is_subject,
        **_totals(children, first=min(children, key=_KEY), anchor=anchor),
    )


def _totals(children: Sequence[NodeBase], *, first: NodeBase, anchor: NodeBase) -> dict[str, Any]:
    """Return the fields that a node derives from its children; `first` is the child with the first event."""
    # Lists are faster than generators here, and these sums run for every node of a build.
    return {
        "anchor_seq": anchor.anchor_seq,
        "anchor_event_id": anchor.anchor_event_id,
        "events": sum([child.events for child in children]),
        "leaves": sum([child.leaves for child in children]),
        "key_timestamp": first.key_timestamp,
        "key_digest": first.key_digest,
        "key_event_id": first.key_event_id,
        "first_at": min([child.first_at for child in children]),
        "last_at": max([child.last_at for child in children]),
    }


def _rendered_node(
    description: Description, *, node_id: bytes, level: int, children: tuple[bytes, ...] = (), **other_fields: Any
) -> Node:
    """Return a node with its description and children, under the rendering id that is the hash of these."""
    hashed: dict[str, Any] = {
        "node_id": node_id,
        "level": level,
        "label": description.label,
        "summary": description.summary,
        "metadata": description.metadata,
        "children": children,
    }
    return Node(rendering_id=rendering_id(**hashed), **hashed, **other_fields)


def settings_digest(settings: PlannerSettings) -> bytes:
    """Return the 32-byte identity of `settings` under this planner version; a build stores it."""
    tree_settings = asdict(settings) | {"hash_cut": settings.hash_cut}
    del tree_settings["subjects"]
    return digest({"planner": PLANNER_VERSION, "settings": tree_settings})
