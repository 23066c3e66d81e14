"""Repeats a build from its stored plans against its parent snapshot, without any model. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myria import errors
from myria.builds.compilation import replay_scope
from myria.builds.model import BuildRow, Parent, RunningBuild, Task
from myria.builds.versions import plans_alike
from myria.db.database import Database
from myria.db.queries import sql
from myria.llm.plans import UnitPlans
from myria.settings.planner import PlannerSettings
from myria.topics.model import PlanEvent
from myria.topics.shaped import UnitShape, unit_digest


async def replay(database: Database, tenant: str, build_id: str, settings: PlannerSettings) -> dict[str, Any]:
    """Repeat a build that ended with a snapshot; return, JSON-ready, whether every scope got the same root again.

    Raises:
        BuildNotFound: no such build, or it ended without a snapshot.
        SnapshotNotFound: its snapshot or its parent is no longer kept.
        ConfigurationError: it was planned by another version or with other settings.
    """
    async with database.read(tenant) as connection:
        row = await connection.fetchrow(sql("builds.get"), tenant, build_id)
    build = BuildRow.from_row(row) if row is not None else None
    if build is None or build.status not in ("succeeded", "held") or build.snapshot_id is None or build.cutoff is None:
        raise errors.BuildNotFound(f"there is no build {build_id} that ended with a snapshot", build_id=build_id)
    async with database.read(tenant) as connection:
        snapshot = await connection.fetchrow(sql("snapshots.get"), tenant, build.snapshot_id)
        parent = None
        if build.parent_snapshot_id is not None:
            parent = await connection.fetchrow(sql("snapshots.get"), tenant, build.parent_snapshot_id)
        tasks = await connection.fetch(sql("llm.build_tasks"), tenant, build_id)
    if snapshot is None:
        raise _snapshot_gone(build.snapshot_id)
    if build.parent_snapshot_id is not None and parent is None:
        raise _snapshot_gone(build.parent_snapshot_id)
    if not plans_alike(snapshot["planner_settings"], settings):
        raise errors.ConfigurationError(
            f"the build {build_id} was planned by another version or with other settings than these; name its --config"
        )
    repeated_build = RunningBuild(
        tenant=tenant,
        build_id=build_id,
        snapshot_id=build.snapshot_id,
        number=snapshot["number"],
        cutoff=build.cutoff,
        is_full=build.is_full,
        parent=Parent(snapshot_id=parent["snapshot_id"], cutoff=parent["cutoff"], tail_xid=parent["tail_xid"])
        if parent is not None
        else None,
    )
    scopes = [await _replay_scope_task(database, repeated_build, row, settings) for row in tasks]
    return {
        "build_id": build_id,
        "snapshot_id": build.snapshot_id,
        "parent_snapshot_id": build.parent_snapshot_id,
        "equal": all(scope["equal"] for scope in scopes),
        "scopes": scopes,
    }


def _snapshot_gone(snapshot_id: str) -> errors.SnapshotNotFound:
    return errors.SnapshotNotFound(f"the snapshot {snapshot_id} is no longer kept", snapshot_id=snapshot_id)


async def _replay_scope_task(
    database: Database, build: RunningBuild, row: Any, settings: PlannerSettings
) -> dict[str, Any]:
    """Plan the scope of a row of `llm.build_tasks` again, and compare its root with the stored one."""
    participants = tuple(row["participants"])
    task = Task(scope_id=row["scope_id"], participants=participants, attempt=0, failures=0, eligible=row["eligible"])
    shaper = _StoredPlans(database, build, task, settings) if row["has_plans"] else None
    root = row["root_rendering_id"]
    repeated_root = await replay_scope(database, build, task, settings, shaper=shaper)
    return {
        "scope_id": task.scope_id,
        "participants": list(participants),
        "root": root.hex() if root is not None else None,
        "again": repeated_root.hex() if repeated_root is not None else None,
        "equal": root == repeated_root,
    }


class _StoredPlans:
    """Shapes units by the stored plans that the build used, and leaves the others to the planner."""

    is_degraded = False

    def __init__(self, database: Database, build: RunningBuild, task: Task, settings: PlannerSettings) -> None:
        self._build_id = build.build_id
        self._plans = UnitPlans(
            database, build.tenant, scope_id=task.scope_id, participants=task.participants, settings=settings
        )

    async def shape(self, events: Sequence[PlanEvent], old_root: bytes | None) -> UnitShape | None:
        """Return the shape that the build used; None where it left the unit to the planner.

        Raises:
            InternalError: it is gone, or breaks a rule.
        """
        unit = unit_digest(events)
        if not await self._plans.was_planned(self._build_id, unit):
            return None
        shape = await self._plans.find(unit, events)
        if shape is None:
            raise errors.InternalError("the stored plan of a unit is gone or cannot be used", unit=unit.hex())
        return shape
