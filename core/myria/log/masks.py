"""Masks: which scopes a read sees. Pure.

A mask names participants and sees either every scope that contains all of them, or only the scope of exactly them. A
read asks under one mask or several and sees the union, each scope once: this is resolved before anything is ranked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from myria.errors import InvalidArgument, InvalidParticipants

MAX_MASKS: Final = 8
"""Masks of one read, before those that add nothing are left out."""


@dataclass(frozen=True, slots=True, order=True)
class Mask:
    """Sees the scopes that contain all `participants`; if `exact`, only the scope of exactly them.

    `participants` are canonical names (see `myria.scopes`) in any order; they are kept sorted and unique.

    Raises:
        InvalidParticipants: there are none, as an empty mask would see everything.
    """

    participants: tuple[str, ...]
    exact: bool = False

    def __post_init__(self) -> None:
        if not self.participants:
            raise InvalidParticipants("a mask must name who asks: an empty one would see everything")
        object.__setattr__(self, "participants", tuple(sorted(set(self.participants))))

    def sees(self, scope: Iterable[str]) -> bool:
        """Tell whether this mask sees the scope of these participants."""
        members = set(scope)
        return members == set(self.participants) if self.exact else members.issuperset(self.participants)

    def covers(self, other: Mask) -> bool:
        """Tell whether this mask sees every scope that another mask sees."""
        return other == self if self.exact else set(self.participants) <= set(other.participants)

    def to_json(self) -> dict[str, Any]:
        """Return it as answers and arguments show it."""
        return {"participants": list(self.participants), "exact": self.exact}


@dataclass(frozen=True, slots=True)
class Masks:
    """The masks of one read in normal form: sorted, without masks that another one covers.

    Make it with `of`, `containing` or `exactly`.
    """

    each: tuple[Mask, ...] = ()

    @classmethod
    def of(cls, masks: Iterable[Mask]) -> Masks:
        """Return the union of masks.

        Raises:
            InvalidParticipants: there is none.
            InvalidArgument: there are more than `MAX_MASKS`.
        """
        unique_masks = sorted(set(masks))
        if not unique_masks:
            raise InvalidParticipants("a read needs a mask: name who asks")
        if len(unique_masks) > MAX_MASKS:
            raise InvalidArgument(f"a read may have at most {MAX_MASKS} masks", field="masks", limit=MAX_MASKS)
        if len(unique_masks) == 1:
            return cls(tuple(unique_masks))
        return cls(
            tuple(
                mask for mask in unique_masks if not any(other.covers(mask) for other in unique_masks if other != mask)
            )
        )

    @classmethod
    def containing(cls, participants: Iterable[str]) -> Masks:
        """Return the mask that sees all scopes with all of these participants.

        Raises:
            InvalidParticipants: there is nobody.
        """
        return _containing(tuple(participants))

    @classmethod
    def exactly(cls, participants: Iterable[str]) -> Masks:
        """Return the mask that sees only the scope of exactly these participants.

        Raises:
            InvalidParticipants: there is nobody.
        """
        return cls((Mask(tuple(participants), exact=True),))

    def __iter__(self) -> Iterator[Mask]:
        return iter(self.each)

    def __len__(self) -> int:
        return len(self.each)

    def sees(self, scope: Iterable[str]) -> bool:
        """Tell whether any of them sees the scope of these participants."""
        members = tuple(scope)
        return any(mask.sees(members) for mask in self.each)

    @property
    def participants(self) -> tuple[str, ...]:
        """Everybody whom a mask names, sorted."""
        if len(self.each) == 1:
            return self.each[0].participants
        return tuple(sorted({name for mask in self.each for name in mask.participants}))

    def to_json(self) -> dict[str, Any]:
        """Return the masks as arguments of a query: `participants` for a single inexact mask, else `masks`."""
        if len(self.each) == 1 and not self.each[0].exact:
            return {"participants": list(self.each[0].participants)}
        return {"masks": [mask.to_json() for mask in self.each]}


@lru_cache(maxsize=4096)
def _containing(participants: tuple[str, ...]) -> Masks:
    """Return the usual mask of a read, cached."""
    return Masks((Mask(participants),))


NOBODY: Final = Masks()
"""Without any mask: sees nothing, and cannot be used for a query."""
