"""Signed tokens (JWT) of other authorization servers: verified once, then a dictionary look-up until they end.

`iss` says which issuer is meant, and that issuer's keys and algorithms alone count: what else a token's header says
about how it wants to be verified is not followed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jwt
import orjson
from jwt.exceptions import PyJWTError

from myria.access.claims import check_audience, check_times, principal_of
from myria.access.issuers import Issuer
from myria.access.key_cache import KeyCache
from myria.access.principal import ApiName, Principal
from myria.errors import CredentialInvalid
from myria_server.http.keysets import KeySet, PublicKey

Resource = ApiName | Literal["console"]
"""What a token may be issued for: an API, or the pages of the console."""

MAX_KNOWN = 10_000
"""Tokens remembered by one process; the one used longest ago goes first."""

_SIGNATURES = jwt.PyJWS(options={"enforce_minimum_key_length": True})


@dataclass(frozen=True, slots=True)
class _KnownToken:
    """What a verified token stands for, by which key, and until when (seconds since 1970)."""

    principal: Principal
    claims: Mapping[str, Any]
    issuer: _TrustedIssuer
    key: PublicKey
    ends_at: float


@dataclass(frozen=True, slots=True, eq=False)
class _TrustedIssuer:
    """One issuer, its keys, and the audiences accepted for each resource."""

    issuer: Issuer
    keys: KeySet
    audiences: Mapping[Resource, frozenset[str]]


class Tokens:
    """Turns signed tokens into principals.

    Args:
        key_cache: knows which tenants are there and not suspended.
        resources: the address of each resource; tokens are issued for these.
        now: seconds since 1970.
        ticks: a steady clock, in seconds.
    """

    def __init__(
        self,
        issuers: Sequence[Issuer],
        key_cache: KeyCache,
        resources: Mapping[Resource, str],
        *,
        appends_for_anyone: bool = False,
        now: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key_cache = key_cache
        self._appends_for_anyone = appends_for_anyone
        self._now = now
        self._trusted_issuers = {
            issuer.issuer: _TrustedIssuer(
                issuer,
                KeySet(issuer, ticks=ticks),
                {name: frozenset(issuer.audiences or (url, url + "/")) for name, url in resources.items()},
            )
            for issuer in issuers
        }
        self._known: OrderedDict[bytes, _KnownToken] = OrderedDict()
        self.verified = 0

    @property
    def key_sets(self) -> tuple[KeySet, ...]:
        """The keys of every issuer."""
        return tuple(issuing.keys for issuing in self._trusted_issuers.values())

    async def principal(self, text: str, resource: Resource) -> Principal:
        """Return the principal of a token, verified now or before.

        Raises:
            CredentialInvalid: it is malformed, of no issuer that counts, not signed by it, not for this resource,
                expired, not valid yet, or its claims stand for nobody here.
            TenantSuspended: its tenant is suspended.
            IssuerUnavailable, DatabaseUnavailable: nobody can tell now.
        """
        return (await self.principal_until(text, resource))[0]

    async def principal_until(self, text: str, resource: Resource) -> tuple[Principal, float]:
        """Return the principal of a token, and in how many seconds the token ends; raises as `principal`."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        entry = self._known.get(digest)
        if entry is None or not entry.issuer.keys.usable or not entry.issuer.keys.holds(entry.key):
            entry = await self._verify(text)
        elif self._now() >= entry.ends_at:
            raise CredentialInvalid("this token has expired; get a new one", reason="expired")
        check_audience(entry.claims, entry.issuer.audiences[resource])
        await self._key_cache.check_tenant(entry.principal.tenant)
        self._known[digest] = entry
        self._known.move_to_end(digest)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return entry.principal, entry.ends_at - self._now()

    async def check_id_token(
        self, text: str, issuer: Issuer, *, client_id: str, nonce: str, principal: Principal
    ) -> None:
        """Check the ID token that came with an access token (OpenID Connect Core, 3.1.3.7).

        Raises:
            CredentialInvalid: it is malformed, not of this issuer, for another client or another sign-in, has expired,
                or names somebody else than the access token.
            IssuerUnavailable: nobody can tell now.
        """
        trusted, claims, _ = await self._signed(text, ("JWT",))
        if trusted.issuer != issuer:
            raise CredentialInvalid("the ID token is another issuer's", reason="issuer")
        check_times(claims, now=self._now(), leeway_s=issuer.leeway_s)
        check_audience(claims, frozenset((client_id,)))
        if claims.get("azp", client_id) != client_id:
            raise CredentialInvalid("the ID token was issued for another client", reason="claim", claim="azp")
        if claims.get("nonce") != nonce:
            raise CredentialInvalid("the ID token belongs to another sign-in", reason="claim", claim="nonce")
        if f"{issuer.name}:{claims.get('sub')}" != principal.credential:
            raise CredentialInvalid("the ID token names somebody else", reason="claim", claim="sub")

    async def _verify(self, text: str) -> _KnownToken:
        """Check a token, except for its audience, which depends on the resource, and return what it stands for."""
        trusted, claims, public_key = await self._signed(text)
        ends_at = check_times(claims, now=self._now(), leeway_s=trusted.issuer.leeway_s)
        principal = principal_of(claims, trusted.issuer, appends_for_anyone=self._appends_for_anyone)
        return _KnownToken(principal, {"aud": claims.get("aud")}, trusted, public_key, ends_at)

    async def _signed(
        self, text: str, types: Sequence[str] | None = None
    ) -> tuple[_TrustedIssuer, dict[str, Any], PublicKey]:
        """Check that an issuer signed a token; return the issuer, the claims, and the key.

        Args:
            types: accepted types of token; None for those of the issuer's access tokens.
        """
        parts = text.split(".")
        if len(parts) != 3:
            raise _malformed("it must have three parts")
        header, claims = _decoded(parts[0]), _decoded(parts[1])
        issuer_url = claims.get("iss")
        trusted = self._trusted_issuers.get(issuer_url) if isinstance(issuer_url, str) else None
        if trusted is None:
            raise CredentialInvalid("this token's issuer is not known here", reason="issuer")
        algorithm, key_id = _check_header(header, trusted.issuer, types or trusted.issuer.types)
        public_key, signature_key = await trusted.keys.key(key_id, algorithm)
        self.verified += 1
        try:
            _SIGNATURES.decode_complete(text, signature_key, algorithms=[algorithm])
        except PyJWTError as error:
            raise CredentialInvalid("this token's signature is not its issuer's", reason="signature") from error
        return trusted, claims, public_key


def looks_like_token(text: str) -> bool:
    """Tell whether a credential has the form of a signed token."""
    return text.count(".") == 2


def _check_header(header: Mapping[str, Any], issuer: Issuer, types: Sequence[str]) -> tuple[str, str | None]:
    """Return the algorithm and the key id of a header that asks for nothing else.

    Raises:
        CredentialInvalid: an algorithm or a type that the issuer's configuration does not name, or an extension.
    """
    if "crit" in header or header.get("b64", True) is not True:
        raise _malformed("it needs an extension that is not known here")
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in issuer.algorithms:
        raise CredentialInvalid("this token's algorithm is not its issuer's", reason="algorithm")
    if not isinstance(key_id, str | None):
        raise _malformed("its kid must be text")
    accepted = {name.lower() for name in types}
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in accepted:
        raise CredentialInvalid("this is another type of token than its issuer's access tokens", reason="type")
    if any(isinstance(value, dict | list) for value in header.values()):
        raise _malformed("its header nests")
    return algorithm, key_id


def _decoded(part: str) -> dict[str, Any]:
    try:
        text = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        value = orjson.loads(text)
    except (binascii.Error, ValueError) as error:
        raise _malformed("its parts must be base64url of JSON") from error
    if not isinstance(value, dict):
        raise _malformed("its parts must be JSON objects")
    return value


def _malformed(why: str) -> CredentialInvalid:
    return CredentialInvalid(f"this token is malformed: {why}", reason="malformed")
