"""From the headers of a request to its principal: without credentials, or by keys and tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from myria.access.key_cache import KeyCache
from myria.access.principal import ApiName, Principal, Role
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
"""The header that carries a key at the agent's API beside Authorization, for clients of its contract (Memento's)."""

API_KEY = b"x-api-key"
"""The header that carries a key over REST beside Authorization, for clients of its contract (Memtrace's)."""

KEY_HEADER_OF: Mapping[ApiName, bytes] = {"agent": ACCESS_KEY, "rest": API_KEY}
"""The extra header, beside Authorization, in which an API takes keys."""

CREDENTIALS = (b"authorization", *KEY_HEADER_OF.values())
"""The headers that may carry a credential."""

TENANT_CHECK_S = 1.0
"""Seconds for which it is taken for granted, where nobody proves anything, that the tenant is not being deleted."""

_CHECK_TIMEOUT_S = 0.5
_MAX_CREDENTIAL = 8192


class Authentication(Protocol):
    """Who calls."""

    async def principal(self, headers: Headers, api: ApiName) -> Principal:
        """Return the principal.

        Raises:
            AccessError: the request has no credential, or one that is refused.
            UnavailableError: nobody can tell now.
        """

    def challenge(self, error: AccessError, api: ApiName) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers that tell a client how to authenticate after a refusal of this API."""


class NoCredentials:
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

    async def principal(self, _headers: Headers, _api: ApiName) -> Principal:
        """Return the local principal.

        Raises:
            TenantSuspended: the tenant is being deleted.
        """
        if self._ticks() - self._looked_at >= TENANT_CHECK_S:
            self._looked_at = self._ticks()
            with suppress(MyriaError, TimeoutError):  # the request itself needs the database, and reports this better
                async with asyncio.timeout(_CHECK_TIMEOUT_S), self._database.read(self._local.tenant) as connection:
                    row = await connection.fetchrow(sql("access.tenant_state"), self._local.tenant)
                    self._is_deleting = row is not None and row["is_deleting"]
        if self._is_deleting:
            raise TenantSuspended("the tenant is being deleted; nothing is read or written for it any more")
        return self._local

    def challenge(self, _error: AccessError, _api: ApiName) -> tuple[tuple[bytes, bytes], ...]:
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

    async def principal(self, headers: Headers, api: ApiName) -> Principal:
        """Return the principal of a credential.

        Raises:
            CredentialMissing, CredentialInvalid, TenantSuspended, DatabaseUnavailable, IssuerUnavailable.
        """
        text = _credential(headers, api)
        if self._tokens is not None and looks_like_token(text):
            return await self._tokens.principal(text, api)
        return await self._key_cache.principal(text)

    def challenge(self, error: AccessError, api: ApiName) -> tuple[tuple[bytes, bytes], ...]:
        """Return the challenge of a refusal (RFC 6750), which says where the resource is described (RFC 9728)."""
        parameters = [f'realm="{REALM}"']
        if self._resource is not None:
            parameters.append(f'resource_metadata="{self._resource.metadata_url(api)}"')
        if error.http_status == CredentialMissing.http_status:
            if not isinstance(error, CredentialMissing):
                parameters.append('error="invalid_token"')
        elif isinstance(error, RoleRequired):
            roles: list[Role] = error.details["roles"]
            scopes = roles if self._resource is None else self._resource.scopes_granting(frozenset(roles)) or roles
            parameters += ['error="insufficient_scope"', f'scope="{" ".join(scopes)}"']
        else:
            return ()
        return ((b"www-authenticate", f"Bearer {', '.join(parameters)}".encode()),)


def claimed_id(headers: Headers) -> str | None:
    """Return the id of the key that a request presents, valid or not; None where it presents no key."""
    header_value = next((headers[name] for name in CREDENTIALS if headers.get(name)), b"")
    parsed_key = parse_key(header_value.rpartition(b" ")[2].decode("latin-1"))
    return None if parsed_key is None else parsed_key.key_id


def _credential(headers: Headers, api: ApiName) -> str:
    """Return the credential of a request: from the API's own header, if it has one, or from Authorization."""
    header = KEY_HEADER_OF.get(api)
    if header is not None and (key := headers.get(header)):
        bearer = b"Bearer " + key
        if headers.get(b"authorization") not in (None, bearer):
            raise CredentialInvalid(f"two credentials are none: send Authorization or {header.decode()}")
        return _bearer(bearer)
    return _bearer(headers.get(b"authorization"))


def _bearer(header_value: bytes | None) -> str:
    """Return the credential after `Bearer ` in the value of a header Authorization."""
    if not header_value:
        raise CredentialMissing("send a key in the header `Authorization: Bearer ...`; `myria key create` makes one")
    scheme, _, credential = header_value.partition(b" ")
    credential = credential.strip()
    if scheme.lower() != b"bearer" or not credential or len(credential) > _MAX_CREDENTIAL or not credential.isascii():
        raise CredentialInvalid("the header Authorization must read `Bearer ` and a key or a token")
    return credential.decode()
