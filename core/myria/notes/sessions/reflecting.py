"""Reflecting: keep what a session leaves to later ones, by one append that also ends the session."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from myria.db.database import Database
from myria.db.queries import sql
from myria.errors import EventErased
from myria.log.canonical import digest
from myria.log.event import NewEvent
from myria.log.scopes import scope_key
from myria.notes.commands import Notes
from myria.notes.details import NO_DETAILS, Details
from myria.notes.drafting import Draft
from myria.notes.links import Relation, link_event
from myria.notes.model import Remembered
from myria.notes.sessions.model import session_end

Part = Literal["summary", "decisions", "errors", "procedures", "questions", "episode"]

REFLECTED = "session_reflect"
"""The topic of the notes that a reflection keeps (Memento's contract)."""

RESOLVED, OPEN = Details(resolution_status="resolved"), Details(resolution_status="open")
"""The details by which an error is resolved and a question is open; their texts stay as they were given."""

FORMERLY_OPEN = "[미해결] "
"""The beginning of an open question's text in earlier releases, and in exports of Memento."""

_RESOLVED_IMPORTANCE = 0.5
_OPEN_IMPORTANCE = 0.4

_ERASED_ENDS = 100
"""How many erased sessions of the same name and people are allowed for."""

_LINKED = 10
"""How many errors, decisions and procedures each are linked with each other at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reflection:
    """What a session leaves. `further` are more texts of the summary, each a note of its own.

    `narrative` is the session as a story, kept as an episode. `effectiveness` is kept with the session's end, or alone
    where no session is named.
    """

    summary: str
    further: Sequence[str] = ()
    narrative: str | None = None
    session_id: str | None = None
    decisions: Sequence[str] = ()
    errors: Sequence[str] = ()
    procedures: Sequence[str] = ()
    questions: Sequence[str] = ()
    effectiveness: Mapping[str, Any] = field(default_factory=dict)

    def drafts(self) -> list[tuple[Part, Draft]]:
        """Return the reflection's notes, each with its part; an empty text makes none, but for an empty summary.

        An empty summary is passed on so that keeping it is refused.
        """
        parts: tuple[tuple[Part, str, Sequence[str], Details, float | None], ...] = (
            ("summary", "fact", (self.summary, *self.further), NO_DETAILS, None),
            ("decisions", "decision", self.decisions, NO_DETAILS, None),
            ("errors", "error", self.errors, RESOLVED, _RESOLVED_IMPORTANCE),
            ("procedures", "procedure", self.procedures, NO_DETAILS, None),
            ("questions", "fact", self.questions, OPEN, _OPEN_IMPORTANCE),
            ("episode", "episode", (self.narrative or "",), NO_DETAILS, None),
        )
        return [
            (
                part,
                Draft(
                    content=text,
                    kind=kind,
                    topic=REFLECTED,
                    importance=importance,
                    source=None if self.session_id is None else f"session:{self.session_id}",
                    session_id=self.session_id,
                    details=details,
                ),
            )
            for part, kind, texts, details, importance in parts
            for text in map(str.strip, texts)
            if text or part == "summary"
        ]


async def reflect(
    notes: Notes,
    database: Database,
    tenant: str,
    participants: tuple[str, ...],
    reflection: Reflection,
    *,
    idle_s: int,
    speaker: str | None = None,
    now: int | None = None,
) -> list[tuple[Part, Remembered]]:
    """Keep a reflection and end its session, by one append; a repeat changes nothing and returns the same notes.

    Args:
        participants: the session's, who may see its notes, in canonical form.
        idle_s: seconds without a note after which such a session is over by itself.
        now: in microseconds since 1970 UTC; left out, this machine's clock.

    Raises:
        InvalidArgument: no summary, or a text that is too long.
        as `Notes.remember`.
    """
    moment = time.time_ns() // 1000 if now is None else now
    session_id = reflection.session_id
    begun_seq, ended_seq = 0, 0
    if session_id is not None:
        async with database.read(tenant) as connection:
            row = await connection.fetchrow(sql("sessions.of"), tenant, scope_key(participants), session_id)
        if row is not None:
            begun_seq, ended_seq = row["begun_seq"], row["ended_seq"] or 0
    effectiveness, _ = await notes.clean(tenant, dict(reflection.effectiveness))
    drafts = reflection.drafts()

    async def keep(ended_before: int) -> list[Remembered]:
        async def with_end(ids: Sequence[str], new: Sequence[int], events: Sequence[NewEvent]) -> Sequence[NewEvent]:
            parts: dict[Part, list[str]] = {}
            for (part, _), note_id in zip(drafts, ids, strict=True):
                parts.setdefault(part, []).append(note_id)
            links = await _missing_links(database, tenant, participants, parts) if new else []
            is_over = bool(ended_seq) and not new  # the session has ended, and this call keeps no new note
            if is_over if session_id is not None else not effectiveness:
                return [*events, *links]
            # The key is made of ids and numbers, not of texts, because it stays when the notes are erased.
            run_id_parts = (
                ids
                if session_id is None
                else [str(begun_seq), str(ended_seq), *([str(ended_before)] if ended_before else ())]
            )
            key = digest([*participants, session_id or "", *run_id_parts]).hex()
            end = session_end(
                session_id,
                participants,
                timestamp=moment,
                reason="reflect",
                idle_s=idle_s,
                key=key,
                about=effectiveness,
            )
            return [*events, *links, end]

        return await notes.remember_all(
            tenant,
            participants,
            [draft for _, draft in drafts],
            contract="memento",
            arrange=with_end,
            speaker=speaker,
            now=moment,
            api="reflect",
        )

    for ended_before in range(_ERASED_ENDS + 1):
        try:
            kept = await keep(ended_before)
        except EventErased:
            # An earlier session of this name was erased with its end, whose key equals this one's: try the next.
            if ended_before == _ERASED_ENDS:
                raise
        else:
            break
    return [(part, note) for (part, _), note in zip(drafts, kept, strict=True)]


async def _missing_links(
    database: Database, tenant: str, participants: tuple[str, ...], parts: Mapping[Part, Sequence[str]]
) -> list[NewEvent]:
    """Return the missing links from errors to the decisions that caused them, and from procedures to resolved errors.

    Two notes that are linked already, in either direction, get no further link (Memento's contract).
    """
    errors, decisions, procedures = (parts.get(part, ())[:_LINKED] for part in ("errors", "decisions", "procedures"))
    possible: list[tuple[str, str, Relation]] = [
        *((error, decision, "caused_by") for error in errors for decision in decisions),
        *((procedure, error, "resolved_by") for procedure in procedures for error in errors),
    ]
    if not possible:
        return []
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("links.between"), tenant, [*errors, *decisions, *procedures])
    linked_pairs = {frozenset((row["from_id"], row["to_id"])) for row in rows}
    return [
        link_event(participants, source, target, relation)
        for source, target, relation in dict.fromkeys(possible)
        if frozenset((source, target)) not in linked_pairs
    ]
