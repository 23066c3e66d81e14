"""A scope's events and its old tree, read from PostgreSQL in short transactions (trap 14)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.events import searchable_text, speaker_of, task_of
from myria.index import Doc
from myria.planning.model import Node, PlanEvent, Ref
from myria.searchable import document, hints_of
from myria.store.clock import to_datetime, to_microseconds
from myria.store.database import Database
from myria.store.queries import sql

PAGE_EVENTS = 256
"""Events read at once: a page of the largest payloads allowed (256 KiB) is 64 MiB."""

_BEFORE_EVERYTHING = (-62_135_596_800_000_000, 0)
"""0001-01-01, before which no event can be."""

_NODES_AT_ONCE = 512


def plan_event(row: asyncpg.Record) -> PlanEvent:
    """Return a row of `trees.events_*` as the planner sees it."""
    payload = orjson.loads(row["payload"])
    return PlanEvent(
        event_seq=row["event_seq"],
        event_id=row["event_id"],
        timestamp=to_microseconds(row["occurred_at"]),
        type=row["type"],
        context_id=row["context_id"],
        task=task_of(payload),
        text=searchable_text(payload),
        speaker=speaker_of(payload),
        hints=hints_of(row["topic_hints"]),
    )


class ScopeEvents:
    """The events of one scope that a build takes: not internal, at or below its cutoff. `read` counts them.

    Implements `myria.planning.model.EventReader`.
    """

    def __init__(self, database: Database, tenant: str, scope_id: int, cutoff: int) -> None:
        self._database = database
        self._tenant = tenant
        self._scope_id = scope_id
        self._cutoff = cutoff
        self.read = 0

    async def before(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly before (timestamp, event_seq), in ascending order."""
        rows = await self._page("trees.events_before", position, limit)
        return [plan_event(row) for row in reversed(rows)]

    async def after(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly after (timestamp, event_seq), in ascending order."""
        return [plan_event(row) for row in await self._page("trees.events_after", position, limit)]

    async def pages(self) -> AsyncIterator[list[PlanEvent]]:
        """Yield all of them in order, a page at a time, each read in a transaction of its own."""
        position = _BEFORE_EVERYTHING
        while True:
            page = await self.after(position, PAGE_EVENTS)
            if page:
                yield page
                position = page[-1].position
            if len(page) < PAGE_EVENTS:
                return

    async def docs(self, leaf_of: Mapping[int, int]) -> list[Doc]:
        """Return the events of these numbers for the search index; `leaf_of` names each one's leaf.

        Raises:
            InternalError: an event is not there.
        """
        wanted = sorted(leaf_of)
        found: list[Doc] = []
        for at in range(0, len(wanted), PAGE_EVENTS):
            async with self._database.read(self._tenant) as connection:
                rows = await connection.fetch(sql("trees.events_by_seq"), self._tenant, wanted[at : at + PAGE_EVENTS])
            found.extend(document(row, leaf=leaf_of[row["event_seq"]]) for row in rows)
        if len(found) != len(wanted):
            raise errors.InternalError("a leaf names an event that is not there", missing=len(wanted) - len(found))
        return found

    async def _page(self, statement: str, position: tuple[int, int], limit: int) -> list[Any]:
        timestamp, event_seq = position
        rows: list[Any] = []
        while len(rows) < limit:
            async with self._database.read(self._tenant) as connection:
                page = await connection.fetch(
                    sql(statement),
                    self._tenant,
                    self._scope_id,
                    to_datetime(timestamp),
                    event_seq,
                    self._cutoff,
                    min(limit - len(rows), PAGE_EVENTS),
                )
            rows.extend(page)
            self.read += len(page)
            if len(page) < PAGE_EVENTS:
                break
            timestamp, event_seq = to_microseconds(page[-1]["occurred_at"]), page[-1]["event_seq"]
        return rows


class ScopeTree:
    """The stored trees of one tenant; implements `myria.planning.model.TreeReader`. `read` counts nodes."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant
        self.read = 0

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, in this order.

        Raises:
            InternalError: one is not stored.
        """
        found: list[Node] = []
        for at in range(0, len(rendering_ids), _NODES_AT_ONCE):
            async with self._database.read(self._tenant) as connection:
                rows = await connection.fetch(
                    sql("trees.renderings"), self._tenant, rendering_ids[at : at + _NODES_AT_ONCE]
                )
            found.extend(node_from_row(row) for row in rows)
        if len(found) != len(rendering_ids):
            raise errors.InternalError(
                "a tree names a rendering that is not stored", missing=len(rendering_ids) - len(found)
            )
        self.read += len(found)
        return found

    async def leaf_node_ids(self, rendering_id: bytes) -> list[bytes]:
        """Return the node_id of every leaf under (or at) a rendering, in no particular order."""
        async with self._database.read(self._tenant) as connection:
            rows = await connection.fetch(sql("trees.leaf_node_ids"), self._tenant, rendering_id)
        return [row[0] for row in rows]


def node_from_row(row: asyncpg.Record) -> Node:
    """Return the node of a row of `trees.renderings`."""
    refs = tuple(
        Ref(event_seq=event_seq, event_id=event_id, weight=weight)
        for event_seq, event_id, weight in zip(row["event_seqs"], row["event_ids"] or (), row["weights"], strict=True)
    )
    return Node(
        rendering_id=row["rendering_id"],
        node_id=row["node_id"],
        node_type=row["node_type"],
        level=row["level"],
        topic_id=row["topic_id"],
        anchor_seq=row["anchor_seq"],
        anchor_event_id=row["anchor_event_id"],
        label=row["label"],
        summary=row["summary"],
        metadata=orjson.loads(row["metadata"]),
        children=tuple(row["children"]),
        child_leaves=tuple(row["child_leaves"]),
        refs=refs,
        events=row["events"],
        leaves=row["leaves"],
        units=row["units"],
        is_unit=row["is_unit"],
        key_timestamp=to_microseconds(row["key_at"]),
        key_event_id=row["key_event_id"],
        first_at=to_microseconds(row["first_at"]),
        last_at=to_microseconds(row["last_at"]),
    )
