"""Planning anew: every scope gives the same root, by its stored plans where it has some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from myria import errors
from myria.builds.reading import EventRows
from myria.builds.verify.examination import STREAM_ROWS, Examination, ExaminedScope, TreeShape
from myria.builds.verify.report import Check
from myria.db.queries import sql
from myria.topics.identity import settings_digest
from myria.topics.model import Node, PlanEvent, Unit
from myria.topics.scope_plan import UnitSplitter, plan_unit
from myria.topics.shaped import UnitShape, plan_shaped, unit_digest
from myria.topics.trie import assemble


async def replanned(exam: Examination, check: Check, scope: ExaminedScope, shape: TreeShape, name: str) -> None:
    """Planning a scope anew gives the root that its tree has."""
    check.examined += 1
    plans = await _unit_plans(exam, scope)
    splitter = UnitSplitter(exam.settings)
    events = EventRows(scope.participants)
    units: list[Unit] = []
    cursor = exam.connection.cursor(
        sql("verify.scope_events"),
        exam.tenant,
        scope.scope_id,
        scope.cutoff,
        prefetch=STREAM_ROWS,
    )
    read = 0
    async for row in cursor:
        read += 1
        if read % (4 * STREAM_ROWS) == 0:
            exam.progress("replan", read, 0)
        event = events.event(row)
        if event is not None:
            units.extend(_units(exam, scope, splitter.feed(event), plans, shape))
    units.extend(_units(exam, scope, splitter.finish(), plans, shape))
    root, _ = await assemble(
        None, set(), units, _NothingStored(), participants=scope.participants, settings=exam.settings
    )
    if root is None or root.rendering_id != scope.root:
        got = "nothing" if root is None else root.rendering_id.hex()
        check.fail(f"{name}: its root is {scope.root.hex()}, planning anew gives {got}")


async def _unit_plans(exam: Examination, scope: ExaminedScope) -> Mapping[bytes, str]:
    """Return the stored plans of a scope's units, by unit."""
    if await exam.connection.fetchval(sql("verify.has_plans"), exam.tenant) is None:
        return {}
    planner = settings_digest(exam.settings)
    rows = await exam.connection.fetch(sql("llm.plans"), exam.tenant, scope.scope_id, planner)
    return {row["unit"]: row["plan"] for row in rows}


def _units(
    exam: Examination,
    scope: ExaminedScope,
    complete: Iterable[tuple[PlanEvent, ...]],
    plans: Mapping[bytes, str],
    shape: TreeShape,
) -> Iterator[Unit]:
    """Yield units planned anew: by the stored plan where the tree holds what that gives."""
    for events in complete:
        plan = plans.get(unit_digest(events)) if plans else None
        if plan is not None:
            shaped = UnitShape.from_json(orjson.loads(plan))
            nodes = plan_shaped(scope.participants, events, shaped, exam.settings)
            if nodes[-1].rendering_id in shape.level_of:
                yield Unit.of(nodes)
                continue
        yield Unit.of(plan_unit(scope.participants, events, exam.settings))


class _NothingStored:
    """The old tree of a full plan."""

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        raise errors.InternalError("a full plan asked for an old tree", nodes=len(rendering_ids))

    async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
        raise errors.InternalError("a full plan asked for an old tree", rendering_id=rendering_id.hex())
