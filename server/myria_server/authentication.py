"""From the headers of a request to its principal: without credentials, or by keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from myria.access.principal import Principal
from myria.access.ring import KeyRing
from myria.access.secrets import parse_key
from myria.errors import AccessError, CredentialInvalid, CredentialMissing, RoleRequired

Headers = Mapping[bytes, bytes]

REALM = "myria"
_MAX_CREDENTIAL = 8192


class Authentication(Protocol):
    """Who calls."""

    def known(self, headers: Headers) -> Principal | None:
        """Return the principal where that needs no waiting, else None.

        Raises:
            AccessError: the request has no credential, or one that is refused.
        """

    async def principal(self, headers: Headers) -> Principal:
        """Return the principal.

        Raises:
            AccessError: the request has no credential, or one that is refused.
            DatabaseUnavailable: nobody can tell now.
        """


class Anybody:
    """No credentials: every request is the local principal's."""

    def __init__(self, local: Principal) -> None:
        self._local = local

    def known(self, _headers: Headers) -> Principal:
        """Return the local principal."""
        return self._local

    async def principal(self, _headers: Headers) -> Principal:
        """Return the local principal."""
        return self._local


class Keys:
    """A key in the header `Authorization: Bearer`."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    def known(self, headers: Headers) -> Principal | None:
        """Return the principal of a key that was verified before, else None.

        Raises:
            CredentialMissing, CredentialInvalid, TenantSuspended.
        """
        return self._ring.known(_bearer(headers))

    async def principal(self, headers: Headers) -> Principal:
        """Return the principal of a key.

        Raises:
            CredentialMissing, CredentialInvalid, TenantSuspended, DatabaseUnavailable.
        """
        return await self._ring.principal(_bearer(headers))


def challenge(error: AccessError) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that tell a client what a refusal wants of it (RFC 6750)."""
    if error.http_status == CredentialMissing.http_status:
        given = "" if isinstance(error, CredentialMissing) else ', error="invalid_token"'
        return ((b"www-authenticate", f'Bearer realm="{REALM}"{given}'.encode()),)
    if isinstance(error, RoleRequired):
        scope = " ".join(error.details["roles"])
        text = f'Bearer realm="{REALM}", error="insufficient_scope", scope="{scope}"'
        return ((b"www-authenticate", text.encode()),)
    return ()


def claimed_id(headers: Headers) -> str | None:
    """Return the id of the key that a request claims to have, true or not; None where it claims none."""
    made = parse_key(headers.get(b"authorization", b"").rpartition(b" ")[2].decode("latin-1"))
    return None if made is None else made.key_id


def _bearer(headers: Headers) -> str:
    given = headers.get(b"authorization")
    if not given:
        raise CredentialMissing("send a key in the header `Authorization: Bearer ...`; `myria key create` makes one")
    scheme, _, credential = given.partition(b" ")
    credential = credential.strip()
    if scheme.lower() != b"bearer" or not credential or len(credential) > _MAX_CREDENTIAL or not credential.isascii():
        raise CredentialInvalid("the header Authorization must read `Bearer ` and a key")
    return credential.decode()
