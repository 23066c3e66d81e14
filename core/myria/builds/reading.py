"""A scope's events and its old tree, read from PostgreSQL in short transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.db.clock import to_datetime, to_microseconds
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.index import Doc
from myria.index.searchable import document, hints_of
from myria.log.payloads import content_key, described, searchable_text, speaker_of, task_of
from myria.topics.model import Node, Outline, Participants, PlanEvent, Ref, Unit, leaf_ids_of

PAGE_EVENTS = 256
"""Events read at once: a page of the largest payloads allowed (256 KiB) is 64 MiB, and two are held."""

_SMALL_PAGE_EVENTS = 64
_BEFORE_EVERYTHING = (-62_135_596_800_000_000, 0)
"""0001-01-01, before which no event can be."""

_NODES_AT_ONCE = 512


class EventRows:
    """Turns a scope's rows, fed in order, into the planner's events; counts each one's place in its microsecond."""

    def __init__(self, participants: Participants) -> None:
        self._participants = participants
        self._timestamp: int | None = None
        self._place = 0

    def start_at(self, timestamp: int, place: int) -> None:
        """Start where `place` events of this microsecond come before the next row."""
        self._timestamp, self._place = timestamp, place

    def event(self, row: asyncpg.Record) -> PlanEvent | None:
        """Return the next row of `trees.events_*` or `verify.scope_events` as the planner sees it.

        None for a withdrawn one, which counts among those of its microsecond all the same: a withdrawal makes no
        other event another.
        """
        timestamp = row["at"]
        if timestamp != self._timestamp:
            self._timestamp, self._place = timestamp, 0
        place, self._place = self._place, self._place + 1
        if not row["is_there"]:
            return None
        payload = orjson.loads(row["payload"])
        return PlanEvent(
            event_seq=row["event_seq"],
            event_id=row["event_id"],
            key=content_key(
                dedupe=row["dedupe_key"],
                timestamp=timestamp,
                participants=self._participants,
                payload=payload,
                place=place,
            ),
            timestamp=timestamp,
            type=row["type"],
            context_id=row["context_id"],
            channel=row["channel"],
            task=task_of(payload),
            text=searchable_text(payload),
            speaker=speaker_of(payload),
            hints=hints_of(row["topic_hints"]),
            utc_offset=row["utc_offset"] or 0,
            described=described(payload),
        )


class ScopeReads:
    """Reads of one scope's part of a build: each a transaction of its own, or many `at_once`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self.tenant = tenant
        self._database = database
        self._at_once: Connection | None = None

    @asynccontextmanager
    async def at_once(self) -> AsyncIterator[None]:
        """Make the reads of a block one transaction: many are short, and each by itself costs two round trips more.

        One at a time; they see what was stored before the block, or before that which it is a part of.
        """
        if self._at_once is not None:
            yield
            return
        async with self.alone() as connection:
            self._at_once = connection
            try:
                yield
            finally:
                self._at_once = None

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Lend the transaction of the block `at_once`; outside of one, a transaction of its own."""
        if self._at_once is not None:
            yield self._at_once
            return
        async with self.alone() as connection:
            yield connection

    def alone(self) -> AbstractAsyncContextManager[Connection]:
        """Lend a transaction of its own, for what is read while others read, too."""
        return self._database.read(self.tenant)


class ScopeEvents:
    """The events of one scope that a build takes: not internal, at or below its cutoff, not withdrawn by then.

    `read` counts the rows. `parent_cutoff` makes those visible too that the parent's tree holds, so that a build in
    place sees which ones go. Implements `myria.topics.model.EventReader`.
    """

    def __init__(self, reads: ScopeReads, scope_id: int, cutoff: int, *, participants: Participants) -> None:
        self.parent_cutoff = 0
        self._reads = reads
        self._tenant = reads.tenant
        self._scope_id = scope_id
        self._cutoff = cutoff
        self._participants = participants
        self.read = 0

    async def before(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly before (timestamp, event_seq), in ascending order."""
        async with self._reads.reading() as connection:
            rows, is_end = await self._page(connection, "trees.events_before", position, limit)
            rows.reverse()
            place = await self._place(connection, rows, is_first=is_end)
        return self._planned(rows, place)

    async def after(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly after (timestamp, event_seq), in ascending order."""
        async with self._reads.reading() as connection:
            return await self._after(connection, position, limit)

    async def of_few(self, connection: Connection) -> list[PlanEvent]:
        """Return all of fewer than a page, read inside a transaction."""
        return await self._after(connection, _BEFORE_EVERYTHING, PAGE_EVENTS)

    async def pages(
        self, begin: tuple[int, int] | None = None, wanted: int | None = None
    ) -> AsyncGenerator[list[PlanEvent], None]:
        """Yield all of them in order, a page at a time, each read in a transaction of its own.

        The page after the one that is worked on is read meanwhile, whenever the caller lets other tasks run.

        Args:
            begin: the position (timestamp, event_seq) of the first one that is wanted; None for the scope's first.
            wanted: how many are wanted for certain; beyond them pages are small. None for all.
        """
        size, left = PAGE_EVENTS, wanted
        after = _BEFORE_EVERYTHING if begin is None else (begin[0], begin[1] - 1)
        reading = asyncio.create_task(self.after(after, size))
        try:
            while True:
                page = await reading
                if len(page) < size:
                    break
                if left is not None:
                    left -= size
                    size = min(PAGE_EVENTS, max(left, _SMALL_PAGE_EVENTS))
                reading = asyncio.create_task(self.after(page[-1].position, size))
                yield page
            if page:
                yield page
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def docs(self, wanted: Sequence[int]) -> list[Doc]:
        """Return the events of these numbers for the search index.

        Raises:
            InternalError: an event is not there.
        """
        docs: list[Doc] = []
        for at in range(0, len(wanted), PAGE_EVENTS):
            async with self._reads.reading() as connection:
                rows = await connection.fetch(sql("trees.events_by_seq"), self._tenant, wanted[at : at + PAGE_EVENTS])
            docs.extend(document(row) for row in rows)
        if len(docs) != len(wanted):
            raise errors.InternalError("a leaf names an event that is not there", missing=len(wanted) - len(docs))
        return docs

    async def _after(self, connection: Connection, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        rows, _ = await self._page(connection, "trees.events_after", position, limit)
        is_later = bool(rows) and rows[0]["at"] > position[0]
        place = await self._place(connection, rows, is_first=is_later)
        return self._planned(rows, place)

    async def _place(self, connection: Connection, rows: Sequence[asyncpg.Record], *, is_first: bool) -> int:
        """Return how many events of its microsecond come before the first row; none when it `is_first`."""
        if is_first or not rows:
            return 0
        at = (to_datetime(rows[0]["at"]), rows[0]["event_seq"])
        place: int = await connection.fetchval(sql("trees.place"), self._tenant, self._scope_id, *at)
        return place

    def _planned(self, rows: Sequence[asyncpg.Record], place: int) -> list[PlanEvent]:
        """Return rows in order as the planner sees them; `place` is that of the first one in its microsecond."""
        events = EventRows(self._participants)
        if place:
            events.start_at(rows[0]["at"], place)
        return [event for row in rows if (event := events.event(row)) is not None]

    async def _page(
        self, connection: Connection, statement: str, position: tuple[int, int], limit: int
    ) -> tuple[list[Any], bool]:
        """Return rows with `limit` events that are there, or all there are; and whether nothing is beyond them."""
        timestamp, event_seq = position
        rows: list[Any] = []
        there = 0
        while there < limit:
            wanted = min(limit - there, PAGE_EVENTS)
            page = await connection.fetch(
                sql(statement),
                self._tenant,
                self._scope_id,
                to_datetime(timestamp),
                event_seq,
                self._cutoff,
                wanted,
                self.parent_cutoff,
            )
            rows.extend(page)
            there += sum(row["is_there"] for row in page)
            self.read += len(page)
            if len(page) < wanted:
                return rows, True
            timestamp, event_seq = page[-1]["at"], page[-1]["event_seq"]
        return rows, False


class ScopeTree:
    """The stored trees of one scope; implements `myria.topics.model.TreeReader`. `read` counts nodes.

    Without `has_refs` its leaves come without their references, for what asks only for what they say.
    """

    def __init__(self, reads: ScopeReads, participants: Participants, *, has_refs: bool = True) -> None:
        self._nodes = "trees.renderings" if has_refs else "trees.renderings_alone"
        self._has_refs = has_refs
        self._reads = reads
        self._tenant = reads.tenant
        self._participants = participants
        self._foreseen: tuple[bytes, asyncio.Task[bytes]] | None = None
        self.read = 0

    @asynccontextmanager
    async def foreseeing_leaves(self, rendering_id: bytes, blocks: Sequence[bytes]) -> AsyncIterator[None]:
        """Read the leaf node_ids of a rendering while the block does something else, before it asks for them.

        `blocks` are the search blocks that cover it.
        """
        reading = asyncio.create_task(self._read_leaf_ids(rendering_id, blocks))
        self._foreseen = (rendering_id, reading)
        try:
            yield
        finally:
            self._foreseen = None
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, in this order.

        Raises:
            InternalError: one is not stored.
        """
        nodes: list[Node] = []
        for at in range(0, len(rendering_ids), _NODES_AT_ONCE):
            async with self._reads.reading() as connection:
                rows = await connection.fetch(sql(self._nodes), self._tenant, rendering_ids[at : at + _NODES_AT_ONCE])
            nodes.extend(node_from_row(row, self._participants, has_refs=self._has_refs) for row in rows)
        if len(nodes) != len(rendering_ids):
            raise errors.InternalError(
                "a tree names a rendering that is not stored", missing=len(rendering_ids) - len(nodes)
            )
        self.read += len(nodes)
        return nodes

    async def units(self, tops: Sequence[bytes]) -> list[Unit]:
        """Return the units of these top nodes, in this order."""
        return [
            Unit(top=Outline.of(node), leaf_ids=leaf_ids_of(node) or await self.leaf_node_ids(node.rendering_id))
            for node in await self.nodes(tops)
        ]

    async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
        """Return the node_ids of all leaves under (or at) a rendering, one after the other in no particular order."""
        if self._foreseen is not None and self._foreseen[0] == rendering_id:
            return await self._foreseen[1]
        async with self._reads.reading() as connection:
            return await self._leaf_ids(connection, rendering_id)

    async def _read_leaf_ids(self, rendering_id: bytes, blocks: Sequence[bytes]) -> bytes:
        async with self._reads.alone() as connection:
            ids: bytes | None = await connection.fetchval(sql("trees.leaf_node_ids_of_blocks"), self._tenant, blocks)
            return ids if ids is not None else await self._leaf_ids(connection, rendering_id)

    async def _leaf_ids(self, connection: Connection, rendering_id: bytes) -> bytes:
        ids: bytes = await connection.fetchval(sql("trees.leaf_node_ids"), self._tenant, rendering_id)
        return ids


def node_from_row(row: asyncpg.Record, participants: Participants, *, has_refs: bool = True) -> Node:
    """Return the node of a row of `trees.renderings` of a scope; without `has_refs` of `trees.renderings_alone`."""
    key_timestamp = to_microseconds(row["key_at"])
    refs: tuple[Ref, ...] = ()
    if has_refs:
        refs = tuple(
            Ref(event_seq=event_seq, event_id=event_id, weight=weight)
            for event_seq, event_id, weight in zip(
                row["event_seqs"], row["event_ids"] or (), row["weights"], strict=True
            )
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
        key_timestamp=key_timestamp,
        key_digest=content_key(
            dedupe=row["key_dedupe"],
            timestamp=key_timestamp,
            participants=participants,
            payload=orjson.loads(row["key_payload"]) if row["key_dedupe"] is None else {},
            place=row["key_place"] or 0,
        ),
        key_event_id=row["key_event_id"],
        first_at=to_microseconds(row["first_at"]),
        last_at=to_microseconds(row["last_at"]),
    )
