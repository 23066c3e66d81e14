"""The participants with whom a caller shares something: those of the scopes that its participants may see."""

from __future__ import annotations

from collections.abc import Sequence

from myria.db.database import Connection
from myria.db.queries import sql


async def people_beside(
    connection: Connection, tenant: str, participants: Sequence[str], *, after: str, prefix: str, limit: int
) -> list[str]:
    """Return the names of participants, in their order, also of those of whom nothing is left to see.

    Args:
        participants: only of scopes that all of these may see.
        after: only names after this one.
        prefix: only names that begin with it.
    """
    rows = await connection.fetch(sql("scopes.people"), tenant, after, prefix, limit, list(participants))
    return [row["participant"] for row in rows]


async def names_beginning(
    connection: Connection, tenant: str, beginning: str, *, limit: int, after: str = "", newest: int | None = None
) -> list[str]:
    """Return the first names, of whatever scope, that begin with a text.

    Args:
        beginning: "" for all names.
        after: only names after this one.
        newest: only of participants with an event to be seen among so many newest ones of as many newest scopes; so a
            name costs no more, however much of it was forgotten.
    """
    rows = await connection.fetch(sql("scopes.names"), tenant, after, beginning, limit, newest)
    return [row["participant"] for row in rows]


async def names_beside(
    connection: Connection, tenant: str, participants: Sequence[str], *, scopes: int, newest: int, limit: int
) -> list[str]:
    """Return the first names of those who share a scope, with an event to be seen, with all of some participants.

    Args:
        scopes: how many scopes are looked at, the newest ones.
        newest: how many events of each.
    """
    rows = await connection.fetch(sql("scopes.names_beside"), tenant, list(participants), scopes, limit, newest)
    return [row["participant"] for row in rows]
