"""Stores valid shapes of units, so that a model is not asked for them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from myria.db.database import Database
from myria.db.fence import adding_to
from myria.db.queries import sql
from myria.settings.planner import PlannerSettings
from myria.topics.identity import leaf_node_id, settings_digest
from myria.topics.model import Participants, PlanEvent
from myria.topics.shaped import UnitShape, plan_shaped, problems
from myria.topics.validation import validate_unit

_NOTES_AT_ONCE = 200


class UnitPlans:
    """The stored shapes of one scope under one planner."""

    def __init__(
        self, database: Database, tenant: str, *, scope_id: int, participants: Participants, settings: PlannerSettings
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._scope_id = scope_id
        self._participants = participants
        self._settings = settings
        self._planner = settings_digest(settings)
        self._units: frozenset[bytes] | None = None
        self._notes: list[tuple[str, str, int, bytes, bool, str | None]] = []

    async def known(self, unit: bytes) -> bool:
        """Tell whether a shape of a unit was stored at the first call, which reads all units of the scope at once."""
        if self._units is None:
            async with self._database.read(self._tenant) as connection:
                rows = await connection.fetch(sql("llm.planned_units"), self._tenant, self._scope_id, self._planner)
            self._units = frozenset(row["unit"] for row in rows)
        return unit in self._units

    async def find(self, unit: bytes, events: Sequence[PlanEvent]) -> UnitShape | None:
        """Return the stored shape of a unit; None if there is none, or if it breaks a rule of today."""
        async with self._database.read(self._tenant) as connection:
            stored = await connection.fetchval(sql("llm.plan"), self._tenant, self._scope_id, unit, self._planner)
        return None if stored is None else usable(stored, self._participants, events, self._settings)

    async def keep(
        self, unit: bytes, events: Sequence[PlanEvent], shape: UnitShape, *, model: str, build_id: str
    ) -> UnitShape:
        """Store a valid shape, and return the stored one: if another worker stored one first, that one stays.

        Raises:
            LeaseLost: the build has ended.
        """
        body = orjson.dumps(shape).decode()
        async with adding_to(self._database, self._tenant, build_id) as connection:
            await connection.execute(
                sql("llm.write_plan"), self._tenant, self._scope_id, unit, self._planner, body, model, build_id
            )
            await connection.execute(sql("llm.note_plans"), self._tenant)
            stored = await connection.fetchval(sql("llm.plan"), self._tenant, self._scope_id, unit, self._planner)
        return usable(stored, self._participants, events, self._settings) or shape

    async def note(self, build_id: str, unit: bytes, *, planned: bool, reason: str | None = None) -> None:
        """Queue a note how a build planned a unit, for its replay; written in batches, the last one by `flush`."""
        self._notes.append((self._tenant, build_id, self._scope_id, unit, planned, reason))
        if len(self._notes) >= _NOTES_AT_ONCE:
            await self.flush()

    async def flush(self) -> None:
        """Write the notes that wait."""
        notes, self._notes = self._notes, []
        if notes:
            async with self._database.write(self._tenant) as connection:
                await connection.executemany(sql("llm.note_unit"), notes)

    async def was_planned(self, build_id: str, unit: bytes) -> bool:
        """Tell whether a build planned a unit by its stored shape."""
        async with self._database.read(self._tenant) as connection:
            return bool(await connection.fetchval(sql("llm.build_unit"), self._tenant, build_id, self._scope_id, unit))


def usable(
    stored: str, participants: Participants, events: Sequence[PlanEvent], settings: PlannerSettings
) -> UnitShape | None:
    """Return a stored shape, None when it breaks a rule."""
    shape = UnitShape.from_json(orjson.loads(stored))
    return None if broken_rules(shape, participants, events, settings) else shape


def broken_rules(
    shape: UnitShape,
    participants: Participants,
    events: Sequence[PlanEvent],
    settings: PlannerSettings,
    names: dict[str, str] | None = None,
) -> list[str]:
    """Return what is wrong with a shape, in words: problems of the shape itself, else rules that its nodes break.

    `names` maps event ids to the aliases that the model knows; None keeps the ids.
    """
    shape_problems = problems(shape, events, settings, names)
    if shape_problems:
        return shape_problems
    nodes = plan_shaped(participants, events, shape, settings)
    violations = validate_unit(nodes, events, participants=participants, settings=settings)
    leaf_by_node_id = {
        leaf_node_id(participants, leaf.events): f"leaf {number}" for number, leaf in enumerate(shape.leaves, 1)
    }
    return [
        f"{leaf_by_node_id.get(violation.node_id or b'', 'the unit')} breaks {violation.rule}: "
        f"{_with_aliases(violation.message, names)}"
        for violation in violations
    ]


def _with_aliases(message: str, names: dict[str, str] | None) -> Any:
    for event_id, alias in (names or {}).items():
        message = message.replace(event_id, alias)
    return message
