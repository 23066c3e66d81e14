"""OAuth: clients (programs) that registered, the grants people give them with their keys, and each grant's tokens.

A grant is the family of tokens that came from one consent. It can do no more than its key, and ends with it. It also
ends, as a whole, when a code or a refresh token is used twice, since one of the two users stole it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from myria.access.principal import ApiName, Role
from myria.access.secrets import (
    ACCESS_PREFIX,
    CODE_PREFIX,
    REFRESH_PREFIX,
    MadeKey,
    make_secret,
    token_digest,
)
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import InvalidArgument, QuotaExceeded, RateLimited

CODE_S = 60.0
"""Seconds within which a code must be exchanged."""

ACCESS_S = 3600.0
"""Seconds for which an access token is good."""

REFRESH_S = 30 * 86_400.0
"""Seconds for which a refresh token is good."""

UNUSED_S = 3600.0
"""Seconds after which a registration ends if nobody signed in with it."""

MAX_UNUSED = 10_000
"""The most registrations with which nobody has signed in yet; further ones are refused, none is pushed out."""

MAX_UNUSED_EACH = 50
"""The most of them that may come from one network."""

MAX_REDIRECT_URIS = 10
MAX_URI = 500
MAX_CLIENT_NAME = 100

SCOPES: Mapping[ApiName, tuple[Role, ...]] = {
    "core": ("append", "read"),
    "agent": ("append", "read"),
    "turns": ("append", "read"),
    "rest": ("append", "read"),
    "admin": ("read", "admin"),
}
"""What may be granted at each API."""

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_NAMED_SCHEMES = frozenset(
    {"claude", "cursor", "jetbrains", "vscode", "vscode-insiders", "vscodium", "windsurf", "zed"}
)
_LOOPBACK_URI = re.compile(r"http://(localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?([/?].*)?")
_URI = re.compile(r"[A-Za-z0-9._~:/?@!$&()*+=%\[\]-]+")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_STATEMENT_S = 5.0
_FULL_RETRY_S = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """A program that registered itself; its name is its own claim."""

    client_id: str
    name: str
    redirect_uris: tuple[str, ...]

    def registered(self, uri: str) -> str | None:
        """Return the registered address that matches `uri`; None if none does.

        They must be equal letter by letter, except for the port on loopback: a program on a person's machine listens
        on whichever port is free (RFC 8252, section 7.3; OAuth 2.1, section 8.4.2).
        """
        if uri in self.redirect_uris:
            return uri
        if not is_redirect_uri(uri) or (host_and_path := _without_port(uri)) is None:
            return None
        return next((known for known in self.redirect_uris if _without_port(known) == host_and_path), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Issued:
    """An access and a refresh token; only their digests are stored, so they are shown once."""

    access: str
    refresh: str
    scopes: tuple[str, ...]


def is_redirect_uri(uri: str) -> bool:
    """Tell whether an address may be a client's redirect URI (RFC 8252, OAuth 2.1).

    Allowed are https, http on loopback, and a private scheme: one with a dot, or that of a known editor.
    """
    if len(uri) > MAX_URI or not _URI.fullmatch(uri):
        return False
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port  # `port` raises ValueError where it is no number
    except ValueError:
        return False
    if parts.username is not None or parts.password is not None:
        return False
    if parts.scheme == "https":
        return bool(host)
    if parts.scheme == "http":
        return host in _LOOPBACK
    return "." in parts.scheme or (parts.scheme in _NAMED_SCHEMES and bool(host))


def _without_port(uri: str) -> tuple[str, str] | None:
    """Return host and path of a loopback address; None for any other address."""
    match = _LOOPBACK_URI.fullmatch(uri)
    return None if match is None else (match[1], match[2] or "/")


def is_challenge(text: str) -> bool:
    """Tell whether a text is a PKCE challenge by S256 (RFC 7636)."""
    return _CHALLENGE.fullmatch(text) is not None


def challenge_of(verifier: str) -> str | None:
    """Return the S256 challenge of a PKCE verifier, or None where it is none."""
    if not _VERIFIER.fullmatch(verifier):
        return None
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class Grants:
    """Clients, grants and tokens in the database, with the rights of serving: it must present a secret for each.

    Args:
        per_key: the most grants that one key may have at once; None for no limit.
        per_tenant: the most grants that all keys of a tenant may have together; None for no limit.
    """

    def __init__(self, database: Database, *, per_key: int | None = None, per_tenant: int | None = None) -> None:
        self._database = database
        self._per_key = per_key
        self._per_tenant = per_tenant

    async def register(self, name: str, redirect_uris: Sequence[str], *, network: str) -> Client:
        """Validate and store a new client, and return it.

        Args:
            network: the network that the registration comes from.

        Raises:
            InvalidArgument: the name or an address is not allowed.
            RateLimited: too many unused registrations exist, from this network or in all.
        """
        name = name.strip()
        if not 1 <= len(name) <= MAX_CLIENT_NAME or not name.isprintable():
            raise InvalidArgument(
                f"client_name must have 1..{MAX_CLIENT_NAME} printable characters", field="client_name"
            )
        if not 1 <= len(redirect_uris) <= MAX_REDIRECT_URIS or not all(map(is_redirect_uri, redirect_uris)):
            raise InvalidArgument(
                f"redirect_uris must list 1..{MAX_REDIRECT_URIS} addresses: https, http on loopback, or a scheme of "
                "the program's own with a dot in it; without user and fragment",
                field="redirect_uris",
            )
        client = Client(client_id=secrets.token_hex(16), name=name, redirect_uris=tuple(redirect_uris))
        async with self._database.connection() as connection:
            outcome = await connection.fetchval(
                sql("oauth.register"),
                client.client_id,
                name,
                list(redirect_uris),
                network,
                MAX_UNUSED_EACH,
                MAX_UNUSED,
                UNUSED_S,
                timeout=_STATEMENT_S,
            )
        if outcome == "kept":
            return client
        raise RateLimited(
            "as many programs have registered as may and wait for somebody to sign in"
            + (" that came from this network" if outcome == "origin" else "")
            + f"; sign in with one of them, or come again: one that nobody uses ends after {UNUSED_S / 60:g} minutes",
            limit="registrations",
            value=MAX_UNUSED_EACH if outcome == "origin" else MAX_UNUSED,
            retry_after_s=_FULL_RETRY_S,
        )

    async def client(self, client_id: str) -> Client | None:
        """Return a client; None if the id is unknown, or if nobody used the registration in time."""
        if "\x00" in client_id:  # PostgreSQL would refuse the text
            return None
        async with self._database.connection() as connection:
            row = await connection.fetchrow(sql("oauth.client"), client_id, UNUSED_S, timeout=_STATEMENT_S)
        if row is None:
            return None
        return Client(client_id=row["client_id"], name=row["name"], redirect_uris=tuple(row["redirect_uris"]))

    async def grant(
        self, key: MadeKey, client: Client, *, face: ApiName, scopes: Sequence[str], redirect_uri: str, challenge: str
    ) -> str | None:
        """Make a grant to a client by a key's bearer; return its code, or None where the key may not grant this.

        Raises:
            QuotaExceeded: the key, or its tenant, has as many grants as it may.
        """
        code = make_secret(CODE_PREFIX)
        async with self._database.connection() as connection:
            outcome = await connection.fetchval(
                sql("oauth.grant"),
                key.key_id,
                key.digest,
                client.client_id,
                face,
                list(scopes),
                client.registered(redirect_uri),
                challenge,
                token_digest(code),
                CODE_S,
                self._per_key,
                self._per_tenant,
                timeout=_STATEMENT_S,
            )
        if outcome in ("key", "tenant"):
            most = self._per_key if outcome == "key" else self._per_tenant
            raise QuotaExceeded(
                f"This {outcome} has allowed {most} programs something, as many as it may. An administrator ends "
                "what is no longer used: `myria grant list` and `myria grant revoke`.",
                limit=f"grants_per_{outcome}",
                value=most,
            )
        return code if outcome == "made" else None

    async def exchange_code(
        self, code: str, client: Client, *, redirect_uri: str, verifier: str, face: ApiName | None
    ) -> Issued | None:
        """Return tokens for a code; None if the code is not valid. Using a code twice ends its grant."""
        uri = client.registered(redirect_uri) or redirect_uri
        return await self._exchange(
            code, client, refreshing=False, uri=uri, challenge=challenge_of(verifier) or "", face=face
        )

    async def refresh(
        self, token: str, client: Client, *, face: ApiName | None, scopes: Sequence[str] | None
    ) -> Issued | None:
        """Return new tokens for a refresh token; None if it is not valid. Using it twice ends its grant."""
        return await self._exchange(token, client, refreshing=True, face=face, scopes=scopes)

    async def revoke(self, token: str, client: Client) -> bool:
        """End the grant that a token of this client belongs to; return whether there was one."""
        async with self._database.connection() as connection:
            ended: bool = await connection.fetchval(
                sql("oauth.revoke"), token_digest(token), client.client_id, timeout=_STATEMENT_S
            )
        return ended

    async def _exchange(
        self,
        presented_secret: str,
        client: Client,
        *,
        refreshing: bool,
        uri: str | None = None,
        challenge: str | None = None,
        face: ApiName | None = None,
        scopes: Sequence[str] | None = None,
    ) -> Issued | None:
        """Use up a code or a refresh token, and return the next tokens; None if it is not valid for this client."""
        access, refresh = make_secret(ACCESS_PREFIX), make_secret(REFRESH_PREFIX)
        async with self._database.connection() as connection:
            granted_scopes = await connection.fetchval(
                sql("oauth.exchange"),
                token_digest(presented_secret),
                refreshing,
                client.client_id,
                uri,
                challenge,
                face,
                None if scopes is None else list(scopes),
                token_digest(access),
                token_digest(refresh),
                ACCESS_S,
                REFRESH_S,
                timeout=_STATEMENT_S,
            )
        return None if granted_scopes is None else Issued(access=access, refresh=refresh, scopes=tuple(granted_scopes))
