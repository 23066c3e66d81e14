"""Reads a scope's events from PostgreSQL, as the planner and the search index need them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.db.clock import to_datetime
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.index import Doc
from myria.index.searchable import document, hints_of
from myria.log.payloads import content_key, described, searchable_text, speaker_of, task_of
from myria.topics.model import Participants, PlanEvent

PAGE_EVENTS = 256
"""Events read at once: a page of the largest payloads allowed (256 KiB) is 64 MiB."""

_SMALL_PAGE_EVENTS = 64
_BEFORE_EVERYTHING = (-62_135_596_800_000_000, 0)
"""0001-01-01, before which no event can be."""


class EventRows:
    """Turns a scope's rows, fed in order, into the planner's events; counts each event's place in its microsecond."""

    def __init__(self, participants: Participants) -> None:
        self._participants = participants
        self._timestamp: int | None = None
        self._place = 0

    def start_at(self, timestamp: int, place: int) -> None:
        """Begin with a row before which `place` events of the same microsecond come."""
        self._timestamp, self._place = timestamp, place

    def event(self, row: asyncpg.Record) -> PlanEvent | None:
        """Return the next row of `trees.events_*` as the planner's event.

        None for a withdrawn event. Its place in its microsecond counts all the same, so that a withdrawal changes no
        other event's key.
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
    """Reads of one scope's part of a build: each a transaction of its own, or many `at_once`.

    Args:
        within: an open transaction for all reads; without it each read, or each block `at_once`, has its own.
    """

    def __init__(self, database: Database, tenant: str, *, within: Connection | None = None) -> None:
        self.tenant = tenant
        self._database = database
        self._at_once = within

    @asynccontextmanager
    async def at_once(self) -> AsyncIterator[None]:
        """Put the reads of a block into one transaction, which saves two round trips for each.

        The reads must not run at the same time. They see what was stored before the block began, or before the
        outermost block where blocks nest.
        """
        async with self.reading() as connection:
            outer, self._at_once = self._at_once, connection
            try:
                yield
            finally:
                self._at_once = outer

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Lend the transaction of the block `at_once`, or begin one for this read outside such a block."""
        if self._at_once is not None:
            yield self._at_once
        else:
            async with self._database.read(self.tenant) as connection:
                yield connection


class ScopeEvents:
    """The events of one scope that a build takes: not internal, at or below its cutoff, not withdrawn by then.

    `read` counts the rows read. `parent_cutoff` adds the events that the parent's tree holds, so that an update in
    place sees which of them to remove. Implements `myria.topics.model.EventReader`.
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
            rows, is_end = await self._read_page(connection, "trees.events_before", position, limit)
            rows.reverse()
            place = await self._place_of_first(connection, rows, is_first=is_end)
        return self._plan_events(rows, place)

    async def after(self, position: tuple[int, int], limit: int) -> list[PlanEvent]:
        """Return the nearest `limit` events strictly after (timestamp, event_seq), in ascending order."""
        async with self._reads.reading() as connection:
            rows, _ = await self._read_page(connection, "trees.events_after", position, limit)
            starts_microsecond = bool(rows) and rows[0]["at"] > position[0]
            place = await self._place_of_first(connection, rows, is_first=starts_microsecond)
        return self._plan_events(rows, place)

    async def pages(
        self, begin: tuple[int, int] | None = None, wanted: int | None = None
    ) -> AsyncGenerator[list[PlanEvent], None]:
        """Yield the scope's events in order, a page at a time.

        Args:
            begin: the position (timestamp, event_seq) from which to read; None for the scope's beginning.
            wanted: how many events the caller needs for certain; later pages are small. None if it needs all.
        """
        size, certain_left = PAGE_EVENTS, wanted
        last_position = _BEFORE_EVERYTHING if begin is None else (begin[0], begin[1] - 1)
        while True:
            page = await self.after(last_position, size)
            if page:
                yield page
            if len(page) < size:
                return
            last_position = page[-1].position
            if certain_left is not None:
                certain_left -= size
                size = min(PAGE_EVENTS, max(certain_left, _SMALL_PAGE_EVENTS))

    async def docs(self, event_seqs: Sequence[int]) -> list[Doc]:
        """Return the search index's documents of the events of these numbers.

        Raises:
            InternalError: an event is not there.
        """
        docs: list[Doc] = []
        for start in range(0, len(event_seqs), PAGE_EVENTS):
            async with self._reads.reading() as connection:
                rows = await connection.fetch(
                    sql("trees.events_by_seq"), self._tenant, event_seqs[start : start + PAGE_EVENTS]
                )
            docs.extend(document(row) for row in rows)
        if len(docs) != len(event_seqs):
            raise errors.InternalError("a leaf names an event that is not there", missing=len(event_seqs) - len(docs))
        return docs

    async def _place_of_first(self, connection: Connection, rows: Sequence[asyncpg.Record], *, is_first: bool) -> int:
        """Return how many events of the first row's microsecond come before it; 0 when `is_first` says so already."""
        if is_first or not rows:
            return 0
        at = (to_datetime(rows[0]["at"]), rows[0]["event_seq"])
        place: int = await connection.fetchval(sql("trees.place"), self._tenant, self._scope_id, *at)
        return place

    def _plan_events(self, rows: Sequence[asyncpg.Record], place: int) -> list[PlanEvent]:
        """Return the planner's events of rows in order; `place` is the first row's place in its microsecond."""
        events = EventRows(self._participants)
        if place:
            events.start_at(rows[0]["at"], place)
        return [event for row in rows if (event := events.event(row)) is not None]

    async def _read_page(
        self, connection: Connection, statement: str, position: tuple[int, int], limit: int
    ) -> tuple[list[Any], bool]:
        """Return rows until `limit` of them are not withdrawn, and whether the rows of the scope ended before that."""
        timestamp, event_seq = position
        rows: list[Any] = []
        visible = 0
        while visible < limit:
            rows_to_read = min(limit - visible, PAGE_EVENTS)
            batch = await connection.fetch(
                sql(statement),
                self._tenant,
                self._scope_id,
                to_datetime(timestamp),
                event_seq,
                self._cutoff,
                rows_to_read,
                self.parent_cutoff,
            )
            rows.extend(batch)
            visible += sum(row["is_there"] for row in batch)
            self.read += len(batch)
            if len(batch) < rows_to_read:
                return rows, True
            timestamp, event_seq = batch[-1]["at"], batch[-1]["event_seq"]
        return rows, False
