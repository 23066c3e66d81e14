"""The form of a note in the log: an event of a reserved type with the note's text, and its other fields beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.errors import InvalidArgument
from myria.log.event import NewEvent
from myria.log.event_log import Counts
from myria.log.limits import MAX_HINT, MAX_TOPIC_HINTS
from myria.log.payloads import TopicHint
from myria.notes.details import NO_DETAILS, Details
from myria.notes.drafting import NoteText, keywords_of
from myria.notes.expiry import SESSION_IDLE_S
from myria.notes.kinds import Contract, Lifetime, policy_of
from myria.notes.subjects import subject_of

NOTE_TYPE = "myria.note"
NOTE_CHANNEL = "notes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Amendment:
    """Who made a version of a note, and why: where the caller says why."""

    by: str
    why: str


def note_event(
    note: NoteText,
    participants: tuple[str, ...],
    *,
    note_id: str,
    version: int,
    timestamp: int,
    speaker: str | None,
    previous: str | None = None,
    key: str | None = None,
    idle_s: int = SESSION_IDLE_S,
    amendment: Amendment | None = None,
) -> NewEvent:
    """Return the event that makes a version of a note.

    Args:
        participants: who may see the note, in canonical form.
        timestamp: in microseconds since 1970 UTC.
        speaker: who keeps the note, as answers name them.
        previous: the id of the event of the version before.
        key: the event's source key, by which a repeat is recognised.
        idle_s: seconds without a note after which the note's session, if it has one, is over by itself.
        amendment: who made this version of one before, and why.
    """
    fields: dict[str, Any] = {
        "id": note_id,
        "version": version,
        "kind": note.kind,
        "topic": note.topic,
        "keywords": list(note.keywords),
        "importance": note.importance,
        "lifetime": note.lifetime,
    }
    if previous is not None:
        fields["previous"] = previous
    if note.session_id is not None:
        fields["idle_s"] = idle_s
    if note.anchor:
        fields["anchor"] = True
    if note.source is not None:
        fields["source"] = note.source
    if note.memory is not None:
        fields["memory"] = note.memory
    if note.details is not NO_DETAILS and note.details != NO_DETAILS:
        fields["details"] = note.details.to_json()
    if amendment is not None:
        fields["amended"] = {"by": amendment.by, "why": amendment.why}
    fields |= note.further or {}
    payload: dict[str, Any] = {"text": note.content, "note": fields}
    if speaker is not None:
        payload["speaker"] = speaker
    return NewEvent(
        timestamp=timestamp,
        channel=NOTE_CHANNEL,
        participants=participants,
        payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS),
        source_event_key=key,
        context_id=note.session_id,
        type=NOTE_TYPE,
        topic_hints=hints_of(note),
    )


def hints_of(note: NoteText) -> tuple[TopicHint, ...]:
    """Return what a note is about (its topic, its case, its keywords) as topic hints, by which recall finds it."""
    names = dict.fromkeys((note.topic, note.details.case_id or "", *note.keywords))
    chosen = [name for name in names if name.strip() and len(name) <= MAX_HINT][:MAX_TOPIC_HINTS]
    return tuple(TopicHint(hint=name, confidence=1.0) for name in chosen)


def note_of(payload: Mapping[str, Any], *, context_id: str | None) -> NoteText:
    """Return the note in the payload of a version's event; see `note_event`."""
    fields = payload["note"]
    lifetime: Lifetime = "session" if fields.get("lifetime") == "session" else "permanent"
    return NoteText(
        content=payload["text"],
        kind=fields["kind"],
        topic=fields["topic"],
        keywords=texts_of(fields.get("keywords")),
        importance=fields["importance"],
        source=fields.get("source"),
        lifetime=lifetime,
        anchor=fields.get("anchor") is True,
        session_id=context_id,
        memory=fields.get("memory"),
        details=Details.of(fields.get("details")),
    )


def amendment_of(payload: Mapping[str, Any]) -> Amendment | None:
    """Return who made a version and why, by the payload of its event; None where that does not say."""
    said = payload["note"].get("amended")
    if not isinstance(said, dict):
        return None
    by, why = (value if isinstance(value := said.get(name), str) else "" for name in ("by", "why"))
    return Amendment(by=by, why=why)


def texts_of(value: Any) -> tuple[str, ...]:
    """Return the texts of a list in a note's payload; none of anything else, which an import may have brought."""
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def next_version(event: NewEvent, *, note_id: str, version: int, previous: str) -> NewEvent:
    """Return the event of a note's first version as that of a later version of another note.

    Args:
        previous: the id of the event of the version before.
    """
    payload = orjson.loads(event.payload_json)
    payload["note"] |= {"id": note_id, "version": version, "previous": previous}
    return event._replace(payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS))


def ending_version(row: asyncpg.Record, days: int, *, by: NewEvent) -> NewEvent:
    """Return the next version of a note, with the same text, which ends so many days (of UTC) after its last change.

    Args:
        by: the event of the note that replaces it then.
    """
    payload = orjson.loads(row["payload"])
    payload["note"] |= {
        "version": row["version"] + 1,
        "previous": row["event_id"],
        "lasts_days": days,
        "replaced_by": by.event_id,
    }
    payload["note"].pop("anchor", None)  # an anchor never ends
    payload["note"].pop("held", None)  # a reviewer has let it in
    payload["note"].pop("amended", None)  # what ends it is another note
    return NewEvent(
        timestamp=to_microseconds(row["changed_at"]),
        channel=NOTE_CHANNEL,
        participants=tuple(row["participants"]),
        payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS),
        source_event_key=None if by.source_event_key is None else f"{by.source_event_key}:{row['note_id']}",
        context_id=row["context_id"],
        type=NOTE_TYPE,
        topic_hints=hints_of(note_of(payload, context_id=row["context_id"])),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """The fields that an amendment changes; None leaves a field as it is."""

    content: str | None = None
    kind: str | None = None
    topic: str | None = None
    keywords: tuple[str, ...] | None = None
    importance: float | None = None
    anchor: bool | None = None
    source: str | None = None
    lifetime: Lifetime | None = None
    session_id: str | None = None
    details: Details = NO_DETAILS

    def of(self, note: NoteText, contract: Contract) -> NoteText:
        """Return the note with the changes; keywords and topic that came from its text come from the new one.

        Raises:
            InvalidArgument: the contract knows no such kind, or the note would end with a session and names none.
        """
        if self.kind is not None:
            policy_of(self.kind, contract)
        session_id = self.session_id or note.session_id
        if self.lifetime == "session" and session_id is None:
            raise InvalidArgument("scope session needs a sessionId: the session that it ends with", field="sessionId")
        content = note.content if self.content is None else self.content
        keywords, topic = self.keywords, self.topic
        if content != note.content:
            old_keywords, new_keywords = keywords_of(note.content), keywords_of(content)
            keywords = new_keywords if keywords is None and note.keywords == old_keywords else keywords
            if topic is None and note.topic == subject_of(note.content):
                topic = subject_of(content)
        return note._replace(
            content=content,
            kind=self.kind or note.kind,
            topic=topic or note.topic,
            keywords=note.keywords if keywords is None else keywords,
            importance=note.importance if self.importance is None else self.importance,
            anchor=note.anchor if self.anchor is None else self.anchor,
            source=self.source or note.source,
            lifetime=self.lifetime or note.lifetime,
            session_id=session_id,
            details=note.details.amended(self.details),
            inferred=(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """A note after it was kept; `created` is false, and `event_id` None, where an equal note had been kept before.

    `note_id` is empty where a dry run would keep a new one. A `held` note waits for a review, or was refused in one.
    """

    note_id: str
    created: bool
    note: NoteText
    event_id: str | None
    redacted: Counts
    held: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Amended:
    """A note after an amendment.

    `changed` is false where the note had these values already, where another note of the same people has this text
    (`same_as`), and for a dry run. With `held_for` it waits for a review, or in a dry run would, as a note of its own
    that would replace the note of that id.
    """

    note_id: str
    version: int
    note: NoteText
    changed: bool
    redacted: Counts
    same_as: str | None = None
    held_for: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """What became of a note that was to be forgotten; `protected` where that needs `force`. `text` is the note's."""

    note_id: str
    text: str
    forgotten: bool
    protected: bool
