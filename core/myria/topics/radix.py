"""Radix trees: what shares the beginning of its path stands together, so that one change changes one path of nodes.

Whatever is gathered has a path of digits. A node is the set of all that has one prefix. Up to `most` lie flat in it;
more are divided by the first digit in which they differ. What is alone under a digit stands there itself, so no node
has a single child. The tree is thus a function of the set of paths, whatever the order in which they came.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from myria.errors import InternalError
from myria.topics.model import Node, NodeBase, UnitKey


@dataclass(slots=True)
class UnreadLeaf:
    """A leaf of which only the place is in memory: its node is read when its parent is made."""

    rendering_id: bytes
    key_timestamp: int
    key_digest: bytes

    is_leaf = True
    is_unit = False
    leaves = 1
    units = 0

    @property
    def key(self) -> UnitKey:
        """(timestamp, content key) of the first event."""
        return (self.key_timestamp, self.key_digest)


class TreePiece(Protocol):
    """A gathered item with its whole path, or an old node, left as it is, with the prefix of all its paths."""

    @property
    def path(self) -> str:
        """The digits of the path or prefix."""
        ...

    @property
    def node(self) -> NodeBase | UnreadLeaf:
        """The node, or its outline."""
        ...


P = TypeVar("P", bound=TreePiece)


@dataclass(frozen=True, slots=True)
class Grouping:
    """What a tree gathers: `is_one` tells an item from a node over items, `count` how many items a node holds.

    Items directly under one node stand in the order of time if `in_time`, else in that of paths.
    """

    is_one: Callable[[NodeBase | UnreadLeaf], bool]
    count: Callable[[NodeBase | UnreadLeaf], int]
    in_time: bool = False


UNITS = Grouping(attrgetter("is_unit"), attrgetter("units"))
LEAVES = Grouping(attrgetter("is_leaf"), attrgetter("leaves"), in_time=True)


class RadixAssembly(ABC, Generic[P]):
    """Makes a tree out of the pieces of an old one and new items.

    `nodes` are those that were made, by rendering id; `opened` the rendering ids of old nodes that were taken apart.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.opened: set[bytes] = set()
        self.nodes: dict[bytes, Node] = {}

    @property
    def new(self) -> list[Node]:
        """The nodes that the old tree did not have, children before parents."""
        return [node for rendering_id, node in self.nodes.items() if rendering_id not in self.opened]

    @abstractmethod
    async def below(self, pieces: Sequence[P]) -> list[P]:
        """Return what lies directly under old nodes, and note them as opened."""

    @abstractmethod
    async def parent(self, children: Sequence[P], prefix: str) -> P:
        """Return the node of a prefix over its children, and keep it among `nodes`."""

    async def open(
        self, pieces: list[P], changed: Sequence[str], gathered: Grouping, ended: AbstractSet[str] = frozenset()
    ) -> list[P]:
        """Return pieces with each node that a path in the sorted `changed` leads through replaced by its children.

        Nodes whose prefix is in `ended` are left out, with all beneath them.
        """
        unopened: list[P] = []
        # A level at a time: a long scope has few levels, and one read serves all that changed on each.
        while pieces:
            pieces = [piece for piece in pieces if piece.path not in ended]
            is_led_through = [
                not gathered.is_one(piece.node) and leads_through(piece.path, changed) for piece in pieces
            ]
            unopened.extend(piece for piece, is_open in zip(pieces, is_led_through, strict=True) if not is_open)
            inside = [piece for piece, is_open in zip(pieces, is_led_through, strict=True) if is_open]
            pieces = await self.below(inside) if inside else []
        return unopened

    async def grown(self, pieces: Sequence[P], gathered: Grouping) -> P:
        """Return the top piece of the tree over pieces in the order of paths, no path of which begins another."""
        if len(pieces) == 1:
            return pieces[0]
        return await self.parent(await self.children(pieces, gathered), pieces[0].path[: _shared_digits(pieces)])

    async def children(self, pieces: Sequence[P], gathered: Grouping) -> list[P]:
        """Return the direct children of the node over several pieces: the items themselves if they are few enough."""
        if sum(gathered.count(piece.node) for piece in pieces) > self._most:
            shared = _shared_digits(pieces)
            parts = groupby(pieces, key=lambda piece: piece.path[shared])
            return [await self.grown(list(part), gathered) for _, part in parts]
        # Groups that are too small since a removal are dissolved, as if they had never held more.
        flat = list(pieces)
        while groups := [piece for piece in flat if not gathered.is_one(piece.node)]:
            flat = [piece for piece in flat if gathered.is_one(piece.node)] + await self.below(groups)
        return sorted(flat, key=_time_key if gathered.in_time else _path_key)


def in_order(pieces: Iterable[P], problem: str) -> list[P]:
    """Return pieces in the order of paths.

    Raises:
        InternalError: with the message `problem`, if one path begins another or equals it.
    """
    ordered = sorted(pieces, key=_path_key)
    for before, piece in pairwise(ordered):
        if piece.path.startswith(before.path):
            raise InternalError(problem, rendering_id=piece.node.rendering_id.hex())
    return ordered


def leads_through(prefix: str, changed: Sequence[str]) -> bool:
    """Tell whether any of the sorted `changed` paths begins with a prefix."""
    index = bisect_left(changed, prefix)
    return index < len(changed) and changed[index].startswith(prefix)


def _shared_digits(pieces: Sequence[P]) -> int:
    """Return how many leading digits all pieces share, by the first and last in the order of paths."""
    first, last = pieces[0].path, pieces[-1].path
    differing = (
        index for index, (digit, other_digit) in enumerate(zip(first, last, strict=False)) if digit != other_digit
    )
    return next(differing, min(len(first), len(last)))


def _path_key(piece: TreePiece) -> str:
    return piece.path


def _time_key(piece: TreePiece) -> UnitKey:
    return piece.node.key
