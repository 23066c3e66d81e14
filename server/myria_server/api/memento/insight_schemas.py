"""The agent's tools that look at notes as a whole, and at answers (Memento's contract, 6.9, 6.10; fragment_history)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from myria.log.fields import check_text
from myria.log.limits import MAX_ID
from myria_server.api.answers import Answer, all_open
from myria_server.api.memento.note_schemas import NoteBody
from myria_server.api.memento.schemas import (
    AgentAnswer,
    AgentInput,
    Circumstance,
    Id,
    Ids,
    SessionId,
    choice,
    field_name,
)


class HistoryInput(AgentInput):
    """Arguments of fragment_history."""

    id: Id


class StatsInput(AgentInput):
    """Arguments of memory_stats."""


class FeedbackInput(AgentInput):
    """Arguments of tool_feedback."""

    tool_name: Annotated[
        str,
        BeforeValidator(lambda value, info: check_text(value, field_name(info), MAX_ID)),
        WithJsonSchema({"type": "string"}),
    ]
    relevant: bool
    sufficient: bool
    suggestion: Circumstance = None
    context: Circumstance = None
    session_id: SessionId = None
    trigger_type: Annotated[Literal["sampled", "voluntary"], choice("voluntary")] = "voluntary"
    search_event_id: Annotated[int | None, choice(None), WithJsonSchema({"type": "integer"})] = None
    fragment_ids: Ids = None


class VersionBody(NoteBody):
    """A version of a note."""

    speaker: str | None
    created_at: str


class HistoryAnswer(AgentAnswer):
    """fragment_history."""

    current: VersionBody | None = Field(description="Null where it was replaced and nothing of it may be shown")
    versions: list[VersionBody] = Field(description="Newest first; at most 100")
    superseded_by: list[str] = Field(description="The notes that replaced it, each in its turn")
    count: int


class StatsBody(Answer):
    """What the notes that the caller sees come to; `<kind>_count` is there for each kind."""

    model_config = ConfigDict(extra="allow")

    total: int
    permanent: int
    hot: int
    warm: int
    cold: int
    embedded: int | Literal["off"] = Field(description="Notes with a vector; off: none is compared here")
    embeddings: str = Field(description="Whether vectors are compared here, and why or why not, in words")
    avg_importance: str
    topic_count: int
    total_accesses: int
    avg_utility: str
    total_tokens: int = Field(description="Estimated: characters / 4")
    complete: bool = Field(description="False: there are more notes than were counted")


class TopicNotes(Answer):
    """How many notes a topic has."""

    topic: str
    notes: int


class StatsAnswer(AgentAnswer):
    """memory_stats."""

    stats: StatsBody
    topics: list[TopicNotes] = Field(description="Those of most notes, at most 50")


@all_open
class FeedbackAnswer(AgentAnswer):
    """tool_feedback."""

    id: str
    tool_name: str
    relevant: bool
    sufficient: bool
