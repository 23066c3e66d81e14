"""Plans a scope's subjects from all its leaves, in little memory: some dozens of bytes for each event.

Of each leaf its names, its time and what it may be filed under are kept, as numbers in arrays. What it says is read
again for each of its subjects, a bounded number of leaves at a time, and a node goes on its way as soon as it is whole.
The outcome is what `update` gives from no leaves at all.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from myria.errors import InternalError
from myria.settings.planner import PlannerSettings
from myria.topics.model import LEAF, Node, Outline, Participants
from myria.topics.subjects.holders import Holder, Holders, stored_key
from myria.topics.subjects.keys import LEAST_UNITS, SATURATED, SUBJECTS_MOST, Claims, candidates, chosen
from myria.topics.subjects.packing import KeptNodes, PackedMetadata, packed
from myria.topics.subjects.stream import FewPieces, SubjectStream
from myria.topics.subjects.trie import NodeReader, SubjectPiece, made_of, path_of, subject_prefix
from myria.topics.subjects.update import PlacedLeaf, leaves_beneath

NodeSink = Callable[[Sequence[Node]], Awaitable[None]]
"""Takes new nodes as they are made, children before parents."""

_LEAVES_AT_ONCE = 500
"""Filings whose leaves are read by one statement."""

_LEAVES_KEPT = 20_480
"""Leaves that are kept: a scope of so many is read once."""

_holder = partial(tuple.__new__, Holder)
"""Makes a holder of a tuple of its fields: a scope has some for every event."""

_RENDERING_BYTES = 32
_KEY_BYTES = 16
_NONE = 0xFFFFFFFF


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
    plan = await begin_plan(root, reader, sink, participants=participants, settings=settings)
    await plan.gather(plan.make(0, plan.size))
    return plan


async def begin_plan(
    root: Outline | None,
    reader: NodeReader,
    sink: NodeSink,
    *,
    participants: Participants,
    settings: PlannerSettings,
    leaves: Iterable[PlacedLeaf] | None = None,
) -> WholePlan:
    """Read all leaves and choose what each is filed under; see `plan_all_subjects`.

    The subjects are still to be made, in ranges of their order and perhaps by several processes, then gathered.
    `leaves` are those of the tree, in any order, where they are known already.
    """
    ledger = _Ledger()
    kept = _Leaves(ledger, reader)
    if leaves is not None:
        for placed in leaves:
            kept.keep(ledger.take(placed), placed.leaf)
    elif root is not None:
        async for placed in leaves_beneath(root, reader):
            kept.keep(ledger.take(placed), placed.leaf)
    ledger.file()
    return WholePlan(ledger, kept, sink, participants=participants, settings=settings)


class WholePlan:
    """The subjects of a scope: their root, None without any, and who holds which key."""

    def __init__(
        self, ledger: _Ledger, leaves: _Leaves, sink: NodeSink, *, participants: Participants, settings: PlannerSettings
    ) -> None:
        self.root: Node | None = None
        self._ledger = ledger
        self._leaves = leaves
        self._sink = sink
        self._participants = participants
        self._most = settings.max_fan_out
        self._numbers = ledger.subjects()
        self._subject_of: dict[int, bytes] = {}
        self._made: list[Node] = []

    @property
    def size(self) -> int:
        """How many subjects there are."""
        return len(self._numbers)

    def records(self) -> Iterator[tuple[bytes, Holders]]:
        """Yield the record of each key that a leaf holds, with all its holders, in the order of stored keys."""
        ledger = self._ledger
        stored = b"".join(map(stored_key, ledger.keys))
        for number in _in_order(stored):
            at = number * _KEY_BYTES
            record = Holders(tuple(ledger.holders(number)), subject=self._subject_of.get(number))
            yield stored[at : at + _KEY_BYTES], record

    async def make(self, begin: int, end: int) -> AsyncIterator[Node]:
        """Make the subjects of a range of their order and yield each once it is whole, packed."""
        number, subject = -1, self._gathering(is_large=False)
        filings = self._ledger.filings(self._numbers[begin:end], self._most)
        while part := list(islice(filings, _LEAVES_AT_ONCE)):
            read = await self._leaves.read({filing.leaf for filing in part})
            for filing in part:
                if filing.number != number:
                    if number >= 0:
                        yield self._subject(number, subject)
                    number, subject = filing.number, self._gathering(is_large=bool(filing.path))
                subject.add(SubjectPiece(filing.path, read[filing.leaf], filing.others))
            await self._flush()
        if number >= 0:
            yield self._subject(number, subject)
            await self._flush()

    async def gather(self, subjects: AsyncIterator[Node]) -> None:
        """Make the nodes above all subjects, which come in their order."""
        index = SubjectStream(self._node, self._most)
        count = 0
        async for node in subjects:
            number = self._numbers[count]
            self._subject_of[number] = node.rendering_id
            index.add(SubjectPiece(subject_prefix(self._ledger.keys[number]), node))
            count += 1
        if count:
            top = index.end()
            root = top.pieces[0] if count == 1 else self._node(top.pieces, top.prefix)
            self.root = root.node
            await self._flush()

    async def _flush(self) -> None:
        await self._sink(self._made)
        self._made.clear()

    def _node(self, children: Sequence[SubjectPiece], prefix: str) -> SubjectPiece:
        # What lies flat in a subject is in the order of time.
        if all(child.node.node_type == LEAF for child in children):
            children = sorted(children, key=lambda child: child.in_time)
        piece = made_of(children, prefix, self._participants)
        self._made.append(piece.node)
        return piece

    def _gathering(self, *, is_large: bool) -> SubjectStream | FewPieces:
        return SubjectStream(self._node, self._most) if is_large else FewPieces()

    def _subject(self, number: int, gathering: SubjectStream | FewPieces) -> Node:
        gathered = gathering.end()
        key = self._ledger.keys[number]
        if gathered.size < LEAST_UNITS:
            raise InternalError("a subject of a single leaf", key=key)
        return packed(self._node(gathered.pieces, subject_prefix(key)).node)


@dataclass(frozen=True, slots=True)
class _Filing:
    """A leaf under a key, both by number; the path, "" in a subject that is flat, and the leaf's other keys."""

    number: int
    path: str
    leaf: int
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Worded:
    """What the rendering of a leaf says, no longer packed."""

    metadata: Mapping[str, Any]


class _Ledger:
    """All leaves of a scope by number, with the keys that they may be filed under, by number too."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._numbers = _Numbers()
        self._units: dict[bytes, int] = {}
        self._unit_names: list[bytes] = []
        self._renderings, self._digests = bytearray(), bytearray()
        self._taken = (b"", b"")
        """The renderings and digests, once all are in: parts of bytes are cut out in one step."""
        self._times = array("q")
        self._unit_of = array("I")
        self._claims_from = array("I", [0])
        self._claimed = array("I")
        self._weights = array("I")
        self._rivals = array("H")
        self._filed = array("I")
        """Of each leaf the keys that it is filed under, best first, up to `SUBJECTS_MOST`."""
        self._is_subject = bytearray()
        self._claims_by_key = array("I")
        self._is_filed = b""
        """Of each claim, in the order of `_claims_by_key`, whether the leaf is filed under the key."""
        self._key_from = array("q", [0])

    def take(self, placed: PlacedLeaf) -> int:
        """Take in a leaf and return its number."""
        leaf = placed.leaf
        unit = self._units.setdefault(placed.unit, len(self._units))
        self._renderings += leaf.rendering_id
        self._digests += leaf.key_digest
        self._times.append(leaf.key_timestamp)
        self._unit_of.append(unit)
        said = _Worded(leaf.metadata.plain()) if isinstance(leaf.metadata, PackedMetadata) else leaf
        claims = Claims.of(said, candidates(said))
        self._claimed.extend(map(self._numbers.__getitem__, claims.keys))
        self._weights.extend(claims.weights)
        self._rivals.extend(claims.rivals)
        self._claims_from.append(len(self._claimed))
        return len(self._times) - 1

    def file(self) -> None:
        """Choose what each leaf is filed under, once all are in."""
        self._taken = (bytes(self._renderings), bytes(self._digests))
        self._unit_names = list(self._units)
        del self._renderings, self._digests
        self.keys = list(self._numbers)
        claimed = np.array(self._claimed, np.uint32)
        bounds = np.array(self._claims_from, np.int64)
        sizes: npt.NDArray[np.int64] = bounds[1:] - bounds[:-1]
        counts = self._units_holding(claimed, sizes)
        first_unit = array("I", bytes(4 * len(self.keys)))
        self._is_subject = bytearray(len(self.keys))
        for leaf, unit in enumerate(self._unit_of):
            begin, end = self._claims_from[leaf], self._claims_from[leaf + 1]
            numbers = self._claimed[begin:end]
            units = [counts[number] for number in numbers]
            best = [numbers[at] for at in chosen(self._weights[begin:end], self._rivals[begin:end], units)]
            for number in best:
                if not first_unit[number]:
                    first_unit[number] = unit + 1
                elif first_unit[number] != unit + 1:
                    self._is_subject[number] = True
            self._filed.extend(best + [_NONE] * (SUBJECTS_MOST - len(best)))
        by_key = np.argsort(claimed, kind="stable")
        leaves = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)[by_key]
        self._claims_by_key = array("I", leaves.tobytes())
        filed = np.array(self._filed, np.uint32).reshape(-1, SUBJECTS_MOST)
        claimed = claimed[by_key]
        is_filed = np.zeros(len(claimed), np.bool_)
        for place in range(SUBJECTS_MOST):
            is_filed |= filed[leaves, place] == claimed
        self._is_filed = is_filed.tobytes()
        self._key_from.frombytes(np.cumsum(np.bincount(claimed, minlength=len(self.keys))).astype(np.int64).tobytes())
        del self._numbers, self._weights, self._rivals

    def _units_holding(self, claimed: npt.NDArray[np.uint32], sizes: npt.NDArray[np.int64]) -> bytes:
        """Return how many units hold each key, as far as they count."""
        held = claimed.astype(np.uint64) << np.uint64(32)
        held |= np.repeat(np.array(self._unit_of, np.uint32), sizes)
        held.sort()
        held = held[np.flatnonzero(np.diff(held, prepend=held[:1] + np.uint64(1)))] >> np.uint64(32)
        counts = np.bincount(held.astype(np.int64), minlength=len(self._numbers))
        return np.minimum(counts, SATURATED).astype(np.uint8).tobytes()

    def holders(self, number: int) -> list[Holder]:
        """Return the leaves that hold a key, ordered."""
        unit_names, renderings, units = self._unit_names, self._taken[0], self._unit_of
        held = [
            _holder(
                (
                    unit_names[units[leaf]],
                    renderings[leaf * _RENDERING_BYTES : (leaf + 1) * _RENDERING_BYTES],
                    is_filed == 1,
                )
            )
            for leaf, is_filed in self._claims_of(number)
        ]
        if len(held) > 1:
            held.sort()
        return held

    def subjects(self) -> list[int]:
        """Return the keys that are subjects, in the order of their paths."""
        numbers = [number for number, is_subject in enumerate(self._is_subject) if is_subject]
        return sorted(numbers, key=lambda number: subject_prefix(self.keys[number]))

    def filings(self, numbers: Iterable[int], most: int) -> Iterator[_Filing]:
        """Yield all that is filed under some keys, which come in the order of their paths.

        What is filed under one key comes in the order of paths as well, unless it is so little that it lies flat.
        """
        for number in numbers:
            leaves = [leaf for leaf, is_filed in self._claims_of(number) if is_filed]
            if len(leaves) <= most:
                for leaf in leaves:
                    yield _Filing(number, "", leaf, self._others(leaf, number))
                continue
            found = []
            for leaf in leaves:
                others = self._others(leaf, number)
                at = leaf * _RENDERING_BYTES
                digest = self._taken[1][at : at + _RENDERING_BYTES]
                path = path_of(self.keys[number], others, self._times[leaf], digest)
                found.append(_Filing(number, path, leaf, others))
            found.sort(key=attrgetter("path"))
            yield from found

    def _others(self, leaf: int, number: int) -> tuple[str, ...]:
        """Return the other keys that a leaf is filed under."""
        filed = self._filed[leaf * SUBJECTS_MOST : (leaf + 1) * SUBJECTS_MOST]
        return tuple([self.keys[other] for other in filed if other not in (number, _NONE)])

    def rendering_id(self, leaf: int) -> bytes:
        """Return the rendering of a leaf."""
        return self._taken[0][leaf * _RENDERING_BYTES : (leaf + 1) * _RENDERING_BYTES]

    def _claims_of(self, number: int) -> Iterator[tuple[int, int]]:
        """Return the leaves that hold a key, each with whether it is filed under it."""
        begin, end = self._key_from[number], self._key_from[number + 1]
        return zip(self._claims_by_key[begin:end], self._is_filed[begin:end], strict=True)


class _Numbers(dict[str, int]):
    """Keys by their numbers, which they get when they are asked for first."""

    def __missing__(self, key: str) -> int:
        self[key] = number = len(self)
        return number


class _Leaves:
    """Reads leaves by number, and keeps those that were wanted last."""

    def __init__(self, ledger: _Ledger, reader: NodeReader) -> None:
        self._ledger = ledger
        self._reader = reader
        self._kept = KeptNodes[int]()

    def keep(self, number: int, leaf: Node) -> None:
        """Keep a leaf that was read."""
        self._kept.keep(number, leaf)
        if len(self._kept) > _LEAVES_KEPT:
            self._kept.popitem(last=False)

    async def read(self, numbers: set[int]) -> Mapping[int, Node]:
        """Return some leaves by their numbers."""
        found: dict[int, Node] = {}
        for number in numbers & self._kept.keys():
            self._kept.move_to_end(number)
            found[number] = self._kept[number]
        missing = sorted(numbers - found.keys())
        if missing:
            nodes = await self._reader.nodes(list(map(self._ledger.rendering_id, missing)))
            for number, node in zip(missing, nodes, strict=True):
                found[number] = node
                self.keep(number, node)
        return found


def _in_order(stored: bytes) -> Iterator[int]:
    """Yield the numbers of stored keys in the order of these."""
    halves = np.frombuffer(stored, ">u8").reshape(-1, 2)
    yield from np.lexsort((halves[:, 1], halves[:, 0])).tolist()
