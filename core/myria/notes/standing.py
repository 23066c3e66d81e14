"""How a note stands: its versions with their events, when it ends, how it is used, and what it replaced."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.withdrawal.commands import MaySee
from myria.notes.expiry import Lasting
from myria.notes.finding import note_absent
from myria.notes.histories import NoteVersion, history


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherNote:
    """A note that replaced another one, or was replaced; `text` is what it says, or said last."""

    note_id: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteStanding:
    """How a note stands for those who may see it; moments in microseconds since 1970 UTC.

    `versions` come newest first, and `event_ids` beside them. `expires_at` is when it ends if nothing prolongs it, None
    for never; `was_restored` says that it never does, since somebody brought it back. `replaced` are the notes that it
    replaced (the newest hundred), and `replaced_by` those that replaced it, each in its turn.
    """

    note_id: str
    participants: tuple[str, ...]
    context_id: str | None
    versions: tuple[NoteVersion, ...]
    event_ids: tuple[str, ...]
    is_live: bool
    tier: str
    expires_at: int | None
    was_restored: bool
    uses: int
    used_at: int | None
    replaced: tuple[OtherNote, ...]
    replaced_by: tuple[OtherNote, ...]


async def standing(database: Database, tenant: str, note_id: str, *, may_see: MaySee) -> NoteStanding:
    """Return how a note stands that is live, or that another note replaced.

    Args:
        may_see: tells whether the caller may see what given participants see.

    Raises:
        NoteNotFound: absent, of others, forgotten or expired.
    """
    now = await database.now()
    past = await history(database, tenant, note_id, may_see=may_see, now=now)
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("notes.current"), tenant, [note_id, *past.superseded_by])
        replaced = await connection.fetch(sql("notes.replaced_notes"), tenant, note_id, list(past.event_ids))
    row_of = {row["note_id"]: row for row in rows}
    if note_id not in row_of:
        raise note_absent(note_id)  # deleted meanwhile
    row = row_of[note_id]
    lasting = Lasting.of(row)
    return NoteStanding(
        note_id=note_id,
        participants=tuple(row["participants"]),
        context_id=row["context_id"],
        versions=past.versions,
        event_ids=past.event_ids,
        is_live=row["live"],
        tier=lasting.tier(now),
        expires_at=lasting.expires_at,
        was_restored=lasting.restored,
        uses=row["uses"],
        used_at=None if row["used_at"] is None else to_microseconds(row["used_at"]),
        replaced=tuple(
            OtherNote(note_id=old["note_id"], text=old["text"]) for old in replaced if may_see(old["participants"])
        ),
        replaced_by=tuple(_other(row_of[newer]) for newer in past.superseded_by if newer in row_of),
    )


def _other(row: asyncpg.Record) -> OtherNote:
    return OtherNote(note_id=row["note_id"], text=orjson.loads(row["payload"])["text"])
