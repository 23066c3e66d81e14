"""The schema's version: migrate it, or check that this program and the database agree.

The connections opened here prepare no named statements: PgBouncer may stand in between, and a name left behind on its
connection to the server would collide with those of the next client.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from myria import errors
from myria.db.database import ALL_TENANTS, Connection, Database, connect, translated
from myria.db.queries import sql
from myria_migrations import BASELINE, PLANE_ROLES, Migration, functions, migrations, roles_sql

logger = logging.getLogger(__name__)

MINIMUM_SERVER_VERSION = 150000

_IDLE = "60s"
"""How long a migration may wait for its client: a `myria migrate` that is stopped must not keep its locks."""

_LOCK_WAIT = "5s"
_LOCK_ATTEMPTS = 12
_LOCK_PAUSE_S = (0.5, 2.0)

_POLL_S = 1.0
_TELL_S = 10.0
"""Seconds between two lines of log that tell that the schema is still waited for."""


async def migrate(dsn: str) -> list[str]:
    """Apply every missing migration under one lock, each in a transaction of its own; return their names.

    An empty database gets the whole baseline in one transaction.

    Raises:
        SchemaTooNew: the database knows migrations that this program does not.
        ConfigurationError: PostgreSQL is older than 15, or another build made this database.
        DeadlineExceeded: a table was in use at every attempt; call again.
    """
    async with _session(dsn) as connection:
        await _check_server(connection)
        done: list[str] = []
        refused = 0
        while True:
            try:
                step = await _next_step(connection)
            except asyncpg.LockNotAvailableError:
                refused += 1
                if refused >= _LOCK_ATTEMPTS:
                    raise
                await asyncio.sleep(random.uniform(*_LOCK_PAUSE_S))  # noqa: S311 - jitter
                continue
            if step is None:
                return done
            done.append(str(step))


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[Connection]:
    """Lend a connection of its own, whose failures are Myria's errors."""
    connection = await connect(dsn, pgbouncer=True)
    try:
        with translated():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _alone(connection: Connection) -> AsyncIterator[None]:
    """Begin a transaction in which nobody else migrates."""
    async with connection.transaction():
        await connection.execute(sql("session.hold_briefly"), "0", _IDLE)
        await connection.execute(sql("schema.own_migration_lock"))
        yield


async def _next_step(connection: Connection) -> Migration | None:
    """Apply the next missing migration and return it; None when there is none.

    It waits for whoever else migrates, and only briefly for a table: everybody else would wait behind it.
    """
    async with _alone(connection):
        await connection.execute(sql("session.hold_briefly"), _LOCK_WAIT, _IDLE)
        missing = await _missing(connection)
        if not missing:
            return None
        step = missing[0]
        await connection.execute(step.sql)
        for applied in (step, functions()) if step.version == BASELINE else (step,):
            await connection.execute(sql("schema.register"), applied.version, applied.name, applied.checksum)
        return step


async def pending(dsn: str) -> list[str]:
    """Return the names of the migrations that `migrate` would apply; empty when the schema is current.

    Raises:
        SchemaTooNew: the database knows migrations that this program does not.
    """
    async with _session(dsn) as connection:
        await _check_server(connection)
        return [str(step) for step in await _missing(connection)]


async def migrate_if_pending(dsn: str) -> list[str]:
    """Apply every missing migration as `migrate` does, and ask for no rights where none is missing; return their names.

    Raises:
        ConfigurationError: the role of this connection may not migrate.
    """
    return await migrate(dsn) if await pending(dsn) else []


async def require_current(dsn: str) -> None:
    """Return when no migration is missing.

    Raises:
        SchemaOutdated: run `myria migrate`.
    """
    missing = await pending(dsn)
    if missing:
        raise errors.SchemaOutdated(
            "the database schema is older than this program; run `myria migrate`", missing=missing
        )


async def adopt(dsn: str) -> int | None:
    """Make a dump of another server this one's own, as the database's owner; return how many events it changed.

    Events and snapshots carry numbers of transactions, which mean something on the server alone that gave them out.
    Where they come out of a dump, new events could be hidden from readers and builds. Idempotent; None where there is
    nothing to do, which costs an index look-up per scope. To be called before anything reads or builds: processes that
    run already keep what they have read.
    """
    async with _session(dsn) as connection:
        async with _alone(connection):
            await connection.execute(sql("session.name_tenant"), ALL_TENANTS, "0")
            if not await connection.fetchval(sql("schema.has_foreign_transactions")):
                return None
            changed = 0
            last = await connection.fetchval(sql("schema.last_foreign_event"))
            if last is not None:
                changed = int((await connection.execute(sql("schema.adopt_events"), last)).split()[-1])
                await connection.execute(sql("schema.adopt_withdrawals"))
                await connection.execute(sql("schema.adopt_vectors"))
            for name in (
                "schema.adopt_snapshots",
                "schema.adopt_builds",
                "schema.adopt_requests",
                "schema.void_cursors",
            ):
                await connection.execute(sql(name))
        await connection.execute(sql("schema.tidy_events"))
        return changed


async def grant(dsn: str) -> None:
    """Give the planes' roles what they need in a migrated database, as its owner; idempotent.

    Raises:
        ConfigurationError: a role does not exist, and only an administrator can make it.
    """
    async with _session(dsn) as connection:
        there = {row["rolname"] for row in await connection.fetch(sql("schema.roles"), list(PLANE_ROLES))}
        missing = [role for role in PLANE_ROLES if role not in there]
        if missing:
            raise errors.ConfigurationError(
                f"there is no role {', '.join(missing)} to grant anything to; an administrator makes it with "
                "CREATE ROLE ... LOGIN PASSWORD ..., or leave --grant out",
                missing=missing,
            )
        async with _alone(connection):
            await connection.execute(roles_sql())


async def check(database: Database) -> None:
    """Return when the database's schema is exactly this program's.

    Raises:
        SchemaOutdated: run `myria migrate`.
        SchemaTooNew: upgrade this program.
        DatabaseUnavailable: PostgreSQL cannot be reached.
    """
    async with database.connection() as connection:
        await check_connection(connection)


async def check_connection(connection: Connection) -> None:
    """Return when the schema of the database at the other end is exactly this program's; see `check`."""
    try:
        missing = await _missing(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise errors.ConfigurationError(
            "the database role may not read the schema myria; run the SQL of `myria migrate --print-roles`"
        ) from error
    if missing:
        raise errors.SchemaOutdated(
            "the database schema is older than this program; run `myria migrate`",
            missing=[str(step) for step in missing],
        )


async def _check_server(connection: Connection) -> None:
    version = await connection.fetchval(sql("schema.server_version"))
    if version < MINIMUM_SERVER_VERSION:
        raise errors.ConfigurationError(f"PostgreSQL 15 or newer is needed, this one is {version // 10000}")


async def _missing(connection: Connection) -> list[Migration]:
    """Return what is to be applied, in order; the functions last, where they are not this program's."""
    if not await connection.fetchval(sql("schema.present")):
        return list(migrations())
    known = {step.version: step for step in migrations()}
    applied = {row["version"]: row for row in await connection.fetch(sql("schema.applied"))}
    installed = applied.pop(functions().version, None)
    for version, row in applied.items():
        step = known.get(version)
        if step is not None and (step.name, step.checksum) != (row["name"], row["checksum"]):
            raise errors.ConfigurationError(
                f"another build of Myria made this database: its {version:04d}_{row['name']} is not this program's. "
                "Run `myria export` of the build that wrote it, then `myria import` of this one into an empty database",
                version=version,
            )
        if step is None:
            raise errors.SchemaTooNew(
                f"the database schema has migration {version:04d}_{row['name']}, which this program does not know; "
                "upgrade the program",
                version=version,
            )
    missing = [step for step in migrations() if step.version not in applied]
    if installed is None or installed["checksum"] != functions().checksum:
        missing.append(functions())
    return missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Vacuumed:
    """What a VACUUM did with one table: its size in bytes now, and the dead rows that it had to leave."""

    table: str
    bytes_now: int
    dead_rows: int


async def vacuum_erased(dsn: str) -> list[Vacuumed]:
    """Let PostgreSQL remove the dead rows of every table that an erasure changes; return the tables where it did.

    PostgreSQL leaves out, with a warning, those that the role of the connection may not vacuum: only their owner may.
    """
    async with _session(dsn) as connection:
        began = await connection.fetchval(sql("schema.now"))
        await connection.execute(sql("schema.vacuum_erased"))
        rows = await connection.fetch(sql("schema.vacuumed_since"), began)
    return [Vacuumed(table=row["table_name"], bytes_now=row["bytes_now"], dead_rows=row["dead_rows"]) for row in rows]


async def until_current(database: Database, wait_s: float) -> None:
    """Return once the database has this program's schema; only look, never migrate.

    Whatever is missing meanwhile (the database, the schema, the role or its rights) may be on its way and is waited
    for, with a log line every ten seconds.

    Args:
        wait_s: how long, in seconds; 0 looks once.

    Raises:
        SchemaTooNew: at once: this program is older than the database, and waiting would not help.
        SchemaOutdated, DatabaseUnavailable, ConfigurationError: after the wait, what was wrong last.
    """
    began = time.monotonic()
    told_at = float("-inf")
    while True:
        try:
            await check(database)
        except errors.SchemaTooNew:
            raise
        except (errors.UnavailableError, errors.OperationalError) as error:
            now = time.monotonic()
            left = began + wait_s - now
            if left <= 0:
                raise
            if now - told_at >= _TELL_S:
                told_at = now
                logger.info(
                    "waiting up to %.0f s for the database's schema: %s",
                    left,
                    error.message,
                    extra={"action": "schema_awaited", "code": error.code},
                )
            await asyncio.sleep(min(_POLL_S, left))
        else:
            if told_at > float("-inf"):
                logger.info("the database's schema is current", extra={"action": "schema_current"})
            return
