"""The fold of memories, in the append transaction: of those with one key, one is kept within its window."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime

import asyncpg
import orjson

from myria.errors import DuplicateMemory
from myria.notes.kinds import FACT_KINDS
from myria.notes.model import NOTE_CHANNEL, NOTE_TYPE, is_memory
from myria.notes.projection import note_exists
from myria.projections import Incoming, Stored
from myria.store.clock import to_datetime
from myria.store.database import Connection
from myria.store.locks import memory_lock_key
from myria.store.queries import sql

_SECOND = 1_000_000
_UNUSUAL = frozenset({"previous", "anchor", "lasts_days"})
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A new memory of which repeats are refused, and since when another with its key is the same."""

    event: Incoming
    key: str
    shared: str
    since: int


class MemoryProjection:
    """Folds memories into `notes` and `memories`; implements `myria.projections.Projection`.

    It stands before the projection of notes, which leaves these to it and folds withdrawals after them.
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
        rows = await connection.fetch(
            sql("memories.locked"),
            tenant,
            sorted({memory_lock_key(tenant, one.key) for one in keyed}),
            [one.key for one in keyed],
            [to_datetime(one.since) for one in keyed],
            [one.shared for one in keyed],
        )
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
            NoteExists: as of notes; of what looks like a memory and is none.
        """
        memories = [event for event in events if is_memory(event.event)]
        if not memories:
            return
        new = [row for event in memories if (row := _new_row(event)) is not None]
        try:
            folded: set[int] = set()
            if new:
                new.sort(key=lambda row: (row.scope_id, row.digest))
                columns = zip(*(astuple(row) for row in new), strict=True)
                rows = await connection.fetch(sql("memories.fold_new"), tenant, *map(list, columns))
                folded = {row["event_seq"] for row in rows}
            others = [event.event_seq for event in memories if event.event_seq not in folded]
            if others:
                await connection.execute(sql("memories.fold"), tenant, others)
        except asyncpg.UniqueViolationError as error:
            if (exists := note_exists(error)) is None:
                raise
            raise exists from error


@dataclass(frozen=True, slots=True)
class _NewRow:
    """The first version of a memory, column by column as `memories.fold_new` takes it."""

    event_seq: int
    note_id: str
    scope_id: int
    kind: str
    topic: str
    note_importance: str
    context_id: str | None
    digest: bytes
    occurred_at: datetime
    agent_id: str
    event_type: str
    tags: str
    importance: str | None
    dedup_key: str | None


def _new_row(stored: Stored) -> _NewRow | None:
    """Return the rows that the view of memories makes of an event; None for whatever is not of the usual form."""
    event = stored.event
    payload = orjson.loads(event.payload_json)
    note, text = payload.get("note"), payload.get("text")
    if not isinstance(note, dict) or type(text) is not str or event.internal or event.channel != NOTE_CHANNEL:
        return None
    about = note.get("memory")
    if not isinstance(about, dict) or not _UNUSUAL.isdisjoint(note) or note.get("lifetime") != "permanent":
        return None
    importance, tags = about.get("importance"), about.get("tags")
    named = [note.get("id"), note.get("kind"), note.get("topic"), about.get("agent_id"), about.get("event_type")]
    if not all(type(name) is str for name in named) or type(note.get("version")) is not int or note["version"] != 1:
        return None
    if type(tags) is not list or not all(type(tag) is str and _PLAIN.fullmatch(tag) for tag in tags):
        return None
    if not _is_share(note.get("importance")) or not (importance is None or _is_share(importance)):
        return None
    if "importance" in about and importance is None:
        return None
    dedup_key = about.get("dedup_key")
    if not (dedup_key is None or type(dedup_key) is str) or note["kind"] in FACT_KINDS:
        return None
    return _NewRow(
        event_seq=stored.event_seq,
        note_id=note["id"],
        scope_id=stored.scope_id,
        kind=note["kind"],
        topic=note["topic"],
        note_importance=_written(note["importance"]),
        context_id=event.context_id,
        digest=hashlib.sha256(f"{note['kind']}\n{note['id']}\n{text}".encode()).digest(),
        occurred_at=to_datetime(event.timestamp),
        agent_id=about["agent_id"],
        event_type=about["event_type"],
        tags="{" + ",".join(f'"{tag}"' for tag in tags) + "}",
        importance=None if importance is None else _written(importance),
        dedup_key=dedup_key,
    )


def _is_share(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]


def _written(value: float) -> str:
    return orjson.dumps(value).decode()


def _keyed(event: Incoming) -> _Keyed | None:
    if not is_memory(event.event):
        return None
    note = orjson.loads(event.event.payload_json).get("note")
    about = note.get("memory") if isinstance(note, dict) else None
    if not isinstance(about, dict) or note.get("version") != 1:
        return None
    key, within, shared = about.get("dedup_key"), about.get("dedup_within_s"), about.get("shared_with")
    if not isinstance(key, str) or type(within) is not int or within <= 0 or not isinstance(shared, str):
        return None
    return _Keyed(event, key, shared, event.event.timestamp - within * _SECOND)
