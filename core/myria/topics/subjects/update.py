"""Brings a scope's subjects from one set of leaves to another, by look-up from what the changed leaves are about.

How many units hold a key counts up to four, so a leaf that comes or goes changes what others are filed under only where
a key's count crosses one of those numbers: then at most four units hold it. No choice rests on another leaf's choice,
so nothing goes on from there. A full plan (`whole`) gives what this step gives from no leaves at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import intern

from myria.errors import InternalError
from myria.settings.planner import PlannerSettings
from myria.topics.model import Node, NodeReader, Outline, Participants, UnitKey
from myria.topics.subjects.holders import Holders, IncompleteHolders
from myria.topics.subjects.keys import Claims, candidates
from myria.topics.subjects.trie import SubjectPiece, SubjectReader, assemble_subjects, keys_of

_READ_AT_ONCE = 500


def unit_of(key: UnitKey) -> bytes:
    """Return what tells a unit from others of its scope, in 16 bytes."""
    timestamp, content = key
    return timestamp.to_bytes(8, "big", signed=True) + content[:8]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedLeaf:
    """A leaf and the unit it is in, as `unit_of` names it."""

    leaf: Node
    unit: bytes


def leaves_of(unit: Sequence[Node]) -> list[PlacedLeaf]:
    """Return the leaves of a planned unit, whose top node is last."""
    name = unit_of(unit[-1].key)
    return [PlacedLeaf(leaf=node, unit=name) for node in unit if node.is_leaf]


async def leaves_under(units: Iterable[Outline], reader: NodeReader) -> list[PlacedLeaf]:
    """Return the leaves of units of an old tree, given their top nodes."""
    return [placed async for placed in leaves_beneath(units, reader)]


async def leaves_beneath(tops: Iterable[Outline], reader: NodeReader) -> AsyncIterator[PlacedLeaf]:
    """Yield every leaf beneath some nodes of a tree of time; of the tree no more is held than the way down.

    Raises:
        InternalError: a leaf is in no unit.
    """
    waiting: list[tuple[bytes, bytes | None]] = [(top.rendering_id, None) for top in tops]
    while waiting:
        part = waiting[-_READ_AT_ONCE:]
        del waiting[-_READ_AT_ONCE:]
        nodes = await reader.nodes([rendering_id for rendering_id, _ in part])
        for node, (_, above) in zip(nodes, part, strict=True):
            unit = unit_of(node.key) if node.is_unit else above
            if node.is_leaf:
                if unit is None:
                    raise InternalError("a leaf is in no unit", rendering_id=node.rendering_id.hex())
                yield PlacedLeaf(leaf=node, unit=unit)
            waiting.extend((child, unit) for child in node.children)


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectUpdate:
    """The new root (None without subjects), the nodes that are new, children first, and the records that changed."""

    root: Node | None
    nodes: list[Node]
    holders: dict[str, Holders]


@dataclass(slots=True)
class _Leaf:
    """A leaf that is looked at: its unit before and after (None where it is not there), and its keys then."""

    leaf: Node
    weights: Mapping[str, int]
    old_unit: bytes | None = None
    new_unit: bytes | None = None
    was: tuple[str, ...] = ()
    now: tuple[str, ...] = ()

    @property
    def claims(self) -> Claims:
        """What it may be filed under."""
        return Claims.of(self.leaf.metadata, self.weights)


async def update_subjects(
    old_root: bytes | None,
    removed: Iterable[PlacedLeaf],
    added: Iterable[PlacedLeaf],
    reader: SubjectReader,
    *,
    participants: Participants,
    settings: PlannerSettings,
) -> SubjectUpdate:
    """Return the tree of subjects without some leaves and with others.

    All leaves of a unit that changed are removed and those that it has now added, though some may be the same.

    Args:
        old_root: rendering id of the old tree's root; None where there was no subject.
        removed: leaves of the old tree that are in units which are gone or changed.
        added: leaves of units that are new or changed.
        reader: the old tree.
        participants: the scope.
        settings: the planner's settings.

    Raises:
        IncompleteHolders: the old records do not suffice; plan from all leaves, from no old root.
    """
    step = _Step(reader)
    for placed in removed:
        step.removes(placed)
    for placed in added:
        step.adds(placed)
    await step.reach_neighbours()
    step.choose()
    await step.move()
    root, nodes = await assemble_subjects(
        old_root,
        step.removed_paths,
        step.ended,
        step.added_pieces,
        reader,
        participants=participants,
        settings=settings,
    )
    return SubjectUpdate(root=root, nodes=nodes, holders=step.changed_holders(_made(nodes)))


def _made(nodes: Iterable[Node]) -> dict[str, bytes]:
    """Return the renderings of those nodes that are a subject, by its key."""
    return {keys_of(node.metadata["prefix"])[0]: node.rendering_id for node in nodes if node.is_unit}


class _Step:
    def __init__(self, reader: SubjectReader) -> None:
        self._reader = reader
        self.leaves: dict[bytes, _Leaf] = {}
        self.removed_paths: list[str] = []
        self.added_pieces: list[SubjectPiece] = []
        self.ended: set[str] = set()
        self._old: dict[str, Holders] = {}
        self._new: dict[str, Holders] = {}
        self._holding: dict[str, list[_Leaf]] = {}

    def removes(self, placed: PlacedLeaf) -> None:
        self._leaf(placed.leaf).old_unit = placed.unit

    def adds(self, placed: PlacedLeaf) -> None:
        self._leaf(placed.leaf).new_unit = placed.unit

    async def reach_neighbours(self) -> None:
        """Take in the leaves that nothing happened to, but whose keys weigh otherwise: a count crossed a number."""
        await self._load_holders(self.leaves.values())
        crossed = [
            key for key, holders in self._old.items() if holders.units != self._moved(key, is_settled=False).units
        ]
        units = {
            holder.rendering_id: holder.unit
            for key in crossed
            for holder in self._old[key].kept
            if holder.rendering_id not in self.leaves
        }
        for node in await self._nodes(units):
            leaf = self._leaf(node)
            leaf.old_unit = leaf.new_unit = units[node.rendering_id]
        await self._load_holders(self.leaves.values())

    def choose(self) -> None:
        """File every leaf that is looked at, as it was and as it is now."""
        counted = {key: self._moved(key, is_settled=False).units for key in self._old}
        for leaf in self.leaves.values():
            if leaf.old_unit is not None:
                leaf.was = leaf.claims.filed(lambda key: self._old[key].units)
            if leaf.new_unit is not None:
                leaf.now = leaf.claims.filed(counted.__getitem__)
        self._new = {key: self._moved(key, is_settled=True) for key in self._old}

    async def move(self) -> None:
        """Find what comes and goes in the tree, subject by subject."""
        begun: list[str] = []
        for key in sorted({key for leaf in self.leaves.values() for key in (*leaf.was, *leaf.now)}):
            was_subject, is_subject = self._old[key].is_subject, self._new[key].is_subject
            if was_subject and is_subject:
                self._move_within(key)
            elif was_subject:
                self.ended.add(key)
            elif is_subject:
                begun.append(key)
        await self._begin(begun)

    def changed_holders(self, made: Mapping[str, bytes]) -> dict[str, Holders]:
        """Return the records that change, each with its key's subject; `made` are the new ones, by key."""
        for key, holders in self._new.items():
            subject = None if key in self.ended else made.get(key, holders.subject)
            if subject != holders.subject:
                self._new[key] = replace(holders, subject=subject)
        return {key: holders for key, holders in self._new.items() if holders != self._old[key]}

    def _leaf(self, node: Node) -> _Leaf:
        known = self.leaves.get(node.rendering_id)
        if known is None:
            weights = {intern(key): weight for key, weight in candidates(node.metadata).items()}
            known = self.leaves[node.rendering_id] = _Leaf(node, weights)
            for key in known.weights:
                self._holding.setdefault(key, []).append(known)
        return known

    def _moved(self, key: str, *, is_settled: bool) -> Holders:
        """Return the record of a key as the leaves that are looked at leave it."""
        removed: list[bytes] = []
        added: dict[bytes, tuple[bytes, bool]] = {}
        for leaf in self._holding.get(key, ()):
            if leaf.new_unit is None:
                removed.append(leaf.leaf.rendering_id)
            else:
                added[leaf.leaf.rendering_id] = (leaf.new_unit, is_settled and key in leaf.now)
        return self._old[key].changed(removed, added) if removed or added else self._old[key]

    def _move_within(self, key: str) -> None:
        for leaf in self._holding[key]:
            if leaf.was == leaf.now:
                continue
            if key in leaf.was:
                self.removed_paths.append(SubjectPiece.filed(leaf.leaf, key, leaf.was).path)
            if key in leaf.now:
                self.added_pieces.append(SubjectPiece.filed(leaf.leaf, key, leaf.now))

    async def _begin(self, keys: Sequence[str]) -> None:
        """Add all that is filed under keys that become subjects; some was filed before, by leaves of a single unit."""
        if any(self._new[key].has_more_filed for key in keys):
            raise IncompleteHolders
        filed = {rendering_id for key in keys for rendering_id in self._new[key].filed}
        leaves = dict(self.leaves)
        for node in await self._nodes(filed - leaves.keys()):
            leaves[node.rendering_id] = _Leaf(node, candidates(node.metadata))
        await self._load_holders(leaves.values())
        for rendering_id in filed - self.leaves.keys():
            leaf = leaves[rendering_id]
            leaf.now = leaf.claims.filed(lambda key: self._new[key].units)
        self.added_pieces.extend(
            SubjectPiece.filed(leaves[rendering_id].leaf, key, leaves[rendering_id].now)
            for key in keys
            for rendering_id in self._new[key].filed
        )

    async def _nodes(self, rendering_ids: Iterable[bytes]) -> list[Node]:
        wanted = sorted(rendering_ids)
        return await self._reader.nodes(wanted) if wanted else []

    async def _load_holders(self, leaves: Iterable[_Leaf]) -> None:
        """Read the records of the keys of some leaves that were not read yet."""
        wanted = sorted({key for leaf in leaves for key in leaf.weights} - self._old.keys())
        found = await self._reader.holders(wanted) if wanted else {}
        for key in wanted:
            self._old[key] = self._new[key] = found.get(key, Holders())
