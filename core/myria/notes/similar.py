"""Find notes similar to a new one, which may repeat or contradict them; that is for people to judge.

The new note is compared with the newest notes of the same people and of the pool: a bounded number, by one index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from myria.db.database import Database
from myria.db.queries import sql
from myria.log.scopes import scope_key
from myria.notes.expiry import Lasting
from myria.notes.likeness import BEGINNING, said_by, similarity
from myria.notes.model import Remembered

LOOKED_AT = 24
"""Notes that a new note is compared with."""

MOST = 3
"""Similar notes that are returned at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """A note that is like another; `similarity` is the share of words that both have, of those that either has."""

    note_id: str
    text: str
    similarity: float


async def similar_notes(
    database: Database, tenant: str, kept: Remembered, scopes: Sequence[tuple[str, ...]]
) -> list[Alike]:
    """Return live notes of given scopes that are similar to a note just kept, the most similar first.

    Args:
        scopes: the participants of each scope, in canonical form.
    """
    now = await database.now()
    new_words = said_by(kept.note.content, kept.note.keywords)
    async with database.read(tenant) as connection:
        keys = list(map(scope_key, scopes))
        # One more, since the new note itself is among the newest.
        rows = await connection.fetch(sql("notes.newest"), tenant, keys, LOOKED_AT + 1, BEGINNING)
        similarities = {
            row["event_seq"]: alike
            for row in rows
            if row["note_id"] != kept.note_id and (alike := similarity(new_words, said_by(*orjson.loads(row["said"]))))
        }
        if not similarities:
            return []
        live_rows = await connection.fetch(sql("notes.of_versions"), tenant, list(similarities))
    live_rows = [row for row in live_rows if not Lasting.of(row).has_expired(now)]
    live_rows.sort(key=lambda row: (-similarities[row["event_seq"]], -row["event_seq"]))
    return [
        Alike(note_id=row["note_id"], text=row["text"], similarity=similarities[row["event_seq"]])
        for row in live_rows[:MOST]
    ]
