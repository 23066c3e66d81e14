"""The arguments of the agent's tools: the names of Memento's contract, most in camel case.

Schemas are bare on purpose: a model reads them with every conversation, so bounds that no honest call reaches are
checked and not published.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema
from pydantic.alias_generators import to_camel

from myria.errors import InvalidArgument
from myria.log.fields import check_text, parse_timestamp
from myria.log.limits import MAX_ID, MAX_QUERY, MAX_REASON
from myria.log.scopes import MAX_PARTICIPANT_CHARACTERS
from myria.notes.details import DETAILS, Details
from myria.notes.links import Relation
from myria_server.api.core.inputs import Input, read_local_moment
from myria_server.api.fields import (
    BLANK,
    NULL,
    TEXT,
    FieldRule,
    check_list,
    check_texts,
    needed,
    optional,
    optional_text,
    or_default,
    text,
)
from myria_server.api.memento.answer_schemas import FragmentBody
from myria_server.api.schemas import HIDDEN

CONTRACT: Literal["memento"] = "memento"
"""Whose kinds of notes this API knows."""

KINDS = ("fact", "decision", "error", "preference", "procedure", "relation", "episode")
"""Those kinds; a test holds them to notes/kinds.toml."""

MAX_BATCH = 200
"""Notes of one batch_remember."""

MAX_PART = 50
"""Texts of one part of a reflection."""

MAX_CIRCUMSTANCE = 2_000
DEFAULT_BUDGET = 1000
"""Tokens of an answer of recall."""

CONTEXT_BUDGET = 2000
"""Tokens of what a session begins with."""

_MAX_TOPIC = 200
_MAX_KEYWORD, _MAX_KEYWORDS = 100, 32
_MAX_SOURCE = 500
_MAX_IDS = 100
_MAX_BUDGET = 100_000
_MAX_CONTENT = 10_000_000
"""Characters of any text; a setting bounds those of a note."""

_OF_OTHERS = ("valid_to", "ema_activation", "similarity")
"""Fields of the contract that memories do not have here: nothing is shown for them."""

_DOMAIN_NAMES = {
    "content": "content",
    "type": "kind",
    "topic": "topic",
    "keywords": "keywords",
    "importance": "importance",
    "source": "source",
    "scope": "lifetime",
    "isAnchor": "anchor",
    "sessionId": "session_id",
}
"""The domain's names of what the contract says of a note."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _texts(limit: int, longest: int) -> FieldRule:
    """Return the rule of a list of texts, of which an empty one is as good as none."""
    return optional(lambda value, name: check_texts(value, name, longest, limit) or None, _TEXTS, blanks=NULL)


def _read_moods(value: Any, name: str) -> tuple[str, ...] | None:
    """Return the moods to search for, any of which matches; a text stands for one mood."""
    moods = [value] if isinstance(value, str) else value
    return check_texts(moods, name, _MAX_TOPIC, _MAX_KEYWORDS) or None


def _read_part(value: Any, name: str) -> tuple[str, ...]:
    """Return the texts of a part of a reflection; blank ones are left out."""
    items = check_list(value, name, MAX_PART, "texts")
    return tuple(
        check_text(item, f"{name}[{index}]", _MAX_CONTENT)
        for index, item in enumerate(items)
        if str(item).strip() or not item
    )


def _read_summary(value: Any, name: str) -> tuple[str, ...]:
    """Return the texts of a summary, each of which becomes a note of its own; a text stands for one."""
    if not isinstance(value, list | tuple):
        return (check_text(value, name, _MAX_CONTENT),)
    texts = _read_part([text for text in value if not isinstance(text, str) or text.strip()], name)
    if not texts:
        raise InvalidArgument("summary is empty: say what the session came to", field="summary")
    return texts


def _read_kinds(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or any(kind not in KINDS for kind in value):
        raise InvalidArgument(f"{name} must be a list of {', '.join(KINDS)}", field=name)
    return tuple(dict.fromkeys(value))


def _check_fields(value: Any) -> Any:
    """Refuse names of fields that a memory does not have."""
    if isinstance(value, list | tuple):
        known = {*FragmentBody.model_fields, *_OF_OTHERS}
        for name in value:
            if name not in known:
                raise InvalidArgument(f"fields knows {', '.join(sorted(FragmentBody.model_fields))}", field="fields")
    return value


def _moment_rule(name: str, *, whole_day: bool = False) -> FieldRule:
    """Return the rule of a time; null or an empty text means none.

    Args:
        name: the field's name as callers know it, for refusals.
        whole_day: a date alone means the end of that day; otherwise its beginning. UTC, unless a zone is set.
    """

    def check(value: Any, info: ValidationInfo) -> int | None:
        return None if value in BLANK else parse_timestamp(_add_clock(value, info.context, whole_day=whole_day), name)

    return FieldRule(check, schema=TEXT)


def _read_as_of(value: Any, info: ValidationInfo) -> tuple[int, int] | None:
    """Return a time, read as by `_moment_rule` with `whole_day`, and its offset in minutes east of UTC."""
    if value in BLANK:
        return None
    return read_local_moment(_add_clock(value, info.context, whole_day=True), info.field_name or "")


def _add_clock(value: Any, zone: ZoneInfo | None, *, whole_day: bool) -> Any:
    """Return a time unchanged, but a date alone with the time of day that it means, in `zone` or UTC."""
    if not isinstance(value, str) or _DATE.fullmatch(value) is None:
        return value
    full_time = f"{value}T23:59:59.999999" if whole_day else f"{value}T00:00:00"
    try:
        return datetime.fromisoformat(full_time).replace(tzinfo=zone or UTC).isoformat()
    except ValueError:
        return f"{full_time}Z"  # no such day: parse_timestamp refuses it and says why


_TEXTS = {"type": "array", "items": TEXT}
_WHOLE_NUMBER = WithJsonSchema({"type": "integer"})
_OBJECTS = WithJsonSchema({"type": "array", "items": {"type": "object"}})
_default_if_blank = partial(or_default, blanks=BLANK)

Id = Annotated[str, text(MAX_ID, TEXT)]
OptionalId = Annotated[str | None, optional_text(MAX_ID, TEXT)]
Ids = Annotated[tuple[str, ...] | None, _texts(_MAX_IDS, MAX_ID)]
Content = Annotated[str, text(_MAX_CONTENT, TEXT)]
OptionalContent = Annotated[str | None, optional_text(_MAX_CONTENT, TEXT)]
Topic = Annotated[str | None, optional_text(_MAX_TOPIC, TEXT)]
Source = Annotated[str | None, optional_text(_MAX_SOURCE, TEXT)]
Circumstance = Annotated[str | None, optional_text(MAX_CIRCUMSTANCE, TEXT)]
Query = Annotated[str | None, optional_text(MAX_QUERY, TEXT)]
Keywords = Annotated[tuple[str, ...] | None, _texts(_MAX_KEYWORDS, _MAX_KEYWORD)]
Texts = Annotated[tuple[str, ...], optional(_read_part, _TEXTS, (), blanks=NULL)]
AgentId = Annotated[str | None, optional_text(MAX_PARTICIPANT_CHARACTERS, TEXT)]
Share = Annotated[Annotated[float, Field(ge=0, le=1)] | None, WithJsonSchema({"type": "number"})]
No = Annotated[bool, _default_if_blank(False), WithJsonSchema({"type": "boolean"})]
OptionalFlag = Annotated[bool | None, WithJsonSchema({"type": "boolean"})]
Kind = Annotated[str | None, optional_text(_MAX_TOPIC, TEXT | {"enum": list(KINDS)})]
Budget = Annotated[Annotated[int, Field(ge=1, le=_MAX_BUDGET)], _WHOLE_NUMBER]
Format = Annotated[Literal["text", "json"] | None, _default_if_blank(None)]
Items = Annotated[list[Any], Field(max_length=MAX_BATCH), _default_if_blank([]), _OBJECTS]


def _move_agent_last(schema: dict[str, Any]) -> None:
    """Move agentId to the end: small models write arguments in the schema's order, so content comes first."""
    properties = schema.get("properties", {})
    if "agentId" in properties:
        properties["agentId"] = properties.pop("agentId")


class AgentInput(Input):
    """Base of the arguments on this API.

    `agentId` is the agent that acts; `format` says what the text of the answer is: every tool takes it, but only those
    whose text is worth choosing publish it.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_move_agent_last)

    agentId: AgentId = Field(default=None, description="only if told one")
    format: Annotated[Format, HIDDEN] = None


class _NoteInput(AgentInput):
    """What is said of a note, its circumstances first."""

    contextSummary: Circumstance = None
    workspace: Topic = None
    caseId: Topic = None
    goal: Circumstance = None
    outcome: Circumstance = None
    phase: Topic = None
    resolutionStatus: Topic = None
    assertionStatus: Annotated[
        Literal["observed", "inferred", "verified", "rejected"] | None, _default_if_blank(None)
    ] = None
    affect: Topic = None

    def said(self) -> dict[str, Any]:
        """Return these arguments under the domain's names, those of `Draft` and of `Changes`."""
        said = {domain_name: getattr(self, contract_name) for contract_name, domain_name in _DOMAIN_NAMES.items()}
        return {**said, "details": Details(**{name: getattr(self, to_camel(name)) for name in DETAILS})}


class RememberInput(_NoteInput):
    content: Content = Field(description="one self-contained statement")
    type: Kind = None
    topic: Topic = None
    keywords: Keywords = None
    importance: Share = None
    source: Source = None
    scope: Annotated[Literal["permanent", "session"], _default_if_blank("permanent")] = "permanent"
    sessionId: OptionalId = None
    isAnchor: No = False
    linkedTo: Ids = None
    supersedes: Ids = None
    idempotencyKey: OptionalId = None
    dryRun: No = False


class BatchRememberInput(AgentInput):
    """Arguments of batch_remember. Each item is read by itself: one that is refused does not refuse the others.

    The contract calls the items `fragments`, and has a workspace for those that name none; `stream` chooses a form of
    progress that this server tells by the protocol's own.
    """

    items: Items = Field(default=[], description="arguments of remember, up to 200")
    dryRun: No = False
    fragments: Annotated[Items, HIDDEN] = Field(default=[])
    workspace: Annotated[Topic, HIDDEN] = None
    stream: Annotated[OptionalFlag, HIDDEN] = None


class TimeRange(Input):
    """A span of time; what happened at `to` is outside."""

    since: Annotated[int | None, _moment_rule("timeRange.from")] = Field(default=None, alias="from")
    to: Annotated[int | None, _moment_rule("timeRange.to", whole_day=True)] = None


class RecallInput(AgentInput):
    text: Query = Field(default=None, description="question in plain words")
    keywords: Keywords = None
    topic: Topic = None
    type: Kind = None
    tokenBudget: Annotated[Budget, _default_if_blank(DEFAULT_BUDGET)] = DEFAULT_BUDGET
    minImportance: Share = None
    timeRange: TimeRange | None = None
    asOf: Annotated[tuple[int, int] | None, FieldRule(_read_as_of, schema=TEXT)] = None
    includeSuperseded: No = False
    includeLinks: Annotated[bool, _default_if_blank(True)] = True
    linkRelationType: Annotated[Relation | None, _default_if_blank(None)] = None
    threshold: Share = None
    pageSize: Annotated[Annotated[int, Field(ge=1, le=50)] | None, _default_if_blank(None), _WHOLE_NUMBER] = None
    cursor: Query = None
    sessionId: OptionalId = None
    excludeSeen: Annotated[bool, _default_if_blank(True)] = Field(default=True, description="of sessionId, by context")
    contextText: Query = None
    depth: Annotated[Literal["high-level", "detail", "tool-level"] | None, _default_if_blank(None)] = None
    workspace: Topic = None
    caseId: Topic = None
    phase: Topic = None
    resolutionStatus: Topic = None
    affect: Annotated[tuple[str, ...] | None, optional(_read_moods, _TEXTS, blanks=(None, "", []))] = None
    isAnchor: OptionalFlag = None
    caseMode: No = False
    maxCases: Annotated[Annotated[int, Field(ge=1, le=10)] | None, _default_if_blank(None), _WHOLE_NUMBER] = None
    includeKeywords: No = False
    includeContext: No = False
    fields: Annotated[Keywords, BeforeValidator(_check_fields)] = None
    fragmentCount: Annotated[int | None, _default_if_blank(None), HIDDEN] = None
    format: Format = None


class ForgetInput(AgentInput):
    """Arguments of forget: one of id, topic and text says what goes."""

    id: OptionalId = None
    topic: Topic = None
    text: Query = None
    force: No = Field(default=False, description="also permanent notes and anchors")
    dryRun: No = False


class NamedInput(AgentInput):
    """Arguments of restore, the id or handle of a note or a raw event, and of fragment_history."""

    id: Id


class AmendInput(_NoteInput):
    """Arguments of amend: what is left out, or empty, stays as it is.

    `reason` is kept with the version, beside who amended; `version` is the one that the caller has read.
    """

    id: Id
    content: OptionalContent = None
    topic: Topic = None
    keywords: Keywords = None
    type: Kind = None
    importance: Share = None
    isAnchor: OptionalFlag = None
    source: Source = None
    scope: Annotated[Literal["permanent", "session"] | None, _default_if_blank(None)] = None
    sessionId: OptionalId = None
    supersedes: Annotated[bool, _default_if_blank(False), HIDDEN] = False
    reason: Annotated[str | None, optional_text(MAX_REASON, TEXT), HIDDEN] = None
    version: Annotated[int | None, _default_if_blank(None), HIDDEN] = None
    dryRun: No = False


class LinkInput(AgentInput):
    fromId: Id
    toId: Id
    relationType: Annotated[Relation, _default_if_blank("related")] = "related"
    weight: Share = None
    replaces: No = Field(default=False, description="in place of the pair's other types, which else stay")
    dryRun: No = False


class GraphExploreInput(AgentInput):
    startId: Id = Field(description="best an error")


class ContextInput(AgentInput):
    tokenBudget: Annotated[Budget, _default_if_blank(CONTEXT_BUDGET)] = CONTEXT_BUDGET
    types: Annotated[tuple[str, ...] | None, optional(_read_kinds, _TEXTS, blanks=(None, "", []))] = None
    sessionId: OptionalId = None
    workspace: Topic = None
    structured: No = False


class Effectiveness(Input):
    """How a task went."""

    overall_success: bool | None = None
    tool_highlights: Texts = ()
    tool_pain_points: Texts = ()


class ReflectInput(AgentInput):
    summary: Annotated[tuple[str, ...], needed(_read_summary, TEXT)]
    sessionId: OptionalId = None
    decisions: Texts = ()
    errors_resolved: Texts = ()
    new_procedures: Texts = ()
    open_questions: Texts = ()
    narrative_summary: OptionalContent = Field(default=None, description="the session as a story")
    task_effectiveness: Effectiveness | None = None


class FeedbackInput(AgentInput):
    tool_name: Id
    relevant: bool
    sufficient: bool
    suggestion: Circumstance = None
    context: Circumstance = None
    session_id: OptionalId = None
    trigger_type: Annotated[Literal["sampled", "voluntary"], _default_if_blank("voluntary")] = "voluntary"
    search_event_id: Annotated[int | None, _default_if_blank(None), _WHOLE_NUMBER] = None
    fragment_ids: Ids = None
