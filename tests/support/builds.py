"""Builds for tests: queue one, run it as a builder would, and look at the whole of what it made."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from myria.builds import Outcome
from myria.builds.events import EventRows
from myria.builds.run import run_build
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.ids import new_id
from myria.settings import Settings
from myria.topics.scope_plan import plan_scope
from tests.support.events import TENANT
from tests.support.postgres import Database as Dsns

DEFAULTS = Settings()


def settings(**sections: Mapping[str, Any]) -> Settings:
    """Return the default settings with some fields changed: `settings(builder={"auto_publish": False})`."""
    changed = {name: dataclasses.replace(getattr(DEFAULTS, name), **fields) for name, fields in sections.items()}
    return dataclasses.replace(DEFAULTS, **changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """How a build ended, and what its row says."""

    outcome: Outcome
    build_id: str
    snapshot_id: str | None
    counts: dict[str, int]
    error: dict[str, Any] | None


async def queue(dsns: Dsns, *, tenant: str = TENANT, trigger: str = "manual", **flags: bool) -> str:
    """Queue a build; return its id. Fails when one is unfinished."""
    async with Database(dsns.operator_dsn) as database, database.write(tenant) as connection:
        await connection.execute(sql("builds.ensure_tenant"), tenant)
        build_id: str | None = await connection.fetchval(
            sql("builds.enqueue"),
            tenant,
            new_id("bld"),
            trigger,
            flags.get("full", False),
            flags.get("hold", False),
            None,
            None,
        )
        if flags.get("force"):
            await connection.execute("UPDATE myria.builds SET is_forced = true WHERE build_id = $1", build_id)
    assert build_id is not None, "another build is unfinished"
    return build_id


async def build(
    dsns: Dsns, *, tenant: str = TENANT, configured: Settings = DEFAULTS, trigger: str = "manual", **flags: bool
) -> Built:
    """Queue a build and run it to its end."""
    build_id = await queue(dsns, tenant=tenant, trigger=trigger, **flags)
    outcome = await run_build(configured, dsns.builder_dsn, tenant, build_id)
    return await ended(dsns, build_id, outcome, tenant=tenant)


async def ended(dsns: Dsns, build_id: str, outcome: Outcome, *, tenant: str = TENANT) -> Built:
    """Return what the row of an ended build says."""
    from myria.builds import BuildRow

    async with Database(dsns.dsn) as database, database.read(tenant) as connection:
        record = await connection.fetchrow(sql("builds.get"), tenant, build_id)
    assert record is not None
    row = BuildRow.from_row(record)
    assert row.status == outcome
    return Built(outcome=outcome, build_id=build_id, snapshot_id=row.snapshot_id, counts=row.counts, error=row.error)


Trees = dict[tuple[str, ...], str]


async def roots(dsns: Dsns, snapshot_id: str | None = None, *, tenant: str = TENANT) -> Trees:
    """Return the root rendering of each scope, by participants, in a snapshot (the active one by default)."""
    async with Database(dsns.dsn) as database, database.read(tenant) as connection:
        if snapshot_id is None:
            snapshot_id = await connection.fetchval("SELECT snapshot_id FROM myria.active_snapshots")
        found: Trees = {}
        for scope in await connection.fetch("SELECT scope_id, participants FROM myria.scopes"):
            row = await connection.fetchrow(sql("trees.scope_root"), tenant, scope["scope_id"], snapshot_id)
            if row is not None and row["root_rendering_id"] is not None:
                found[tuple(scope["participants"])] = row["root_rendering_id"].hex()
    return found


async def contents(dsns: Dsns, snapshot_id: str, *, tenant: str = TENANT) -> dict[tuple[str, ...], Any]:
    """Return everything a reader of a snapshot can reach: each scope's renderings, leaves, blocks."""
    async with Database(dsns.dsn) as database, database.read(tenant) as connection:
        found: dict[tuple[str, ...], Any] = {}
        for scope in await connection.fetch("SELECT scope_id, participants FROM myria.scopes"):
            row = await connection.fetchrow(sql("trees.scope_root"), tenant, scope["scope_id"], snapshot_id)
            if row is None:
                continue
            under = await connection.fetch(sql("trees.under"), tenant, row["root_rendering_id"])
            blocks = await connection.fetch(
                "SELECT rendering_id, block FROM myria.search_blocks WHERE rendering_id = ANY ($1::bytea[])",
                row["blocks"],
            )
            assert len(blocks) == len(set(row["blocks"])), "a search block is missing"
            found[tuple(scope["participants"])] = (
                row["root_rendering_id"],
                sorted((one["rendering_id"], one["parent_id"] or b"", tuple(one["event_seqs"] or ())) for one in under),
                sorted((one["rendering_id"], hashlib.sha256(one["block"]).digest()) for one in blocks),
                tuple(row["blocks"]),
            )
    return found


_SCOPE_EVENTS = """
    SELECT NOT myria.is_withdrawn($1, e.event_seq, $3) AS is_there,
           e.event_seq, e.event_id, (extract(epoch FROM e.occurred_at) * 1000000)::bigint AS at, e.utc_offset,
           e.channel, e.dedupe_key, e.type, e.context_id, e.payload::text AS payload, e.topic_hints::text AS topic_hints
    FROM myria.events e
    WHERE e.tenant_id = $1 AND e.scope_id = $2 AND e.event_seq <= $3 AND NOT e.internal
    ORDER BY e.occurred_at, e.event_seq
"""
"""A scope's events as the planner takes them. Withdrawn ones keep their place among others of their microsecond."""


async def planned(dsns: Dsns, cutoff: int, *, tenant: str = TENANT, configured: Settings = DEFAULTS) -> Trees:
    """Return the root rendering each scope must have at a cutoff: planned in memory from the log alone."""
    async with Database(dsns.dsn) as database, database.read(tenant) as connection:
        found: Trees = {}
        for scope in await connection.fetch("SELECT scope_id, participants FROM myria.scopes"):
            rows = await connection.fetch(_SCOPE_EVENTS, tenant, scope["scope_id"], cutoff)
            participants = tuple(scope["participants"])
            rows_of = EventRows(participants)
            events = [event for row in rows if (event := rows_of.event(row)) is not None]
            root, _ = await plan_scope(participants, events, configured.planner)
            if root is not None:
                found[participants] = root.rendering_id.hex()
    return found


async def value(dsns: Dsns, query: str, *arguments: Any, tenant: str = TENANT) -> Any:
    """Return one value of the database, as the owner."""
    async with Database(dsns.dsn) as database, database.read(tenant) as connection:
        return await connection.fetchval(query, *arguments)


async def rows(dsns: Dsns, query: str, *arguments: Any, tenant: str = TENANT) -> list[dict[str, Any]]:
    """Return rows of the database, as the owner."""
    async with Database(dsns.dsn) as database, database.read(tenant) as connection:
        return [dict(row) for row in await connection.fetch(query, *arguments)]
