"""The fold of memories, in the append transaction: of those with one key, one is kept within its window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from myria.db.arrays import plain, texts
from myria.db.clock import to_rfc3339
from myria.db.database import Connection
from myria.db.locks import memory_lock_keys
from myria.db.queries import sql
from myria.errors import DuplicateMemory
from myria.log.projections import Incoming, Projection, Stored, payload_of
from myria.notes.memories.model import MemoryRow
from myria.notes.model import NOTE_TYPE, is_memory
from myria.notes.projection import note_exists

_SECOND = 1_000_000


class _Keyed(NamedTuple):
    """A new memory of which repeats are refused, and since when another with its key is the same."""

    event: Incoming
    key: str
    shared: str
    since: str


class MemoryProjection(Projection):
    """Folds memories into `notes` and `memories`; implements `myria.log.projections.Projection`.

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
        """Refuse a repeat: of what this process made, one in the same commit, as `fold` locks and looks up their keys.

        An import repeats what happened elsewhere: nothing of it is refused.

        Raises:
            DuplicateMemory: a memory with this key was kept within its window.
        """
        keyed = [] if importing else [one for event in events if (one := _keyed(event)) is not None]
        if not keyed:
            return
        standing: dict[int, tuple[str, str | None]] = {}
        if not all(isinstance(one.event.event.row, MemoryRow) for one in keyed):
            rows = await connection.fetch(sql("memories.locked"), tenant, *_asked(tenant, keyed))
            standing = {row["place"]: (row["event_id"], row["source_event_key"]) for row in rows}
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
            DuplicateMemory: a memory with the key of one was kept within its window.
            NoteExists: as of notes; of what looks like a memory and is none.
        """
        memories = [event for event in events if is_memory(event.event)]
        if not memories:
            return
        # In the order of their numbers and ids, which indexes take at less cost.
        made = sorted(
            (event.event_seq, event.scope_id, to_rfc3339(event.event.timestamp), *row.columns, row)
            for event in memories
            if isinstance(row := event.event.row, MemoryRow)
        )
        others = [event.event_seq for event in memories if event.event.row is None]
        try:
            if made:
                numbers, scopes, moments, *columns, rows_made = zip(*made, strict=True)
                standing = await connection.fetch(
                    sql("memories.fold_made"),
                    tenant,
                    plain(numbers),
                    plain(scopes),
                    *map(texts, (*columns, moments)),
                    *_asked(tenant, [row for row in rows_made if row.key is not None]),
                )
                if standing:
                    raise DuplicateMemory("duplicate memory")
            if others:
                await connection.execute(sql("memories.fold"), tenant, others)
            if self._evaluates:
                await connection.execute(sql("evaluations.enqueue"), tenant, _note_ids(memories))
        except asyncpg.UniqueViolationError as error:
            if (exists := note_exists(error)) is None:
                raise
            raise exists from error


def _asked(tenant: str, keyed: Sequence[_Keyed | MemoryRow]) -> tuple[str, str, str, str]:
    """Return the locks of memories' keys in their order, and the keys, since when and with whom they are kept once."""
    keys = [one.key for one in keyed if one.key is not None]
    return (
        _locks(tenant, keys),
        texts(keys),
        texts([one.since for one in keyed]),
        texts([one.shared for one in keyed]),
    )


def _locks(tenant: str, keys: Sequence[str]) -> str:
    return plain(sorted({*memory_lock_keys(tenant, keys)}))


def _note_ids(memories: Sequence[Stored]) -> list[str]:
    notes = [payload_of(event.event).get("note") for event in memories]
    return sorted({note["id"] for note in notes if isinstance(note, dict) and isinstance(note.get("id"), str)})


def _keyed(event: Incoming) -> _Keyed | None:
    row = event.event.row
    if isinstance(row, MemoryRow):
        return None if row.key is None else _Keyed(event, row.key, row.shared, row.since)
    if not is_memory(event.event):
        return None
    note = payload_of(event.event).get("note")
    if not isinstance(note, dict) or note.get("version") != 1 or not isinstance(about := note.get("memory"), dict):
        return None
    key, within, shared = about.get("dedup_key"), about.get("dedup_within_s"), about.get("shared_with")
    if not isinstance(key, str) or type(within) is not int or within <= 0 or not isinstance(shared, str):
        return None
    return _Keyed(event, key, shared, to_rfc3339(event.event.timestamp - within * _SECOND))
