"""Notes that are like a new one: it may say the same in other words, or contradict them; that is for people to judge.

Looked at are the newest notes of the same people, and of the pool beside them: a bounded number by one index. A new
note is compared in the transaction that keeps it (`NoteProjection`), so what is left to read here is what the few that
are alike say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from myria.db.database import Database
from myria.db.queries import sql
from myria.log.scopes import scope_key
from myria.notes.expiry import Lasting
from myria.notes.likeness import BEGINNING, LOOKED_AT, MOST, said_by, those_alike
from myria.notes.model import Remembered


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """A note that is like another; `similarity` is the share of words that both have, of those that either has."""

    note_id: str
    text: str
    similarity: float


class Similar:
    """Finds notes that are alike, in one process.

    Args:
        database: where notes are read.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, tenant: str, kept: Remembered, scopes: Sequence[tuple[str, ...]]) -> list[Alike]:
        """Return live notes of exactly these participants that are like one that was kept, most alike first.

        Args:
            scopes: canonical participants of each.
        """
        found = kept.alike
        if found is not None and not found:
            return []
        now = await self._database.now()
        async with self._database.read(tenant) as connection:
            if found is None:  # it was there before, or replaced others, so nothing compared it
                said = said_by(kept.note.content, kept.note.keywords)
                rows = await connection.fetch(
                    sql("notes.newest"), tenant, list(map(scope_key, scopes)), LOOKED_AT, BEGINNING
                )
                others = ((row["event_seq"], row["said"]) for row in rows if row["note_id"] != kept.note_id)
                found = those_alike(said, [(number, said_by(*orjson.loads(text))) for number, text in others])
            rows = await connection.fetch(sql("notes.of_versions"), tenant, [number for number, _ in found])
        standing = {row["event_seq"]: row for row in rows if not Lasting.of(row).has_expired(now)}
        return [
            Alike(note_id=standing[number]["note_id"], text=standing[number]["text"], similarity=similarity)
            for number, similarity in found
            if number in standing
        ][:MOST]
