"""Short names of events in text for models: a keyed permutation of their numbers, so they need no table.

A handle is nine or more decimal digits, a multiple of three: models' encodings cut numbers into groups of three, so
nine digits cost three tokens where seven letters and digits cost six. It says nothing of its number to who has not the
key, and is a name, no permission: whoever resolves one must still be allowed to see the event. Equal keys and tenants
give equal handles for ever.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from myria.errors import InvalidArgument

EVENT_PREFIX = "e:"
"""What stands before an event's handle, so that nobody takes it for an event_id."""

NOTE_PREFIX = "n:"
"""What stands before a note's handle, which is that of its first version's event."""

_SHORTEST = 9
_LONGEST = 21
_GROUP = 3
_BITS = 10
"""Bits of a group of three digits: just more than they need."""

_ROUNDS = 8


class Handles:
    """The handles of one tenant.

    Args:
        secret: the installation's; whoever has it can number the handles.
    """

    def __init__(self, secret: bytes, tenant: str) -> None:
        self._key = blake2b(tenant.encode(), key=secret[:64], person=b"myria.handles", digest_size=32).digest()

    def of(self, event_seq: int) -> str:
        """Return the handle of a number of at least 0."""
        return _handle(self._key, event_seq)

    def event_seq(self, handle: str) -> int:
        """Return the number that a handle stands for, which need not be anything's.

        Raises:
            InvalidArgument: it is no handle.
        """
        text = handle.strip()
        if len(text) not in range(_SHORTEST, _LONGEST + 1, _GROUP) or not (text.isascii() and text.isdecimal()):
            raise InvalidArgument(
                f"{handle[:40]!r} is no handle: nine digits or more, as in 481920375, are one", field="id"
            )
        return _permuted(self._key, int(text), len(text), backwards=True)


@lru_cache(maxsize=16_384)
def _handle(key: bytes, event_seq: int) -> str:
    """Return the handle of a number: the same memories are shown again and again."""
    length = next(n for n in range(_SHORTEST, _LONGEST + 1, _GROUP) if event_seq < 10**n)
    return str(_permuted(key, event_seq, length, backwards=False)).zfill(length)


def _permuted(key: bytes, value: int, length: int, *, backwards: bool) -> int:
    """Return the image of a value below 10 ** length; backwards is its inverse.

    The network permutes a slightly larger range, and is walked until it comes back into this one (Black and Rogaway
    2002).
    """
    value = _network(key, value, length, backwards=backwards)
    while value >= 10**length:
        value = _network(key, value, length, backwards=backwards)
    return value


def _network(key: bytes, value: int, length: int, *, backwards: bool) -> int:
    """Return the image of a value of so many digits' bits: a Feistel network, its own inverse backwards."""
    bits = length // _GROUP * _BITS
    low_bits = bits // 2
    high_bits = bits - low_bits
    low_mask, high_mask = (1 << low_bits) - 1, (1 << high_bits) - 1
    high, low = value >> low_bits, value & low_mask
    for turn in reversed(range(_ROUNDS)) if backwards else range(_ROUNDS):
        if turn % 2:
            high ^= _round(key, turn, length, low) & high_mask
        else:
            low ^= _round(key, turn, length, high) & low_mask
    return high << low_bits | low


def _round(key: bytes, turn: int, length: int, half: int) -> int:
    message = bytes((turn, length)) + half.to_bytes(8, "big")
    return int.from_bytes(blake2b(message, key=key, digest_size=8).digest(), "big")
