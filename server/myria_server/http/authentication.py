"""From the headers of a request to its principal: without credentials, or by keys and tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from myria.access.key_cache import KeyCache
from myria.access.principal import Face, Principal, Role
from myria.access.secrets import parse_key
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import (
    AccessError,
    CredentialInvalid,
    CredentialMissing,
    MyriaError,
    RoleRequired,
    TenantSuspended,
)
from myria_server.http.jwt_tokens import Tokens, looks_like_token
from myria_server.http.resource import ProtectedResource

Headers = Mapping[bytes, bytes]

REALM = "myria"
ACCESS_KEY = b"memento-access-key"
"""The header that carries a key at the agent's face beside Authorization, for clients of its contract (Memento's)."""

API_KEY = b"x-api-key"
"""The header that carries a key over REST beside Authorization, for clients of its contract (Memtrace's)."""

KEY_HEADER_OF: Mapping[Face, bytes] = {"agent": ACCESS_KEY, "rest": API_KEY}
"""The header of its own in which a face takes keys."""

CREDENTIALS = (b"authorization", *KEY_HEADER_OF.values())
"""The headers that may carry a credential."""

LOOK_S = 1.0
"""Seconds for which it is taken for granted, where nobody proves anything, that the tenant is not being deleted."""

_LOOK_WITHIN_S = 0.5
_MAX_CREDENTIAL = 8192


class Authentication(Protocol):
    """Who calls."""

    async def principal(self, headers: Headers, face: Face) -> Principal:
        """Return the principal.

        Raises:
            AccessError: the request has no credential, or one that is refused.
            UnavailableError: nobody can tell now.
        """

    def challenge(self, error: AccessError, face: Face) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers that tell a client what a refusal at a face wants of it."""


class Anybody:
    """No credentials: every request is the local principal's, until its tenant is about to be deleted.

    Args:
        local: the principal.
        database: where its tenant is looked at, by the first request that comes a second after the last look.
        ticks: a steady clock, in seconds.
    """

    def __init__(self, local: Principal, database: Database, *, ticks: Callable[[], float] = time.monotonic) -> None:
        self._local = local
        self._database = database
        self._ticks = ticks
        self._looked_at = float("-inf")
        self._is_deleting = False

    async def principal(self, _headers: Headers, _face: Face) -> Principal:
        """Return the local principal.

        Raises:
            TenantSuspended: the tenant is being deleted.
        """
        if self._ticks() - self._looked_at >= LOOK_S:
            self._looked_at = self._ticks()
            with suppress(MyriaError, TimeoutError):  # what the request itself needs of the database says what is wrong
                async with asyncio.timeout(_LOOK_WITHIN_S), self._database.read(self._local.tenant) as connection:
                    row = await connection.fetchrow(sql("access.tenant_state"), self._local.tenant)
                    self._is_deleting = row is not None and row["is_deleting"]
        if self._is_deleting:
            raise TenantSuspended("the tenant is being deleted; nothing is read or written for it any more")
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

    def __init__(
        self, key_cache: KeyCache, tokens: Tokens | None = None, resource: ProtectedResource | None = None
    ) -> None:
        self._key_cache = key_cache
        self._tokens = tokens
        self._resource = resource

    async def principal(self, headers: Headers, face: Face) -> Principal:
        """Return the principal of a credential.

        Raises:
            CredentialMissing, CredentialInvalid, TenantSuspended, DatabaseUnavailable, IssuerUnavailable.
        """
        text = _credential(headers, face)
        if self._tokens is not None and looks_like_token(text):
            return await self._tokens.principal(text, face)
        return await self._key_cache.principal(text)

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
    given = next((headers[name] for name in CREDENTIALS if headers.get(name)), b"")
    made = parse_key(given.rpartition(b" ")[2].decode("latin-1"))
    return None if made is None else made.key_id


def _credential(headers: Headers, face: Face) -> str:
    """Return the credential of a request to a face."""
    header = KEY_HEADER_OF.get(face)
    if header is not None and (key := headers.get(header)):
        bearer = b"Bearer " + key
        if headers.get(b"authorization") not in (None, bearer):
            raise CredentialInvalid(f"two credentials are none: send Authorization or {header.decode()}")
        return _bearer(bearer)
    return _bearer(headers.get(b"authorization"))


def _bearer(given: bytes | None) -> str:
    if not given:
        raise CredentialMissing("send a key in the header `Authorization: Bearer ...`; `myria key create` makes one")
    scheme, _, credential = given.partition(b" ")
    credential = credential.strip()
    if scheme.lower() != b"bearer" or not credential or len(credential) > _MAX_CREDENTIAL or not credential.isascii():
        raise CredentialInvalid("the header Authorization must read `Bearer ` and a key or a token")
    return credential.decode()
