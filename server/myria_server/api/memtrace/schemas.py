"""The contract of REST, `/api/v1` (Memtrace's, and more): the models of what is sent and answered.

What is empty is left out, as in the contract: an empty text names nothing. Refusals are `{"error": text}`, with more
beside it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from myria.errors import (
    AgentExists,
    CredentialInvalid,
    CredentialMissing,
    DatabaseUnavailable,
    DuplicateMemory,
    InvalidArgument,
    InvalidTimestamp,
    MyriaError,
    StorageQuotaExceeded,
    TenantSuspended,
    UnavailableError,
)
from myria.log.fields import check_text, parse_timestamp
from myria.log.jsontext import check_storable
from myria.log.limits import MAX_CURSOR
from myria.notes.memories.model import DEFAULT_EVENT_TYPE, MEMORY_TYPES, MemoryType
from myria_server.api.answers import Answer, all_open
from myria_server.api.core.inputs import Input

PREFIX = "/api/v1"


SESSION_STATUSES = ("active", "closed")

DEFAULT_LISTED, DEFAULT_FOUND, MAX_LISTED = 100, 50, 1_000
DEFAULT_SINCE = "24h"
MAX_OFFSET = 1_000_000
MAX_CONTENT = 16 * 1024 * 1024
"""Characters of a memory; ingest.payload_bytes bounds what is kept further."""

MAX_TAGS = 64
MAX_NAME = 128
MAX_DESCRIPTION = 10_000
MAX_DEDUP_KEY = 128
MAX_KEY = 200
"""Characters of an Idempotency-Key."""

_ID = r"[A-Za-z][A-Za-z0-9_-]{0,127}"
_SESSION = rf"(?:{_ID}|[A-Za-z0-9_.%-]{{1,270}}/[A-Za-z0-9_.-]{{1,90}})"
_TYPE = r"[A-Za-z][A-Za-z0-9_]{0,63}"
_TAG = r"[A-Za-z0-9_.-]{1,64}"
_RELATIVE = re.compile(r"([0-9]{1,4})([hdm])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
_MOST = {"m": 8760, "h": 8760, "d": 365}
_MEANT = {
    _ID: "must begin with a letter, and hold letters, digits, _ and -, at most 128",
    _SESSION: "must begin with a letter, and hold letters, digits, _ and -, at most 128, or be a project/session",
    _TYPE: "must begin with a letter, and hold letters, digits and _, at most 64",
    _TAG: "must hold letters, digits, _, . and -, 1 to 64",
}

_COMPILED = {pattern: re.compile(pattern) for pattern in _MEANT}

Json = dict[str, Any]


def _name(info: ValidationInfo) -> str:
    return info.field_name or ""


def _matched(value: Any, field: str, pattern: str) -> str:
    if type(value) is not str or _COMPILED[pattern].fullmatch(value) is None:
        raise InvalidArgument(f"invalid {field}: it {_MEANT[pattern]}", field=field)
    return value


def _matching(pattern: str, *, default: str | None = None, required: bool = False) -> BeforeValidator:
    def check(value: Any, info: ValidationInfo) -> str | None:
        if value in (None, ""):
            if required:
                raise InvalidArgument(f"{_name(info)} is required", field=_name(info))
            return default
        return _matched(value, _name(info), pattern)

    return BeforeValidator(check)


def _text(limit: int, *, required: bool = False) -> BeforeValidator:
    def check(value: Any, info: ValidationInfo) -> str | None:
        if value in (None, ""):
            if required:
                raise InvalidArgument(f"{_name(info)} is required", field=_name(info))
            return None
        return check_text(value, _name(info), limit)

    return BeforeValidator(check)


def _memory_type(value: Any, info: ValidationInfo) -> str:
    return _optional_memory_type(value, info) or "episodic"


def _optional_memory_type(value: Any, info: ValidationInfo) -> str | None:
    if value in (None, ""):
        return None
    if value not in MEMORY_TYPES:
        raise InvalidArgument(f"invalid {_name(info)}: it must be one of {', '.join(MEMORY_TYPES)}", field=_name(info))
    return str(value)


def _object(value: Any, info: ValidationInfo) -> Json | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidArgument(f"{_name(info)} must be a JSON object", field=_name(info))
    check_storable(value, _name(info))
    return value


def _tags(value: Any, info: ValidationInfo) -> tuple[str, ...] | None:
    name = _name(info)
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"{name} must be a list of tags", field=name)
    if len(value) > MAX_TAGS:
        raise InvalidArgument(f"{name} may hold at most {MAX_TAGS} tags", field=name, limit=MAX_TAGS)
    return tuple(dict.fromkeys(_matched(tag, name, _TAG) for tag in value if tag != ""))


def _types(value: Any, info: ValidationInfo) -> tuple[str, ...] | None:
    name = _name(info)
    if value in (None, ""):
        return None
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"{name} must be a list of types", field=name)
    if len(value) > MAX_TAGS:
        raise InvalidArgument(f"{name} may hold at most {MAX_TAGS} types", field=name, limit=MAX_TAGS)
    return tuple(dict.fromkeys(_matched(kind, name, _TYPE) for kind in value if kind != "")) or None


def _importance(value: Any, info: ValidationInfo) -> float | None:
    if value in (None, ""):
        return None
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise InvalidArgument(f"invalid {_name(info)}: it must be a number from 0 to 1", field=_name(info))
    return float(value)


def _whole(default: int | None, most: int) -> BeforeValidator:
    """A bound: what is not above 0 is the default, and what is too much the most."""

    def check(value: Any, info: ValidationInfo) -> int | None:
        if value in (None, ""):
            return default
        if type(value) is not int:
            raise InvalidArgument(f"invalid {_name(info)}: it must be a whole number", field=_name(info))
        return min(value, most) if value > 0 else default

    return BeforeValidator(check)


def _order(value: Any) -> str:
    if value in (None, ""):
        return "desc"
    if value not in ("asc", "desc"):
        raise InvalidArgument("invalid order: it must be asc or desc", field="order")
    return str(value)


def _status(value: Any) -> str | None:
    if value in (None, ""):
        return None
    if value not in SESSION_STATUSES:
        raise InvalidArgument(f"invalid status: it must be {' or '.join(SESSION_STATUSES)}", field="status")
    return str(value)


def _flag(value: Any, info: ValidationInfo) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise InvalidArgument(f"{_name(info)} must be true or false", field=_name(info))


def _time(value: Any, info: ValidationInfo) -> str | None:
    if value in (None, ""):
        return None
    moment(value, field=_name(info), now=0)
    return str(value)


def moment(value: str, *, field: str, now: int) -> int | None:
    """Return the moment that a text names, in microseconds since 1970 UTC; None for `now`.

    Args:
        value: so many hours, days or minutes before `now` (`24h`, `7d`, `30m`), or an ISO 8601 time; without a zone,
            UTC, without seconds, the beginning of the minute, and without a clock, that of the day.
        now: in microseconds since 1970 UTC.

    Raises:
        InvalidTimestamp: neither of both.
    """
    if value == "now":
        return None
    if isinstance(value, str) and (relative := _RELATIVE.fullmatch(value)):
        number, unit = int(relative[1]), relative[2]
        if 0 < number <= _MOST[unit]:
            return now - number * _SECONDS[unit] * 1_000_000
    if isinstance(value, str):
        for ending in ("", "Z", ":00Z", "T00:00:00Z"):
            try:
                return parse_timestamp(value + ending, field)
            except InvalidTimestamp:
                continue
    raise InvalidTimestamp(
        f"invalid {field}: it must be a time such as 2026-03-19T20:00:00Z, or 24h, 7d or 30m before now", field=field
    )


def _since(default: str | None) -> BeforeValidator:
    return BeforeValidator(lambda value, info: default if value in (None, "") else _time(value, info))


def _schema(kind: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **more})


_ID_SCHEMA = _schema("string", pattern=f"^({_ID})?$")
_TYPE_SCHEMA = _schema("string", pattern=f"^({_TYPE})?$")
_STATUS_SCHEMA = _schema("string", enum=list(SESSION_STATUSES))
_MEMORY_TYPE_SCHEMA = _schema("string", enum=list(MEMORY_TYPES))
_TAGS_SCHEMA = _schema("array", items={"type": "string", "pattern": f"^({_TAG})?$"}, maxItems=MAX_TAGS)
_TYPES_SCHEMA = _schema("array", items={"type": "string", "pattern": f"^({_TYPE})?$"}, maxItems=MAX_TAGS)
_ONE_TYPE_SCHEMA = _schema("string", pattern=f"^({_TYPE})?$")
_IMPORTANCE_SCHEMA = _schema("number", minimum=0, maximum=1)
_TIME_SCHEMA = _schema("string", examples=["24h", "7d", "2026-03-19T20:00:00Z"])
_LIMIT_SCHEMA = _schema("integer", maximum=MAX_LISTED)
_NOTED = "There where nothing fits: says that nothing is remembered of it"

OptionalId = Annotated[str | None, _matching(_ID), _ID_SCHEMA]
OptionalSession = Annotated[str | None, _matching(_SESSION), _schema("string", pattern=f"^({_SESSION})?$")]
RequiredSession = Annotated[str, _matching(_SESSION, required=True), _schema("string", pattern=f"^{_SESSION}$")]
RequiredId = Annotated[str, _matching(_ID, required=True), _schema("string", pattern=f"^{_ID}$")]
Content = Annotated[str, _text(MAX_CONTENT, required=True), _schema("string", minLength=1)]
Kind = Annotated[MemoryType, BeforeValidator(_memory_type), _MEMORY_TYPE_SCHEMA]
EventType = Annotated[str, _matching(_TYPE, default=DEFAULT_EVENT_TYPE), _TYPE_SCHEMA]
OptionalObject = Annotated[Json | None, BeforeValidator(_object), _schema("object")]
OptionalTags = Annotated[tuple[str, ...] | None, BeforeValidator(_tags), _TAGS_SCHEMA]
OptionalTypes = Annotated[tuple[str, ...] | None, BeforeValidator(_types), _TYPES_SCHEMA]
OptionalType = Annotated[tuple[str, ...] | None, BeforeValidator(_types), _ONE_TYPE_SCHEMA]
Importance = Annotated[float | None, BeforeValidator(_importance), _IMPORTANCE_SCHEMA]
Since = Annotated[str | None, _since(None), _TIME_SCHEMA]
Until = Annotated[str | None, BeforeValidator(_time), _TIME_SCHEMA]
Ordering = Annotated[Literal["asc", "desc"], BeforeValidator(_order), _schema("string", enum=["asc", "desc"])]
Cursor = Annotated[str | None, _text(MAX_CURSOR), _schema("string", maxLength=MAX_CURSOR)]
Offset = Annotated[int | None, _whole(None, MAX_OFFSET), _schema("integer", maximum=MAX_OFFSET)]
Flag = Annotated[bool | None, BeforeValidator(_flag), _schema("boolean")]


class MemoryInput(Input):
    """One memory, as its writer gives it."""

    agent_id: RequiredId = Field(description="Who keeps it, registered or not")
    content: Content = Field(description="What is to be remembered")
    session_id: OptionalSession = Field(default=None, description="In which session")
    memory_type: Kind = "episodic"
    event_type: EventType = Field(default=DEFAULT_EVENT_TYPE, description="What happened, in your own words")
    metadata: OptionalObject = Field(default=None, description="Whatever belongs to it")
    tags: OptionalTags = None
    dedup_key: Annotated[str | None, _text(MAX_DEDUP_KEY), _schema("string", maxLength=MAX_DEDUP_KEY)] = Field(
        default=None, description="Your own key of a repeat; left out: agent, event type and the beginning"
    )
    importance: Importance = None
    parent_id: Annotated[str | None, _text(MAX_NAME), _schema("string", maxLength=MAX_NAME)] = Field(
        default=None, description="The memory that this one goes on from"
    )


class MemoriesInput(Input):
    """Several memories in one call."""

    memories: list[Any] = Field(
        description="Memories, in order",
        min_length=1,
        json_schema_extra={"items": {"type": "object"}},  # each is a MemoryInput, read by itself
    )
    atomic: Flag = Field(
        default=None,
        description="true: a duplicate refuses all. false: each by itself, and results says what became of it. Left "
        "out: duplicates are left out, and anything else that is wrong refuses all",
    )


class MemoryChangeInput(Input):
    """Changes of a memory; what is left out stays, an empty object or list takes it away."""

    content: Annotated[str | None, _text(MAX_CONTENT), _schema("string", minLength=1)] = None
    event_type: Annotated[str | None, _matching(_TYPE), _TYPE_SCHEMA] = None
    metadata: OptionalObject = None
    tags: OptionalTags = None
    importance: Importance = None
    version: Annotated[int | None, _whole(None, 2**31 - 1), _schema("integer", minimum=1)] = Field(
        default=None, description="The version that you saw: where there is a newer one, nothing is changed"
    )


class ListInput(Input):
    """Which memories are listed."""

    agent_id: OptionalId = None
    session_id: OptionalSession = None
    memory_type: OptionalType = None
    event_type: OptionalType = None
    tags: Annotated[tuple[str, ...] | None, BeforeValidator(_tags), _schema("string")] = Field(
        default=None, description="With commas between them: what has all of these"
    )
    since: Since = Field(default=None, description="Later than this: 24h, 7d or 30m ago, or an ISO 8601 time")
    until: Until = Field(default=None, description="Before this")
    limit: Annotated[int, _whole(DEFAULT_LISTED, MAX_LISTED), _LIMIT_SCHEMA] = DEFAULT_LISTED
    offset: Offset = None
    cursor: Cursor = Field(default=None, description="next_cursor of the page before")
    order: Ordering = "desc"


class AgentListInput(ListInput):
    """Which memories of an agent are listed."""

    since: Annotated[str | None, _since(DEFAULT_SINCE), _TIME_SCHEMA] = DEFAULT_SINCE


class SearchInput(Input):
    """What is searched for; everything that is given must hold.

    With `query` the best come first, on one page: `order` and `cursor` are for answers by time.
    """

    query: Annotated[str | None, _text(10_000), _schema("string", maxLength=10_000)] = Field(
        default=None, description="What it is about: the best come first, in words of your own"
    )

    agent_id: OptionalId = None
    session_id: OptionalSession = None
    memory_types: OptionalTypes = None
    event_types: OptionalTypes = None
    tags: OptionalTags = None
    content_contains: Annotated[str | None, _text(10_000), _schema("string", maxLength=10_000)] = Field(
        default=None, description="What the content holds, as it is written"
    )
    since: Since = None
    until: Until = None
    min_importance: Importance = None
    limit: Annotated[int, _whole(DEFAULT_FOUND, MAX_LISTED), _LIMIT_SCHEMA] = DEFAULT_FOUND
    offset: Offset = None
    cursor: Cursor = None
    order: Ordering = "desc"


class NewAgentInput(Input):
    """An agent that is registered."""

    name: RequiredId = Field(description="No two agents have the same")
    description: Annotated[str | None, _text(MAX_DESCRIPTION), _schema("string", maxLength=MAX_DESCRIPTION)] = None
    config: OptionalObject = None


class RegistryInput(Input):
    """Which agents are listed."""

    limit: Annotated[int, _whole(MAX_LISTED, MAX_LISTED), _LIMIT_SCHEMA] = MAX_LISTED
    offset: Offset = None


class SessionsInput(RegistryInput):
    """Which sessions are listed."""

    agent_id: OptionalId = None


class NewSessionInput(Input):
    """A session that is opened."""

    agent_id: RequiredId = Field(description="A registered agent, by its id or name")
    metadata: OptionalObject = None


class SessionChangeInput(Input):
    """Changes of a session; what is left out stays."""

    status: Annotated[Literal["active", "closed"] | None, BeforeValidator(_status), _STATUS_SCHEMA] = Field(
        default=None, description="closed ends it, active opens it again"
    )
    metadata: OptionalObject = Field(default=None, description="Takes the place of all that was there")


class SessionContextInput(Input):
    """How the context of a session is made."""

    max_tokens: Annotated[int | None, _whole(None, 1_000_000), _schema("integer", maximum=1_000_000)] = Field(
        default=None, description="Bound of the text"
    )
    include_types: OptionalTypes = None
    since: Annotated[str | None, _since(DEFAULT_SINCE), _TIME_SCHEMA] = DEFAULT_SINCE
    query: Annotated[str | None, _text(10_000), _schema("string", maxLength=10_000)] = Field(
        default=None, description="What it is needed for: where not all fit, what is most about it is shown"
    )


class RecallToolInput(Input):
    """Arguments of memtrace_recall."""

    agent_id: RequiredId = Field(description="Whose memories")
    since: Annotated[str | None, _since(DEFAULT_SINCE), _TIME_SCHEMA] = Field(
        default=DEFAULT_SINCE, description="24h, 7d or 30m ago, or an ISO 8601 time"
    )
    session_id: OptionalSession = None
    memory_type: Annotated[str | None, BeforeValidator(_optional_memory_type), _MEMORY_TYPE_SCHEMA] = None
    limit: Annotated[int, _whole(DEFAULT_FOUND, MAX_LISTED), _LIMIT_SCHEMA] = DEFAULT_FOUND


class SearchToolInput(Input):
    """Arguments of memtrace_search."""

    agent_id: OptionalId = Field(default=None, description="Left out: of all agents")
    query: Annotated[str | None, _text(10_000), _schema("string", maxLength=10_000)] = Field(
        default=None, description="What it is about: the best come first"
    )
    content_contains: Annotated[str | None, _text(10_000), _schema("string", maxLength=10_000)] = Field(
        default=None, description="What the content holds, as it is written"
    )
    memory_types: OptionalTypes = None
    tags: OptionalTags = Field(default=None, description="What has all of these")
    since: Since = Field(default=None, description="24h, 7d or 30m ago, or an ISO 8601 time")
    min_importance: Importance = None
    limit: Annotated[int, _whole(DEFAULT_FOUND, MAX_LISTED), _LIMIT_SCHEMA] = DEFAULT_FOUND


class DecideInput(Input):
    """Arguments of memtrace_decide."""

    agent_id: RequiredId = Field(description="Who decided")
    decision: Content = Field(description="What was decided")
    reasoning: Content = Field(description="Why")


class ContextToolInput(SessionContextInput):
    """Arguments of memtrace_session_context."""

    session_id: RequiredSession = Field(description="Of which session")


class RegisterToolInput(Input):
    """Arguments of memtrace_agent_register."""

    name: RequiredId = Field(description="No two agents have the same")
    description: Annotated[str | None, _text(MAX_DESCRIPTION), _schema("string", maxLength=MAX_DESCRIPTION)] = None


class MemoryLink(Answer):
    """A link between two memories; what goes on from another is `part_of` it."""

    from_: str = Field(alias="from")
    to: str
    relation_type: str


class MemoryBody(Answer):
    """A memory."""

    OPEN = frozenset({"id", "time", "org_id", "version", "updated_at"})

    id: str
    time: str = Field(description="When it was kept: RFC 3339 in UTC")
    org_id: str
    agent_id: str
    session_id: str | None = None
    memory_type: MemoryType
    event_type: str
    content: str
    metadata: Json | None = None
    tags: list[str] | None = None
    dedup_key: str | None = None
    importance: float | None = None
    parent_id: str | None = None
    version: int | None = Field(default=None, description="Of one that was amended")
    updated_at: str | None = None
    links: list[MemoryLink] | None = Field(default=None, description="With others; told where it is read by its id")


@all_open
class KeptBody(Answer):
    """What became of one memory of several."""

    index: int
    status: Literal["stored", "duplicate", "refused"]
    id: str | None = None
    error: str | None = None


@all_open
class MemoriesBody(Answer):
    """What was kept of several memories."""

    memories: list[MemoryBody]
    count: int
    results: list[KeptBody]


class MemoryListBody(Answer):
    """Memories in order."""

    memories: list[MemoryBody]
    count: int
    has_more: bool
    next_cursor: str | None = None
    note: str | None = Field(default=None, description=_NOTED)


class SearchBody(Answer):
    """What was found."""

    results: list[MemoryBody]
    count: int
    query_time_ms: int
    has_more: bool
    next_cursor: str | None = None
    note: str | None = Field(default=None, description=_NOTED)
    scanned: int | None = Field(
        default=None, description="So many of those that match otherwise were looked at for the content; narrow down"
    )


class AgentBody(Answer):
    """An agent."""

    OPEN = frozenset({"id", "org_id", "created_at"})

    id: str
    org_id: str
    name: str
    description: str | None = None
    config: Json | None = None
    created_at: str
    last_active_at: str | None = None


class AgentsBody(Answer):
    """Agents, newest first."""

    agents: list[AgentBody]
    count: int
    has_more: bool = Field(description="Whether there are more: ask again with offset")


class StatisticsBody(Answer):
    """What an agent kept."""

    agent_id: str
    memory_count: int
    memories_24h: int
    errors_24h: int
    session_count: int
    active_sessions: int
    last_active_at: str | None = None
    memory_types: dict[str, int]


class SessionBody(Answer):
    """A session."""

    OPEN = frozenset({"id", "org_id", "created_at", "updated_at", "closed_at"})

    id: str
    org_id: str
    agent_id: str
    status: str
    metadata: Json | None = None
    created_at: str
    updated_at: str
    closed_at: str | None = None


class SessionsBody(Answer):
    """Sessions, newest first."""

    sessions: list[SessionBody]
    count: int
    has_more: bool = Field(description="Whether there are more: ask again with offset")


class ContextBody(Answer):
    """The context of a session."""

    session_id: str
    context: str
    memory_count: int
    note: str | None = Field(default=None, description=_NOTED)


class RestRefusal(Answer):
    """What a refused request answers."""

    error: str
    code: str = Field(description="Stable; see errors.md")
    retryable: bool
    hint: str | None = Field(default=None, description="What to do")
    field: str | None = None
    index: int | None = None
    id: str | None = Field(default=None, description="Of a duplicate: the memory that stands")


_SAID = {
    CredentialMissing: "missing API key",
    CredentialInvalid: "invalid API key",
    DuplicateMemory: "duplicate memory",
    AgentExists: "agent already exists",
}
"""What the contract says, where its clients or their users may look for it."""


_NEXT_STEP: Mapping[type[MyriaError], str] = {
    TenantSuspended: "an administrator ends it by `myria tenant resume`; until then nothing is read or kept",
    StorageQuotaExceeded: "erase what is no longer needed, or let an administrator give the tenant more room by "
    "`myria tenant set <tenant> bytes_stored=...`; reading goes on meanwhile",
    DatabaseUnavailable: f"retry after a moment, with an Idempotency-Key where something is kept; {PREFIX}/ready says "
    "when the database is there again",
}
"""What to do about an organisation that cannot be served."""


def status_of(error: MyriaError) -> int:
    """Return the status of an error: a tenant that cannot be served is one thing to the contract's clients, 503."""
    return UnavailableError.http_status if type(error) in _NEXT_STEP else error.http_status


def refused(error: MyriaError) -> Json:
    """Return an error in the contract's form."""
    said = _SAID.get(type(error))
    body: Json = {"error": said or error.message, "code": error.code, "retryable": error.retryable}
    if said is not None and said != error.message:
        body["hint"] = error.message
    elif (step := _NEXT_STEP.get(type(error))) is not None:
        body["hint"] = step
    elif isinstance(error, UnavailableError):
        body["hint"] = "retry after a moment"
    for name, kind in (("field", str), ("index", int), ("id", str)):
        if isinstance(value := error.details.get(name), kind):
            body[name] = value
    return body


def now_us() -> int:
    """Return this machine's clock in microseconds since 1970 UTC."""
    return time.time_ns() // 1000
