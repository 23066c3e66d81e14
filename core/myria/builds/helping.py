"""What a worker that finds no task does for others: parts of a big scope's task (see `parts`)."""

from __future__ import annotations

import asyncio
from collections import Counter

from myria import errors
from myria.builds import parts
from myria.builds.compilation import plan_part
from myria.builds.model import PartKind, RunningBuild, TaskPart
from myria.builds.reading import ScopeReads, ScopeTree
from myria.builds.subjects import ScopeSubjects
from myria.db.database import Database
from myria.settings.planner import PlannerSettings
from myria.topics.model import Outline


async def do_part(
    database: Database, build: RunningBuild, part: TaskPart, settings: PlannerSettings, *, worker: str, lease_s: float
) -> None:
    """Do a part that was claimed, and of subjects also those after it: their leaves are read once.

    Raises:
        LeaseLost: the build has ended.
        MyriaError: it failed, and is left to the worker that has the scope's task.
    """
    doing: list[TaskPart] = [part]
    try:
        if part.kind is PartKind.UNITS:
            counts: Counter[str] = Counter()
            units = await plan_part(database, build, part, settings, counts)
            await parts.finish(database, build, part, [unit.top.rendering_id for unit in units], counts)
            return
        reads = ScopeReads(database, build.tenant)
        tree = ScopeTree(reads, part.participants)
        subjects = ScopeSubjects(database, build, part.task, reads)
        roots = await tree.nodes([part.root] if part.root is not None else [])
        plan = await subjects.begin_plan(Outline.of(roots[0]) if roots else None, settings)
        while doing:
            now, before = doing[0], subjects.rows
            made = await subjects.make_range(plan, *parts.part_of_subjects(now.part, plan.size))
            counts = Counter(rows_subjects=subjects.rows - before)
            await parts.finish(database, build, now, made, counts)
            following = await parts.claim(
                database, build, worker, lease_s, scope_id=part.scope_id, kind=PartKind.SUBJECTS
            )
            doing[:] = [following] if following is not None else []
    except (asyncio.CancelledError, errors.LeaseLost, errors.UnavailableError):
        raise
    except Exception:
        for now in doing:
            await parts.leave(database, build, now)
        raise
