"""The search block: the words of up to 4,096 events of one scope, with the part of the topic tree above them.

An immutable byte string, content-addressed and written by the builder; serving pods keep decoded views in a cache
bounded in bytes (under row-level security words cannot come from a PostgreSQL index). Decoding copies
nothing but names: every column is a numpy view of the bytes.

Layout, little-endian, every section padded to 8 bytes: magic `MYSB`, version, section lengths, then the sections in
the order of `_SECTIONS`. Documents stand in (timestamp, event_seq) order. Names (speakers, channels, types, contexts)
are coded per block, 0 meaning none. Postings are sorted by term id, then by document.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from myria.errors import InternalError
from myria.index.documents import Doc
from myria.log.fields import RESERVED_TYPES
from myria.text import term_id, term_ids, terms
from myria.text.common_words import number_ids
from myria.text.dates import TIME_WORDS
from myria.versions import BLOCK_VERSION

MAX_DOCS: Final = 4096
"""Documents in one block; positions are stored in 16 bits."""

UNIT_LEVEL: Final = 8
"""Level of a node that stands for one planned unit; parts of it are 1..7, leaves 0 (see `myria.topics`)."""

ASKS: Final = 1
"""Flag of a document whose text ends in a question (`myria.text.asking`)."""

DATED: Final = 2
"""Flag of a document that says when something happens."""

NAMING: Final = 4
"""Flag of a document that names something (`myria.text.naming`)."""

Ints = npt.NDArray[np.int64]

MAGIC: Final = b"MYSB"
_LENGTH_LIMIT: Final = 65_535
_CHANGED: Final = 0x5C8A_36D1_92E7_4B0F
_DAYS: Final = -0x6B21_4D93_5E07_11C9
"""The id of 1 January 1970 among the hints' postings. Each later day's id is greater by `_DAY`, so one range look-up
finds a span of days; ids of words that fall into the range differ from those of days in their lower 32 bits."""
_BEGINS: Final = -0x5A21_4D93_5E07_11C9
"""The same for days from which something holds: the id of 1 January 1970 in that second list."""
_DAY: Final = 1 << 32
FAR_AWAY: Final = 4_000_000
"""Days from 1970, after it or before, beyond all dates."""
_NAME_SEPARATOR: Final = b"\x00"
_VIEW_OVERHEAD: Final = 4_000

_SECTIONS: Final = (
    ("seq", "<i8"),
    ("timestamp", "<i8"),
    ("utc_offset", "<i2"),
    ("xid", "<i8"),
    ("node_rendering", "V32"),
    ("terms", "<i8"),
    ("hint_terms", "<i8"),
    ("leaf", "<i4"),
    ("node_parent", "<i4"),
    ("node_level", "<i4"),
    ("offsets", "<i4"),
    ("hint_offsets", "<i4"),
    ("length", "<u2"),
    ("speaker", "<u2"),
    ("channel", "<u2"),
    ("type", "<u2"),
    ("context", "<u2"),
    ("posting_doc", "<u2"),
    ("hint_doc", "<u2"),
    ("hint_permille", "<u2"),
    ("posting_tf", "u1"),
    ("flags", "u1"),
    ("speakers", "u1"),
    ("channels", "u1"),
    ("types", "u1"),
    ("contexts", "u1"),
)
COLUMNS: Final = tuple((name, np.dtype(kind), np.dtype(kind).itemsize) for name, kind in _SECTIONS)
_NO_ROWS: Final[dict[str, npt.NDArray[Any]]] = {name: np.zeros(0, dtype) for name, dtype, _ in COLUMNS}
_HEADER: Final = struct.Struct(f"<4sI{len(_SECTIONS)}I")
HEADER_SIZE: Final = (_HEADER.size + 7) // 8 * 8
_TABLES: Final = frozenset({"speakers", "channels", "types", "contexts"})
NAMES: Final = (("speaker", "speakers"), ("channel", "channels"), ("type", "types"), ("context", "contexts"))

_TAKEN_OVER: Final = ("seq", "timestamp", "utc_offset", "xid", "length", "flags")


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockNode:
    """One node of the tree under a block; `parent` is the parent's index in the list (parents come first), or -1."""

    rendering_id: bytes
    parent: int
    level: int


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """Documents in columns, with nodes, postings and names, wherever they come from. Immutable: readers may share it.

    `leaf` and `node_parent` are -1 where there is none; `offsets[i]:offsets[i + 1]` are the postings of `terms[i]`;
    `speaker`, `channel`, `type` and `context` index `speakers`, `channels`, `types` and `contexts`, 0 being none.
    `scope_id` is each document's scope, None in what builders read and write: a block is of one scope.
    """

    seq: Ints
    timestamp: Ints
    utc_offset: npt.NDArray[np.int16]
    xid: Ints
    node_rendering: npt.NDArray[np.void]
    terms: Ints
    hint_terms: Ints
    leaf: npt.NDArray[np.int32]
    node_parent: npt.NDArray[np.int32]
    node_level: npt.NDArray[np.int32]
    offsets: npt.NDArray[Any]
    hint_offsets: npt.NDArray[Any]
    length: npt.NDArray[np.uint16]
    speaker: npt.NDArray[Any]
    channel: npt.NDArray[Any]
    type: npt.NDArray[Any]
    context: npt.NDArray[Any]
    posting_doc: npt.NDArray[Any]
    hint_doc: npt.NDArray[Any]
    hint_permille: npt.NDArray[np.uint16]
    posting_tf: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint8]
    speakers: tuple[str, ...]
    channels: tuple[str, ...]
    types: tuple[str, ...]
    contexts: tuple[str, ...]
    scope_id: Ints | None = None

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory this view holds, for a cache bounded in bytes."""
        names = sum(len(table) + sum(map(len, table)) for table in (self.speakers, self.channels, self.types))
        columns: int = sum(getattr(self, name).nbytes for name, _, _ in COLUMNS if name not in _TABLES)
        return columns + 4 * len(self) + 60 * (names + len(self.contexts)) + _VIEW_OVERHEAD

    @cached_property
    def unit(self) -> npt.NDArray[np.int32]:
        """Return for each document the node of its unit (the highest ancestor up to `UNIT_LEVEL`), -1 for none."""
        nodes = len(self.node_parent)
        if not nodes:
            return self.leaf
        inside = self.node_parent >= 0
        inside &= self.node_level[self.node_parent] <= UNIT_LEVEL
        tops = np.where(inside, self.node_parent, np.arange(nodes, dtype=np.int32))
        # Each round takes every node to its top's top, until no node moves.
        while not np.array_equal(above := tops[tops], tops):
            tops = above
        return np.where(self.leaf >= 0, tops[self.leaf], np.int32(-1))

    @cached_property
    def heard(self) -> frozenset[int]:
        """Return the codes of speakers who have a document: after an erasure `speakers` may name some without one."""
        return frozenset(np.unique(self.speaker).tolist())

    @cached_property
    def speakers_by_term(self) -> dict[str, list[int]]:
        """Return the codes of speakers by the first term of their names."""
        codes: dict[str, list[int]] = {}
        for code, name in enumerate(self.speakers):
            for term in name_terms(name)[:1]:
                codes.setdefault(term, []).append(code)
        return codes

    @cached_property
    def numbered(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the documents that hold a number."""
        numbers = number_ids()
        term_places = numbers.searchsorted(self.terms)
        term_places[term_places == len(numbers)] = 0
        has_number = np.zeros(len(self), dtype=np.bool_)
        has_number[self.posting_doc[np.repeat(numbers[term_places] == self.terms, np.diff(self.offsets))]] = True
        return has_number

    @cached_property
    def of_own_type(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the documents whose event type is Myria's own, such as notes."""
        is_own_type = np.array([name.startswith(RESERVED_TYPES) for name in self.types], dtype=np.bool_)
        marked: npt.NDArray[np.bool_] = is_own_type[self.type]
        return marked

    def rendering(self, node: int) -> bytes:
        """Return the rendering id of a node."""
        return bytes(self.node_rendering[node].tobytes())

    def path(self, doc: int) -> tuple[bytes, ...]:
        """Return the rendering ids above a document, its leaf first, as far as the view knows them."""
        renderings: list[bytes] = []
        node = int(self.leaf[doc])
        while node >= 0:
            renderings.append(self.node_rendering[node].tobytes())
            node = int(self.node_parent[node])
        return tuple(renderings)


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockView(View):
    """A decoded block: its columns are views of the bytes it was read from."""

    raw: bytes

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory this view holds, for a cache bounded in bytes."""
        scopes = 0 if self.scope_id is None else 8 * len(self)
        return len(self.raw) + 5 * len(self) + scopes + _VIEW_OVERHEAD


@lru_cache(maxsize=65_536)
def name_terms(name: str) -> tuple[str, ...]:
    """Return the terms of a name."""
    return tuple(terms(name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Documents taken over from an older block: their positions in it, in any order."""

    view: BlockView
    docs: Ints


def build(docs: Iterable[Doc], nodes: Sequence[BlockNode] = ()) -> bytes:
    """Return the block of these documents, whatever order they come in; the same set gives the same bytes.

    Raises:
        InternalError: too many documents, or a leaf or parent that is not among the nodes.
    """
    return splice((), fresh=docs, nodes=nodes)


def splice(
    pieces: Sequence[Piece],
    *,
    fresh: Iterable[Doc] = (),
    nodes: Sequence[BlockNode] = (),
    leaf_of: Mapping[int, int] | None = None,
) -> bytes:
    """Return the block of documents taken over from older blocks together with fresh ones.

    No text is analysed again. `leaf_of` gives the new leaf position by event_seq (documents not named have none);
    without it the fresh documents' own `leaf` counts and the others have none. The result is byte for byte what
    `build` makes of the same documents and nodes.

    Raises:
        InternalError: as `build`.
    """
    table = _Table.of_tables([_Table.of_docs(fresh), *map(_Table.of_piece, pieces)])
    if leaf_of is not None:
        table.columns["leaf"] = np.array(
            [leaf_of.get(seq, -1) for seq in table.columns["seq"].tolist()], dtype=np.int64
        )
    return table.encoded(nodes)


def decode(raw: bytes) -> BlockView:
    """Return the view of a block.

    Raises:
        InternalError: the bytes are no block of this version, or contradict themselves.
    """
    if len(raw) < HEADER_SIZE:
        raise InternalError("a search block is damaged: it is shorter than its header")
    magic, version, *sizes = _HEADER.unpack_from(raw)
    if magic != MAGIC or version != BLOCK_VERSION:
        raise InternalError(f"a search block has version {version} and this program reads {BLOCK_VERSION}: rebuild it")
    columns: dict[str, Any] = {}
    offset = HEADER_SIZE
    for (name, dtype, width), size in zip(COLUMNS, sizes, strict=True):
        section_end = offset + size * width
        if section_end > len(raw):
            raise InternalError("a search block is damaged: a section runs past its end")
        columns[name] = np.frombuffer(raw, dtype, size, offset) if size else _NO_ROWS[name]
        offset = (section_end + 7) & -8  # up to the next multiple of 8
    if offset != len(raw):
        raise InternalError("a search block is damaged: it is longer than its sections")
    try:
        for _, table in NAMES:
            columns[table] = tuple(columns[table].tobytes().decode("utf-8", "surrogatepass").split("\x00"))
    except UnicodeDecodeError as error:
        raise InternalError("a search block is damaged: a name is not text") from error
    if not len(columns["xid"]):
        columns["xid"] = np.broadcast_to(np.int64(0), columns["seq"].shape)
    view = BlockView(raw=raw, **columns)
    if not _is_sound(view):
        raise InternalError("a search block is damaged: its columns contradict each other")
    return view


@lru_cache(maxsize=8_192)
def hint_ids(hint: str) -> tuple[int, ...]:
    """Return the ids under which a topic hint is indexed: that of each of its terms, and that of the whole hint."""
    words = terms(hint)
    # No term begins with a NUL, so a whole hint's id is never that of a word.
    whole_ids = [term_id("\x00" + " ".join(words))] if words else []
    return tuple(sorted({term_id(word) for word in words} | set(whole_ids)))


def whole_hint_id(hint: str) -> int:
    """Return the id of a topic hint as a whole."""
    return term_id("\x00" + " ".join(terms(hint)))


def changed_ids(terms: Ints) -> Ints:
    """Return, for each term, the id under which the hints' postings list documents that say that its thing changed."""
    ids: Ints = terms ^ _CHANGED
    return ids


def days_between(view: View, first: int, after: int, *, begins: bool = False) -> tuple[Ints, npt.NDArray[Any]]:
    """Return days and documents: a pair for each day from `first` to before `after` that a document is about.

    Days count from 1970; pairs stand in order of days.

    Args:
        begins: look up the days from which documents say that something holds, instead of those that they are about.
    """
    epoch_id = _BEGINS if begins else _DAYS
    start, end = view.hint_terms.searchsorted((epoch_id + first * _DAY, epoch_id + after * _DAY)).tolist()
    distances = np.repeat(view.hint_terms[start:end] - epoch_id, np.diff(view.hint_offsets[start : end + 1]))
    docs = view.hint_doc[view.hint_offsets[start] : view.hint_offsets[end]]
    are_days = distances % _DAY == 0
    return distances[are_days] // _DAY, docs[are_days]


def _is_sound(view: BlockView) -> bool:
    """Tell whether a block's columns agree in length and all indexes in them point at something that exists."""
    docs, nodes = len(view.seq), len(view.node_parent)
    by_doc: tuple[npt.NDArray[Any], ...] = (view.timestamp, view.utc_offset, view.xid, view.leaf, view.length)
    by_doc += (view.flags, view.speaker, view.channel, view.type, view.context)
    return (
        docs <= MAX_DOCS
        and all(len(column) == docs for column in by_doc)
        and len(view.node_rendering) == len(view.node_level) == nodes
        and len(view.posting_doc) == len(view.posting_tf)
        and len(view.hint_doc) == len(view.hint_permille)
        and _has_sound_postings(view.terms, view.offsets, view.posting_doc, docs)
        and _has_sound_postings(view.hint_terms, view.hint_offsets, view.hint_doc, docs)
        and bool((view.leaf >= -1).all() and (view.leaf < nodes).all())
        and bool((view.node_parent >= -1).all() and (view.node_parent < np.arange(nodes)).all())
        and all(_all_below(getattr(view, column), len(getattr(view, table))) for column, table in NAMES)
    )


def _has_sound_postings(ids: Ints, offsets: npt.NDArray[np.int32], docs: npt.NDArray[np.uint16], limit: int) -> bool:
    """Tell whether postings have ascending ids, at least one document for each, and only documents below `limit`."""
    return (
        len(offsets) == len(ids) + 1
        and int(offsets[0]) == 0
        and int(offsets[-1]) == len(docs)
        and bool((offsets[1:] > offsets[:-1]).all())
        and bool((ids[1:] > ids[:-1]).all())
        and _all_below(docs, limit)
    )


def _all_below(codes: npt.NDArray[np.uint16], limit: int) -> bool:
    return not len(codes) or int(codes.max()) < limit


@dataclass(frozen=True, slots=True)
class _Table:
    """Documents on their way into a block: columns, names not yet coded, and postings not yet sorted."""

    columns: dict[str, Ints]
    names: dict[str, list[str]]
    postings: tuple[Ints, Ints, Ints]
    hints: tuple[Ints, Ints, Ints]

    @classmethod
    def of_docs(cls, docs: Iterable[Doc]) -> _Table:
        """Lay new documents out as columns and postings.

        The hints' postings also list described words, days and changes, each kind under ids of its own.
        """
        docs = sorted(docs, key=lambda doc: (doc.timestamp, doc.event_seq))
        sizes = _ints(len(doc.terms) for doc in docs)
        word_counts = sizes + _ints(len(doc.stems) for doc in docs)
        ids = _ints(term_ids(word for doc in docs for word in (*doc.terms, *doc.stems)))
        postings = _count_terms(ids, np.repeat(np.arange(len(docs)), word_counts))
        hints = [
            (hint_id, number, max(0, min(1000, permille)))
            for number, doc in enumerate(docs)
            for hint, permille in doc.hints
            for hint_id in hint_ids(hint)
        ]
        hints += [(term_id(term), number, 0) for number, doc in enumerate(docs) for term in doc.described]
        hints += [(term_id(term) ^ _CHANGED, number, 1000) for number, doc in enumerate(docs) for term in doc.changed]
        hints += [(_DAYS + day * _DAY, number, 1000) for number, doc in enumerate(docs) for day in doc.days]
        hints += [
            (_BEGINS + doc.begins * _DAY, number, 1000) for number, doc in enumerate(docs) if doc.begins is not None
        ]
        return cls(
            columns={
                "seq": _ints([doc.event_seq for doc in docs]),
                "timestamp": _ints([doc.timestamp for doc in docs]),
                "utc_offset": _ints([doc.utc_offset for doc in docs]),
                "xid": _ints([doc.xid for doc in docs]),
                "leaf": _ints([doc.leaf for doc in docs]),
                "length": np.minimum(sizes, _LENGTH_LIMIT),
                "flags": _dated_flags(postings, len(docs))
                | _ints([ASKS * doc.asks | NAMING * doc.names for doc in docs]),
            },
            names={
                "speaker": [doc.speaker or "" for doc in docs],
                "channel": [doc.channel for doc in docs],
                "type": [doc.type or "" for doc in docs],
                "context": [doc.context_id or "" for doc in docs],
            },
            postings=postings,
            hints=(_ints(row[0] for row in hints), _ints(row[1] for row in hints), _ints(row[2] for row in hints)),
        )

    @classmethod
    def of_piece(cls, piece: Piece) -> _Table:
        """Take documents over from an older block, with their postings but without their leaves."""
        view, docs = piece.view, np.asarray(piece.docs, dtype=np.int64)
        new_number = np.full(len(view), -1, dtype=np.int64)
        new_number[docs] = np.arange(len(docs))
        return cls(
            columns={
                "leaf": np.full(len(docs), -1, dtype=np.int64),
                **{name: getattr(view, name)[docs].astype(np.int64) for name in _TAKEN_OVER},
            },
            names={
                column: [getattr(view, table)[code] for code in getattr(view, column)[docs].tolist()]
                for column, table in NAMES
            },
            postings=_take_postings(new_number, view.terms, view.offsets, view.posting_doc, view.posting_tf),
            hints=_take_postings(new_number, view.hint_terms, view.hint_offsets, view.hint_doc, view.hint_permille),
        )

    @classmethod
    def of_tables(cls, tables: Sequence[_Table]) -> _Table:
        """Return the documents of some tables, of one at least, in one; they are numbered on from table to table."""
        counts = [len(table.columns["seq"]) for table in tables]
        shifts = np.cumsum([0, *counts[:-1]])

        def joined(postings: Sequence[tuple[Ints, Ints, Ints]]) -> tuple[Ints, Ints, Ints]:
            numbers = [docs + shift for (_, docs, _), shift in zip(postings, shifts, strict=True)]
            ids, values = [row[0] for row in postings], [row[2] for row in postings]
            return np.concatenate(ids), np.concatenate(numbers), np.concatenate(values)

        return cls(
            columns={name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns},
            names={name: [text for table in tables for text in table.names[name]] for name in tables[0].names},
            postings=joined([table.postings for table in tables]),
            hints=joined([table.hints for table in tables]),
        )

    def encoded(self, nodes: Sequence[BlockNode]) -> bytes:
        """Return the bytes of a block: documents in order of time, names coded, postings sorted.

        Raises:
            InternalError: too many documents, or a leaf or parent that is not among the nodes.
        """
        columns = self.columns
        docs = len(columns["seq"])
        if docs > MAX_DOCS:
            raise InternalError(f"a search block holds at most {MAX_DOCS} events", events=docs)
        leaf = columns["leaf"]
        if (
            (leaf < -1).any()
            or (leaf >= len(nodes)).any()
            or any(not -1 <= n.parent < index for index, n in enumerate(nodes))
        ):
            raise InternalError("a search block names a node that it does not hold")
        order = np.lexsort((columns["seq"], columns["timestamp"]))
        rank = np.empty(docs, dtype=np.int64)
        rank[order] = np.arange(docs)
        out: dict[str, npt.NDArray[Any] | bytes] = {name: column[order] for name, column in columns.items()}
        # Blocks of trees have no transaction ids: an empty section takes no room, and `decode` fills in zeros.
        if not columns["xid"].any():
            out["xid"] = columns["xid"][:0]
        for column, table in NAMES:
            values = self.names[column]
            distinct_names = sorted(set(values) - {""})
            code = {name: index for index, name in enumerate(["", *distinct_names])}
            out[column] = np.array([code[values[index]] for index in order.tolist()], dtype=np.int64)
            out[table] = _NAME_SEPARATOR.join(
                name.replace("\x00", "").encode("utf-8", "surrogatepass") for name in ["", *distinct_names]
            )
        out["terms"], out["offsets"], out["posting_doc"], tf = _sort_postings(self.postings, rank)
        out["posting_tf"] = np.minimum(tf, 255)
        out["hint_terms"], out["hint_offsets"], out["hint_doc"], out["hint_permille"] = _sort_postings(self.hints, rank)
        out["node_rendering"] = b"".join(node.rendering_id for node in nodes)
        out["node_parent"] = _ints(node.parent for node in nodes)
        out["node_level"] = _ints(node.level for node in nodes)
        return _to_bytes(out)


def _to_bytes(columns: Mapping[str, npt.NDArray[Any] | bytes]) -> bytes:
    """Return the header and all sections, in order, each padded to 8 bytes."""
    sizes: list[int] = []
    parts: list[bytes] = []
    for name, kind in _SECTIONS:
        column = columns[name]
        raw = column if isinstance(column, bytes) else column.astype(kind).tobytes()
        sizes.append(len(raw) // np.dtype(kind).itemsize)
        parts.append(raw.ljust((len(raw) + 7) // 8 * 8, b"\x00"))
    header = _HEADER.pack(MAGIC, BLOCK_VERSION, *sizes).ljust(HEADER_SIZE, b"\x00")
    return header + b"".join(parts)


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _count_terms(ids: Ints, doc_numbers: Ints) -> tuple[Ints, Ints, Ints]:
    """Count how often each document holds each term: return term ids, documents and counts, sorted by term id.

    Args:
        ids: the term id of each word of all documents, one document after the other.
        doc_numbers: beside them, the number of the word's document; ascending.
    """
    if not len(ids):
        return ids, doc_numbers, doc_numbers
    order = np.argsort(ids, kind="stable")
    ids, doc_numbers = ids[order], doc_numbers[order]
    first_rows = np.flatnonzero(np.r_[True, (ids[1:] != ids[:-1]) | (doc_numbers[1:] != doc_numbers[:-1])])
    return ids[first_rows], doc_numbers[first_rows], np.diff(np.r_[first_rows, len(ids)])


def _dated_flags(postings: tuple[Ints, Ints, Ints], docs: int) -> Ints:
    """Return for each document the flag `DATED` if it holds a word of time, else 0; `postings` are sorted by term."""
    ids, doc_numbers, _ = postings
    time_word_ids = _time_ids()
    flags = np.zeros(docs, dtype=np.int64)
    for first, after in zip(ids.searchsorted(time_word_ids), ids.searchsorted(time_word_ids, "right"), strict=True):
        flags[doc_numbers[first:after]] = DATED
    return flags


@cache
def _time_ids() -> Ints:
    return np.array(sorted(term_ids(TIME_WORDS)), dtype=np.int64)


def _take_postings(
    new_number: Ints,
    ids: Ints,
    offsets: npt.NDArray[np.int32],
    docs: npt.NDArray[np.uint16],
    values: npt.NDArray[Any],
) -> tuple[Ints, Ints, Ints]:
    """Return the postings (term ids, documents, values) of the documents that are taken over.

    Args:
        new_number: the new number of each document, -1 for those that are not taken.
    """
    id_of_posting = np.repeat(ids, np.diff(offsets))
    new_docs = new_number[docs]
    is_taken = new_docs >= 0
    return id_of_posting[is_taken], new_docs[is_taken], values[is_taken].astype(np.int64)


def _sort_postings(rows: tuple[Ints, Ints, Ints], rank: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return distinct term ids, offsets, documents and values, sorted; of a repeated pair the greatest value is kept.

    Args:
        rank: the place of each document in the block.
    """
    ids, doc_numbers, values = rows
    if not len(ids):
        return ids, np.zeros(1, dtype=np.int64), doc_numbers, values
    doc_numbers = rank[doc_numbers]
    order = np.lexsort((doc_numbers, ids))
    ids, doc_numbers, values = ids[order], doc_numbers[order], values[order]
    first_rows = np.flatnonzero(np.r_[True, (ids[1:] != ids[:-1]) | (doc_numbers[1:] != doc_numbers[:-1])])
    ids, doc_numbers, values = ids[first_rows], doc_numbers[first_rows], np.maximum.reduceat(values, first_rows)
    starts = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    return ids[starts], np.r_[starts, len(ids)], doc_numbers, values
