"""Searching memories by words: by what they are about, and for a text that they hold.

The masked retrieval finds and orders them, their own filters thin them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile

import orjson

from myria.db.clock import to_microseconds
from myria.db.pages import PageRoom
from myria.db.queries import sql
from myria.errors import NoteNotFound
from myria.log.masks import Masks
from myria.log.payloads import whole_text
from myria.notes.current import ComparedNote, newest_above
from myria.notes.memories.context import MOST_TOPICS
from myria.notes.memories.model import StoredMemory, memory_of, memory_of_event
from myria.notes.memories.reading import MemoryFilters, MemoryPage, Order, cursor_of, place_after
from myria.notes.model import NOTE_TYPE
from myria.notes.recalling import Reads
from myria.search.cursors import Cursor
from myria.search.found import EventFinder, FoundEvent
from myria.search.queries import EventNodesQuery
from myria.search.queries import Order as QueryOrder
from myria.text import terms

_BATCH = 200
"""Hits that are looked at together."""

_SPARE = 5
"""Hits beyond those that are enough, of which some may be no longer current."""

_MOST_BATCHES = 20
"""Batches of one question: filters that thin them out further find no more."""


_PAGES_HELD = 4
"""Pages' worth of memories that are held while they are put in order."""


class MemorySearch:
    """Searches from one process.

    Args:
        read: how events are found.
        page_bytes: about how many bytes of JSON a page may hold.
    """

    def __init__(self, read: Reads, *, page_bytes: int) -> None:
        self._read = read
        self._page_bytes = page_bytes

    async def best(
        self, tenant: str, masks: Masks, query: str, filters: MemoryFilters, *, limit: int, offset: int = 0
    ) -> MemoryPage:
        """Return the memories that are most about a question, best first; `has_more` says whether there are others.

        On a page what says a fact anew stands above what it may replace, as in recall.

        Where the filters leave so few of the best hits that the bound is reached, `scanned` says how many were looked
        at.

        Raises:
            UnavailableError: retry.
        """
        question = _question(masks, filters, query, types=(NOTE_TYPE,))
        asked = partial(_best, masks, question, filters, limit=limit, offset=offset, most_bytes=self._page_bytes)
        page = await self._read(tenant, question.masks, asked)
        kept = [
            ComparedNote(text=memory.draft.content, at=memory.updated_at, number=memory.number)
            for memory in page.memories
        ]
        order, _ = newest_above(kept, query, now=to_microseconds(datetime.now(UTC)))
        return replace(page, memories=tuple(page.memories[place] for place in order))

    async def holding(
        self,
        tenant: str,
        masks: Masks,
        filters: MemoryFilters,
        *,
        order: Order = "desc",
        limit: int = 50,
        offset: int = 0,
        cursor: str | None = None,
    ) -> MemoryPage | None:
        """Return what holds `filters.contains` by time, looked for by its words; None where these find nothing.

        Whoever has one of the words is found by the index, and then its text is compared. Raw events are found, too.
        What holds the text as parts of words alone is not found so.

        Raises:
            CursorInvalid: it is none of this question.
            UnavailableError: retry.
        """
        contains = filters.contains or ""
        if not terms(contains):
            return None
        after = None if cursor is None else place_after(cursor, filters, order)
        question = _question(masks, filters, contains, order="newest" if order == "desc" else "oldest")
        enough = offset + limit + 1
        found, scanned = await self._read(
            tenant,
            question.masks,
            partial(
                _holding,
                masks,
                question,
                filters,
                order=order,
                after=after,
                enough=enough,
                most_bytes=_PAGES_HELD * self._page_bytes,
            ),
        )
        if not found:
            return None
        room = PageRoom(limit=limit, most_bytes=self._page_bytes)
        shown = tuple(takewhile(lambda memory: room.take(_said(memory)), found[offset:]))
        has_more = len(found) > offset + len(shown)
        return MemoryPage(
            memories=shown,
            has_more=has_more,
            cursor=cursor_of(shown[-1], filters, order) if has_more and shown else None,
            scanned=None if has_more else scanned,
        )

    async def topics(
        self, tenant: str, masks: Masks, filters: MemoryFilters, *, without: Sequence[str], query: str | None = None
    ) -> tuple[str, ...]:
        """Return what the memories of a session are about that are not shown, as the active snapshot has it.

        Those of the best hits come first, without a query of the newest. A topic that may hold words of what was
        withdrawn is none of them.

        Args:
            filters: of which the session and the time count.
            without: the ids of the memories that are shown.

        Raises:
            UnavailableError: retry.
        """
        order: QueryOrder = "newest" if query is None else "relevance"
        question = _question(masks, filters, query, types=(NOTE_TYPE,), order=order)
        shown = frozenset(without)

        async def read(reader: EventFinder) -> tuple[str, ...]:
            told: dict[str, str] = {}
            cursor: Cursor | None = None
            for _ in range(_MOST_BATCHES):
                found = await reader.find(question, cursor=cursor)
                hidden = {event.event_seq for event in found.events if _note_id(event) not in shown}
                for topic in await reader.topics(found, among=_BATCH, at_least=1, without=None):
                    if not hidden.isdisjoint(topic.event_seqs):
                        told.setdefault(topic.topic_id, f"{topic.label}: {topic.summary}")
                cursor = found.following
                if cursor is None or len(told) >= MOST_TOPICS:
                    break
            return tuple(told.values())[:MOST_TOPICS]

        return await self._read(tenant, question.masks, read)

    async def event(self, tenant: str, masks: Masks, event_id: str) -> StoredMemory:
        """Return a raw event as it is found here.

        Raises:
            NoteNotFound: absent, of others, withdrawn, or none that is found here.
            UnavailableError: retry.
        """

        async def read(reader: EventFinder) -> StoredMemory:
            row = await reader.connection.fetchrow(sql("events.by_id"), tenant, event_id)
            is_there = row is not None and row["reason"] in (None, "restored", "superseded") and not row["internal"]
            if row is None or not is_there or row["type"] == NOTE_TYPE or not masks.sees(row["participants"]):
                raise NoteNotFound("memory not found")
            return memory_of_event(
                event_id,
                orjson.loads(row["payload"]),
                at=to_microseconds(row["occurred_at"]),
                number=row["event_seq"],
                event_type=row["type"],
                context_id=row["context_id"],
            )

        return await self._read(tenant, masks, read)


def _question(
    masks: Masks,
    filters: MemoryFilters,
    query: str | None,
    *,
    types: tuple[str, ...] = (),
    order: QueryOrder = "relevance",
) -> EventNodesQuery:
    """Return what is asked of the masked retrieval, as far as it knows the filters: a batch of hits."""
    return EventNodesQuery(
        masks=masks,
        query=query,
        types=types,
        context_id=filters.session_id,
        since=filters.since,
        order=order,
        limit=_BATCH,
    )


def _first_batch(question: EventNodesQuery, filters: MemoryFilters, enough: int) -> EventNodesQuery:
    """Return the question with no more hits than are nearly always enough, where nothing thins them out."""
    if filters != MemoryFilters(session_id=filters.session_id, since=filters.since, contains=filters.contains):
        return question
    return replace(question, limit=min(_BATCH, enough + _SPARE))


async def _holding(
    masks: Masks,
    question: EventNodesQuery,
    filters: MemoryFilters,
    reader: EventFinder,
    *,
    order: Order,
    after: tuple[int, int] | None,
    enough: int,
    most_bytes: int,
) -> tuple[list[StoredMemory], int | None]:
    """Return memories that hold a text in order of time, `enough` or all; else with how many events were looked at.

    Args:
        most_bytes: of memories that are held while they are put in order.
    """
    room = PageRoom(limit=_BATCH * _MOST_BATCHES, most_bytes=most_bytes)
    contains = filters.contains or ""
    memories: list[StoredMemory] = []
    cursor: Cursor | None = None
    looked_at = 0

    def ready(last: FoundEvent | None) -> list[StoredMemory]:
        # A note that was changed stands at the place of its first version, which the walk has yet to come to.
        frontier = None if last is None or order == "asc" else (last.at, last.event_seq)
        seen = [memory for memory in memories if frontier is None or (memory.at, memory.number) >= frontier]
        return sorted(seen, key=lambda memory: (memory.at, memory.number), reverse=order == "desc")

    asked = question if after is not None else _first_batch(question, filters, enough)
    for _ in range(_MOST_BATCHES):
        found = await reader.find(asked, cursor=cursor)
        asked = question
        looked_at += len(found.events)
        hits = [event for event in found.events if contains in whole_text(event.payload)]
        raw = [
            memory_of_event(
                event.event_id,
                event.payload,
                at=event.at,
                number=event.event_seq,
                event_type=event.type,
                context_id=event.context_id,
            )
            for event in hits
            if event.type != NOTE_TYPE
        ]
        holding = [
            memory
            for memory in (*await _standing(reader, masks, filters, hits), *raw)
            if filters.match(memory) and (after is None or _is_behind(memory, after, order))
        ]
        memories += holding
        has_room = all(room.take(_said(memory)) for memory in holding)
        cursor = found.following
        if cursor is None:
            return ready(None), None
        if order == "desc" and len(shown := ready(found.events[-1])) >= enough:
            return shown, None
        if not has_room:
            break
    return ready(found.events[-1]), looked_at


def _is_behind(memory: StoredMemory, after: tuple[int, int], order: Order) -> bool:
    place = (memory.at, memory.number)
    return place < after if order == "desc" else place > after


async def _best(
    masks: Masks,
    question: EventNodesQuery,
    filters: MemoryFilters,
    reader: EventFinder,
    *,
    limit: int,
    offset: int,
    most_bytes: int,
) -> MemoryPage:
    """Return a page of memories, best first."""
    room = PageRoom(limit=limit, most_bytes=most_bytes)
    memories: list[StoredMemory] = []
    cursor: Cursor | None = None
    looked_at = 0
    asked = _first_batch(question, filters, offset + limit + 1)
    for _ in range(_MOST_BATCHES):
        found = await reader.find(asked, cursor=cursor)
        asked = question
        looked_at += len(found.events)
        for memory in await _standing(reader, masks, filters, found.events):
            if not filters.match(memory):
                continue
            if offset:
                offset -= 1
            elif room.take(_said(memory)):
                memories.append(memory)
            else:
                return MemoryPage(memories=tuple(memories), has_more=True, cursor=None)
        cursor = found.following
        if cursor is None:
            return MemoryPage(memories=tuple(memories), has_more=False, cursor=None)
    return MemoryPage(memories=tuple(memories), has_more=False, cursor=None, scanned=looked_at)


def _said(memory: StoredMemory) -> bytes:
    """Return what is long of a memory, as JSON."""
    return orjson.dumps((memory.draft.content, memory.draft.metadata))


async def _standing(
    reader: EventFinder, masks: Masks, filters: MemoryFilters, hits: Sequence[FoundEvent]
) -> list[StoredMemory]:
    """Return the memories of which hits are the current version; those of a session where it is asked for."""
    wanted = {note_id: event.event_id for event in hits if (note_id := _note_id(event)) is not None}
    if not wanted:
        return []
    rows = await reader.connection.fetch(sql("memories.by_ids"), reader.tenant, list(wanted))
    standing = {
        row["note_id"]: row
        for row in rows
        if masks.sees(row["participants"]) and (not row["session"] or row["context_id"] == filters.session_id)
    }
    return [
        memory_of(standing[note_id])
        for note_id, event_id in wanted.items()
        if note_id in standing and standing[note_id]["event_id"] == event_id
    ]


def _note_id(event: FoundEvent) -> str | None:
    about = event.payload.get("note")
    note_id = about.get("id") if isinstance(about, dict) else None
    return note_id if isinstance(note_id, str) else None
