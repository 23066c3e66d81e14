"""The roles that Myria's planes log in as, and the database they share.

Nothing in daily use runs as superuser, since row-level security binds everybody else: the owner too, as it is forced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import asyncpg

from myria.db.queries import sql
from myria_embedded.credentials import Credential
from myria_embedded.server import EmbeddedPostgres
from myria_migrations import roles_sql

DATABASE = "myria"
OWNER = "myria_owner"
SERVER = "myria_server"
BUILDER = "myria_builder"
OPERATOR = "myria_operator"

_STATEMENTS = (resources.files("myria_embedded") / "roles.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDsns:
    """How each plane connects to one database. They hold passwords: never log or print them."""

    owner: str
    server: str
    builder: str
    operator: str
    superuser: str


async def ensure_roles(server: EmbeddedPostgres) -> RoleDsns:
    """Create the database `myria` and the planes' roles where they are missing; return how to connect.

    Idempotent. Passwords are generated once and kept in the data directory (0600). Run `grant_roles` after migrating.
    """
    await make_roles(server, server.credentials.of(OWNER, SERVER, BUILDER, OPERATOR), DATABASE, OWNER)
    return role_dsns(server)


async def make_roles(server: EmbeddedPostgres, credentials: Sequence[Credential], database: str, owner: str) -> None:
    """Create roles with these credentials, and a database of `owner`, where they are missing or differ.

    A lock makes processes that do so at the same time wait for each other.
    """
    connection = await asyncpg.connect(server.dsn)
    try:
        names, verifiers = (
            [credential.role for credential in credentials],
            [credential.verifier for credential in credentials],
        )
        await connection.execute(sql("schema.own_roles_lock"))
        for row in await connection.fetch(_STATEMENTS, names, verifiers, database, owner):
            await connection.execute(row["statement"])
    finally:
        await connection.close()


async def grant_roles(server: EmbeddedPostgres, database: str = DATABASE) -> None:
    """Give the planes' roles what `migrations/` says they may do in a migrated `database`; idempotent."""
    connection = await asyncpg.connect(server.superuser_dsn(database))
    try:
        async with connection.transaction():
            await connection.execute(sql("schema.own_migration_lock"))
            await connection.execute(roles_sql())
    finally:
        await connection.close()


def role_dsns(server: EmbeddedPostgres, database: str = DATABASE, *, tcp: bool = False) -> RoleDsns:
    """Return how each role connects to `database`."""

    def dsn(credential: Credential) -> str:
        return server.dsn_as(credential.role, credential.password, database=database, tcp=tcp)

    owner, serving, builder, operator = server.credentials.of(OWNER, SERVER, BUILDER, OPERATOR)
    return RoleDsns(
        owner=dsn(owner),
        server=dsn(serving),
        builder=dsn(builder),
        operator=dsn(operator),
        superuser=server.superuser_dsn(database, tcp=tcp),
    )
