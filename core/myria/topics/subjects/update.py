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
from myria.topics.subjects.trie import LEAVES_AT_ONCE, SubjectPiece, SubjectReader, assemble_subjects, keys_of


def unit_of(key: UnitKey) -> bytes:
    """Return a unit's id within its scope, 16 bytes: timestamp and 8 bytes of content key of its first event."""
    timestamp, content = key
    return timestamp.to_bytes(8, "big", signed=True) + content[:8]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedLeaf:
    """A leaf and the unit it is in, as `unit_of` names it."""

    leaf: Node
    unit: bytes


def leaves_of(unit: Sequence[Node]) -> list[PlacedLeaf]:
    """Return the leaves of a planned unit, whose top node is last."""
    unit_id = unit_of(unit[-1].key)
    return [PlacedLeaf(leaf=node, unit=unit_id) for node in unit if node.is_leaf]


async def leaves_under(units: Iterable[Outline], reader: NodeReader) -> list[PlacedLeaf]:
    """Return the leaves of units of an old tree, given their top nodes."""
    return [placed async for placed in leaves_beneath(units, reader)]


async def leaves_beneath(tops: Iterable[Outline], reader: NodeReader) -> AsyncIterator[PlacedLeaf]:
    """Yield every leaf beneath some nodes of a tree of time, depth first, so that few nodes wait in memory.

    Raises:
        InternalError: a leaf is in no unit.
    """
    waiting: list[tuple[bytes, bytes | None]] = [(top.rendering_id, None) for top in tops]
    while waiting:
        batch = waiting[-LEAVES_AT_ONCE:]
        del waiting[-LEAVES_AT_ONCE:]
        nodes = await reader.nodes([rendering_id for rendering_id, _ in batch])
        for node, (_, unit_above) in zip(nodes, batch, strict=True):
            unit = unit_of(node.key) if node.is_unit else unit_above
            if node.is_leaf:
                if unit is None:
                    raise InternalError("a leaf is in no unit", rendering_id=node.rendering_id.hex())
                yield PlacedLeaf(leaf=node, unit=unit)
            waiting.extend((child, unit) for child in node.children)


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectUpdate:
    """The new root (None without subjects), the new nodes, children first, and the changed records by key."""

    root: Node | None
    nodes: list[Node]
    holders: dict[str, Holders]


@dataclass(slots=True)
class _Leaf:
    """A leaf that may change: its unit and the keys it is filed under in the old and in the new tree.

    A unit is None where the leaf is not in that tree.
    """

    leaf: Node
    weights: Mapping[str, int]
    old_unit: bytes | None = None
    new_unit: bytes | None = None
    old_keys: tuple[str, ...] = ()
    new_keys: tuple[str, ...] = ()

    @property
    def claims(self) -> Claims:
        """What the leaf may be filed under."""
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
    """Return the tree of subjects without the leaves `removed` and with those `added`.

    All old leaves of a unit that changed are in `removed`, all its new ones in `added`; the same leaf may be in both.

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
        step.take_removed(placed)
    for placed in added:
        step.take_added(placed)
    await step.reach_neighbours()
    step.file_leaves()
    await step.find_moves()
    root, nodes = await assemble_subjects(
        old_root,
        step.removed_paths,
        step.ended,
        step.added_pieces,
        reader,
        participants=participants,
        settings=settings,
    )
    return SubjectUpdate(root=root, nodes=nodes, holders=step.changed_holders(_subject_renderings(nodes)))


def _subject_renderings(nodes: Iterable[Node]) -> dict[str, bytes]:
    """Return the rendering ids of the subjects among some nodes, by key."""
    return {keys_of(node.metadata["prefix"])[0]: node.rendering_id for node in nodes if node.is_unit}


class _Step:
    """One update of the tree of subjects.

    First take all removed and added leaves, then call `reach_neighbours`, `file_leaves` and `find_moves` in this order:
    each rests on what the one before found.
    """

    def __init__(self, reader: SubjectReader) -> None:
        self._reader = reader
        self.leaves: dict[bytes, _Leaf] = {}
        self.removed_paths: list[str] = []
        self.added_pieces: list[SubjectPiece] = []
        self.ended: set[str] = set()
        self._old: dict[str, Holders] = {}
        self._new: dict[str, Holders] = {}
        self._leaves_with_key: dict[str, list[_Leaf]] = {}

    def take_removed(self, placed: PlacedLeaf) -> None:
        self._leaf_state(placed.leaf).old_unit = placed.unit

    def take_added(self, placed: PlacedLeaf) -> None:
        self._leaf_state(placed.leaf).new_unit = placed.unit

    async def reach_neighbours(self) -> None:
        """Take in the unchanged leaves with a key whose number of units changes: they may be filed otherwise.

        Numbers beyond `SATURATED` do not count, so few leaves are reached.
        """
        await self._load_holders(self.leaves.values())
        crossed = [
            key
            for key, holders in self._old.items()
            if holders.units != self._record_after(key, is_filed_known=False).units
        ]
        units = {
            holder.rendering_id: holder.unit
            for key in crossed
            for holder in self._old[key].kept
            if holder.rendering_id not in self.leaves
        }
        for node in await self._nodes(units):
            leaf = self._leaf_state(node)
            leaf.old_unit = leaf.new_unit = units[node.rendering_id]
        await self._load_holders(self.leaves.values())

    def file_leaves(self) -> None:
        """Find the old and the new keys of every leaf that was taken in, and the records that result."""
        new_units = {key: self._record_after(key, is_filed_known=False).units for key in self._old}
        for leaf in self.leaves.values():
            if leaf.old_unit is not None:
                leaf.old_keys = leaf.claims.filed(lambda key: self._old[key].units)
            if leaf.new_unit is not None:
                leaf.new_keys = leaf.claims.filed(new_units.__getitem__)
        self._new = {key: self._record_after(key, is_filed_known=True) for key in self._old}

    async def find_moves(self) -> None:
        """Find the filings that leave and enter the tree, subject by subject; subjects end and begin as wholes."""
        new_subjects: list[str] = []
        for key in sorted({key for leaf in self.leaves.values() for key in (*leaf.old_keys, *leaf.new_keys)}):
            was_subject, is_subject = self._old[key].is_subject, self._new[key].is_subject
            if was_subject and is_subject:
                self._move_filings(key)
            elif was_subject:
                self.ended.add(key)
            elif is_subject:
                new_subjects.append(key)
        await self._begin_subjects(new_subjects)

    def changed_holders(self, new_subjects: Mapping[str, bytes]) -> dict[str, Holders]:
        """Return the records that change, by key; `new_subjects` are the rendering ids of the subjects made, by key."""
        for key, holders in self._new.items():
            subject = None if key in self.ended else new_subjects.get(key, holders.subject)
            if subject != holders.subject:
                self._new[key] = replace(holders, subject=subject)
        return {key: holders for key, holders in self._new.items() if holders != self._old[key]}

    def _leaf_state(self, node: Node) -> _Leaf:
        """Return the state of a leaf, taking it in if it is new here."""
        state = self.leaves.get(node.rendering_id)
        if state is None:
            weights = {intern(key): weight for key, weight in candidates(node.metadata).items()}
            state = self.leaves[node.rendering_id] = _Leaf(node, weights)
            for key in state.weights:
                self._leaves_with_key.setdefault(key, []).append(state)
        return state

    def _record_after(self, key: str, *, is_filed_known: bool) -> Holders:
        """Return a key's record after the update; its leaves count as filed only once `is_filed_known`."""
        removed: list[bytes] = []
        added: dict[bytes, tuple[bytes, bool]] = {}
        for leaf in self._leaves_with_key.get(key, ()):
            if leaf.new_unit is None:
                removed.append(leaf.leaf.rendering_id)
            else:
                added[leaf.leaf.rendering_id] = (leaf.new_unit, is_filed_known and key in leaf.new_keys)
        return self._old[key].changed(removed, added) if removed or added else self._old[key]

    def _move_filings(self, key: str) -> None:
        """Note the filings that leave and enter a subject which is in both trees."""
        for leaf in self._leaves_with_key[key]:
            if leaf.old_keys == leaf.new_keys:
                continue
            if key in leaf.old_keys:
                self.removed_paths.append(SubjectPiece.filed(leaf.leaf, key, leaf.old_keys).path)
            if key in leaf.new_keys:
                self.added_pieces.append(SubjectPiece.filed(leaf.leaf, key, leaf.new_keys))

    async def _begin_subjects(self, keys: Sequence[str]) -> None:
        """Add all filings under keys that become subjects, also those of leaves that this update did not take in.

        While a single unit had leaves filed under the key, they made no subject and so are not in the tree yet.
        """
        if any(self._new[key].has_more_filed for key in keys):
            raise IncompleteHolders
        filed = {rendering_id for key in keys for rendering_id in self._new[key].filed}
        leaves = dict(self.leaves)
        for node in await self._nodes(filed - leaves.keys()):
            leaves[node.rendering_id] = _Leaf(node, candidates(node.metadata))
        await self._load_holders(leaves.values())
        for rendering_id in filed - self.leaves.keys():
            leaf = leaves[rendering_id]
            leaf.new_keys = leaf.claims.filed(lambda key: self._new[key].units)
        self.added_pieces.extend(
            SubjectPiece.filed(leaves[rendering_id].leaf, key, leaves[rendering_id].new_keys)
            for key in keys
            for rendering_id in self._new[key].filed
        )

    async def _nodes(self, rendering_ids: Iterable[bytes]) -> list[Node]:
        sorted_ids = sorted(rendering_ids)
        return await self._reader.nodes(sorted_ids) if sorted_ids else []

    async def _load_holders(self, leaves: Iterable[_Leaf]) -> None:
        """Read the records of these leaves' keys, as far as they were not read yet."""
        missing_keys = sorted({key for leaf in leaves for key in leaf.weights} - self._old.keys())
        stored = await self._reader.holders(missing_keys) if missing_keys else {}
        for key in missing_keys:
            self._old[key] = self._new[key] = stored.get(key, Holders())
