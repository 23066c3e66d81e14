"""What a note is in the log: an event of a reserved type whose text is the note's, with the rest beside it."""

from __future__ import annotations

from typing import Any

import orjson

from myria.contract.event import NewEvent
from myria.notes.drafting import NoteText

NOTE_TYPE = "myria.note"
NOTE_CHANNEL = "notes"


def note_event(
    note: NoteText, participants: tuple[str, ...], *, note_id: str, version: int, timestamp: int, speaker: str | None
) -> NewEvent:
    """Return the event that makes a version of a note.

    Args:
        participants: canonical; who may see it.
        timestamp: in microseconds since 1970 UTC.
        speaker: who keeps it, as answers name them.
    """
    about: dict[str, Any] = {
        "id": note_id,
        "version": version,
        "kind": note.kind,
        "topic": note.topic,
        "keywords": list(note.keywords),
        "importance": note.importance,
        "lifetime": note.lifetime,
    }
    if note.anchor:
        about["anchor"] = True
    if note.source is not None:
        about["source"] = note.source
    payload: dict[str, Any] = {"text": note.content, "note": about}
    if speaker is not None:
        payload["speaker"] = speaker
    return NewEvent(
        timestamp=timestamp,
        channel=NOTE_CHANNEL,
        participants=participants,
        payload_json=orjson.dumps(payload, option=orjson.OPT_SORT_KEYS),
        context_id=note.session_id,
        type=NOTE_TYPE,
    )
