"""The end of a build: publish by compare-and-set, hold, or end without a result."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.builds.model import DEGRADED_STANDING, BuildRow, Degraded, Outcome, Resource, RunningBuild
from myria.db.database import Connection, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.settings import BuilderSettings

logger = logging.getLogger(__name__)

_TASKS_AT_ONCE = 5_000
"""Tasks whose root rows one transaction deletes."""


async def publish_or_hold(
    database: Database, build: RunningBuild, settings: BuilderSettings, *, remark: errors.ModelFailed | None = None
) -> Outcome:
    """End a build all of whose tasks are done; return its outcome, also where another worker ended it.

    `remark` is a model's failure in work beside the tasks: stored as the build's error although the build succeeds.
    """
    async with database.read(build.tenant) as connection:
        rows = await connection.fetch(sql("builds.task_counts"), build.tenant, build.build_id)
        tasks = await _count_tasks(connection, build.tenant, build.build_id)
        parent = None
        if build.parent is not None:
            parent = await connection.fetchrow(sql("snapshots.get"), build.tenant, build.parent.snapshot_id)
        totals = standing_after(parent, {row["name"]: row["value"] for row in rows})
        degraded = await degraded_build(connection, build.tenant, build.build_id, totals)
    totals_json = orjson.dumps(totals).decode()
    remark_json = None if remark is None else orjson.dumps(remark.to_json()).decode()
    outcome = await _publish_hold_or_drop(database, build, settings, totals_json, tasks, error=remark_json)
    if outcome is Outcome.SUPERSEDED:
        return await end_without_result(
            database, build.tenant, build.build_id, Outcome.SUPERSEDED, error=superseded(build), settings=settings
        )
    fields = {"action": "build_finished", "tenant": build.tenant, "build_id": build.build_id}
    if degraded is None:
        logger.info("the build ended: %s", outcome, extra=fields)
    else:
        logger.warning("the build ended: %s, %s", outcome, degraded, extra=fields)
    return outcome


def standing_after(parent: asyncpg.Record | None, counts: dict[str, int]) -> dict[str, int]:
    """Return a build's counts, with the change of `DEGRADED_STANDING` by its tasks made the snapshot's total."""
    before = 0 if parent is None else orjson.loads(parent["counts"]).get(DEGRADED_STANDING, 0)
    standing = before + counts.get(DEGRADED_STANDING, 0)
    return {**counts, DEGRADED_STANDING: standing} if standing or DEGRADED_STANDING in counts else counts


async def degraded_build(
    connection: Connection, tenant: str, build_id: str, counts: Mapping[str, int]
) -> Degraded | None:
    """Return how many units a build's counts say were planned without the model, and why; None where there are none."""
    if Degraded.of_build(counts, None) is None:
        return None
    return Degraded.of_build(counts, await connection.fetchval(sql("builds.degraded_reason"), tenant, build_id))


async def end_without_result(
    database: Database,
    tenant: str,
    build_id: str,
    outcome: Outcome,
    *,
    error: errors.MyriaError,
    settings: BuilderSettings,
) -> Outcome:
    """End a build as failed, superseded or aborted, store the reasons, and free what it holds; return its outcome.

    A build that has ended already keeps its outcome. While this transaction owns the build lock, no worker can commit
    a task; afterwards they find that the build has ended.
    """
    async with database.write(tenant) as connection:
        await connection.execute(sql("builds.own_build_lock"), lock_key("build", tenant))
        row = await connection.fetchrow(sql("builds.get_for_update"), tenant, build_id)
        if row is None:
            raise errors.BuildNotFound(f"there is no build {build_id}", build_id=build_id)
        build = BuildRow.from_row(row)
        if build.outcome is not None:
            outcome = build.outcome
        else:
            await connection.fetchval(
                sql("builds.finish"),
                tenant,
                build_id,
                outcome,
                orjson.dumps(error.to_json()).decode(),
                "{}",
                *await _count_tasks(connection, tenant, build_id),
            )
            if build.snapshot_id is not None:
                await connection.fetchval(
                    sql("snapshots.give_up"),
                    tenant,
                    build.snapshot_id,
                    "superseded" if outcome is Outcome.SUPERSEDED else "failed",
                    orjson.dumps(_violations(error)).decode(),
                    "{}",
                )
            if outcome is Outcome.FAILED:
                await connection.execute(sql("builds.ensure_tenant"), tenant)
                await connection.fetchval(
                    sql("builds.note_failure"), tenant, settings.backoff_base_s, settings.backoff_max_s
                )
            logger.warning(
                "the build ended without a snapshot: %s: %s",
                outcome,
                error.message,
                extra={"action": "build_finished", "tenant": tenant, "build_id": build_id},
            )
    await free_numbers(database, tenant)
    return outcome


async def free_numbers(database: Database, tenant: str) -> None:
    """Delete the root rows of snapshots that will never be served, then free their numbers. Safe to rerun."""
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("snapshots.unfreed"), tenant)
    for row in rows:
        after_scope: int | None = 0
        while after_scope is not None:
            async with database.write(tenant) as connection:
                after_scope = await connection.fetchval(
                    sql("snapshots.delete_rows_of"), tenant, row["build_id"], row["number"], after_scope, _TASKS_AT_ONCE
                )
                if after_scope is None:
                    await connection.execute(sql("snapshots.free_number"), tenant, row["snapshot_id"])


async def task_failure(database: Database, build: RunningBuild) -> errors.BuildError:
    """Return the error of a build with failed tasks, with the violations of up to twenty of them.

    A `BuildInterrupted`, which another attempt may not meet, where every failed task may be retried.
    """
    async with database.read(build.tenant) as connection:
        rows = await connection.fetch(sql("builds.failed_tasks"), build.tenant, build.build_id)
    violations: list[dict[str, Any]] = []
    for row in rows:
        error = orjson.loads(row["error"])
        reasons = error.get("details", {}).get("violations") or [{"rule": error["code"], "message": error["message"]}]
        violations.extend({**reason, "scope_id": row["scope_id"]} for reason in reasons)
    message = violations[0]["message"] if violations else "a task failed"
    if rows and all(orjson.loads(row["error"]).get("retryable") for row in rows):
        return errors.BuildInterrupted(message, violations=violations, transient=True)
    return errors.BuildInvalid(message, violations=violations)


def superseded(build: RunningBuild) -> errors.BuildSuperseded:
    """Return the error of a build that ends because its parent is no longer the active snapshot."""
    return errors.BuildSuperseded(
        "the active snapshot moved while the build ran; build again",
        parent_snapshot_id=build.parent.snapshot_id if build.parent is not None else None,
    )


async def _count_tasks(connection: Connection, tenant: str, build_id: str) -> tuple[int, int]:
    """Return how many tasks are done, and how many of those are degraded."""
    row = await connection.fetchrow(sql("builds.task_outcomes"), tenant, build_id)
    return (row["done"], row["degraded"]) if row is not None else (0, 0)


async def _publish_hold_or_drop(
    database: Database,
    build: RunningBuild,
    settings: BuilderSettings,
    counts: str,
    tasks: tuple[int, int],
    *,
    error: str | None,
) -> Outcome:
    """Publish or hold a build's snapshot and end the build, in one transaction under the publish lock.

    Returns the outcome; `SUPERSEDED` says that the parent is no longer active, and leaves the build as it is. `counts`
    and `error` are JSON texts; `tasks` are how many are done, and how many of those degraded.
    """
    tenant = build.tenant
    parent_id = build.parent.snapshot_id if build.parent is not None else None
    async with database.write(tenant, sharing="build") as connection:
        await connection.execute(sql("session.own_publish_lock"), lock_key("publish", tenant))
        row = await connection.fetchrow(sql("builds.get_for_update"), tenant, build.build_id)
        if row is None:
            raise errors.BuildNotFound(f"there is no build {build.build_id}", build_id=build.build_id)
        current = BuildRow.from_row(row)
        if current.outcome is not None:
            return current.outcome
        if await connection.fetchval(sql("builds.any_open_task"), tenant, build.build_id):
            raise errors.InternalError("a build with open tasks cannot end", build_id=build.build_id)
        active = await connection.fetchrow(sql("snapshots.active"), tenant)
        if (active["snapshot_id"] if active is not None else None) != parent_id:
            return Outcome.SUPERSEDED
        if not current.is_forced and await _equals_parent(connection, build):
            await connection.execute(sql("snapshots.withdraw"), tenant, build.snapshot_id)
            await end_with_nothing(connection, tenant, current, counts, tasks)
            return Outcome.NOTHING_TO_DO
        if current.hold or not settings.auto_publish:
            await connection.fetchval(sql("snapshots.complete"), tenant, build.snapshot_id, "held", counts)
            outcome = Outcome.HELD
        else:
            await connection.fetchval(sql("snapshots.complete"), tenant, build.snapshot_id, "active", counts)
            await move_pointer(
                connection, tenant, parent_id, build.snapshot_id, kind="publish", actor="builder", reason=current.reason
            )
            outcome = Outcome.SUCCEEDED
        await connection.fetchval(sql("builds.finish"), tenant, build.build_id, outcome, error, counts, *tasks)
        await connection.execute(sql("builds.note_success"), tenant)
    return outcome


async def _equals_parent(connection: Connection, build: RunningBuild) -> bool:
    """Tell whether a build changed no scope, and its parent was planned with the same settings."""
    if build.parent is None or await connection.fetchval(sql("builds.changed_scopes"), build.tenant, build.build_id):
        return False
    snapshot = await connection.fetchrow(sql("snapshots.get"), build.tenant, build.snapshot_id)
    parent = await connection.fetchrow(sql("snapshots.get"), build.tenant, build.parent.snapshot_id)
    return snapshot is not None and parent is not None and snapshot["planner_settings"] == parent["planner_settings"]


async def end_with_nothing(
    connection: Connection, tenant: str, build: BuildRow, counts: str, tasks: tuple[int, int]
) -> None:
    """End a build without a snapshot because nothing is new, inside a transaction that owns the publish lock.

    Like a publish, this ends the waits after failures. After a manual build it also ends the pause that follows a
    rollback: as nothing is new, automatic builds cannot bring back what the rollback took away.
    """
    await connection.fetchval(sql("builds.finish"), tenant, build.build_id, Outcome.NOTHING_TO_DO, None, counts, *tasks)
    await connection.execute(sql("builds.forget_snapshot"), tenant, build.build_id)
    await connection.execute(sql("builds.note_success"), tenant)
    if build.trigger == "manual":
        await connection.fetchval(sql("snapshots.resume"), tenant)
    logger.info("nothing is new", extra={"action": "build_finished", "tenant": tenant, "build_id": build.build_id})


async def move_pointer(
    connection: Connection,
    tenant: str,
    from_id: str | None,
    to_id: str,
    *,
    kind: str,
    actor: str,
    reason: str | None,
    resource: Resource | None = None,
) -> None:
    """Make another snapshot the active one and record the move; the transaction must own the publish lock. O(1).

    A publish ends the pause that a rollback began. It also ends every other held snapshot: their parents are no longer
    active. A rollback begins the pause.

    `resource` is the outside resource that asked for the move; by default that of the published build.

    Raises:
        StaleParent: the active snapshot is not `from_id`.
    """
    if await connection.fetchval(sql("snapshots.point"), tenant, to_id, from_id) is None:
        raise errors.StaleParent("the active snapshot moved meanwhile; look again", snapshot_id=to_id)
    if from_id is not None:
        await connection.execute(sql("snapshots.archive"), tenant, from_id)
    await connection.execute(
        sql("snapshots.note_move"),
        tenant,
        kind,
        from_id,
        to_id,
        actor,
        reason,
        resource.name if resource is not None else None,
        resource.uid if resource is not None else None,
        resource.manager if resource is not None else None,
    )
    if kind == "rollback":
        await connection.execute(sql("snapshots.pause"), tenant, "rollback")
    else:
        await connection.execute(sql("snapshots.supersede_held"), tenant, to_id)
        await connection.fetchval(sql("snapshots.resume"), tenant)


def _violations(error: errors.MyriaError) -> list[dict[str, Any]]:
    """Return the violations that an error carries; the error itself as the only one where it carries none."""
    violations = error.details.get("violations")
    return list(violations) if violations else [{"rule": error.code, "message": error.message}]
