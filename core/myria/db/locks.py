"""Advisory lock keys: one per tenant and purpose. Two tenants whose keys collide only wait for each other."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

Purpose = Literal["append", "publish", "build", "erase", "list erasure", "audit", "vectors"]
ScopePurpose = Literal["withdraw"]

_FIRST_64_BITS = struct.Struct(">q24x").unpack
_EACH_FIRST_64_BITS = struct.Struct(">q24x").iter_unpack


@lru_cache(maxsize=65536)
def lock_key(purpose: Purpose, tenant: str) -> int:
    """Return the signed 64-bit advisory lock key of a tenant for a purpose."""
    return _key_of(f"myria.{purpose}:{tenant}")


def scope_lock_key(purpose: ScopePurpose, tenant: str, scope_id: int) -> int:
    """Return the signed 64-bit advisory lock key of one scope for a purpose."""
    return _key_of(f"myria.{purpose}:{tenant}:{scope_id}")


def session_lock_key(tenant: str, scope_id: int, context_id: str) -> int:
    """Return the signed 64-bit advisory lock key of one session of a scope."""
    return _key_of(f"myria.session:{tenant}:{scope_id}:{context_id}")


def maintenance_lock_key(tenant: str, owner: bytes, context_id: str) -> int:
    """Return the signed 64-bit advisory lock key of the maintenance of one session of turns."""
    return _key_of(f"myria.maintenance:{tenant}:{owner.hex()}:{context_id}")


def turns_lock_key(tenant: str, owner: bytes, context_id: str) -> int:
    """Return the signed 64-bit advisory lock key of the turns of one session."""
    return _key_of(f"myria.turns:{tenant}:{owner.hex()}:{context_id}")


def memory_lock_keys(tenant: str, dedup_keys: Iterable[str]) -> list[int]:
    """Return the signed 64-bit advisory lock keys of the memories with some deduplication keys, of each its own."""
    began, sha256 = f"myria.memory:{tenant}:", hashlib.sha256
    digests = [sha256((began + key).encode()).digest() for key in dedup_keys]
    return [key for (key,) in _EACH_FIRST_64_BITS(b"".join(digests))]


def registration_lock_key(tenant: str, kind: str, entry_id: str) -> int:
    """Return the signed 64-bit advisory lock key of one registration."""
    return _key_of(f"myria.registration:{tenant}:{kind}:{entry_id}")


def _key_of(name: str) -> int:
    key: int = _FIRST_64_BITS(hashlib.sha256(name.encode()).digest())[0]
    return key
