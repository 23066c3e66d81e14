"""The tools of the review of notes, for the role `admin`: arguments and answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from myria.log.fields import check_text
from myria.log.limits import MAX_CURSOR, MAX_ID, MAX_REASON
from myria.log.scopes import MAX_PARTICIPANT_CHARACTERS, canonical_participants
from myria.notes.reviewing import MAX_LISTED, Verdict
from myria_server.api.answers import Answer, OpenAnswer
from myria_server.api.core.inputs import Input
from myria_server.api.fields import optional, optional_text, or_default, texts

MAX_DECIDED = 100
"""Notes that one call decides about."""

DEFAULT_LISTED = 20

_KIND_CHARACTERS = 50

Participant = Annotated[
    str | None,
    optional(
        lambda value, name: canonical_participants([check_text(value, name, MAX_PARTICIPANT_CHARACTERS)], field=name)[
            0
        ],
        {"type": "string", "minLength": 1, "maxLength": MAX_PARTICIPANT_CHARACTERS},
    ),
]


class ListHeldInput(Input):
    state: Annotated[Literal["held", "refused", "approved", "decided"], or_default("held")] = Field(
        default="held", description="decided: refused and approved ones"
    )
    kind: Annotated[str | None, optional_text(_KIND_CHARACTERS)] = Field(default=None, description="Only this kind")
    participant: Participant = Field(default=None, description="Only what this one may see once it is approved")
    limit: Annotated[int, or_default(DEFAULT_LISTED)] = Field(
        default=DEFAULT_LISTED, ge=1, le=MAX_LISTED, description="How many, the last held or decided first"
    )
    cursor: Annotated[str | None, optional_text(MAX_CURSOR)] = Field(
        default=None, description="next_cursor of the answer before, to continue it"
    )


class DecideNotesInput(Input):
    note_ids: Annotated[tuple[str, ...], texts(MAX_ID, MAX_DECIDED, "notes")] = Field(
        description="The notes; each is decided by itself"
    )
    decision: Verdict = Field(description="hold takes an approval or a refusal back")
    reason: Annotated[str | None, optional_text(MAX_REASON)] = Field(default=None, description="Why, for the record")


class ReplacedNote(Answer):
    """A note in whose place the held one would stand, or stands."""

    OPEN = frozenset({"note_id", "event_id", "stands"})

    note_id: str
    event_id: str = Field(description="Of what it says, or said last")
    kind: str
    stands: bool = Field(description="False where something else became of it already")
    text: str


class Evidence(Answer):
    """Something that was said before the note in its conversation."""

    OPEN = frozenset({"event_id", "at"})

    event_id: str
    at: str
    speaker: str | None
    text: str


class HeldNote(Answer):
    """A note under review."""

    OPEN = frozenset({"note_id", "event_id", "state", "since", "replaces", "evidence"})

    note_id: str
    event_id: str
    state: Literal["held", "refused", "approved"]
    since: str = Field(description="When it was held or decided last")
    rule: str = Field(description="The setting that held it, and its value")
    kind: str
    topic: str
    importance: float = Field(description="Of a fact of a turn its confidence")
    text: str
    speaker: str | None
    source: str | None
    context_id: str | None
    said_at: str
    participants: list[str]
    replaces: list[ReplacedNote]
    evidence: list[Evidence]
    amended_by: str | None = Field(description="Who wanted it in the place of another one, where a reason was given")
    amended_why: str | None
    decided_by: str | None
    reason: str | None


class HeldNotes(OpenAnswer):
    under_review: list[HeldNote]
    next_cursor: str | None


class RefusedDecision(OpenAnswer):
    """Why a note was not decided."""

    code: str
    message: str


class DecidedNote(OpenAnswer):
    """What became of one note."""

    note_id: str
    state: Literal["held", "refused", "approved"] | None = Field(default=None, description="Left out with an error")
    changed: bool = Field(description="False for a repeat, and with an error")
    replaced: list[str] = Field(default=[], description="Ids of the notes in whose place it stands now")
    error: RefusedDecision | None = None


class DecidedNotes(OpenAnswer):
    """decide_notes."""

    decided: list[DecidedNote]
    changed: int
