"""The pack: the search blocks of many small scopes as one view, so that a question costs no work per scope.

A pack is made in memory out of blocks that a reader may see; it is never stored. Documents stand scope after scope,
and in order of time within a scope, so a scope's rows can be told from all others' and masked out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from myria.index.block import NAMES, BlockView, Ints, View, decode

_AS_THEY_ARE: Final = ("seq", "timestamp", "utc_offset", "xid", "length", "flags", "node_rendering", "node_level")
_POSTINGS: Final = (
    ("terms", "offsets", "posting_doc", "posting_tf"),
    ("hint_terms", "hint_offsets", "hint_doc", "hint_permille"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pack(View):
    """The documents of many scopes; `scope_id` ascends."""

    scope_id: Ints


def pack(blocks: Sequence[tuple[int, bytes]]) -> Pack:
    """Return the pack of the blocks (scope, bytes) of different scopes, of one at least.

    Raises:
        InternalError: bytes are no block of this version, or contradict themselves.
    """
    blocks = sorted(blocks, key=lambda block: block[0])
    views = [decode(raw) for _, raw in blocks]
    docs, nodes = _counts(views, "seq"), _counts(views, "node_parent")
    columns: dict[str, Any] = {name: _joined(views, name) for name in _AS_THEY_ARE}
    columns["scope_id"] = np.repeat(np.array([scope_id for scope_id, _ in blocks], dtype=np.int64), docs)
    for name, counts in (("leaf", docs), ("node_parent", nodes)):
        column = _joined(views, name)
        columns[name] = np.where(column >= 0, column + _first_of_each(nodes, counts), -1).astype(np.int32)
    for name, table in NAMES:
        codes: dict[str, int] = {"": 0}
        names = [text for view in views for text in getattr(view, table)]
        coded = np.array([codes.setdefault(text, len(codes)) for text in names], dtype=np.int32)
        columns[name] = coded[_joined(views, name) + _first_of_each(_counts(views, table), docs)]
        columns[table] = tuple(codes)
    for section_names in _POSTINGS:
        columns.update(zip(section_names, _join_postings(views, *section_names), strict=True))
    return Pack(**columns)


def _joined(views: Sequence[BlockView], name: str) -> npt.NDArray[Any]:
    """Return a column of all blocks, one after the other."""
    return np.concatenate([getattr(view, name) for view in views])


def _counts(views: Sequence[BlockView], name: str) -> Ints:
    """Return how many items a column has in each block."""
    return np.array([len(getattr(view, name)) for view in views], dtype=np.int64)


def _first_of_each(items: Ints, repeats: Ints) -> Ints:
    """Return the number that each block's first item gets, repeated as often as the block has `repeats`.

    Args:
        items: how many items each block has: they are numbered on from block to block.
    """
    return np.repeat(np.cumsum(items) - items, repeats)


def _join_postings(
    views: Sequence[BlockView], ids: str, offsets: str, docs: str, values: str
) -> tuple[Ints, Ints, npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Join one kind of postings of all blocks; return distinct terms, offsets, documents and values, sorted by term.

    Args:
        ids, offsets, docs, values: the names of the four columns.
    """
    doc_numbers = _joined(views, docs) + _first_of_each(_counts(views, "seq"), _counts(views, docs))
    terms = _joined(views, ids)
    sizes = np.concatenate([np.diff(getattr(view, offsets)) for view in views]).astype(np.int64)
    order = np.argsort(terms, kind="stable")
    terms, begins, sizes = terms[order], (np.cumsum(sizes) - sizes)[order], sizes[order]
    ends = np.cumsum(sizes)
    # The postings of each term, one after the other: begin, begin + 1, ...
    places = np.repeat(begins - (ends - sizes), sizes) + np.arange(len(doc_numbers))
    is_last = np.concatenate((terms[1:] != terms[:-1], np.ones(min(1, len(terms)), dtype=np.bool_)))
    return (
        terms[is_last],
        np.concatenate(([0], ends[is_last])),
        doc_numbers[places].astype(np.int32),
        _joined(views, values)[places],
    )
