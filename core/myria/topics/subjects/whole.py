"""Plans a scope's subjects from all its leaves, for any size of scope: the result is that of `update` from no leaves.

Of each leaf some hundred bytes stay in memory: its ids, its time and what it may be filed under. Its words are read
again when its subjects are made, a bounded number of leaves at a time even where one subject has them all, and each new
node goes to the sink as soon as it is made.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby, pairwise
from sys import intern

from myria.settings.planner import PlannerSettings
from myria.topics.model import Node, NodeReader, Outline, Participants
from myria.topics.radix import UNITS, Grouping, UnreadLeaf, in_order
from myria.topics.subjects.holders import Holder, Holders, stored_key
from myria.topics.subjects.keys import LEAST_UNITS, Claims, candidates
from myria.topics.subjects.trie import (
    FILED_TWICE,
    LEAVES_AT_ONCE,
    SubjectAssembly,
    SubjectPiece,
    subject_prefix,
)
from myria.topics.subjects.update import PlacedLeaf, leaves_beneath

NodeSink = Callable[[Sequence[Node]], Awaitable[None]]
"""Takes new nodes as they are made, children before parents."""

_NODES_CACHED = 4_096
"""Nodes cached, the latest read: a scope of some thousand leaves is read once. They take 20 MB."""


@dataclass(slots=True)
class _PlannedLeaf(UnreadLeaf):
    """What a plan keeps of a leaf, with its unit and the keys that it is filed under."""

    unit: bytes
    keys: tuple[str, ...] = ()


class _CachingReader:
    """Reads nodes, and keeps those that were read last."""

    def __init__(self, reader: NodeReader) -> None:
        self._reader = reader
        self._cached: OrderedDict[bytes, Node] = OrderedDict()

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, in this order."""
        cached = self._cached
        missing = [rendering_id for rendering_id in rendering_ids if rendering_id not in cached]
        if missing:
            cached.update(zip(missing, await self._reader.nodes(missing), strict=True))
        nodes = [cached[rendering_id] for rendering_id in rendering_ids]
        while len(cached) > _NODES_CACHED:
            cached.popitem(last=False)
        return nodes


async def plan_all_subjects(
    root: Outline | None, reader: NodeReader, sink: NodeSink, *, participants: Participants, settings: PlannerSettings
) -> WholePlan:
    """Plan the subjects of a scope from all leaves of its tree of time.

    The same as `update_subjects` gives from no leaves.

    Args:
        root: the tree of time; None for a scope without events.
        reader: reads its nodes.
        sink: takes the nodes of subjects, each once and after its children; none is kept.
        participants: the scope.
        settings: the planner's settings.

    Raises:
        InternalError: a subject would have a single leaf, or a leaf is filed twice under one key.
    """
    plan = WholePlan(reader, sink, participants=participants, settings=settings)
    if root is not None:
        async for placed in leaves_beneath([root], plan.reader):
            plan.take(placed)
    plan.choose()
    await plan.make()
    return plan


class _StreamedAssembly(SubjectAssembly):
    """Makes subjects of unread leaves; nodes go to the sink while the subject is still being made."""

    def __init__(
        self, reader: NodeReader, participants: Participants, settings: PlannerSettings, sink: NodeSink
    ) -> None:
        super().__init__(reader, participants, settings)
        self._sink = sink

    async def children(self, pieces: Sequence[SubjectPiece], gathered: Grouping) -> list[SubjectPiece]:
        """Read the leaves of a part by one statement as soon as the part is small enough."""
        if len(pieces) <= LEAVES_AT_ONCE:
            nodes = await self.nodes_of(pieces)
            pieces = [replace(piece, node=node) for piece, node in zip(pieces, nodes, strict=True)]
        return await super().children(pieces, gathered)

    async def parent(self, children: Sequence[SubjectPiece], prefix: str) -> SubjectPiece:
        """Return the node of a prefix over its children."""
        if len(self.nodes) >= LEAVES_AT_ONCE:
            await self.flush()
        return await super().parent(children, prefix)

    async def flush(self) -> None:
        """Hand the nodes that were made to the sink."""
        await self._sink(list(self.nodes.values()))
        self.nodes.clear()


class WholePlan:
    """The subjects of a scope: their root, None without any, and who holds which key."""

    def __init__(
        self, reader: NodeReader, sink: NodeSink, *, participants: Participants, settings: PlannerSettings
    ) -> None:
        self.root: Node | None = None
        self.reader = _CachingReader(reader)
        self._sink = sink
        self._participants = participants
        self._settings = settings
        self._leaves: list[_PlannedLeaf] = []
        self._leaves_with_key: dict[str, list[_PlannedLeaf]] = {}
        # The claims of all leaves in a row, each leaf's up to its end: as objects they would be most of the memory.
        self._claimed_keys: list[str] = []
        self._claimed_weights = array("I")
        self._claimed_rivals = array("H")
        self._claim_ends = array("Q", [0])
        self._subjects: list[str] = []
        """The keys that are subjects, in the order of their paths."""
        self._subject_of: dict[str, bytes] = {}

    def take(self, placed: PlacedLeaf) -> None:
        """Take in a leaf; all must be in before `choose`."""
        leaf = placed.leaf
        weights = {intern(key): weight for key, weight in candidates(leaf.metadata).items()}
        claims = Claims.of(leaf.metadata, weights)
        planned = _PlannedLeaf(leaf.rendering_id, leaf.key_timestamp, leaf.key_digest, placed.unit)
        self._leaves.append(planned)
        for key in claims.keys:
            self._leaves_with_key.setdefault(key, []).append(planned)
        self._claimed_keys.extend(claims.keys)
        self._claimed_weights.extend(claims.weights)
        self._claimed_rivals.extend(claims.rivals)
        self._claim_ends.append(len(self._claimed_keys))

    def choose(self) -> None:
        """Choose the keys that each leaf is filed under, and the keys that become subjects."""
        units = {key: len({leaf.unit for leaf in leaves}) for key, leaves in self._leaves_with_key.items()}
        for leaf, (begin, end) in zip(self._leaves, pairwise(self._claim_ends), strict=True):
            claims = Claims(
                self._claimed_keys[begin:end], self._claimed_weights[begin:end], self._claimed_rivals[begin:end]
            )
            leaf.keys = claims.filed(units.__getitem__)
        del self._claimed_keys, self._claimed_weights, self._claimed_rivals, self._claim_ends
        subjects = (key for key in units if len({leaf.unit for leaf in self._filed_under(key)}) >= LEAST_UNITS)
        self._subjects = sorted(subjects, key=subject_prefix)

    def records(self) -> Iterator[tuple[bytes, Holders]]:
        """Yield the record of each key that a leaf holds, with all its holders, in the order of stored keys."""
        for stored, key in sorted((stored_key(key), key) for key in self._leaves_with_key):
            holders = sorted(
                Holder(leaf.unit, leaf.rendering_id, key in leaf.keys) for leaf in self._leaves_with_key[key]
            )
            yield stored, Holders(tuple(holders), subject=self._subject_of.get(key))

    async def make(self) -> None:
        """Make the subjects in the order of paths, then the nodes above them; each goes to the sink when it is made."""
        assembly = _StreamedAssembly(self.reader, self._participants, self._settings, self._sink)
        subjects: list[SubjectPiece] = []
        totals = accumulate(len(self._filed_under(key)) for key in self._subjects)
        keys = zip(totals, self._subjects, strict=True)
        for _, batch in groupby(keys, key=lambda pair: pair[0] // LEAVES_AT_ONCE):
            filed = {key: self._filed_under(key) for _, key in batch}
            # Most subjects have a handful of leaves: one statement reads those of many into the cache.
            of_small = chain.from_iterable(leaves for leaves in filed.values() if len(leaves) <= LEAVES_AT_ONCE)
            await self.reader.nodes(sorted({leaf.rendering_id for leaf in of_small}))
            for key, leaves in filed.items():
                pieces = [SubjectPiece.filed(leaf, key, leaf.keys) for leaf in leaves]
                subject = await assembly.subject(in_order(pieces, FILED_TWICE))
                subjects.append(SubjectPiece(subject_prefix(key), subject.node))
                self._subject_of[key] = subject.node.rendering_id
        if subjects:
            (self.root,) = await assembly.nodes_of([await assembly.grown(subjects, UNITS)])
            await assembly.flush()

    def _filed_under(self, key: str) -> list[_PlannedLeaf]:
        """Return the leaves that are filed under a key."""
        return [leaf for leaf in self._leaves_with_key[key] if key in leaf.keys]
