"""Plans a scope's subjects from all its leaves, for any size of scope: the result is that of `update` from no leaves.

Of each leaf only its claims stay in memory. Its words are read again when its subjects are made, a bounded number of
leaves at a time, and each new node goes to the sink as soon as it is made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern

from myria.settings.planner import PlannerSettings
from myria.topics.model import Node, NodeReader, Outline, Participants
from myria.topics.radix import UNITS, in_order
from myria.topics.subjects.holders import Holder, Holders, stored_key
from myria.topics.subjects.keys import LEAST_UNITS, Claims, candidates
from myria.topics.subjects.trie import FILED_TWICE, SubjectAssembly, SubjectPiece, subject_prefix
from myria.topics.subjects.update import PlacedLeaf, leaves_beneath

NodeSink = Callable[[Sequence[Node]], Awaitable[None]]
"""Takes new nodes as they are made, children before parents."""

_LEAVES_AT_ONCE = 500
"""Leaves that are read by one statement."""

_LEAVES_CACHED = 4_096
"""Leaves cached: a scope of at most so many is read once. They take 20 MB."""


@dataclass(slots=True)
class _PlannedLeaf:
    """What a plan keeps of a leaf: its unit and rendering id, its claims, and the keys that it is filed under."""

    unit: bytes
    rendering_id: bytes
    claims: Claims
    keys: tuple[str, ...] = ()


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
        async for placed in leaves_beneath([root], reader):
            plan.take(placed)
    plan.choose()
    await plan.make()
    return plan


class WholePlan:
    """The subjects of a scope: their root, None without any, and who holds which key."""

    def __init__(
        self, reader: NodeReader, sink: NodeSink, *, participants: Participants, settings: PlannerSettings
    ) -> None:
        self.root: Node | None = None
        self._reader = reader
        self._sink = sink
        self._participants = participants
        self._settings = settings
        self._leaves: list[_PlannedLeaf] = []
        self._leaves_with_key: dict[str, list[_PlannedLeaf]] = {}
        self._subjects: list[str] = []
        """The keys that are subjects, in the order of their paths."""
        self._subject_of: dict[str, bytes] = {}
        self._cached_leaves: OrderedDict[bytes, Node] = OrderedDict()

    def take(self, placed: PlacedLeaf) -> None:
        """Take in a leaf; all must be in before `choose`."""
        leaf = placed.leaf
        weights = {intern(key): weight for key, weight in candidates(leaf.metadata).items()}
        claims = Claims.of(leaf.metadata, weights)
        planned = _PlannedLeaf(placed.unit, leaf.rendering_id, claims)
        self._leaves.append(planned)
        for key in claims.keys:
            self._leaves_with_key.setdefault(key, []).append(planned)
        self._cache(leaf)

    def choose(self) -> None:
        """Choose the keys that each leaf is filed under, and the keys that become subjects."""
        units = {key: len({leaf.unit for leaf in leaves}) for key, leaves in self._leaves_with_key.items()}
        for leaf in self._leaves:
            leaf.keys = leaf.claims.filed(units.__getitem__)
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
        assembly = SubjectAssembly(self._reader, self._participants, self._settings)
        subjects: list[SubjectPiece] = []
        for keys in self._batches(self._subjects):
            leaves = await self._read_leaves({leaf.rendering_id for key in keys for leaf in self._filed_under(key)})
            for key in keys:
                pieces = [
                    SubjectPiece.filed(leaves[leaf.rendering_id], key, leaf.keys) for leaf in self._filed_under(key)
                ]
                subject = await assembly.subject(in_order(pieces, FILED_TWICE))
                await self._flush(assembly)
                subjects.append(SubjectPiece(subject_prefix(key), subject.node))
                self._subject_of[key] = subject.node.rendering_id
        if subjects:
            self.root = (await assembly.grown(subjects, UNITS)).node
            await self._flush(assembly)

    async def _flush(self, assembly: SubjectAssembly) -> None:
        await self._sink(list(assembly.nodes.values()))
        assembly.nodes.clear()

    def _filed_under(self, key: str) -> list[_PlannedLeaf]:
        """Return the leaves that are filed under a key."""
        return [leaf for leaf in self._leaves_with_key[key] if key in leaf.keys]

    def _batches(self, keys: Iterable[str]) -> Iterator[list[str]]:
        """Yield keys in batches of at most `_LEAVES_AT_ONCE` filed leaves; a subject of more is a batch of its own."""
        # Most subjects have a handful of leaves: one SQL statement for each would cost more than all else.
        batch: list[str] = []
        leaves = 0
        for key in keys:
            count = len(self._filed_under(key))
            if batch and leaves + count > _LEAVES_AT_ONCE:
                yield batch
                batch, leaves = [], 0
            batch.append(key)
            leaves += count
        if batch:
            yield batch

    async def _read_leaves(self, rendering_ids: set[bytes]) -> Mapping[bytes, Node]:
        """Return leaves by rendering id, from the cache or the reader."""
        leaves = {
            rendering_id: self._cached_leaves[rendering_id]
            for rendering_id in rendering_ids & self._cached_leaves.keys()
        }
        missing = sorted(rendering_ids - leaves.keys())
        for start in range(0, len(missing), _LEAVES_AT_ONCE):
            for node in await self._reader.nodes(missing[start : start + _LEAVES_AT_ONCE]):
                leaves[node.rendering_id] = node
                self._cache(node)
        return leaves

    def _cache(self, leaf: Node) -> None:
        self._cached_leaves[leaf.rendering_id] = leaf
        if len(self._cached_leaves) > _LEAVES_CACHED:
            self._cached_leaves.popitem(last=False)
