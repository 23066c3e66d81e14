"""Sessions of the console: a browser in which somebody signed in with a key.

A session can do what its key can, and ends with it. Only its digest is stored. `KeyCache.signed_in` finds its
principal.
"""

from __future__ import annotations

from myria.access.secrets import SESSION_PREFIX, MadeKey, MadeSession, make_secret, parse_session
from myria.db.database import Database
from myria.db.queries import sql

_STATEMENT_S = 5.0


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
