"""As whom memories of an organisation are kept and read: as a principal's own, and as what all of them share. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from myria.access.principal import Principal
from myria.errors import ParticipantsNotAllowed
from myria.log.masks import Mask, Masks
from myria.log.scopes import canonical_participants
from myria.settings import RestSettings


def shared_participant(settings: RestSettings) -> str:
    """Return the canonical participant with whom an organisation shares what is kept here.

    Raises:
        InvalidParticipants: the setting holds what no name may hold.
    """
    (shared,) = canonical_participants([settings.shared_participant], field="rest.shared_participant")
    return shared


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """For whom memories are kept, and as whom they are read: `own` tells callers apart, `shared` is all of them."""

    own: tuple[str, ...]
    shared: str

    @property
    def participants(self) -> tuple[str, ...]:
        """Who may see what is kept, canonical."""
        return tuple(sorted({*self.own, self.shared}))

    @property
    def masks(self) -> Masks:
        """What is read: what contains all of `own`, and what is shared."""
        return Masks.of([Mask(self.own), Mask((self.shared,))])


def keeping(principal: Principal, shared: str) -> Keeping:
    """Return for whom a principal keeps.

    Raises:
        ParticipantsNotAllowed: it speaks for many, and nothing here says for whom.
    """
    if principal.may_ask:
        raise ParticipantsNotAllowed(
            "this credential speaks for many, and REST does not say for whom; use one without patterns",
            field="participants",
        )
    return Keeping(own=principal.own or principal.fallback or (shared,), shared=shared)
