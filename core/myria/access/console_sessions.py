"""Sessions of the console: a browser in which somebody signed in, with a key or with a token of an issuer.

A session can do what its key or token can, and ends with it. Only its digest is stored; a token is sealed under a key
that is made of the session's secret, so nobody can open it but while the browser shows that. `KeyCache.signed_in` finds
what a session stands for.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from myria.access.secrets import SESSION_PREFIX, MadeKey, MadeSession, make_secret, parse_session
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import CredentialInvalid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN_BYTES = 8192
"""Bytes of a token; the APIs take no longer one either."""

_STATEMENT_S = 5.0
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class SealedToken:
    """An issuer's token as a session keeps it: sealed with AES-256-GCM."""

    content: bytes

    @classmethod
    def seal(cls, token: str, session: MadeSession) -> SealedToken:
        """Seal a token so that only the session's secret opens it."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return cls(nonce + _cipher(session).encrypt(nonce, token.encode(), None))

    def opened(self, session: MadeSession) -> str:
        """Return the token.

        Raises:
            CredentialInvalid: it was sealed for another session, or changed.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - only where somebody signs in with a token

        nonce, sealed = self.content[:_NONCE_BYTES], self.content[_NONCE_BYTES:]
        try:
            return _cipher(session).decrypt(nonce, sealed, None).decode()
        except (InvalidTag, ValueError) as error:
            raise CredentialInvalid("this session keeps nothing that it can open; sign in again") from error


class ConsoleSessions:
    """Begins and ends sessions, with the rights of serving: each call must present a secret.

    Args:
        lifetime_s: seconds for which a session is good.
        most: sessions that one key, or one subject of an issuer, may have at once; one more ends the oldest.
    """

    def __init__(self, database: Database, *, lifetime_s: float, most: int) -> None:
        self._database = database
        self._lifetime_s = lifetime_s
        self._most = most

    async def sign_in(self, key: MadeKey, *, address: str | None = None) -> str | None:
        """Begin a session for a key's bearer; return its secret, or None where the key is not valid (any more).

        Args:
            address: where the bearer signs in, for the journal.
        """
        session = MadeSession("", make_secret(SESSION_PREFIX))
        async with self._database.connection() as connection:
            has_begun = await connection.fetchval(
                sql("access.console_sign_in"),
                key.key_id,
                key.digest,
                session.digest,
                self._lifetime_s,
                self._most,
                address,
                timeout=_STATEMENT_S,
            )
        return session.text if has_begun else None

    async def keep_token(
        self, token: str, *, tenant: str, subject: str, lifetime_s: float, address: str | None = None
    ) -> str | None:
        """Begin a session for a token that was verified; return its secret, or None where the tenant is suspended.

        Args:
            subject: who it is, as `NAME:SUB`, for the journal and the bound on sessions.
            lifetime_s: seconds until the token ends.

        Raises:
            CredentialInvalid: the token is too long.
        """
        if len(token) > TOKEN_BYTES:
            raise CredentialInvalid(f"this token has more than {TOKEN_BYTES} bytes", reason="size")
        session = MadeSession("", make_secret(SESSION_PREFIX))
        async with self._database.connection() as connection:
            has_begun = await connection.fetchval(
                sql("access.console_keep_token"),
                tenant,
                subject,
                SealedToken.seal(token, session).content,
                session.digest,
                min(lifetime_s, self._lifetime_s),
                self._most,
                address,
                timeout=_STATEMENT_S,
            )
        return session.text if has_begun else None

    async def sign_out(self, session: str, *, address: str | None = None) -> bool:
        """End a session; return whether it was one that had not ended."""
        made = parse_session(session)
        if made is None:
            return False
        async with self._database.connection() as connection:
            has_ended: bool = await connection.fetchval(
                sql("access.console_sign_out"), made.digest, address, timeout=_STATEMENT_S
            )
        return has_ended


def _cipher(session: MadeSession) -> AESGCM:
    """Return what seals the token of a session: each session's key is its own, so a random nonce is safe."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"myria.session.token.v1")
    return AESGCM(derived.derive(session.text.encode()))
