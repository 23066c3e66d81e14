"""Plans a scope's subjects from all its leaves: what `update` gives from no leaves at all, for any size of scope.

Of each leaf stays what its place depends on. What it says is read again for its subjects, a bounded number of leaves at
a time, and a node goes on its way as soon as it is made.
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

_LEAVES_KEPT = 4_096
"""Leaves that are kept: a scope of so many is read once. They take 20 MB."""


@dataclass(slots=True)
class _Filed:
    """A leaf as a plan keeps it: who it is, and what it may be and is filed under."""

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
        self._leaves: list[_Filed] = []
        self._holding: dict[str, list[_Filed]] = {}
        self._subjects: list[str] = []
        """The keys that are subjects, in the order of their paths."""
        self._subject_of: dict[str, bytes] = {}
        self._kept: OrderedDict[bytes, Node] = OrderedDict()

    def take(self, placed: PlacedLeaf) -> None:
        """Take in a leaf."""
        leaf = placed.leaf
        weights = {intern(key): weight for key, weight in candidates(leaf.metadata).items()}
        claims = Claims.of(leaf.metadata, weights)
        filed = _Filed(placed.unit, leaf.rendering_id, claims)
        self._leaves.append(filed)
        for key in claims.keys:
            self._holding.setdefault(key, []).append(filed)
        self._keep(leaf)

    def choose(self) -> None:
        """Choose what each leaf is filed under, once all are in."""
        units = {key: len({leaf.unit for leaf in leaves}) for key, leaves in self._holding.items()}
        for leaf in self._leaves:
            leaf.keys = leaf.claims.filed(units.__getitem__)
        subjects = (key for key in units if len({leaf.unit for leaf in self._filed(key)}) >= LEAST_UNITS)
        self._subjects = sorted(subjects, key=subject_prefix)

    def records(self) -> Iterator[tuple[bytes, Holders]]:
        """Yield the record of each key that a leaf holds, with all its holders, in the order of stored keys."""
        for stored, key in sorted((stored_key(key), key) for key in self._holding):
            holders = sorted(Holder(leaf.unit, leaf.rendering_id, key in leaf.keys) for leaf in self._holding[key])
            yield stored, Holders(tuple(holders), subject=self._subject_of.get(key))

    async def make(self) -> None:
        """Make the subjects in their order, each written once it is whole, and the nodes above them."""
        assembly = SubjectAssembly(self._reader, self._participants, self._settings)
        made: list[SubjectPiece] = []
        for keys in self._read_together(self._subjects):
            leaves = await self._read({leaf.rendering_id for key in keys for leaf in self._filed(key)})
            for key in keys:
                pieces = [SubjectPiece.filed(leaves[leaf.rendering_id], key, leaf.keys) for leaf in self._filed(key)]
                subject = await assembly.subject(in_order(pieces, FILED_TWICE))
                await self._flush(assembly)
                made.append(SubjectPiece(subject_prefix(key), subject.node))
                self._subject_of[key] = subject.node.rendering_id
        if made:
            self.root = (await assembly.grown(made, UNITS)).node
            await self._flush(assembly)

    async def _flush(self, assembly: SubjectAssembly) -> None:
        await self._sink(list(assembly.nodes.values()))
        assembly.nodes.clear()

    def _filed(self, key: str) -> list[_Filed]:
        """Return the leaves that are filed under a key."""
        return [leaf for leaf in self._holding[key] if key in leaf.keys]

    def _read_together(self, keys: Iterable[str]) -> Iterator[list[str]]:
        """Yield subjects in runs that few leaves are filed under, or single large ones."""
        # Most subjects have a handful of leaves: a statement for each would cost more than all else.
        run: list[str] = []
        leaves = 0
        for key in keys:
            more = len(self._filed(key))
            if run and leaves + more > _LEAVES_AT_ONCE:
                yield run
                run, leaves = [], 0
            run.append(key)
            leaves += more
        if run:
            yield run

    async def _read(self, rendering_ids: set[bytes]) -> Mapping[bytes, Node]:
        """Return leaves by their renderings."""
        found = {rendering_id: self._kept[rendering_id] for rendering_id in rendering_ids & self._kept.keys()}
        missing = sorted(rendering_ids - found.keys())
        for at in range(0, len(missing), _LEAVES_AT_ONCE):
            for node in await self._reader.nodes(missing[at : at + _LEAVES_AT_ONCE]):
                found[node.rendering_id] = node
                self._keep(node)
        return found

    def _keep(self, leaf: Node) -> None:
        self._kept[leaf.rendering_id] = leaf
        if len(self._kept) > _LEAVES_KEPT:
            self._kept.popitem(last=False)
