"""The fold of memories, in the append transaction: of those with one key, one is kept within its window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from myria.db.database import Connection
from myria.db.locks import memory_lock_keys
from myria.db.queries import sql
from myria.errors import DuplicateMemory
from myria.log.projections import Incoming, Projection, Stored, payload_of
from myria.notes.model import NOTE_TYPE, is_memory
from myria.notes.projection import note_exists

_SECOND = 1_000_000


class _Keyed(NamedTuple):
    """A new memory of which repeats are refused, and since when another with its key is the same."""

    event: Incoming
    key: str
    shared: str
    since: int


class MemoryProjection(Projection):
    """Folds memories into `notes` and `memories`.

    It stands before the projection of notes, which leaves these to it and folds withdrawals after them.

    Args:
        evaluates: whether those that have no rating yet are put into the outbox of those that a model rates.
    """

    types = frozenset({NOTE_TYPE})

    def __init__(self, *, evaluates: bool = False) -> None:
        self._evaluates = evaluates

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Refuse a repeat of a memory with the same key.

        An import repeats what happened elsewhere: nothing of it is refused.

        Raises:
            DuplicateMemory: a memory with this key was kept within its window.
        """
        keyed = [] if importing else [memory for event in events if (memory := _keyed(event)) is not None]
        if not keyed:
            return
        keys = [memory.key for memory in keyed]
        # What others committed before they gave up the lock is seen by the statement after it.
        await connection.execute(sql("memories.lock"), sorted({*memory_lock_keys(tenant, keys)}))
        rows = await connection.fetch(
            sql("memories.standing"),
            tenant,
            keys,
            [memory.since for memory in keyed],
            [memory.shared for memory in keyed],
        )
        standing = {
            row["position"]: (row["event_id"], row["source_event_key"]) for row in rows if row["event_id"] is not None
        }
        coming: dict[tuple[str, str], tuple[str, str | None]] = {}
        for place, one in enumerate(keyed, 1):
            own = (one.event.event_id, one.event.event.source_event_key)
            before = coming.setdefault((one.key, one.shared), standing.get(place, own))
            # The same event again, or one with its source key, is a repeat that is answered as the first.
            if before[0] != own[0] and (own[1] is None or before[1] != own[1]):
                raise DuplicateMemory("duplicate memory", dedup_key=one.key)

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the memories of a commit, those of their notes too.

        Raises:
            NoteExists: as of notes; of what looks like a memory and is none.
        """
        memories = [event for event in events if is_memory(event.event)]
        if not memories:
            return
        try:
            await connection.execute(sql("memories.fold"), tenant, [event.event_seq for event in memories])
            if self._evaluates:
                await connection.execute(sql("evaluations.enqueue"), tenant, _note_ids(memories))
        except asyncpg.UniqueViolationError as error:
            if (exists := note_exists(error)) is None:
                raise
            raise exists from error


def _note_ids(memories: Sequence[Stored]) -> list[str]:
    notes = [payload_of(event.event).get("note") for event in memories]
    return sorted({note["id"] for note in notes if isinstance(note, dict) and isinstance(note.get("id"), str)})


def _keyed(event: Incoming) -> _Keyed | None:
    if not is_memory(event.event):
        return None
    note = payload_of(event.event).get("note")
    if not isinstance(note, dict) or note.get("version") != 1 or not isinstance(about := note.get("memory"), dict):
        return None
    key, within, shared = about.get("dedup_key"), about.get("dedup_within_s"), about.get("shared_with")
    if not isinstance(key, str) or type(within) is not int or within <= 0 or not isinstance(shared, str):
        return None
    return _Keyed(event, key, shared, event.event.timestamp - within * _SECOND)
