"""The few figures that reports quote."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import median as _median


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the nearest-rank quantile of values in ascending order."""
    return ordered[min(len(ordered) - 1, max(0, int(q * len(ordered) + 0.999999) - 1))]


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return float(_median(values))


def ratios(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """Return the ratio of each pair of rounds that ran side by side, under the same load of the machine."""
    return [a / b if b else math.inf for a, b in zip(these, those, strict=True)]


def interval(values: Sequence[float], draws: random.Random, *, times: int = 1000) -> tuple[float, float]:
    """Return the interval in which the median lies with 95 % (bootstrap: the medians of samples with replacement)."""
    medians = sorted(median(draws.choices(values, k=len(values))) for _ in range(times))
    return quantile(medians, 0.025), quantile(medians, 0.975)
