"""The search blocks of a scope's tree: which nodes carry one, and the bytes of those that are new.

A block covers the highest node with at most 2,048 events; a unit may have twice as many before its parts take its
place. So a change rewrites only the blocks above it, and a block stored under a rendering's id is up to date.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from myria.builds.events import ScopeEvents
from myria.db.database import Connection
from myria.db.queries import sql
from myria.index import MAX_DOCS, BlockView, Doc, Piece, decode, splice
from myria.index.searchable import Covered, document_of
from myria.topics.model import PlanEvent
from myria.versions import SEARCH_VERSION

BLOCK_EVENTS = MAX_DOCS // 2
"""Events of a block's node, unless it is a unit."""

BLOCKS_AT_ONCE = 8
"""Blocks that are held at once and written together: two transactions for each cost as much as a tenth of the block."""

_MAX_BLOCKS_HELD = 64
"""Old blocks that are kept in memory at most; where more go out of use, the events are analysed again."""

_MAX_PACKED_BYTES = 64 * 1024**2
_MAX_DOCS_TO_PACK = MAX_DOCS
_MAX_WORDS_TO_PACK = 500_000
"""Words that wait to be packed, at most: events may be very long."""

_WORDS_OF_A_DOC = 30
"""What a document costs in memory besides its words, counted as so many words more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockNodes:
    """The renderings whose search blocks together cover a tree, in time order; `missing` have no block yet."""

    covering: list[bytes]
    missing: list[bytes]


async def block_nodes(connection: Connection, tenant: str, root: bytes) -> BlockNodes:
    """Return the renderings that carry the search blocks of the tree at `root`; all its nodes must be stored."""
    rows = await connection.fetch(sql("trees.block_nodes"), tenant, root, BLOCK_EVENTS, MAX_DOCS, SEARCH_VERSION)
    return BlockNodes(
        covering=[row["rendering_id"] for row in rows],
        missing=[row["rendering_id"] for row in rows if not row["present"]],
    )


class HeldBlocks:
    """Search blocks in memory, from which analysed documents are taken by event number, without analysing texts again.

    They are blocks of the parent snapshot that the new tree no longer uses, or documents that this build has packed.
    """

    def __init__(self, views: Sequence[BlockView]) -> None:
        self._views = views
        self._seq = np.concatenate([view.seq for view in views]) if views else np.zeros(0, dtype=np.int64)
        self._order = np.argsort(self._seq)
        self._starts = np.cumsum([0, *(len(view) for view in views)])

    @classmethod
    async def load(cls, connection: Connection, tenant: str, old: Sequence[bytes], new: BlockNodes) -> HeldBlocks:
        """Return those of the `old` blocks that the new tree does not use, or none when they are too many to hold."""
        unused_ids = sorted(set(old) - set(new.covering)) if new.missing else []
        if not 0 < len(unused_ids) <= _MAX_BLOCKS_HELD:
            return cls([])
        rows = await connection.fetch(sql("retrieval.blocks"), tenant, unused_ids, SEARCH_VERSION)
        return cls([decode(row["block"]) for row in rows])

    def pieces(self, event_seqs: Sequence[int]) -> tuple[list[Piece], list[int]]:
        """Return the parts of blocks that hold these events, and the numbers of events that no block holds."""
        numbers = np.array(sorted(event_seqs), dtype=np.int64)
        if not len(self._seq):
            return [], numbers.tolist()
        # A number above all that are held would be found past the end; it is compared with the last one instead.
        sorted_at = np.minimum(np.searchsorted(self._seq, numbers, sorter=self._order), len(self._seq) - 1)
        places = self._order[sorted_at]
        is_held = self._seq[places] == numbers
        held_places = np.sort(places[is_held])
        # Where the documents of each block begin among `held_places`, which count through all blocks in a row.
        bounds = np.searchsorted(held_places, self._starts)
        pieces = [
            Piece(view=view, docs=held_places[bounds[index] : bounds[index + 1]] - self._starts[index])
            for index, view in enumerate(self._views)
            if bounds[index] < bounds[index + 1]
        ]
        return pieces, numbers[~is_held].tolist()


class PlannedDocs:
    """The events that this build has planned, as documents of the search index whose texts are analysed already.

    They are packed as in a search block, about 150 bytes for each event. Once a scope's documents take `most_bytes`,
    no further ones are kept: those events are read and analysed again for their blocks.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self._bytes_left = _MAX_PACKED_BYTES if most_bytes is None else most_bytes
        self._to_pack: list[Doc] = []
        self._words_to_pack = 0
        self._packed: list[BlockView] = []
        self._index: HeldBlocks | None = None

    def keep(self, events: Sequence[PlanEvent]) -> None:
        """Keep the documents of a planned unit's events while there is room."""
        if self._bytes_left <= 0:
            return
        for event in events:
            self._to_pack.append(document_of(event))
            self._words_to_pack += len(event.terms) + _WORDS_OF_A_DOC
            if len(self._to_pack) >= _MAX_DOCS_TO_PACK or self._words_to_pack >= _MAX_WORDS_TO_PACK:
                self._pack()

    def pieces(self, event_seqs: Sequence[int]) -> tuple[list[Piece], list[int]]:
        """Return the packed documents of these numbers, and the numbers that are not held."""
        if self._to_pack:
            self._pack()
        if self._index is None:
            self._index = HeldBlocks(self._packed)
        return self._index.pieces(event_seqs)

    def _pack(self) -> None:
        view = decode(splice((), fresh=self._to_pack))
        self._to_pack = []
        self._words_to_pack = 0
        self._bytes_left -= view.nbytes
        self._packed.append(view)
        self._index = None


async def make_blocks(
    covers: Mapping[bytes, Covered],
    *,
    events: ScopeEvents,
    old: HeldBlocks,
    planned: PlannedDocs,
    counts: Counter[str],
) -> dict[bytes, tuple[bytes, bytes]]:
    """Make search blocks, by rendering id, each with the node_ids of its leaves joined into one bytes value.

    Each event's document is taken from an old block, else from what this build has planned, else read from the log.

    Args:
        covers: by the id of each rendering to make a block for, the nodes and events that the block covers.
        events: reads the scope's events from the log.
        old: blocks of the parent snapshot.
        planned: documents that this build has analysed already.
        counts: how many events came out of no older block (`events_indexed`), and how many of those had to be read
            from the log and analysed (`events_analysed`).
    """
    blocks: dict[bytes, tuple[bytes, bytes]] = {}
    for rendering_id, content in covers.items():
        old_pieces, seqs_not_in_old = old.pieces(list(content.leaf_of))
        planned_pieces, seqs_to_read = planned.pieces(seqs_not_in_old)
        docs_read = await events.docs(seqs_to_read)
        block = splice([*old_pieces, *planned_pieces], fresh=docs_read, nodes=content.nodes, leaf_of=content.leaf_of)
        blocks[rendering_id] = (block, content.leaf_ids)
        counts["events_indexed"] += len(seqs_not_in_old)
        counts["events_analysed"] += len(seqs_to_read)
    return blocks
