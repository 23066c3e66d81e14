"""The agent's tools that keep, find, change and forget notes (Memento's contract, 6.2-6.4 and 6.6)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from myria.contract.agent import (
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
    moment,
)
from myria.contract.agent_links import Relation
from myria.contract.answers import Answer
from myria.contract.inputs import Input

MAX_BATCH = 200
"""Notes of one batch_remember."""

DEFAULT_BUDGET = 1000
"""Tokens of an answer of recall."""


Assertion = Annotated[Literal["observed", "inferred", "verified", "rejected"] | None, choice(None)]


class _DetailsInput(AgentInput):
    """Details by which notes are kept and asked for; accepted, and not published: few callers have any."""

    workspace: SkipJsonSchema[Topic] = None
    caseId: SkipJsonSchema[Topic] = None
    phase: SkipJsonSchema[Topic] = None
    resolutionStatus: SkipJsonSchema[Topic] = None
    affect: SkipJsonSchema[Topic] = None


class _NoteInput(_DetailsInput):
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
    contextSummary: SkipJsonSchema[Circumstance] = None
    goal: SkipJsonSchema[Circumstance] = None
    outcome: SkipJsonSchema[Circumstance] = None
    assertionStatus: SkipJsonSchema[Assertion] = None


class RememberInput(_NoteInput):
    """Arguments of remember."""

    dryRun: No = False


class BatchRememberInput(AgentInput):
    """Arguments of batch_remember. Each item is read by itself: one that is refused does not refuse the others."""

    items: Annotated[
        list[Any],
        Field(min_length=1, max_length=MAX_BATCH),
        WithJsonSchema({"type": "array", "items": {"type": "object"}}),
    ] = Field(description="arguments of remember, up to 200")
    dryRun: No = False


class TimeRange(Input):
    """A span of time; what happened at `to` is outside."""

    since: Annotated[Time, moment("timeRange.from")] = Field(default=None, alias="from")
    to: Annotated[Time, moment("timeRange.to")] = None


class RecallInput(_DetailsInput):
    """Arguments of recall."""

    text: Query = Field(default=None, description="question in plain words")
    keywords: Keywords = None
    topic: Topic = None
    type: Kind = None
    tokenBudget: Annotated[Budget, choice(DEFAULT_BUDGET)] = DEFAULT_BUDGET
    minImportance: Share = None
    timeRange: TimeRange | None = None
    asOf: Annotated[Time, moment("asOf")] = None
    includeSuperseded: No = False
    includeLinks: Annotated[bool, choice(True)] = True
    linkRelationType: Annotated[Relation | None, choice(None)] = None
    threshold: Share = None
    pageSize: Annotated[
        Annotated[int, Field(ge=1, le=50)] | None, choice(None), WithJsonSchema({"type": "integer"})
    ] = None
    cursor: Annotated[Query, choice(None)] = None
    sessionId: SessionId = None
    isAnchor: SkipJsonSchema[OptionalFlag] = None
    includeContext: SkipJsonSchema[No] = False
    format: Annotated[Format | None, choice(None)] = None


class ForgetInput(AgentInput):
    """Arguments of forget: one of id, topic and text says what goes."""

    id: OptionalId = None
    topic: Topic = None
    text: Query = None
    force: No = Field(default=False, description="also permanent notes and anchors")
    dryRun: No = False


class RestoreNoteInput(AgentInput):
    """Arguments of restore."""

    id: Id


class AmendInput(AgentInput):
    """Arguments of amend."""

    id: Id
    content: OptionalContent = None
    topic: Topic = None
    keywords: Keywords = None
    type: Kind = None
    importance: Share = None
    isAnchor: OptionalFlag = None
    supersedes: OptionalFlag = None


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


class FragmentBody(Answer):
    """A memory that was recalled: a note, a raw event, or a topic of events.

    An event has no type, topic, keywords, importance and tier, and its id is its handle; a topic's type is `topic`.
    """

    id: str
    content: str
    truncated: bool = Field(default=False, description="The content is its beginning")
    handle: str | None = None
    created_at: str
    speaker: str | None = None
    type: str | None = None
    topic: str | None = None
    keywords: list[str] = Field(default=[])
    importance: float | None = None
    ttl_tier: str | None = None
    stale_days: int | None = Field(default=None, description="Days since it changed, where that makes it old")
    superseded: bool = False
    superseded_by: str | None = None
    relation_type: str | None = Field(default=None, description="Of the link by which it came in")
    resolved: bool = Field(default=False, description="Of an error: a link says what resolves it")
    change: Literal["newer", "older"] | None = Field(
        default=None, description="newer: tells of a change of what the one marked older says"
    )
    workspace: str | None = None
    case_id: str | None = None
    phase: str | None = None
    resolution_status: str | None = None
    assertion_status: str | None = None
    context_summary: str | None = Field(default=None, description="With includeContext, as goal, outcome and affect")
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
    """remember."""


class BatchItem(Answer):
    """What became of one item: kept, or refused."""

    index: int
    success: bool
    id: str | None = None
    created: bool | None = None
    error: str | None = None
    code: str | None = None


class BatchRememberAnswer(AgentAnswer):
    """batch_remember."""

    results: list[BatchItem]
    inserted: int
    skipped: int = Field(description="Kept before, or refused; results say which")
    dryRun: bool = False


class RecallAnswer(AgentAnswer):
    """recall."""

    fragments: list[FragmentBody]
    count: int
    totalTokens: int
    searchPath: str = Field(description="Which lanes found how many, such as words:12")
    nextCursor: str | None = Field(default=None, description="Continues pages, where pageSize or cursor was given")
    hints: list[dict[str, str]] = Field(default=[], description="Signals, each with what to do")


class Named(Answer):
    """A note that would be forgotten."""

    id: str
    content: str
    protected: bool


class ForgetAnswer(AgentAnswer):
    """forget."""

    deleted: int
    protected: int
    reason: str | None = None
    error: str | None = None
    code: str | None = None
    dryRun: bool = False
    fragments: list[Named] = Field(default=[])


class RestoreAnswer(AgentAnswer):
    """restore."""

    id: str
    restored: bool


class AmendAnswer(AgentAnswer):
    """amend."""

    updated: bool
    fragment: NoteBody | None = None
    merged: bool | None = None
    existingId: str | None = None
    redacted: dict[str, int] = Field(default={})
