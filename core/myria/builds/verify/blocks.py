"""Checks search blocks: they hold exactly the scope's events, each under its leaf, and recompute byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from myria import errors
from myria.builds.verify.examination import (
    STREAM_ROWS,
    Check,
    Examination,
    ExaminedScope,
    Seqs,
    TreeShape,
    erased_seqs,
    set_problems,
)
from myria.db.queries import sql
from myria.index import BlockNode, BlockView, build, decode
from myria.index.searchable import document
from myria.topics.model import LEAF_LEVEL
from myria.versions import SEARCH_VERSION

_ID_BYTES = 32


async def search_blocks(
    exam: Examination, scope: ExaminedScope, eligible: Seqs, shape: TreeShape, name: str
) -> list[tuple[bytes, BlockView]]:
    """Compare a scope's search blocks with its events and its tree.

    Returns the readable blocks, by rendering, for `block_content`; none unless the examination is deep.
    """
    with exam.timed("search_blocks") as check:
        readable: list[tuple[bytes, BlockView]] = []
        held_seqs = []
        is_complete = True
        leaf_index = _LeafIndex(shape)
        for rendering in scope.blocks:
            check.examined += 1
            stored = await exam.connection.fetchrow(sql("verify.block"), exam.tenant, rendering, SEARCH_VERSION)
            if stored is None:
                check.fail(f"{name}: its search block {rendering.hex()} is missing")
                continue
            raw: bytes | None = stored["block"]
            if (
                raw is None
            ):  # Only a block of another version is stored: readers make one, and the next build writes it.
                is_complete = False
                continue
            try:
                view = decode(raw)
            except errors.InternalError as error:
                check.fail(f"{name}: search block {rendering.hex()}: {error.message}")
                continue
            held_seqs.append(view.seq)
            for problem in _block_problems(view, leaf_index, shape):
                check.fail(f"{name}: search block {rendering.hex()}: {problem}")
            if stored["leaf_ids"] is not None and _ids(stored["leaf_ids"]) != leaf_index.node_ids(view):
                check.fail(f"{name}: search block {rendering.hex()}: its leaf_ids are not those of its leaves")
            if exam.deep:
                readable.append((rendering, view))
        all_held = np.concatenate(held_seqs) if held_seqs else np.zeros(0, np.int64)
        expected = eligible if is_complete else np.intersect1d(eligible, all_held)
        erased = np.setdiff1d(await erased_seqs(exam, scope.scope_id), all_held)
        for problem in set_problems(all_held, np.setdiff1d(expected, erased), "search block"):
            check.fail(f"{name}: {problem}")
        return readable


async def block_content(exam: Examination, check: Check, blocks: Sequence[tuple[bytes, BlockView]], name: str) -> None:
    """Check that every search block recomputes from its events, byte for byte."""
    for rendering, view in blocks:
        check.examined += 1
        leaf_of = dict(zip(view.seq.tolist(), view.leaf.tolist(), strict=True))
        cursor = exam.connection.cursor(
            sql("verify.block_events"), exam.tenant, view.seq.tolist(), prefetch=STREAM_ROWS
        )
        docs = [document(row, leaf=leaf_of[row["event_seq"]]) async for row in cursor]
        nodes = [
            BlockNode(rendering_id=view.rendering(position), parent=parent, level=level)
            for position, (parent, level) in enumerate(
                zip(view.node_parent.tolist(), view.node_level.tolist(), strict=True)
            )
        ]
        if len(docs) == len(view) and build(docs, nodes) != view.raw:
            check.fail(f"{name}: search block {rendering.hex()} is not what its events give")


def _ids(raw: bytes) -> list[bytes]:
    """Split ids that are joined into one bytes value, and return them sorted."""
    return sorted([raw[start : start + _ID_BYTES] for start in range(0, len(raw), _ID_BYTES)])


def _digests(raw: bytes) -> Seqs:
    """Return joined 32-byte hashes as rows of four integers, which numpy can compare."""
    return np.frombuffer(raw, dtype=np.int64).reshape(-1, 4)


class _LeafIndex:
    """Finds the leaf of a tree that holds an event, for many events at once."""

    def __init__(self, shape: TreeShape) -> None:
        seqs = np.array(shape.seqs, dtype=np.int64)
        order = np.argsort(seqs, kind="stable")
        self._seqs = seqs[order]
        self._leaves = np.array(shape.leaf_of, dtype=np.int64)[order]
        self._renderings = _digests(b"".join(shape.leaves))
        self._node_ids = dict(zip(shape.leaves, shape.leaf_ids, strict=True))

    def node_ids(self, view: BlockView) -> list[bytes]:
        """Return the sorted node_ids of a block's leaves; empty bytes for a leaf that the tree does not have."""
        leaves = np.flatnonzero(view.node_level == LEAF_LEVEL).tolist()
        return sorted([self._node_ids.get(view.rendering(at), b"") for at in leaves])

    def strays(self, view: BlockView) -> list[int]:
        """Return the events that a block does not hold under their leaf."""
        if not len(self._seqs):
            return [int(seq) for seq in view.seq]
        positions = np.minimum(np.searchsorted(self._seqs, view.seq), len(self._seqs) - 1)
        in_block = _digests(view.node_rendering.tobytes())
        is_under_its_leaf = (
            (self._seqs[positions] == view.seq)
            & (view.leaf >= 0)
            & (in_block[view.leaf] == self._renderings[self._leaves[positions]]).all(axis=1)
        )
        return [int(seq) for seq in view.seq[~is_under_its_leaf]]


def _block_problems(view: BlockView, leaf_index: _LeafIndex, shape: TreeShape) -> Iterator[str]:
    """Yield how a block's tree differs from the snapshot's."""
    renderings = [view.rendering(position) for position in range(len(view.node_parent))]
    for position, parent in enumerate(view.node_parent.tolist()):
        if shape.level_of.get(renderings[position]) != int(view.node_level[position]):
            yield f"its node {renderings[position].hex()} is not in the tree, or at another level"
        elif parent >= 0 and shape.parent_of.get(renderings[position]) != renderings[parent]:
            yield f"its node {renderings[position].hex()} has another parent in the tree"
    if not renderings:
        yield "it has no nodes"
        return
    for seq in leaf_index.strays(view):
        yield f"event {seq} is not under its leaf"
