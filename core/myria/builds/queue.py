"""The build queue: how a waiting request becomes its tenant's one unfinished build.

A unique index guards this, so any number of processes may ask at any time.
"""

from __future__ import annotations

import logging

import asyncpg

from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.log.ids import new_id

logger = logging.getLogger(__name__)

SCHEDULED = "schedule:"
"""Prefix of the causes that come from a schedule: manual builds, which wait while automatic ones pause."""


async def take_up(database: Database, tenant: str, *, only_resources: bool = False) -> asyncpg.Record | None:
    """Turn the next request into the tenant's build, with all others that the same build satisfies.

    Args:
        database: connects as the control plane.
        tenant: whose queue.
        only_resources: skip requests that have no resource of an outside control plane yet.

    Returns:
        The tenant's unfinished build (`builds.unfinished`), whoever queued it; None when nothing waits.
    """
    async with database.write(tenant) as connection:
        is_paused = await automatic_builds_pause(connection, tenant)
        request = await connection.fetchrow(sql("builds.oldest_waiting"), tenant, is_paused, only_resources)
        if request is None:
            return None
        build_id = await connection.fetchval(
            sql("builds.enqueue"),
            tenant,
            new_id("bld"),
            request["trigger"],
            request["is_full"],
            request["hold"],
            request["reason"],
            request["request_id"],
        )
        if build_id is not None:
            await connection.execute(
                sql("builds.take_up"),
                tenant,
                build_id,
                request["request_id"],
                request["is_full"],
                request["hold"],
            )
            logger.info(
                "queued a build: %s",
                request["trigger"],
                extra={"action": "build_queued", "tenant": tenant, "build_id": build_id},
            )
        return await connection.fetchrow(sql("builds.unfinished"), tenant)


async def automatic_builds_pause(connection: Connection, tenant: str) -> bool:
    """Tell whether only manual builds may start now: after a rollback, or while a held snapshot waits."""
    state = await connection.fetchrow(sql("snapshots.pause_state"), tenant)
    if state is not None and state["auto_paused_at"] is not None:
        return True
    return await connection.fetchrow(sql("snapshots.publishable_held"), tenant) is not None
