"""Whose memories REST keeps and reads for a caller: the caller's own, and those its organisation shares. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from myria.access.principal import Principal
from myria.errors import ParticipantsNotAllowed
from myria.log.masks import Mask, Masks
from myria.log.scopes import canonical_participants
from myria.settings import RestSettings


def shared_participant(settings: RestSettings) -> str:
    """Return the participant, in canonical form, with whom an organisation shares the memories kept over REST.

    Raises:
        InvalidParticipants: the setting holds what no name may hold.
    """
    (shared,) = canonical_participants([settings.shared_participant], field="rest.shared_participant")
    return shared


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """The participants of a caller's memories: `own` are the caller's, `shared` stands for the whole organisation."""

    own: tuple[str, ...]
    shared: str

    @property
    def participants(self) -> tuple[str, ...]:
        """Who may see a kept memory, in canonical form."""
        return tuple(sorted({*self.own, self.shared}))

    @property
    def masks(self) -> Masks:
        """The masks of reading: what all of `own` may see, and what is shared."""
        return Masks.of([Mask(self.own), Mask((self.shared,))])


def keeping(principal: Principal, shared: str) -> Keeping:
    """Return the participants with which a principal keeps memories.

    Raises:
        ParticipantsNotAllowed: the principal may speak for many, and a REST call does not say for whom.
    """
    if principal.may_ask:
        raise ParticipantsNotAllowed(
            "this credential speaks for many, and REST does not say for whom; use one without patterns",
            field="participants",
        )
    return Keeping(own=principal.own or principal.fallback or (shared,), shared=shared)
