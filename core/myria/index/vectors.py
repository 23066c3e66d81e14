"""Quantised vectors of documents, and how near a question's vector is to each: integers only, exact on every machine.

A vector is stored as signed bytes, scaled so that its largest component is 127: what a model computes in floats is
rounded once, when it is stored. Sums of products of bytes are taken as integers of 32 bits, which hold them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from myria.index.block import Ints

MAX_DIMENSIONS: Final = 4_096
"""Dimensions of the longest vector that is stored."""

ABSENT: Final = np.int64(-1 << 40)
"""Stands for the likeness of a document that has no vector."""

_MOST: Final = 127
_ROWS_AT_ONCE: Final = 4_096
_NORM_SCALE: Final = 256
_COSINE_BITS: Final = 15
WHOLE: Final = 1 << _COSINE_BITS
"""Of likeness: what a vector is like to itself."""

Bytes = npt.NDArray[np.int8]


def quantised(vector: Sequence[float] | npt.NDArray[np.floating]) -> bytes | None:
    """Return a vector as signed bytes, None for one that says nothing: empty, zero, too long, or not finite."""
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1 or not 0 < len(values) <= MAX_DIMENSIONS or not bool(np.isfinite(values).all()):
        return None
    largest = float(np.abs(values).max())
    if largest <= 0:
        return None
    return np.rint(values / largest * _MOST).astype(np.int8).tobytes()


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorRows:
    """Documents with a vector of one length each: `seq` ascending, `rows` (documents x dimensions) beside it.

    `norm` is each vector's length in 1/256.
    """

    seq: Ints
    rows: Bytes
    norm: Ints

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def nbytes(self) -> int:
        """Return about how many bytes of memory it holds."""
        return int(self.rows.nbytes + self.seq.nbytes + self.norm.nbytes) + 300

    @classmethod
    def of(cls, numbered: Sequence[tuple[int, bytes]], dimensions: int) -> VectorRows:
        """Return the documents of (event_seq, vector) whose vector has these dimensions; of two alike the first."""
        fitting = {seq: vector for seq, vector in reversed(numbered) if len(vector) == dimensions}
        seqs = sorted(fitting)
        raw = b"".join([fitting[seq] for seq in seqs])
        rows = np.frombuffer(raw, dtype=np.int8).reshape(len(seqs), dimensions)
        return cls(seq=np.array(seqs, dtype=np.int64), rows=rows, norm=_norms(rows))

    def with_more(self, more: VectorRows) -> VectorRows:
        """Return both, of which no document may be in the other."""
        seq = np.concatenate((self.seq, more.seq))
        order = np.argsort(seq, kind="stable")
        return VectorRows(
            seq=seq[order],
            rows=np.concatenate((self.rows, more.rows))[order],
            norm=np.concatenate((self.norm, more.norm))[order],
        )

    def kept(self, mask: npt.NDArray[np.bool_]) -> VectorRows:
        """Return the documents of a mask."""
        return VectorRows(seq=self.seq[mask], rows=self.rows[mask], norm=self.norm[mask])

    def likeness(self, vector: bytes, seqs: Ints) -> Ints:
        """Return the cosine of a vector and each document's of `seqs`, in 1/32768; `ABSENT` where there is none."""
        like = np.full(len(seqs), ABSENT, dtype=np.int64)
        if not len(self) or len(vector) != self.rows.shape[1]:
            return like
        at = self.seq.searchsorted(seqs)
        at[at == len(self)] = 0
        has_vector = np.flatnonzero(self.seq[at] == seqs)
        where = at[has_vector]
        asked = np.frombuffer(vector, dtype=np.int8).astype(np.int32)
        products = np.zeros(len(where), dtype=np.int64)
        for begin, end in pairwise([*range(0, len(where), _ROWS_AT_ONCE), len(where)]):
            # Not by BLAS: it has no integers, and wakes a thread per core for a millisecond's work.
            products[begin:end] = np.einsum("ij,j->i", self.rows[where[begin:end]], asked)
        norms = self.norm[where] * int(_norms(asked[np.newaxis])[0])
        like[has_vector] = (products << (_COSINE_BITS + 16)) // norms
        return like


def _norms(rows: npt.NDArray[np.integer]) -> Ints:
    """Return the lengths of vectors in 1/256, rounded down: roots of whole numbers, which are exact everywhere."""
    squares = np.zeros(len(rows), dtype=np.int64)
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[begin : begin + _ROWS_AT_ONCE].astype(np.int32)
        squares[begin : begin + _ROWS_AT_ONCE] = np.einsum("ij,ij->i", part, part)
    return np.maximum(1, np.sqrt(squares * _NORM_SCALE**2).astype(np.int64))
