"""Advisory lock keys: one per tenant and purpose. Two whose keys collide only wait for each other."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Literal

Purpose = Literal[
    "append",
    "publish",
    "build",
    "erase",
    "list erasure",
    "audit",
    "vectors",
    "withdraw",
    "session",
    "maintenance",
    "turns",
    "memory",
    "registration",
    "uninstall",
]


@lru_cache(maxsize=65536)
def lock_key(purpose: Purpose, tenant: str, *names: str | int | bytes) -> int:
    """Return the signed 64-bit advisory lock key of a tenant for a purpose, or of one thing of it.

    Args:
        names: what the thing is called, such as its scope and its context.
    """
    words = [name.hex() if isinstance(name, bytes) else str(name) for name in names]
    digest = hashlib.sha256(":".join([f"myria.{purpose}", tenant, *words]).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
