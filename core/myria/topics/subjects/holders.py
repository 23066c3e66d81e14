"""Who holds a key: for each key of a scope the leaves that may be filed under it, and which of them are.

A stored record keeps a bounded number of leaves, of as many units as it can. What a plan depends on, up to four units
that hold a key and up to two that are filed under it, can be told from that; where removals have used it up,
`IncompleteHolders` says so, and the scope's subjects are planned anew from all leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from myria.errors import InternalError
from myria.topics.subjects.keys import LEAST_UNITS, SATURATED

KEPT_MOST = 24
"""Leaves that a stored record keeps; all those of a single unit that are filed, if there are more."""

_KEY_BYTES = 16
_UNIT_BYTES = 16
_RENDERING_BYTES = 32
_FILED = 1
_FILED_BYTE, _NOT_FILED_BYTE = bytes((_FILED,)), bytes(1)
_RECORD_BYTES = _UNIT_BYTES + _RENDERING_BYTES + 1


class IncompleteHolders(Exception):
    """Removals have left a record too few leaves to tell how many units hold the key or are filed under it."""


class Holder(NamedTuple):
    """A leaf that holds a key: its unit (16 bytes), its rendering, and whether it is filed under the key."""

    unit: bytes
    rendering_id: bytes
    is_filed: bool


@dataclass(frozen=True, slots=True)
class Holders:
    """The leaves that hold one key, sorted.

    `has_more` and `has_more_filed` tell whether further leaves hold it, or are filed under it, than are kept.
    """

    kept: tuple[Holder, ...] = ()
    has_more: bool = False
    has_more_filed: bool = False
    subject: bytes | None = None
    """The rendering id of the key's subject; None if the key is no subject."""

    @property
    def units(self) -> int:
        """How many units hold the key, at most `SATURATED`.

        Raises:
            IncompleteHolders: the leaves that are kept cannot tell.
        """
        units = len({holder.unit for holder in self.kept})
        if self.has_more and units < SATURATED:
            raise IncompleteHolders
        return min(units, SATURATED)

    @property
    def is_subject(self) -> bool:
        """Whether leaves of enough units are filed under the key.

        Raises:
            IncompleteHolders: the leaves that are kept cannot tell.
        """
        if len({holder.unit for holder in self.kept if holder.is_filed}) >= LEAST_UNITS:
            return True
        if self.has_more_filed:
            raise IncompleteHolders
        return False

    @property
    def filed(self) -> tuple[bytes, ...]:
        """The rendering ids of those kept leaves that are filed under the key."""
        return tuple(holder.rendering_id for holder in self.kept if holder.is_filed)

    def changed(self, removed: Iterable[bytes], added: Mapping[bytes, tuple[bytes, bool]]) -> Holders:
        """Return the record without the rendering ids `removed`, and with `added`: (unit, is_filed) by rendering id."""
        by_rendering = {holder.rendering_id: holder for holder in self.kept}
        for rendering_id in removed:
            by_rendering.pop(rendering_id, None)
        for rendering_id, (unit, is_filed) in added.items():
            by_rendering[rendering_id] = Holder(unit, rendering_id, is_filed)
        return Holders(tuple(sorted(by_rendering.values())), self.has_more, self.has_more_filed, self.subject)

    def bounded(self) -> Holders:
        """Return the record cut to the leaves that are stored: of as many units as possible, the filed ones first."""
        if len(self.kept) <= KEPT_MOST:
            return self
        filed = [holder for holder in self.kept if holder.is_filed]
        first_of_units = _of_each_unit(filed)
        # If a single unit has filed leaves, keep them all: when a second unit comes, they become the subject together.
        kept = set(filed if len(first_of_units) < LEAST_UNITS else first_of_units[: KEPT_MOST // 2])
        others = [holder for holder in self.kept if holder not in kept]
        for holder in (*_of_each_unit(others), *others):
            if len(kept) >= KEPT_MOST:
                break
            kept.add(holder)
        lost_filed = self.has_more_filed or any(holder not in kept for holder in filed)
        return Holders(tuple(sorted(kept)), True, lost_filed, self.subject)

    def is_part_of(self, whole: Holders) -> bool:
        """Tell whether this record may be what is stored of `whole`, the record with all leaves."""
        kept = set(self.kept)
        left_out = set(whole.kept) - kept
        return (
            self.subject == whole.subject
            and kept <= set(whole.kept)
            and (self.has_more or not left_out)
            and (self.has_more_filed or not any(holder.is_filed for holder in left_out))
        )

    def to_bytes(self) -> bytes:
        """Return the record as it is stored; empty for one without leaves."""
        if not self.kept and not self.has_more:
            return b""
        parts = [bytes((int(self.has_more) | int(self.has_more_filed) << 1,))]
        for unit, rendering_id, is_filed in self.kept:
            parts += (unit, rendering_id, _FILED_BYTE if is_filed else _NOT_FILED_BYTE)
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, stored: bytes, subject: bytes | None = None) -> Holders:
        """Return the record that `to_bytes` wrote; the subject is stored beside it.

        Raises:
            InternalError: the bytes are not of a length that `to_bytes` writes.
        """
        if not stored:
            return cls(subject=subject)
        size = _RECORD_BYTES
        if len(stored) % size != 1:
            raise InternalError("a record of who holds a key is torn", bytes=len(stored))
        kept = tuple(
            Holder(
                stored[at : at + _UNIT_BYTES],
                stored[at + _UNIT_BYTES : at + size - 1],
                stored[at + size - 1] == _FILED,
            )
            for at in range(1, len(stored), size)
        )
        return cls(kept, bool(stored[0] & 1), bool(stored[0] & 2), subject)


def units_held(stored: bytes) -> int:
    """Return how many units the kept leaves of a record are in, given what `to_bytes` wrote."""
    return len({stored[at : at + _UNIT_BYTES] for at in range(1, len(stored), _RECORD_BYTES)})


def stored_key(key: str) -> bytes:
    """Return the hash, 16 bytes, under which a key's record is stored."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()[:_KEY_BYTES]


def _of_each_unit(holders: Iterable[Holder]) -> list[Holder]:
    """Return the first leaf of each unit."""
    first: dict[bytes, Holder] = {}
    for holder in holders:
        first.setdefault(holder.unit, holder)
    return list(first.values())
