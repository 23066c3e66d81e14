"""Add to recalled notes what surrounds them, so that a reader sees how each came about (Memento's contract).

That is the notes to which their links lead, and the notes that the same session kept shortly before and after.
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
"""Notes of the same session that are shown beside a note."""

_NEARBY_WITHIN_US = 30 * 60 * 10**6
"""Microseconds by which these differ in time from the note at most."""

_PREVIEW = 60
"""Characters that are shown of a note to which a link leads."""


class Surroundings:
    """Looks around notes, from one process.

    Args:
        database: where notes are read.
        links: the links of notes.
        handles: returns the handles of a tenant.
        linked_limit: how many linked notes are added to the memories at most.
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
        """Return memories with their surroundings, and behind all of them the notes that they are linked with, one hop.

        Args:
            query: the query that found the memories.
            relations: by whose links further notes are added; a memory shows its links of all relations.
            nearby: whether to show what the memories' sessions kept shortly before and after.
        """
        fragments = list(memories)
        note_ids = [fragment.note_id for fragment in fragments if fragment.note_id is not None]
        if not note_ids:
            return fragments
        linked = await self._links.beside(
            tenant,
            note_ids,
            may_see=may_see,
            relations=relations,
            session_id=query.session_id,
            limit=self._linked_limit,
        )
        nearby_notes = await self._near(tenant, note_ids, query) if nearby else {}
        for place, fragment in enumerate(fragments):
            note_id = fragment.note_id or ""
            if note_id in linked.leading or note_id in nearby_notes:
                leading = tuple(
                    {
                        "id": note.note_id,
                        "relation_type": relation,
                        "preview": passage(note.text, query.sought, _PREVIEW),
                    }
                    for note, relation in linked.leading.get(note_id, ())
                )
                fragments[place] = replace(fragment, linked=leading, nearby=nearby_notes.get(note_id, ()))
        if linked.beside:
            handles = await self._handles(tenant)
            fragments += [
                _linked_fragment(note, relation, NOTE_PREFIX + handles.of(note.first_seq), now=query.now)
                for note, relation in linked.beside
                if not (query.kinds and note.kind not in query.kinds) and note.note_id not in query.without
            ]
        return fragments

    async def _near(self, tenant: str, note_ids: Sequence[str], query: RecallQuery) -> dict[str, tuple[Json, ...]]:
        """Return for each of some notes those that its session kept shortly before and after, by time, as JSON.

        These have the same participants, so whoever may see the note may see them, too.
        """
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("notes.nearby"), tenant, list(note_ids), _NEARBY, query.session_id)
        rows_of_note: dict[str, list[asyncpg.Record]] = {}
        for row in rows:
            if _distance(row) < _NEARBY_WITHIN_US and not Lasting.of(row).has_expired(query.now):
                rows_of_note.setdefault(row["of_note"], []).append(row)
        shown: dict[str, tuple[Json, ...]] = {}
        for note_id, rows_by_time in rows_of_note.items():
            nearest = sorted(rows_by_time, key=_distance)[:_NEARBY]
            shown[note_id] = tuple(
                {
                    "id": row["note_id"],
                    "content": row["text"],
                    "type": row["kind"],
                    "created_at": rfc3339_of(row["changed_at"]),
                }
                for row in rows_by_time
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
