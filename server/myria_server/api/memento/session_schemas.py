"""The agent's tools for sessions and maintenance (Memento's contract, 6.7, 6.8 and 6.11)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from myria.errors import InvalidArgument
from myria.log.fields import check_text
from myria_server.api.answers import Answer, all_open
from myria_server.api.core.inputs import Input
from myria_server.api.memento.schemas import (
    KINDS,
    AgentAnswer,
    AgentInput,
    Budget,
    No,
    OptionalContent,
    SessionId,
    Topic,
    choice,
    field_name,
)

CONTEXT_BUDGET = 2000
"""Tokens of what a session begins with."""

MAX_PART = 50
"""Texts of one part of a reflection."""


def _texts(value: Any, info: ValidationInfo) -> tuple[str, ...]:
    name = field_name(info)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"{name} must be a list of texts", field=name)
    if len(value) > MAX_PART:
        raise InvalidArgument(f"{name} may hold at most {MAX_PART}", field=name, limit=MAX_PART)
    return tuple(
        check_text(item, f"{name}[{at}]", 10_000_000) for at, item in enumerate(value) if str(item).strip() or not item
    )


def _one_or_several(value: Any, info: ValidationInfo) -> tuple[str, ...]:
    """Return a text, or several of which each becomes a note of its own."""
    if not isinstance(value, list | tuple):
        return (check_text(value, field_name(info), 10_000_000),)
    texts = _texts([text for text in value if not isinstance(text, str) or text.strip()], info)
    if not texts:
        raise InvalidArgument("summary is empty: say what the session came to", field="summary")
    return texts


def _kinds(value: Any, info: ValidationInfo) -> tuple[str, ...] | None:
    name = field_name(info)
    if value is None or value in ([], ""):
        return None
    if not isinstance(value, list | tuple) or any(kind not in KINDS for kind in value):
        raise InvalidArgument(f"{name} must be a list of {', '.join(KINDS)}", field=name)
    return tuple(dict.fromkeys(value))


_TEXTS = WithJsonSchema({"type": "array", "items": {"type": "string"}})
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts), _TEXTS]


class ContextInput(AgentInput):
    """Arguments of context."""

    tokenBudget: Annotated[Budget, choice(CONTEXT_BUDGET)] = CONTEXT_BUDGET
    types: Annotated[tuple[str, ...] | None, BeforeValidator(_kinds), _TEXTS] = None
    sessionId: SessionId = None
    workspace: Topic = None
    structured: No = False


class Effectiveness(Input):
    """How a task went."""

    overall_success: bool | None = None
    tool_highlights: Texts = ()
    tool_pain_points: Texts = ()


class ReflectInput(AgentInput):
    """Arguments of reflect."""

    summary: Annotated[tuple[str, ...], BeforeValidator(_one_or_several), WithJsonSchema({"type": "string"})]
    sessionId: SessionId = None
    decisions: Texts = ()
    errors_resolved: Texts = ()
    new_procedures: Texts = ()
    open_questions: Texts = ()
    narrative_summary: OptionalContent = Field(default=None, description="the session as a story")
    task_effectiveness: Effectiveness | None = None


class OpeningNoteBody(Answer):
    """A note that a session begins with."""

    id: str
    content: str
    type: str
    topic: str
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

    OPEN = frozenset({"id"})

    id: str
    content: str
    type: str
    keywords: list[str]


@all_open
class ReflectAnswer(AgentAnswer):
    """reflect."""

    fragments: list[ReflectedNote]
    count: int
    breakdown: dict[str, int]


class ConsolidateInput(AgentInput):
    """Arguments of memory_consolidate."""


class StaleBody(Answer):
    """A note that has not been used for long."""

    id: str
    content: str
    type: str
    topic: str
    days_since_use: int


@all_open
class StageBody(Answer):
    """One of the ten stages."""

    stage: int
    name: str
    count: int | Literal["off"]


class ContradictionBody(Answer):
    """Two notes that a link says contradict each other."""

    from_: str = Field(alias="from")
    to: str
    from_content: str
    to_content: str


class ConsolidateAnswer(AgentAnswer):
    """memory_consolidate."""

    OPEN = frozenset(
        {
            "success",
            "ttlTransitions",
            "importanceDecay",
            "expiredDeleted",
            "duplicatesMerged",
            "embeddingsAdded",
            "utilityUpdated",
            "contradictionsFound",
            "feedbackReportGenerated",
            "indexesPruned",
            "stages",
            "remaining",
        }
    )

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
    stale_fragments: list[StaleBody]
    contradictions: list[ContradictionBody] = Field(description="For you to resolve: nothing does it by itself")
    stages: list[StageBody]
    remaining: bool = Field(description="More is due: call again")
