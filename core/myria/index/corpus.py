"""What a ranking looks at: everything visible of one scope, both lanes, as one line of time.

A `Corpus` names the pieces; a `Timeline` lays their documents out in (timestamp, event_seq) order with the soft
structure every document stands in: its leaf and unit where the tree has one, else runs without a gap of half an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from myria.index.block import BlockView, Ints
from myria.index.loose import LooseBlock

GAP_US: Final = 30 * 60 * 1_000_000
"""A silence this long ends a run of documents that are not in a tree."""

LOOSE_SEGMENT: Final = 5
"""Documents per segment where the tree gives none."""

LOOSE_RUN: Final = 60
"""Greatest length of a run of documents outside the tree: dense streams have no gaps."""

REACH: Final = 2
"""How far a document lends evidence to its neighbours in time."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Everything a question may look at in one visible scope.

    `blocks` stand in order of time. A mask says which documents count, in the order of its block (or of
    `LooseBlock.seq`); without one all do: a hidden document leaves no trace in any score, so a page computed later is
    the page that would have been computed then. A document must be in one place only. `timeline` may hold
    `Timeline.of(corpus)` where a corpus is kept between questions; it is made anew otherwise.
    """

    participants: tuple[str, ...]
    blocks: tuple[BlockView, ...] = ()
    block_masks: tuple[Mask | None, ...] = ()
    tail: LooseBlock | None = None
    tail_mask: Mask | None = None
    internal: LooseBlock | None = None
    internal_mask: Mask | None = None
    timeline: Timeline | None = None

    def parts(self) -> list[tuple[BlockView, Mask | None]]:
        """Return all views with their masks: blocks, tail, internal. Positions in this list are a hit's `view`."""
        return self._parts

    @cached_property
    def _parts(self) -> list[tuple[BlockView, Mask | None]]:
        masks = self.block_masks or (None,) * len(self.blocks)
        found = list(zip(self.blocks, masks, strict=True))
        for loose, mask in ((self.tail, self.tail_mask), (self.internal, self.internal_mask)):
            at = 0
            for view in loose.views if loose is not None else ():
                found.append((view, None if mask is None else mask[at : at + len(view)]))
                at += len(view)
        return [(view, None if mask is None or bool(mask.all()) else mask) for view, mask in found]


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """The visible documents of a corpus in order of time.

    `places[v]` maps documents of view v to positions here, -1 for hidden ones. `leaf` and `unit` number the groups a
    document stands in, below `leaves` and `units`. `linked[k - 1][i]` tells whether documents i and i + k belong to one
    thread. `view` and `doc` lead back.
    """

    places: tuple[Ints, ...]
    seq: Ints
    timestamp: Ints
    length: Ints
    flags: npt.NDArray[np.uint8]
    leaf: Ints
    unit: Ints
    leaves: int
    units: int
    linked: tuple[Mask, ...]
    view: npt.NDArray[np.int32]
    doc: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory it holds."""
        return 70 * len(self) + 500

    @classmethod
    def of(cls, corpus: Corpus) -> Timeline:
        """Lay out a corpus; linear in its documents when its blocks follow one another in time."""
        parts = corpus.parts()
        views = [view for view, _ in parts]
        seq = _joined([view.seq for view in views])
        timestamp = _joined([view.timestamp for view in views])
        shown = _joined_masks(parts)
        order = _chronological(seq, timestamp, shown)
        view_of = np.repeat(np.arange(len(views), dtype=np.int32), [len(view) for view in views])
        doc_of = _joined([np.arange(len(view), dtype=np.int32) for view in views], np.int32)
        leaf, unit, nodes = _structure(views)
        channel = _coded(views)
        length = _joined([view.length for view in views])
        flags = _joined([view.flags for view in views], np.uint8)
        if order is not None:
            seq, timestamp, view_of, doc_of = seq[order], timestamp[order], view_of[order], doc_of[order]
            leaf, unit, channel = leaf[order], unit[order], channel[order]
            length, flags = length[order], flags[order]
        run = _runs(timestamp)
        leaf, leaves, unit, units = _grouped(leaf, unit, nodes, run)
        return cls(
            places=_places(views, order),
            seq=seq,
            timestamp=timestamp,
            length=length,
            flags=flags,
            leaf=leaf,
            unit=unit,
            leaves=leaves,
            units=units,
            linked=tuple(
                (run[step:] == run[:-step]) & (channel[step:] == channel[:-step])
                if len(seq) > step
                else np.zeros(0, dtype=np.bool_)
                for step in range(1, REACH + 1)
            ),
            view=view_of,
            doc=doc_of,
        )


def _joined(columns: Sequence[npt.NDArray[Any]], dtype: Any = np.int64) -> npt.NDArray[Any]:
    if not columns:
        return np.zeros(0, dtype=dtype)
    if len(columns) == 1:
        return columns[0].astype(dtype, copy=False)
    return np.concatenate(columns, dtype=dtype)


def _joined_masks(parts: Sequence[tuple[BlockView, Mask | None]]) -> Mask | None:
    if all(mask is None for _, mask in parts):
        return None
    return np.concatenate([np.ones(len(view), dtype=np.bool_) if mask is None else mask for view, mask in parts])


def _chronological(seq: Ints, timestamp: Ints, shown: Mask | None) -> Ints | None:
    """Return the positions of the visible documents in order of time, None when they stand so already."""
    later = timestamp[1:] > timestamp[:-1]
    if not bool(later.all()):
        later |= (timestamp[1:] == timestamp[:-1]) & (seq[1:] > seq[:-1])
    if bool(later.all()):
        return None if shown is None else np.flatnonzero(shown)
    order = np.lexsort((seq, timestamp))
    return order if shown is None else order[shown[order]]


def _places(views: Sequence[BlockView], order: Ints | None) -> tuple[Ints, ...]:
    sizes = [len(view) for view in views]
    total = sum(sizes)
    if order is None:
        places = np.arange(total, dtype=np.int64)
    else:
        places = np.full(total, -1, dtype=np.int64)
        places[order] = np.arange(len(order))
    bounds = np.cumsum([0, *sizes]).tolist()
    return tuple(places[start:end] for start, end in pairwise(bounds))


def _structure(views: Sequence[BlockView]) -> tuple[Ints, Ints, int]:
    leaves: list[Ints] = []
    units: list[Ints] = []
    nodes = 0
    for view in views:
        leaves.append(np.where(view.leaf >= 0, view.leaf.astype(np.int64) + nodes, -1))
        units.append(np.where(view.unit >= 0, view.unit.astype(np.int64) + nodes, -1))
        nodes += len(view.node_parent)
    return _joined(leaves), _joined(units), nodes


def _coded(views: Sequence[BlockView]) -> Ints:
    """Return one code per channel across all views."""
    if len(views) == 1:
        return views[0].channel.astype(np.int64)
    codes: dict[str, int] = {}
    columns = []
    for view in views:
        table = np.array([codes.setdefault(name, len(codes)) for name in view.channels], dtype=np.int64)
        columns.append(table[view.channel])
    return _joined(columns)


def _runs(timestamp: Ints) -> Ints:
    """Return the number of the run each document is in: runs end at a silence."""
    run = np.zeros(len(timestamp), dtype=np.int64)
    if len(run) > 1:
        np.cumsum(timestamp[1:] - timestamp[:-1] >= GAP_US, out=run[1:])
    return run


def _grouped(leaf: Ints, unit: Ints, nodes: int, run: Ints) -> tuple[Ints, int, Ints, int]:
    """Give documents outside the tree segments and runs of their own, numbered after the nodes."""
    loose = np.flatnonzero(leaf < 0)
    if not len(loose):
        return leaf, nodes, unit, nodes
    own_run = run[loose]
    starts = np.flatnonzero(np.r_[True, own_run[1:] != own_run[:-1]])
    within = np.arange(len(loose)) - np.repeat(starts, np.diff(np.r_[starts, len(loose)]))
    segment = nodes - 1 + np.cumsum(within % LOOSE_SEGMENT == 0)
    stretch = nodes - 1 + np.cumsum(within % LOOSE_RUN == 0)
    leaf, unit = leaf.copy(), unit.copy()
    leaf[loose], unit[loose] = segment, stretch
    return leaf, int(segment[-1]) + 1, unit, int(stretch[-1]) + 1
