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
"""How long PostgreSQL waits for a migration's client, so that a `myria migrate` that is stopped does not keep locks."""

_LOCK_WAIT = "5s"
_LOCK_ATTEMPTS = 12
_LOCK_PAUSE_S = (0.5, 2.0)

_POLL_S = 1.0
_LOG_EVERY_S = 10.0
"""Seconds between two log lines that say that the program still waits for the schema."""


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
        applied: list[str] = []
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
                return applied
            applied.append(str(step))


@asynccontextmanager
async def _session(dsn: str) -> AsyncIterator[Connection]:
    """Open a connection for the block, turn PostgreSQL's errors into Myria's, and close it."""
    connection = await connect(dsn, pgbouncer=True)
    try:
        with translated():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def _only_migrator(connection: Connection) -> AsyncIterator[None]:
    """Begin a transaction that holds the migration lock, so that no other process migrates meanwhile."""
    async with connection.transaction():
        # "0": wait for the lock without a limit.
        await connection.execute(sql("session.hold_briefly"), "0", _IDLE)
        await connection.execute(sql("schema.own_migration_lock"))
        yield


async def _next_step(connection: Connection) -> Migration | None:
    """Apply the next missing migration and return it; None when none is missing.

    Waits without a limit for another process that migrates, but only briefly for a table's lock: while a migration
    waits for a table, every later statement on that table waits behind it.
    """
    async with _only_migrator(connection):
        await connection.execute(sql("session.hold_briefly"), _LOCK_WAIT, _IDLE)
        missing = await _missing(connection)
        if not missing:
            return None
        step = missing[0]
        await connection.execute(step.sql)
        # The baseline's SQL holds the current functions too.
        for migration in (step, functions()) if step.version == BASELINE else (step,):
            await connection.execute(sql("schema.register"), migration.version, migration.name, migration.checksum)
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
    """Apply every missing migration as `migrate` does and return their names.

    Needs no right to migrate where none is missing.

    Raises:
        ConfigurationError: the role of this connection may not migrate.
    """
    return await migrate(dsn) if await pending(dsn) else []


async def require_current(dsn: str) -> None:
    """Check that no migration is missing.

    Raises:
        SchemaOutdated: run `myria migrate`.
    """
    missing = await pending(dsn)
    if missing:
        raise errors.SchemaOutdated(
            "the database schema is older than this program; run `myria migrate`", missing=missing
        )


async def adopt(dsn: str) -> int | None:
    """Rewrite the transaction ids of a database restored from another server's dump; return how many events changed.

    Events, snapshots and builds store transaction ids, which are valid only on the server that issued them: with those
    of another server, new events could stay invisible to readers and builds. Needs the role that owns the database.
    Safe to rerun; returns None where no foreign id is found, which costs one index look-up per scope. Call it before
    any process reads or builds: those that run already keep what they have read.
    """
    async with _session(dsn) as connection:
        async with _only_migrator(connection):
            # "0": no limit to a statement's time; a whole log may be rewritten.
            await connection.execute(sql("session.name_tenant"), ALL_TENANTS, "0")
            if not await connection.fetchval(sql("schema.has_foreign_transactions")):
                return None
            changed = 0
            last_foreign_seq = await connection.fetchval(sql("schema.last_foreign_event"))
            if last_foreign_seq is not None:
                # PostgreSQL answers with the command and its number of rows: "UPDATE 42".
                changed = int((await connection.execute(sql("schema.adopt_events"), last_foreign_seq)).split()[-1])
                await connection.execute(sql("schema.adopt_withdrawals"))
                await connection.execute(sql("schema.adopt_vectors"))
            # After the events: a snapshot's id is derived from theirs.
            for name in (
                "schema.adopt_snapshots",
                "schema.adopt_builds",
                "schema.adopt_requests",
                "schema.void_cursors",
            ):
                await connection.execute(sql(name))
        # VACUUM, which cannot run inside a transaction.
        await connection.execute(sql("schema.tidy_events"))
        return changed


async def grant(dsn: str) -> None:
    """Grant the planes' roles the privileges they need in a migrated database; idempotent, needs the owner's role.

    Raises:
        ConfigurationError: a role does not exist, and only an administrator can make it.
    """
    async with _session(dsn) as connection:
        existing_roles = {row["rolname"] for row in await connection.fetch(sql("schema.roles"), list(PLANE_ROLES))}
        missing = [role for role in PLANE_ROLES if role not in existing_roles]
        if missing:
            raise errors.ConfigurationError(
                f"there is no role {', '.join(missing)} to grant anything to; an administrator makes it with "
                "CREATE ROLE ... LOGIN PASSWORD ..., or leave --grant out",
                missing=missing,
            )
        async with _only_migrator(connection):
            await connection.execute(roles_sql())


async def check(database: Database) -> None:
    """Check that the database's schema is exactly this program's.

    Raises:
        SchemaOutdated: run `myria migrate`.
        SchemaTooNew: upgrade this program.
        DatabaseUnavailable: PostgreSQL cannot be reached.
    """
    async with database.connection() as connection:
        await check_connection(connection)


async def check_connection(connection: Connection) -> None:
    """Check a connection's database as `check` does."""
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
    """Return the migrations to apply, in order; last the functions, where the database's are not this program's.

    Raises:
        SchemaTooNew: the database knows migrations that this program does not.
        ConfigurationError: another build of Myria made the database.
    """
    if not await connection.fetchval(sql("schema.present")):
        return list(migrations())
    known = {step.version: step for step in migrations()}
    applied = {row["version"]: row for row in await connection.fetch(sql("schema.applied"))}
    functions_row = applied.pop(functions().version, None)
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
    if functions_row is None or functions_row["checksum"] != functions().checksum:
        missing.append(functions())
    return missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Vacuumed:
    """One table after a VACUUM: its size in bytes, and the dead rows that the VACUUM could not remove."""

    table: str
    bytes_now: int
    dead_rows: int


async def vacuum_erased(dsn: str) -> list[Vacuumed]:
    """Let PostgreSQL remove the dead rows of every table that an erasure changes; return the tables where it did.

    PostgreSQL leaves out, with a warning, those that the role of the connection may not vacuum: only their owner may.
    """
    async with _session(dsn) as connection:
        started_at = await connection.fetchval(sql("schema.now"))
        await connection.execute(sql("schema.vacuum_erased"))
        rows = await connection.fetch(sql("schema.vacuumed_since"), started_at)
    return [Vacuumed(table=row["table_name"], bytes_now=row["bytes_now"], dead_rows=row["dead_rows"]) for row in rows]


async def until_current(database: Database, wait_s: float) -> None:
    """Wait until the database has this program's schema; never migrate.

    Something else may still create what is missing (the database, the schema, the role or its rights), so this looks
    again every second, with a log line every ten seconds.

    Args:
        wait_s: how long, in seconds; 0 looks once.

    Raises:
        SchemaTooNew: at once: this program is older than the database, and waiting would not help.
        SchemaOutdated, DatabaseUnavailable, ConfigurationError: after the wait, what was wrong last.
    """
    started_at = time.monotonic()
    logged_at = float("-inf")  # nothing was logged yet
    while True:
        try:
            await check(database)
        except errors.SchemaTooNew:
            raise
        except (errors.UnavailableError, errors.OperationalError) as error:
            now = time.monotonic()
            left_s = started_at + wait_s - now
            if left_s <= 0:
                raise
            if now - logged_at >= _LOG_EVERY_S:
                logged_at = now
                logger.info(
                    "waiting up to %.0f s for the database's schema: %s",
                    left_s,
                    error.message,
                    extra={"action": "schema_awaited", "code": error.code},
                )
            await asyncio.sleep(min(_POLL_S, left_s))
        else:
            if logged_at > float("-inf"):
                logger.info("the database's schema is current", extra={"action": "schema_current"})
            return
