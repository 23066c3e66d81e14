"""From the claims of a verified token to a principal. Pure: whether the token is signed is known already.

A participant that is lost in translation would let its bearer see more, not less (see `principal`). So a claim that
participants, patterns or channels come from must be there and be understood whole; of roles and faces, what is not
understood grants nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from myria.access.issuers import Granted, Issuer, Mapped, Name
from myria.access.principal import MAX_PATTERNS, Face, Principal, Role, checked_pattern
from myria.access.tenants import checked_tenant
from myria.errors import CredentialInvalid, MyriaError
from myria.log.scopes import canonical_participants

Claims = Mapping[str, Any]

Value = TypeVar("Value")
Result = TypeVar("Result")

MAX_SUBJECT = 255
_LATEST_S = 253_402_300_800.0  # year 10000


def check_times(claims: Claims, *, now: float, leeway_s: float) -> float:
    """Return when a token ends, in seconds since 1970, its leeway included.

    Args:
        now: seconds since 1970.
        leeway_s: by how much the two clocks may differ.

    Raises:
        CredentialInvalid: it has expired, is not valid yet, was issued in the future, or does not say when it ends.
    """
    expires = _moment(claims, "exp")
    if expires is None:
        raise CredentialInvalid("this token does not say when it expires (exp)", reason="claim", claim="exp")
    if now >= expires + leeway_s:
        raise CredentialInvalid("this token has expired; get a new one", reason="expired")
    for claim in ("nbf", "iat"):
        begins = _moment(claims, claim)
        if begins is not None and now + leeway_s < begins:
            raise CredentialInvalid("this token is not valid yet", reason="not_yet_valid")
    return expires + leeway_s


def check_audience(claims: Claims, accepted: frozenset[str]) -> None:
    """Return when a token was issued for one of the accepted audiences.

    Raises:
        CredentialInvalid: it was issued for others, or for nobody in particular.
    """
    given = claims.get("aud")
    audiences = [given] if isinstance(given, str) else given
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise CredentialInvalid("this token does not say for whom it is (aud)", reason="claim", claim="aud")
    if accepted.isdisjoint(audiences):
        raise CredentialInvalid("this token was issued for another audience", reason="audience")


def principal_of(claims: Claims, issuer: Issuer, *, appends_for_anyone: bool = False) -> Principal:
    """Return the principal for which the claims of an issuer's token stand.

    Raises:
        CredentialInvalid: a claim is missing, of a wrong type, or means nothing here; its name is in the details.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise _wrong("sub", f"must be a text of 1..{MAX_SUBJECT} printable characters")
    tenants = _names(claims, issuer.tenant, checked_tenant)
    if len(tenants) != 1:
        raise _wrong(_shown(issuer.tenant.path), "must name one tenant")
    own = _names(claims, issuer.participants, _participant)
    _checked(own, _shown(issuer.participants.path), lambda names: canonical_participants(list(names)))
    return Principal(
        tenant=tenants[0],
        actor=f"token:{issuer.name}:{subject}",
        credential=f"{issuer.name}:{subject}",
        roles=frozenset[Role](_granted(claims, issuer.roles)),
        faces=frozenset[Face](_granted(claims, issuer.faces)),
        own=tuple(sorted(own)),
        may_ask=() if issuer.may_ask is None else _names(claims, issuer.may_ask, _literal_pattern),
        channels=None if issuer.channels is None else _names(claims, issuer.channels, _literal_pattern),
        appends_for_anyone=appends_for_anyone,
        requests_per_s=issuer.requests_per_s,
        concurrency=issuer.concurrency,
    )


def _names(claims: Claims, mapped: Mapped, check: Callable[[str], str]) -> tuple[str, ...]:
    """Return the distinct names that a mapping yields; every value of its claim counts."""
    names = dict.fromkeys(mapped.always)
    if mapped.claim is not None:
        where = _shown(mapped.path)
        values = _values(claims, mapped.path, words=False)
        if not values:
            raise _wrong(where, "is missing or empty")
        if len(values) > MAX_PATTERNS:
            raise _wrong(where, f"holds more than {MAX_PATTERNS} values")
        for value in values:
            if mapped.values is None:
                names[_checked(mapped.prefix + value, where, check)] = None
            elif value in mapped.values:
                names.update(dict.fromkeys(mapped.values[value]))
            else:
                raise _wrong(where, "holds a value that stands for nothing here")
    return tuple(names)


def _granted(claims: Claims, granted: Granted[Name]) -> list[Name]:
    names = list(granted.always)
    if granted.claim is not None:
        for value in _values(claims, granted.path, words=True):
            names.extend(granted.values.get(value, ()))
    return names


def _values(claims: Claims, path: tuple[str, ...], *, words: bool) -> list[str]:
    """Return the texts of a claim; none where it is absent.

    Raises:
        CredentialInvalid: it is neither a text nor a list of texts.
    """
    value: Any = claims
    for name in path:
        if not isinstance(value, Mapping):
            raise _wrong(_shown(path), "has another shape")
        value = value.get(name)
        if value is None:
            return []
    if isinstance(value, str):
        return value.split() if words else [value]
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _wrong(_shown(path), "must be a text or a list of texts")
    return value


def _participant(name: str) -> str:
    """Return a name that is canonical as it stands: two names of an issuer must never be one here."""
    if canonical_participants([name]) != (name,):
        raise CredentialInvalid("is not in its canonical form (NFC, no space around it)")
    return name


def _literal_pattern(name: str) -> str:
    """Return a claim's value as a pattern that matches it alone: stars come from the configuration only."""
    if "*" in name or checked_pattern(name, "pattern") != name:
        raise CredentialInvalid("holds a star, or is not in its canonical form")
    return name


def _checked(value: Value, claim: str, check: Callable[[Value], Result]) -> Result:
    try:
        return check(value)
    except MyriaError as error:
        raise _wrong(claim, error.message) from error


def _moment(claims: Claims, name: str) -> float | None:
    moment = claims.get(name)
    if moment is None:
        return None
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise _wrong(name, "must be a number of seconds")
    if not 0 <= moment <= _LATEST_S:
        raise _wrong(name, "is no moment")
    return float(moment)


def _shown(path: tuple[str, ...]) -> str:
    return ".".join(path) or "always"


def _wrong(claim: str, why: str) -> CredentialInvalid:
    return CredentialInvalid(f"the claim {claim} of this token {why}", reason="claim", claim=claim)
