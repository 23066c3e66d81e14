"""Identifiers made here: a prefix, 48 bits of milliseconds and 80 random bits, so that they sort by time."""

from __future__ import annotations

import os
import time

_RANDOM = 10
"""Random bytes of an identifier."""


def new_id(prefix: str) -> str:
    """Return a new identifier such as `evt_0193…`: unique whatever the clock does, sortable while it goes on."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{os.urandom(_RANDOM).hex()}"


def new_ids(prefix: str, count: int) -> list[str]:
    """Return so many new identifiers of one moment, in their order: indexes take those at less cost.

    One call for random bits serves all: what an identifier costs is mostly that.
    """
    if count == 1:
        return [new_id(prefix)]
    began = f"{prefix}_{time.time_ns() // 1_000_000:012x}"
    digits = os.urandom(_RANDOM * count).hex()
    width = 2 * _RANDOM
    ids = [began + digits[place : place + width] for place in range(0, width * count, width)]
    ids.sort()
    return ids
