"""One verification from its first check to its report."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from myria.builds.verify import identities, log, snapshots, subjects, vectors
from myria.builds.verify.examination import Examination, StoredSnapshot
from myria.builds.verify.report import Check, Progress, Report
from myria.builds.verify.trees import examine_trees
from myria.db.database import Database, TransactionBounds
from myria.db.queries import sql
from myria.settings.planner import PlannerSettings

_BOUNDS = TransactionBounds(statement=600.0, idle=600.0, total=86_400.0)

_LOG: tuple[tuple[str, Callable[[Examination, Check], Awaitable[None]]], ...] = (
    ("participants", log.participants),
    ("log", log.events),
    ("withdrawals", log.withdrawals),
    ("notes", log.notes),
    ("sessions", log.sessions),
    ("links", log.links),
    ("feedback", log.feedback),
    ("evaluations", log.evaluations),
    ("turns", log.turns),
    ("registrations", log.registrations),
    ("receipts", log.receipts),
    ("vectors", vectors.kept),
    ("leaf_refs", identities.leaf_refs),
    ("renderings", identities.renderings),
    ("subjects", subjects.nodes),
)
_SNAPSHOTS: tuple[tuple[str, Callable[[Examination, Sequence[StoredSnapshot], Check], Awaitable[None]]], ...] = (
    ("lineage", snapshots.lineages),
    ("active_pointer", snapshots.pointer),
    ("staging", snapshots.staging),
    ("scope_roots", snapshots.scope_roots),
    ("subjects", subjects.owners),
)


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
        exam = Examination(connection, tenant, settings, deep=deep, progress=progress)
        return await _examine(exam, all_snapshots=all_snapshots)


async def _examine(exam: Examination, *, all_snapshots: bool) -> Report:
    for name, examine in _LOG:
        with exam.timed(name) as check:
            async with exam.enduring(check):
                await examine(exam, check)
    if exam.deep:
        with exam.timed("vector_digests") as check:
            async with exam.enduring(check):
                await vectors.digests(exam, check)
    states: Sequence[StoredSnapshot] = ()
    with exam.timed("snapshots") as check:
        async with exam.enduring(check):
            states = await snapshots.states(exam, check)
    for name, compare in _SNAPSHOTS:
        with exam.timed(name) as check:
            async with exam.enduring(check):
                await compare(exam, states, check)
    chosen = [
        snapshot for snapshot in states if snapshot.status in ("active", "held") or (all_snapshots and snapshot.is_kept)
    ]
    examined: set[tuple[bytes, int, int]] = set()
    for snapshot in chosen:
        async with exam.enduring(exam.checks["trees"]):
            await examine_trees(exam, snapshot, examined)
    unreachable = 0
    async with exam.enduring(exam.checks["renderings"]):
        unreachable = await exam.connection.fetchval(sql("verify.unreachable_renderings"), exam.tenant)
    return Report(
        tenant=exam.tenant,
        snapshots=tuple(snapshot.snapshot_id for snapshot in chosen),
        checks=tuple(exam.checks.values()),
        unreachable=unreachable,
    )
