"""What builds did and do, who asked for them, and how the active snapshot moved: lists that are only read.

Answers are JSON-ready.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.builds.finish import degraded_build
from myria.builds.model import BuildRow
from myria.builds.queue import automatic_builds_pause
from myria.db.clock import rfc3339_or_none
from myria.db.database import Connection, Database
from myria.db.queries import sql

Json = dict[str, Any]

MOST_MOVES = 3
"""Moves to one snapshot that a list of builds holds."""

MOST_WAITING = 20
"""Requests that wait that a list holds."""


class BuildHistory:
    """Reads the builds, the requests and the pointer moves of every tenant of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def builds(self, tenant: str, *, limit: int = 20, before: str | None = None) -> list[Json]:
        """Return builds, newest first, and what became of their snapshots; with `before`, those older than that one.

        Returns:
            For each build what `build` returns, but no progress; `asked_by`; number, status and `created_at` of its
            `snapshot`, None where none is kept; and the newest `moves` that made it the active one, at most
            `MOST_MOVES`.

        Raises:
            BuildNotFound: there is no build `before`.
        """
        async with self._database.read(tenant) as connection:
            begin = None if before is None else (await _kept_build(connection, tenant, before))["created_at"]
            rows = await connection.fetch(sql("builds.page"), tenant, begin, before, limit)
            snapshot_ids = [row["snapshot_id"] for row in rows if row["snapshot_id"] is not None]
            moves: defaultdict[str, list[Json]] = defaultdict(list)
            for move in await connection.fetch(sql("snapshots.moves_to"), tenant, snapshot_ids, MOST_MOVES):
                moves[move["to_snapshot_id"]].append({**dict(move), "moved_at": rfc3339_or_none(move["moved_at"])})
            return [
                {
                    **await _build(connection, tenant, BuildRow.from_row(row)),
                    "asked_by": row["asked_by"],
                    "snapshot": _kept(row),
                    "moves": moves[row["snapshot_id"]],
                }
                for row in rows
            ]

    async def build(self, tenant: str, build_id: str) -> Json:
        """Return one build with its progress (`tasks`, `tasks_done`, `events`).

        `waits_for` says what a build that has not begun waits for: `suspend` (its resource's), `slot`, `pod` or
        `builder`; None once it has begun.

        Raises:
            BuildNotFound: no such build.
        """
        async with self._database.read(tenant) as connection:
            row = await _kept_build(connection, tenant, build_id)
            progress = await connection.fetchrow(sql("builds.progress"), tenant, build_id)
            build = await _build(connection, tenant, BuildRow.from_row(row))
            return {**build, "waits_for": _waits_for(row), "progress": dict(progress or {})}

    async def failed_scopes(self, tenant: str, build_id: str) -> list[Json]:
        """Return at most 20 scopes that a build could not compile: `participants`, `attempts` and the `error`."""
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("builds.failed_tasks"), tenant, build_id)
        return [
            {
                "participants": list(row["participants"]),
                "attempts": row["attempt"],
                "error": None if row["error"] is None else orjson.loads(row["error"]),
            }
            for row in rows
        ]

    async def request(self, tenant: str, request_id: str) -> Json:
        """Return a request: its `request_id`, and the `build_id` of the build that took it up, null before; also who
        asked, when and why, its `trigger`, and whether it asks for a `full` build.

        Raises:
            BuildNotFound: no such request.
        """
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("builds.get_request"), tenant, request_id)
        if row is None:
            raise errors.BuildNotFound(f"there is no build request {request_id}", request_id=request_id)
        return {**_request(row), "build_id": row["build_id"], "closed_at": rfc3339_or_none(row["closed_at"])}

    async def waiting(self, tenant: str) -> list[Json]:
        """Return the requests that no build has taken up, the next one first, at most `MOST_WAITING`.

        Each as `request` returns it, and with what it `waits_for`: `permission` (the tenant may not build), `suspend`
        (its resource's), `build` (the one before it), `pause` (of automatic builds) or `builder`.
        """
        async with self._database.read(tenant) as connection:
            return await waiting_requests(connection, tenant)

    async def moves(self, tenant: str, *, limit: int = 50) -> list[Json]:
        """Return the pointer's history, newest first: kind, from, to, actor, reason, time."""
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("snapshots.moves"), tenant, limit)
        return [{**dict(row), "moved_at": rfc3339_or_none(row["moved_at"])} for row in rows]


async def waiting_requests(connection: Connection, tenant: str) -> list[Json]:
    """Return the requests that no build has taken up; see `BuildHistory.waiting`."""
    is_paused = await automatic_builds_pause(connection, tenant)
    rows = await connection.fetch(sql("builds.waiting"), tenant, is_paused, MOST_WAITING)
    return [{**_request(row), "waits_for": row["waits_for"]} for row in rows]


def _request(row: asyncpg.Record) -> Json:
    return {
        "request_id": row["request_id"],
        "trigger": row["trigger"],
        "full": row["is_full"],
        "reason": row["reason"],
        "actor": row["actor"],
        "created_at": rfc3339_or_none(row["created_at"]),
    }


def _waits_for(build: asyncpg.Record) -> str | None:
    """Return what a build waits for that has not begun, see `BuildHistory.build`."""
    if build["status"] != "queued" or build["started_at"] is not None:
        return None
    if build["suspended"]:
        return "suspend"
    if build["resource_uid"] is None:
        return "builder"
    return "slot" if build["job_uid"] is None else "pod"


async def _kept_build(connection: Connection, tenant: str, build_id: str) -> asyncpg.Record:
    """Return a build's row.

    Raises:
        BuildNotFound: no such build is kept.
    """
    row = await connection.fetchrow(sql("builds.get"), tenant, build_id)
    if row is None:
        raise errors.BuildNotFound(f"there is no build {build_id}", build_id=build_id)
    return row


def _kept(row: asyncpg.Record) -> Json | None:
    """Return number, status and time of the snapshot of a row of `builds.page`; None where it is gone or going."""
    status = row["snapshot_status"]
    if status is None or (status == "superseded" and row["snapshot_activated_at"] is not None):
        return None
    made = rfc3339_or_none(row["snapshot_created_at"])
    return {"number": row["snapshot_number"], "status": status, "created_at": made}


async def build_summary(connection: Connection, tenant: str, build: BuildRow) -> Json:
    """Return what every answer says of a build."""
    degraded = await degraded_build(connection, tenant, build.build_id, build.counts)
    return {
        "build_id": build.build_id,
        "trigger": build.trigger,
        "status": build.status,
        "snapshot_id": build.snapshot_id,
        "started_at": rfc3339_or_none(build.started_at),
        "finished_at": rfc3339_or_none(build.finished_at),
        "error": build.error,
        "degraded": None if degraded is None else asdict(degraded),
        "counts": build.counts,
    }


async def _build(connection: Connection, tenant: str, build: BuildRow) -> Json:
    return {
        **await build_summary(connection, tenant, build),
        "full": build.is_full,
        "forced": build.is_forced,
        "hold": build.hold,
        "reason": build.reason,
        "request_id": build.request_id,
        "parent_snapshot_id": build.parent_snapshot_id,
        "cutoff": build.cutoff,
        "created_at": rfc3339_or_none(build.created_at),
    }
