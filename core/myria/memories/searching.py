"""Searching memories by what they are about: the masked ranking orders them, their own filters thin them out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from myria.contract.queries import EventNodesQuery
from myria.masks import Mask, Masks
from myria.memories.model import StoredMemory, memory_of
from myria.memories.reading import MemoryFilters, MemoryPage, Viewer
from myria.notes.model import NOTE_TYPE
from myria.notes.recalling import Reads
from myria.retrieval.cursors import Cursor
from myria.retrieval.found import EventFinder, FoundEvent
from myria.store.queries import sql

_BATCH = 200
"""Hits that are looked at together."""

_MOST_BATCHES = 20
"""Batches of one question: filters that thin them out further find no more."""


class MemorySearch:
    """Searches from one process.

    Args:
        read: how events are found.
    """

    def __init__(self, read: Reads) -> None:
        self._read = read

    async def best(
        self, tenant: str, viewer: Viewer, query: str, filters: MemoryFilters, *, limit: int, offset: int = 0
    ) -> MemoryPage:
        """Return the memories that are most about a question, best first; `has_more` says whether there are others.

        Where the filters leave so few of the best hits that the bound is reached, `scanned` says how many were looked
        at.

        Raises:
            UnavailableError: retry.
        """
        masks = Masks.of([Mask(viewer.own), Mask((viewer.shared,))])
        question = EventNodesQuery(
            masks=masks,
            query=query,
            types=(NOTE_TYPE,),
            context_id=filters.session_id,
            since=filters.since,
            limit=_BATCH,
        )
        asked = partial(_best, viewer, question, filters, offset + limit)
        memories, scanned = await self._read(tenant, masks, asked)
        return MemoryPage(
            memories=tuple(memories[offset : offset + limit]),
            has_more=len(memories) > offset + limit,
            cursor=None,
            scanned=scanned,
        )


async def _best(
    viewer: Viewer, question: EventNodesQuery, filters: MemoryFilters, enough: int, reader: EventFinder
) -> tuple[list[StoredMemory], int | None]:
    """Return more than `enough` memories, best first; else all, or with how many were looked at."""
    memories: list[StoredMemory] = []
    cursor: Cursor | None = None
    looked_at = 0
    for _ in range(_MOST_BATCHES):
        found = await reader.find(question, cursor=cursor)
        looked_at += len(found.events)
        memories += [
            memory for memory in await _standing(reader, viewer, filters, found.events) if filters.match(memory)
        ]
        cursor = found.following
        if cursor is None or len(memories) > enough:
            return memories, None
    return memories, looked_at


async def _standing(
    reader: EventFinder, viewer: Viewer, filters: MemoryFilters, hits: Sequence[FoundEvent]
) -> list[StoredMemory]:
    """Return the memories of which hits are the current version; those of a session where it is asked for."""
    wanted = {note_id: event.event_id for event in hits if (note_id := _note_id(event)) is not None}
    if not wanted:
        return []
    rows = await reader.connection.fetch(sql("memories.by_ids"), reader.tenant, list(wanted))
    standing = {
        row["note_id"]: row
        for row in rows
        if viewer.sees(row["participants"]) and (not row["session"] or row["context_id"] == filters.session_id)
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
