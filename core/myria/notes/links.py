"""Links between notes: typed and directed, each an event of a reserved type, folded in the append transaction.

The types of one pair add up; only a link that says so replaces what linked the pair before.
A link belongs to whoever may see both of its notes. It is internal, so it is never part of a topic.
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
from myria.errors import InvalidArgument
from myria.log.event import NewEvent
from myria.log.event_log import EventLog
from myria.log.payloads import speaker_of
from myria.log.withdrawal.commands import MaySee
from myria.notes.commands import note_absent
from myria.notes.expiry import Lasting
from myria.notes.model import NOTE_CHANNEL, note_of

LINK_TYPE = "myria.link"

Relation = Literal["related", "caused_by", "resolved_by", "part_of", "contradicts"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)

EXPLAINS: tuple[Relation, ...] = ("caused_by", "resolved_by", "part_of")
"""The relations that explain something: causes, and what a memory goes on from."""

MAX_LINKS = 200
"""Links of which a look at a note makes use."""

_LEADING = 3
"""Links that are told of a note beside it (Memento's contract)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """From one note to another; `weight` within 0 and 1 says how strong it is."""

    from_id: str
    to_id: str
    relation: str
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Linked:
    """What links connect with some notes, each with its relation.

    `beside` are further notes, what resolves first, then by weight and the newest; `leading` those to which links lead
    from each, by its id: "related" says nothing more of one to which a link of another type leads.
    """

    beside: tuple[tuple[LinkedNote, str], ...] = ()
    leading: Mapping[str, tuple[tuple[LinkedNote, str], ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbourhood:
    """A note, those that links lead to and from, and the links between them."""

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
        participants: canonical; those of the note that it leads from.
        weight: within 0 and 1.
        replaces: in place of all earlier links of the pair.
        key: its source key.
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
        """Link a note to others, all or none; a link of this relation that is there takes the weight.

        Args:
            weight: how strong the links are, within 0 and 1.
            replaces: what linked these pairs by other relations holds no longer.
            dry_run: only refuse what would be refused.

        Raises:
            NoteNotFound: one is absent, of others, or withdrawn.
            InvalidArgument: a note would be linked to itself.
        """
        if from_id in to_ids:
            raise InvalidArgument("a note cannot be linked to itself", field="toId")
        rows = await self._named(tenant, [from_id, *to_ids], may_see)
        participants = tuple(rows[from_id]["participants"])
        if dry_run:
            return
        events = [
            link_event(participants, from_id, to_id, relation, weight=weight, replaces=replaces) for to_id in to_ids
        ]
        await self._log.append_events(tenant, events)

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
        ends = [row for row in ends if row["note_id"] != note_id]
        notes = {row["note_id"]: row for row in ends}
        return Neighbourhood(
            start=_linked(rows[note_id]),
            neighbours=tuple(_linked(row) for row in notes.values()),
            links=tuple(
                Link(from_id=row["from_id"], to_id=row["to_id"], relation=row["relation"], weight=row["weight"])
                for row in ends
            ),
        )

    async def lasting(self, tenant: str, note_id: str, *, may_see: MaySee) -> tuple[Link, ...]:
        """Return the links between a note and others that last longer than a session, newest first."""
        rows = await self._ends(tenant, [note_id], RELATIONS, may_see)
        return tuple(
            Link(from_id=row["from_id"], to_id=row["to_id"], relation=row["relation"], weight=row["weight"])
            for row in rows
            if not row["session"]
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
    ) -> Linked:
        """Return what links connect with some notes.

        Args:
            relations: those by which further notes come in; all are told.
            session_id: whose notes may be among them, beside those of no session.
            limit: how many further notes come in at most.
        """
        if not note_ids:
            return Linked()
        given = set(note_ids)
        beside: dict[str, asyncpg.Record] = {}
        leading: dict[str, list[asyncpg.Record]] = {}
        ends = await self._ends(tenant, note_ids, RELATIONS, may_see, first=relations)
        typed = {(row["from_id"], row["to_id"]) for row in ends if row["relation"] != "related"}
        ends.sort(key=lambda row: (row["relation"] != "resolved_by", -row["weight"], row["relation"] == "related"))
        for row in ends:
            if row["session"] and row["context_id"] != session_id:
                continue
            if row["note_id"] not in given and row["relation"] in relations:
                beside.setdefault(row["note_id"], row)
            if row["leads"] and (row["relation"] != "related" or (row["from_id"], row["to_id"]) not in typed):
                leading.setdefault(row["from_id"], []).append(row)
        return Linked(
            beside=tuple((_linked(row), row["relation"]) for row in list(beside.values())[:limit]),
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

        At most `MAX_LINKS` of them, before all those of the relations `first` with other notes; what may not be seen,
        or was not asked for, takes nobody's place.
        """
        names = list(note_ids)
        now = await self._database.now()
        async with self._database.read(tenant) as connection:
            scopes = await connection.fetch(sql("links.scopes_of_ends"), tenant, names, list(relations))
            seen = [row["scope_id"] for row in scopes if may_see(row["participants"])]
            if not seen:
                return []
            rows = await connection.fetch(
                sql("links.ends"), tenant, names, list(relations), seen, MAX_LINKS, list(first)
            )
        return [row for row in rows if not Lasting.of(row).has_expired(now)]

    async def _notes(self, tenant: str, note_ids: Sequence[str], may_see: MaySee) -> Mapping[str, asyncpg.Record]:
        now = await self._database.now()
        async with self._database.read(tenant) as connection:
            rows = await connection.fetch(sql("links.notes"), tenant, list(dict.fromkeys(note_ids)))
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
