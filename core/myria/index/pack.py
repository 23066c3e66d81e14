"""The pack: the search blocks of many small scopes as one view, so that a question costs no work per scope.

A pack is made out of blocks that a reader may see, in memory, by a number of numpy calls that does not depend on how
many blocks there are; it is never stored. Documents stand scope after scope, and in order of time within a scope, so
a scope's rows can be told from all others' and masked out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from myria.errors import InternalError
from myria.index.block import COLUMNS, HEADER_SIZE, MAGIC, NAMES, Ints, View
from myria.versions import BLOCK_VERSION

Mask = npt.NDArray[np.bool_]

_BY_DOC: Final = ("timestamp", "utc_offset", "leaf", "length", "flags", "speaker", "channel", "type", "context")
_POSTINGS: Final = (
    ("terms", "offsets", "posting_doc", "posting_tf"),
    ("hint_terms", "hint_offsets", "hint_doc", "hint_permille"),
)
_PLACE: Final = {name: at for at, (name, _, _) in enumerate(COLUMNS)}
_DAMAGED: Final = "a search block is damaged: its columns contradict each other"


@dataclass(frozen=True, kw_only=True, eq=False)
class Pack(View):
    """The documents of many scopes; `scope_id` ascends."""

    scope_id: Ints


def pack(blocks: Sequence[tuple[int, bytes]]) -> Pack:
    """Return the pack of the blocks (scope, bytes) of different scopes.

    Raises:
        InternalError: bytes are no block of this version, or contradict themselves.
    """
    blocks = sorted(blocks, key=lambda block: block[0])
    return _Blocks.of(blocks).packed()


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The bytes of many blocks, one after the other in `raw`.

    `scopes` has the scope of each block; `starts` and `sizes` (blocks x sections) tell where each section begins in
    `raw` and how many items it has.
    """

    raw: bytes
    scopes: Ints
    starts: Ints
    sizes: Ints

    @classmethod
    def of(cls, blocks: Sequence[tuple[int, bytes]]) -> _Blocks:
        """Concatenate blocks, and read where their sections lie out of all headers at once.

        Raises:
            InternalError: a block is of another version, or has not the length of its sections.
        """
        lengths = np.array([len(block) for _, block in blocks], dtype=np.int64)
        if len(lengths) and (lengths.min() < HEADER_SIZE or (lengths % 8).any()):
            raise InternalError("a search block is damaged: its length is none that a block has")
        raw = b"".join([block for _, block in blocks])
        begins = np.cumsum(lengths) - lengths
        words = np.frombuffer(raw, "<u4")
        headers = words[(begins // 4)[:, None] + np.arange(2 + len(COLUMNS))].astype(np.int64)
        if (headers[:, 0] != int.from_bytes(MAGIC, "little")).any() or (headers[:, 1] != BLOCK_VERSION).any():
            raise InternalError(f"a search block is not of version {BLOCK_VERSION}, which this program reads")
        sizes = headers[:, 2:]
        padded = (sizes * np.array([width for _, _, width in COLUMNS]) + 7) & -8
        ends = np.cumsum(padded, axis=1)
        if (ends[:, -1] + HEADER_SIZE != lengths).any():
            raise InternalError("a search block is damaged: it has not the length of its sections")
        return cls(
            raw=raw,
            scopes=np.array([scope_id for scope_id, _ in blocks], dtype=np.int64),
            starts=begins[:, None] + HEADER_SIZE + ends - padded,
            sizes=sizes,
        )

    def count(self, name: str) -> Ints:
        """Return how many items each block has of a section."""
        sizes: Ints = self.sizes[:, _PLACE[name]]
        return sizes

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a section of all blocks, one after the other."""
        _, dtype, width = COLUMNS[_PLACE[name]]
        unit = min(width, 8)
        counts = self.count(name) * (width // unit)
        places = _runs(self.starts[:, _PLACE[name]] // unit, counts)
        items = np.frombuffer(self.raw, dtype if width == unit else "<i8", len(self.raw) // unit)[places]
        return items if width == unit else items.view(dtype)

    def packed(self) -> Pack:
        """Join all blocks into one view; documents and nodes are numbered on from block to block.

        Raises:
            InternalError: a block contradicts itself.
        """
        docs, nodes = self.count("seq"), self.count("node_parent")
        first_doc, first_node = np.cumsum(docs) - docs, np.cumsum(nodes) - nodes
        for name in _BY_DOC:
            _require(bool((self.count(name) == docs).all()))
        _require(bool((self.count("node_rendering") == nodes).all() and (self.count("node_level") == nodes).all()))
        columns: dict[str, Any] = {"scope_id": np.repeat(self.scopes, docs), "seq": self.column("seq")}
        for name in _BY_DOC[:5]:
            columns[name] = self.column(name)
        leaf, shift = columns["leaf"], np.repeat(first_node, docs)
        _require(bool((leaf >= -1).all() and (leaf < np.repeat(nodes, docs)).all()))
        columns["leaf"] = np.where(leaf >= 0, leaf + shift, -1).astype(np.int32)
        parent, node_index = self.column("node_parent"), _runs(np.zeros_like(nodes), nodes)
        _require(bool((parent >= -1).all() and (parent < node_index).all()))
        columns["node_parent"] = np.where(parent >= 0, parent + np.repeat(first_node, nodes), -1).astype(np.int32)
        columns["node_level"] = self.column("node_level")
        columns["node_rendering"] = self.column("node_rendering")
        for name, table in NAMES:
            columns[name], columns[table] = self._join_names(name, table, docs)
        for names in _POSTINGS:
            columns.update(zip(names, self._join_postings(names, docs, first_doc), strict=True))
        return Pack(xid=np.broadcast_to(np.int64(0), columns["seq"].shape), **columns)

    def _join_names(self, name: str, table: str, docs: Ints) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
        """Join one table of names of all blocks; return the code of each document, and the joined table."""
        raw = self.column(table)
        try:
            texts = raw.tobytes().decode("utf-8", "surrogatepass").split("\x00")
        except UnicodeDecodeError as error:
            raise InternalError("a search block is damaged: a name is not text") from error
        ends = np.cumsum(self.count(table))
        separators = np.concatenate(([0], np.cumsum(raw == 0)))
        name_counts = separators[ends] - separators[ends - self.count(table)]
        first_name = np.cumsum(name_counts) - name_counts
        codes: dict[str, int] = {"": 0}
        coded = np.array([codes.setdefault(text, len(codes)) for text in texts], dtype=np.int32)
        block_codes = self.column(name).astype(np.int64)
        _require(bool((block_codes <= np.repeat(name_counts, docs)).all()))
        return np.where(
            block_codes > 0, coded[block_codes * (block_codes > 0) + np.repeat(first_name, docs)], 0
        ).astype(np.int32), tuple(codes)

    def _join_postings(
        self, names: tuple[str, str, str, str], docs: Ints, first_doc: Ints
    ) -> tuple[Ints, Ints, npt.NDArray[np.int32], npt.NDArray[Any]]:
        """Join one kind of postings of all blocks; return terms, offsets, documents and values, sorted by term.

        Args:
            names: the sections of terms, offsets, documents and values.
            docs: how many documents each block has.
            first_doc: the number of each block's first document in the pack.
        """
        ids, offsets, docs_of, values = names
        term_counts, posting_counts = self.count(ids), self.count(docs_of)
        _require(bool((self.count(offsets) == term_counts + 1).all() and (self.count(values) == posting_counts).all()))
        all_offsets = self.column(offsets).astype(np.int64)
        last_offsets = np.cumsum(term_counts + 1) - 1
        _require(
            bool(
                (all_offsets[last_offsets - term_counts] == 0).all()
                and (all_offsets[last_offsets] == posting_counts).all()
            )
        )
        sizes = np.delete(np.diff(all_offsets), last_offsets[:-1])
        _require(bool((sizes > 0).all()))
        doc_numbers = self.column(docs_of).astype(np.int32)
        _require(bool((doc_numbers < np.repeat(docs.astype(np.int32), posting_counts)).all()))
        doc_numbers += np.repeat(first_doc.astype(np.int32), posting_counts)
        column = self.column(ids)
        order = np.argsort(column, kind="stable")
        terms = column[order]
        begins = np.cumsum(sizes) - sizes
        sizes = sizes[order]
        places = _runs(begins[order], sizes)
        distinct, starts = _distinct(terms, sizes)
        return distinct, starts, doc_numbers[places], self.column(values)[places]


def _distinct(ids: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct ids of a sorted column, and where the postings of each begin; the end of all is last."""
    if not len(ids):
        return ids, np.zeros(1, dtype=np.int64)
    last = np.flatnonzero(np.concatenate((ids[1:] != ids[:-1], [True])))
    return ids[last], np.concatenate(([0], np.cumsum(sizes)[last]))


def _runs(starts: Ints, sizes: Ints) -> Ints:
    """Return the numbers start, start + 1, ... of each run, one run after the other."""
    ends = np.cumsum(sizes)
    return np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]) if len(ends) else 0)


def _require(sound: bool) -> None:
    if not sound:
        raise InternalError(_DAMAGED)
