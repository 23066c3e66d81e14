"""Make a principal from the claims of a token whose signature was verified before. Pure.

A participant that got lost here would let the token's bearer see more, not less (see `principal`). So a claim for
participants, patterns or channels must be present, and every value of it must be understood. Values of roles and faces
that are not understood grant nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from myria.access.issuers import Granted, Issuer, Mapped, Name
from myria.access.principal import MAX_PATTERNS, ApiName, Principal, Role, checked_pattern
from myria.access.tenants import checked_tenant
from myria.errors import CredentialInvalid, MyriaError
from myria.log.scopes import canonical_participants

Claims = Mapping[str, Any]

Value = TypeVar("Value")
Result = TypeVar("Result")

MAX_SUBJECT = 255
_LATEST_S = 253_402_300_800.0  # year 10000


def check_times(claims: Claims, *, now: float, leeway_s: float) -> float:
    """Check that a token is valid now; return when it ends, in seconds since 1970, leeway included.

    Args:
        now: seconds since 1970.
        leeway_s: by how much the two clocks may differ.

    Raises:
        CredentialInvalid: it has expired, is not valid yet, was issued in the future, or does not say when it ends.
    """
    expires = _time_claim(claims, "exp")
    if expires is None:
        raise CredentialInvalid("this token does not say when it expires (exp)", reason="claim", claim="exp")
    if now >= expires + leeway_s:
        raise CredentialInvalid("this token has expired; get a new one", reason="expired")
    for claim in ("nbf", "iat"):
        valid_from = _time_claim(claims, claim)
        if valid_from is not None and now + leeway_s < valid_from:
            raise CredentialInvalid("this token is not valid yet", reason="not_yet_valid")
    return expires + leeway_s


def check_audience(claims: Claims, accepted: frozenset[str]) -> None:
    """Check that a token was issued for one of the accepted audiences.

    Raises:
        CredentialInvalid: it was issued for others, or names no audience.
    """
    claimed_audience = claims.get("aud")
    audiences = [claimed_audience] if isinstance(claimed_audience, str) else claimed_audience
    if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
        raise CredentialInvalid("this token does not say for whom it is (aud)", reason="claim", claim="aud")
    if accepted.isdisjoint(audiences):
        raise CredentialInvalid("this token was issued for another audience", reason="audience")


def principal_of(claims: Claims, issuer: Issuer, *, appends_for_anyone: bool = False) -> Principal:
    """Return the principal that the claims of an issuer's token describe.

    Raises:
        CredentialInvalid: a claim is missing, of a wrong type, or not understood; its name is in the details.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise _claim_refused("sub", f"must be a text of 1..{MAX_SUBJECT} printable characters")
    tenants = _names(claims, issuer.tenant, checked_tenant)
    if len(tenants) != 1:
        raise _claim_refused(_path_text(issuer.tenant.path), "must name one tenant")
    own = _names(claims, issuer.participants, _participant)
    _checked(own, _path_text(issuer.participants.path), lambda names: canonical_participants(list(names)))
    return Principal(
        tenant=tenants[0],
        actor=f"token:{issuer.name}:{subject}",
        credential=f"{issuer.name}:{subject}",
        roles=frozenset[Role](_granted_names(claims, issuer.roles)),
        faces=frozenset[ApiName](_granted_names(claims, issuer.faces)),
        own=tuple(sorted(own)),
        may_ask=() if issuer.may_ask is None else _names(claims, issuer.may_ask, _literal_pattern),
        channels=None if issuer.channels is None else _names(claims, issuer.channels, _literal_pattern),
        appends_for_anyone=appends_for_anyone,
        requests_per_s=issuer.requests_per_s,
        concurrency=issuer.concurrency,
    )


def _names(claims: Claims, mapped: Mapped, check: Callable[[str], str]) -> tuple[str, ...]:
    """Return the distinct names that a mapping yields; an unknown value of its claim is refused, not skipped."""
    names = dict.fromkeys(mapped.always)
    if mapped.claim is not None:
        where = _path_text(mapped.path)
        values = _values(claims, mapped.path, words=False)
        if not values:
            raise _claim_refused(where, "is missing or empty")
        if len(values) > MAX_PATTERNS:
            raise _claim_refused(where, f"holds more than {MAX_PATTERNS} values")
        for value in values:
            if mapped.values is None:
                names[_checked(mapped.prefix + value, where, check)] = None
            elif value in mapped.values:
                names.update(dict.fromkeys(mapped.values[value]))
            else:
                raise _claim_refused(where, "holds a value that stands for nothing here")
    return tuple(names)


def _granted_names(claims: Claims, granted: Granted[Name]) -> list[Name]:
    """Return the roles or faces that a token grants; unknown values of the claim grant nothing."""
    names = list(granted.always)
    if granted.claim is not None:
        for value in _values(claims, granted.path, words=True):
            names.extend(granted.values.get(value, ()))
    return names


def _values(claims: Claims, path: tuple[str, ...], *, words: bool) -> list[str]:
    """Return the texts of a claim; none if the claim is absent.

    `words` splits a text at spaces into several values, as OAuth's `scope` needs.
    """
    value: Any = claims
    for name in path:
        if not isinstance(value, Mapping):
            raise _claim_refused(_path_text(path), "has another shape")
        value = value.get(name)
        if value is None:
            return []
    if isinstance(value, str):
        return value.split() if words else [value]
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _claim_refused(_path_text(path), "must be a text or a list of texts")
    return value


def _participant(name: str) -> str:
    """Return a name unchanged, or refuse it if it is not canonical: two names of an issuer must not become one here."""
    if canonical_participants([name]) != (name,):
        raise CredentialInvalid("is not in its canonical form (NFC, no space around it)")
    return name


def _literal_pattern(name: str) -> str:
    """Return a claim's value as a pattern that matches only itself; refuse a star, which only settings may contain."""
    if "*" in name or checked_pattern(name, "pattern") != name:
        raise CredentialInvalid("holds a star, or is not in its canonical form")
    return name


def _checked(value: Value, claim: str, check: Callable[[Value], Result]) -> Result:
    """Return what `check` makes of a value; a refusal becomes one that names the claim."""
    try:
        return check(value)
    except MyriaError as error:
        raise _claim_refused(claim, error.message) from error


def _time_claim(claims: Claims, name: str) -> float | None:
    """Return a claim that is a time, in seconds since 1970; None if the claim is absent."""
    moment = claims.get(name)
    if moment is None:
        return None
    if isinstance(moment, bool) or not isinstance(moment, int | float):
        raise _claim_refused(name, "must be a number of seconds")
    if not 0 <= moment <= _LATEST_S:
        raise _claim_refused(name, "is no moment")
    return float(moment)


def _path_text(path: tuple[str, ...]) -> str:
    return ".".join(path) or "always"


def _claim_refused(claim: str, why: str) -> CredentialInvalid:
    return CredentialInvalid(f"the claim {claim} of this token {why}", reason="claim", claim=claim)
