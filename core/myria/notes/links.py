"""Links between notes: typed and directed, each an event of a reserved type, folded in the append transaction.

A pair of notes may have links of several types; only a link that says so replaces the pair's earlier ones. A link is
visible to whoever may see both of its notes. It is internal, so it is never part of a topic.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.queries import sql
from myria.errors import InvalidArgument, NoteHeld
from myria.log.event import NewEvent
from myria.log.event_log import EventLog
from myria.log.payloads import speaker_of
from myria.log.withdrawal.commands import MaySee
from myria.notes.expiry import Lasting
from myria.notes.finding import why_gone
from myria.notes.model import NOTE_CHANNEL, note_of

LINK_TYPE = "myria.link"

Relation = Literal["related", "caused_by", "resolved_by", "part_of", "contradicts"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)

EXPLAINS: tuple[Relation, ...] = ("caused_by", "resolved_by", "part_of")
"""The relations that explain a note: its cause, its resolution, and the memory that it continues."""

MAX_LINKS = 200
"""Links that are read at most when notes' links are looked up."""

_LEADING = 3
"""Links that are shown beside a note (Memento's contract)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A link from one note to another; `weight`, from 0 to 1, says how strong it is."""

    from_id: str
    to_id: str
    relation: str
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedNote:
    """The current version of a note at one end of a link; `at` is its time in microseconds since 1970 UTC."""

    note_id: str
    first_seq: int
    at: int
    speaker: str | None
    keywords: tuple[str, ...]
    text: str
    kind: str
    topic: str
    importance: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """The notes at the other ends of some notes' links, each with its link's relation.

    `beside` are notes that were not among the given ones: those that resolve first, then by weight, then the newest.
    `leading` has by a given note's id the notes to which its links lead; "related" is left out where a link of another
    type leads to the same note.
    """

    beside: tuple[tuple[LinkedNote, str], ...] = ()
    leading: Mapping[str, tuple[tuple[LinkedNote, str], ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbourhood:
    """A note, the notes that links lead to and from, and these links."""

    start: LinkedNote
    neighbours: tuple[LinkedNote, ...]
    links: tuple[Link, ...]


def link_event(
    participants: tuple[str, ...],
    from_id: str,
    to_id: str,
    relation: Relation,
    *,
    weight: float = 1.0,
    replaces: bool = False,
    key: str | None = None,
) -> NewEvent:
    """Return the event that links two notes.

    Args:
        participants: those of the note that the link leads from, in canonical form.
        weight: from 0 to 1.
        replaces: whether the link replaces all earlier links of the pair.
        key: the source key of the event.
    """
    link: dict[str, Any] = {"from": from_id, "to": to_id, "relation": relation}
    if weight != 1.0:
        link["weight"] = weight
    if replaces:
        link["replaces"] = True
    return NewEvent(
        timestamp=time.time_ns() // 1000,
        channel=NOTE_CHANNEL,
        participants=participants,
        payload_json=orjson.dumps({"link": link}, option=orjson.OPT_SORT_KEYS),
        source_event_key=key,
        type=LINK_TYPE,
        internal=True,
    )


class NoteLinks:
    """Links of notes, in one process.

    Args:
        log: where links are appended and read.
    """

    def __init__(self, log: EventLog) -> None:
        self._database = log.database
        self._log = log

    async def link(
        self,
        tenant: str,
        from_id: str,
        to_ids: Sequence[str],
        relation: Relation,
        *,
        may_see: MaySee,
        weight: float = 1.0,
        replaces: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Link a note to others, all or none; an existing link of this relation gets the new weight.

        Args:
            weight: how strong the links are, from 0 to 1.
            replaces: end the links of these pairs by other relations.
            dry_run: append nothing, but refuse what would be refused.

        Raises:
            NoteNotFound: one of the notes is absent, of others, or withdrawn.
            InvalidArgument: a note would be linked to itself.
        """
        if from_id in to_ids:
            raise InvalidArgument("a note cannot be linked to itself", field="toId")
        rows = await self.check(tenant, [from_id, *to_ids], may_see=may_see)
        participants = tuple(rows[from_id]["participants"])
        if dry_run:
            return
        events = [
            link_event(participants, from_id, to_id, relation, weight=weight, replaces=replaces) for to_id in to_ids
        ]
        await self._log.append_events(tenant, events)

    async def complete(self, tenant: str, from_id: str, to_ids: Sequence[str], *, may_see: MaySee) -> None:
        """Link a note as related to those of some notes to which no link leads from it yet; its own id is ignored.

        Raises:
            NoteNotFound: one is absent, of others, or withdrawn.
        """
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("links.among"), tenant, from_id, list(to_ids))
        linked_ids = {from_id, *(row["to_id"] for row in rows)}
        missing = [to_id for to_id in to_ids if to_id not in linked_ids]
        if missing:
            known = await self.check(tenant, [from_id, *missing], may_see=may_see, also_held=True)
            participants = tuple(known[from_id]["participants"])
            await self._log.append_events(
                tenant, [link_event(participants, from_id, to_id, "related") for to_id in missing]
            )

    async def check(
        self, tenant: str, note_ids: Sequence[str], *, may_see: MaySee, also_held: bool = False
    ) -> Mapping[str, asyncpg.Record]:
        """Return the rows of notes by their ids.

        Args:
            also_held: accept notes that wait for a review, without a row: a link to one shows once it is approved.

        Raises:
            NoteNotFound: one is absent, of others, or withdrawn.
            NoteHeld: one waits for a review, or was refused in one.
        """
        rows = await self._notes(tenant, note_ids, may_see)
        for note_id in note_ids:
            if note_id not in rows:
                gone = await why_gone(self._database, tenant, note_id, may_see)
                if not (also_held and isinstance(gone, NoteHeld)):
                    raise gone
        return rows

    async def around(
        self, tenant: str, note_id: str, *, may_see: MaySee, relations: Sequence[str] = RELATIONS
    ) -> Neighbourhood:
        """Return a note, its neighbours by links of some relations in either direction, and these links.

        Raises:
            NoteNotFound: it is absent, of others, or withdrawn.
        """
        rows = await self.check(tenant, [note_id], may_see=may_see)
        ends = await self._ends(tenant, [note_id], relations, may_see)
        ends = [row for row in ends if row["note_id"] != note_id]
        notes = {row["note_id"]: row for row in ends}
        return Neighbourhood(
            start=_linked(rows[note_id]),
            neighbours=tuple(_linked(row) for row in notes.values()),
            links=tuple(map(_link, ends)),
        )

    async def lasting(self, tenant: str, note_id: str, *, may_see: MaySee) -> tuple[Link, ...]:
        """Return the links between a note and others that last longer than a session, newest first."""
        rows = await self._ends(tenant, [note_id], RELATIONS, may_see)
        return tuple(_link(row) for row in rows if not row["session"])

    async def beside(
        self,
        tenant: str,
        note_ids: Sequence[str],
        *,
        may_see: MaySee,
        relations: Sequence[str],
        session_id: str | None,
        limit: int,
    ) -> Linked:
        """Return the notes that links connect with some notes.

        Args:
            relations: by whose links further notes are added (`further`); `leading` has links of all relations.
            session_id: the session whose own notes may be among them, beside lasting notes.
            limit: how many further notes are added at most.
        """
        if not note_ids:
            return Linked()
        given_ids = set(note_ids)
        further: dict[str, asyncpg.Record] = {}
        leading: dict[str, list[asyncpg.Record]] = {}
        ends = await self._ends(tenant, note_ids, RELATIONS, may_see, first=relations)
        typed_pairs = {(row["from_id"], row["to_id"]) for row in ends if row["relation"] != "related"}
        ends.sort(key=lambda row: (row["relation"] != "resolved_by", -row["weight"], row["relation"] == "related"))
        for row in ends:
            if row["session"] and row["context_id"] != session_id:
                continue
            if row["note_id"] not in given_ids and row["relation"] in relations:
                further.setdefault(row["note_id"], row)
            if row["leads"] and (row["relation"] != "related" or (row["from_id"], row["to_id"]) not in typed_pairs):
                leading.setdefault(row["from_id"], []).append(row)
        return Linked(
            beside=tuple((_linked(row), row["relation"]) for row in list(further.values())[:limit]),
            leading={
                note_id: tuple((_linked(row), row["relation"]) for row in rows[:_LEADING])
                for note_id, rows in leading.items()
            },
        )

    async def _ends(
        self,
        tenant: str,
        note_ids: Sequence[str],
        relations: Sequence[str],
        may_see: MaySee,
        *,
        first: Sequence[str] = RELATIONS,
    ) -> list[asyncpg.Record]:
        """Return the visible links of some notes, newest first, each with the note at its other end.

        At most `MAX_LINKS` links are read: first those of the relations `first` that lead to other notes. Links that
        the caller may not see, or of other relations, do not count.
        """
        ids = list(note_ids)
        now = await self._database.now()
        async with self._database.read(tenant) as connection:
            scopes = await connection.fetch(sql("links.scopes_of_ends"), tenant, ids, list(relations))
            visible_scopes = [row["scope_id"] for row in scopes if may_see(row["participants"])]
            if not visible_scopes:
                return []
            rows = await connection.fetch(
                sql("links.ends"), tenant, ids, list(relations), visible_scopes, MAX_LINKS, list(first)
            )
        return [row for row in rows if not Lasting.of(row).has_expired(now)]

    async def _notes(self, tenant: str, note_ids: Sequence[str], may_see: MaySee) -> Mapping[str, asyncpg.Record]:
        now = await self._database.now()
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("links.notes"), tenant, list(dict.fromkeys(note_ids)))
        return {
            row["note_id"]: row for row in rows if may_see(row["participants"]) and not Lasting.of(row).has_expired(now)
        }


def _link(row: asyncpg.Record) -> Link:
    return Link(from_id=row["from_id"], to_id=row["to_id"], relation=row["relation"], weight=row["weight"])


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
