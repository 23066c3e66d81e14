"""What the words of superseded documents are worth to what stands in their place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from myria.index.block import Ints
from myria.index.corpus import Corpus
from myria.index.loose import LooseBlock
from myria.search.plan import Plan
from myria.search.scoring import scored_alone


@dataclass(frozen=True, kw_only=True, eq=False)
class Replaced:
    """Superseded documents, which are never hits, and what stands in their place.

    `seqs` are those of `block` that count, ascending; `successors` stand beside them, by event_seq.
    """

    block: LooseBlock
    seqs: Ints
    successors: Ints

    def corpus(self) -> Corpus:
        """Return the documents that count as a corpus of their own."""
        return Corpus(tail=self.block, tail_mask=np.isin(self.block.seq, self.seqs))

    def worth(self, plan: Plan, at: int) -> tuple[Ints, Ints]:
        """Return the successors, ascending, and what the words of those before them are worth.

        Args:
            at: the place of the superseded documents behind the corpora that the plan was made for.
        """
        corpus = self.corpus()
        total = scored_alone(plan, at, corpus)
        matched = total > 0
        successors = self.successors[self.seqs.searchsorted(corpus.laid_out.seq)][matched]
        named, places = np.unique(successors, return_inverse=True)
        worth = np.zeros(len(named), dtype=np.int64)
        np.maximum.at(worth, places, total[matched])
        return named, worth


def raise_scores(score: Ints, seqs: Ints, successors: Ints, worth: Ints) -> None:
    """Give successors the scores of those that they replaced, where these are greater."""
    here = np.flatnonzero(np.isin(seqs, successors))
    score[here] = np.maximum(score[here], worth[successors.searchsorted(seqs[here])])
