"""The calendar trie above the units: content-defined, so that inserting a unit changes one path.

A unit's key is written as digits: four of its year, then month, week, day, part of the day, hour, ten minutes, minute,
ten seconds, second, six of its microseconds and 64 of its first event's content key. A group is the set of all
units under one prefix. Up to `max_fan_out` units lie flat in it; more are split by the first digit in which they
differ. A part of one unit is that unit, so no node has a single child. The tree is thus a function of the set of units,
whatever the order in which they came.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import AnyStr

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

_DIGITS = bytes.maketrans(b"0123456789abcdef", bytes(range(16)))


def key_digits(key: UnitKey) -> bytes:
    """Return a unit's key as digits, one byte each; their order is the order of units in a scope's tree."""
    timestamp, content = key
    return calendar.digits(timestamp) + _nibbles(content)


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
    """Return the root over the old tree's units without `removed` and with `added`, and the new group nodes.

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
    assembly = _Assembly(reader, participants, settings)
    changed = sorted([key_digits(key) for key in removed] + [key_digits(unit.key) for unit in added])
    pieces = await assembly.open(old_root, changed)
    went = [piece for piece in pieces if piece.outline.is_unit and piece.outline.key in removed]
    if len(went) < len(removed):
        raise InternalError("a unit to be replaced is not in the scope's tree", units=len(removed) - len(went))
    if gone is not None:
        gone.extend(piece.outline for piece in went)
    pieces = [piece for piece in pieces if not piece.outline.is_unit or piece.outline.key not in removed]
    pieces.extend(_Piece(digits=key_digits(unit.key), outline=unit.top, leaf_ids=unit.leaf_ids) for unit in added)
    if not pieces:
        return None, []
    pieces.sort(key=lambda piece: piece.digits)
    _refuse_equal_keys(pieces)
    top = await assembly.group(pieces)
    return top.outline, [node for key, node in assembly.nodes.items() if key not in assembly.opened]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """A unit, or an old group left as it is; `leaf_ids` is None where the reader has them."""

    digits: bytes
    outline: Outline
    leaf_ids: bytes | None

    @property
    def prefix(self) -> bytes:
        """The digits that all units of the piece share."""
        return self.digits if self.outline.is_unit else self.digits[: shared_digits(self.outline.level)]


class _Assembly:
    def __init__(self, reader: TreeReader, participants: Participants, settings: PlannerSettings) -> None:
        self._reader = reader
        self._participants = participants
        self._settings = settings
        self._children: dict[bytes, tuple[bytes, ...]] = {}
        self.opened: set[bytes] = set()
        self.nodes: dict[bytes, Node] = {}

    async def open(self, old_root: bytes | None, changed: Sequence[bytes]) -> list[_Piece]:
        """Return the old tree as pieces, every group that a changed key falls into opened, level by level."""
        closed: list[_Piece] = []
        frontier = [old_root] if old_root is not None else []
        while frontier:
            pieces = await self._load(frontier)
            frontier = []
            for piece in pieces:
                if not piece.outline.is_unit and leads_through(piece.prefix, changed):
                    frontier.extend(self._open(piece))
                else:
                    closed.append(piece)
        return closed

    async def group(self, pieces: list[_Piece]) -> _Piece:
        """Return the tree over pieces in key order, none of which lies within another."""
        if len(pieces) == 1:
            return pieces[0]
        if sum(piece.outline.units for piece in pieces) <= self._settings.max_fan_out:
            children = await self._flat(pieces)
            shared = shared_length(children[0].digits, children[-1].digits)
        else:
            shared = shared_length(pieces[0].digits, pieces[-1].digits)
            children = [
                await self.group(list(part)) for _, part in groupby(pieces, key=lambda piece: piece.digits[shared])
            ]
        return await self._node(children, shared)

    async def _flat(self, pieces: list[_Piece]) -> list[_Piece]:
        """Return the units under some pieces: a group that shrank to so few is flat again."""
        units: list[_Piece] = []
        frontier = pieces
        while frontier:
            inner = [child for piece in frontier if not piece.outline.is_unit for child in self._open(piece)]
            units.extend(piece for piece in frontier if piece.outline.is_unit)
            frontier = await self._load(inner) if inner else []
        units.sort(key=lambda piece: piece.digits)
        return units

    async def _node(self, children: list[_Piece], shared: int) -> _Piece:
        level = group_level(shared)
        outlines = [child.outline for child in children]
        leaf_ids = b"".join([await self._leaves(child) for child in children])
        node = internal_node(
            self._participants,
            describe_group(outlines, level=level),
            level=level,
            children=outlines,
            leaf_ids=leaf_ids,
        )
        self.nodes[node.rendering_id] = node
        return _Piece(digits=children[0].digits, outline=Outline.of(node), leaf_ids=leaf_ids)

    async def _leaves(self, piece: _Piece) -> bytes:
        if piece.leaf_ids is not None:
            return piece.leaf_ids
        leaf_ids = await self._reader.leaf_node_ids(piece.outline.rendering_id)
        if len(leaf_ids) != piece.outline.leaves * ID_BYTES:
            raise InternalError("a tree has other leaves than its nodes count", leaves=len(leaf_ids) // ID_BYTES)
        return leaf_ids

    async def _load(self, rendering_ids: Sequence[bytes]) -> list[_Piece]:
        nodes = await self._reader.nodes(rendering_ids)
        return [self._piece(node) for node in nodes]

    def _piece(self, node: Node) -> _Piece:
        leaf_ids: bytes | None = None
        if node.is_unit:
            leaf_ids = leaf_ids_of(node)
        else:
            self._children[node.rendering_id] = node.children
        return _Piece(digits=key_digits(node.key), outline=Outline.of(node), leaf_ids=leaf_ids)

    def _open(self, piece: _Piece) -> tuple[bytes, ...]:
        self.opened.add(piece.outline.rendering_id)
        return self._children[piece.outline.rendering_id]


def leads_through(prefix: AnyStr, changed: Sequence[AnyStr]) -> bool:
    """Tell whether any of the sorted `changed` keys or paths begins with a prefix."""
    at = bisect_left(changed, prefix)
    return at < len(changed) and changed[at].startswith(prefix)


def shared_length(left: AnyStr, right: AnyStr) -> int:
    """Return how many leading digits two keys or paths share."""
    differing = (at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other)
    return next(differing, min(len(left), len(right)))


def _refuse_equal_keys(pieces: Sequence[_Piece]) -> None:
    for at in range(1, len(pieces)):
        if pieces[at - 1].outline.is_unit and pieces[at - 1].digits == pieces[at].digits:
            raise InternalError(
                "two units of a scope begin with the same event", event_id=pieces[at].outline.key_event_id
            )


def _nibbles(raw: bytes) -> bytes:
    return raw.hex().encode().translate(_DIGITS)
