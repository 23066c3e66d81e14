"""How much of a long check runs: all in `make soak`, a seeded part in `make test`, less in `make check`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pytest

from tests.support.skips import MACHINE

Item = TypeVar("Item")
Other = TypeVar("Other")
Test = TypeVar("Test", bound=Callable[..., object])

SOAK = os.environ.get("MYRIA_TEST_SOAK") == "1"
CHECK = os.environ.get("MYRIA_TEST_CHECK") == "1" and not SOAK


def share(full: int, *, least: int = 1) -> int:
    """Return `full` in a soak run, else a twentieth of it, in `make check` a fiftieth; at least `least`."""
    return full if SOAK else max(least, full // (50 if CHECK else 20))


def examples(count: int) -> int:
    """Return how many examples of a property are tried: `count` in a soak run, else a third, in `make check` a sixth;
    at least two."""
    return count if SOAK else max(2, count // (6 if CHECK else 3))


def some(items: Iterable[Item], number: int = 0) -> list[Item]:
    """Return all, in `make check` every third: each run of a parametrised test, by its number, has other ones."""
    every = list(items)
    return every[number % 3 :: 3] if CHECK else every


def crossed(cases: Iterable[Item], ways: Sequence[Other]) -> list[tuple[Item, Other]]:
    """Return every case in every way in a soak run; else each case in one way, the ways in turn."""
    if SOAK:
        return [(case, way) for case in cases for way in ways]
    return [(case, ways[number % len(ways)]) for number, case in enumerate(cases)]


def in_soak_runs(test: Test) -> Test:
    """Leave a test to soak runs: it takes many seconds of CPU, and shorter ones run the same machinery."""
    left = pytest.mark.skipif(not SOAK, reason=f"{MACHINE}this test runs in make soak alone")
    marked: Test = pytest.mark.soak(left(test))
    return marked


def left_out(tests: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that `make check` leaves out: of the cases of a test all but the first, the fourth and so on.
    They take half of its time, and differ in less than they have in common."""
    cases: Counter[str] = Counter()
    others: list[pytest.Item] = []
    for test in tests:
        if isinstance(test, pytest.Function) and hasattr(test, "callspec"):
            function = test.nodeid.partition("[")[0]
            if cases[function] % 3:
                others.append(test)
            cases[function] += 1
    return others
