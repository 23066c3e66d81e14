"""The fold of notes in the append transaction: it keeps each note's current version, and refuses repeats.

No scope holds two live notes with equal text; of memories with one deduplication key, one is kept within its window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from myria.db.database import Connection
from myria.db.locks import lock_key
from myria.db.queries import sql
from myria.errors import DuplicateMemory, NoteExists
from myria.log.projections import Incoming, Projection, Stored, payload_of
from myria.log.withdrawal.model import WITHDRAWAL_TYPE, Withdrawal
from myria.notes.model import NOTE_TYPE

_ONCE = ("notes_once", "notes_held_once")
_SECOND = 1_000_000


class NoteProjection(Projection):
    """Folds notes and their withdrawals into `notes`.

    It comes after the projection of withdrawals, whose rows it reads.

    Args:
        evaluates: whether to queue new memories of the REST API for the model that rates them; maintenance queues other
            notes.
    """

    types = frozenset({NOTE_TYPE, WITHDRAWAL_TYPE})

    def __init__(self, *, evaluates: bool = False) -> None:
        self._evaluates = evaluates

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Refuse a memory whose key was kept within its window; an index refuses other repeats.

        An import repeats what another server accepted, so nothing of it is refused.

        Raises:
            DuplicateMemory: a memory with this key was kept within its window.
        """
        keyed = [] if importing else [memory for event in events if (memory := _keyed(event)) is not None]
        if not keyed:
            return
        keys = [memory.key for memory in keyed]
        # Under the keys' locks, the next statement sees every memory with these keys that was committed before. Sorted,
        # so that two transactions never wait for each other crosswise.
        await connection.execute(sql("memories.lock"), sorted({lock_key("memory", tenant, key) for key in keys}))
        rows = await connection.fetch(
            sql("memories.standing"),
            tenant,
            keys,
            [memory.since for memory in keyed],
            [memory.shared for memory in keyed],
        )
        first_of_key: dict[tuple[str, str], tuple[str, str | None]] = {}
        for memory, row in zip(keyed, rows, strict=True):
            this_event = (memory.event.event_id, memory.event.event.source_event_key)
            kept_event = this_event if row["event_id"] is None else (row["event_id"], row["source_event_key"])
            first = first_of_key.setdefault((memory.key, memory.shared), kept_event)
            # The same event again, or one with its source key, is a retry, which gets the first one's answer.
            if first[0] != this_event[0] and (this_event[1] is None or first[1] != this_event[1]):
                raise DuplicateMemory("duplicate memory", dedup_key=memory.key)

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of a commit's notes, then of the notes whose current version it withdrew or restored.

        Raises:
            NoteExists: a live note of the scope has the same text, be it in the same commit.
        """
        notes = [event for event in events if event.event.type == NOTE_TYPE]
        withdrawals = [event for event in events if event.event.type == WITHDRAWAL_TYPE]
        try:
            if notes:
                await connection.execute(sql("notes.fold"), tenant, [event.event_seq for event in notes])
            if self._evaluates and (memory_ids := _memory_ids(notes)):
                await connection.execute(sql("evaluations.enqueue"), tenant, memory_ids)
            # First what goes, then what comes back: a note may come back in the place of one with equal text.
            for is_live in sorted(_brings_back(withdrawals)):
                numbers = [event.event_seq for event in withdrawals]
                await connection.execute(sql("notes.fold_withdrawals"), tenant, numbers, is_live)
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name not in _ONCE:
                raise
            raise NoteExists("a note with this text is kept already for the same people; nothing was stored") from error


class _KeyedMemory(NamedTuple):
    """A new memory that may be a repeat; an earlier one with its key counts from the time `since` on."""

    event: Incoming
    key: str
    shared: str
    since: int


def _keyed(event: Incoming) -> _KeyedMemory | None:
    """Return a note's first version as a memory with a deduplication key; None for any other event."""
    if event.event.type != NOTE_TYPE:
        return None
    note = payload_of(event.event).get("note")
    if not isinstance(note, dict) or note.get("version") != 1 or not isinstance(about := note.get("memory"), dict):
        return None
    key, within, shared = about.get("dedup_key"), about.get("dedup_within_s"), about.get("shared_with")
    if not isinstance(key, str) or type(within) is not int or within <= 0 or not isinstance(shared, str):
        return None
    return _KeyedMemory(event, key, shared, event.event.timestamp - within * _SECOND)


def _brings_back(events: Sequence[Stored]) -> set[bool]:
    """Return whether withdrawals bring events back: true, false, or both."""
    withdrawals = [Withdrawal.of(dict(payload_of(event.event))) for event in events]
    return {withdrawal.reason == "restored" for withdrawal in withdrawals if withdrawal is not None}


def _memory_ids(events: Sequence[Stored]) -> list[str]:
    """Return the ids of those notes that were kept over REST."""
    notes = [payload_of(event.event).get("note") for event in events]
    ids = [note.get("id") for note in notes if isinstance(note, dict) and "memory" in note]
    return sorted({note_id for note_id in ids if isinstance(note_id, str)})
