"""What a document's meaning is worth to a question: how far its vector stands out among all visible ones.

A question's vector is compared with those of all visible documents. What counts is not the cosine itself, whose size
is each model's own, but by how many standard deviations it exceeds the mean of what is visible: the same weights hold
for every model, and no hidden document moves any score. Some models find much between any two texts, so that all
cosines lie in a narrow band far above 0: the band is stretched first, from its lower end to 1. Integers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Final

import numpy as np

from myria.index.block import Ints
from myria.index.corpus import Corpus, Mask
from myria.index.vectors import ABSENT, WHOLE, VectorRows

_FROM: Final = 100
"""Percent of a standard deviation above the mean from which a document counts."""
_AT_MOST: Final = 600
"""The most that it counts for, in percent of a standard deviation."""
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
    """A question's vector, and the visible documents' vectors of each corpus, in the order of the corpora.

    `least` is the cosine, in 1/32768, from which a document may be a hit by its meaning alone; None: as the model is.
    """

    question: bytes
    documents: Sequence[VectorRows | None]
    least: int | None = None

    def measured(self, corpora: Sequence[Corpus]) -> list[tuple[Ints, Mask, Ints]]:
        """Return by how much each document of each corpus stands out, in 1/256 standard deviations, which are near
        enough to be hits without a word, and the cosine of each as it counts, in 1/32768, or `ABSENT`."""
        likeness = [
            np.full(len(corpus.laid_out), ABSENT, dtype=np.int64)
            if vectors is None
            else vectors.likeness(self.question, corpus.laid_out.seq)
            for corpus, vectors in zip(corpora, self.documents, strict=True)
        ]
        ground = _ground([like[like != ABSENT] for like in likeness])
        if ground:
            likeness = [np.where(like == ABSENT, ABSENT, _stretched(like, ground)) for like in likeness]
        present = [like[like != ABSENT] for like in likeness]
        count = sum(map(len, present)) + _IMAGINED
        mean = sum(int(like.sum()) for like in present) // count
        squares = sum(int(((like - mean) ** 2).sum()) for like in present) + _IMAGINED * mean * mean
        deviation = max(_LEAST_DEVIATION, isqrt(squares // count))
        from_ = mean + deviation * _FROM // 100
        least = self.least if self.least is not None else _LEAST_STRETCHED if ground else _LEAST
        return [
            (np.clip((like - from_) * 256 // deviation, 0, _AT_MOST * 256 // 100), like >= least, like)
            for like in likeness
        ]


def _ground(present: Sequence[Ints]) -> int:
    """Return what the model is taken to find between any two texts, in 1/32768: 0 where some cosine is not above 0."""
    least = min((int(like.min()) for like in present if len(like)), default=0)
    return min(_GROUND_AT_MOST, max(0, least) * min(sum(map(len, present)), _BEARING) // _BEARING)


def _stretched(likeness: Ints, ground: int) -> Ints:
    return (likeness - ground) * WHOLE // (WHOLE - ground)
