"""The fold of memories, in the append transaction: of those with one key, one is kept within its window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from myria.db.arrays import plain, texts
from myria.db.clock import to_rfc3339
from myria.db.database import Connection
from myria.db.locks import memory_lock_keys
from myria.db.queries import sql
from myria.errors import DuplicateMemory
from myria.log.payloads import hints_json
from myria.log.projections import AtOnce, Incoming, Projection, Stored, numbers_alone, payload_of
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

    def at_once(self, tenant: str, folded: Mapping[int, Incoming], order: Sequence[int]) -> AtOnce | None:
        """Return how the memories of a commit are appended with their rows.

        Args:
            folded: all events of the commit of which something is folded, by their positions in it.
            order: the positions of all events, in the order in which they are inserted.

        Returns:
            None where they need statements of their own: of a session more is folded, two have one key, a model rates
            what is kept, or they are no memories that this process made.
        """
        made = list(folded.items())
        rows = [
            row for _, event in made if isinstance(row := event.event.row, MemoryRow) and event.event.context_id is None
        ]
        keyed = [row for row in rows if row.key is not None]
        if self._evaluates or len(rows) < len(made) or len({(row.key, row.shared) for row in keyed}) < len(keyed):
            return None
        own = _rows([place for place, _ in made], order)
        alike = _alike(tenant, list(folded.values()), rows) if own is None else None
        if alike is not None:
            return AtOnce("memories.append_alike", alike, numbers_alone, whole=True)
        columns = (
            own,
            *map(texts, zip(*[row.columns for row in rows], strict=True)),
            *_asked(tenant, keyed),
        )
        return AtOnce("memories.append_new", columns, numbers_alone)

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


def _alike(tenant: str, events: Sequence[Incoming], rows: Sequence[MemoryRow]) -> tuple[Any, ...] | None:
    """Return what `memories.append_alike` takes of memories, None where they differ in more than it knows."""
    first, like, hints = events[0], rows[0], events[0].event.topic_hints
    are_alike = (
        [row.form for row in rows].count(like.form)
        == [row.shared for row in rows].count(like.shared)
        == [event.scope_id for event in events].count(first.scope_id)
        == [event.event.topic_hints for event in events].count(hints)
        == len(events)
    )
    keys = [row.key for row in rows if row.key is not None]
    if not are_alike or len(keys) not in (0, len(rows)):
        return None
    times = [event.event.timestamp for event in events]
    calls = sorted({*zip(times, [row.since for row in rows], strict=True)})
    place_of = {timestamp: place for place, (timestamp, _) in enumerate(calls, 1)}
    if len(place_of) < len(calls):
        return None
    kind, topic, weight, _, agent, event_type, tags, importance = like.form
    return (
        texts([event.event_id for event in events]),
        [event.event.payload_json.decode() for event in events],
        texts([row.memory_id for row in rows]),
        texts([row.digest for row in rows]),
        texts([row.dedup for row in rows]),
        plain([place_of[timestamp] for timestamp in times]),
        texts([to_rfc3339(timestamp) for timestamp, _ in calls]),
        _locks(tenant, keys),
        texts([since for _, since in calls]),
        like.shared,
        first.scope_id,
        hints_json(hints),
        kind,
        topic,
        weight,
        agent,
        event_type,
        tags,
        importance,
    )


def _rows(places: Sequence[int], order: Sequence[int]) -> str | None:
    """Return the rows of these events in that order, None where they are all there are, one after the other."""
    if len(places) == len(order) and isinstance(order, range):
        return None
    row_of = {place: row for row, place in enumerate(order, 1)}
    return plain([row_of[place] for place in places])


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
