"""The beginning of a build: an exact cutoff, a staging snapshot, one task per dirty scope.

Three transactions, each safe to lose: read the high-water mark under the tenant's append lock, and let go of it; make
the staging snapshot under the publish lock; list the tasks. What the log gained between the first and the second is
past the cutoff, and so in the tail.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from importlib import metadata

from myria import errors
from myria.building.finish import end_with_nothing
from myria.building.model import BuildRow, Outcome, Parent, RunningBuild
from myria.building.queue import automatic_builds_pause
from myria.building.versions import planner_number
from myria.ids import new_id
from myria.planning.settings import PLANNER_VERSION
from myria.store.database import Database
from myria.store.locks import lock_key
from myria.store.queries import sql

logger = logging.getLogger(__name__)

_LOCK_WAIT = "200ms"
_LOCK_HELD = "2000ms"
GIVE_UP_AFTER_S = 60.0
"""Seconds after which the wait for the append lock is given up; it is long only if a process that holds it hangs."""

_PAUSE_S = (0.02, 0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWaterMark:
    """The log's end: no event at or below `cutoff` can still arrive; later ones have at least `tail_xid`."""

    cutoff: int
    first_event_seq: int | None
    tail_xid: str


async def start_build(database: Database, tenant: str, build_id: str, fingerprint: str) -> RunningBuild | Outcome:
    """Start a queued build, or join one that runs; return what its workers need, or how it ended.

    Raises:
        BuildNotFound: no such build.
        LogBusy: the append lock was never free in time; the build is still queued.
    """
    while True:
        build = await _build(database, tenant, build_id)
        if build.outcome is not None:
            return build.outcome
        if build.status == "running":
            return await _running(database, tenant, build)
        if build.snapshot_id is None:
            mark = await high_water_mark(database, tenant)
            await _stage(database, tenant, build, mark, fingerprint)
        else:
            await _list_tasks(database, tenant, build_id)


async def high_water_mark(database: Database, tenant: str) -> HighWaterMark:
    """Return the exact end of the log.

    Owning the append lock means that no append of the tenant is in flight; the maximum is read in the next statement,
    whose snapshot sees every one of them. Appends queue behind the lock while it is waited for, so the wait is short
    and repeated. A process that is stopped while it has the lock loses it (`TransactionBounds.idle`).

    Raises:
        LogBusy: not within `GIVE_UP_AFTER_S`; the details name the backends that hold the lock.
    """
    deadline = time.monotonic() + GIVE_UP_AFTER_S
    while True:
        try:
            async with database.write(tenant) as connection:
                await connection.execute(sql("session.hold_briefly"), _LOCK_WAIT, _LOCK_HELD)
                await connection.execute(sql("session.own_append_lock"), lock_key("append", tenant))
                row = await connection.fetchrow(sql("builds.high_water_mark"), tenant)
        except errors.DeadlineExceeded as error:
            if time.monotonic() > deadline:
                raise await _log_busy(database, tenant, GIVE_UP_AFTER_S) from error
            await asyncio.sleep(random.uniform(*_PAUSE_S))  # noqa: S311 - jitter
            continue
        if row is None:
            raise errors.InternalError("the high-water mark gave no row")
        return HighWaterMark(
            cutoff=row["last_event_seq"] or 0, first_event_seq=row["first_event_seq"], tail_xid=row["tail_xid"]
        )


async def _log_busy(database: Database, tenant: str, waited_s: float) -> errors.LogBusy:
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("session.lock_holders"), lock_key("append", tenant))
    pids = [row["pid"] for row in rows]
    holders = f"backends {', '.join(map(str, pids))} hold" if pids else "something held"
    return errors.LogBusy(
        f"appends did not leave the log alone for {waited_s:g} s: {holders} the tenant's append lock; end them with "
        "pg_terminate_backend if they stand still, and build again",
        waited_s=waited_s,
        pids=pids,
    )


async def _stage(database: Database, tenant: str, build: BuildRow, mark: HighWaterMark, fingerprint: str) -> None:
    async with database.write(tenant) as connection:
        await connection.execute(sql("builds.ensure_tenant"), tenant)
        await connection.execute(sql("builds.share_build_lock"), lock_key("build", tenant))
        await connection.execute(sql("session.own_publish_lock"), lock_key("publish", tenant))
        row = await connection.fetchrow(sql("builds.get_for_update"), tenant, build.build_id)
        if row is None or row["status"] != "queued" or row["snapshot_id"] is not None:
            return
        if await connection.fetchval(sql("builds.any_erased_since"), tenant, mark.cutoff):
            # The mark is older than an erasure, which did not see this build: another one is taken.
            return
        by_itself = build.trigger != "manual" or await connection.fetchval(
            sql("builds.is_scheduled"), tenant, build.request_id
        )
        if by_itself and await automatic_builds_pause(connection, tenant):
            # Queued before a rollback, which it would undo.
            await connection.fetchval(
                sql("builds.finish"), tenant, build.build_id, Outcome.ABORTED, '{"reason": "paused"}', "{}", 0, 0
            )
            return
        parent = await connection.fetchrow(sql("snapshots.active"), tenant)
        cutoff = max(mark.cutoff, parent["cutoff"]) if parent is not None else mark.cutoff
        is_full = build.is_full or parent is None or parent["planner_settings"] != fingerprint
        if parent is not None and not is_full and not parent["knows_withdrawals"]:
            is_full = await connection.fetchval(sql("builds.any_withdrawn"), tenant, parent["cutoff"])
        if (
            parent is not None
            and not (is_full or build.is_forced)
            and not await connection.fetchval(sql("builds.any_new"), tenant, parent["cutoff"], cutoff)
        ):
            await connection.execute(
                sql("builds.capture"), tenant, build.build_id, None, parent["snapshot_id"], cutoff, is_full
            )
            await end_with_nothing(connection, tenant, build, "{}", (0, 0))
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
    async with database.write(tenant) as connection:
        await connection.execute(sql("builds.share_build_lock"), lock_key("build", tenant))
        row = await connection.fetchrow(sql("builds.get_for_update"), tenant, build_id)
        if row is None or row["status"] != "queued" or row["snapshot_id"] is None:
            return
        if row["is_full"]:
            await connection.execute(sql("builds.list_all_scopes"), tenant, build_id)
        else:
            parent = await connection.fetchrow(sql("snapshots.get"), tenant, row["parent_snapshot_id"])
            if parent is None:
                raise errors.InternalError("a build's parent snapshot is gone", build_id=build_id)
            await connection.execute(sql("builds.list_dirty_scopes"), tenant, build_id, parent["cutoff"], row["cutoff"])
        await connection.execute(sql("builds.run"), tenant, build_id)


async def _running(database: Database, tenant: str, build: BuildRow) -> RunningBuild | Outcome:
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
    parent = None
    if parent_row is not None:
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
    )


async def _build(database: Database, tenant: str, build_id: str) -> BuildRow:
    async with database.read(tenant) as connection:
        row = await connection.fetchrow(sql("builds.get"), tenant, build_id)
    if row is None:
        raise errors.BuildNotFound(f"there is no build {build_id}", build_id=build_id)
    return BuildRow.from_row(row)
