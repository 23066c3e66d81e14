"""Loose events: those that no tree holds (the fresh tail, internal events), searchable at once.

A `LooseBlock` never changes: `extended` and `kept` return another one that shares what is equal, so a reader
keeps what it has while a writer goes on. It holds blocks of falling size, merged like the runs of a log-structured
merge tree (O'Neil, Cheng, Gawlick, O'Neil, 1996): adding d events to n costs O(d log n), and only a dozen small
blocks ever stand beside the full ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from myria.index.block import MAX_DOCS, BlockView, Ints, Piece, decode, splice
from myria.index.documents import Doc


@dataclass(frozen=True)
class LooseBlock:
    """Events without a tree, as a sequence of block views in no particular order of time."""

    views: tuple[BlockView, ...] = ()

    def __len__(self) -> int:
        return sum(len(view) for view in self.views)

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory it holds, for a cache bounded in bytes."""
        return sum(view.nbytes for view in self.views)

    @cached_property
    def scope_id(self) -> Ints:
        """Return the scope by document, in the order masks are given in; 0 where documents came without."""
        return _column([_scopes_of(view) for view in self.views])

    @cached_property
    def seq(self) -> Ints:
        """Return event_seq by document, in the order masks are given in."""
        return _column([view.seq for view in self.views])

    @cached_property
    def xid(self) -> Ints:
        """Return the writing transaction by document, in the same order."""
        return _column([view.xid for view in self.views])

    def extended(self, docs: Iterable[Doc]) -> LooseBlock:
        """Return a block that also holds these documents; the caller ensures that it holds none of them yet."""
        views = list(self.views)
        source = iter(docs)
        while batch := list(islice(source, MAX_DOCS)):
            view = decode(splice((), fresh=batch, leaf_of={}))
            if any(doc.scope_id for doc in batch):
                scope_of = {doc.event_seq: doc.scope_id for doc in batch}
                scopes = np.array([scope_of[seq] for seq in view.seq.tolist()], dtype=np.int64)
                view = replace(view, scope_id=scopes)
            views.append(view)
            # Merged while the older is at most twice as large, as runs of such a tree are.
            while len(views) > 1 and len(views[-2]) <= min(2 * len(views[-1]), MAX_DOCS - len(views[-1])):
                right, left = views.pop(), views.pop()
                views.append(_merged((left, np.arange(len(left))), (right, np.arange(len(right)))))
        return LooseBlock(tuple(views))

    def kept(self, mask: npt.NDArray[np.bool_]) -> LooseBlock:
        """Return a block of the documents where `mask` (in the order of `seq`) is true."""
        if bool(mask.all()):
            return self
        views: list[BlockView] = []
        offset = 0
        for view in self.views:
            chosen = np.flatnonzero(mask[offset : offset + len(view)])
            offset += len(view)
            if len(chosen) == len(view):
                views.append(view)
            elif len(chosen):
                views.append(_merged((view, chosen)))
        return LooseBlock(tuple(views))


def _merged(*parts: tuple[BlockView, Ints]) -> BlockView:
    """Return one block of the given documents of each block, with their scopes where any block has them."""
    view = decode(splice([Piece(view=view, docs=docs) for view, docs in parts]))
    if all(part.scope_id is None for part, _ in parts):
        return view
    seq = _column([part.seq[docs] for part, docs in parts])
    scopes = _column([_scopes_of(part)[docs] for part, docs in parts])
    order = np.argsort(seq)
    # The merged block orders documents by time: each finds its scope again by its event_seq.
    return replace(view, scope_id=scopes[order][seq[order].searchsorted(view.seq)])


def _scopes_of(view: BlockView) -> Ints:
    return np.zeros(len(view), dtype=np.int64) if view.scope_id is None else view.scope_id


def _column(columns: list[Ints]) -> Ints:
    return np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64)
