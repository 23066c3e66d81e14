"""Looking up one note by its id or its text, and the errors for a note that its caller does not get."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import NoteHeld, NoteNotFound
from myria.log.scopes import scope_key
from myria.log.withdrawal.commands import MaySee
from myria.log.withdrawal.model import WITHHELD
from myria.log.withdrawal.projection import withheld
from myria.notes.drafting import NoteText
from myria.notes.expiry import Lasting


class NoteRows:
    """The current rows of notes (`notes.current`), live ones and others."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def current(self, tenant: str, note_id: str, may_see: MaySee) -> asyncpg.Record:
        """Return a note's row, whether it is live or not.

        Args:
            may_see: tells whether the caller may see what given participants see.

        Raises:
            NoteNotFound: absent, or of others.
        """
        async with self._database.read(tenant) as connection:
            row = await connection.fetchrow(sql("notes.current"), tenant, [note_id])
        if row is None or not may_see(row["participants"]):
            raise note_absent(note_id)
        return row

    async def live(self, tenant: str, note_id: str, may_see: MaySee, now: int | None) -> asyncpg.Record:
        """Return a live note's row.

        Args:
            may_see: tells whether the caller may see what given participants see.
            now: in microseconds since 1970 UTC; None for the database's clock.

        Raises:
            NoteNotFound: absent, of others, withdrawn, or expired.
            NoteHeld: it waits for a review, or was refused in one.
        """
        row = await self.current(tenant, note_id, may_see)
        if not await self.is_live(row, now):
            raise note_gone(row)
        return row

    async def is_live(self, row: asyncpg.Record, now: int | None) -> bool:
        """Tell whether a note is neither withdrawn nor expired."""
        return row["live"] and not Lasting.of(row).has_expired(await self._database.now() if now is None else now)

    async def duplicate(self, tenant: str, participants: tuple[str, ...], note: NoteText) -> str | None:
        """Return the id of a live note with the same participants, kind, session and content, or None."""
        # A lasting note repeats an equal one of any session, so only session notes are compared by their session.
        session = (note.session_id or "") if note.lifetime == "session" else ""
        async with self._database.read(tenant) as connection:
            note_id: str | None = await connection.fetchval(
                sql("notes.live_by_digest"), tenant, scope_key(participants), note.kind, session, note.content
            )
        return note_id

    async def successors(self, tenant: str, note_id: str) -> list[str]:
        """Return the ids of the notes that replaced a note."""
        async with self._database.read(tenant) as connection:
            return [row["note_id"] for row in await connection.fetch(sql("notes.successors"), tenant, note_id)]


def anybody(_: Sequence[str]) -> bool:
    """Let every note be seen: its caller proved before that it may."""
    return True


def note_absent(note_id: str) -> NoteNotFound:
    """Return the error for a note that is absent, of others, or withdrawn: the same for all three."""
    return NoteNotFound(f"no note {note_id} is visible to you", note_id=note_id)


def note_gone(row: asyncpg.Record) -> NoteNotFound | NoteHeld:
    """Return the error for a note that its caller may see and that is not live, by its row of `notes.current`."""
    return withheld(row["note_id"], row["reason"]) if row["reason"] in WITHHELD else note_absent(row["note_id"])


async def why_gone(database: Database, tenant: str, note_id: str, may_see: MaySee) -> NoteNotFound | NoteHeld:
    """Return the error for a note that was not found among live ones."""
    async with database.read(tenant) as connection:
        row = await connection.fetchrow(sql("notes.current"), tenant, [note_id])
    return note_absent(note_id) if row is None or not may_see(row["participants"]) else note_gone(row)
