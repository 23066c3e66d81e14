"""Reading memories: by id, listed and searched by filters, and what an agent's come to."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import asyncpg
import orjson

from myria.db.clock import to_datetime, to_microseconds
from myria.db.database import Connection, Database
from myria.db.pages import ROWS_TOGETHER, PageRoom
from myria.db.queries import sql
from myria.errors import CursorInvalid, InvalidParticipants, NoteNotFound
from myria.log.canonical import digest
from myria.notes.memories.model import DECISION, MEMORY_TYPES, StoredMemory, kinds_of_types, memory_of

Order = Literal["asc", "desc"]

MOST_COUNTED = 100_000
"""Memories of an agent that its statistics count: its newest ones."""

DAY_US = 86_400 * 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    """As whom memories are read: `own` participants, and the one with whom an organisation shares them.

    What contains all of its own is seen, and what is shared.

    Raises:
        InvalidParticipants: it has no participants of its own.
    """

    own: tuple[str, ...]
    shared: str

    def __post_init__(self) -> None:
        if not self.own:
            raise InvalidParticipants("somebody must ask: nobody would see everything")

    def sees(self, participants: Sequence[str]) -> bool:
        """Tell whether it sees what these participants may."""
        return self.shared in participants or set(self.own) <= set(participants)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFilters:
    """Which memories are asked for; times in microseconds since 1970 UTC, both exclusive. None asks for any."""

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
        """Tell whether a memory is what is asked for."""
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
    """Memories in order, whether there are more, and the cursor of what follows.

    `scanned` is how many were looked at for a text, where not all of those that match otherwise were.
    """

    memories: tuple[StoredMemory, ...]
    has_more: bool
    cursor: str | None
    scanned: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentStatistics:
    """What an agent's newest memories come to."""

    memories: int
    memories_24h: int
    errors_24h: int
    last_active_at: int | None
    by_type: dict[str, int]


class MemoryReader:
    """Reads memories of one database.

    Args:
        scanned: most memories whose text is looked at for what it contains.
        page_bytes: about how many bytes of JSON a page may hold.
    """

    def __init__(self, database: Database, *, scanned: int, page_bytes: int) -> None:
        self._database = database
        self._scanned = scanned
        self._page_bytes = page_bytes

    async def get(self, tenant: str, viewer: Viewer, memory_id: str) -> StoredMemory:
        """Return a memory.

        Raises:
            NoteNotFound: absent, of others, or withdrawn.
        """
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("memories.by_id"), tenant, memory_id)
        if row is None or not viewer.sees(row["participants"]):
            raise NoteNotFound("memory not found")
        return memory_of(row)

    async def page(
        self,
        tenant: str,
        viewer: Viewer,
        filters: MemoryFilters,
        *,
        agents: Sequence[str] = (),
        order: Order = "desc",
        limit: int = 100,
        offset: int = 0,
        cursor: str | None = None,
    ) -> MemoryPage:
        """Return memories in the order of their time.

        Args:
            agents: further names of the agent that is asked for.
            cursor: of the page before; it goes on behind it, whatever was kept meanwhile.

        Raises:
            CursorInvalid: it is none of this question.
        """
        after = None if cursor is None else place_after(cursor, filters, order)
        names: list[str | None] = list(dict.fromkeys([filters.agent_id, *agents]))
        reach = self._scanned if filters.contains is not None else None
        matching = 0
        async with self._database.read(tenant) as connection:
            await connection.execute(sql("memories.custom_plans"))
            scopes = await self._scopes_of_others(connection, tenant, viewer, filters)
            is_merged = len(names) > 1 or bool(scopes)
            lists: list[AsyncIterator[asyncpg.Record]] = []
            for name in names:
                asked = replace(filters, agent_id=name)
                rows = connection.cursor(
                    sql("memories.newest" if order == "desc" else "memories.oldest"),
                    tenant,
                    list(viewer.own),
                    [viewer.shared],
                    *_asked(asked),
                    *(after or (None, None)),
                    reach,
                    filters.contains,
                    limit + 1 + (offset if is_merged else 0),
                    0 if is_merged else offset,
                    prefetch=ROWS_TOGETHER,
                )
                lists.append(aiter(rows))
                if reach is not None:
                    behind = after if order == "desc" else None
                    matching += await connection.fetchval(
                        sql("memories.matching"), tenant, *_asked(asked), *(behind or (None, None)), reach + 1
                    )
            looked_at: list[int] = []
            if scopes:
                most = limit + 1 + offset
                lists.append(
                    self._of_others(
                        connection,
                        tenant,
                        scopes,
                        filters,
                        names,
                        order=order,
                        after=after,
                        most=most,
                        looked=looked_at,
                    )
                )
            shown, has_more = await self._within(
                _in_order(lists, order), limit=limit, offset=offset if is_merged else 0
            )
        matching += sum(looked_at)
        return MemoryPage(
            memories=shown,
            has_more=has_more,
            cursor=cursor_of(shown[-1], filters, order) if has_more else None,
            scanned=self._scanned if matching > self._scanned and not has_more else None,
        )

    async def _within(
        self, rows: AsyncIterator[asyncpg.Record], *, limit: int, offset: int
    ) -> tuple[tuple[StoredMemory, ...], bool]:
        """Return the memories of rows, as many as one page may hold, at least one; and whether there are more."""
        room = PageRoom(limit=limit, most_bytes=self._page_bytes)
        memories: list[StoredMemory] = []
        async for row in rows:
            if offset:
                offset -= 1
            elif room.take(row["payload"]):
                memories.append(memory_of(row))
            else:
                return tuple(memories), True
        return tuple(memories), False

    async def _scopes_of_others(
        self, connection: Connection, tenant: str, viewer: Viewer, filters: MemoryFilters
    ) -> list[int]:
        """Return the visible scopes in which notes of other faces can be what is asked for."""
        kinds = _kinds(filters)
        if not kinds:
            return []
        wanted = [kind for kind in kinds if kind != DECISION]
        rows = await connection.fetch(
            sql("memories.note_scopes"), tenant, list(viewer.own), [viewer.shared], wanted, DECISION in kinds
        )
        return [row["scope_id"] for row in rows]

    async def _of_others(
        self,
        connection: Connection,
        tenant: str,
        scopes: list[int],
        filters: MemoryFilters,
        names: Sequence[str | None],
        *,
        order: Order,
        after: tuple[datetime, int] | None,
        most: int,
        looked: list[int],
    ) -> AsyncIterator[asyncpg.Record]:
        """Yield notes of other faces, and note how many were looked at for what only their events say."""
        agents = None if None in names else list(names)
        tags = None if filters.tags is None else list(filters.tags)
        is_read = not (agents is None and tags is None and filters.contains is None)
        rows = connection.cursor(
            sql("memories.notes_newest" if order == "desc" else "memories.notes_oldest"),
            tenant,
            scopes,
            filters.session_id,
            _kinds(filters),
            *_times(filters),
            filters.min_importance,
            *(after or (None, None)),
            self._scanned + 1 if is_read else most,
            agents,
            tags,
            filters.contains,
            most,
            prefetch=ROWS_TOGETHER,
        )
        async for row in rows:
            if is_read and not looked:
                looked.append(row["looked_at"])
            if row["note_id"] is not None:
                yield row

    async def statistics(
        self, tenant: str, viewer: Viewer, names: Sequence[str], *, now: int | None = None
    ) -> AgentStatistics:
        """Return what the newest memories of an agent come to, under each of its names."""
        at = time.time_ns() // 1000 if now is None else now
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(
                sql("memories.statistics"),
                tenant,
                list(viewer.own),
                [viewer.shared],
                list(names),
                MOST_COUNTED,
                to_datetime(at - DAY_US),
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

    async def last_active(self, tenant: str, viewer: Viewer, names: Sequence[str]) -> dict[str, int]:
        """Return when each name kept its newest memory, in microseconds since 1970 UTC, where it kept any."""
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(
                sql("memories.last_active"), tenant, list(viewer.own), [viewer.shared], list(names)
            )
        return {
            row["agent_id"]: to_microseconds(row["last_active_at"]) for row in rows if row["last_active_at"] is not None
        }


async def _in_order(lists: Sequence[AsyncIterator[asyncpg.Record]], order: Order) -> AsyncIterator[asyncpg.Record]:
    """Yield the rows of several lists in order, each of which is in order."""
    heads = [(row, rows) for rows in lists if (row := await anext(rows, None)) is not None]
    first = max if order == "desc" else min
    while heads:
        head = first(heads, key=lambda head: (head[0]["created_at"], head[0]["first_seq"]))
        row, rows = head
        yield row
        heads.remove(head)
        if (following := await anext(rows, None)) is not None:
            heads.append((following, rows))


def _asked(filters: MemoryFilters) -> tuple[Any, ...]:
    return (
        filters.agent_id,
        filters.session_id,
        None if filters.memory_types is None else list(filters.memory_types),
        None if filters.event_types is None else list(filters.event_types),
        None if filters.tags is None else list(filters.tags),
        *_times(filters),
        filters.min_importance,
    )


def _times(filters: MemoryFilters) -> tuple[datetime | None, datetime | None]:
    return (
        None if filters.since is None else to_datetime(filters.since),
        None if filters.until is None else to_datetime(filters.until),
    )


def _kinds(filters: MemoryFilters) -> list[str]:
    """Return the kinds of notes of other faces that are asked for: their event type is their kind."""
    kinds = kinds_of_types(MEMORY_TYPES if filters.memory_types is None else filters.memory_types)
    return [kind for kind in kinds if filters.event_types is None or kind in filters.event_types]


def _fingerprint(filters: MemoryFilters, order: Order) -> str:
    """Return what tells one question from another: a relative time moves on from page to page, so it is left out."""
    of_question = (
        filters.agent_id or "",
        filters.session_id or "",
        *("\n".join(part or ()) for part in (filters.memory_types, filters.event_types, filters.tags)),
        filters.contains or "",
        order,
    )
    return digest(of_question).hex()[:16]


def cursor_of(last: StoredMemory, filters: MemoryFilters, order: Order) -> str:
    """Return the cursor of the page behind a memory."""
    place = [last.at, last.number, _fingerprint(filters, order)]
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def place_after(cursor: str, filters: MemoryFilters, order: Order) -> tuple[datetime, int]:
    """Return the time and the number of the memory behind which a cursor goes on.

    Raises:
        CursorInvalid: it is none of this question.
    """
    try:
        at, number, question = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if type(at) is not int or type(number) is not int or not 0 <= number < 1 << 63:
            raise _no_cursor()
        place = to_datetime(at), number
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise _no_cursor() from error
    if question != _fingerprint(filters, order):
        raise CursorInvalid("this cursor belongs to another question; send it with the filters and order it came from")
    return place


def _no_cursor() -> CursorInvalid:
    return CursorInvalid("this is no cursor of this server; send next_cursor of the page before, unchanged")
