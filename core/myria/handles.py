"""Short names of events in text for models: a keyed permutation of their numbers, so they need no table.

A handle is seven or more characters of Crockford's base 32, and says nothing of its number to who has not the key. It
is a name, no permission: whoever resolves one must still be allowed to see the event. Equal keys and tenants give equal
handles for ever.
"""

from __future__ import annotations

from hashlib import blake2b

from myria.errors import InvalidArgument

EVENT_PREFIX = "e:"
"""What stands before an event's handle, so that nobody takes it for an event_id."""

NOTE_PREFIX = "n:"
"""What stands before a note's handle, which is that of its first version's event."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)} | {"O": 0, "I": 1, "L": 1}
_BITS = 5
_SHORTEST = 7
_LONGEST = 13
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
        length = next(n for n in range(_SHORTEST, _LONGEST + 1) if event_seq < 1 << n * _BITS)
        value = self._permuted(event_seq, length, backwards=False)
        return "".join(_ALPHABET[value >> _BITS * place & 31] for place in reversed(range(length)))

    def event_seq(self, handle: str) -> int:
        """Return the number that a handle stands for, which need not be anything's; case and O, I, L do not matter.

        Raises:
            InvalidArgument: it is no handle.
        """
        text = handle.strip().upper()
        if not _SHORTEST <= len(text) <= _LONGEST or any(character not in _VALUES for character in text):
            raise InvalidArgument(f"{handle[:40]!r} is no handle, such as 7Q2FK3M", field="id")
        value = 0
        for character in text:
            value = value << _BITS | _VALUES[character]
        return self._permuted(value, len(text), backwards=True)

    def _permuted(self, value: int, length: int, *, backwards: bool) -> int:
        """Return the image of a value below 32 ** length: an unbalanced Feistel network, its own inverse backwards."""
        low_bits = length * _BITS // 2
        high_bits = length * _BITS - low_bits
        low_mask, high_mask = (1 << low_bits) - 1, (1 << high_bits) - 1
        high, low = value >> low_bits, value & low_mask
        for turn in reversed(range(_ROUNDS)) if backwards else range(_ROUNDS):
            if turn % 2:
                high ^= self._round(turn, length, low) & high_mask
            else:
                low ^= self._round(turn, length, high) & low_mask
        return high << low_bits | low

    def _round(self, turn: int, length: int, half: int) -> int:
        message = bytes((turn, length)) + half.to_bytes(8, "big")
        return int.from_bytes(blake2b(message, key=self._key, digest_size=8).digest(), "big")
