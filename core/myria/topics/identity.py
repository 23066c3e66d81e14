"""Identities of nodes, renderings and topics, and the nodes that carry them."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from myria.log.canonical import canonical_json, digest, quick_digest
from myria.log.scopes import scope_key
from myria.settings.planner import PlannerSettings
from myria.topics.model import INTERNAL, LEAF, LEAF_LEVEL, SUBJECT, Node, NodeType, Outline, Participants, Ref
from myria.versions import PLANNER_VERSION

if TYPE_CHECKING:
    from _hashlib import HASH

SCHEMA = 1
"""Version of the hashed bodies."""

_ANCHOR_SEQ, _EVENT_SEQ = attrgetter("anchor_seq"), attrgetter("event_seq")
_KEY = attrgetter("key_timestamp", "key_digest")

ID_BYTES = 32
"""Bytes of an identity of a node or a rendering."""

_FEW_LEAVES = 512
"""Leaves up to which it takes longer to call numpy."""

_LEAVES_AT_ONCE = 2048
_SEPARATOR = b'","'
_ID = np.dtype((np.void, ID_BYTES))
_LISTED = np.dtype([("separator", np.void, len(_SEPARATOR)), ("digits", np.void, 2 * ID_BYTES)])
"""An identity as it stands in a list of JSON; numpy moves records of bytes as a whole."""

_SUBJECT_LEVELS = 1000
"""Level of a node over every subject; less the longer the prefix that its paths share. No path is so long."""


def leaf_node_id(participants: Participants, event_ids: Iterable[str]) -> bytes:
    """Return the 32-byte identity of a leaf: its participants and its set of events, nothing else."""
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

    `leaf_ids` are the identities of these, one after the other in any order.
    """
    # The canonical JSON of {"leaves", "node_type", "participants", "schema"}, written out: a long scope has
    # hundreds of thousands of leaves.
    body = sha256(b'{"leaves":["')
    _add_listed(body, leaf_ids)
    body.update(b'"],"node_type":"internal_topic","participants":')
    body.update(canonical_json(list(participants)))
    body.update(b',"schema":%d}' % SCHEMA)
    return body.digest()


def _add_listed(body: HASH, leaf_ids: bytes) -> None:
    """Add identities to a hash, in their order, in hexadecimal digits with what separates them in JSON."""
    if len(leaf_ids) > _FEW_LEAVES * ID_BYTES and len(leaf_ids) % ID_BYTES == 0:
        firsts = first_bytes(leaf_ids)
        order = np.argsort(firsts)
        ascending = firsts[order]
        if not bool((ascending[1:] == ascending[:-1]).any()):
            rows = np.frombuffer(leaf_ids, _ID)
            written = np.empty(_LEAVES_AT_ONCE, _LISTED)
            written["separator"] = np.frombuffer(_SEPARATOR, _LISTED["separator"])
            letters = written.view(np.uint8)
            for at in range(0, len(order), _LEAVES_AT_ONCE):
                part = rows.take(order[at : at + _LEAVES_AT_ONCE])
                written["digits"][: len(part)] = np.frombuffer(hexlify(part.data), _LISTED["digits"])
                body.update(letters[0 if at else len(_SEPARATOR) : len(part) * _LISTED.itemsize].data)
            return
    ids = [leaf_ids[at : at + ID_BYTES] for at in range(0, len(leaf_ids), ID_BYTES)]
    ids.sort()
    body.update('","'.join(map(bytes.hex, ids)).encode())


def first_bytes(ids: bytes) -> npt.NDArray[np.uint64]:
    """Return the first eight bytes of each of some identities in a row, as numbers in the order of the identities.

    They are hashes: so much nearly always tells them apart.
    """
    return np.frombuffer(ids, ">u8")[:: ID_BYTES // 8].astype(np.uint64)


def without_ids(ids: bytes, gone: bytes) -> bytes:
    """Return identities in a row without those that are among `gone`."""
    if not gone:
        return ids
    left_out = {gone[at : at + ID_BYTES] for at in range(0, len(gone), ID_BYTES)}
    kept: list[bytes] = []
    begin = 0
    for at in (np.flatnonzero(np.isin(first_bytes(ids), first_bytes(gone))) * ID_BYTES).tolist():
        if ids[at : at + ID_BYTES] in left_out:
            kept.append(ids[begin:at])
            begin = at + ID_BYTES
    return b"".join((*kept, ids[begin:]))


def rendering_id(
    *,
    node_id: bytes,
    level: int,
    label: str,
    summary: str,
    metadata: Mapping[str, Any],
    children: Sequence[bytes],
) -> bytes:
    """Return the 32-byte identity of a rendering: everything shown, and the renderings beneath it in order."""
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
def _scope(participants: Participants) -> str:
    return scope_key(participants).hex()


def topic_id(participants: Participants, node_type: NodeType, level: int, anchor_event_id: str) -> str:
    """Return the id of a topic: its scope, kind, height and the member event that arrived first.

    On a split the part that holds the anchor keeps the id; on a merge the older topic's id remains.
    """
    body = quick_digest(
        {"scope": _scope(participants), "node_type": node_type, "level": level, "anchor": anchor_event_id}
    )
    return f"top_{body.hex()[:32]}"


def leaf_node(
    participants: Participants,
    *,
    label: str,
    summary: str,
    metadata: Mapping[str, Any],
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
    node_id = leaf_node_id(participants, [ref.event_id for ref in refs])
    return Node(
        rendering_id=rendering_id(
            node_id=node_id,
            level=LEAF_LEVEL,
            label=label,
            summary=summary,
            metadata=metadata,
            children=(),
        ),
        node_id=node_id,
        node_type=LEAF,
        level=LEAF_LEVEL,
        topic_id=topic_id(participants, LEAF, LEAF_LEVEL, anchor.event_id),
        anchor_seq=anchor.event_seq,
        anchor_event_id=anchor.event_id,
        label=label,
        summary=summary,
        metadata=metadata,
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
    *,
    level: int,
    label: str,
    summary: str,
    metadata: Mapping[str, Any],
    children: Sequence[Outline],
    leaf_ids: bytes,
    is_unit: bool = False,
) -> Node:
    """Return the internal node over `children` with all its identities; `leaf_ids` are those of its leaves."""
    anchor = min(children, key=_ANCHOR_SEQ)
    node_id = internal_node_id(participants, leaf_ids)
    rendering_ids = tuple(child.rendering_id for child in children)
    return Node(
        rendering_id=rendering_id(
            node_id=node_id,
            level=level,
            label=label,
            summary=summary,
            metadata=metadata,
            children=rendering_ids,
        ),
        node_id=node_id,
        node_type=INTERNAL,
        level=level,
        topic_id=topic_id(participants, INTERNAL, level, anchor.anchor_event_id),
        anchor_seq=anchor.anchor_seq,
        anchor_event_id=anchor.anchor_event_id,
        label=label,
        summary=summary,
        metadata=metadata,
        children=rendering_ids,
        child_leaves=tuple(child.node_id if child.is_leaf else b"" for child in children),
        events=sum([child.events for child in children]),
        leaves=sum([child.leaves for child in children]),
        units=int(is_unit) or sum(child.units for child in children),
        is_unit=is_unit,
        key_timestamp=children[0].key_timestamp,
        key_digest=children[0].key_digest,
        key_event_id=children[0].key_event_id,
        first_at=min([child.first_at for child in children]),
        last_at=max([child.last_at for child in children]),
    )


def subject_node_id(participants: Participants, prefix: str, children: Iterable[bytes]) -> bytes:
    """Return the 32-byte identity of a node of subjects: its place among them, and its children's node_ids.

    The children's, not those of all leaves beneath: what a leaf is about changes one path, and costs no more.
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
    *,
    prefix: str,
    label: str,
    summary: str,
    metadata: Mapping[str, Any],
    children: Sequence[Node],
    is_subject: bool,
) -> Node:
    """Return the node of subjects over `children` with all its identities.

    `prefix` is what the paths of all that lies beneath begin with (`myria.topics.subjects.trie`); it is a part of the
    topic's id, so that subjects which begin with the same event are told apart. `units` counts subjects.
    """
    anchor = min(children, key=_ANCHOR_SEQ)
    first = min(children, key=_KEY)
    node_id = subject_node_id(participants, prefix, [child.node_id for child in children])
    level = _SUBJECT_LEVELS - len(prefix)
    rendering_ids = tuple(child.rendering_id for child in children)
    topic = quick_digest(
        {
            "scope": _scope(participants),
            "node_type": SUBJECT,
            "prefix": prefix,
            "anchor": anchor.anchor_event_id,
        }
    )
    return Node(
        rendering_id=rendering_id(
            node_id=node_id, level=level, label=label, summary=summary, metadata=metadata, children=rendering_ids
        ),
        node_id=node_id,
        node_type=SUBJECT,
        level=level,
        topic_id=f"top_{topic.hex()[:32]}",
        anchor_seq=anchor.anchor_seq,
        anchor_event_id=anchor.anchor_event_id,
        label=label,
        summary=summary,
        metadata=metadata,
        children=rendering_ids,
        events=sum([child.events for child in children]),
        leaves=sum([child.leaves for child in children]),
        units=int(is_subject) or sum(child.units for child in children if child.node_type == SUBJECT),
        is_unit=is_subject,
        key_timestamp=first.key_timestamp,
        key_digest=first.key_digest,
        key_event_id=first.key_event_id,
        first_at=min([child.first_at for child in children]),
        last_at=max([child.last_at for child in children]),
    )


def settings_digest(settings: PlannerSettings) -> bytes:
    """Return the 32-byte identity of `settings` under this planner version; a build stores it."""
    of_time = {name: value for name, value in asdict(settings).items() if name != "subjects"}
    return digest({"planner": PLANNER_VERSION, "settings": of_time})
