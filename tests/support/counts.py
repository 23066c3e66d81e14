"""How much of a long check runs: all in `make soak`, a seeded tenth in `make test`, a thirtieth in `make check`."""

from __future__ import annotations

import os

SOAK = os.environ.get("MYRIA_TEST_SOAK") == "1"
CHECK = os.environ.get("MYRIA_TEST_CHECK") == "1" and not SOAK


def share(full: int, *, least: int = 1) -> int:
    """Return `full` in a soak run, else a tenth of it, in `make check` a thirtieth; at least `least`."""
    return full if SOAK else max(least, full // (30 if CHECK else 10))


def examples(count: int) -> int:
    """Return how many examples Hypothesis tries of a property: `count`, in `make check` a third and at least two."""
    return max(2, count // 3) if CHECK else count
