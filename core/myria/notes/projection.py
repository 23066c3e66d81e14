"""The fold of notes, in the append transaction: the current version of each, and that nothing is kept twice.

No scope holds two live notes that say the same; of memories with one deduplication key one is kept within its window.

Whoever keeps a note may want to know which notes are like it, of the same people or of a pool beside. The statement
that folds it answers with the newest of them, so that costs no round trip; what they say is read once in a process
(`NewestNotes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg
import orjson

from myria.db.database import Connection
from myria.db.locks import memory_lock_keys
from myria.db.queries import sql
from myria.errors import DuplicateMemory, NoteExists
from myria.log.event import NewEvent
from myria.log.projections import Incoming, Likenesses, Projection, Stored, payload_of
from myria.log.withdrawal.model import WITHDRAWAL_TYPE
from myria.notes.likeness import BEGINNING, LOOKED_AT, NewestNotes, Said, said_by, those_alike
from myria.notes.model import NOTE_TYPE

_ONCE = "notes_once"
_MEMORY_MARK = b'"memory":{'
_SECOND = 1_000_000

_MOST_SCOPES = 1_000
"""Scopes, compared beside those of notes, whose numbers a process knows: it asks again for the words of others."""


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
        self._newest = NewestNotes()
        self._scope_ids: dict[tuple[str, bytes], int] = {}

    def forget(self, tenant: str) -> None:
        """Forget what is kept in this process of a tenant's notes."""
        self._newest.forget(tenant)
        for known in [known for known in self._scope_ids if known[0] == tenant]:
            self._scope_ids.pop(known)

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
        await connection.execute(sql("memories.lock"), sorted({*memory_lock_keys(tenant, keys)}))
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

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> Likenesses:
        """Write the rows of the notes of a commit, then those whose current version it withdrew or restored.

        Returns:
            the notes that those are like whose callers want to know.

        Raises:
            NoteExists: a live note of the scope says the same already, also one that the same commit brings.
        """
        notes = [event for event in events if event.event.type == NOTE_TYPE]
        withdrawals = [event.event_seq for event in events if event.event.type == WITHDRAWAL_TYPE]
        likenesses: Likenesses = {}
        try:
            if notes:
                likenesses = await self._fold_notes(connection, tenant, notes)
            if withdrawals:
                await connection.execute(sql("notes.fold_withdrawals"), tenant, withdrawals)
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != _ONCE:
                raise
            raise NoteExists("a note with this text is kept already for the same people; nothing was stored") from error
        return likenesses

    async def _fold_notes(self, connection: Connection, tenant: str, notes: Sequence[Stored]) -> Likenesses:
        asking = _asking(notes)
        held: list[asyncpg.Record] = []
        if asking:
            held = await connection.fetch(sql("notes.held_before"), tenant, *self._looked_up(tenant, notes))
        await connection.execute(sql("notes.fold"), tenant, [event.event_seq for event in notes])
        if self._evaluates and (memories := [event for event in notes if _is_memory(event.event)]):
            await connection.execute(sql("evaluations.enqueue"), tenant, _note_ids(memories))
        return self._likenesses(tenant, held, asking)

    def _looked_up(self, tenant: str, notes: Sequence[Stored]) -> tuple[Any, ...]:
        """Return in which scopes what is like notes is looked for, and what of them is known here already."""
        asking = _asking(notes)
        further = sorted({key for event in notes for key in event.compare or ()})
        looked_at = {*asking, *(self._scope_ids[tenant, key] for key in further if (tenant, key) in self._scope_ids)}
        known = [number for scope_id in looked_at for number in self._newest.of(tenant, scope_id)]
        return list(asking), known, LOOKED_AT, BEGINNING, further

    def _likenesses(
        self,
        tenant: str,
        rows: Sequence[asyncpg.Record],
        asking: Mapping[int, Sequence[Stored]],
    ) -> Likenesses:
        """Return what new notes are like, of those that scopes held before and of each other.

        Args:
            rows: of each scope what `notes.held_before` tells.
            asking: the new notes whose callers want to know, by their scopes.
        """
        beside: dict[bytes, list[tuple[int, Said]]] = {}
        own: list[tuple[int, list[tuple[int, Said]], dict[int, Said], Sequence[int]]] = []
        for row in rows:
            scope_id, scope_key = row["scope_id"], row["scope_key"]
            numbers, texts = row["event_seqs"] or (), row["texts"] or ()
            read = {
                number: said_by(*orjson.loads(text))
                for number, text in zip(numbers, texts, strict=True)
                if text is not None
            }
            known = {**self._newest.of(tenant, scope_id), **read}
            others = [(number, known[number]) for number in numbers if number in known]
            if scope_key is None:
                own.append((scope_id, others, read, numbers))
            else:
                beside[scope_key] = others
                self._scope_ids[tenant, scope_key] = scope_id
                self._newest.learn(tenant, scope_id, read, standing=numbers)
        while len(self._scope_ids) > _MOST_SCOPES:
            self._scope_ids.pop(next(iter(self._scope_ids)))
        likenesses: dict[int, tuple[tuple[int, float], ...]] = {}
        for scope_id, others, read, numbers in own:
            for event in sorted(asking[scope_id], key=lambda event: event.event_seq):
                # Notes of one commit are compared in the order of their numbers, each with the newest before it.
                payload = payload_of(event.event)
                read[event.event_seq] = said = said_by(payload["text"], payload["note"]["keywords"])
                elsewhere = [other for key in event.compare or () for other in beside.get(key, ())]
                likenesses[event.event_seq] = those_alike(said, [*others, *elsewhere])
                if payload["note"]["lifetime"] != "session":
                    others = [(event.event_seq, said), *others[: LOOKED_AT - 1]]
            self._newest.learn(tenant, scope_id, read, standing=numbers)
        return likenesses


def _asking(notes: Sequence[Stored]) -> Mapping[int, Sequence[Stored]]:
    """Return the notes whose callers want to know what is like them, by their scopes."""
    asking: defaultdict[int, list[Stored]] = defaultdict(list)
    for event in notes:
        if event.compare is not None:
            asking[event.scope_id].append(event)
    return asking


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
