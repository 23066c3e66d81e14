"""Notes that are like a new one: it may say the same in other words, or contradict them; that is for people to judge.

Looked at are the newest notes of the same people, a bounded number by one index, so that keeping a note stays cheap.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from myria.notes.expiry import Lasting
from myria.scopes import scope_key
from myria.store.database import Database
from myria.store.queries import sql

LOOKED_AT = 24
"""Notes that are compared."""

MOST = 3
"""Notes that are named."""

ALIKE = 0.5
"""Share of common words, of all words of both, from which two notes are alike."""

_BEGINNING = 2_000
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
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

    async def to(self, tenant: str, participants: tuple[str, ...], content: str, *, but: str) -> list[Alike]:
        """Return live notes of exactly these participants that are like a text, most alike first.

        Args:
            participants: canonical.
            but: the id of a note that is not meant.
        """
        words = _words(content)
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("links.newest"), tenant, scope_key(participants), LOOKED_AT)
            found = [
                Alike(note_id=row["note_id"], text=row["text"], similarity=share)
                for row in rows
                if row["note_id"] != but and (share := _share(words, _words(row["text"]))) >= ALIKE
            ]
            if not found:
                return []
            standing = await connection.fetch(sql("links.notes"), tenant, [other.note_id for other in found])
        now = time.time_ns() // 1000
        stand = {row["note_id"] for row in standing if not Lasting.of(row).has_expired(now)}
        alike = [other for other in found if other.note_id in stand]
        return sorted(alike, key=lambda other: (-other.similarity, other.note_id))[:MOST]


def similarity(first: str, second: str) -> float:
    """Return the share of words that two texts have in common, of all words of both: Jaccard's index."""
    return _share(_words(first), _words(second))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text[:_BEGINNING].casefold()))


def _share(one: set[str], other: set[str]) -> float:
    return round(len(one & other) / len(one | other), 3) if one or other else 0.0
