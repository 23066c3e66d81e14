"""The fold of notes, in the append transaction: the current version of each, and that no scope holds one twice.

Whoever keeps a note may want to know which notes of the same people are like it. The statement that folds it answers
with the newest of them, so that costs no round trip; what they say is read once in a process (`NewestNotes`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import asyncpg
import orjson

from myria.errors import NoteExists
from myria.notes.likeness import BEGINNING, LOOKED_AT, NewestNotes, those_alike, words_of
from myria.notes.model import NOTE_TYPE
from myria.projections import Incoming, Likenesses, Stored
from myria.store.database import Connection
from myria.store.queries import sql
from myria.withdrawal.model import WITHDRAWAL_TYPE

_ONCE = "notes_once"


class NoteProjection:
    """Folds notes and their withdrawals into `notes`; implements `myria.projections.Projection`.

    It stands after the projection of withdrawals, whose rows it reads.
    """

    types = frozenset({NOTE_TYPE, WITHDRAWAL_TYPE})

    def __init__(self) -> None:
        self._newest = NewestNotes()

    def forget(self, tenant: str) -> None:
        """Forget what is kept in this process of a tenant's notes."""
        self._newest.forget(tenant)

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Nothing must stand before: an index refuses what may not be."""

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
        asking: defaultdict[int, list[Stored]] = defaultdict(list)
        for event in notes:
            if event.compare:
                asking[event.scope_id].append(event)
        rows = await connection.fetch(
            sql("notes.fold"),
            tenant,
            [event.event_seq for event in notes],
            list(asking),
            [number for scope_id in asking for number in self._newest.of(tenant, scope_id)],
            LOOKED_AT,
            BEGINNING,
        )
        likenesses: dict[int, tuple[tuple[int, float], ...]] = {}
        for row in rows:
            scope_id = row["scope_id"]
            numbers, texts = row["event_seqs"] or (), row["texts"] or ()
            read = {number: words_of(text) for number, text in zip(numbers, texts, strict=True) if text is not None}
            words = {**self._newest.of(tenant, scope_id), **read}
            others = [(number, words[number]) for number in numbers if number in words]
            for event in sorted(asking[scope_id], key=lambda event: event.event_seq):
                # Notes of one commit are compared in the order of their numbers, each with the newest before it.
                payload: dict[str, Any] = orjson.loads(event.event.payload_json)
                read[event.event_seq] = own = words_of(payload["text"])
                likenesses[event.event_seq] = those_alike(own, others)
                if payload["note"]["lifetime"] != "session":
                    others = [(event.event_seq, own), *others[: LOOKED_AT - 1]]
            self._newest.learn(tenant, scope_id, read, standing=numbers)
        return likenesses
