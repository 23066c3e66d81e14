"""The agent's tools that keep, find, change and forget notes (Memento's contract, 6.2-6.4 and 6.6)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from myria.errors import InvalidArgument
from myria_server.api.answers import Answer, all_open
from myria_server.api.core.inputs import Input
from myria_server.api.memento.link_schemas import Relation
from myria_server.api.memento.schemas import (
    AgentAnswer,
    AgentInput,
    Budget,
    Circumstance,
    Content,
    Format,
    Id,
    Ids,
    Keywords,
    Kind,
    LocalTime,
    Moods,
    No,
    OptionalContent,
    OptionalFlag,
    OptionalId,
    Query,
    SessionId,
    Share,
    Source,
    Time,
    Topic,
    choice,
    local_moment,
    moment,
)
from myria_server.api.schemas import HIDDEN

MAX_BATCH = 200
"""Notes of one batch_remember."""

_OF_OTHERS = ("valid_to", "ema_activation", "similarity")
"""Fields of the contract that memories do not have here: nothing is shown for them."""

MAX_CASES = 10
"""Cases of one answer of recall."""

DEFAULT_BUDGET = 1000
"""Tokens of an answer of recall."""


_ITEMS = WithJsonSchema({"type": "array", "items": {"type": "object"}})

Assertion = Annotated[Literal["observed", "inferred", "verified", "rejected"] | None, choice(None)]


class DetailsInput(AgentInput):
    """Details with which notes are kept."""

    contextSummary: Circumstance = None
    workspace: Topic = None
    caseId: Topic = None
    goal: Circumstance = None
    outcome: Circumstance = None
    phase: Topic = None
    resolutionStatus: Topic = None
    assertionStatus: Assertion = None
    affect: Topic = None


class _NoteInput(DetailsInput):
    content: Content = Field(description="one self-contained statement")
    type: Kind = None
    topic: Topic = None
    keywords: Keywords = None
    importance: Share = None
    source: Source = None
    scope: Annotated[Literal["permanent", "session"], choice("permanent")] = "permanent"
    sessionId: SessionId = None
    isAnchor: No = False
    linkedTo: Ids = None
    supersedes: Ids = None
    idempotencyKey: OptionalId = None


class RememberInput(_NoteInput):
    """Arguments of remember."""

    dryRun: No = False


class BatchRememberInput(AgentInput):
    """Arguments of batch_remember. Each item is read by itself: one that is refused does not refuse the others.

    The contract calls the items `fragments`, and has a workspace for those that name none; `stream` chooses a form of
    progress that this server tells by the protocol's own.
    """

    items: Annotated[list[Any], Field(max_length=MAX_BATCH), choice([]), _ITEMS] = Field(
        default=[], description="arguments of remember, up to 200"
    )
    dryRun: No = False
    fragments: Annotated[list[Any], Field(max_length=MAX_BATCH), choice([]), _ITEMS, HIDDEN] = Field(default=[])
    workspace: Annotated[Topic, HIDDEN] = None
    stream: Annotated[OptionalFlag, HIDDEN] = None


class TimeRange(Input):
    """A span of time; what happened at `to` is outside."""

    since: Annotated[Time, moment("timeRange.from")] = Field(default=None, alias="from")
    to: Annotated[Time, moment("timeRange.to", whole_day=True)] = None


def _fields(value: Any) -> Any:
    """Refuse fields of a memory that there are none of."""
    if isinstance(value, list | tuple):
        known = {*FragmentBody.model_fields, *_OF_OTHERS}
        for name in value:
            if name not in known:
                raise InvalidArgument(f"fields knows {', '.join(sorted(FragmentBody.model_fields))}", field="fields")
    return value


class RecallInput(AgentInput):
    """Arguments of recall."""

    text: Query = Field(default=None, description="question in plain words")
    keywords: Keywords = None
    topic: Topic = None
    type: Kind = None
    tokenBudget: Annotated[Budget, choice(DEFAULT_BUDGET)] = DEFAULT_BUDGET
    minImportance: Share = None
    timeRange: TimeRange | None = None
    asOf: Annotated[LocalTime, local_moment("asOf")] = None
    includeSuperseded: No = False
    includeLinks: Annotated[bool, choice(True)] = True
    linkRelationType: Annotated[Relation | None, choice(None)] = None
    threshold: Share = None
    pageSize: Annotated[
        Annotated[int, Field(ge=1, le=50)] | None, choice(None), WithJsonSchema({"type": "integer"})
    ] = None
    cursor: Annotated[Query, choice(None)] = None
    sessionId: SessionId = None
    excludeSeen: Annotated[bool, choice(True)] = Field(default=True, description="of sessionId, by context")
    contextText: Query = None
    depth: Annotated[Literal["high-level", "detail", "tool-level"] | None, choice(None)] = None
    workspace: Topic = None
    caseId: Topic = None
    phase: Topic = None
    resolutionStatus: Topic = None
    affect: Moods = None
    isAnchor: OptionalFlag = None
    caseMode: No = False
    maxCases: Annotated[
        Annotated[int, Field(ge=1, le=MAX_CASES)] | None, choice(None), WithJsonSchema({"type": "integer"})
    ] = None
    includeKeywords: No = False
    includeContext: No = False
    fields: Annotated[Keywords, BeforeValidator(_fields)] = None
    fragmentCount: Annotated[int | None, choice(None), HIDDEN] = None
    format: Annotated[Format | None, choice(None)] = None


class ForgetInput(AgentInput):
    """Arguments of forget: one of id, topic and text says what goes."""

    id: OptionalId = None
    topic: Topic = None
    text: Query = None
    force: No = Field(default=False, description="also permanent notes and anchors")
    dryRun: No = False


class RestoreNoteInput(AgentInput):
    """Arguments of restore: the id or handle of a note or a raw event."""

    id: Id


class AmendInput(DetailsInput):
    """Arguments of amend: what is left out, or empty, stays as it is."""

    id: Id
    content: OptionalContent = None
    topic: Topic = None
    keywords: Keywords = None
    type: Kind = None
    importance: Share = None
    isAnchor: OptionalFlag = None
    source: Source = None
    scope: Annotated[Literal["permanent", "session"] | None, choice(None)] = None
    sessionId: SessionId = None
    supersedes: Annotated[bool, choice(False), HIDDEN] = False
    dryRun: No = False


class NoteBody(Answer):
    """A note as it stands."""

    id: str
    content: str
    type: str
    topic: str
    keywords: list[str]
    importance: float
    ttl_tier: str
    scope: Literal["permanent", "session"]
    is_anchor: bool
    source: str | None = None
    version: int | None = None
    workspace: str | None = None
    case_id: str | None = None
    phase: str | None = None
    resolution_status: str | None = None
    assertion_status: str | None = None
    context_summary: str | None = None
    goal: str | None = None
    outcome: str | None = None
    affect: str | None = None


class LinkedBody(Answer):
    """A note to which a link leads; `preview` is its beginning."""

    id: str
    relation_type: str
    preview: str


class NearbyBody(Answer):
    """A note that the same session kept shortly before or after another."""

    id: str
    content: str
    type: str
    created_at: str


class Explanation(Answer):
    """Why a memory was recalled."""

    code: str
    detail: str
    ruleVersion: str


class FragmentBody(Answer):
    """A memory that was recalled: a note, a raw event, or a topic of events; with `fields` its id and those alone.

    An event has no type, topic, keywords, importance and tier, and its id is its handle; a topic's type is `topic`.
    """

    id: str
    content: str | None = None
    truncated: bool = Field(default=False, description="The content is its beginning")
    handle: str | None = None
    created_at: str | None = None
    speaker: str | None = None
    type: str | None = None
    topic: str | None = None
    keywords: list[str] = Field(default=[], description="With includeKeywords")
    importance: float | None = None
    ttl_tier: str | None = None
    age_days: int | None = Field(default=None, description="Of notes: days since it changed")
    access_count: int | None = Field(default=None, description="Of notes: how often it was recalled")
    confidence: float | None = Field(default=None, description="Of notes: its utility, within 0.1 and 1")
    linked: list[LinkedBody] = Field(default=[], description="Notes to which links lead from it, at most 3")
    explanations: list[Explanation] = Field(default=[], description="Where fields names it: why it was recalled")
    stale_days: int | None = Field(default=None, description="Days since it changed, where that makes it old")
    stale_warning: str | None = None
    superseded: bool = False
    superseded_by: str | None = None
    relation_type: str | None = Field(default=None, description="Of the link by which it came in")
    resolved: bool = Field(default=False, description="Of an error: a link says what resolves it")
    alike: int = Field(default=0, description="How many others it stands for that only say it again")
    holds_from: str | None = Field(default=None, description="The day from which it says that it holds, while to come")
    change: Literal["newer", "older"] | None = Field(
        default=None,
        description="older: a newer one may say it anew; newer: tells of a change of what the one marked older says",
    )
    workspace: str | None = None
    case_id: str | None = None
    phase: str | None = None
    resolution_status: str | None = None
    assertion_status: str | None = None
    context_summary: str | None = Field(default=None, description="With includeContext, as goal, outcome and affect")
    nearby_context: list[NearbyBody] = Field(
        default=[], description="With includeContext: what its session kept within half an hour, at most 3"
    )
    goal: str | None = None
    outcome: str | None = None
    affect: str | None = None
    contradicted_by: list[str] = Field(default=[], description="Handles of notes that say otherwise")


class Conflict(Answer):
    """A note that says nearly the same, or something else of the same."""

    existing_id: str
    existing_content: str
    similarity: float
    recommendation: str


class _Kept(Answer):
    id: str | None = Field(description="Null where nothing was kept: a dry run")
    created: bool = Field(description="False: it was kept before")
    type: str
    topic: str
    keywords: list[str]
    importance: float
    ttl_tier: str
    scope: Literal["permanent", "session"]
    inferred: list[str] = Field(description="What was left out and filled in by rule")
    conflicts: list[Conflict] = Field(description="Similar notes of the same people, or of the pool")
    redacted: dict[str, int] = Field(default={}, description="How much of each kind was taken out")
    dryRun: bool = False


class RememberAnswer(_Kept, AgentAnswer):
    """remember. What a note is about may be that of one kept before, so it is for readers, as what is like it."""

    OPEN = frozenset({"success", "id", "created", "redacted", "dryRun"})


@all_open
class BatchItem(Answer):
    """What became of one item: kept, or refused."""

    index: int
    success: bool
    id: str | None = None
    created: bool | None = None
    error: str | None = None
    code: str | None = None


@all_open
class BatchRememberAnswer(AgentAnswer):
    """batch_remember."""

    results: list[BatchItem]
    inserted: int
    skipped: int = Field(description="Kept before, or refused; results say which")
    dryRun: bool = False


class About(Answer):
    """What an answer says of itself."""

    searchEventId: int = Field(description="Of this question; tool_feedback takes it")
    hints: list[dict[str, str]] = Field(description="Signals, each with what to do, and by which tool")


class CaseEvent(Answer):
    """A note in the course of a case."""

    event_type: str
    summary: str
    created_at: str


class CaseBody(Answer):
    """What was tried for one goal: the notes that name one caseId."""

    case_id: str
    goal: str | None
    outcome: str | None
    resolution_status: str = Field(description="open where no note says otherwise")
    events: list[CaseEvent] = Field(description="Its first notes, at most 20")
    fragment_count: int
    relevance_score: int = Field(description="How many of its notes the question found")


class RecallAnswer(AgentAnswer):
    """recall: fragments, or with caseMode cases."""

    fragments: list[FragmentBody] = Field(default=[])
    count: int | None = None
    caseMode: bool = False
    cases: list[CaseBody] = Field(default=[])
    caseCount: int | None = None
    totalTokens: int
    searchPath: str = Field(description="Which lanes found how many, such as words:12")
    nextCursor: str | None = Field(default=None, description="Continues pages, where pageSize or cursor was given")
    meta: About = Field(alias="_meta")


class Named(Answer):
    """A note that would be forgotten."""

    id: str
    content: str
    protected: bool


class ForgetAnswer(AgentAnswer):
    """forget."""

    OPEN = frozenset({"success", "deleted", "protected", "reason", "error", "code", "dryRun"})

    deleted: int
    protected: int
    ids: list[str] = Field(default=[], description="What a topic or a text took: restore brings it back")
    reason: str | None = None
    error: str | None = None
    code: str | None = None
    dryRun: bool = False
    fragments: list[Named] = Field(default=[])


@all_open
class RestoreAnswer(AgentAnswer):
    """restore."""

    id: str
    restored: bool


class AmendAnswer(AgentAnswer):
    """amend."""

    OPEN = frozenset({"success", "updated", "merged", "existingId", "dryRun", "redacted"})

    updated: bool
    fragment: NoteBody | None = None
    merged: bool | None = None
    existingId: str | None = None
    dryRun: bool = False
    redacted: dict[str, int] = Field(default={})
