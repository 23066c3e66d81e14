"""The principal: on whose behalf a request runs, and what it may do. Pure rules, made once per request.

A read sees every scope of which *all* the participants it names are members, so naming fewer participants sees more.
Therefore a principal always asks as all of its own participants, and may only add others.
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
ApiName = Literal["core", "agent", "turns", "rest", "admin"]
"""Keys, settings and metrics call an API a face."""
TextFormat = Literal["text", "json"]

ROLES: tuple[Role, ...] = get_args(Role)
API_NAMES: tuple[ApiName, ...] = get_args(ApiName)
TEXT_FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)

MAX_PATTERNS = 64
"""Patterns of participants, or of channels, of one credential."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedMask:
    """A mask as a caller names it: canonical participants, or None if the caller names nobody but itself."""

    participants: tuple[str, ...] | None = None
    exact: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """Proves to the database a credential that Myria issued: its tenant, a key's id ("" for a token), and the digest of
    its secret."""

    tenant: str
    key_id: str
    digest: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """On whose behalf a request runs.

    Every read asks as all participants in `own`; `may_ask` are patterns of others that it may add, each a name with at
    most one `*`. `channels` are patterns of the channels it may append to; None for any. `credential` is the public id
    of its key or token, None for the local principal; `actor` is its name in histories and audits, and `name` what its
    key is called, None without a key. Without own participants and patterns, `anyone` must be true: then it may name
    anybody, and asks as `fallback` where it names nobody. `appends_for_anyone` lets an append name others than the
    patterns allow. `text_format` is the default format of answers on the agents' API; None follows the settings.
    `proof` proves the credential to the database; None for a token of another issuer, and without credentials.
    """

    tenant: str
    actor: str
    roles: frozenset[Role]
    faces: frozenset[ApiName]
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
    name: str | None = None
    proof: Proof | None = field(default=None, repr=False, compare=False)

    @property
    def caller(self) -> Caller:
        """The caller among whom database work is shared fairly (`myria.db.fairness`)."""
        return self.tenant, self.credential or ""

    def need(self, roles: Sequence[Role], *, what: str) -> None:
        """Check that this principal has one of the roles.

        Raises:
            RoleRequired: it has none of them.
        """
        if self.roles.isdisjoint(roles):
            raise RoleRequired(
                f"{what} needs the role {' or '.join(roles)}, which this credential has not", roles=[*roles]
            )

    def need_api(self, api: ApiName) -> None:
        """Check that this principal may use an API.

        Raises:
            FaceNotAllowed: it may not.
        """
        if api not in self.faces:
            raise FaceNotAllowed(f"this credential may not use the API {api}", face=api)

    def need_administrator(self, *, what: str) -> None:
        """Check that this principal administers: by its role, and at the API of administrators.

        Raises:
            RoleRequired, FaceNotAllowed: it does not.
        """
        self.need(("admin",), what=what)
        self.need_api("admin")

    def asking_as(self, named: tuple[str, ...] | None, *, field: str = "participants") -> tuple[str, ...]:
        """Return the participants of a read: all of the principal's own, and those that the caller names.

        Args:
            named: the canonical names that the caller gives; None where it names nobody.
            field: the argument that holds them, for refusals.

        Raises:
            ParticipantsNotAllowed: a name that no pattern allows, some of the own participants instead of all, or no
                name that matches a pattern although the credential needs one.
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
        """Return the masks of a read that names several; each must keep the rule of `asking_as`, exact ones too.

        So one call with several masks sees what separate calls with each would see, and no more.

        Raises:
            ParticipantsNotAllowed: as `asking_as`, for any of them.
            InvalidArgument: there are too many.
        """
        return Masks.of(
            Mask(self.asking_as(mask.participants, field=f"masks[{at}].participants"), exact=mask.exact)
            for at, mask in enumerate(named)
        )

    def asking_beside(self, participants: Sequence[str]) -> Masks:
        """Return the masks under which an append looks up the events that it replaces.

        They are those of a read by this principal and the participants that it may name.

        Raises:
            ParticipantsNotAllowed: as `asking_as`.
        """
        if self.own and not self.may_ask:
            return self.asking(None)
        return self.asking(tuple(name for name in participants if name in self.own or self.may_name(name)))

    def pool(self) -> Mask:
        """Return the mask of the pool that this principal's agents share: what exactly its own participants hold.

        Unlike a read, it needs no name that matches a pattern, since nobody else is part of the pool.

        Raises:
            ParticipantsNotAllowed: the principal has no participants of its own.
        """
        own = self.own or self.fallback
        if not own:
            raise ParticipantsNotAllowed(
                "this credential has no participants of its own, so it has no pool: name an agent that it may ask as",
                field="agentId",
            )
        return Mask(own, exact=True)

    def appending_as(self, named: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the participants of an append: all of the principal's own, and those that the caller names.

        Args:
            named: the canonical names that the caller gives; None where it names nobody.

        Raises:
            ParticipantsNotAllowed: as `asking_as`, except that naming some of the own participants is allowed.
            InvalidParticipants: more than an event can have.
        """
        if self.anyone:
            return named or self.fallback
        return self._with_own(named, widened=self.appends_for_anyone, field="participants")

    def may_name(self, name: str) -> bool:
        """Tell whether this principal may add a participant that is not its own."""
        return self.anyone or any(matches(pattern, name) for pattern in self.may_ask)

    def need_channel(self, channel: str) -> None:
        """Check that this principal may append to a channel.

        Raises:
            ChannelNotAllowed: it may not.
        """
        if self.channels is not None and not any(matches(pattern, channel) for pattern in self.channels):
            raise ChannelNotAllowed("this credential may not append to this channel", field="channel")

    def _with_own(self, named: tuple[str, ...] | None, *, widened: bool, field: str) -> tuple[str, ...]:
        """Return the own and the named participants, sorted; `widened` also allows names that no pattern allows."""
        others = [name for name in named or () if name not in self.own]
        allowed = [name for name in others if self.may_name(name)]
        if len(allowed) < len(others) and not widened:
            raise ParticipantsNotAllowed(f"{field} names somebody as whom this credential may not ask", field=field)
        if self.may_ask and not allowed:
            raise ParticipantsNotAllowed(
                f"this credential speaks for many: name in {field} for whom it speaks now, one that matches "
                f"{' or '.join(self.may_ask)}",
                field=field,
            )
        if not others and not self.own:
            raise ParticipantsNotAllowed(
                "this credential speaks for nobody, so it can neither ask nor append; use one with participants",
                field=field,
            )
        if not others:
            return self.own
        all_participants = tuple(sorted({*self.own, *others}))
        if len(all_participants) > MAX_PARTICIPANTS:
            raise InvalidParticipants(
                f"{field} may name at most {MAX_PARTICIPANTS}, this credential's own included",
                field=field,
                limit=MAX_PARTICIPANTS,
            )
        return all_participants


def local_principal(tenant: str, *, actor: str = "mcp", fallback: Sequence[str] = ("agent", "me")) -> Principal:
    """Return the principal of callers without credentials: it may do everything, and name any participants.

    Args:
        fallback: the participants of reads and appends that name nobody.
    """
    return Principal(
        tenant=tenant,
        actor=actor,
        roles=frozenset(ROLES),
        faces=frozenset(API_NAMES),
        anyone=True,
        fallback=canonical_participants(list(fallback), field="auth.local_participants"),
    )


def checked_pattern(pattern: str, name: str) -> str:
    """Check a pattern, and return it without space around it: a name in which at most one `*` stands for any text.

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
    # The length check keeps `before` and `after` from sharing letters: `aba*ba` must not match `aba`.
    return len(name) >= len(before) + len(after) and name.startswith(before) and name.endswith(after)
