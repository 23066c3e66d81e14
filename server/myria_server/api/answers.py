"""What the tools answer, as models: for the output schemas and for tests, never for serialising at run time.

Timestamps are RFC 3339 in UTC. Every model is closed: a field that is not here is a mistake of ours.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field

from myria.search.reasons import Filter, Stage


class Answer(BaseModel):
    """Base of everything answered: strict, and closed. A model is made ready when it is first used.

    `OPEN` names the fields that callers without the role `read` are answered as well: what became of their request,
    and nothing that is stored. A field that it does not name is shown to readers alone, so forgetting one is safe.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, defer_build=True)
    OPEN: ClassVar[frozenset[str]] = frozenset()


class OpenAnswer(Answer):
    """Base of answers that show nothing of what is stored: all their fields are open, unless they name `OPEN`."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if "OPEN" not in cls.__dict__:
            cls.OPEN = frozenset(field.alias or name for name, field in cls.model_fields.items())


class Hint(Answer):
    """A topic hint as stored."""

    hint: str
    confidence: float


class Appended(Answer):
    """append_event. The participants of a repeat are those of the first event, so they are for readers."""

    OPEN = frozenset({"event_id", "event_seq", "deduplicated", "payload_differs", "redacted"})

    event_id: str
    event_seq: int
    participants: list[str]
    deduplicated: bool = Field(description="This channel and source_event_key was stored before")
    payload_differs: bool = Field(description="And its payload, participants or timestamp differ from these")
    redacted: dict[str, int] = Field(
        default={}, description="How much of each kind was taken out of the payload; left out where nothing was"
    )


class AppendedBatch(Answer):
    OPEN = frozenset({"results"})

    results: list[Appended]


class Withdrawn(OpenAnswer):
    reason: Literal["forgotten", "superseded", "expired", "restored"]
    event_ids: list[str] = Field(description="What changed, or would change")
    unchanged: list[str] = Field(description="What was so already")
    dry_run: bool


class EventBody(Answer):
    """One stored event."""

    event_id: str
    event_seq: int
    source_event_key: str | None
    timestamp: str
    channel: str
    type: str | None
    context_id: str | None
    participants: list[str]
    internal: bool
    topic_hints: list[Hint] = []
    payload: dict[str, Any]
    indexed: bool = Field(description="True in the active snapshot, false in the fresh tail (or internal)")
    ingested_at: str | None = None
    superseded: bool | None = Field(default=None, description="True: a newer event replaced it")
    superseded_by: str | None = Field(default=None, description="That event's id, where it is visible")


class EventNode(Answer):
    """An event in a tree, with its payload or a snippet of it."""

    kind: Literal["event"]
    event_id: str
    event_seq: int
    source_event_key: str | None
    timestamp: str
    channel: str
    type: str | None
    context_id: str | None
    participants: list[str]
    internal: bool
    topic_hints: list[Hint] = []
    payload: dict[str, Any] | None = None
    snippet: str | None = None
    speaker: str | None = Field(
        default=None, description="Who said it, as far as the payload tells; with references and snippets"
    )
    truncated: bool | None = Field(default=None, description="True: the payload had no room; get_event has the whole")
    payload_bytes: int | None = Field(default=None, description="Size of a payload that had no room, as JSON")
    superseded: bool | None = Field(default=None, description="True: a newer event replaced it")
    superseded_by: str | None = Field(default=None, description="That event's id, where it is visible")
    change: Literal["newer", "older"] | None = Field(
        default=None, description="newer: it tells of a change of what the event marked older says (evidence, no rule)"
    )
    alike: int | None = Field(
        default=None,
        description="Where max_tokens is given: how many other matches it stands for that only say it again",
    )
    signals: dict[str, int] | None = Field(
        default=None, description="With explain: what each signal gave to the score; together they are the score"
    )
    score: int
    indexed: bool


class EventRefNode(EventNode):
    """A reference from a leaf topic to one of its events."""

    kind: Literal["event_ref"]  # type: ignore[assignment]
    weight: int | None = None


class TopicCounts(Answer):
    """How much a topic holds in all, whatever of it is shown."""

    events: int
    leaves: int = 1
    children: int = 0


class TopicBody(Answer):
    """What is said about a topic wherever it appears."""

    topic_id: str
    node_id: str
    level: int | None = None
    label: str
    summary: str
    participants: list[str]
    state: Literal["active", "dormant", "archived"] | None = None
    first_at: str
    last_at: str
    counts: TopicCounts
    keywords: list[str] = []
    speakers: list[str] = []


class InternalTopicNode(TopicBody):
    """A topic of topics."""

    kind: Literal["internal_topic"]
    score: int | None = None
    children: list[Node]


class LeafTopicNode(TopicBody):
    """A topic of events."""

    kind: Literal["leaf_topic"]
    score: int | None = None
    children: list[Node]


class SubjectNode(TopicBody):
    """What matches from several conversations are about; its children are leaf topics in the order of time."""

    kind: Literal["subject"]
    score: int | None = None
    children: list[Node]


class RootNode(Answer):
    """The synthetic root of an answer; its participants are the union of what it holds."""

    kind: Literal["root"]
    label: str
    participants: list[str]
    children: list[Node]


Node = Annotated[
    RootNode | InternalTopicNode | SubjectNode | LeafTopicNode | EventRefNode | EventNode,
    Discriminator("kind"),
]


class TreeCounts(Answer):
    """How much an answer shows."""

    nodes: int
    events: int
    topics: int = 0
    indexed: int = 0
    fresh: int = 0


class Skipped(Answer):
    """Matches that fit on no page within the bounds asked for; get_event has each."""

    count: int
    event_ids: list[str]


class Walk(Answer):
    """How far a language model looked."""

    rounds: int
    calls: int
    tokens: int


class ExpectedEvent(Answer):
    """What became of an event that a query expected."""

    event_id: str
    stage: Stage = Field(
        description="shown; said_again: a match stands for it; no_room: ranked after what there was room for, so "
        "on a later page; too_large: it fits on no page; not_matched: holds nothing of the question; filtered: "
        "channel, types, context or time exclude it; nothing_fits: no event answers well enough; replaced by a newer "
        "one; internal; not_visible: absent, withdrawn or not yours"
    )
    place: int | None = Field(description="In the ranking, from 1; null where it is not ranked")
    score: int
    signals: dict[str, int] = Field(description="What each signal gave to the score")
    excluded_by: list[Filter] | None = Field(default=None, description="There where it is filtered: by which arguments")


class Tree(Answer):
    snapshot_id: str | None = Field(description="The snapshot this whole answer was read from")
    root: RootNode | InternalTopicNode | LeafTopicNode
    constraints: dict[str, Any] = Field(description="The query as it was understood")
    truncated: bool = Field(description="More matches than shown; go on with next_cursor")
    next_cursor: str | None
    degraded: bool = Field(description="A deterministic fallback answered where a model was asked for")
    degraded_reason: str | None
    degraded_note: str | None = Field(default=None, description="What was done instead, and what to do; when degraded")
    counts: TreeCounts
    skipped: Skipped | None = Field(default=None, description="There when matches fit on no page; next_cursor goes on")
    other_spellings: dict[str, list[str]] | None = Field(
        default=None, description="By name: nothing is visible under it, but under these; there when nothing was found"
    )
    walk: Walk | None = Field(default=None, description="There when a language model looked further")
    expected: ExpectedEvent | None = Field(default=None, description="There with the argument expected")


class LeanNode(Answer):
    """A node of the lean view: a root, a topic, an event or a reference to one."""

    kind: Literal["root", "internal_topic", "subject", "leaf_topic", "event_ref", "event"]
    event_id: str | None = None
    timestamp: str | None = None
    speaker: str | None = None
    text: str | None = Field(default=None, description="What an event says, or a part of it around the words asked for")
    type: str | None = None
    truncated: bool | None = None
    superseded: bool | None = None
    superseded_by: str | None = None
    change: Literal["newer", "older"] | None = None
    alike: int | None = None
    signals: dict[str, int] | None = None
    topic_id: str | None = None
    label: str | None = None
    summary: str | None = None
    first_at: str | None = None
    last_at: str | None = None
    children: list[LeanNode] = []


class LeanTree(Answer):
    """query_event_nodes and query_references in the lean view; what is null is left out."""

    snapshot_id: str | None = None
    root: LeanNode
    truncated: bool
    next_cursor: str | None = None
    degraded: bool
    degraded_reason: str | None = None
    expected: ExpectedEvent | None = None
    degraded_note: str | None = None
    skipped: Skipped | None = None
    other_spellings: dict[str, list[str]] | None = None


class EventAnswer(Answer):
    snapshot_id: str | None
    event: EventBody


class TopicRecord(TopicBody):
    """get_topic: a topic with its place in the tree."""

    node_type: Literal["internal_topic", "subject", "leaf_topic"]
    context_id: str | None = Field(default=None, description="That of all its events, where they share one")
    parent_topic_id: str | None = None
    children: list[str] = Field(default=[], description="By topic_id; of a subject the last 100 of its leaf topics")
    merged_into: str | None = None


class TopicAnswer(Answer):
    snapshot_id: str | None
    topic: TopicRecord


class BrokenRule(OpenAnswer):
    """A validation rule that a snapshot broke."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow", strict=True)

    rule: str
    message: str


class Snapshot(OpenAnswer):
    """One snapshot of the registry."""

    snapshot_id: str
    parent_snapshot_id: str | None
    status: str
    number: int
    build_id: str | None
    first_event_seq: int | None
    cutoff: int = Field(description="The highest event_seq it may hold")
    builder_version: str | int | None
    planner_version: str | int | None
    summarizer_version: str | int | None
    merge_policy_version: str | int | None
    validation: Literal["pending", "passed", "failed"]
    violations: list[BrokenRule]
    counts: dict[str, int]
    created_at: str
    completed_at: str | None
    activated_at: str | None
    archived_at: str | None


class ActiveSnapshot(OpenAnswer):
    snapshot: Snapshot | None


class Snapshots(OpenAnswer):
    """list_snapshots, newest first."""

    snapshots: list[Snapshot]
    next_cursor: str | None


class DegradedBuild(OpenAnswer):
    """Units that were planned by rules where a model was asked for."""

    units: int = Field(description="Of this build")
    of: int = Field(description="Units for which this build wanted a model")
    standing: int = Field(description="In the whole snapshot, with those of builds before, until they are planned anew")
    reason: str = Field(description="Kinds of failure with their units, and what the provider said")


class LastBuild(OpenAnswer):
    """The newest build."""

    build_id: str
    trigger: str
    status: str = Field(description="nothing_to_do: no event was new, so the active snapshot stayed")
    snapshot_id: str | None
    started_at: str | None
    finished_at: str | None
    error: Failure | None = Field(description="Also why the last builder of a running build died")
    degraded: DegradedBuild | None = Field(description="After nothing_to_do, what stands in the snapshot that stayed")
    counts: dict[str, int]


class ManualTrigger(OpenAnswer):
    """Whether trigger_build works."""

    enabled: bool


class InactivityTrigger(OpenAnswer):
    """A build after a quiet period."""

    enabled: bool
    timeout_s: float
    last_event_at: str | None


class TailTrigger(OpenAnswer):
    """A build after so many new events."""

    enabled: bool
    max_unindexed_events: int


class Triggers(OpenAnswer):
    """What starts builds, and what holds them back."""

    manual: ManualTrigger
    inactivity: InactivityTrigger
    tail_threshold: TailTrigger


class Wait(OpenAnswer):
    """Work beside builds that the provider of a model keeps from being done."""

    reason: str = Field(description="The last failure, with what the provider said")
    since: str


class WaitingRequest(OpenAnswer):
    """A build that was asked for, and that no build has taken up."""

    request_id: str = Field(description="abort_build takes it as build_id")
    trigger: str
    full: bool
    created_at: str
    waits_for: Literal["permission", "suspend", "build", "pause", "builder"]


class Status(OpenAnswer):
    active_snapshot_id: str | None
    degraded: DegradedBuild | None = Field(description="Of the active snapshot")
    tail_events: int = Field(description="Events a build would take")
    building: bool
    queued: int
    waiting: list[WaitingRequest] = Field(description="Of those queued the requests that no build has taken up")
    paused: bool = Field(description="Automatic builds wait: after a rollback, or for a held snapshot")
    paused_reason: str | None
    paused_since: str | None
    held_snapshot_id: str | None
    last_build: LastBuild | None
    triggers: Triggers
    waits: dict[Literal["vectors", "ratings", "facts"], Wait] = Field(
        description="Work beside builds that a model's provider keeps from being done: vectors of events, ratings of "
        "notes, facts of turns"
    )
    consecutive_failures: int = Field(description="Builds that failed since the last good one")
    retry_at: str | None
    resting_until: str | None = Field(
        description="Until when automatic builds rest, unless very many events wait: they take `builder.time_share` of "
        "the time. null: they do not"
    )
    embeddings: str = Field(description="Whether this process compares vectors, and why or why not, in words")


class BuildRequested(OpenAnswer):
    request_id: str
    build_id: str | None = Field(description="null until the build starts")


class Discarded(OpenAnswer):
    snapshot_id: str
    build_id: str


class GivenUp(OpenAnswer):
    build_id: str
    status: Literal["aborted"]


class PointerMoved(OpenAnswer):
    snapshot_id: str
    previous_snapshot_id: str | None


class Resumed(OpenAnswer):
    resumed: bool = Field(description="False where they were not paused")


class Failure(OpenAnswer):
    """What any tool answers instead when it refuses."""

    code: str
    message: str
    retryable: bool
    details: dict[str, Any]


class Refusal(Answer):
    """The structured content of a refusal."""

    error: Failure
