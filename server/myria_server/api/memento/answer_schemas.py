"""What the agent's tools answer: the names of Memento's contract."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from myria.notes.links import Relation
from myria_server.api.answers import Answer, OpenAnswer

Scope = Literal["permanent", "session"]


class AgentAnswer(Answer):
    """Base of what this API answers."""

    success: bool


class AgentRefusal(Answer):
    """What a refused call answers on this API."""

    success: Literal[False]
    error: str
    code: str
    retryable: bool
    details: dict[str, Any]


class DetailsBody(Answer):
    """Details with which a note was kept."""

    workspace: str | None = None
    case_id: str | None = None
    phase: str | None = None
    resolution_status: str | None = None
    assertion_status: str | None = None
    context_summary: str | None = None
    goal: str | None = None
    outcome: str | None = None
    affect: str | None = None


class TypedBody(Answer):
    """A note in short."""

    id: str
    content: str
    type: str
    topic: str


class NoteBody(DetailsBody, TypedBody):
    """A note as it stands."""

    keywords: list[str]
    importance: float
    ttl_tier: str
    scope: Scope
    is_anchor: bool
    source: str | None = None
    version: int | None = None


class VersionBody(NoteBody):
    """A version of a note."""

    speaker: str | None
    created_at: str


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


class FragmentBody(DetailsBody):
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
    context_summary: str | None = Field(default=None, description="With includeContext, as goal, outcome and affect")
    nearby_context: list[NearbyBody] = Field(
        default=[], description="With includeContext: what its session kept within half an hour, at most 3"
    )
    contradicted_by: list[str] = Field(default=[], description="Handles of notes that say otherwise")


class Conflict(Answer):
    """A note that says nearly the same, or something else of the same."""

    existing_id: str
    existing_content: str
    similarity: float
    recommendation: str


class RememberAnswer(AgentAnswer):
    """remember. What a note is about may be that of one kept before, so it is for readers, as what is like it."""

    OPEN = frozenset({"success", "id", "created", "redacted", "dryRun", "held"})

    id: str | None = Field(description="Null where nothing was kept: a dry run")
    created: bool = Field(description="False: it was kept before")
    type: str
    topic: str
    keywords: list[str]
    importance: float
    ttl_tier: str
    scope: Scope
    inferred: list[str] = Field(description="What was left out and filled in by rule")
    conflicts: list[Conflict] = Field(description="Similar notes of the same people, or of the pool")
    redacted: dict[str, int] = Field(default={}, description="How much of each kind was taken out")
    dryRun: bool = False
    held: bool = Field(default=False, description="A reviewer must approve it before anybody finds it")


class BatchItem(OpenAnswer):
    """What became of one item: kept, or refused."""

    index: int
    success: bool
    id: str | None = None
    created: bool | None = None
    held: bool = False
    error: str | None = None
    code: str | None = None


class BatchRememberAnswer(AgentAnswer, OpenAnswer):
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
    OPEN = frozenset({"success", "deleted", "protected", "reason", "error", "code", "dryRun"})

    deleted: int
    protected: int
    ids: list[str] = Field(default=[], description="What a topic or a text took: restore brings it back")
    reason: str | None = None
    error: str | None = None
    code: str | None = None
    dryRun: bool = False
    fragments: list[Named] = Field(default=[])


class RestoreAnswer(AgentAnswer, OpenAnswer):
    id: str
    restored: bool


class AmendAnswer(AgentAnswer):
    OPEN = frozenset({"success", "updated", "merged", "existingId", "dryRun", "redacted", "held"})

    updated: bool
    fragment: NoteBody | None = None
    merged: bool | None = None
    existingId: str | None = None
    dryRun: bool = False
    redacted: dict[str, int] = Field(default={})
    held: bool = Field(default=False, description="A reviewer must approve it; it then replaces the note by its own id")


class LinkAnswer(AgentAnswer, OpenAnswer):
    linked: bool
    relationType: Relation
    dryRun: bool = False


class GraphNode(TypedBody):
    """A note in a graph; `depth` 0 is where it starts."""

    importance: float
    relation_type: str | None
    depth: int


class _Pair(Answer):
    """Two notes and what joins them."""

    from_: str = Field(alias="from")
    to: str


class GraphEdge(_Pair):
    """A link in a graph."""

    relation_type: str
    weight: float


class GraphExploreAnswer(AgentAnswer):
    startId: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    count: int


class OpeningNoteBody(TypedBody):
    """A note that a session begins with."""

    importance: float
    isAnchor: bool
    ttl_tier: str
    created_at: str


class WorkingMemory(Answer):
    """The notes of this session that end with it, in a structured answer."""

    current_session: list[OpeningNoteBody]


class Anchors(Answer):
    """The anchors of core memory, in a structured answer."""

    permanent: list[OpeningNoteBody]


class ContextAnswer(AgentAnswer):
    """context: flat with `fragments` and `injectionText`, or, with `structured`, the notes by where they belong."""

    fragments: list[OpeningNoteBody] = Field(default=[])
    count: int
    totalTokens: int = Field(description="What injectionText costs, or would cost")
    coreTokens: int
    wmTokens: int
    wmCount: int
    anchorCount: int
    injectionText: str | None = None
    structured: bool = False
    core: dict[str, list[OpeningNoteBody]] | None = Field(
        default=None, description="preferences, errors, decisions, procedures, then further kinds; anchors are apart"
    )
    working: WorkingMemory | None = None
    anchors: Anchors | None = None
    open_questions: list[OpeningNoteBody] | None = None
    topics: list[str] | None = None


class ReflectedNote(Answer):
    """A note that a reflection made, or found kept already."""

    OPEN = frozenset({"id", "held"})

    id: str
    content: str
    type: str
    keywords: list[str]
    held: bool = False


class ReflectAnswer(AgentAnswer, OpenAnswer):
    fragments: list[ReflectedNote]
    count: int
    breakdown: dict[str, int]


class StaleBody(TypedBody):
    """A note that has not been used for long."""

    days_since_use: int


class StageBody(OpenAnswer):
    """One of the ten stages."""

    stage: int
    name: str
    count: int | Literal["off"]


class ContradictionBody(_Pair):
    """Two notes that a link says contradict each other."""

    from_content: str
    to_content: str


class _Consolidated(AgentAnswer, OpenAnswer):
    """What memory_consolidate tells of what it did, without what a note says."""

    ttlTransitions: int
    importanceDecay: int
    expiredDeleted: int
    duplicatesMerged: int
    embeddingsAdded: int | Literal["off"] = Field(
        description="Of the notes looked at, those that have a vector by now; off: none is compared here"
    )
    utilityUpdated: int
    contradictionsFound: int
    feedbackReportGenerated: bool = Field(description="`myria feedback` reports what was said of tools")
    indexesPruned: int
    stages: list[StageBody]
    remaining: bool = Field(description="More is due: call again")


class ConsolidateAnswer(_Consolidated):
    OPEN = _Consolidated.OPEN

    stale_fragments: list[StaleBody]
    contradictions: list[ContradictionBody] = Field(description="For you to resolve: nothing does it by itself")


class HistoryAnswer(AgentAnswer):
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
    stats: StatsBody
    topics: list[TopicNotes] = Field(description="Those of most notes, at most 50")


class FeedbackAnswer(AgentAnswer, OpenAnswer):
    id: str
    tool_name: str
    relevant: bool
    sufficient: bool
