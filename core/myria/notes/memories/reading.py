"""Reading memories: by id, listed and searched by filters, and what an agent's come to."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from myria.db.clock import to_datetime, to_microseconds
from myria.db.database import Database
from myria.db.pages import ROWS_TOGETHER, PageRoom
from myria.db.queries import sql
from myria.errors import CursorInvalid, NoteNotFound
from myria.log.canonical import digest
from myria.log.masks import Masks
from myria.notes.memories.model import MEMORY_TYPES, StoredMemory, kinds_of_types, memory_of
from myria.notes.scopes import scopes_with_notes

Order = Literal["asc", "desc"]

MOST_COUNTED = 100_000
"""Memories of an agent that its statistics count: its newest ones."""

DAY_US = 86_400 * 1_000_000


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

    async def get(self, tenant: str, masks: Masks, memory_id: str) -> StoredMemory:
        """Return a memory.

        Raises:
            NoteNotFound: absent, of others, or withdrawn.
        """
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
        """Return memories, and notes of other APIs as such, in the order of their time.

        Args:
            agents: further names of the agent that is asked for.
            cursor: of the page before; it goes on behind it, whatever was kept meanwhile.

        Raises:
            CursorInvalid: it is none of this question.
        """
        after = (None, None) if cursor is None else place_after(cursor, filters, order)
        names = None if filters.agent_id is None else list(dict.fromkeys([filters.agent_id, *agents]))
        room = PageRoom(limit=limit, most_bytes=self._page_bytes)
        memories: list[StoredMemory] = []
        looked_at, has_more = 0, False
        async with self._database.read(tenant) as connection:
            await connection.execute(sql("memories.custom_plans"))
            # Statements stream, so that what has no room on the page is not read at all.
            async for row in connection.cursor(
                sql("memories.listed"),
                tenant,
                await scopes_with_notes(connection, tenant, masks),
                names,
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
                if row["note_id"] is None:
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

    async def statistics(
        self, tenant: str, masks: Masks, names: Sequence[str], *, now: int | None = None
    ) -> AgentStatistics:
        """Return what the newest memories of an agent come to, under each of its names."""
        at = time.time_ns() // 1000 if now is None else now
        async with self._database.read(tenant) as connection:
            scopes = await scopes_with_notes(connection, tenant, masks)
            row = await connection.fetchrow(
                sql("memories.statistics"), tenant, scopes, names, MOST_COUNTED, at - DAY_US
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
        """Return when each name kept its newest memory, in microseconds since 1970 UTC, where it kept any."""
        async with self._database.read(tenant) as connection:
            scopes = await scopes_with_notes(connection, tenant, masks)
            rows = await connection.fetch(sql("memories.last_active"), tenant, scopes, names)
        return {row["agent_id"]: to_microseconds(row["last_active_at"]) for row in rows}


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


def place_after(cursor: str, filters: MemoryFilters, order: Order) -> tuple[int, int]:
    """Return the time and the number of the memory behind which a cursor goes on.

    Raises:
        CursorInvalid: it is none of this question.
    """
    try:
        at, number, question = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if type(at) is not int or type(number) is not int or not 0 <= number < 1 << 63:
            raise _no_cursor()
        to_datetime(at)  # refuses what is no moment
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise _no_cursor() from error
    if question != _fingerprint(filters, order):
        raise CursorInvalid("this cursor belongs to another question; send it with the filters and order it came from")
    return at, number


def _no_cursor() -> CursorInvalid:
    return CursorInvalid("this is no cursor of this server; send next_cursor of the page before, unchanged")
