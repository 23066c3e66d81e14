"""The calendar of a scope's units: a radix tree by the time and content of each unit's first event.

A unit's key is written as digits: four of its year, then month, week, day, part of the day, hour, ten minutes, minute,
ten seconds, second, six of its microseconds and 64 of its first event's content key.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from myria.errors import InternalError
from myria.settings.planner import PlannerSettings
from myria.topics import calendar
from myria.topics.describe import describe_group
from myria.topics.identity import ID_BYTES, internal_node
from myria.topics.model import (
    Node,
    Outline,
    Participants,
    TreeReader,
    Unit,
    UnitKey,
    group_level,
    leaf_ids_of,
    shared_digits,
)
from myria.topics.radix import UNITS, RadixAssembly, in_order


def key_digits(key: UnitKey) -> str:
    """Return a unit's key as hexadecimal digits; their order is the order of units in a scope's tree."""
    timestamp, content = key
    return calendar.digits(timestamp) + content.hex()


async def assemble(
    old_root: bytes | None,
    removed: AbstractSet[UnitKey],
    added: Sequence[Unit],
    reader: TreeReader,
    *,
    participants: Participants,
    settings: PlannerSettings,
    gone: list[Outline] | None = None,
) -> tuple[Outline | None, list[Node]]:
    """Return the root over the old tree's units, without those removed and with those added, and the new group nodes.

    A changed unit is removed and added under the same key. With no old root this is the full assembly. The reader is
    asked for the nodes on the paths of changed units, their children, and the leaf ids beside them: once per level
    for nodes, once per untouched subtree for leaves.

    Args:
        old_root: rendering id of the scope's old root.
        removed: keys of units of the old tree that are gone or changed.
        added: units that are new or changed, each once.
        reader: the old tree.
        participants: the scope.
        settings: the planner's settings.
        gone: takes the top nodes of the units that were removed, as the old tree has them.

    Returns:
        The new root's outline (None for a scope without units), and the group nodes that the old tree did not have,
        children before parents. A root that is not among them is an old node or the top of an added unit.

    Raises:
        InternalError: a removed unit is not in the old tree, or an added key is there already.
    """
    assembly = _Calendar(reader, participants, settings)
    changed = sorted(map(key_digits, [*removed, *(unit.key for unit in added)]))
    old = await assembly.load([old_root]) if old_root is not None else []
    pieces = await assembly.open(old, changed, UNITS)
    removed_pieces = [piece for piece in pieces if piece.node.is_unit and piece.node.key in removed]
    if len(removed_pieces) < len(removed):
        raise InternalError(
            "a unit to be replaced is not in the scope's tree", units=len(removed) - len(removed_pieces)
        )
    if gone is not None:
        gone.extend(piece.node for piece in removed_pieces)
    added_pieces = [_Piece(path=key_digits(unit.key), node=unit.top, leaf_ids=unit.leaf_ids) for unit in added]
    kept_pieces = [piece for piece in pieces if not piece.node.is_unit or piece.node.key not in removed]
    pieces = in_order([*kept_pieces, *added_pieces], "two units of a scope begin with the same event")
    if not pieces:
        return None, []
    top = await assembly.grown(pieces, UNITS)
    return top.node, assembly.new


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """A unit, or an old group left as it is; `leaf_ids` is None if they must be asked of the reader."""

    path: str
    node: Outline
    leaf_ids: bytes | None
    children: tuple[bytes, ...] = ()


class _Calendar(RadixAssembly[_Piece]):
    """Makes the groups of a scope's calendar over its units."""

    def __init__(self, reader: TreeReader, participants: Participants, settings: PlannerSettings) -> None:
        super().__init__(settings.max_children)
        self._reader = reader
        self._participants = participants

    async def load(self, rendering_ids: Sequence[bytes]) -> list[_Piece]:
        """Return nodes of the old tree as pieces."""
        pieces = []
        for node in await self._reader.nodes(rendering_ids):
            digits = key_digits(node.key)
            path = digits if node.is_unit else digits[: shared_digits(node.level)]
            leaf_ids = leaf_ids_of(node) if node.is_unit else None
            pieces.append(_Piece(path=path, node=Outline.of(node), leaf_ids=leaf_ids, children=node.children))
        return pieces

    async def below(self, pieces: Sequence[_Piece]) -> list[_Piece]:
        """Return the pieces directly under old groups, and note these as opened."""
        self.opened.update(piece.node.rendering_id for piece in pieces)
        return await self.load([child for piece in pieces for child in piece.children])

    async def parent(self, children: Sequence[_Piece], prefix: str) -> _Piece:
        """Return the group of a calendar prefix."""
        level = group_level(len(prefix))
        outlines = [child.node for child in children]
        leaf_ids = b"".join([await self._leaf_ids_of(child) for child in children])
        node = internal_node(
            self._participants,
            describe_group(outlines, level=level),
            level=level,
            children=outlines,
            leaf_ids=leaf_ids,
        )
        self.nodes[node.rendering_id] = node
        return _Piece(path=prefix, node=Outline.of(node), leaf_ids=leaf_ids)

    async def _leaf_ids_of(self, piece: _Piece) -> bytes:
        """Return the joined node_ids of all leaves beneath a piece, reading those of an old group."""
        if piece.leaf_ids is not None:
            return piece.leaf_ids
        leaf_ids = await self._reader.leaf_node_ids(piece.node.rendering_id)
        if len(leaf_ids) != piece.node.leaves * ID_BYTES:
            raise InternalError("a tree has other leaves than its nodes count", leaves=len(leaf_ids) // ID_BYTES)
        return leaf_ids
