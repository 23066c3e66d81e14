"""The fold of notes, in the append transaction: the current version of each, and that no scope holds one twice."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from myria.errors import NoteExists
from myria.notes.model import NOTE_TYPE
from myria.projections import Incoming, Stored
from myria.store.database import Connection
from myria.store.queries import sql
from myria.withdrawal.model import WITHDRAWAL_TYPE

_ONCE = "notes_once"


class NoteProjection:
    """Folds notes and their withdrawals into `notes`; implements `myria.projections.Projection`.

    It stands after the projection of withdrawals, whose rows it reads.
    """

    types = frozenset({NOTE_TYPE, WITHDRAWAL_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Nothing must stand before: an index refuses what may not be."""

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the notes of a commit, then those whose current version it withdrew or restored.

        Raises:
            NoteExists: a live note of the scope says the same already, also one that the same commit brings.
        """
        notes = [event.event_seq for event in events if event.event.type == NOTE_TYPE]
        withdrawals = [event.event_seq for event in events if event.event.type == WITHDRAWAL_TYPE]
        try:
            if notes:
                await connection.execute(sql("notes.fold"), tenant, notes)
            if withdrawals:
                await connection.execute(sql("notes.fold_withdrawals"), tenant, withdrawals)
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name != _ONCE:
                raise
            raise NoteExists("a note with this text is kept already for the same people; nothing was stored") from error
