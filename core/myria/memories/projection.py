"""The fold of memories, in the append transaction: of those with one key, one is kept within its window."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from myria.errors import DuplicateMemory
from myria.notes.model import NOTE_TYPE, is_memory
from myria.notes.projection import note_exists
from myria.notes.rows import columns_of, new_notes, payloads_of, written_share
from myria.projections import Incoming, Stored, payload_of
from myria.store.arrays import plain, texts
from myria.store.clock import to_rfc3339
from myria.store.database import Connection
from myria.store.locks import memory_lock_key
from myria.store.queries import sql

_SECOND = 1_000_000
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


class _Keyed(NamedTuple):
    """A new memory of which repeats are refused, and since when another with its key is the same."""

    event: Incoming
    key: str
    shared: str
    since: int


class MemoryProjection:
    """Folds memories into `notes` and `memories`; implements `myria.projections.Projection`.

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
            plain(sorted({memory_lock_key(tenant, one.key) for one in keyed})),
            texts([one.key for one in keyed]),
            texts([to_rfc3339(one.since) for one in keyed]),
            texts([one.shared for one in keyed]),
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
        payloads = payloads_of(memories)
        notes, abouts = [], []
        # In the order of their numbers and ids, which indexes take at less cost: no two memories can be one note.
        for row in sorted(new_notes(memories, payloads)):
            if (about := _about(payloads[row.event_seq])) is not None:
                notes.append(row)
                abouts.append(about)
        try:
            folded: set[int] = set()
            if notes:
                columns = [*columns_of(notes), *map(texts, zip(*abouts, strict=True))]
                folded.update(await connection.fetchval(sql("memories.fold_new"), tenant, *columns) or ())
            others = [event.event_seq for event in memories if event.event_seq not in folded]
            if others:
                await connection.execute(sql("memories.fold"), tenant, others)
            if self._evaluates:
                await connection.execute(sql("evaluations.enqueue"), tenant, _note_ids(payloads.values()))
        except asyncpg.UniqueViolationError as error:
            if (exists := note_exists(error)) is None:
                raise
            raise exists from error


def _note_ids(payloads: Iterable[Mapping[str, Any]]) -> list[str]:
    notes = [payload.get("note") for payload in payloads]
    return sorted({note["id"] for note in notes if isinstance(note, dict) and isinstance(note.get("id"), str)})


class _About(NamedTuple):
    """What a memory has beside its note, column by column as `memories.fold_new` takes it."""

    agent_id: str
    event_type: str
    tags: str
    importance: str | None
    dedup_key: str | None


def _about(payload: Mapping[str, Any]) -> _About | None:
    """Return what the view of memories makes of the first version of one; None for what is not of the usual form."""
    note = payload["note"]
    about = note.get("memory")
    if not isinstance(about, dict) or "anchor" in note or note.get("lifetime") != "permanent":
        return None
    agent_id, event_type, tags = about.get("agent_id"), about.get("event_type"), about.get("tags")
    if type(agent_id) is not str or type(event_type) is not str:
        return None
    if type(tags) is not list or (tags and not all(type(tag) is str and _PLAIN.fullmatch(tag) for tag in tags)):
        return None
    importance = written_share(about["importance"]) if "importance" in about else None
    if "importance" in about and importance is None:
        return None
    dedup_key = about.get("dedup_key")
    if not (dedup_key is None or type(dedup_key) is str):
        return None
    written = "{" + ",".join(f'"{tag}"' for tag in tags) + "}" if tags else "{}"
    return _About(agent_id, event_type, written, importance, dedup_key)


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
