"""Deleting a tenant: a mark stops every writer, then everything it owned is removed in bounded transactions.

Each step is safe to rerun; a deletion that was killed resumes when it is called again. Once the mark is set, PostgreSQL
refuses every statement that would add rows to the tenant, whoever sends it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from myria.access.journal import Act, write_act
from myria.access.tenants import checked_tenant
from myria.builds.snapshots import Registry
from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import BuildEnded, LogBusy, TenantNotFound

ROWS_AT_ONCE = 5_000
"""Rows that one transaction removes."""

_WRITERS_END_WITHIN_S = 300.0
_LOOK_EVERY_S = 0.1


class TenantDeletion:
    """Deletes one tenant: call `stop`, copy what should be kept, then call `remove`.

    Args:
        database: connects as the control plane.
        registry: of the same database; ends builds.
        tenant: its name.
        actor: who deletes it, for the record.
    """

    def __init__(self, database: Database, registry: Registry, tenant: str, *, actor: str) -> None:
        self._database = database
        self._registry = registry
        self._tenant = checked_tenant(tenant)
        self._actor = actor

    async def stop(self) -> bool:
        """Refuse the tenant's credentials and writes from now on, abort its build; return whether it is still whole.

        When this returns, no transaction that began before can add anything. The tenant is not whole if an earlier
        deletion already began to remove its rows.

        Raises:
            TenantNotFound: there is none of this name.
            LogBusy: a transaction that began before did not end within five minutes; ask again.
        """
        async with self._database.write(self._tenant) as connection:
            row = await connection.fetchrow(sql("access.mark_deleting"), self._tenant)
            if row is None:
                raise TenantNotFound(f"there is no tenant {self._tenant}", tenant=self._tenant)
            await write_act(connection, self._act("tenant.delete"))
        async with self._database.read(self._tenant) as connection:
            build = await connection.fetchrow(sql("builds.unfinished"), self._tenant)
        if build is not None:
            with suppress(BuildEnded):
                await self._registry.abort(
                    self._tenant, build["build_id"], actor=self._actor, reason="the tenant is deleted"
                )
        await self._await_older_transactions()
        return row["removal_began_at"] is None

    async def remove(
        self, *, at_once: int = ROWS_AT_ONCE, on_progress: Callable[[Counter[str]], None] = lambda _: None
    ) -> Counter[str]:
        """Remove everything the tenant owned, and its own row last; return the number of rows removed, by table.

        Args:
            at_once: the most rows that one transaction removes.
            on_progress: called after each transaction with the rows removed so far, by table.

        Raises:
            TenantNotFound: there is none of this name.
            ConfigurationError: `stop` was not called before.
        """
        removed: Counter[str] = Counter()
        async with self._database.read(self._tenant) as connection:
            tables = [row["name"] for row in await connection.fetch(sql("access.tables_of_tenants"))]
        # Again from the first table, until nothing refers to the tenant's row and it can be deleted too.
        while True:
            for table in tables:
                while True:
                    async with self._database.write(self._tenant) as connection:
                        rows: int = await connection.fetchval(
                            sql("access.remove_of_tenant"), self._tenant, table, at_once
                        )
                    removed[table] += rows
                    on_progress(removed)
                    if rows < at_once:
                        break
            async with self._database.write(self._tenant) as connection:
                if await connection.fetchval(sql("access.forget_tenant"), self._tenant):
                    await write_act(connection, self._act("tenant.deleted", **removed))
                    return +removed

    async def remains(self) -> list[str]:
        """Return the names of tables that hold rows of the tenant: none once it is deleted."""
        async with self._database.read(self._tenant) as connection:
            return [row["name"] for row in await connection.fetch(sql("access.remains_of_tenant"), self._tenant)]

    def _act(self, action: str, **details: int) -> Act:
        return Act(tenant=self._tenant, actor=self._actor, action=action, target=self._tenant, details=details)

    async def _await_older_transactions(self) -> None:
        """Wait until all transactions that may not have seen the mark have ended."""
        async with self._database.read(self._tenant) as connection:
            newest = await connection.fetchval(sql("access.newest_transaction"))
        give_up = time.monotonic() + _WRITERS_END_WITHIN_S
        while True:
            async with self._database.read(self._tenant) as connection:
                if await connection.fetchval(sql("access.transactions_ended"), newest):
                    return
            if time.monotonic() > give_up:
                raise LogBusy("a transaction that began before the tenant was stopped has not ended; ask again")
            await asyncio.sleep(_LOOK_EVERY_S)
