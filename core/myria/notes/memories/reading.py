"""Reading memories: by id, listed by filters and time, searched by words, and an agent's statistics.

Listing reads the table of notes. The masked retrieval finds and orders what is searched by words; its hits are then
filtered by what it cannot filter by itself.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Literal

import orjson

from myria.db.clock import to_datetime, to_microseconds
from myria.db.database import Database
from myria.db.pages import ROWS_TOGETHER, PageRoom
from myria.db.queries import sql
from myria.errors import CursorInvalid, InvalidArgument, NoteNotFound
from myria.log.canonical import digest
from myria.log.masks import Masks
from myria.log.payloads import whole_text
from myria.notes.current import ComparedNote, newest_above
from myria.notes.memories.context import MOST_SHOWN, MOST_TOPICS, SessionContext, session_context
from myria.notes.memories.model import MEMORY_TYPES, StoredMemory, kinds_of_types, memory_of, memory_of_event
from myria.notes.model import NOTE_TYPE
from myria.notes.recalling import Reads
from myria.notes.scopes import scopes_with_notes
from myria.search.cursors import Cursor
from myria.search.found import EventFinder, Found, FoundEvent
from myria.search.queries import EventNodesQuery
from myria.search.queries import Order as QueryOrder
from myria.text import terms
from myria.text.model_tokens import token_counter
from myria.text.passages import sought_in

Order = Literal["asc", "desc"]

MOST_COUNTED = 100_000
"""Memories of an agent that its statistics count: its newest ones."""

EVENT_ID_PREFIX = "evt_"

_DAY_US = 86_400 * 1_000_000

_BATCH = 200
"""Hits that are looked at together."""

_MOST_BATCHES = 20
"""Batches of one question."""

_PAGES_HELD = 4
"""Pages' worth of memories that are held while they are put in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFilters:
    """Which memories are asked for; times in microseconds since 1970 UTC, both exclusive. None filters nothing."""

    agent_id: str | None = None
    session_id: str | None = None
    memory_types: tuple[str, ...] | None = None
    event_types: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    contains: str | None = None
    since: int | None = None
    until: int | None = None
    min_importance: float | None = None

    def match(self, memory: StoredMemory) -> bool:
        """Tell whether a memory passes all filters."""
        draft = memory.draft
        return (
            self.agent_id in (None, draft.agent_id)
            and self.session_id in (None, draft.session_id)
            and (self.memory_types is None or draft.memory_type in self.memory_types)
            and (self.event_types is None or draft.event_type in self.event_types)
            and set(self.tags or ()) <= set(draft.tags)
            and (self.contains is None or self.contains in draft.content)
            and (self.since is None or memory.at > self.since)
            and (self.until is None or memory.at < self.until)
            and (self.min_importance is None or (draft.importance or 0) >= self.min_importance)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPage:
    """Memories in order, whether there are more, and the cursor of the next page.

    `scanned` is how many memories were checked, where a bound ended the search before all were; else None.
    """

    memories: tuple[StoredMemory, ...]
    has_more: bool
    cursor: str | None
    scanned: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentStatistics:
    """Counts over an agent's newest `MOST_COUNTED` memories."""

    memories: int
    memories_24h: int
    errors_24h: int
    last_active_at: int | None
    by_type: dict[str, int]


class MemoryReader:
    """Reads memories, notes of other APIs and, where words are looked for, raw events.

    Args:
        database: where what is kept is listed.
        read: how events are found.
        scanned: most memories whose text is looked at for what it contains.
        page_bytes: about how many bytes of JSON a page may hold.
    """

    def __init__(self, database: Database, read: Reads, *, scanned: int, page_bytes: int) -> None:
        self._database = database
        self._read = read
        self._scanned = scanned
        self._page_bytes = page_bytes

    async def get(self, tenant: str, masks: Masks, memory_id: str) -> StoredMemory:
        """Return the memory with an id, or the raw event with an event's id.

        Raises:
            NoteNotFound: absent, of others, withdrawn, or an internal event or that of a note.
            UnavailableError: retry.
        """
        if memory_id.startswith(EVENT_ID_PREFIX):
            return await self._read(tenant, masks, partial(_read_event, masks, memory_id))
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("memories.by_ids"), tenant, [memory_id])
        if row is None or not masks.sees(row["participants"]):
            raise NoteNotFound("memory not found")
        return memory_of(row)

    async def page(
        self,
        tenant: str,
        masks: Masks,
        filters: MemoryFilters,
        *,
        agents: Sequence[str] = (),
        order: Order = "desc",
        limit: int = 100,
        offset: int = 0,
        cursor: str | None = None,
    ) -> MemoryPage:
        """Return a page of memories, and of notes of other APIs shown as memories, in the order of their time.

        Args:
            agents: further names of the agent that is asked for.
            cursor: from the page before; this page begins behind that one's last memory, whatever was kept meanwhile.

        Raises:
            CursorInvalid: the cursor was not made for these filters and this order.
        """
        after = (None, None) if cursor is None else place_after(cursor, filters, order)
        agent_names = None if filters.agent_id is None else list(dict.fromkeys([filters.agent_id, *agents]))
        room = PageRoom(limit=limit, most_bytes=self._page_bytes)
        memories: list[StoredMemory] = []
        looked_at, has_more = 0, False
        async with self._database.read(tenant) as connection:
            await connection.execute(sql("memories.custom_plans"))
            # A cursor streams the rows, so that those without room on the page are not read at all.
            async for row in connection.cursor(
                sql("memories.listed"),
                tenant,
                await scopes_with_notes(connection, tenant, masks),
                agent_names,
                filters.session_id,
                None if filters.memory_types is None else kinds_of_types(filters.memory_types),
                filters.event_types,
                filters.tags,
                filters.since,
                filters.until,
                filters.min_importance,
                *after,
                offset + limit + 1 if filters.contains is None else self._scanned + 1,
                filters.contains,
                limit + 1,
                offset,
                order == "asc",
                prefetch=ROWS_TOGETHER,
            ):
                looked_at = row["looked_at"]
                if row["note_id"] is None:  # no memory is left; this one row only says how many were looked at
                    break
                if not room.take(row["payload"]):
                    has_more = True
                    break
                memories.append(memory_of(row))
        return MemoryPage(
            memories=tuple(memories),
            has_more=has_more,
            cursor=cursor_of(memories[-1], filters, order) if has_more else None,
            scanned=self._scanned if looked_at > self._scanned and filters.contains and not has_more else None,
        )

    async def search(
        self,
        tenant: str,
        masks: Masks,
        query: str | None,
        filters: MemoryFilters,
        *,
        order: Order = "desc",
        limit: int = 50,
        offset: int = 0,
        cursor: str | None = None,
    ) -> MemoryPage:
        """Return the memories most relevant to a query, best first; without a query those that match, by time.

        Memories that contain `filters.contains` are found by its words in the index; only where these find nothing,
        memories are read one after the other.

        Raises:
            InvalidArgument: both query and cursor are given: the answer to a query is one page.
            CursorInvalid: the cursor was not made for these filters and this order.
            UnavailableError: retry.
        """
        if query is not None:
            if cursor is not None:
                raise InvalidArgument("with query the best come on one page: ask with limit and offset", field="cursor")
            return await self._best(tenant, masks, query, filters, limit=limit, offset=offset)
        found = None
        if filters.contains is not None and terms(filters.contains):
            found = await self._holding(tenant, masks, filters, order=order, limit=limit, offset=offset, cursor=cursor)
        return found or await self.page(tenant, masks, filters, order=order, limit=limit, offset=offset, cursor=cursor)

    async def _best(
        self, tenant: str, masks: Masks, query: str, filters: MemoryFilters, *, limit: int, offset: int
    ) -> MemoryPage:
        """Return the page of memories most relevant to a query; `has_more` says whether others match.

        A newer statement stands above the older one that it may replace, as in recall. Where the filters drop so many
        hits that the bound of batches ends the search, `scanned` says how many hits were checked.
        """
        question = _question(masks, filters, query, types=(NOTE_TYPE,))

        async def work(reader: EventFinder) -> MemoryPage:
            room = PageRoom(limit=limit, most_bytes=self._page_bytes)
            memories: list[StoredMemory] = []
            looked_at, left_out, is_whole = 0, 0, False
            async for found in _batches(question, reader):
                looked_at += len(found.events)
                is_whole = found.following is None
                for memory in await _current_memories(masks, reader, filters, found.events):
                    if not filters.match(memory):
                        continue
                    if left_out < offset:
                        left_out += 1
                    elif room.take(_long_parts(memory)):
                        memories.append(memory)
                    else:
                        return MemoryPage(memories=tuple(memories), has_more=True, cursor=None)
            scanned = None if is_whole else looked_at
            return MemoryPage(memories=tuple(memories), has_more=False, cursor=None, scanned=scanned)

        page = await self._read(tenant, masks, work)
        statements = [
            ComparedNote(text=memory.draft.content, at=memory.updated_at, number=memory.number)
            for memory in page.memories
        ]
        places, _ = newest_above(statements, query, now=time.time_ns() // 1000)
        return replace(page, memories=tuple(page.memories[place] for place in places))

    async def _holding(
        self,
        tenant: str,
        masks: Masks,
        filters: MemoryFilters,
        *,
        order: Order,
        limit: int,
        offset: int,
        cursor: str | None,
    ) -> MemoryPage | None:
        """Return the memories that contain `filters.contains`, by time; None where its words find nothing.

        The index finds whatever has one of the words, raw events too, and then each text is compared. A memory that
        contains the text only as part of longer words is not found this way.
        """
        after = None if cursor is None else place_after(cursor, filters, order)
        question = _question(masks, filters, filters.contains, order="newest" if order == "desc" else "oldest")
        contains, enough = filters.contains or "", offset + limit + 1

        async def work(reader: EventFinder) -> tuple[list[StoredMemory], int | None]:
            """Return matching memories by time, and how many events were checked where a bound ended the search."""
            # So many are held at most while they are put in order.
            held = PageRoom(limit=_BATCH * _MOST_BATCHES, most_bytes=_PAGES_HELD * self._page_bytes)
            memories: list[StoredMemory] = []
            looked_at = 0
            last: FoundEvent | None = None
            async for found in _batches(question, reader):
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
                matching = [
                    memory
                    for memory in (*await _current_memories(masks, reader, filters, hits), *raw)
                    if filters.match(memory)
                    and (after is None or (memory.place < after if order == "desc" else memory.place > after))
                ]
                memories += matching
                has_room = all(held.take(_long_parts(memory)) for memory in matching)
                if found.following is None:
                    return _in_order(memories, order, None), None
                last = found.events[-1]
                if order == "desc" and len(page := _in_order(memories, order, last)) >= enough:
                    return page, None
                if not has_room:
                    break
            return _in_order(memories, order, last), looked_at

        matching, scanned = await self._read(tenant, masks, work)
        if not matching:
            return None
        room = PageRoom(limit=limit, most_bytes=self._page_bytes)
        shown = tuple(takewhile(lambda memory: room.take(_long_parts(memory)), matching[offset:]))
        has_more = len(matching) > offset + len(shown)
        return MemoryPage(
            memories=shown,
            has_more=has_more,
            cursor=cursor_of(shown[-1], filters, order) if has_more and shown else None,
            scanned=None if has_more else scanned,
        )

    async def context(
        self, tenant: str, masks: Masks, filters: MemoryFilters, *, query: str | None, max_tokens: int | None
    ) -> SessionContext:
        """Return the memories of a session as text for a prompt, with the topics of those that are not shown.

        Args:
            filters: name the session.
            query: the question that the prompt is for: the memories most relevant to it are shown; None: the newest.
            max_tokens: the most tokens that the text may cost; None for no bound.
        """
        page = await (
            self.page(tenant, masks, filters, limit=MOST_SHOWN)
            if query is None
            else self.search(tenant, masks, query, filters, limit=MOST_SHOWN)
        )
        topics: Sequence[str] = ()
        if page.has_more and filters.memory_types is None:
            question = _question(
                masks, filters, query, types=(NOTE_TYPE,), order="newest" if query is None else "relevance"
            )
            shown_ids = frozenset(memory.memory_id for memory in page.memories)
            topics = await self._read(tenant, masks, partial(_topics, question, shown_ids))
        counter = None if max_tokens is None else await asyncio.to_thread(token_counter)
        return session_context(
            filters.session_id or "",
            page.memories,
            topics=topics,
            max_tokens=max_tokens,
            count=None if counter is None else counter.count,
            sought=sought_in(query),
        )

    async def statistics(
        self, tenant: str, masks: Masks, names: Sequence[str], *, now: int | None = None
    ) -> AgentStatistics:
        """Return counts over the newest memories of an agent, under all of its names together."""
        at = time.time_ns() // 1000 if now is None else now
        async with self._database.read(tenant) as connection:
            scopes = await scopes_with_notes(connection, tenant, masks)
            row = await connection.fetchrow(
                sql("memories.statistics"), tenant, scopes, names, MOST_COUNTED, at - _DAY_US
            )
        if row is None:
            raise AssertionError("a count always answers")
        last = row["last_active_at"]
        return AgentStatistics(
            memories=row["memories"],
            memories_24h=row["memories_24h"],
            errors_24h=row["errors_24h"],
            last_active_at=None if last is None else to_microseconds(last),
            by_type={kind: row[kind] for kind in MEMORY_TYPES if row[kind]},
        )

    async def last_active(self, tenant: str, masks: Masks, names: Sequence[str]) -> dict[str, int]:
        """Return for each name that kept a memory the time of its newest, in microseconds since 1970 UTC."""
        async with self._database.read(tenant) as connection:
            scopes = await scopes_with_notes(connection, tenant, masks)
            rows = await connection.fetch(sql("memories.last_active"), tenant, scopes, names)
        return {row["agent_id"]: to_microseconds(row["last_active_at"]) for row in rows}


def _fingerprint(filters: MemoryFilters, order: Order) -> str:
    """Return a digest of filters and order, which binds a cursor to them.

    Times are left out: a relative one ("the last day") differs from page to page.
    """
    identifying = (
        filters.agent_id or "",
        filters.session_id or "",
        *("\n".join(part or ()) for part in (filters.memory_types, filters.event_types, filters.tags)),
        filters.contains or "",
        order,
    )
    return digest(identifying).hex()[:16]


def cursor_of(last: StoredMemory, filters: MemoryFilters, order: Order) -> str:
    """Return the cursor of the page that begins behind a memory."""
    place = [last.at, last.number, _fingerprint(filters, order)]
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def place_after(cursor: str, filters: MemoryFilters, order: Order) -> tuple[int, int]:
    """Return the time and the number of the memory behind which the page of a cursor begins.

    Raises:
        CursorInvalid: the cursor was not made for these filters and this order, or not by this server.
    """
    try:
        at, number, fingerprint = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if type(at) is not int or type(number) is not int or not 0 <= number < 1 << 63:
            raise _no_cursor()
        to_datetime(at)  # raises for a number that is no moment
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise _no_cursor() from error
    if fingerprint != _fingerprint(filters, order):
        raise CursorInvalid("this cursor belongs to another question; send it with the filters and order it came from")
    return at, number


def _no_cursor() -> CursorInvalid:
    return CursorInvalid("this is no cursor of this server; send next_cursor of the page before, unchanged")


def _question(
    masks: Masks,
    filters: MemoryFilters,
    query: str | None,
    *,
    types: tuple[str, ...] = (),
    order: QueryOrder = "relevance",
) -> EventNodesQuery:
    """Return the query for the masked retrieval: a batch of hits, by those of the filters that it knows."""
    return EventNodesQuery(
        masks=masks,
        query=query,
        types=types,
        context_id=filters.session_id,
        since=filters.since,
        order=order,
        limit=_BATCH,
    )


async def _batches(question: EventNodesQuery, reader: EventFinder) -> AsyncIterator[Found]:
    """Yield hits a batch at a time, at most `_MOST_BATCHES`, so that filters that drop nearly all hits end, too."""
    cursor: Cursor | None = None
    for _ in range(_MOST_BATCHES):
        found = await reader.find(question, cursor=cursor)
        yield found
        cursor = found.following
        if cursor is None:
            return


async def _topics(question: EventNodesQuery, shown: Collection[str], reader: EventFinder) -> tuple[str, ...]:
    """Return the topics of a session's memories that are not shown, as "label: summary", from the active snapshot.

    Topics that may hold words of something withdrawn are left out.

    Args:
        shown: the ids of the memories that are shown.
    """
    lines: dict[str, str] = {}
    async for found in _batches(question, reader):
        hidden = {event.event_seq for event in found.events if _note_id(event) not in shown}
        for topic in await reader.topics(found, among=_BATCH, at_least=1, without=None):
            if not hidden.isdisjoint(topic.event_seqs):
                lines.setdefault(topic.topic_id, f"{topic.label}: {topic.summary}")
        if len(lines) >= MOST_TOPICS:
            break
    return tuple(lines.values())[:MOST_TOPICS]


async def _read_event(masks: Masks, event_id: str, reader: EventFinder) -> StoredMemory:
    """Return a raw event as a memory; refuse internal events, those of notes, and what is withdrawn."""
    row = await reader.connection.fetchrow(sql("events.by_id"), reader.tenant, event_id)
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


def _in_order(memories: Sequence[StoredMemory], order: Order, last: FoundEvent | None) -> list[StoredMemory]:
    """Return memories by time, without those that a later hit may still come before; `last` is the last hit so far.

    An amended note keeps its first version's place in time. Newest first, its hit, the last version, comes before that
    place, so a memory is final only once the walk has passed its place.
    """
    walked_to = None if last is None or order == "asc" else (last.at, last.event_seq)
    final = [memory for memory in memories if walked_to is None or memory.place >= walked_to]
    return sorted(final, key=lambda memory: memory.place, reverse=order == "desc")


def _long_parts(memory: StoredMemory) -> bytes:
    """Return the content and metadata of a memory as JSON, by whose length a page is bounded."""
    return orjson.dumps((memory.draft.content, memory.draft.metadata))


async def _current_memories(
    masks: Masks, reader: EventFinder, filters: MemoryFilters, hits: Sequence[FoundEvent]
) -> list[StoredMemory]:
    """Return the live memories whose current version is among the hits, in the hits' order.

    Notes that end with their session are returned only where the filters name it.
    """
    event_ids = {note_id: event.event_id for event in hits if (note_id := _note_id(event)) is not None}
    if not event_ids:
        return []
    rows = await reader.connection.fetch(sql("memories.by_ids"), reader.tenant, list(event_ids))
    live_rows = {
        row["note_id"]: row
        for row in rows
        if masks.sees(row["participants"]) and (not row["session"] or row["context_id"] == filters.session_id)
    }
    return [
        memory_of(live_rows[note_id])
        for note_id, event_id in event_ids.items()
        if note_id in live_rows and live_rows[note_id]["event_id"] == event_id
    ]


def _note_id(event: FoundEvent) -> str | None:
    about = event.payload.get("note")
    note_id = about.get("id") if isinstance(about, dict) else None
    return note_id if isinstance(note_id, str) else None
