"""The arguments of every tool as models: they publish the JSON Schemas, and read the arguments of all but appends.

Unknown fields are refused by name, optional fields may be null, and in queries an empty text or list is as good as
absent (agents fill in every field they see). Events are read by `myria.log.event`, which is ten times faster; their
models say what it takes, and check nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from myria.access.principal import NamedMask, Principal
from myria.errors import InvalidArgument, MyriaError
from myria.log.fields import (
    check_flag,
    parse_hints,
    parse_timestamp,
    refuse_unknown,
    unknown_field,
    utc_offset_of,
)
from myria.log.limits import (
    DEFAULT_LIMIT,
    DEFAULT_NODES,
    DEFAULT_SNAPSHOTS,
    MAX_CHANNEL,
    MAX_CONTEXT_ID,
    MAX_CURSOR,
    MAX_HINT,
    MAX_ID,
    MAX_LIMIT,
    MAX_NODES,
    MAX_QUERY,
    MAX_REASON,
    MAX_SNAPSHOTS,
    MAX_SOURCE_EVENT_KEY,
    MAX_TOKENS,
    MAX_TOPIC_HINTS,
    MAX_TREE_DEPTH,
    MAX_TYPE,
    MAX_TYPES,
    MAX_WITHDRAWN,
)
from myria.log.masks import MAX_MASKS
from myria.log.payloads import TopicHint
from myria.log.scopes import MAX_PARTICIPANT_CHARACTERS, MAX_PARTICIPANTS, canonical_participants
from myria.search.queries import EventNodesQuery, Format, Mode, Order, ReferencesQuery, View
from myria_server.api.coercion import coerced, field_path
from myria_server.api.fields import MOMENT, NULL, check_list, optional, optional_text, or_default, text, texts
from myria_server.api.schemas import fields_at

_Model = TypeVar("_Model", bound="Input")

_HINT_SCHEMA = {
    "type": "object",
    "properties": {
        "hint": {"type": "string", "minLength": 1, "maxLength": MAX_HINT},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["hint", "confidence"],
    "additionalProperties": False,
}
_NAMES_SCHEMA = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": MAX_PARTICIPANT_CHARACTERS},
    "minItems": 1,
    "maxItems": MAX_PARTICIPANTS,
}


def _nonempty_text_schema(limit: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "minLength": 1, "maxLength": limit})


def read_local_moment(value: Any, name: str) -> tuple[int, int]:
    """Return a moment, and the offset by which it is given, in minutes east of UTC."""
    return parse_timestamp(value, name), utc_offset_of(value)


def _read_mask(item: Any, field: str) -> NamedMask:
    if not isinstance(item, dict):
        raise InvalidArgument(f"{field} must be an object {{participants, exact}}", field=field)
    refuse_unknown(item, ("participants", "exact"), field)
    names, exact = item.get("participants"), item.get("exact")
    return NamedMask(
        participants=None if names is None else canonical_participants(names, field=f"{field}.participants"),
        exact=exact is not None and check_flag(exact, f"{field}.exact"),
    )


def _read_masks(value: Any, name: str) -> tuple[NamedMask, ...]:
    items = check_list(value, name, MAX_MASKS, "{participants, exact}")
    return tuple([_read_mask(item, f"{name}[{index}]") for index, item in enumerate(items)])


def _read_hints(value: Any, name: str) -> tuple[TopicHint, ...]:
    return parse_hints(value, name, limit=MAX_TOPIC_HINTS, longest=MAX_HINT, texts=True)


Participants = Annotated[
    tuple[str, ...] | None,
    optional(lambda value, name: canonical_participants(value, field=name), _NAMES_SCHEMA, blanks=NULL),
]
NamedMasks = Annotated[
    tuple[NamedMask, ...],
    optional(
        _read_masks,
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"participants": _NAMES_SCHEMA, "exact": {"type": "boolean"}},
                "additionalProperties": False,
            },
            "maxItems": MAX_MASKS,
        },
        (),
        blanks=NULL,
    ),
]
Moment = Annotated[int | None, optional(parse_timestamp, MOMENT)]
Flag = Annotated[bool, or_default(False)]
QueryHints = Annotated[
    tuple[TopicHint, ...],
    optional(
        _read_hints,
        {
            "type": "array",
            "items": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": MAX_HINT}, _HINT_SCHEMA]},
            "maxItems": MAX_TOPIC_HINTS,
        },
        (),
        blanks=NULL,
    ),
]
Types = Annotated[
    tuple[str, ...], texts(MAX_TYPE, MAX_TYPES, "event types"), AfterValidator(lambda types: tuple(sorted(types)))
]
EventIds = Annotated[tuple[str, ...], texts(MAX_ID, MAX_WITHDRAWN, "event ids")]
Identifier = Annotated[str, text(MAX_ID)]
OptionalIdentifier = Annotated[str | None, optional_text(MAX_ID)]
Target = Annotated[str | None, optional_text(MAX_ID, blanks=NULL)]
"""An empty text is refused, as it must not quietly mean the default."""

Cursor = Annotated[str | None, optional_text(MAX_CURSOR)]
Reason = Annotated[str | None, optional_text(MAX_REASON)]


class Input(BaseModel):
    """Base of all arguments: strict, and closed. A model is made ready when it is first used."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class EventInput(Input):
    """One event of append_events."""

    timestamp: Annotated[str, WithJsonSchema(MOMENT)] = Field(
        description="When it happened: RFC 3339 with zone, e.g. 2026-03-19T20:00:00Z"
    )
    channel: Annotated[str, _nonempty_text_schema(MAX_CHANNEL)] = Field(
        description="Where it came from, e.g. telegram or planner-agent"
    )
    participants: Participants = Field(
        default=None,
        description="Everyone who may ever see this event, beside you; only queries by a subset of them find it. Left "
        "out: you alone",
    )
    payload: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(
        description="The event itself: any JSON object. payload.text is what is searched and summarised; "
        "captions of pictures are found, too; payload.speaker says who spoke"
    )
    source_event_key: Annotated[str | None, _nonempty_text_schema(MAX_SOURCE_EVENT_KEY)] = Field(
        default=None,
        description="Your own id of the event. A repeat with the same channel and key is stored once",
    )
    context_id: Annotated[str | None, _nonempty_text_schema(MAX_CONTEXT_ID)] = Field(
        default=None, description="A hint: which conversation or thread"
    )
    type: Annotated[str | None, _nonempty_text_schema(MAX_TYPE)] = Field(
        default=None, description="A hint: message, tool_result, task_update, topic_marker, ..."
    )
    topic_hints: Annotated[
        tuple[TopicHint, ...], WithJsonSchema({"type": "array", "items": _HINT_SCHEMA, "maxItems": MAX_TOPIC_HINTS})
    ] = Field(default=(), description="Weak guesses at the topic, each with a confidence from 0 to 1")
    internal: Flag = Field(default=False, description="True keeps it out of topics and of ordinary queries")


class AppendInput(EventInput):
    supersedes: EventIds = Field(
        default=(), description="Ids of events that this one replaces; from now on they are found on request only"
    )


class SupersedingInput(Input):
    """The argument of append_event that is no part of the event."""

    supersedes: EventIds = ()


class NamedEventsInput(Input):
    event_ids: EventIds = Field(description="Ids of events that you may see, or their handles (e:481920375)")
    participants: Participants = Field(
        default=None, description="Who asks, beside you; each event must be visible to all of them"
    )
    dry_run: Flag = Field(default=False, description="True only says what would change")


class WithdrawInput(NamedEventsInput):
    reason: Annotated[Literal["forgotten", "superseded", "expired"], or_default("forgotten")] = Field(
        default="forgotten", description="superseded events are still found with include_superseded, others never"
    )


class EventsInput(Input):
    events: tuple[EventInput, ...] = Field(
        min_length=1, max_length=500, description="Stored all or none, in this order"
    )


class _SelectionInput(Input):
    participants: Participants = Field(
        default=None,
        description="Who asks, beside you. Only events and topics whose participants include all of these are visible. "
        "Left out: you alone",
    )
    masks: NamedMasks = Field(
        default=(),
        description="Several questions in one, in place of participants: what any of these sees is visible. Each names "
        "participants as above; with exact, only events and topics of exactly these and you",
    )
    query: Annotated[str | None, optional_text(MAX_QUERY)] = Field(
        default=None, description="Words to look for, in any language; left out: the most recent"
    )
    topic_hints: QueryHints = Field(default=(), description="Topics to prefer; they never exclude anything")
    context_id: Annotated[str | None, optional_text(MAX_CONTEXT_ID)] = Field(
        default=None, description="Only this context"
    )
    channel: Annotated[str | None, optional_text(MAX_CHANNEL)] = Field(default=None, description="Only this channel")
    types: Types = Field(default=(), description="Only these event types")
    since: Moment = Field(default=None, description="Only events at or after this RFC 3339 timestamp")
    until: Moment = Field(default=None, description="Only events before this RFC 3339 timestamp")
    include_internal: Flag = Field(default=False, description="Also events marked internal")
    include_superseded: Flag = Field(default=False, description="Also events that a newer one replaced, marked so")
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = Field(
        default=None,
        description="Bound on the answer's size, estimated as characters / 4, and true for text; a match that fits on "
        "no page is shortened (truncated: true), or else only its id is said",
    )
    order: Annotated[Order, or_default("relevance")] = Field(
        default="relevance", description="relevance, or newest or oldest first"
    )
    now: Annotated[tuple[int, int] | None, optional(read_local_moment, MOMENT)] = Field(
        default=None,
        description="What 'yesterday' counts from, in days of its own offset; left out: the newest visible event not "
        "ahead of the server's clock",
    )
    cursor: Cursor = Field(default=None, description="next_cursor of the answer before, to continue it")
    explain: Flag = Field(default=False, description="Also what each signal gave to the score of each match")
    expected: OptionalIdentifier = Field(
        default=None,
        description="With explain: id or handle of an event or note; says its place, or why it is not here",
    )
    format: Annotated[Format, or_default("json")] = Field(
        default="json",
        description="json, or text: compact lines for a model beside the structured content",
    )
    view: View | None = Field(
        default=None,
        description="lean: who said what, when, and its id; full: everything known of it. Left out: full for json, "
        "lean for text",
    )

    def _query_arguments(self, principal: Principal) -> dict[str, Any]:
        """Return the arguments of the domain's query: these fields, with what the principal may see as masks."""
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidArgument("since must be earlier than until", field="since")
        if self.masks and self.participants is not None:
            raise InvalidArgument("name participants or masks, not both", field="masks")
        arguments = {name: getattr(self, name) for name in type(self).model_fields}
        arguments["now"], arguments["utc_offset"] = self.now or (None, 0)
        arguments["view"] = self.view or ("full" if self.format == "json" else "lean")
        masks = principal.asking_under(self.masks) if self.masks else principal.asking(self.participants)
        return {**arguments, "participants": None, "masks": masks}


class EventNodesInput(_SelectionInput):
    limit: Annotated[int, or_default(DEFAULT_LIMIT)] = Field(
        default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="How many events"
    )

    def query_value(self, principal: Principal) -> EventNodesQuery:
        """Return the domain's query, asked by a principal.

        Raises:
            InvalidArgument: since is not before until, or both participants and masks are named.
            ParticipantsNotAllowed: the principal may not ask as those named.
        """
        return EventNodesQuery(**self._query_arguments(principal))


class ReferencesInput(_SelectionInput):
    max_nodes: Annotated[int, or_default(DEFAULT_NODES)] = Field(
        default=DEFAULT_NODES, ge=1, le=MAX_NODES, description="How many nodes in all, topics and references"
    )
    max_depth: Annotated[int, Field(ge=1, le=MAX_TREE_DEPTH)] | None = Field(
        default=None, description="How many levels below the root"
    )
    root: OptionalIdentifier = Field(default=None, description="topic_id or node_id: only this topic's subtree")
    include_payload: Flag = Field(default=False, description="Whole payloads instead of short snippets")
    mode: Annotated[Mode, or_default("auto")] = Field(
        default="auto",
        description="Whether a language model looks further and may add up to a quarter of max_nodes: auto as the "
        "server is set, llm always, deterministic never",
    )

    def query_value(self, principal: Principal) -> ReferencesQuery:
        """Return the domain's query, asked by a principal.

        Raises:
            InvalidArgument: since is not before until, or both participants and masks are named.
            ParticipantsNotAllowed: the principal may not ask as those named.
        """
        return ReferencesQuery(**self._query_arguments(principal))


class EventLookupInput(Input):
    event_id: Identifier = Field(description="The event's id, or its handle (e:481920375)")
    participants: Participants = Field(
        default=None, description="Who asks, beside you; the event must be visible to all of them"
    )
    include_internal: Flag = Field(default=False, description="Also find an event marked internal")
    include_superseded: Flag = Field(default=False, description="Also find an event that a newer one replaced")


class TopicLookupInput(Input):
    topic_id: Identifier = Field(description="The topic's id")
    participants: Participants = Field(
        default=None, description="Who asks, beside you; the topic must be visible to all of them"
    )


class NothingInput(Input):
    """Arguments of tools that take none."""


class SnapshotsInput(Input):
    limit: Annotated[int, or_default(DEFAULT_SNAPSHOTS)] = Field(
        default=DEFAULT_SNAPSHOTS, ge=1, le=MAX_SNAPSHOTS, description="How many, newest first"
    )
    cursor: Cursor = Field(default=None, description="next_cursor of the answer before, to continue it")


class TriggerBuildInput(Input):
    full: Flag = Field(default=False, description="Plan every scope anew instead of only what changed")
    hold: Flag = Field(default=False, description="Keep the snapshot back until publish_snapshot")
    force: Flag = Field(default=False, description="Make a snapshot even if nothing is new")
    reason: Reason = Field(default=None, description="Why, for the record")
    idempotency_key: OptionalIdentifier = Field(
        default=None, description="Of your choice: a repetition with the same key asks for no other build"
    )


class PublishInput(Input):
    snapshot_id: Identifier = Field(description="The held snapshot")
    reason: Reason = Field(default=None, description="Why, for the record")


class DiscardInput(Input):
    snapshot_id: Identifier = Field(description="The held snapshot")
    reason: Reason = Field(default=None, description="Why, for the record")


class AbortInput(Input):
    build_id: Identifier = Field(
        description="The build, as last_build of get_snapshot_status names it; or the request_id of one that waits"
    )
    reason: Reason = Field(default=None, description="Why, for the record")


class ResumeInput(Input):
    reason: Reason = Field(default=None, description="Why, for the record")


class RollbackInput(Input):
    to: Target = Field(default=None, description="The snapshot to return to; left out: the last one that differs")
    reason: Reason = Field(default=None, description="Why, for the record")


def read(model: type[_Model], arguments: Mapping[str, Any] | None, zone: ZoneInfo | None = None) -> _Model:
    """Return the arguments of a tool or a route as its model; see `api.coercion` for what is taken as what.

    Args:
        zone: of days alone, where the model takes any; None for UTC.

    Raises:
        UnknownField, InvalidArgument, InvalidText, InvalidParticipants, InvalidTimestamp: naming the field.
    """
    if arguments is not None and not isinstance(arguments, Mapping):
        raise InvalidArgument("the arguments must be an object", field="")
    try:
        return model.model_validate(coerced(model, arguments or {}), context=zone)
    except ValidationError as error:
        raise _error_of(error, model) from error


def _error_of(error: ValidationError, model: type[BaseModel]) -> MyriaError:
    """Return one problem of a validation as an error of ours; an unknown field comes before all others."""
    problems = error.errors(include_url=False, include_input=False, include_context=True)
    problem = next((item for item in problems if item["type"] == "extra_forbidden"), problems[0])
    path = field_path(problem["loc"])
    if problem["type"] == "extra_forbidden":
        *parent_path, name = problem["loc"]
        return unknown_field(name, fields_at(model, tuple(parent_path)), field_path(tuple(parent_path)))
    if problem["type"] == "missing":
        return InvalidArgument(f"{path} is required", field=path)
    context = problem.get("ctx", {})
    details = {
        detail_name: context[name] for name, detail_name in (("ge", "minimum"), ("le", "maximum")) if name in context
    }
    return InvalidArgument(f"{path}: {_problem_text(problem['type'], problem['msg'], context)}", field=path, **details)


def _problem_text(kind: str, message: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "int_type" | "int_from_float":
            return "must be a whole number"
        case "bool_type":
            return "must be true or false"
        case "literal_error":
            return f"must be {context['expected']}"
        case _:
            return message[:1].lower() + message[1:]
