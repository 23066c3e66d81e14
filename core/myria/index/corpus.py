"""What a ranking looks at: everything visible, in trees and beside them, as lines of time.

A `Corpus` names the pieces; a `Timeline` lays their documents out, scope after scope, in (timestamp, event_seq) order
with the soft structure every document stands in: its leaf and unit where the tree has one, else runs without a gap of
half an hour. No run, leaf, unit or neighbourhood reaches from one scope into another, and the number of numpy calls
does not depend on how many scopes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from myria.errors import InternalError
from myria.index.block import ASKS, Ints, View, name_terms
from myria.index.loose import LooseBlock
from myria.text.dates import MINUTE_US

GAP_US: Final = 30 * 60 * 1_000_000
"""A silence this long ends a run of documents that are not in a tree."""

LOOSE_SEGMENT: Final = 5
"""Documents per segment where the tree gives none."""

LOOSE_RUN: Final = 60
"""Greatest length of a run of documents outside the tree: dense streams have no gaps."""

REACH: Final = 2
"""How far a document lends evidence to its neighbours in time."""

FAR: Final = 6
"""How far a document lends evidence among short documents, as people type them in bursts."""

FEW_WORDS: Final = 15
"""At most so many terms may stand between two documents for one to lend to the other over more than `REACH`."""

Mask = npt.NDArray[np.bool_]
_NONE: Final[Ints] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class ScopeTable:
    """Scopes that share a corpus: their ids, ascending, and the participants of each."""

    ids: Ints
    participants: tuple[tuple[str, ...], ...]

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory it holds with its indexes, the names themselves not counted."""
        return 8 * len(self.ids) + 200 * sum(map(len, self.participants)) + 1_000

    @cached_property
    def holders(self) -> dict[str, Ints]:
        """Return, by participant, the positions of that participant's scopes in the table."""
        positions: dict[str, list[int]] = {}
        for position, names in enumerate(self.participants):
            for name in names:
                positions.setdefault(name, []).append(position)
        return {name: np.array(scope_positions, dtype=np.int64) for name, scope_positions in positions.items()}

    @cached_property
    def names_by_term(self) -> dict[str, list[str]]:
        """Return the names of participants by the first term of each name."""
        names: dict[str, list[str]] = {}
        for name in self.holders:
            for term in name_terms(name)[:1]:
                names.setdefault(term, []).append(name)
        return names

    def places(self, scope_ids: Ints) -> Ints:
        """Return the positions of scopes in the table, which must hold all of them."""
        return self.ids.searchsorted(scope_ids)


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Everything a question may look at in one visible scope, or in the scopes of a table.

    `blocks` stand in order of time. A mask says which documents count, in the order of its block (or of
    `LooseBlock.seq`); without one all do: a hidden document leaves no trace in any score, so a page computed later is
    the page that would have been computed then. A document must be in one place only. With a table every visible
    document has a scope that stands in it; without one all are of the one scope of the `participants`.
    """

    participants: tuple[str, ...] = ()
    table: ScopeTable | None = None
    blocks: tuple[View, ...] = ()
    block_masks: tuple[Mask | None, ...] = ()
    tail: LooseBlock | None = None
    tail_mask: Mask | None = None
    internal: LooseBlock | None = None
    internal_mask: Mask | None = None

    @cached_property
    def parts(self) -> list[tuple[View, Mask | None]]:
        """Return all views with their masks (None: all count), in the order of `Hit.view`: blocks, tail, internal."""
        masks = self.block_masks or (None,) * len(self.blocks)
        parts: list[tuple[View, Mask | None]] = list(zip(self.blocks, masks, strict=True))
        for loose, mask in ((self.tail, self.tail_mask), (self.internal, self.internal_mask)):
            offset = 0
            for view in loose.views if loose is not None else ():
                parts.append((view, None if mask is None else mask[offset : offset + len(view)]))
                offset += len(view)
        return [(view, None if mask is None or bool(mask.all()) else mask) for view, mask in parts]

    @cached_property
    def laid_out(self) -> Timeline:
        """Return the timeline, made at the first call."""
        return Timeline.of(self)

    @cached_property
    def numbered(self) -> Mask:
        """Return a mask of the timeline's documents that hold a number."""
        return self._mark_places(lambda view: view.numbered)

    @cached_property
    def notes(self) -> Mask:
        """Return a mask of the timeline's documents whose event type is Myria's own, such as notes."""
        return self._mark_places(lambda view: view.of_own_type)

    def _mark_places(self, marks: Callable[[View], Mask]) -> Mask:
        """Return a mask of the timeline from the masks that `marks` gives for each view."""
        marked = np.zeros(len(self.laid_out), dtype=np.bool_)
        for (view, _), places in zip(self.parts, self.laid_out.places, strict=True):
            marked_places = places[marks(view)]
            marked[marked_places[marked_places >= 0]] = True
        return marked

    @cached_property
    def told_at(self) -> Ints:
        """Return the local time of each document of the timeline, in microseconds since 1970.

        It is the speaker's wall clock (UTC plus the document's offset): dates that people name are compared with it.
        """
        local_time = self.laid_out.timestamp.copy()
        for (view, _), places in zip(self.parts, self.laid_out.places, strict=True):
            is_visible = places >= 0
            local_time[places[is_visible]] += view.utc_offset[is_visible].astype(np.int64) * MINUTE_US
        return local_time

    @cached_property
    def scopes(self) -> ScopeTable:
        """Return the table of the scopes; a corpus without one gets a table of its single scope, with id 0."""
        return self.table or ScopeTable(ids=np.zeros(1, dtype=np.int64), participants=(self.participants,))

    @cached_property
    def present(self) -> Mask:
        """Return a mask of the table's scopes that have a visible document.

        The others do not count: they may be newer than a cursor.
        """
        timeline = self.laid_out
        if timeline.scope is None:
            return np.array([len(timeline) > 0])
        present: Mask = np.bincount(timeline.scope, minlength=len(self.scopes.ids)) > 0
        return present


@dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """The visible documents of a corpus, scope after scope in order of time.

    `scope` gives the position of each document's scope in the corpus's table, None for a corpus without a table.
    `places[v]` maps documents of view v to positions here, -1 for hidden ones. `leaf` and `unit` number the groups a
    document stands in, below `leaves` and `units`. `linked[k - 1][i]` tells whether documents i and i + k belong to one
    thread; `far[i]` is the greatest k up to `FAR` for which they do with at most `FEW_WORDS` between them, 0 where that
    is within `REACH`. `view` and `doc` lead back.
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
    far: npt.NDArray[np.uint8]
    view: npt.NDArray[np.int32]
    doc: npt.NDArray[np.int32]
    scope: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.seq)

    @cached_property
    def answered(self) -> tuple[Ints, ...]:
        """Return the places of questions, and of statements right before a question.

        Both lend extra evidence to the document after the question, which probably answers it.
        """
        questions = (
            np.flatnonzero((self.flags[:-1] & ASKS).astype(np.bool_) & self.linked[0]) if len(self) > 1 else _NONE
        )
        statements = questions[questions > 0] - 1
        return questions, statements[self.linked[0][statements] & self.linked[0][statements + 1]]

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory the timeline takes, its cached properties included."""
        return (104 if self.scope is None else 108) * len(self) + 32 * int(np.count_nonzero(self.far)) + 500

    @classmethod
    def of(cls, corpus: Corpus) -> Timeline:
        """Lay the visible documents of a corpus out in order of scope and time, and group and link them."""
        parts = corpus.parts
        views = [view for view, _ in parts]
        is_visible = np.concatenate(
            [np.zeros(0, dtype=np.bool_)]
            + [np.ones(len(view), dtype=np.bool_) if mask is None else mask for view, mask in parts]
        )
        scope = None if corpus.table is None else _scopes(corpus.table, views)
        seq = _concatenate([view.seq for view in views])
        timestamp = _concatenate([view.timestamp for view in views])
        order = np.lexsort((seq, timestamp) if scope is None else (seq, timestamp, scope))
        order = order[is_visible[order]]
        view_of = np.repeat(np.arange(len(views), dtype=np.int32), [len(view) for view in views])
        doc_of = _concatenate([np.arange(len(view), dtype=np.int32) for view in views], np.int32)
        leaf, unit, nodes = _tree_groups(views)
        channel = _channel_codes(views)
        length = _concatenate([view.length for view in views])
        flags = _concatenate([view.flags for view in views], np.uint8)
        seq, timestamp, view_of, doc_of = seq[order], timestamp[order], view_of[order], doc_of[order]
        leaf, unit, channel, length, flags = leaf[order], unit[order], channel[order], length[order], flags[order]
        scope = None if scope is None else scope[order]
        run = _runs(scope, timestamp)
        leaf, leaves, unit, units = _group_treeless(leaf, unit, nodes, run)
        linked = tuple(
            (run[step:] == run[:-step]) & (channel[step:] == channel[:-step])
            if len(seq) > step
            else np.zeros(0, dtype=np.bool_)
            for step in range(1, REACH + 1)
        )
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
            linked=linked,
            far=_far_reach(linked[0], length),
            view=view_of,
            doc=doc_of,
            scope=scope,
        )


def _concatenate(columns: Sequence[npt.NDArray[Any]], dtype: Any = np.int64) -> npt.NDArray[Any]:
    if not columns:
        return np.zeros(0, dtype=dtype)
    if len(columns) == 1:
        return columns[0].astype(dtype, copy=False)
    return np.concatenate(columns, dtype=dtype)


def _scopes(table: ScopeTable, views: Sequence[View]) -> npt.NDArray[np.int32]:
    """Return the position of each document's scope in the table; for hidden documents the value means nothing."""
    positions = np.zeros(sum(map(len, views)), dtype=np.int32)
    offset = 0
    for view in views:
        if view.scope_id is None:
            raise InternalError("a document that shares a corpus with other scopes has none itself")
        positions[offset : offset + len(view)] = table.places(view.scope_id)
        offset += len(view)
    return positions


def _places(views: Sequence[View], order: Ints) -> tuple[Ints, ...]:
    """Return, for each view, the places of its documents in the timeline, -1 for hidden ones."""
    sizes = [len(view) for view in views]
    places = np.full(sum(sizes), -1, dtype=np.int64)
    places[order] = np.arange(len(order))
    bounds = np.cumsum([0, *sizes]).tolist()
    return tuple(places[start:end] for start, end in pairwise(bounds))


def _tree_groups(views: Sequence[View]) -> tuple[Ints, Ints, int]:
    """Return leaf and unit of each document, numbered across all views (-1 for none), and how many nodes there are."""
    leaves: list[Ints] = []
    units: list[Ints] = []
    nodes = 0
    for view in views:
        leaves.append(np.where(view.leaf >= 0, view.leaf.astype(np.int64) + nodes, -1))
        units.append(np.where(view.unit >= 0, view.unit.astype(np.int64) + nodes, -1))
        nodes += len(view.node_parent)
    return _concatenate(leaves), _concatenate(units), nodes


def _channel_codes(views: Sequence[View]) -> Ints:
    """Return the channel of each document as a code that is the same in all views."""
    if len(views) == 1:
        return views[0].channel.astype(np.int64)
    codes: dict[str, int] = {}
    columns = []
    for view in views:
        table = np.array([codes.setdefault(name, len(codes)) for name in view.channels], dtype=np.int64)
        columns.append(table[view.channel])
    return _concatenate(columns)


def _runs(scope: npt.NDArray[np.int32] | None, timestamp: Ints) -> Ints:
    """Return the number of the run each document is in: runs end at a silence, and with their scope."""
    run = np.zeros(len(timestamp), dtype=np.int64)
    if len(run) > 1:
        ends = timestamp[1:] - timestamp[:-1] >= GAP_US
        if scope is not None:
            ends |= scope[1:] != scope[:-1]
        np.cumsum(ends, out=run[1:])
    return run


def _far_reach(linked: Mask, length: Ints) -> npt.NDArray[np.uint8]:
    """Return, for each document, the greatest step up to `FAR` to a later document that it lends evidence to.

    All documents up to there are of its thread, with at most `FEW_WORDS` terms between; 0 if that is within `REACH`.
    """
    far = np.zeros(len(length), dtype=np.uint8)
    terms_before = np.concatenate(([0], np.cumsum(length)))
    starts = np.flatnonzero(linked)
    for step in range(2, FAR + 1):
        starts = starts[starts < len(length) - step]
        starts = starts[
            linked[starts + step - 1] & (terms_before[starts + step] - terms_before[starts + 1] <= FEW_WORDS)
        ]
        if not len(starts):
            break
        if step > REACH:
            far[starts] = step
    return far


def _group_treeless(leaf: Ints, unit: Ints, nodes: int, run: Ints) -> tuple[Ints, int, Ints, int]:
    """Give documents outside the tree segments as leaves and stretches as units, numbered after the nodes.

    Returns:
        leaf and number of leaves, unit and number of units.
    """
    treeless = np.flatnonzero(leaf < 0)
    if not len(treeless):
        return leaf, nodes, unit, nodes
    own_run = run[treeless]
    starts = np.flatnonzero(np.r_[True, own_run[1:] != own_run[:-1]])
    place_in_run = np.arange(len(treeless)) - np.repeat(starts, np.diff(np.r_[starts, len(treeless)]))
    segment = nodes - 1 + np.cumsum(place_in_run % LOOSE_SEGMENT == 0)
    stretch = nodes - 1 + np.cumsum(place_in_run % LOOSE_RUN == 0)
    leaf, unit = leaf.copy(), unit.copy()
    leaf[treeless], unit[treeless] = segment, stretch
    return leaf, int(segment[-1]) + 1, unit, int(stretch[-1]) + 1
