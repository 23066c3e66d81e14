"""The snapshot registry: which snapshots there are, which one is served, and what builds are doing.

The pointer moves by compare-and-set under the tenant's publish lock; publishing and rolling back cost O(1), whatever
the size of the log. A rollback pauses automatic builds, or the next one would bring back what was just taken away.
Answers are JSON-ready.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from datetime import datetime
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.builds.due import Trigger, resting_until
from myria.builds.finish import degraded_build, free_numbers, move_pointer
from myria.builds.history import BuildHistory, build_summary, waiting_requests
from myria.builds.model import BuildRow, Resource
from myria.db.clock import rfc3339_or_none, to_datetime, to_microseconds
from myria.db.database import Connection, Database
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.index.embeddings.choosing import chosen
from myria.log.ids import new_id
from myria.search import cursors
from myria.settings import Settings

logger = logging.getLogger(__name__)

Json = dict[str, Any]

MOST_NEWER = 1_000
"""Events up to which those that a snapshot lacks are counted: after a rollback there may be very many."""

_RESTORABLE = ("active", "archived")
"""Statuses of a snapshot to which a rollback may lead."""

_GIVES_UP = ("queued", "running", "held")
"""Statuses of a build that can be given up."""

_WAITING_FIELDS = ("request_id", "trigger", "full", "created_at", "waits_for")
"""What every reader of a tenant may see of a request that waits."""

_SNAPSHOT_COLUMNS = (
    *("snapshot_id", "parent_snapshot_id", "status", "number", "build_id", "first_event_seq", "cutoff"),
    *("builder_version", "planner_version", "summarizer_version", "merge_policy_version"),
)
"""Columns of a snapshot's row that answers hold unchanged."""


class Registry(BuildHistory):
    """Answers questions about the snapshots and builds of every tenant of one database, and moves their pointers."""

    def __init__(self, database: Database, settings: Settings) -> None:
        super().__init__(database)
        self._settings = settings

    async def active_snapshot(self, tenant: str) -> Json:
        """Return `{"snapshot": ...}`: the active snapshot's metadata, or null before the first publish."""
        async with self._database.read(tenant) as connection:
            active = await connection.fetchrow(sql("snapshots.active"), tenant)
            row = None
            if active is not None:
                row = await connection.fetchrow(sql("snapshots.get"), tenant, active["snapshot_id"])
        return {"snapshot": _snapshot(row) if row is not None else None}

    async def freshness(self, tenant: str, snapshot_id: str | None) -> Json | None:
        """Return which snapshot it is, and how many events it lacks; None where it is kept no longer, or is none.

        Returns:
            `number`, `build_id`, `created_at`, and `newer_events`, at most `MOST_NEWER`.
        """
        if snapshot_id is None:
            return None
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("snapshots.freshness"), tenant, snapshot_id, MOST_NEWER)
        if row is None:
            return None
        return {**dict(row), "created_at": rfc3339_or_none(row["created_at"])}

    async def snapshot(self, tenant: str, snapshot_id: str) -> Json:
        """Return one snapshot's metadata.

        Raises:
            SnapshotNotFound: no such snapshot is kept.
        """
        async with self._database.read(tenant) as connection:
            return _snapshot(await _kept_snapshot(connection, tenant, snapshot_id))

    async def list_snapshots(self, tenant: str, *, limit: int, cursor: str | None = None) -> Json:
        """Return `{"snapshots": [...], "next_cursor": ...}`, newest first, failed ones with their reasons.

        Raises:
            CursorInvalid, CursorExpired: ask again without the cursor.
        """
        digest = cursors.query_digest(tenant, "list_snapshots", {"limit": limit})
        async with self._database.read(tenant) as connection:
            secret = await connection.fetchval(sql("retrieval.cursor_secret"))
            after: tuple[datetime | None, str | None] = (None, None)
            lifetime_s = self._settings.retrieval.cursor_lifetime_s
            period_end = cursors.period_end(lifetime_s)
            if cursor is not None:
                last_page = cursors.decode(cursor, digest=digest, secret=secret, lifetime=lifetime_s)
                after = (to_datetime(last_page.after[0]), last_page.snapshot_id)
                period_end = last_page.period_end
            # One row more than asked for tells whether there is a next page.
            rows = await connection.fetch(sql("snapshots.page"), tenant, *after, limit + 1)
        snapshots = _within(self._settings.retrieval.answer_bytes, [_snapshot(row) for row in rows[:limit]])
        next_cursor = None
        if len(rows) > len(snapshots):
            last_row = rows[len(snapshots) - 1]
            next_cursor = cursors.encode(
                cursors.Cursor(
                    snapshot_id=last_row["snapshot_id"],
                    visible="",
                    after=(to_microseconds(last_row["created_at"]),),
                    period_end=period_end,
                ),
                digest=digest,
                secret=secret,
            )
        return {"snapshots": snapshots, "next_cursor": next_cursor}

    async def status(self, tenant: str) -> Json:
        """Return how fresh a tenant's memory is, what its builds are doing, and what triggers the next one.

        `tail_events` counts the events that a build would take; `paused_reason` is `rollback` or `held_snapshot`.
        """
        async with self._database.read(tenant) as connection:
            active = await connection.fetchrow(sql("snapshots.active"), tenant)
            cutoff = active["cutoff"] if active is not None else 0
            tail_events = await connection.fetchval(sql("triggers.count_tail"), tenant, cutoff)
            newest_build = await connection.fetchrow(sql("builds.newest"), tenant)
            requested = await connection.fetchval(sql("triggers.count_waiting"), tenant)
            waiting = await waiting_requests(connection, tenant) if requested else []
            state = await connection.fetchrow(sql("snapshots.pause_state"), tenant)
            held = await connection.fetchrow(sql("snapshots.publishable_held"), tenant)
            last_event = await connection.fetchrow(sql("triggers.last_tail_event"), tenant, cutoff)
            build = BuildRow.from_row(newest_build) if newest_build is not None else None
            last_build = await build_summary(connection, tenant, build) if build is not None else None
            if last_build is not None and last_build["status"] == "aborted":
                # Every reader of the tenant gets the status, and who gave the build up, and why, may name anybody.
                last_build["error"] = None
            degraded = None
            if active is not None:
                counts = orjson.loads(active["counts"])
                degraded = await degraded_build(connection, tenant, active["build_id"], counts)
        paused_reason, paused_at = None, None
        if state is not None and state["auto_paused_at"] is not None:
            paused_reason, paused_at = state["auto_paused_reason"], state["auto_paused_at"]
        elif held is not None:
            paused_reason, paused_at = "held_snapshot", held["completed_at"]
        builder = self._settings.builder
        rests = resting_until(build, builder)
        return {
            "active_snapshot_id": active["snapshot_id"] if active is not None else None,
            "degraded": None if degraded is None else asdict(degraded),
            "tail_events": tail_events,
            "building": build is not None and build.status == "running",
            "queued": requested + int(build is not None and build.status == "queued"),
            # Without names and reasons, as `last_build`.
            "waiting": [{name: one[name] for name in _WAITING_FIELDS} for one in waiting],
            "paused": paused_reason is not None,
            "paused_reason": paused_reason,
            "paused_since": rfc3339_or_none(paused_at),
            "held_snapshot_id": held["snapshot_id"] if held is not None else None,
            "last_build": last_build,
            "triggers": {
                "manual": {"enabled": builder.allow_manual_trigger},
                "inactivity": {
                    "enabled": builder.inactivity_timeout_s > 0,
                    "timeout_s": builder.inactivity_timeout_s,
                    "last_event_at": rfc3339_or_none(last_event["ingested_at"]) if last_event is not None else None,
                },
                "tail_threshold": {
                    "enabled": builder.max_unindexed_events > 0,
                    "max_unindexed_events": builder.max_unindexed_events,
                },
            },
            "waits": orjson.loads(state["waits"]) if state is not None else {},
            "consecutive_failures": state["consecutive_failures"] if state is not None else 0,
            "retry_at": rfc3339_or_none(state["retry_at"]) if state is not None and state["backing_off"] else None,
            "resting_until": rfc3339_or_none(rests) if state is not None and rests and rests > state["now"] else None,
            "embeddings": chosen(self._settings).why,
        }

    async def request_build(
        self,
        tenant: str,
        *,
        full: bool = False,
        hold: bool = False,
        force: bool = False,
        reason: str | None = None,
        actor: str = "admin",
        trigger: Trigger = "manual",
        cause_key: str | None = None,
    ) -> Json:
        """Request a build; return `{"request_id", "build_id"}`, with a null `build_id` until a build takes it up.

        Args:
            tenant: whose log to compile.
            full: compile every scope anew from all its events.
            hold: keep the result until it is published by hand.
            force: make a snapshot even if nothing is new; otherwise such a build ends as `nothing_to_do`.
            reason: shown with the build.
            actor: who asks, for the records.
            trigger: the kind of cause.
            cause_key: two requests with the same key are one; by default every request has a key of its own.

        Raises:
            ManualTriggerDisabled: builder.allow_manual_trigger is false.
        """
        if trigger == "manual" and not self._settings.builder.allow_manual_trigger:
            raise errors.ManualTriggerDisabled("manual builds are switched off by builder.allow_manual_trigger")
        request_id = new_id("req")
        async with self._database.write(tenant) as connection:
            await connection.execute(sql("builds.ensure_tenant"), tenant)
            row = await connection.fetchrow(
                sql("builds.request"),
                tenant,
                request_id,
                cause_key or f"manual:{request_id}",
                trigger,
                full,
                hold,
                reason,
                actor,
                force,
            )
            if row is None:
                row = await connection.fetchrow(sql("builds.request_of_cause"), tenant, cause_key)
        if row is None:
            raise errors.InternalError("a build request was neither made nor found", cause_key=cause_key)
        return {"request_id": row["request_id"], "build_id": row["build_id"]}

    async def publish(
        self,
        tenant: str,
        snapshot_id: str,
        *,
        actor: str = "admin",
        reason: str | None = None,
        resource: Resource | None = None,
    ) -> Json:
        """Make a held snapshot the active one; return `{"snapshot_id", "previous_snapshot_id"}`.

        Publishing ends the pause of automatic builds; publishing the active snapshot again changes nothing. A
        `resource` that ended because the pointer had moved cannot publish, even after the pointer has moved back.

        Raises:
            SnapshotNotFound: no such snapshot is kept.
            SnapshotNotHeld: it does not wait to be published.
            StaleParent: another snapshot became active since it was built.
        """
        async with self._database.write(tenant) as connection:
            await connection.execute(sql("session.own_publish_lock"), lock_key("publish", tenant))
            row = await _kept_snapshot(connection, tenant, snapshot_id)
            active = await connection.fetchrow(sql("snapshots.active"), tenant)
            active_id = active["snapshot_id"] if active is not None else None
            if active is not None and active_id == snapshot_id:
                return {"snapshot_id": snapshot_id, "previous_snapshot_id": active["parent_snapshot_id"]}
            build = await connection.fetchrow(sql("builds.get"), tenant, row["build_id"])
            is_superseded = row["archived_at"] is not None and build is not None and build["status"] == "superseded"
            if row["status"] != "held" and not is_superseded:
                way_back = "; a rollback to it makes it the active one again" if row["status"] == "archived" else ""
                raise errors.SnapshotNotHeld(
                    f"snapshot {snapshot_id} is {row['status']}, and only a held one can be published{way_back}",
                    snapshot_id=snapshot_id,
                    status=row["status"],
                )
            is_over = resource is not None and await connection.fetchval(
                sql("snapshots.is_given_up"), tenant, resource.uid
            )
            if row["parent_snapshot_id"] != active_id or is_over or is_superseded:
                raise errors.StaleParent(
                    f"snapshot {snapshot_id} was built on {row['parent_snapshot_id'] or 'an empty memory'}, and "
                    f"{active_id or 'none'} is active now; build again",
                    snapshot_id=snapshot_id,
                    parent_snapshot_id=row["parent_snapshot_id"],
                    active_snapshot_id=active_id,
                )
            await connection.execute(sql("snapshots.activate"), tenant, snapshot_id)
            await connection.execute(sql("builds.end_hold"), tenant, row["build_id"], "succeeded", None)
            await move_pointer(
                connection,
                tenant,
                active_id,
                snapshot_id,
                kind="publish",
                actor=actor,
                reason=reason,
                resource=resource,
            )
        return {"snapshot_id": snapshot_id, "previous_snapshot_id": active_id}

    async def rollback(
        self,
        tenant: str,
        to: str | None = None,
        *,
        actor: str = "admin",
        reason: str | None = None,
        resource: Resource | None = None,
    ) -> Json:
        """Move the pointer back and pause automatic builds; return `{"snapshot_id", "previous_snapshot_id"}`.

        Without `to`, the pointer moves to the newest kept snapshot before the active one that differs from it. Events
        that only the abandoned snapshot covered are in the tail again at once. A build under way finds that its parent
        is no longer active and ends superseded. One `resource` moves the pointer once, however often it asks, and never
        after it ended otherwise.

        Raises:
            NoPreviousSnapshot: nothing was active before.
            SnapshotNotFound: no such snapshot is kept.
            SnapshotNotRestorable: it never was active.
        """
        async with self._database.write(tenant) as connection:
            await connection.execute(sql("session.own_publish_lock"), lock_key("publish", tenant))
            if resource is not None:
                earlier_move = await connection.fetchrow(sql("snapshots.move_of_resource"), tenant, resource.uid)
                if earlier_move is not None:
                    return {
                        "snapshot_id": earlier_move["to_snapshot_id"],
                        "previous_snapshot_id": earlier_move["from_snapshot_id"],
                    }
            active = await connection.fetchrow(sql("snapshots.active"), tenant)
            if active is None:
                raise errors.NoPreviousSnapshot("no snapshot is active yet, so there is none to go back to")
            if resource is not None and await connection.fetchval(sql("snapshots.is_given_up"), tenant, resource.uid):
                return {"snapshot_id": active["snapshot_id"], "previous_snapshot_id": active["parent_snapshot_id"]}
            target_id = to or await connection.fetchval(sql("snapshots.previous"), tenant, active["snapshot_id"])
            if target_id is None:
                raise errors.NoPreviousSnapshot(
                    "no snapshot before the active one is kept that differs from it; there is none to go back to",
                    snapshot_id=active["snapshot_id"],
                )
            row = await _kept_snapshot(connection, tenant, target_id)
            if row["status"] not in _RESTORABLE:
                raise errors.SnapshotNotRestorable(
                    f"snapshot {target_id} is {row['status']}, and only one that was active can be restored",
                    snapshot_id=target_id,
                    status=row["status"],
                )
            if target_id == active["snapshot_id"]:
                return {"snapshot_id": target_id, "previous_snapshot_id": target_id}
            await connection.execute(sql("snapshots.activate"), tenant, target_id)
            await move_pointer(
                connection,
                tenant,
                active["snapshot_id"],
                target_id,
                kind="rollback",
                actor=actor,
                reason=reason,
                resource=resource,
            )
        return {"snapshot_id": target_id, "previous_snapshot_id": active["snapshot_id"]}

    async def resume(self, tenant: str, *, actor: str = "admin", reason: str | None = None) -> Json:
        """Let automatic builds start again after a rollback; return `{"resumed": whether a rollback had paused them}`.

        Where a held snapshot pauses them, they stay paused until it is published or given up. `actor` and `reason` go
        to the log.
        """
        async with self._database.write(tenant) as connection:
            resumed = await connection.fetchval(sql("snapshots.resume"), tenant)
        if resumed is not None:
            logger.info(
                "automatic builds go on: %s",
                reason or "no reason given",
                extra={"action": "builds_resumed", "tenant": tenant, "actor": actor},
            )
        return {"resumed": resumed is not None}

    async def discard(self, tenant: str, snapshot_id: str, *, actor: str = "admin", reason: str | None = None) -> Json:
        """Give up a held snapshot for good; return `{"snapshot_id", "build_id"}`.

        Ends the pause of automatic builds that the snapshot caused. Its events wait for the next new ones, or for a
        manual build. `actor` and `reason` are kept as the error of its build. Giving up again changes nothing.

        Raises:
            SnapshotNotFound: no such snapshot is kept.
            SnapshotNotHeld: it does not wait for a decision.
        """
        async with self._database.write(tenant) as connection:
            await connection.execute(sql("session.own_publish_lock"), lock_key("publish", tenant))
            row = await _kept_snapshot(connection, tenant, snapshot_id)
            build = await connection.fetchrow(sql("builds.get"), tenant, row["build_id"])
            is_given_up = row["archived_at"] is not None and build is not None and build["status"] == "aborted"
            if row["status"] != "held" and not is_given_up:
                raise errors.SnapshotNotHeld(
                    f"snapshot {snapshot_id} is {row['status']}, and only a held one can be given up",
                    snapshot_id=snapshot_id,
                    status=row["status"],
                )
            if build is not None and not is_given_up:
                await _give_up(connection, tenant, build, actor=actor, reason=reason)
        return {"snapshot_id": snapshot_id, "build_id": row["build_id"]}

    async def abort(self, tenant: str, build_id: str, *, actor: str = "admin", reason: str | None = None) -> Json:
        """Give up a build that waits, is queued, running or held; return `{"build_id", "status"}`.

        The active snapshot stays. Workers stop within a third of `builder.task_lease_s`, and what they do until then
        is refused. The build's events wait for the next new ones, or for a manual build. `actor` and `reason` are kept
        as the build's error. Giving up again changes nothing.

        Args:
            build_id: the build; or a request, which stands for the build that has taken it up. One that waits becomes
                a build that was given up, and is never taken up.

        Raises:
            BuildNotFound: no such build or request.
            BuildEnded: it has ended in another way, which the message names.
        """
        async with self._database.write(tenant) as connection:
            # The build lock first, as everywhere: another order could deadlock.
            await connection.execute(sql("builds.own_build_lock"), lock_key("build", tenant))
            await connection.execute(sql("session.own_publish_lock"), lock_key("publish", tenant))
            build_id = await _ended_request(connection, tenant, build_id, _aborted(actor, reason)) or build_id
            row = await connection.fetchrow(sql("builds.get_for_update"), tenant, build_id)
            if row is None:
                raise errors.BuildNotFound(f"there is no build {build_id}", build_id=build_id)
            if row["status"] in _GIVES_UP:
                await _give_up(connection, tenant, row, actor=actor, reason=reason)
            elif row["status"] != "aborted":
                way_back = "; a rollback takes its snapshot back" if row["status"] == "succeeded" else ""
                raise errors.BuildEnded(
                    f"build {build_id} ended as {row['status']} at {rfc3339_or_none(row['finished_at'])}{way_back}",
                    build_id=build_id,
                    status=row["status"],
                    finished_at=rfc3339_or_none(row["finished_at"]),
                )
        return {"build_id": build_id, "status": "aborted"}

    async def tidy(self, tenant: str) -> None:
        """Delete the root rows of aborted builds and free their numbers; needs a role that may delete."""
        await free_numbers(self._database, tenant)


async def _give_up(
    connection: Connection, tenant: str, build: asyncpg.Record, *, actor: str, reason: str | None
) -> None:
    """End a build as aborted, and its snapshot with it; the transaction must own the locks that its status asks for."""
    build_id, snapshot_id = build["build_id"], build["snapshot_id"]
    error = _aborted(actor, reason)
    document = orjson.dumps(error.to_json()).decode()
    if build["status"] == "held":
        await connection.execute(sql("builds.end_hold"), tenant, build_id, "aborted", document)
        await connection.execute(sql("snapshots.end_held"), tenant, snapshot_id)
    else:
        await connection.fetchval(sql("builds.abort"), tenant, build_id, document)
        if snapshot_id is not None:
            await connection.execute(sql("snapshots.discard"), tenant, snapshot_id)
    logger.info(
        "the build was %s", error.message, extra={"action": "build_aborted", "tenant": tenant, "build_id": build_id}
    )


async def _ended_request(
    connection: Connection, tenant: str, request_id: str, error: errors.BuildAborted
) -> str | None:
    """End a request that waits as a build that was given up; return its build, None where the id is no request's.

    Exactly one of this and a builder gets a request: both set its build where it has none. Where a builder was first,
    its build comes back as it is.

    Raises:
        BuildEnded: its resource has ended or is gone.
    """
    document = orjson.dumps(error.to_json()).decode()
    build_id: str | None = await connection.fetchval(
        sql("builds.give_up_request"), tenant, request_id, new_id("bld"), document
    )
    if build_id is not None:
        logger.info(
            "the request was %s",
            error.message,
            extra={"action": "build_aborted", "tenant": tenant, "build_id": build_id},
        )
        return build_id
    row = await connection.fetchrow(sql("builds.get_request"), tenant, request_id)
    if row is not None and row["build_id"] is None:
        closed_at = rfc3339_or_none(row["closed_at"])
        raise errors.BuildEnded(
            f"request {request_id} ended with its MyriaRebuild at {closed_at}, without a build",
            build_id=request_id,
            status="aborted",
            finished_at=closed_at,
        )
    return None if row is None else str(row["build_id"])


def _aborted(actor: str, reason: str | None) -> errors.BuildAborted:
    return errors.BuildAborted(f"given up by {actor}" + (f": {reason}" if reason else ""), actor=actor, reason=reason)


async def _kept_snapshot(connection: Connection, tenant: str, snapshot_id: str) -> asyncpg.Record:
    """Return a snapshot's row.

    Raises:
        SnapshotNotFound: there is none, or the snapshot was active once and is being removed.
    """
    row = await connection.fetchrow(sql("snapshots.get"), tenant, snapshot_id)
    if row is None or (row["status"] == "superseded" and row["activated_at"] is not None):
        raise errors.SnapshotNotFound(
            f"there is no snapshot {snapshot_id} among those that are kept", snapshot_id=snapshot_id
        )
    return row


def _within(max_bytes: int, items: list[Json]) -> list[Json]:
    """Return as many first items as have at most `max_bytes` bytes as JSON, but at least one."""
    bytes_left = max_bytes
    for position, item in enumerate(items):
        bytes_left -= len(orjson.dumps(item)) + 1
        if bytes_left < 0:
            return items[: max(1, position)]
    return items


def _snapshot(row: asyncpg.Record) -> Json:
    return {
        **{name: row[name] for name in _SNAPSHOT_COLUMNS},
        "validation": {"staging": "pending", "failed": "failed"}.get(row["status"], "passed"),
        "violations": orjson.loads(row["violations"]),
        "counts": orjson.loads(row["counts"]),
        **{name: rfc3339_or_none(row[name]) for name in ("created_at", "completed_at", "activated_at", "archived_at")},
    }
