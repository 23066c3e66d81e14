"""Checks the invariants on a live database: recomputes everything stored from the log, and compares.

The whole examination sees one state of the database (one REPEATABLE READ transaction), so builds and appends may go on
meanwhile, but it holds back vacuum while it runs. Rows are streamed: memory grows with the number of events of the
longest scope (a few dozen bytes each), not with their text or with the log.

The modules `log`, `snapshots`, `trees`, `blocks` and `subjects` each check what their first line says.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from myria.builds.verify import log, snapshots, subjects, trees
from myria.builds.verify.examination import (
    CHECKS,
    DEEP,
    SHOWN_FAILURES,
    Check,
    Examination,
    Progress,
    Report,
    StoredSnapshot,
)
from myria.db.database import Database, TransactionBounds
from myria.db.queries import sql
from myria.settings.planner import PlannerSettings

__all__ = ["CHECKS", "DEEP", "SHOWN_FAILURES", "Check", "Progress", "Report", "verify"]

_BOUNDS = TransactionBounds(statement=600.0, idle=600.0, total=86_400.0)

_CHECKS_OF_TENANT: Mapping[str, Callable[[Examination, Check], Awaitable[None]]] = {
    "participants": log.participants,
    "log": log.events,
    **dict.fromkeys(log.PROJECTIONS, log.projected),
    "receipts": log.receipts,
    "vectors": log.vectors,
    "leaf_refs": trees.leaf_refs,
    "renderings": trees.renderings,
    "subjects": subjects.nodes,
    "vector_digests": log.vector_digests,
}
_CHECKS_OF_SNAPSHOTS: Mapping[str, Callable[[Examination, Sequence[StoredSnapshot], Check], Awaitable[None]]] = {
    "lineage": snapshots.lineages,
    "active_pointer": snapshots.pointer,
    "staging": snapshots.staging,
    "scope_roots": snapshots.scope_roots,
    "subjects": subjects.owners,
}


async def verify(
    database: Database,
    tenant: str,
    settings: PlannerSettings,
    *,
    deep: bool = False,
    all_snapshots: bool = False,
    progress: Progress = lambda _name, _done, _total: None,
) -> Report:
    """Examine one tenant and return a report. Writes nothing; data that PostgreSQL cannot read fails its check.

    Args:
        settings: the planner's settings, for the bounds of leaves and for `deep`.
        deep: also plan every scope of the examined snapshots anew, and rebuild their search blocks.
        all_snapshots: examine the trees of every kept snapshot, not only of the active and the held ones.
    """
    async with database.read(tenant, _BOUNDS) as connection:
        exam = Examination(database, connection, tenant, settings, deep=deep, progress=progress)
        return await _examine(exam, all_snapshots=all_snapshots)


async def _examine(exam: Examination, *, all_snapshots: bool) -> Report:
    """Run all checks and return the report."""
    for name, examine in _CHECKS_OF_TENANT.items():
        if name in exam.checks:
            async with exam.examining(name) as check:
                await examine(exam, check)
    stored_snapshots: Sequence[StoredSnapshot] = ()
    async with exam.examining("snapshots") as check:
        stored_snapshots = await snapshots.states(exam, check)
    for name, compare in _CHECKS_OF_SNAPSHOTS.items():
        async with exam.examining(name) as check:
            await compare(exam, stored_snapshots, check)
    chosen = [
        snapshot
        for snapshot in stored_snapshots
        if snapshot.status in ("active", "held") or (all_snapshots and snapshot.is_kept)
    ]
    examined: set[tuple[bytes, int, int]] = set()
    for snapshot in chosen:
        async with exam.enduring(exam.checks["trees"]):
            await trees.examine_trees(exam, snapshot, examined)
    unreachable = 0
    async with exam.enduring(exam.checks["renderings"]):
        unreachable = await exam.connection.fetchval(sql("verify.unreachable_renderings"), exam.tenant)
    return Report(
        tenant=exam.tenant,
        snapshots=tuple(snapshot.snapshot_id for snapshot in chosen),
        checks=tuple(exam.checks.values()),
        unreachable=unreachable,
    )
