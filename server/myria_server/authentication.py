"""From the headers of a request to its principal: without credentials, or by keys and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from myria.access.principal import Face, Principal, Role
from myria.access.ring import KeyRing
from myria.access.secrets import parse_key
from myria.errors import AccessError, CredentialInvalid, CredentialMissing, RoleRequired
from myria_server.resource import ProtectedResource
from myria_server.tokens import Tokens, looks_like_token

Headers = Mapping[bytes, bytes]

REALM = "myria"
_MAX_CREDENTIAL = 8192


class Authentication(Protocol):
    """Who calls."""

    def known(self, headers: Headers, face: Face) -> Principal | None:
        """Return the principal where that needs no waiting, else None.

        Raises:
            AccessError: the request has no credential, or one that is refused.
        """

    async def principal(self, headers: Headers, face: Face) -> Principal:
        """Return the principal.

        Raises:
            AccessError: the request has no credential, or one that is refused.
            UnavailableError: nobody can tell now.
        """

    def challenge(self, error: AccessError, face: Face) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers that tell a client what a refusal at a face wants of it."""


class Anybody:
    """No credentials: every request is the local principal's."""

    def __init__(self, local: Principal) -> None:
        self._local = local

    def known(self, _headers: Headers, _face: Face) -> Principal:
        """Return the local principal."""
        return self._local

    async def principal(self, _headers: Headers, _face: Face) -> Principal:
        """Return the local principal."""
        return self._local

    def challenge(self, _error: AccessError, _face: Face) -> tuple[tuple[bytes, bytes], ...]:
        """Return none: no credential would help."""
        return ()


class KeysAndTokens:
    """A key, or a signed token of another authorization server, in the header `Authorization: Bearer`.

    Args:
        tokens: verifies signed tokens; None takes keys alone.
        resource: what tokens are issued for, and where that is described; None where there are no tokens.
    """

    def __init__(self, ring: KeyRing, tokens: Tokens | None = None, resource: ProtectedResource | None = None) -> None:
        self._ring = ring
        self._tokens = tokens
        self._resource = resource

    def known(self, headers: Headers, face: Face) -> Principal | None:
        """Return the principal of a credential that was verified before, else None.

        Raises:
            CredentialMissing, CredentialInvalid, TenantSuspended.
        """
        text = _bearer(headers)
        if self._tokens is not None and looks_like_token(text):
            return self._tokens.known(text, face)
        return self._ring.known(text)

    async def principal(self, headers: Headers, face: Face) -> Principal:
        """Return the principal of a credential.

        Raises:
            CredentialMissing, CredentialInvalid, TenantSuspended, DatabaseUnavailable, IssuerUnavailable.
        """
        text = _bearer(headers)
        if self._tokens is not None and looks_like_token(text):
            return await self._tokens.principal(text, face)
        return await self._ring.principal(text)

    def challenge(self, error: AccessError, face: Face) -> tuple[tuple[bytes, bytes], ...]:
        """Return the challenge of a refusal (RFC 6750), which says where the resource is described (RFC 9728)."""
        parts = [f'realm="{REALM}"']
        if self._resource is not None:
            parts.append(f'resource_metadata="{self._resource.metadata_url(face)}"')
        if error.http_status == CredentialMissing.http_status:
            if not isinstance(error, CredentialMissing):
                parts.append('error="invalid_token"')
        elif isinstance(error, RoleRequired):
            roles: list[Role] = error.details["roles"]
            scopes = roles if self._resource is None else self._resource.scopes_granting(frozenset(roles)) or roles
            parts += ['error="insufficient_scope"', f'scope="{" ".join(scopes)}"']
        else:
            return ()
        return ((b"www-authenticate", f"Bearer {', '.join(parts)}".encode()),)


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
        raise CredentialInvalid("the header Authorization must read `Bearer ` and a key or a token")
    return credential.decode()
