"""The principal: on whose behalf a request runs, and what it may do. Pure rules, made once per request.

A read by some participants sees every scope of which *all* of them are members, so naming fewer sees more. Therefore a
principal always asks as all of its own participants, and may only add to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from myria.db.fairness import Caller
from myria.errors import (
    ChannelNotAllowed,
    FaceNotAllowed,
    InvalidArgument,
    InvalidParticipants,
    ParticipantsNotAllowed,
    RoleRequired,
)
from myria.log.masks import Mask, Masks
from myria.log.scopes import MAX_PARTICIPANTS, canonical_participants

Role = Literal["append", "read", "admin", "erase"]
Face = Literal["core", "agent", "turns", "rest", "admin"]
TextFormat = Literal["text", "json"]

ROLES: tuple[Role, ...] = get_args(Role)
FACES: tuple[Face, ...] = get_args(Face)
TEXT_FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)

MAX_PATTERNS = 64
"""Patterns of participants, or of channels, of one credential."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedMask:
    """A mask as a caller names it: its participants are canonical, None where it names nobody beside itself."""

    participants: tuple[str, ...] | None = None
    exact: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What proves a credential of Myria's own to the database: a key by its id, a token without one; and its digest."""

    key_id: str
    digest: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """On whose behalf a request runs.

    `own` are the participants as which it always asks; `may_ask` are patterns of others that it may add, each a name
    with at most one `*`. `channels` are patterns of the channels it may append to, None for any. `credential` is the
    public id of what proved it, None for the local principal; `actor` is its name in histories and audits. Without
    own participants and patterns, `anyone` must be true: then it names whom it likes, and `fallback` where it names
    nobody. `appends_for_anyone` lets an append name others than the patterns allow. `text_format` is what the text of
    answers on the agent's face is where a call does not say; None for what the settings say. `proof` is what the
    database takes as the credential itself; None for a token of somebody else, and without credentials.
    """

    tenant: str
    actor: str
    roles: frozenset[Role]
    faces: frozenset[Face]
    own: tuple[str, ...] = ()
    may_ask: tuple[str, ...] = ()
    channels: tuple[str, ...] | None = None
    credential: str | None = None
    anyone: bool = False
    fallback: tuple[str, ...] = ()
    appends_for_anyone: bool = False
    requests_per_s: float | None = None
    concurrency: int | None = None
    text_format: TextFormat | None = None
    proof: Proof | None = field(default=None, repr=False, compare=False)

    @property
    def caller(self) -> Caller:
        """For whom work is done that is shared out fairly (`myria.db.fairness`)."""
        return self.tenant, self.credential or ""

    def need(self, roles: Sequence[Role], *, what: str) -> None:
        """Return when this principal has one of the roles.

        Raises:
            RoleRequired: it has none of them.
        """
        if self.roles.isdisjoint(roles):
            raise RoleRequired(
                f"{what} needs the role {' or '.join(roles)}, which this credential has not", roles=[*roles]
            )

    def need_face(self, face: Face) -> None:
        """Return when this principal may use a face.

        Raises:
            FaceNotAllowed: it may not.
        """
        if face not in self.faces:
            raise FaceNotAllowed(f"this credential may not use the face {face}", face=face)

    def asking_as(self, named: tuple[str, ...] | None, *, field: str = "participants") -> tuple[str, ...]:
        """Return the participants as which a read asks: all of its own, and those it names.

        Args:
            named: canonical, as the caller names them; None where it names nobody.
            field: the argument that names them, for refusals.

        Raises:
            ParticipantsNotAllowed: a name beyond the patterns, a part of its own instead of all, or no match of a
                pattern where it must name one.
        """
        if self.anyone:
            return named or self.fallback
        own = set(self.own)
        if named is not None and own.intersection(named) not in (set(), own):
            raise ParticipantsNotAllowed(
                f"{field} names a part of this credential's own: fewer who ask see more; leave {field} out, or name "
                "all of your own",
                field=field,
            )
        return self._with_own(named, widened=False, field=field)

    def asking(self, named: tuple[str, ...] | None) -> Masks:
        """Return the one mask of a read: see `asking_as`.

        Raises:
            ParticipantsNotAllowed: as `asking_as`.
        """
        return Masks.containing(self.asking_as(named))

    def asking_under(self, named: Sequence[NamedMask]) -> Masks:
        """Return the masks of a read that names several; the rule of `asking_as` holds for each, exact ones too.

        So a list sees what its masks would see in calls of their own, and no more.

        Raises:
            ParticipantsNotAllowed: as `asking_as`, for any of them.
            InvalidArgument: there are too many.
        """
        return Masks.of(
            Mask(self.asking_as(mask.participants, field=f"masks[{at}].participants"), exact=mask.exact)
            for at, mask in enumerate(named)
        )

    def asking_beside(self, participants: Sequence[str]) -> Masks:
        """Return as whom an append looks up the events that it replaces: as this principal asks, beside whom it names.

        Raises:
            ParticipantsNotAllowed: as `asking_as`.
        """
        if self.own and not self.may_ask:
            return self.asking(None)
        return self.asking(tuple(name for name in participants if name in self.own or self.may_name(name)))

    def pool(self) -> Mask:
        """Return the mask that sees what exactly its own participants hold: the pool that its agents share.

        It needs no match of a pattern: nobody else is part of it.

        Raises:
            ParticipantsNotAllowed: it has no participants of its own.
        """
        own = self.own or self.fallback
        if not own:
            raise ParticipantsNotAllowed(
                "this credential has no participants of its own, so it has no pool: name an agent that it may ask as",
                field="agentId",
            )
        return Mask(own, exact=True)

    def appending_as(self, named: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the participants of an append: all of its own, and those it names.

        Args:
            named: canonical, as the caller names them; None where it names nobody.

        Raises:
            ParticipantsNotAllowed: as `asking_as`, but a part of its own is as good as all.
            InvalidParticipants: more than an event can have.
        """
        if self.anyone:
            return named or self.fallback
        return self._with_own(named, widened=self.appends_for_anyone, field="participants")

    def may_name(self, name: str) -> bool:
        """Tell whether this principal may ask as somebody beside its own participants."""
        return self.anyone or any(matches(pattern, name) for pattern in self.may_ask)

    def need_channel(self, channel: str) -> None:
        """Return when this principal may append to a channel.

        Raises:
            ChannelNotAllowed: it may not.
        """
        if self.channels is not None and not any(matches(pattern, channel) for pattern in self.channels):
            raise ChannelNotAllowed("this credential may not append to this channel", field="channel")

    def _with_own(self, named: tuple[str, ...] | None, *, widened: bool, field: str) -> tuple[str, ...]:
        added = [name for name in named or () if name not in self.own]
        matched = [name for name in added if self.may_name(name)]
        if len(matched) < len(added) and not widened:
            raise ParticipantsNotAllowed(f"{field} names somebody as whom this credential may not ask", field=field)
        if self.may_ask and not matched:
            raise ParticipantsNotAllowed(
                f"this credential speaks for many: name in {field} for whom it speaks now, one that matches "
                f"{' or '.join(self.may_ask)}",
                field=field,
            )
        if not added and not self.own:
            raise ParticipantsNotAllowed(
                "this credential speaks for nobody, so it can neither ask nor append; use one with participants",
                field=field,
            )
        if not added:
            return self.own
        together = tuple(sorted({*self.own, *added}))
        if len(together) > MAX_PARTICIPANTS:
            raise InvalidParticipants(
                f"{field} may name at most {MAX_PARTICIPANTS}, this credential's own included",
                field=field,
                limit=MAX_PARTICIPANTS,
            )
        return together


def local_principal(tenant: str, *, actor: str = "mcp", fallback: Sequence[str] = ("agent", "me")) -> Principal:
    """Return the principal of callers who prove nothing: it may do everything, and name any participants.

    Args:
        fallback: as whom it asks and appends where it names nobody.
    """
    return Principal(
        tenant=tenant,
        actor=actor,
        roles=frozenset(ROLES),
        faces=frozenset(FACES),
        anyone=True,
        fallback=canonical_participants(list(fallback), field="auth.local_participants"),
    )


def checked_pattern(pattern: str, name: str) -> str:
    """Return a pattern of names: a name in which at most one `*` stands for any text.

    Raises:
        InvalidArgument, InvalidParticipants: empty, too long, two stars, or a character that no name may hold.
    """
    if pattern.count("*") > 1:
        raise InvalidArgument(f"{name} may hold one '*'", field=name)
    canonical_participants([pattern], field=name)
    return pattern.strip()


def matches(pattern: str, name: str) -> bool:
    """Tell whether a name matches a pattern."""
    before, star, after = pattern.partition("*")
    if not star:
        return name == pattern
    return len(name) >= len(before) + len(after) and name.startswith(before) and name.endswith(after)
