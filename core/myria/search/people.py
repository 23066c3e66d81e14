"""The participants with whom a caller shares something: those of the scopes that its participants may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from myria.db.database import Connection
from myria.db.queries import sql


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """A participant, and how many of the visible scopes (groups of people) it is in."""

    name: str
    scopes: int


async def people_beside(
    connection: Connection, tenant: str, participants: Sequence[str], *, after: str, prefix: str, limit: int
) -> list[Person]:
    """Return participants by name.

    Args:
        participants: only of scopes that all of these may see; none: of every scope of the tenant.
        after: only names after this one.
        prefix: only names that begin with it.
    """
    page = (tenant, after, prefix, limit)
    if participants:
        rows = await connection.fetch(sql("scopes.people"), *page, list(participants))
    else:
        rows = await connection.fetch(sql("scopes.everybody"), *page)
    return [Person(name=row["participant"], scopes=row["scopes"]) for row in rows]


async def names_beginning(connection: Connection, tenant: str, beginning: str, *, limit: int) -> list[str]:
    """Return the first names of participants, of whatever scope, that begin with a text; "" for all names."""
    rows = await connection.fetch(sql("scopes.names"), tenant, beginning, limit)
    return [row["participant"] for row in rows]


async def names_beside(
    connection: Connection, tenant: str, participants: Sequence[str], *, scopes: int, limit: int
) -> list[str]:
    """Return the first names of those who share a scope with all of some participants.

    Args:
        scopes: how many scopes are looked at, the newest ones.
    """
    rows = await connection.fetch(sql("scopes.names_beside"), tenant, list(participants), scopes, limit)
    return [row["participant"] for row in rows]
