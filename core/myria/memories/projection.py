"""The fold of memories, in the append transaction: of those with one key, one is kept within its window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from myria.errors import DuplicateMemory
from myria.notes.model import NOTE_TYPE
from myria.projections import Incoming, Stored
from myria.store.clock import to_datetime
from myria.store.database import Connection
from myria.store.locks import memory_lock_key
from myria.store.queries import sql

_MARK = b'"memory":{'
_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A new memory of which repeats are refused, and since when another with its key is the same."""

    event: Incoming
    key: str
    shared: str
    since: int


class MemoryProjection:
    """Folds memories into `memories`; implements `myria.projections.Projection`.

    It stands after the projection of notes, whose rows it reads.
    """

    types = frozenset({NOTE_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Lock the keys of new memories, and refuse a repeat.

        An import repeats what happened elsewhere: nothing of it is refused.

        Raises:
            DuplicateMemory: a memory with this key was kept within its window.
        """
        keyed = [] if importing else [one for event in events if (one := _keyed(event)) is not None]
        if not keyed:
            return
        await connection.execute(sql("memories.lock"), sorted({memory_lock_key(tenant, one.key) for one in keyed}))
        rows = await connection.fetch(
            sql("memories.standing"),
            tenant,
            [one.key for one in keyed],
            [to_datetime(one.since) for one in keyed],
            [one.shared for one in keyed],
        )
        coming: dict[tuple[str, str], tuple[str, str | None]] = {}
        for one, row in zip(keyed, rows, strict=True):
            own = (one.event.event_id, one.event.event.source_event_key)
            stored = None if row["event_id"] is None else (row["event_id"], row["source_event_key"])
            before = coming.setdefault((one.key, one.shared), stored or own)
            # The same event again, or one with its source key, is a repeat that is answered as the first.
            if before[0] != own[0] and (own[1] is None or before[1] != own[1]):
                raise DuplicateMemory("duplicate memory", dedup_key=one.key)

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the memories of a commit."""
        numbers = [event.event_seq for event in events if _MARK in event.event.payload_json]
        if numbers:
            await connection.execute(sql("memories.fold"), tenant, numbers)


def _keyed(event: Incoming) -> _Keyed | None:
    if _MARK not in event.event.payload_json:
        return None
    note = orjson.loads(event.event.payload_json).get("note")
    about = note.get("memory") if isinstance(note, dict) else None
    if not isinstance(about, dict) or note.get("version") != 1:
        return None
    key, within, shared = about.get("dedup_key"), about.get("dedup_within_s"), about.get("shared_with")
    if not isinstance(key, str) or type(within) is not int or within <= 0 or not isinstance(shared, str):
        return None
    return _Keyed(event, key, shared, event.event.timestamp - within * _SECOND)
