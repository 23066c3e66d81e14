"""As whom memories of an organisation are kept and read: as a principal's own, and as what all of them share. Pure."""

from __future__ import annotations

from myria.access.principal import Principal
from myria.errors import ParticipantsNotAllowed
from myria.log.masks import Mask, Masks
from myria.log.scopes import canonical_participants
from myria.notes.memories.commands import Keeping
from myria.settings import RestSettings


def shared_participant(settings: RestSettings) -> str:
    """Return the canonical participant with whom an organisation shares what is kept here.

    Raises:
        InvalidParticipants: the setting holds what no name may hold.
    """
    (shared,) = canonical_participants([settings.shared_participant], field="rest.shared_participant")
    return shared


def own_of(principal: Principal, shared: str) -> tuple[str, ...]:
    """Return the participants of a principal's own here: those of the organisation alone where it has none.

    Raises:
        ParticipantsNotAllowed: it speaks for many, and nothing here says for whom.
    """
    if principal.may_ask:
        raise ParticipantsNotAllowed(
            "this credential speaks for many, and REST does not say for whom; use one without patterns",
            field="participants",
        )
    return principal.own or principal.fallback or (shared,)


def masks_of(principal: Principal, shared: str) -> Masks:
    """Return what a principal reads: what contains all of its own participants, and what is shared.

    Raises:
        ParticipantsNotAllowed: as `own_of`.
    """
    return Masks.of([Mask(own_of(principal, shared)), Mask((shared,))])


def keeping(principal: Principal, shared: str) -> Keeping:
    """Return for whom a principal keeps.

    Raises:
        ParticipantsNotAllowed: as `own_of`.
    """
    return Keeping(own=own_of(principal, shared), shared=shared)
