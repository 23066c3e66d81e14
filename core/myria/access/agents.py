"""As whom an agent keeps and recalls: its own memory beside the pool that the agents of one caller share. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from myria.access.principal import Principal
from myria.errors import InvalidArgument
from myria.log.masks import Mask, Masks
from myria.log.scopes import canonical_participants
from myria.settings import AuthSettings, RestSettings

POOL = "default"
"""The agentId that stands for the pool (Memento's contract, 3.6)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Acting:
    """As whom one call acts: whom a note is for, what is seen, and who speaks (None: nobody in particular).

    `held` are the masks of what is the agent's and the pool's; `masks` see what the organisation shares beside that.
    """

    participants: tuple[str, ...]
    held: Masks
    masks: Masks
    speaker: str | None

    @property
    def beside(self) -> tuple[tuple[str, ...], ...]:
        """Whose notes are seen beside those for `participants`: those of the pool."""
        return tuple(mask.participants for mask in self.held if mask.exact and mask.participants != self.participants)


def reserved_names(auth: AuthSettings, rest: RestSettings) -> frozenset[str]:
    """Return the names that stand for everybody on a server: as whom callers act who name nobody, and the organisation.

    Raises:
        InvalidParticipants: a setting holds what no name may hold.
    """
    everybody = canonical_participants([*auth.local_participants, rest.shared_participant], field="settings")
    return frozenset(everybody)


def check_not_reserved(name: str, reserved: frozenset[str], *, field: str) -> None:
    """Return when a name is free for one agent or user: what is kept under a reserved one would be everybody's.

    Raises:
        InvalidArgument: it is reserved.
    """
    if name in reserved:
        raise InvalidArgument(
            f"{field} {name!r} is taken: it is a name that everybody here shares, so others would read what is kept "
            "under it; choose one of your own, or leave it out for what is shared",
            field=field,
        )


def acting(
    principal: Principal,
    agent_id: str | None,
    *,
    pooled: bool,
    shared: str | None = None,
    reserved: frozenset[str] = frozenset(),
) -> Acting:
    """Return as whom a call acts that names an agent, or none.

    Without a name, or as `default`, that is the pool: what exactly the principal's own participants hold. A named agent
    writes for them and itself, and reads that beside the pool. It adds to the principal's own, and never replaces them.

    Args:
        reserved: see `check_not_reserved`.
        pooled: whether there is a pool; without one each call names its agent.
        shared: the participant with whom an organisation shares what is kept over REST; None where nothing is served
            there. Who may use that face sees it here, too; of others each sees what it keeps there itself.

    Raises:
        InvalidArgument: no agent is named, and there is no pool; or its name stands for others than this agent.
        InvalidParticipants: a name that nobody can have.
        ParticipantsNotAllowed: the principal may not ask as this agent, or has no participants of its own for a pool.
    """
    own = principal.own or principal.fallback
    speaker: str | None = None
    if agent_id is None or agent_id == POOL:
        if not pooled:
            raise InvalidArgument("name the agent in agentId: this server keeps no pool", field="agentId")
        pool = principal.pool()
        participants, held = pool.participants, Masks.of([pool])
    else:
        (speaker,) = canonical_participants([agent_id], field="agentId")
        check_not_reserved(speaker, reserved.union(own), field="agentId")
        together = canonical_participants([*own, speaker], field="agentId")
        participants = principal.asking_as(together, field="agentId")
        held = Masks.containing(participants)
        if pooled and own:
            held = Masks.of([*held, principal.pool()])
    masks = held
    if shared is not None and own and not principal.may_ask:  # one that speaks for many shares with nobody
        masks = Masks.of([*held, Mask((shared,)) if "rest" in principal.faces else Mask((*own, shared), exact=True)])
    return Acting(participants=participants, held=held, masks=masks, speaker=speaker)
