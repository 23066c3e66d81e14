"""How each plane connects, from the settings: sizes, waits, and what PostgreSQL allows a transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from myria.db.database import PoolOptions, TransactionBounds

if TYPE_CHECKING:
    from myria.settings import Settings

_BUILD_STATEMENT_S = 600.0
_BUILD_TRANSACTION_S = 3600.0


def pool_options(settings: Settings, *, size: int | None = None, at_once: int | None = None) -> PoolOptions:
    """Return how the serving plane, the control plane and the command line connect.

    Args:
        size: connections, instead of postgres.pool_size.
        at_once: see `PoolOptions`.
    """
    postgres = settings.postgres
    return PoolOptions(
        size=postgres.pool_size if size is None else size,
        connect_timeout=postgres.connect_timeout_s,
        acquire_timeout=min(postgres.statement_timeout_s, settings.mcp.request_deadline_s),
        bounds=TransactionBounds(
            statement=postgres.statement_timeout_s,
            idle=postgres.idle_timeout_s,
            lock=postgres.lock_timeout_s,
            total=4 * postgres.statement_timeout_s + postgres.idle_timeout_s,
        ),
        pgbouncer=postgres.pgbouncer,
        at_once=at_once,
    )


def build_options(settings: Settings, *, size: int) -> PoolOptions:
    """Return how a builder connects: longer statements, and a transaction that ends with its worker's lease.

    A builder that stands still (a node cut off, a process stopped) loses its transaction as it loses its leases: others
    write the same rows or want its locks, and would wait for it.
    """
    options = pool_options(settings, size=size)
    bounds = replace(
        options.bounds,
        statement=_BUILD_STATEMENT_S,
        idle=settings.builder.task_lease_s,
        lock=max(options.bounds.lock, 2 * settings.builder.task_lease_s),
        total=_BUILD_TRANSACTION_S,
    )
    return replace(options, bounds=bounds)
