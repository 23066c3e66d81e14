"""Connections and transactions: every statement runs inside a transaction that names its tenant.

Nothing here depends on session state, so PgBouncer in transaction mode may stand in between.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from myria import errors
from myria.store.locks import lock_key
from myria.store.queries import sql

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]
else:
    Connection = Any

ALL_TENANTS = "*"
"""The tenant name of the control plane: row-level security shows it every tenant."""

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def checked_tenant(name: str) -> str:
    """Return a tenant's name.

    Raises:
        InvalidArgument: not 1..63 letters, digits, dots, underscores and dashes, a letter or digit first.
    """
    if not isinstance(name, str) or not _TENANT.fullmatch(name):
        raise errors.InvalidArgument(
            "tenant must be 1..63 letters, digits, '.', '_' or '-', starting with a letter or digit",
            field="tenant",
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """How to connect: sizes in connections, times in seconds.

    `idle_timeout` is how long a transaction may wait for its client before PostgreSQL ends it; None leaves that to the
    database. `pgbouncer` switches prepared statements off, which transaction pooling before PgBouncer 1.21 cannot
    carry.
    """

    size: int = 10
    connect_timeout: float = 5.0
    acquire_timeout: float = 10.0
    statement_timeout: float = 30.0
    idle_timeout: float | None = None
    pgbouncer: bool = False


class Database:
    """A pool of connections to one PostgreSQL database."""

    def __init__(self, dsn: str, options: PoolOptions | None = None) -> None:
        self.dsn = dsn
        self.options = options or PoolOptions()
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self._wanted = 0
        self._waits = 0

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the pool; connections in use are given two seconds."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                await asyncio.wait_for(pool.close(), 2.0)
            except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pool.terminate()

    @property
    def in_use(self) -> int:
        """How many connections are out of the pool."""
        return 0 if self._pool is None else self._pool.get_size() - self._pool.get_idle_size()

    def figures(self) -> dict[str, int]:
        """Return how the pool does: connections `used`, `idle`, its `limit`, and `waits` for one since the start."""
        size = self._pool.get_size() if self._pool is not None else 0
        used = min(self._wanted, self.options.size)
        return {"used": used, "idle": max(0, size - used), "limit": self.options.size, "waits": self._waits}

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection, outside any transaction.

        Raises:
            DatabaseUnavailable: PostgreSQL cannot be reached, or no connection came free in time.
        """
        pool = self._pool or await self._open()
        self._wanted += 1
        self._waits += self._wanted > self.options.size
        try:
            with translated():
                try:
                    connection = await pool.acquire(timeout=self.options.acquire_timeout)
                except TimeoutError as error:
                    raise errors.DatabaseUnavailable(
                        "no database connection came free in time; retry, or raise postgres.pool_size"
                    ) from error
            try:
                with translated():
                    yield connection
            except errors.DatabaseUnavailable:
                with _quietly():
                    connection.terminate()
                raise
            finally:
                with _quietly():
                    await pool.release(connection, timeout=2.0)
        finally:
            self._wanted -= 1

    @asynccontextmanager
    async def read(self, tenant: str) -> AsyncIterator[Connection]:
        """Lend a connection inside one REPEATABLE READ, READ ONLY transaction of `tenant`."""
        async with (
            self.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await self._name_tenant(connection, tenant)
            yield connection

    @asynccontextmanager
    async def write(self, tenant: str) -> AsyncIterator[Connection]:
        """Lend a connection inside one READ COMMITTED transaction of `tenant`."""
        async with self.connection() as connection, connection.transaction(isolation="read_committed"):
            await self._name_tenant(connection, tenant)
            yield connection

    @asynccontextmanager
    async def append(self, tenant: str) -> AsyncIterator[Connection]:
        """As `write`, holding the tenant's append lock shared (trap 1)."""
        async with self.connection() as connection, connection.transaction(isolation="read_committed"):
            await connection.execute(
                sql("session.begin_append"), tenant, self._statement_timeout(), lock_key("append", tenant)
            )
            yield connection

    async def _name_tenant(self, connection: Connection, tenant: str) -> None:
        if self.options.idle_timeout is None:
            await connection.execute(sql("session.name_tenant"), tenant, self._statement_timeout())
        else:
            idle = f"{int(self.options.idle_timeout * 1000)}ms"
            statement = sql("session.name_tenant_and_bound_idling")
            await connection.execute(statement, tenant, self._statement_timeout(), idle)

    def _statement_timeout(self) -> str:
        return f"{int(self.options.statement_timeout * 1000)}ms"

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        async with self._opening:
            if self._pool is None:
                with translated():
                    self._pool = await asyncpg.create_pool(
                        self.dsn,
                        min_size=0,
                        max_size=self.options.size,
                        timeout=self.options.connect_timeout,
                        max_inactive_connection_lifetime=60.0,
                        statement_cache_size=0 if self.options.pgbouncer else 256,
                        init=_exact_times,
                        reset=_no_session_state,
                    )
        return self._pool


async def connect(dsn: str, *, timeout: float = 5.0, pgbouncer: bool = False) -> asyncpg.Connection[asyncpg.Record]:
    """Open one connection of its own (locks that outlive a transaction, migrations)."""
    with translated():
        connection = await asyncpg.connect(dsn, timeout=timeout, statement_cache_size=0 if pgbouncer else 100)
        await _exact_times(connection)
        return connection


@contextmanager
def translated() -> Iterator[None]:
    """Turn what asyncpg and the network raise into Myria's errors; Myria's own pass through.

    Raises:
        DatabaseUnavailable: connection refused, lost, shut down, or too many clients.
        DiskFull: the database ran out of room.
        DeadlineExceeded: a statement or lock timeout.
        ConfigurationError: the connection is refused, or a table or privilege is missing.
    """
    try:
        yield
    except errors.MyriaError:
        raise
    except asyncpg.DiskFullError as error:
        raise errors.DiskFull("the database has no room left; free some and retry") from error
    except (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError) as error:
        raise errors.DeadlineExceeded(f"the database did not answer in time: {error}") from error
    except (asyncpg.InvalidCatalogNameError, asyncpg.InvalidAuthorizationSpecificationError) as error:
        raise errors.ConfigurationError(f"the database refuses the connection: {error}") from error
    except _NOT_AS_EXPECTED as error:
        raise errors.ConfigurationError(
            f"the database lacks something this program needs ({error}); run `myria migrate`, and the SQL of "
            "`myria migrate --print-roles` for its role"
        ) from error
    except _UNREACHABLE as error:
        raise errors.DatabaseUnavailable(f"the database cannot be reached: {error or type(error).__name__}") from error
    except asyncpg.ClientConfigurationError as error:
        raise errors.ConfigurationError(f"the DSN is not one of PostgreSQL's: {error}") from error
    except asyncpg.InterfaceError as error:
        if "clos" in str(error):
            raise errors.DatabaseUnavailable(f"the database connection was lost: {error}") from error
        raise


_NOT_AS_EXPECTED = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.InsufficientPrivilegeError,
)

_UNREACHABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    # asyncpg's own word for a connection whose server went away between two protocol steps.
    asyncpg.InternalClientError,
    ConnectionError,
    TimeoutError,
    OSError,
)


@contextmanager
def _quietly() -> Iterator[None]:
    """A connection that is broken, or gone already, is replaced by the pool: giving it back cannot fail a request."""
    with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        yield


_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


async def _exact_times(connection: Connection) -> None:
    """Read and write every timestamp as itself.

    asyncpg's own codec writes the first and the last microsecond of the years 0001-9999 as -infinity and infinity, and
    reads those without a zone.
    """
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        format="tuple",
        encoder=lambda moment: ((moment - _POSTGRES_EPOCH) // _MICROSECOND,),
        decoder=lambda since: _POSTGRES_EPOCH + timedelta(microseconds=since[0]),
    )


async def _no_session_state(_: Any) -> None:
    """Only LOCAL settings are ever made, so a returned connection needs no reset round trip."""
