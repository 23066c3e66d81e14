"""Identifiers made here: a prefix, 48 bits of milliseconds and 80 random bits, so that they sort by time."""

from __future__ import annotations

import os
import time


def new_id(prefix: str) -> str:
    """Return a new identifier such as `evt_0193…`: unique whatever the clock does, sortable while it goes on."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
