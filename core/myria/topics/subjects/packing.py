"""Nodes as small as they can be kept, where many are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeVar

import orjson

from myria.topics.model import Node

_NODES_UNPACKED = 2_048
"""Nodes up to which they are kept as they came."""

Name = TypeVar("Name", bound=Hashable)


class PackedMetadata(Mapping[str, Any]):
    """A node's metadata as JSON text, parsed whenever it is asked for something."""

    __slots__ = ("_text",)

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        # The bytes that orjson gives lie in a block of four KiB, as long as they are held.
        self._text = orjson.dumps(dict(metadata)).decode()

    def __getitem__(self, name: str) -> Any:
        """Return one of them."""
        return orjson.loads(self._text)[name]

    def __iter__(self) -> Iterator[str]:
        """Yield their names."""
        return iter(orjson.loads(self._text))

    def plain(self) -> dict[str, Any]:
        """Return all of them, parsed once."""
        metadata: dict[str, Any] = orjson.loads(self._text)
        return metadata

    def __len__(self) -> int:
        """Return how many there are."""
        return len(orjson.loads(self._text))


class KeptNodes(OrderedDict[Name, Node]):
    """Nodes by name, in the order in which they came: as they are while they are few, packed once there are many."""

    def __init__(self) -> None:
        super().__init__()
        self._packs = False

    def keep(self, name: Name, node: Node) -> None:
        """Keep one more."""
        self[name] = packed(node) if self._packs else node
        if not self._packs and len(self) > _NODES_UNPACKED:
            self._packs = True
            for kept, unpacked in self.items():
                self[kept] = packed(unpacked)


def packed(node: Node) -> Node:
    """Return what a plan of subjects needs of a node: not which events and children it has."""
    if isinstance(node.metadata, PackedMetadata):
        return node
    kept = {name: value for name, value in node.metadata.items() if name != "filed"}
    # `dataclasses.replace` takes three times as long.
    return Node(
        rendering_id=node.rendering_id,
        node_id=node.node_id,
        node_type=node.node_type,
        level=node.level,
        topic_id=node.topic_id,
        anchor_seq=node.anchor_seq,
        anchor_event_id=node.anchor_event_id,
        label=node.label,
        summary=node.summary,
        metadata=PackedMetadata(kept),
        events=node.events,
        leaves=node.leaves,
        units=node.units,
        is_unit=node.is_unit,
        key_timestamp=node.key_timestamp,
        key_digest=node.key_digest,
        key_event_id=node.key_event_id,
        first_at=node.first_at,
        last_at=node.last_at,
    )
