"""Moving the best hits by what a second look says of them: integers only, the same answers give the same order.

What a model's numbers mean is its own affair. So relevance counts by how many standard deviations it differs from the
mean of the hits that were looked at, and it multiplies what the ranking found: a model that knows little of who is
who, of times and of what stands around a text, does not throw away what the ranking knows of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Final

STEPS: Final = 10_000
"""Relevance is rounded to so many steps between the least and the greatest of one reply."""

_UNIT: Final = 256
_LEAST: Final = -2 * _UNIT
_MOST: Final = 4 * _UNIT
"""Bounds of what relevance counts, in 1/256 standard deviations."""
_LEAST_PERCENT: Final = 10
"""The least that is left of a score, in percent."""


def quantised(relevance: Sequence[float]) -> list[int]:
    """Return relevances, of which there is at least one, as steps between the least and the greatest of them."""
    least, most = min(relevance), max(relevance)
    if most <= least:
        return [0] * len(relevance)
    # Halved first: the difference of two large numbers may be none.
    width = most / 2 - least / 2
    return [round((value / 2 - least / 2) / width * STEPS) for value in relevance]


def order(scores: Sequence[int], steps: Sequence[int | None], weight: int) -> list[int]:
    """Return the places of hits in their new order.

    Args:
        scores: of the ranking, best first.
        steps: beside them, how relevant the second look found each; None where it did not see it: as the mean.
        weight: percent that a score rises for each standard deviation.
    """
    seen = [step for step in steps if step is not None]
    if not seen:
        return list(range(len(scores)))
    mean = sum(seen) // len(seen)
    deviation = max(1, isqrt(sum((step - mean) ** 2 for step in seen) // len(seen)))
    worth = []
    for score, step in zip(scores, steps, strict=True):
        gain = 0 if step is None else min(_MOST, max(_LEAST, (step - mean) * _UNIT // deviation))
        worth.append(score * max(_LEAST_PERCENT * _UNIT, 100 * _UNIT + weight * gain))
    return sorted(range(len(scores)), key=lambda at: (-worth[at], at))


def placed(scores: Sequence[int], beyond: int) -> list[int]:
    """Return scores for hits in their new order: falling, and all above what follows them.

    So a place between any two hits can be named by a score, as pages of an answer need it.

    Args:
        scores: of the hits as the ranking had them, best first.
        beyond: the greatest score of what was not looked at.
    """
    falling: list[int] = []
    below = beyond
    for score in reversed(scores):
        below = max(score, below + 1)
        falling.append(below)
    return falling[::-1]
