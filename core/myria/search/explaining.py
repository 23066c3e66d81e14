"""Why an answer is as it is: what each signal gave to a hit's score, and which stage left an expected event out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from myria.index.block import Ints
from myria.search.reasons import Filter, Signal, Stage

_SCALE: Final = 100
_UNITY: Final = 65_536


class Trace:
    """Follows the scores of some documents through the steps of scoring.

    Shares are differences of whole scores, so they add up to the last one exactly.
    """

    def __init__(self, places: Ints) -> None:
        self.places = places
        self._last = np.zeros(len(places), dtype=np.int64)
        self._shares: dict[Signal, Ints] = {}

    def note(self, signal: Signal, total: Ints) -> None:
        """Note what a step made of the totals of all documents, in the units of scoring."""
        self.note_score(signal, total * _SCALE // _UNITY)

    def note_score(self, signal: Signal, score: Ints) -> None:
        """Note what a step made of the scores of all documents."""
        scores = score[self.places]
        self._shares[signal] = self._shares.get(signal, 0) + scores - self._last
        self._last = scores

    def shares(self) -> list[dict[Signal, int]]:
        """Return each document's shares by signal, without those that gave and took nothing."""
        return [
            {signal: int(share[row]) for signal, share in self._shares.items() if share[row]}
            for row in range(len(self.places))
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """Where an expected event stands in the ranking: `place` counts from 1, None where it is not ranked.

    `excluded_by` are the filters that do not let it pass.
    """

    stage: Stage
    place: int | None = None
    score: int = 0
    excluded_by: tuple[Filter, ...] = ()


Shares = Mapping[int, Mapping[Signal, int]]
"""By event_seq, what each signal gave to the score."""
