"""What stands around recalled notes, so that a reader sees how each came about (Memento's contract).

That is what links lead to from it, and what its session kept shortly before and after.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import asyncpg

from myria.db.clock import rfc3339_of, to_microseconds
from myria.db.database import Database
from myria.db.queries import sql
from myria.log.withdrawal.commands import MaySee
from myria.notes.expiry import DAY_US, Lasting
from myria.notes.fragments import Fragment, Json
from myria.notes.kinds import tier
from myria.notes.links import LinkedNote, NoteLinks
from myria.notes.questions import RecallQuery
from myria.search.handles import NOTE_PREFIX, Handles
from myria.text.passages import passage

_NEARBY = 3
"""Notes of its session that are told beside one."""

_NEARBY_WITHIN_US = 30 * 60 * 10**6
"""Microseconds that they are away from it at most."""

_PREVIEW = 60
"""Characters of a note to which a link leads."""


class Surroundings:
    """Looks around notes, from one process.

    Args:
        database: where notes are read.
        links: those of notes.
        handles: gives those of a tenant.
        linked_limit: how many further notes links bring in at most.
    """

    def __init__(
        self,
        database: Database,
        links: NoteLinks,
        handles: Callable[[str], Awaitable[Handles]],
        *,
        linked_limit: int,
    ) -> None:
        self._database = database
        self._links = links
        self._handles = handles
        self._linked_limit = linked_limit

    async def of(
        self,
        tenant: str,
        query: RecallQuery,
        memories: Sequence[Fragment],
        *,
        may_see: MaySee,
        relations: Sequence[str],
        nearby: bool,
    ) -> list[Fragment]:
        """Return memories with what is around them, and behind all of them what links lead to, one hop.

        Args:
            query: which found them.
            relations: those by which further notes come in; links of all are told.
            nearby: whether to tell what their sessions kept beside them.
        """
        fragments = list(memories)
        found = [fragment.note_id for fragment in fragments if fragment.note_id is not None]
        if not found:
            return fragments
        linked = await self._links.beside(
            tenant,
            found,
            may_see=may_see,
            relations=relations,
            session_id=query.session_id,
            limit=self._linked_limit,
        )
        near = await self._near(tenant, found, query) if nearby else {}
        for place, fragment in enumerate(fragments):
            note_id = fragment.note_id or ""
            if note_id in linked.leading or note_id in near:
                leading = tuple(
                    {
                        "id": note.note_id,
                        "relation_type": relation,
                        "preview": passage(note.text, query.sought, _PREVIEW),
                    }
                    for note, relation in linked.leading.get(note_id, ())
                )
                fragments[place] = replace(fragment, linked=leading, nearby=near.get(note_id, ()))
        if linked.beside:
            handles = await self._handles(tenant)
            fragments += [
                _linked_fragment(note, relation, NOTE_PREFIX + handles.of(note.first_seq), now=query.now)
                for note, relation in linked.beside
                if not (query.kinds and note.kind not in query.kinds) and note.note_id not in query.without
            ]
        return fragments

    async def _near(self, tenant: str, note_ids: Sequence[str], query: RecallQuery) -> dict[str, tuple[Json, ...]]:
        """Return the notes near each of some others, in the order of time.

        Near ones are for the same people, so whoever sees a note may see them, too.
        """
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("notes.nearby"), tenant, list(note_ids), _NEARBY, query.session_id)
        near: dict[str, list[asyncpg.Record]] = {}
        for row in rows:
            if _distance(row) < _NEARBY_WITHIN_US and not Lasting.of(row).has_expired(query.now):
                near.setdefault(row["of_note"], []).append(row)
        shown: dict[str, tuple[Json, ...]] = {}
        for note_id, found in near.items():
            nearest = sorted(found, key=_distance)[:_NEARBY]
            shown[note_id] = tuple(
                {
                    "id": row["note_id"],
                    "content": row["text"],
                    "type": row["kind"],
                    "created_at": rfc3339_of(row["changed_at"]),
                }
                for row in found
                if row in nearest
            )
        return shown


def _distance(row: asyncpg.Record) -> int:
    """Return how far apart two notes are in time, in microseconds."""
    return abs(to_microseconds(row["changed_at"]) - to_microseconds(row["of_moment"]))


def _linked_fragment(note: LinkedNote, relation: str, handle: str, *, now: int) -> Fragment:
    """Return a note that a link leads to as a memory, behind all that were found."""
    return Fragment(
        note_id=note.note_id,
        event_id=None,
        handle=handle,
        text=note.text,
        speaker=note.speaker,
        at=note.at,
        score=0,
        key=(0, 0, 0, 0),
        lane="links",
        kind=note.kind,
        topic=note.topic,
        keywords=note.keywords,
        importance=note.importance,
        tier=tier(note.kind, note.importance, anchor=False, age_days=0, idle_days=0),
        relation=relation,
        age_days=max(0, now - note.at) // DAY_US,
    )
