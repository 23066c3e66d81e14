"""Quantised vectors of documents, and what their nearness to a question's vector is worth: integers only, so that every
machine computes the same.

A vector is stored as signed bytes, scaled so that its largest component is 127: what a model computes in floats is
rounded once, when it is stored. Sums of products of bytes are taken as integers of 32 bits, which hold them all.

A question's vector is compared with those of all visible documents. What counts is not the cosine itself, whose size
is each model's own, but by how many standard deviations it exceeds the mean of what is visible: the same weights hold
for every model, and no hidden document moves any score. Some models find much between any two texts, so that all
cosines lie in a narrow band far above 0: the band is stretched first, from its lower end to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from myria.index.block import Ints
from myria.index.corpus import Corpus, Mask

MAX_DIMENSIONS: Final = 4_096
"""Dimensions of the longest vector that is stored."""

ABSENT: Final = np.int64(-1 << 40)
"""Stands for the likeness of a document that has no vector."""

_MOST: Final = 127
_ROWS_AT_ONCE: Final = 4_096
_NORM_SCALE: Final = 256
_COSINE_BITS: Final = 15
WHOLE: Final = 1 << _COSINE_BITS
"""The likeness of a vector to itself: cosines are counted in 1/`WHOLE`."""

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
        """Return those of the (event_seq, vector) pairs that have `dimensions`; of a repeated event_seq the first."""
        fitting = {seq: vector for seq, vector in reversed(numbered) if len(vector) == dimensions}
        seqs = sorted(fitting)
        raw = b"".join([fitting[seq] for seq in seqs])
        rows = np.frombuffer(raw, dtype=np.int8).reshape(len(seqs), dimensions)
        return cls(seq=np.array(seqs, dtype=np.int64), rows=rows, norm=_norms(rows))

    def with_more(self, more: VectorRows) -> VectorRows:
        """Return the documents of both; no document may be in both."""
        seq = np.concatenate((self.seq, more.seq))
        order = np.argsort(seq, kind="stable")
        return VectorRows(
            seq=seq[order],
            rows=np.concatenate((self.rows, more.rows))[order],
            norm=np.concatenate((self.norm, more.norm))[order],
        )

    def kept(self, mask: npt.NDArray[np.bool_]) -> VectorRows:
        """Return the documents where a mask is true."""
        return VectorRows(seq=self.seq[mask], rows=self.rows[mask], norm=self.norm[mask])

    def likeness(self, vector: bytes, seqs: Ints) -> Ints:
        """Return the cosine of a vector and each document's of `seqs`, in 1/32768; `ABSENT` where there is none."""
        cosines = np.full(len(seqs), ABSENT, dtype=np.int64)
        if not len(self) or len(vector) != self.rows.shape[1]:
            return cosines
        row_of_doc = self.seq.searchsorted(seqs)
        row_of_doc[row_of_doc == len(self)] = 0
        with_vector = np.flatnonzero(self.seq[row_of_doc] == seqs)
        matching_rows = row_of_doc[with_vector]
        question = np.frombuffer(vector, dtype=np.int8).astype(np.int32)
        products = np.zeros(len(matching_rows), dtype=np.int64)
        for begin, end in pairwise([*range(0, len(matching_rows), _ROWS_AT_ONCE), len(matching_rows)]):
            # Not by BLAS: it has no integers, and wakes a thread per core for a millisecond's work.
            products[begin:end] = np.einsum("ij,j->i", self.rows[matching_rows[begin:end]], question)
        norms = self.norm[matching_rows] * int(_norms(question[np.newaxis])[0])
        cosines[with_vector] = (products << (_COSINE_BITS + 16)) // norms
        return cosines


def _norms(rows: npt.NDArray[np.integer]) -> Ints:
    """Return the lengths of vectors in 1/256, rounded down: roots of whole numbers, which are exact everywhere."""
    squares = np.zeros(len(rows), dtype=np.int64)
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[begin : begin + _ROWS_AT_ONCE].astype(np.int32)
        squares[begin : begin + _ROWS_AT_ONCE] = np.einsum("ij,ij->i", part, part)
    return np.maximum(1, np.sqrt(squares * _NORM_SCALE**2).astype(np.int64))


_FROM: Final = 100
"""A document gains only by what exceeds the mean by so many percent of a standard deviation."""
_AT_MOST: Final = 600
"""The most that a document gains, in percent of a standard deviation."""
_IMAGINED: Final = 8
"""Documents with cosine 0 that are thought beside the visible ones: among three, all three do not stand out."""
_LEAST_DEVIATION: Final = WHOLE * 6 // 100
"""The least standard deviation, in 1/32768: of texts that are all alike none stands out by a hair."""
_BEARING: Final = 32
"""Visible documents from which the least of their cosines counts as what the model finds between any two texts. Of
fewer only a share of it counts: it may be that all of them answer the question."""
_GROUND_AT_MOST: Final = WHOLE * 9 // 10
"""The most that is taken for what a model finds between any two texts: a hair is not stretched to a difference."""
_LEAST: Final = WHOLE * 35 // 100
"""The least cosine, in 1/32768, by which a text may be what is asked for although it holds no word of the question."""
_LEAST_STRETCHED: Final = WHOLE * 20 // 100
"""The same of a model whose band was stretched: less is left between its ends."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Near:
    """A question's vector, and those of the visible documents.

    `least` is the cosine, in 1/32768, from which a document may be a hit by its meaning alone; None: as the model is.
    """

    question: bytes
    documents: VectorRows
    least: int | None = None

    def measured(self, corpus: Corpus) -> tuple[Ints, Mask, Ints]:
        """Compare the question with every document of a corpus's timeline.

        Returns:
            how much each document gains by its nearness, in 1/256 standard deviations;
            a mask of those near enough to be hits without a word of the question;
            the cosine of each, stretched, in 1/32768; `ABSENT` where there is no vector.
        """
        likeness = self.documents.likeness(self.question, corpus.laid_out.seq)
        ground = _ground(likeness[likeness != ABSENT])
        if ground:
            likeness = np.where(likeness == ABSENT, ABSENT, (likeness - ground) * WHOLE // (WHOLE - ground))
        present = likeness[likeness != ABSENT]
        count = len(present) + _IMAGINED
        mean = int(present.sum()) // count
        squares = int(((present - mean) ** 2).sum()) + _IMAGINED * mean * mean
        deviation = max(_LEAST_DEVIATION, isqrt(squares // count))
        threshold = mean + deviation * _FROM // 100
        least = self.least if self.least is not None else _LEAST_STRETCHED if ground else _LEAST
        gain = np.clip((likeness - threshold) * 256 // deviation, 0, _AT_MOST * 256 // 100)
        return gain, likeness >= least, likeness


def _ground(present: Ints) -> int:
    """Return the cosine that the model is assumed to give any two texts, in 1/32768; 0 if any cosine is 0 or less."""
    least = int(present.min()) if len(present) else 0
    return min(_GROUND_AT_MOST, max(0, least) * min(len(present), _BEARING) // _BEARING)
