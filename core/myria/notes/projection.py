"""The fold of notes, in the append transaction: the current version of each, and that nothing is kept twice.

No scope holds two live notes that say the same; of memories with one deduplication key one is kept within its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from myria.db.database import Connection
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import DuplicateMemory, NoteExists
from myria.log.event import NewEvent
from myria.log.projections import Incoming, Projection, Stored, payload_of
from myria.log.withdrawal.model import WITHDRAWAL_TYPE
from myria.notes.model import NOTE_TYPE

_ONCE = "notes_once"
_MEMORY_MARK = b'"memory":{'
_SECOND = 1_000_000


class NoteProjection(Projection):
    """Folds notes and their withdrawals into `notes`.

    It stands after the projection of withdrawals, whose rows it reads.

    Args:
        evaluates: whether memories that have no rating yet are put into the outbox of those that a model rates;
            maintenance puts other notes there.
    """

    types = frozenset({NOTE_TYPE, WITHDRAWAL_TYPE})

    def __init__(self, *, evaluates: bool = False) -> None:
        self._evaluates = evaluates

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Refuse a repeat of a memory with the same key; what may not be otherwise, an index refuses.

        An import repeats what happened elsewhere: nothing of it is refused.

        Raises:
            DuplicateMemory: a memory with this key was kept within its window.
        """
        keyed = [] if importing else [memory for event in events if (memory := _keyed(event)) is not None]
        if not keyed:
            return
        keys = [memory.key for memory in keyed]
        # What others committed before they gave up the lock is seen by the statement after it.
        await connection.execute(sql("memories.lock"), sorted({lock_key("memory", tenant, key) for key in keys}))
        rows = await connection.fetch(
            sql("memories.standing"),
            tenant,
            keys,
            [memory.since for memory in keyed],
            [memory.shared for memory in keyed],
        )
        kept: dict[tuple[str, str], tuple[str, str | None]] = {}
        for memory, row in zip(keyed, rows, strict=True):
            own = (memory.event.event_id, memory.event.event.source_event_key)
            standing = own if row["event_id"] is None else (row["event_id"], row["source_event_key"])
            first = kept.setdefault((memory.key, memory.shared), standing)
            # The same event again, or one with its source key, is a repeat that is answered as the first.
            if first[0] != own[0] and (own[1] is None or first[1] != own[1]):
                raise DuplicateMemory("duplicate memory", dedup_key=memory.key)

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the notes of a commit, then those whose current version it withdrew or restored.

        Raises:
            NoteExists: a live note of the scope says the same already, also one that the same commit brings.
        """
        notes = [event for event in events if event.event.type == NOTE_TYPE]
        withdrawals = [event.event_seq for event in events if event.event.type == WITHDRAWAL_TYPE]
        try:
            if notes:
                await connection.execute(sql("notes.fold"), tenant, [event.event_seq for event in notes])
            if self._evaluates and (memories := [event for event in notes if _is_memory(event.event)]):
                await connection.execute(sql("evaluations.enqueue"), tenant, _note_ids(memories))
            if withdrawals:
                await connection.execute(sql("notes.fold_withdrawals"), tenant, withdrawals)
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != _ONCE:
                raise
            raise NoteExists("a note with this text is kept already for the same people; nothing was stored") from error


class _KeyedMemory(NamedTuple):
    """A new memory of which repeats are refused, and since when another with its key is the same."""

    event: Incoming
    key: str
    shared: str
    since: int


def _keyed(event: Incoming) -> _KeyedMemory | None:
    if event.event.type != NOTE_TYPE or not _is_memory(event.event):
        return None
    note = payload_of(event.event).get("note")
    if not isinstance(note, dict) or note.get("version") != 1 or not isinstance(about := note.get("memory"), dict):
        return None
    key, within, shared = about.get("dedup_key"), about.get("dedup_within_s"), about.get("shared_with")
    if not isinstance(key, str) or type(within) is not int or within <= 0 or not isinstance(shared, str):
        return None
    return _KeyedMemory(event, key, shared, event.event.timestamp - within * _SECOND)


def _is_memory(event: NewEvent) -> bool:
    """Tell whether a note may be a memory of REST, without reading it; of any that is one it is true."""
    return _MEMORY_MARK in event.payload_json


def _note_ids(memories: Sequence[Stored]) -> list[str]:
    notes = [payload_of(event.event).get("note") for event in memories]
    return sorted({note["id"] for note in notes if isinstance(note, dict) and isinstance(note.get("id"), str)})
