"""As whom an agent keeps and recalls: its own memory beside the pool that the agents of one caller share. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from myria.access.principal import Principal
from myria.errors import InvalidArgument, ParticipantsNotAllowed
from myria.masks import Masks
from myria.scopes import canonical_participants

POOL = "default"
"""The agentId that stands for the pool (Memento's contract, 3.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """As whom one call acts: whom a note is for, what is seen, and who speaks (None: nobody in particular)."""

    participants: tuple[str, ...]
    masks: Masks
    speaker: str | None

    @property
    def beside(self) -> tuple[tuple[str, ...], ...]:
        """Whose notes are seen beside those for `participants`: those of the pool."""
        return tuple(mask.participants for mask in self.masks if mask.exact and mask.participants != self.participants)


def acting(principal: Principal, agent_id: str | None, *, pooled: bool) -> Acting:
    """Return as whom a call acts that names an agent, or none.

    Without a name, or as `default`, that is the pool: what exactly the principal's own participants hold. A named agent
    writes for them and itself, and reads that beside the pool. It adds to the principal's own, and never replaces them.

    Args:
        pooled: whether there is a pool; without one each call names its agent.

    Raises:
        InvalidArgument: no agent is named, and there is no pool.
        InvalidParticipants: a name that nobody can have.
        ParticipantsNotAllowed: the principal may not ask as this agent, or has no participants of its own for a pool.
    """
    own = principal.own or principal.fallback
    if agent_id is None or agent_id == POOL:
        if not pooled:
            raise InvalidArgument("name the agent in agentId: this server keeps no pool", field="agentId")
        return _in_pool(principal, speaker=None)
    (agent,) = canonical_participants([agent_id], field="agentId")
    if agent in own:
        if not pooled and own != (agent,):
            raise ParticipantsNotAllowed(
                "agentId names one of this credential's own participants, whose notes are the pool; this server keeps "
                "none, so name another agent",
                field="agentId",
            )
        return _in_pool(principal, speaker=agent)
    together = canonical_participants([*own, agent], field="agentId")
    participants = principal.asking_as(together, field="agentId")
    masks = Masks.containing(participants)
    if pooled and own:
        masks = Masks.of([*masks, principal.pool()])
    return Acting(participants=participants, masks=masks, speaker=agent)


def _in_pool(principal: Principal, *, speaker: str | None) -> Acting:
    try:
        pool = principal.pool()
    except ParticipantsNotAllowed as error:
        raise ParticipantsNotAllowed(
            "this credential has no participants of its own, so it has no pool: name an agent that it may ask as",
            field="agentId",
        ) from error
    return Acting(participants=pool.participants, masks=Masks.of([pool]), speaker=speaker)
