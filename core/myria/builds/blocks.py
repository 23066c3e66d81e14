"""The search blocks of a scope's tree: which nodes carry one, and the bytes of those that are new.

A block covers the highest node with at most 2,048 events; a unit may have twice as many before its parts take its
place. So a change rewrites only the blocks above it, and a block stored under a rendering's id is up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from myria.builds.events import ScopeEvents
from myria.db.database import Connection
from myria.db.queries import sql
from myria.index import MAX_DOCS, BlockView, Doc, Piece, decode, splice
from myria.index.searchable import Covered, document_of
from myria.text.changes import may_be_changed
from myria.topics.model import PlanEvent
from myria.versions import SEARCH_VERSION

BLOCK_EVENTS = MAX_DOCS // 2
"""Events of a block's node, unless it is a unit."""

BLOCKS_AT_ONCE = 8
"""Blocks that are held at once and written together: two transactions for each cost as much as a tenth of the block."""

_BLOCKS_HELD = 64
_PACKED_BYTES_HELD = 64 * 1024**2
_PACKED_AT_ONCE = MAX_DOCS
_WORDS_PACKED_AT_ONCE = 500_000
"""Words that wait to be packed, at most: events may be very long."""

_WORDS_OF_A_DOC = 30
"""What a document costs besides its words, in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockNodes:
    """The renderings whose blocks cover a tree, in time order, and which of them have none yet."""

    covering: list[bytes]
    missing: list[bytes]


async def block_nodes(connection: Connection, tenant: str, root: bytes) -> BlockNodes:
    """Return which renderings carry the search blocks of the tree at `root`, all of whose nodes are stored."""
    rows = await connection.fetch(sql("trees.block_nodes"), tenant, root, BLOCK_EVENTS, MAX_DOCS, SEARCH_VERSION)
    return BlockNodes(
        covering=[row["rendering_id"] for row in rows],
        missing=[row["rendering_id"] for row in rows if not row["present"]],
    )


class HeldBlocks:
    """Search blocks in memory, out of which documents are taken by event: their texts need not be analysed again.

    They are those of the parent that the new tree does not use, or what this build has packed.
    """

    def __init__(self, views: Sequence[BlockView]) -> None:
        self._views = views
        self._seq = np.concatenate([view.seq for view in views]) if views else np.zeros(0, dtype=np.int64)
        self._order = np.argsort(self._seq)
        self._starts = np.cumsum([0, *(len(view) for view in views)])

    @classmethod
    async def load(cls, connection: Connection, tenant: str, old: Sequence[bytes], new: BlockNodes) -> HeldBlocks:
        """Return the blocks that went out of use, or none when they are too many to hold at once."""
        gone = sorted(set(old) - set(new.covering)) if new.missing else []
        if not 0 < len(gone) <= _BLOCKS_HELD:
            return cls([])
        rows = await connection.fetch(sql("retrieval.blocks"), tenant, gone, SEARCH_VERSION)
        return cls([decode(row["block"]) for row in rows])

    def pieces(self, wanted: Sequence[int]) -> tuple[list[Piece], list[int]]:
        """Return the parts of blocks that hold these events, and the numbers of events that no block holds."""
        numbers = np.array(sorted(wanted), dtype=np.int64)
        if not len(self._seq):
            return [], numbers.tolist()
        at = np.minimum(np.searchsorted(self._seq, numbers, sorter=self._order), len(self._seq) - 1)
        places = self._order[at]
        is_held = self._seq[places] == numbers
        chosen = np.sort(places[is_held])
        bounds = np.searchsorted(chosen, self._starts)
        pieces = [
            Piece(view=view, docs=chosen[bounds[index] : bounds[index + 1]] - self._starts[index])
            for index, view in enumerate(self._views)
            if bounds[index] < bounds[index + 1]
        ]
        return pieces, numbers[~is_held].tolist()


class PlannedDocs:
    """The events that this build has planned, as the search index sees them: their texts are analysed already.

    They are packed as in a search block, into some 150 bytes for each event. Beyond so many bytes of one scope, events
    are read and analysed again.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self._room = _PACKED_BYTES_HELD if most_bytes is None else most_bytes
        self._to_pack: list[Doc] = []
        self._words_to_pack = 0
        self._packed: list[BlockView] = []
        self._index: HeldBlocks | None = None

    def keep(self, events: Sequence[PlanEvent]) -> None:
        """Take the events of a planned unit, as far as there is room."""
        if self._room <= 0:
            return
        is_changed = may_be_changed([event.text for event in events])
        for event in events:
            self._to_pack.append(document_of(event, is_changed=is_changed))
            self._words_to_pack += len(event.terms) + _WORDS_OF_A_DOC
            if len(self._to_pack) >= _PACKED_AT_ONCE or self._words_to_pack >= _WORDS_PACKED_AT_ONCE:
                self._pack()

    def pieces(self, wanted: Sequence[int]) -> tuple[list[Piece], list[int]]:
        """Return the packed documents of these numbers, and the numbers that are not held."""
        if self._to_pack:
            self._pack()
        if self._index is None:
            self._index = HeldBlocks(self._packed)
        return self._index.pieces(wanted)

    def _pack(self) -> None:
        view = decode(splice((), fresh=self._to_pack))
        self._to_pack = []
        self._words_to_pack = 0
        self._room -= view.nbytes
        self._packed.append(view)
        self._index = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """Some blocks by their renderings, each with its leaves' node_ids in a row.

    Also how many events were put into them anew, and how many were read and analysed for them.
    """

    blocks: Mapping[bytes, tuple[bytes, bytes]]
    fresh: int
    analysed: int


async def make_blocks(
    covers: Mapping[bytes, Covered], *, events: ScopeEvents, old: HeldBlocks, planned: PlannedDocs
) -> Made:
    """Return the search blocks of some renderings, made of older blocks, what was planned, and the log, in this order.

    `covers` tells what each covers.
    """
    blocks: dict[bytes, tuple[bytes, bytes]] = {}
    anew = analysed = 0
    for rendering_id, beneath in covers.items():
        pieces, missing = old.pieces(list(beneath.leaf_of))
        packed, unread = planned.pieces(missing)
        fresh = await events.docs(unread)
        block = splice([*pieces, *packed], fresh=fresh, nodes=beneath.nodes, leaf_of=beneath.leaf_of)
        blocks[rendering_id] = (block, beneath.leaf_ids)
        anew += len(missing)
        analysed += len(unread)
    return Made(blocks=blocks, fresh=anew, analysed=analysed)
