"""A scope's events as the planner and the search index take them, read from PostgreSQL."""

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
    """Reads of one scope's part of a build: each a transaction of its own, or many `at_once`.

    Args:
        within: the transaction of all of them, where there is one already.
    """

    def __init__(self, database: Database, tenant: str, *, within: Connection | None = None) -> None:
        self.tenant = tenant
        self._database = database
        self._at_once = within

    @asynccontextmanager
    async def at_once(self) -> AsyncIterator[None]:
        """Make the reads of a block one transaction: many are short, and each by itself costs two round trips more.

        One at a time; they see what was stored before the block, or before that which it is a part of.
        """
        async with self.reading() as connection:
            outer, self._at_once = self._at_once, connection
            try:
                yield
            finally:
                self._at_once = outer

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Connection]:
        """Lend the transaction of the block `at_once`; outside of one, a transaction of its own."""
        if self._at_once is not None:
            yield self._at_once
        else:
            async with self._database.read(self.tenant) as connection:
                yield connection


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
            rows, _ = await self._page(connection, "trees.events_after", position, limit)
            is_later = bool(rows) and rows[0]["at"] > position[0]
            place = await self._place(connection, rows, is_first=is_later)
        return self._planned(rows, place)

    async def pages(
        self, begin: tuple[int, int] | None = None, wanted: int | None = None
    ) -> AsyncGenerator[list[PlanEvent], None]:
        """Yield all of them in order, a page at a time, each read in a transaction of its own.

        Args:
            begin: the position (timestamp, event_seq) of the first one that is wanted; None for the scope's first.
            wanted: how many are wanted for certain; beyond them pages are small. None for all.
        """
        size, left = PAGE_EVENTS, wanted
        after = _BEFORE_EVERYTHING if begin is None else (begin[0], begin[1] - 1)
        while True:
            page = await self.after(after, size)
            if page:
                yield page
            if len(page) < size:
                return
            after = page[-1].position
            if left is not None:
                left -= size
                size = min(PAGE_EVENTS, max(left, _SMALL_PAGE_EVENTS))

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
