"""Proof of the invariants on a live database: everything stored is recomputed from the log and compared.

The whole examination sees one state of the database (one REPEATABLE READ transaction), so builds and appends may go on
meanwhile; it holds back vacuum for as long as it runs. It streams: its memory grows with the longest scope's number of
events (a few dozen bytes each), not with their text or with the log.

`log`, `snapshots`, `trees`, `blocks` and `subjects` each prove what their first line says.
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

_OF_THE_LOG: Mapping[str, Callable[[Examination, Check], Awaitable[None]]] = {
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
_OF_SNAPSHOTS: Mapping[str, Callable[[Examination, Sequence[StoredSnapshot], Check], Awaitable[None]]] = {
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
    """Examine one tenant and return what was found; nothing is written. What PostgreSQL cannot read fails its check.

    Args:
        settings: what the planner is told, for the bounds of leaves and for `deep`.
        deep: also plan every scope of the examined snapshots anew, and rebuild their search blocks.
        all_snapshots: examine the trees of every kept snapshot, not only of the active and the held ones.
    """
    async with database.read(tenant, _BOUNDS) as connection:
        exam = Examination(database, connection, tenant, settings, deep=deep, progress=progress)
        return await _examine(exam, all_snapshots=all_snapshots)


async def _examine(exam: Examination, *, all_snapshots: bool) -> Report:
    for name, examine in _OF_THE_LOG.items():
        if name in exam.checks:
            async with exam.examining(name) as check:
                await examine(exam, check)
    states: Sequence[StoredSnapshot] = ()
    async with exam.examining("snapshots") as check:
        states = await snapshots.states(exam, check)
    for name, compare in _OF_SNAPSHOTS.items():
        async with exam.examining(name) as check:
            await compare(exam, states, check)
    chosen = [
        snapshot for snapshot in states if snapshot.status in ("active", "held") or (all_snapshots and snapshot.is_kept)
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
