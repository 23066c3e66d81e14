"""How much of a long check runs: all of it in `make soak`, a seeded tenth otherwise."""

from __future__ import annotations

import os

SOAK = os.environ.get("MYRIA_TEST_SOAK") == "1"


def share(full: int) -> int:
    """Return `full` in a soak run, else a tenth of it, at least one."""
    return full if SOAK else max(1, full // 10)
