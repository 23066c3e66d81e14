"""What the session of a note kept shortly before and after it, so that a reader sees how it came about."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from myria.db.clock import rfc3339_of, to_microseconds
from myria.db.database import Database
from myria.db.queries import sql
from myria.notes.expiry import Lasting
from myria.notes.fragments import Json

MOST = 3
"""Notes that are told of one."""

WITHIN_US = 30 * 60 * 10**6
"""Microseconds that they are away from it at most (Memento's contract)."""


async def nearby(
    database: Database, tenant: str, note_ids: Sequence[str], *, session_id: str | None, now: int
) -> dict[str, tuple[Json, ...]]:
    """Return the notes near each of some others that the caller may see, in the order of time; near ones are for the
    same people, so the caller may see them, too.

    Args:
        session_id: whose own notes may be among them.
        now: in microseconds since 1970 UTC: what has expired by then is left out.
    """
    if not note_ids:
        return {}
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("notes.nearby"), tenant, list(note_ids), MOST, session_id)
    near: dict[str, list[asyncpg.Record]] = {}
    for row in rows:
        if _distance(row) < WITHIN_US and not Lasting.of(row).has_expired(now):
            near.setdefault(row["of_note"], []).append(row)
    return {note_id: tuple(map(_shown, _nearest(found))) for note_id, found in near.items()}


def _distance(row: asyncpg.Record) -> int:
    """Return how far apart two notes are in time, in microseconds."""
    return abs(to_microseconds(row["changed_at"]) - to_microseconds(row["of_moment"]))


def _nearest(rows: Sequence[asyncpg.Record]) -> list[asyncpg.Record]:
    chosen = sorted(rows, key=_distance)[:MOST]
    return [row for row in rows if row in chosen]


def _shown(row: asyncpg.Record) -> Json:
    return {
        "id": row["note_id"],
        "content": row["text"],
        "type": row["kind"],
        "created_at": rfc3339_of(row["changed_at"]),
    }
