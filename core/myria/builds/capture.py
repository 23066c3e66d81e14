"""The beginning of a build: an exact cutoff, a staging snapshot, one task per dirty scope.

Three transactions; a process may die after each, and the next one goes on. The first reads the high-water mark under
the tenant's append lock, the second makes the staging snapshot under the publish lock, the third lists the tasks.
Events appended between the first and the second lie past the cutoff, so they are in the tail.
"""

from __future__ import annotations

import logging
from importlib import metadata

import orjson

from myria import errors
from myria.builds.finish import end_with_nothing, standing_after
from myria.builds.model import BuildRow, Outcome, Parent, RunningBuild
from myria.builds.queue import automatic_builds_pause
from myria.builds.versions import needs_subjects, of_trees, planner_number
from myria.db.database import Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.log.high_water import HighWaterMark, high_water_mark
from myria.log.ids import new_id
from myria.versions import PLANNER_VERSION

logger = logging.getLogger(__name__)


async def start_build(database: Database, tenant: str, build_id: str, fingerprint: str) -> RunningBuild | Outcome:
    """Start a queued build, or join a running one; return what its workers need, or its outcome if it has ended.

    Raises:
        BuildNotFound: no such build.
        LogBusy: the append lock was never free in time; the build is still queued.
    """
    while True:
        # Each round does the next step and reads again: other processes may do the same at the same time.
        build = await _build(database, tenant, build_id)
        if build.outcome is not None:
            return build.outcome
        if build.status == "running":
            return await _running_build(database, tenant, build)
        if build.snapshot_id is None:
            mark = await high_water_mark(database, tenant)
            await _make_staging_snapshot(database, tenant, build, mark, fingerprint)
        else:
            await _list_tasks(database, tenant, build_id)


async def _make_staging_snapshot(
    database: Database, tenant: str, build: BuildRow, mark: HighWaterMark, fingerprint: str
) -> None:
    """Make a queued build's staging snapshot with its cutoff, or end the build where it has nothing to do.

    Does nothing where another process was faster, or where an erasure came after the mark: the caller looks again.
    """
    async with database.write(tenant) as connection:
        await connection.execute(sql("builds.ensure_tenant"), tenant)
        await connection.execute(sql("builds.share_build_lock"), lock_key("build", tenant))
        await connection.execute(sql("session.own_publish_lock"), lock_key("publish", tenant))
        row = await connection.fetchrow(sql("builds.get_for_update"), tenant, build.build_id)
        if row is None or row["status"] != "queued" or row["snapshot_id"] is not None:
            return
        if await connection.fetchval(sql("builds.any_erased_since"), tenant, mark.cutoff):
            # The mark is older than an erasure, which did not see this build: the caller takes another mark.
            return
        is_automatic = build.trigger != "manual" or await connection.fetchval(
            sql("builds.is_scheduled"), tenant, build.request_id
        )
        if is_automatic and await automatic_builds_pause(connection, tenant):
            # It was queued before a rollback, and would undo that.
            paused = errors.BuildAborted(
                "automatic builds pause, since a rollback or for a held snapshot", reason="paused"
            )
            document = orjson.dumps(paused.to_json()).decode()
            await connection.fetchval(
                sql("builds.finish"), tenant, build.build_id, Outcome.ABORTED, document, "{}", 0, 0
            )
            return
        parent = await connection.fetchrow(sql("snapshots.active"), tenant)
        cutoff = max(mark.cutoff, parent["cutoff"]) if parent is not None else mark.cutoff
        is_full = build.is_full or parent is None or of_trees(parent["planner_settings"]) != of_trees(fingerprint)
        if (
            parent is not None
            and not (is_full or build.is_forced or needs_subjects(fingerprint, parent["planner_settings"]))
            and not await connection.fetchval(sql("builds.any_new"), tenant, parent["cutoff"], cutoff)
        ):
            await connection.execute(
                sql("builds.capture"), tenant, build.build_id, None, parent["snapshot_id"], cutoff, is_full
            )
            counts = orjson.dumps(standing_after(parent, {})).decode()
            await end_with_nothing(connection, tenant, build, counts, (0, 0))
            return
        snapshot_id = new_id("snap")
        number = await connection.fetchval(
            sql("snapshots.stage"),
            tenant,
            snapshot_id,
            parent["snapshot_id"] if parent is not None else None,
            build.build_id,
            cutoff,
            mark.first_event_seq,
            mark.tail_xid,
            planner_number(),
            fingerprint,
            metadata.version("myria"),
            f"extractive ({PLANNER_VERSION})",
            f"calendar ({PLANNER_VERSION})",
        )
        await connection.execute(
            sql("builds.capture"),
            tenant,
            build.build_id,
            snapshot_id,
            parent["snapshot_id"] if parent is not None else None,
            cutoff,
            is_full,
        )
        await connection.execute(sql("builds.note_attempt"), tenant, cutoff)
    logger.info(
        "captured cutoff %d",
        cutoff,
        extra={"action": "build_captured", "tenant": tenant, "build_id": build.build_id, "number": number},
    )


async def _list_tasks(database: Database, tenant: str, build_id: str) -> None:
    """List a build's tasks, one per scope to compile, and set it running; do nothing where another process did."""
    async with database.write(tenant, sharing="build") as connection:
        row = await connection.fetchrow(sql("builds.get_for_update"), tenant, build_id)
        if row is None or row["status"] != "queued" or row["snapshot_id"] is None:
            return
        await connection.execute(sql("builds.drop_parts_of_others"), tenant, build_id)
        if row["is_full"]:
            await connection.execute(sql("builds.list_all_scopes"), tenant, build_id)
        else:
            parent = await connection.fetchrow(sql("snapshots.get"), tenant, row["parent_snapshot_id"])
            if parent is None:
                raise errors.InternalError("a build's parent snapshot is gone", build_id=build_id)
            await connection.execute(sql("builds.list_dirty_scopes"), tenant, build_id, parent["cutoff"], row["cutoff"])
            staged = await connection.fetchrow(sql("snapshots.get"), tenant, row["snapshot_id"])
            if staged is None:
                raise errors.InternalError("a build's own snapshot is gone", build_id=build_id)
            if needs_subjects(staged["planner_settings"], parent["planner_settings"]):
                await connection.execute(sql("builds.list_scopes_with_trees"), tenant, build_id, parent["lineage"])
        await connection.execute(sql("builds.run"), tenant, build_id)


async def _running_build(database: Database, tenant: str, build: BuildRow) -> RunningBuild | Outcome:
    """Return what the workers of a running build need, or its outcome if it has ended meanwhile."""
    async with database.read(tenant) as connection:
        snapshot = await connection.fetchrow(sql("snapshots.get"), tenant, build.snapshot_id)
        parent_row = None
        if build.parent_snapshot_id is not None:
            parent_row = await connection.fetchrow(sql("snapshots.get"), tenant, build.parent_snapshot_id)
    if snapshot is None or snapshot["number"] is None or build.snapshot_id is None or build.cutoff is None:
        outcome = (await _build(database, tenant, build.build_id)).outcome
        if outcome is None:
            raise errors.InternalError("a running build has no snapshot", build_id=build.build_id)
        return outcome  # it ended between the two reads
    parent, subjects_since = None, 0
    if parent_row is not None:
        if needs_subjects(snapshot["planner_settings"], parent_row["planner_settings"]):
            # Every number that the parent can reach is lower, so none of its subjects are taken over.
            subjects_since = parent_row["number"] + 1
        parent = Parent(
            snapshot_id=parent_row["snapshot_id"], cutoff=parent_row["cutoff"], tail_xid=parent_row["tail_xid"]
        )
    return RunningBuild(
        tenant=tenant,
        build_id=build.build_id,
        snapshot_id=build.snapshot_id,
        number=snapshot["number"],
        cutoff=build.cutoff,
        is_full=build.is_full,
        parent=parent,
        subjects_since=subjects_since,
    )


async def _build(database: Database, tenant: str, build_id: str) -> BuildRow:
    async with database.read(tenant) as connection:
        row = await connection.fetchrow(sql("builds.get"), tenant, build_id)
    if row is None:
        raise errors.BuildNotFound(f"there is no build {build_id}", build_id=build_id)
    return BuildRow.from_row(row)
