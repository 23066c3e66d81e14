"""Connections and transactions: every statement runs inside a transaction that names its tenant.

Nothing here depends on session state, so PgBouncer in transaction mode may stand in between.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from myria import errors
from myria.db.clock import to_microseconds
from myria.db.fairness import FairTurns, caller
from myria.db.locks import Purpose, lock_key
from myria.db.queries import sql

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record] | asyncpg.Connection[asyncpg.Record]
else:
    Connection = Any

ALL_TENANTS = "*"
"""The tenant name of the control plane: row-level security shows it every tenant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionBounds:
    """What PostgreSQL itself allows one transaction, in seconds; it needs no client that still works.

    A serving process that is stopped in the middle of an append holds the tenant's append lock, and a build waits for
    it: until `idle`, when PostgreSQL ends the transaction.
    """

    statement: float = 30.0
    """The longest statement."""
    idle: float = 10.0
    """The longest wait for the client between two statements."""
    lock: float = 20.0
    """The longest wait for one lock."""
    total: float = 120.0
    """The longest transaction (PostgreSQL 17 and newer)."""

    def as_settings(self) -> tuple[str, str, str, str]:
        """Return the values of statement_timeout, idle_in_transaction_session_timeout, lock_timeout and
        transaction_timeout."""
        statement, idle, lock, total = (
            f"{max(1, round(seconds * 1000))}ms" for seconds in (self.statement, self.idle, self.lock, self.total)
        )
        return statement, idle, lock, total


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolOptions:
    """How to connect: sizes in connections, times in seconds.

    `acquire_timeout` is how long a caller waits for a connection of the pool. `pgbouncer` switches prepared statements
    off, which transaction pooling before PgBouncer 1.21 cannot carry, and leaves sessions as they are. `at_once` bounds
    the connections lent at the same time further, fairly between callers (`myria.db.fairness`).
    """

    size: int = 10
    connect_timeout: float = 5.0
    acquire_timeout: float = 10.0
    bounds: TransactionBounds = TransactionBounds()
    pgbouncer: bool = False
    at_once: int | None = None


class Database:
    """A pool of connections to one PostgreSQL database.

    Args:
        check: refuses connections until it has passed once: before, the schema may not be this program's.
    """

    def __init__(
        self,
        dsn: str,
        options: PoolOptions | None = None,
        *,
        check: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> None:
        self.dsn = dsn
        self._check = check
        self.options = options or PoolOptions()
        self._turns: FairTurns | None = None
        if self.options.at_once is not None:
            at_once = min(self.options.at_once, self.options.size)
            # One caller never gets all connections, so that another's first request begins at once.
            per_caller = at_once - 1 if at_once > _FEW else at_once
            self._turns = FairTurns(at_once, each=per_caller, patience=self.options.acquire_timeout)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        bounds = self.options.bounds
        self._bounds = bounds.as_settings()
        # A read holds no lock, and may compute between two statements.
        self._read_bounds = replace(bounds, idle=3 * bounds.idle).as_settings()
        self._opening = asyncio.Lock()
        self._in_use_or_waiting = 0
        self._waits = 0
        self._clock_reading: tuple[int, int] | None = None

    def another(self, size: int) -> Database:
        """Return another pool to the same database, for work in another thread."""
        return Database(self.dsn, replace(self.options, size=size, at_once=None))

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
        """The number of connections that are lent out."""
        return 0 if self._pool is None else self._pool.get_size() - self._pool.get_idle_size()

    @property
    def waiting(self) -> int:
        """The number of callers that wait for their turn."""
        return 0 if self._turns is None else self._turns.waiting

    def figures(self) -> dict[str, int]:
        """Return the pool's figures: connections `used` and `idle`, their `limit`, and `waits` for one since start."""
        size = self._pool.get_size() if self._pool is not None else 0
        used = min(self._in_use_or_waiting, self.options.size)
        waits = self._waits + (0 if self._turns is None else self._turns.waits)
        return {"used": used, "idle": max(0, size - used), "limit": self.options.size, "waits": waits}

    async def now(self) -> int:
        """Return the database's time in microseconds since 1970 UTC, on which all processes agree.

        Asks the database every `_CLOCK_KEPT_NS`, and adds this process's monotonic clock in between.

        Raises:
            as `connection`, when the database must be asked.
        """
        reading = self._clock_reading
        if reading is None or time.monotonic_ns() - reading[1] > _CLOCK_KEPT_NS:
            async with self.connection() as connection:
                asked_at = time.monotonic_ns()
                database_time = await connection.fetchval(sql("session.clock"))
                # The database answered halfway between the question and the answer.
                reading = to_microseconds(database_time), (asked_at + time.monotonic_ns()) // 2
            self._clock_reading = reading
        return reading[0] + (time.monotonic_ns() - reading[1]) // 1000

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection, outside any transaction.

        Raises:
            DatabaseUnavailable: PostgreSQL cannot be reached, or no connection came free in time.
            Overloaded: the caller's turn did not come in time.
        """
        pool = self._pool or await self._open()
        asker = caller.get()
        if self._turns is not None:
            await self._turns.begin(asker)
        self._in_use_or_waiting += 1
        self._waits += self._in_use_or_waiting > self.options.size
        try:
            connection = await self._acquire(pool)
            try:
                with translated():
                    if self._check is not None:
                        await self._check(connection)
                        self._check = None  # once is enough
                    yield connection
            except errors.DatabaseUnavailable:
                # The pool must not lend a broken connection again.
                with _quietly():
                    connection.terminate()
                raise
            finally:
                with _quietly():
                    if not connection.is_closed() and connection.is_in_transaction():
                        # Whoever was cancelled is cancelled again while this waits (anyio): a task of its own goes on.
                        await asyncio.shield(_roll_back_and_release(pool, connection))
                    else:
                        await pool.release(connection, timeout=2.0)
        finally:
            self._in_use_or_waiting -= 1
            if self._turns is not None:
                self._turns.end(asker)

    async def _acquire(self, pool: asyncpg.Pool[asyncpg.Record]) -> PoolConnectionProxy[asyncpg.Record]:
        with translated():
            try:
                return await pool.acquire(timeout=self.options.acquire_timeout)
            except TimeoutError as error:
                raise errors.DatabaseUnavailable(
                    "no database connection came free in time; retry, or raise postgres.pool_size"
                ) from error

    @asynccontextmanager
    async def read(self, tenant: str, bounds: TransactionBounds | None = None) -> AsyncIterator[Connection]:
        """Lend a connection inside one REPEATABLE READ, READ ONLY transaction of `tenant`.

        Args:
            bounds: instead of the pool's, for work that is long on purpose.
        """
        settings = self._read_bounds if bounds is None else bounds.as_settings()
        async with (
            self.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.execute(sql("session.begin"), tenant, *settings)
            yield connection

    @asynccontextmanager
    async def write(
        self, tenant: str, bounds: TransactionBounds | None = None, *, sharing: Purpose | None = None
    ) -> AsyncIterator[Connection]:
        """Lend a connection inside one READ COMMITTED transaction of `tenant`.

        Args:
            bounds: instead of the pool's, for a statement that is long on purpose.
            sharing: the tenant's lock that the transaction takes, shared, before its first statement.
        """
        settings = self._bounds if bounds is None else bounds.as_settings()
        async with self.connection() as connection, connection.transaction(isolation="read_committed"):
            if sharing is None:
                await connection.execute(sql("session.begin"), tenant, *settings)
            else:
                await connection.execute(sql("session.begin_sharing"), tenant, *settings, lock_key(sharing, tenant))
            yield connection

    @asynccontextmanager
    async def append(self, tenant: str, since: str = "") -> AsyncIterator[Connection]:
        """Lend a connection as `write` does, holding the tenant's append lock shared.

        Args:
            since: when the tenant was made whose scopes the caller knows. PostgreSQL refuses the events with
                `TENANT_REMADE` where the name belongs to a newer tenant by now. Empty where the scopes are looked up
                in this transaction.
        """
        async with self.connection() as connection, connection.transaction(isolation="read_committed"):
            lock = lock_key("append", tenant)
            await connection.execute(sql("session.begin_append"), tenant, *self._bounds, lock, since)
            yield connection

    async def append_alone(self, tenant: str, since: str, events: Sequence[tuple[Any, ...]]) -> list[asyncpg.Record]:
        """Append new events in one round trip and a transaction of their own; return their ids and numbers.

        Args:
            since: as of `append`.
            events: rows of the type `myria.new_event`.

        Raises:
            asyncpg.UnknownPostgresError: `TENANT_REMADE`, or `NOT_NEW`; nothing was stored.
        """
        # One statement: bounds of a statement and of waits between statements have no use.
        _, _, lock, total = self._bounds
        async with self.connection() as connection:
            rows: list[asyncpg.Record] = await connection.fetch(
                sql("events.append_alone"), tenant, since, lock_key("append", tenant), lock, total, events
            )
            return rows

    async def _open(self) -> asyncpg.Pool[asyncpg.Record]:
        """Open the pool at its first use; calls at the same time open one together."""
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
                        connection_class=_Connection,
                        init=self._prepare,
                        reset=_no_session_state,
                    )
        return self._pool

    async def _prepare(self, connection: Any) -> None:
        """Set up a new connection: exact times, and limits after which a lost client or server is given up."""
        connection.keep_alive()
        await _exact_times(connection)
        if self.options.pgbouncer:
            return  # its sessions belong to everybody: each transaction is bounded by itself
        await connection.execute(sql("session.bound_connection"), self._bounds[1], f"{_PEER_SILENT_S}s")
        with suppress(asyncpg.InvalidParameterValueError):  # a platform that cannot tell
            await connection.execute(sql("session.look_after_the_client"))


class _Connection(asyncpg.Connection):
    """A connection that notices a server whose host or network is gone, instead of waiting for its answer for ever."""

    _transport: asyncio.Transport

    def keep_alive(self) -> None:
        """Switch on TCP keep-alive: the kernel probes an idle peer and gives up one that acknowledges nothing."""
        transport_socket = self._transport.get_extra_info("socket")
        if transport_socket is None or transport_socket.family not in (socket.AF_INET, socket.AF_INET6):
            return
        with socket.socket(fileno=os.dup(transport_socket.fileno())) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE.items():
                if (option_number := getattr(socket, option, None)) is not None:
                    sock.setsockopt(socket.IPPROTO_TCP, option_number, value)


_CLOCK_KEPT_NS = 30 * 10**9
"""Nanoseconds for which a measurement of the database's clock is relied on."""

_FEW = 2
"""Up to so many connections, one caller may have all of them: keeping one free would waste half."""

_PEER_SILENT_S = 30
"""Seconds after which a peer that does not acknowledge what was sent, or takes nothing more, is given up."""

_KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": _PEER_SILENT_S * 1000}


async def connect(dsn: str, *, timeout: float = 5.0, pgbouncer: bool = False) -> asyncpg.Connection[asyncpg.Record]:
    """Open one connection of its own (locks that outlive a transaction, migrations)."""
    with translated():
        connection = await asyncpg.connect(
            dsn,
            timeout=timeout,
            statement_cache_size=0 if pgbouncer else 100,
            connection_class=_Connection,
        )
        connection.keep_alive()
        await _exact_times(connection)
        return connection


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of asyncpg and the network inside the block into Myria's errors; Myria's own pass through.

    Raises:
        DatabaseUnavailable: connection refused, lost, shut down, or too many clients.
        DiskFull: the database ran out of room.
        DataCorrupted: a page, an index or a file of the database is damaged.
        DeadlineExceeded: a statement or lock timeout.
        TenantDeleting: rows of a tenant that is being deleted were to be added.
        CredentialInvalid: who administers showed the database no proof that holds.
        ConfigurationError: the connection is refused, or a table or privilege is missing.
    """
    try:
        yield
    except errors.MyriaError:
        raise
    except asyncpg.UnknownPostgresError as error:
        if error.sqlstate == _TENANT_DELETING:
            raise errors.TenantDeleting("the tenant is being deleted; nothing is written for it any more") from error
        if error.sqlstate == _NO_ADMINISTRATOR:
            raise errors.CredentialInvalid(
                "your key or session is no administrator's any more; sign in again"
            ) from error
        raise
    except asyncpg.DiskFullError as error:
        raise errors.DiskFull("the database has no room left; free some and retry") from error
    except _DAMAGED as error:
        raise errors.DataCorrupted(
            f"PostgreSQL cannot read what it stored ({error}): look after the disk, copy the data as it is, and "
            "restore a backup (docs/backup.md); `myria verify` says what else is damaged; the rest is still served"
        ) from error
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
        if isinstance(error.__context__, asyncio.CancelledError):
            # The task was cancelled, and then found its connection closed: its canceller must not see an outage.
            raise error.__context__ from error
        if "clos" in str(error):
            raise errors.DatabaseUnavailable(f"the database connection was lost: {error}") from error
        raise


_TENANT_DELETING = "MYR01"
"""The SQLSTATE of `myria.refuse_while_deleted`, which refuses rows of a tenant that is being deleted."""

TENANT_REMADE = "MYR02"
"""The SQLSTATE with which it refuses events of a tenant whose name belongs to a newer tenant by now."""

NOT_NEW = "MYR03"
"""The SQLSTATE with which `myria.append_alone` refuses events of which one stands already, or was erased."""

_NO_ADMINISTRATOR = "MYR04"
"""The SQLSTATE with which `myria.administrator` refuses a proof."""

_DAMAGED = (
    asyncpg.DataCorruptedError,
    asyncpg.IndexCorruptedError,
    asyncpg.PostgresIOError,
    asyncpg.UndefinedFileError,
)

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


async def _roll_back_and_release(
    pool: asyncpg.Pool[asyncpg.Record], connection: PoolConnectionProxy[asyncpg.Record]
) -> None:
    """Give a connection back whose COMMIT or ROLLBACK was cancelled, as where a browser leaves in the middle of a file.

    asyncpg rolls such a transaction back as well, but reports it as an error of this program.
    """
    with _quietly():
        await connection.execute("ROLLBACK", timeout=2.0)
    with _quietly():
        await pool.release(connection, timeout=2.0)


@contextmanager
def _quietly() -> Iterator[None]:
    """Ignore failures to give back a connection: it is broken already, and the pool replaces it."""
    with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        yield


_POSTGRES_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_POSTGRES_EPOCH_US = to_microseconds(_POSTGRES_EPOCH)
_MICROSECOND = timedelta(microseconds=1)


def _since_postgres_epoch(moment: datetime | int) -> tuple[int]:
    if isinstance(moment, int):
        return (moment - _POSTGRES_EPOCH_US,)
    return ((moment - _POSTGRES_EPOCH) // _MICROSECOND,)


async def _exact_times(connection: Connection) -> None:
    """Make a connection read and write every timestamp exactly.

    asyncpg's own codec writes the first and the last microsecond of the years 0001-9999 as -infinity and infinity, and
    reads those without a zone. This one also accepts integers, microseconds since 1970 UTC, as arguments, so that
    writing many rows needs no datetime objects.
    """
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        format="tuple",
        encoder=_since_postgres_epoch,
        decoder=lambda since: _POSTGRES_EPOCH + timedelta(microseconds=since[0]),
    )


async def _no_session_state(_: Any) -> None:
    """Reset nothing: all settings are LOCAL to transactions, so a returned connection needs no round trip."""
