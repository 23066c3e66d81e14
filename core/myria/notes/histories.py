"""The history of a note: its versions, newest first, and the notes that replaced it."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.payloads import speaker_of
from myria.log.withdrawal.commands import MaySee
from myria.notes.drafting import NoteText
from myria.notes.expiry import Lasting
from myria.notes.finding import note_absent
from myria.notes.model import Amendment, amendment_of, note_of

MAX_VERSIONS = 100
"""Versions of a note that are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteVersion:
    """One version of a note; `at` in microseconds since 1970 UTC, `amendment` None where nobody said why it changed."""

    version: int
    note: NoteText
    speaker: str | None
    at: int
    amendment: Amendment | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteHistory:
    """A note's versions, newest first, with their events, and the notes that replaced it, each in its turn."""

    note_id: str
    versions: tuple[NoteVersion, ...]
    event_ids: tuple[str, ...]
    superseded_by: tuple[str, ...]


def has_history(row: asyncpg.Record, now: int) -> bool:
    """Tell of a note's row (`notes.current`) whether it stands, or another note replaced it; `now` in microseconds."""
    is_superseded = row["reason"] == "superseded"
    # A note replaced from an announced day on has an end date, yet it counts as replaced and not as expired.
    was_replaced = is_superseded and "replaced_by" in orjson.loads(row["payload"])["note"]
    return (row["live"] or is_superseded) and (was_replaced or not Lasting.of(row).has_expired(now))


async def history(
    database: Database, tenant: str, note_id: str, *, may_see: MaySee, now: int | None = None
) -> NoteHistory:
    """Return the history of a note that is live, or that another note replaced.

    Args:
        may_see: tells whether the caller may see what given participants see.
        now: in microseconds since 1970 UTC; left out, the database's clock.

    Raises:
        NoteNotFound: absent, of others, forgotten or expired.
    """
    now = await database.now() if now is None else now
    async with database.read(tenant) as connection:
        row = await connection.fetchrow(sql("notes.current"), tenant, [note_id])
        if row is None or not may_see(row["participants"]):
            raise note_absent(note_id)
        if not has_history(row, now):
            raise note_absent(note_id)
        versions = await connection.fetch(sql("notes.history"), tenant, note_id, MAX_VERSIONS)
        successors = await connection.fetch(sql("notes.successors"), tenant, note_id)
    return NoteHistory(
        note_id=note_id,
        versions=tuple(
            NoteVersion(
                version=payload["note"]["version"],
                note=note_of(payload, context_id=version["context_id"]),
                speaker=speaker_of(payload),
                at=to_microseconds(version["occurred_at"]),
                amendment=amendment_of(payload),
            )
            for version in versions
            if (payload := orjson.loads(version["payload"]))
        ),
        event_ids=tuple(version["event_id"] for version in versions),
        superseded_by=tuple(
            successor["note_id"]
            for successor in successors
            if may_see(successor["participants"]) and not Lasting.of(successor).has_expired(now)
        ),
    )
