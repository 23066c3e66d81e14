"""Retention: remove snapshots that are no longer kept, and whatever only they read. The event log is never touched.

Works scope by scope. A root row is dead when no kept snapshot's lineage resolves to it; a node under a dead root is
garbage when no live root of the scope reaches it. The dead and the live trees are walked side by side: equal renderings
have equal levels and time spans, so live trees are opened only where dead nodes lie, and shared subtrees not at all.
Children are deleted before their parents, so an interrupted walk can be repeated. Each deletion owns the build lock for
one short transaction. It first makes sure that no build works on the scope, and that the live roots are still those
that were walked: a build relies on the content-addressed rows that it has found.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from asyncpg import Record

from myria.db.database import ALL_TENANTS, Connection, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.settings import RetentionSettings

logger = logging.getLogger(__name__)

_SCOPES_AT_ONCE = 500
_DELETED_AT_ONCE = 500
_ORPHANS_AT_ONCE = 1000


@dataclass(slots=True, kw_only=True)
class Collected:
    """How many rows a collection removed, by table.

    `skipped`: scopes left for the next time because a build worked on them. `has_subjects`: the tenant has subjects.
    """

    rows: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    has_subjects: bool = False


class _BusyError(Exception):
    """A build works on the scope, or has changed its roots since the walk began."""


async def tenants_with_garbage(database: Database, retention: RetentionSettings) -> list[str]:
    """Return the tenants for which `collect_garbage` would find something."""
    async with database.read(ALL_TENANTS) as connection:
        rows = await connection.fetch(
            sql("collect.tenants"),
            retention.keep_snapshots,
            retention.min_archived_s,
            retention.keep_failed,
            retention.llm_calls_s,
        )
    return [row["tenant_id"] for row in rows]


async def collect_garbage(database: Database, tenant: str, retention: RetentionSettings) -> Collected:
    """Remove what retention does not keep. Safe to stop anywhere and to rerun, while builds and readers work."""
    collected = Collected()
    async with database.write(tenant) as connection:
        await connection.execute(sql("session.own_publish_lock"), lock_key("publish", tenant))
        await connection.fetch(sql("collect.expire"), tenant, retention.keep_snapshots, retention.min_archived_s)
    async with database.read(tenant) as connection:
        expired = await connection.fetch(
            sql("collect.expired"), tenant, retention.keep_failed, retention.min_archived_s
        )
        collected.has_subjects = await connection.fetchval(sql("subjects.any"), tenant, None)
    if expired:
        await _sweep_roots(database, tenant, collected)
    for row in expired:
        if row["was_active"]:
            # Scopes that were skipped may still have root rows under its number.
            if not collected.skipped:
                await _remove_build(database, tenant, row["build_id"], row["snapshot_id"], collected)
        elif row["number"] is None and await _sweep_leftovers(database, tenant, row["build_id"], collected):
            await _remove_build(database, tenant, row["build_id"], row["snapshot_id"], collected)
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("collect.builds_without_snapshot"), tenant, max(retention.keep_failed, 20))
    for row in rows:
        await _remove_build(database, tenant, row["build_id"], None, collected)
    await _forget_calls(database, tenant, retention.llm_calls_s, collected)
    if collected.rows or collected.skipped:
        logger.info(
            "collected garbage",
            extra={
                "action": "garbage_collected",
                "tenant": tenant,
                "rows": dict(collected.rows),
                "skipped": collected.skipped,
            },
        )
    return collected


async def _forget_calls(database: Database, tenant: str, age_s: float, collected: Collected) -> None:
    """Remove the audit rows of old calls to a language model, a batch at a time."""
    while True:
        async with database.write(tenant) as connection:
            command_tag = await connection.execute(sql("llm.prune_calls"), tenant, age_s, _ORPHANS_AT_ONCE)
        removed = int(command_tag.rpartition(" ")[2])  # "DELETE 42"
        if removed:
            collected.rows["llm_calls"] += removed
        if removed < _ORPHANS_AT_ONCE:
            return


async def _sweep_roots(database: Database, tenant: str, collected: Collected) -> None:
    """Remove every dead root row of a tenant, with the nodes and blocks that only it reads."""
    after_scope = 0
    while True:
        async with database.read(tenant) as connection:
            scope_ids = [
                row[0] for row in await connection.fetch(sql("collect.scopes"), tenant, after_scope, _SCOPES_AT_ONCE)
            ]
            rows = await connection.fetch(sql("collect.roots"), tenant, scope_ids)
        if not scope_ids:
            return
        after_scope = scope_ids[-1]
        for scope_id in sorted({row["scope_id"] for row in rows if not row["live"]}):
            try:
                await _sweep_scope(database, tenant, scope_id, collected)
            except _BusyError:
                collected.skipped += 1


async def _sweep_scope(database: Database, tenant: str, scope_id: int, collected: Collected) -> None:
    """Remove the dead root rows of one scope with what only they read; raise `_BusyError` when a build works on it."""
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("collect.roots"), tenant, [scope_id])
    live = _roots(row for row in rows if row["live"])
    sweep = _Sweep(database, tenant, scope_id, live, collected)
    for row in rows:
        if not row["live"]:
            if row["root_rendering_id"] is not None:
                await sweep.remove_under(row["root_rendering_id"])
            async with sweep.guarded() as connection:
                blocks = await connection.fetchval(sql("collect.delete_root"), tenant, scope_id, row["number"])
                if blocks is None:
                    continue
                collected.rows["scope_roots"] += 1
                unlisted = await connection.fetch(sql("collect.unlisted_blocks"), tenant, scope_id, blocks)
                await sweep.remove(
                    connection, "search_blocks", "collect.delete_blocks", [block[0] for block in unlisted]
                )
    if collected.has_subjects:
        await sweep.remove_subjects()


async def _sweep_leftovers(database: Database, tenant: str, build_id: str, collected: Collected) -> bool:
    """Remove what a build without a result wrote and nothing else reads; return whether no scope was busy."""
    after_scope = 0
    while True:
        async with database.read(tenant) as connection:
            tasks = await connection.fetch(sql("collect.tasks_of"), tenant, build_id, after_scope, _SCOPES_AT_ONCE)
        if not tasks:
            return True
        after_scope = tasks[-1]["scope_id"]
        for task in tasks:
            scope_id = task["scope_id"]
            async with database.read(tenant) as connection:
                rows = await connection.fetch(sql("collect.roots"), tenant, [scope_id])
            # Dead root rows are left to the sweep of roots: only that sweep removes what they read.
            live = _roots(rows)
            sweep = _Sweep(database, tenant, scope_id, live, collected)
            try:
                if task["root_rendering_id"] is not None:
                    await sweep.remove_under(task["root_rendering_id"])
                elif task["attempt"]:
                    # The task never ended: no root leads to what it wrote.
                    await sweep.remove_orphans_of(build_id)
                if collected.has_subjects:
                    await sweep.remove_subjects()
            except _BusyError:
                return False


async def _remove_build(
    database: Database, tenant: str, build_id: str, snapshot_id: str | None, collected: Collected
) -> None:
    """Delete the rows of a build, of its requests, and of its snapshot where it has one."""
    async with database.write(tenant) as connection:
        if snapshot_id is not None:
            await connection.execute(sql("collect.delete_snapshot"), tenant, snapshot_id)
            collected.rows["snapshots"] += 1
        await connection.execute(sql("collect.delete_requests"), tenant, build_id)
        await connection.execute(sql("collect.delete_build"), tenant, build_id)
        collected.rows["builds"] += 1


def _roots(rows: Iterable[Any]) -> frozenset[bytes]:
    """Return the root renderings of rows of `collect.roots`, without those of scopes that have lost all events."""
    return frozenset(row["root_rendering_id"] for row in rows if row["root_rendering_id"] is not None)


class _Sweep:
    """Removes the garbage of one scope: what no root in `live` reaches."""

    def __init__(
        self, database: Database, tenant: str, scope_id: int, live: frozenset[bytes], collected: Collected
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._scope_id = scope_id
        self._live = live
        self._collected = collected

    @asynccontextmanager
    async def guarded(self) -> AsyncIterator[Connection]:
        """Begin a transaction for a deletion; it owns the build lock, so that no build starts on the scope meanwhile.

        Raises:
            _BusyError: the scope is no longer as it was when `live` was read.
        """
        async with self._database.write(self._tenant) as connection:
            await connection.execute(sql("builds.own_build_lock"), lock_key("build", self._tenant))
            if await connection.fetchval(sql("collect.being_built"), self._tenant, self._scope_id):
                raise _BusyError
            rows = await connection.fetch(sql("collect.roots"), self._tenant, [self._scope_id])
            if not _roots(row for row in rows if row["live"]) <= self._live:
                raise _BusyError
            yield connection

    async def remove(self, connection: Connection, table: str, statement: str, *arguments: Any) -> None:
        """Run a statement that removes rows of a table, and count them."""
        command_tag = await connection.execute(sql(statement), self._tenant, *arguments)
        if removed := int(command_tag.rpartition(" ")[2]):
            self._collected.rows[table] += removed

    async def remove_under(self, root: bytes) -> None:
        """Delete the garbage at and under a dead root."""
        suspects = await self._outlines([root])
        live = await self._outlines(sorted(self._live))
        batch: list[Record] = []
        async for outline in self._garbage(suspects, live):
            batch.append(outline)
            if len(batch) >= _DELETED_AT_ONCE:
                await self._delete(batch)
                batch = []
        await self._delete(batch)

    async def remove_subjects(self) -> None:
        """Delete the roots, records and nodes of the scope's subjects that no kept snapshot reads."""
        async with self.guarded() as connection:
            await self.remove(connection, "subject_roots", "subjects.collect_roots", self._scope_id)
            await self.remove(connection, "subject_holders", "subjects.collect_holders", self._scope_id)
            await self.remove(connection, "subject_nodes", "subjects.collect_nodes", self._scope_id)

    async def remove_orphans_of(self, build_id: str) -> None:
        """Delete the renderings that a build wrote for this scope and that no root leads to."""
        after_id = b""
        live = await self._outlines(sorted(self._live))
        while True:
            async with self._database.read(self._tenant) as connection:
                rows = await connection.fetch(
                    sql("collect.written_during"), self._tenant, self._scope_id, build_id, after_id, _ORPHANS_AT_ONCE
                )
            if not rows:
                return
            after_id = rows[-1]["rendering_id"]
            await self._delete([outline async for outline, _ in self._dead_among(rows, live)])

    async def _garbage(self, suspects: Sequence[Record], live: Sequence[Record]) -> AsyncIterator[Record]:
        """Yield the suspects that no live tree holds and all garbage under them, children before parents."""
        async for dead, live_nearby in self._dead_among(suspects, live):
            if dead["children"]:
                async for descendant in self._garbage(await self._outlines(dead["children"]), live_nearby):
                    yield descendant
            yield dead

    async def _dead_among(
        self, suspects: Sequence[Record], live: Sequence[Record]
    ) -> AsyncIterator[tuple[Record, list[Record]]]:
        """Yield the suspects that are in no live tree, each with the live nodes that may share parts of it.

        Goes through the suspects' levels from the highest down. At each level, live nodes above it are replaced by
        their children where they overlap a suspect in time. So if a live tree holds a suspect, that node is in
        `live_nearby` when the suspect's level is compared.
        """
        live_nearby = list(live)
        suspects_left = sorted(suspects, key=lambda suspect: (-suspect["level"], suspect["rendering_id"]))
        while suspects_left:
            level = suspects_left[0]["level"]
            while higher := [node for node in live_nearby if node["level"] > level]:
                children = await self._outlines(
                    child
                    for node in higher
                    if any(_overlaps(node, suspect) for suspect in suspects_left)
                    for child in node["children"]
                )
                live_nearby = [node for node in live_nearby if node["level"] <= level] + children
            live_ids = {node["rendering_id"] for node in live_nearby}
            at_level = [suspect for suspect in suspects_left if suspect["level"] == level]
            suspects_left = suspects_left[len(at_level) :]
            for suspect in at_level:
                if suspect["rendering_id"] not in live_ids:
                    yield suspect, [node for node in live_nearby if _overlaps(node, suspect)]

    async def _outlines(self, rendering_ids: Iterable[bytes]) -> list[Record]:
        """Return the outlines of renderings that are still there."""
        unique_ids = sorted(set(rendering_ids))
        if not unique_ids:
            return []
        async with self._database.read(self._tenant) as connection:
            return await connection.fetch(sql("collect.outlines"), self._tenant, unique_ids)

    async def _delete(self, garbage: Sequence[Record]) -> None:
        if not garbage:
            return
        rendering_ids = [outline["rendering_id"] for outline in garbage]
        async with self.guarded() as connection:
            await self.remove(connection, "search_blocks", "collect.delete_blocks", rendering_ids)
            await self.remove(connection, "renderings", "collect.delete_renderings", rendering_ids)
            await self.remove(
                connection, "nodes", "collect.delete_nodes", sorted({outline["node_id"] for outline in garbage})
            )


def _overlaps(first: Record, second: Record) -> bool:
    """Tell whether the spans of two outlines meet in time."""
    return bool(first["first_at"] <= second["last_at"] and second["first_at"] <= first["last_at"])
