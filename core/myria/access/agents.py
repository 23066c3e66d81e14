"""Whose memory an agent's call reads and writes: its own, and the pool that all agents of one caller share. Pure."""

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
    """Whose memory one call uses.

    A new note is for `participants`, and said by `speaker` (None: nobody in particular). `held` are the masks of what
    belongs to the agent and the pool; `masks` see that, and what the organisation shares.
    """

    participants: tuple[str, ...]
    held: Masks
    masks: Masks
    speaker: str | None

    @property
    def beside(self) -> tuple[tuple[str, ...], ...]:
        """Participant sets whose notes are seen besides those for `participants`: the pool's."""
        return tuple(mask.participants for mask in self.held if mask.exact and mask.participants != self.participants)


def reserved_names(auth: AuthSettings, rest: RestSettings) -> frozenset[str]:
    """Return the names that everybody on a server shares: those of callers who name nobody, and the organisation's.

    Raises:
        InvalidParticipants: a name in the settings is not allowed.
    """
    everybody = canonical_participants([*auth.local_participants, rest.shared_participant], field="settings")
    return frozenset(everybody)


def check_not_reserved(name: str, reserved: frozenset[str], *, field: str) -> None:
    """Refuse a reserved name for one agent or user: everybody could read what is kept under it.

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
    """Return whose memory a call uses that names an agent, or none.

    No name, or `default`, means the pool: what exactly the principal's own participants hold. A named agent writes for
    the principal's own participants and itself, and also reads the pool. Its name is added to the principal's own
    participants, and never replaces them.

    Args:
        reserved: see `check_not_reserved`.
        pooled: whether there is a pool; without one each call must name its agent.
        shared: the participant with whom an organisation shares what is kept over REST; None where REST is not served.
            Callers who may use REST see all of it here, too; others see only what they shared themselves.

    Raises:
        InvalidArgument: no agent is named, and there is no pool; or its name stands for others than this agent.
        InvalidParticipants: a name that nobody can have.
        ParticipantsNotAllowed: the principal may not ask as this agent, or has no participants of its own for a pool.
    """
    own_participants = principal.own or principal.fallback
    speaker: str | None = None
    if agent_id is None or agent_id == POOL:
        if not pooled:
            raise InvalidArgument("name the agent in agentId: this server keeps no pool", field="agentId")
        pool = principal.pool()
        participants, held = pool.participants, Masks.of([pool])
    else:
        (speaker,) = canonical_participants([agent_id], field="agentId")
        check_not_reserved(speaker, reserved.union(own_participants), field="agentId")
        own_and_speaker = canonical_participants([*own_participants, speaker], field="agentId")
        participants = principal.asking_as(own_and_speaker, field="agentId")
        held = Masks.containing(participants)
        if pooled and own_participants:
            held = Masks.of([*held, principal.pool()])
    masks = held
    if shared is not None and own_participants and not principal.may_ask:  # one that speaks for many shares with nobody
        masks = Masks.of(
            [*held, Mask((shared,)) if "rest" in principal.faces else Mask((*own_participants, shared), exact=True)]
        )
    return Acting(participants=participants, held=held, masks=masks, speaker=speaker)
