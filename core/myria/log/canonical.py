"""Canonical JSON bytes and their SHA-256: every identity in Myria is made by these.

Canonical JSON: keys sorted by code point, no white space, UTF-8, integers only (no floats: their text differs
between writers). Byte strings appear as lower-case hex.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import orjson


def canonical_json(value: Any) -> bytes:
    """Return the canonical UTF-8 bytes of a value made of dict, list, tuple, str, int, bool, None and bytes.

    A payload may also hold floats: they are written as the shortest decimal that reads back as the same double.
    """
    return _ENCODER.encode(value).encode()


def digest(value: Any) -> bytes:
    """Return the 32-byte SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).digest()


def quick_digest(value: Any) -> bytes:
    """Return the same as `digest`, four times as fast, for a value without floats."""
    try:
        body = orjson.dumps(value, default=_hex, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Integers of more than 64 bits are beyond orjson.
        return digest(value)
    return hashlib.sha256(body).digest()


def _hex(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no canonical form")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_hex)
