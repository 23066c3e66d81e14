"""What people have granted to programs, as the control plane sees it: listed, shown and taken back."""

from __future__ import annotations

import uuid
from typing import Any

import asyncpg

from myria.db.clock import rfc3339_of
from myria.db.database import ALL_TENANTS, Database
from myria.db.queries import sql
from myria.errors import GrantNotFound

Json = dict[str, Any]


class Consents:
    """The grants of one database; never a code or a token, of which nobody has more than digests.

    Args:
        database: connects as the control plane.
        actor: who takes a grant back, for the journal.
    """

    def __init__(self, database: Database, *, actor: str = "cli") -> None:
        self._database = database
        self._actor = actor

    async def grants(self, tenant: str | None = None) -> list[Json]:
        """Return the grants of a tenant, or of all, oldest first."""
        async with self._database.read(ALL_TENANTS) as connection:
            return [_grant(row) for row in await connection.fetch(sql("oauth.grants"), tenant, None)]

    async def grant(self, grant_id: str) -> Json:
        """Return one grant.

        Raises:
            GrantNotFound: no such grant, or it ended so long ago that it was forgotten.
        """
        async with self._database.read(ALL_TENANTS) as connection:
            row = await connection.fetchrow(sql("oauth.grants"), None, _id(grant_id))
        if row is None:
            raise _not_found(grant_id)
        return _grant(row)

    async def revoke(self, grant_id: str) -> Json:
        """End a grant and all its tokens, on every pod within a second; one that has ended stays as it is.

        Raises:
            GrantNotFound: no such grant.
        """
        async with self._database.write(ALL_TENANTS) as connection:
            await connection.execute(sql("oauth.end_grant"), _id(grant_id), f"revoked by {self._actor}")
        return await self.grant(grant_id)


def _grant(row: asyncpg.Record) -> Json:
    moments = ("created_at", "last_used_at", "expires_at", "ended_at")
    return {
        "grant_id": str(row["grant_id"]),
        "tenant": row["tenant_id"],
        "state": row["state"],
        "client": row["client"],
        "client_id": row["client_id"],
        "key_id": row["key_id"],
        "key": row["key"],
        "face": row["face"],
        "scopes": list(row["scopes"]),
        "ended_reason": row["ended_reason"],
        **{name: None if row[name] is None else rfc3339_of(row[name]) for name in moments},
    }


def _id(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise _not_found(text) from error


def _not_found(grant_id: str) -> GrantNotFound:
    return GrantNotFound(f"there is no grant {grant_id[:100]}; `myria grant list` shows them", grant_id=grant_id[:100])
