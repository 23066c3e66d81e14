"""Links between notes: typed and directed, each an event of a reserved type, folded in the append transaction.

A link belongs to whoever may see both of its notes. It is internal, so it is never part of a topic.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import asyncpg
import orjson

from myria.contract.acknowledgement import AppendResult
from myria.contract.event import NewEvent
from myria.errors import InvalidArgument
from myria.events import speaker_of
from myria.notes.commands import note_absent
from myria.notes.expiry import Lasting
from myria.notes.model import NOTE_CHANNEL, note_of
from myria.projections import Incoming, Stored
from myria.store.clock import to_microseconds
from myria.store.database import Connection, Database
from myria.store.queries import sql
from myria.withdrawal.commands import MaySee

LINK_TYPE = "myria.link"

Relation = Literal["related", "caused_by", "resolved_by", "part_of", "contradicts"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)

CAUSES: tuple[Relation, ...] = ("caused_by", "resolved_by")
"""The relations that explain something."""

MAX_LINKS = 200
"""Links of which a look at a note makes use."""

Append = Callable[[str, Sequence[NewEvent]], Awaitable[list[AppendResult]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """From one note to another."""

    from_id: str
    to_id: str
    relation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedNote:
    """A note at one end of a link, as it stands; `at` is in microseconds since 1970 UTC."""

    note_id: str
    first_seq: int
    at: int
    speaker: str | None
    keywords: tuple[str, ...]
    text: str
    kind: str
    topic: str
    importance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """A note, those that links lead to and from, and the links between them."""

    start: LinkedNote
    neighbours: tuple[LinkedNote, ...]
    links: tuple[Link, ...]


def link_event(participants: tuple[str, ...], from_id: str, to_id: str, relation: Relation) -> NewEvent:
    """Return the event that links two notes.

    Args:
        participants: canonical; those of the note that it leads from.
    """
    return NewEvent(
        timestamp=time.time_ns() // 1000,
        channel=NOTE_CHANNEL,
        participants=participants,
        payload_json=orjson.dumps(
            {"link": {"from": from_id, "to": to_id, "relation": relation}}, option=orjson.OPT_SORT_KEYS
        ),
        type=LINK_TYPE,
        internal=True,
    )


class LinkProjection:
    """Folds links into `note_links`; implements `myria.projections.Projection`."""

    types = frozenset({LINK_TYPE})

    async def prepare(
        self, connection: Connection, tenant: str, events: Sequence[Incoming], *, importing: bool
    ) -> None:
        """Nothing must stand before."""

    async def fold(self, connection: Connection, tenant: str, events: Sequence[Stored]) -> None:
        """Write the rows of the links of a commit."""
        await connection.execute(sql("links.fold"), tenant, [event.event_seq for event in events])


class NoteLinks:
    """Links of notes, in one process.

    Args:
        database: where notes and links are read.
        append: how links reach the log.
    """

    def __init__(self, database: Database, append: Append) -> None:
        self._database = database
        self._append = append

    async def link(
        self, tenant: str, from_id: str, to_ids: Sequence[str], relation: Relation, *, may_see: MaySee
    ) -> None:
        """Link a note to others, all or none; a link that is there takes the relation.

        Raises:
            NoteNotFound: one is absent, of others, or withdrawn.
            InvalidArgument: a note would be linked to itself.
        """
        if from_id in to_ids:
            raise InvalidArgument("a note cannot be linked to itself", field="toId")
        rows = await self._named(tenant, [from_id, *to_ids], may_see)
        participants = tuple(rows[from_id]["participants"])
        await self._append(tenant, [link_event(participants, from_id, to_id, relation) for to_id in to_ids])

    async def complete(self, tenant: str, from_id: str, to_ids: Sequence[str], *, may_see: MaySee) -> None:
        """Link a note as related to those of others to which no link leads yet; itself is passed over.

        Raises:
            NoteNotFound: one is absent, of others, or withdrawn.
        """
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("links.among"), tenant, from_id, list(to_ids))
        known = {from_id, *(row["to_id"] for row in rows)}
        missing = [to_id for to_id in to_ids if to_id not in known]
        if missing:
            await self.link(tenant, from_id, missing, "related", may_see=may_see)

    async def check(self, tenant: str, note_ids: Sequence[str], *, may_see: MaySee) -> None:
        """Return where all these notes may be linked to.

        Raises:
            NoteNotFound: one is absent, of others, or withdrawn.
        """
        await self._named(tenant, note_ids, may_see)

    async def _named(self, tenant: str, note_ids: Sequence[str], may_see: MaySee) -> Mapping[str, asyncpg.Record]:
        rows = await self._notes(tenant, note_ids, may_see)
        for note_id in note_ids:
            if note_id not in rows:
                raise note_absent(note_id)
        return rows

    async def around(
        self, tenant: str, note_id: str, *, may_see: MaySee, relations: Sequence[str] = RELATIONS
    ) -> Neighbourhood:
        """Return a note, its neighbours by some relations in both directions, and the links.

        Raises:
            NoteNotFound: it is absent, of others, or withdrawn.
        """
        rows = await self._notes(tenant, [note_id], may_see)
        if note_id not in rows:
            raise note_absent(note_id)
        ends = await self._ends(tenant, [note_id], relations, may_see)
        notes = {row["note_id"]: row for row in ends}
        return Neighbourhood(
            start=_linked(rows[note_id]),
            neighbours=tuple(_linked(row) for row in notes.values()),
            links=tuple(Link(from_id=row["from_id"], to_id=row["to_id"], relation=row["relation"]) for row in ends),
        )

    async def beside(
        self,
        tenant: str,
        note_ids: Sequence[str],
        *,
        may_see: MaySee,
        relations: Sequence[str],
        session_id: str | None,
        limit: int,
    ) -> list[tuple[LinkedNote, str]]:
        """Return notes that links connect with some others, each with its relation; what resolves comes first.

        Args:
            session_id: whose notes may be among them, beside those of no session.
        """
        if not note_ids or not limit:
            return []
        notes: dict[str, asyncpg.Record] = {}
        ends = await self._ends(tenant, note_ids, relations, may_see)
        for row in sorted(ends, key=lambda row: row["relation"] != "resolved_by"):
            if not row["session"] or row["context_id"] == session_id:
                notes.setdefault(row["note_id"], row)
        return [(_linked(row), row["relation"]) for row in notes.values()][:limit]

    async def _ends(
        self, tenant: str, note_ids: Sequence[str], relations: Sequence[str], may_see: MaySee
    ) -> list[asyncpg.Record]:
        """Return the visible links of some notes with others, newest first, each with the note at its other end.

        At most `MAX_LINKS` of them; what may not be seen, or was not asked for, takes nobody's place.
        """
        async with self._database.read(tenant) as connection:
            scopes = await connection.fetch(sql("links.scopes_of_ends"), tenant, list(note_ids), list(relations))
            seen = [row["scope_id"] for row in scopes if may_see(row["participants"])]
            if not seen:
                return []
            rows = await connection.fetch(sql("links.ends"), tenant, list(note_ids), list(relations), seen, MAX_LINKS)
        now = time.time_ns() // 1000
        return [row for row in rows if not Lasting.of(row).has_expired(now)]

    async def _notes(self, tenant: str, note_ids: Sequence[str], may_see: MaySee) -> Mapping[str, asyncpg.Record]:
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("links.notes"), tenant, list(dict.fromkeys(note_ids)))
        now = time.time_ns() // 1000
        return {
            row["note_id"]: row for row in rows if may_see(row["participants"]) and not Lasting.of(row).has_expired(now)
        }


def _linked(row: asyncpg.Record) -> LinkedNote:
    payload: dict[str, Any] = orjson.loads(row["payload"])
    return LinkedNote(
        note_id=row["note_id"],
        first_seq=row["first_seq"],
        at=to_microseconds(row["changed_at"]),
        speaker=speaker_of(payload),
        keywords=note_of(payload, context_id=None).keywords,
        text=payload["text"],
        kind=row["kind"],
        topic=row["topic"],
        importance=round(row["importance"], 3),
    )
