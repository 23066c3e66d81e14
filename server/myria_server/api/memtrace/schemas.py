"""The contract of REST, `/api/v1` (Memtrace's, and more): the models of what is sent; an empty text names nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field

from myria.errors import (
    InvalidArgument,
    InvalidTimestamp,
)
from myria.log.fields import check_flag, check_text, parse_timestamp
from myria.log.jsontext import check_storable
from myria.log.limits import MAX_CURSOR
from myria.notes.memories.model import DEFAULT_EVENT_TYPE, MEMORY_TYPES, MemoryDraft, MemoryType
from myria.notes.memories.reading import MemoryFilters
from myria_server.api.core.inputs import Input
from myria_server.api.fields import (
    BLANK,
    NULL,
    TEXT,
    Check,
    FieldRule,
    Json,
    check_list,
    needed,
    optional,
    optional_text,
)

SESSION_STATUSES = ("active", "closed")

DEFAULT_LISTED, DEFAULT_FOUND, MAX_LISTED = 100, 50, 1_000
DEFAULT_SINCE = "24h"
MAX_OFFSET = 1_000_000
MAX_CONTENT = 16 * 1024 * 1024
"""Characters of a memory; ingest.payload_bytes bounds what is kept further."""

MAX_TAGS = 64
MAX_SHORT = 128
MAX_TEXT = 10_000
MAX_KEY = 200
"""Characters of an Idempotency-Key."""

_ID = r"[A-Za-z][A-Za-z0-9_-]{0,127}"
_SESSION = rf"(?:{_ID}|[A-Za-z0-9_.%-]{{1,270}}/[A-Za-z0-9_.-]{{1,90}})"
_TYPE = r"[A-Za-z][A-Za-z0-9_]{0,63}"
_TAG = r"[A-Za-z0-9_.-]{1,64}"
_PATTERN_TEXTS = {
    _ID: "must begin with a letter, and hold letters, digits, _ and -, at most 128",
    _SESSION: "must begin with a letter, and hold letters, digits, _ and -, at most 128, or be a project/session",
    _TYPE: "must begin with a letter, and hold letters, digits and _, at most 64",
    _TAG: "must hold letters, digits, _, . and -, 1 to 64",
}
_UNITS = {"m": (60, 8760), "h": (3600, 8760), "d": (86_400, 365)}
"""Seconds of each unit of a relative time, and how many of them it may name."""


def _required(check: Check, schema: Json) -> FieldRule:
    """Return the rule of a field that must be given; null or an empty text does not count."""

    def read(value: Any, name: str) -> Any:
        if value in BLANK:
            raise InvalidArgument(f"{name} is required", field=name)
        return check(value, name)

    return needed(read, schema)


def _invalid(name: str, requirement: str) -> InvalidArgument:
    return InvalidArgument(f"invalid {name}: it {requirement}", field=name)


def _check_pattern(value: Any, name: str, pattern: str) -> str:
    if type(value) is not str or re.fullmatch(pattern, value) is None:
        raise _invalid(name, _PATTERN_TEXTS[pattern])
    return value


def _pattern_rule(pattern: str, *, default: str | None = None, required: bool = False) -> FieldRule:
    def check(value: Any, name: str) -> str:
        return _check_pattern(value, name, pattern)

    if required:
        return _required(check, TEXT | {"pattern": f"^{pattern}$"})
    return optional(check, TEXT | {"pattern": f"^({pattern})?$"}, default)


def _choice_rule(names: Sequence[str], default: str | None = None) -> FieldRule:
    requirement = f"must be {' or '.join(names)}" if len(names) == 2 else f"must be one of {', '.join(names)}"

    def check(value: Any, name: str) -> str:
        if value not in names:
            raise _invalid(name, requirement)
        return str(value)

    return optional(check, TEXT | {"enum": list(names)}, default)


def _names_rule(pattern: str, what: str, schema: Json) -> FieldRule:
    """Return the rule of a list of names. One text may stand for it: tags separated by commas, or one type."""

    def check(value: Any, name: str) -> tuple[str, ...] | None:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")] if pattern == _TAG else [value]
        items = check_list(value, name, MAX_TAGS, what)
        names = tuple(dict.fromkeys(_check_pattern(item, name, pattern) for item in items if item != ""))
        return names or (() if pattern == _TAG else None)

    return optional(check, schema, blanks=BLANK if pattern == _TYPE else NULL)


def _list_schema(pattern: str) -> Json:
    return {"type": "array", "items": {"type": "string", "pattern": f"^({pattern})?$"}, "maxItems": MAX_TAGS}


def _bound_rule(default: int | None, most: int, schema: Json | None = None) -> FieldRule:
    """Return the rule of a bound: a number of 0 or less means the default, one above `most` means `most`."""

    def check(value: Any, name: str) -> int | None:
        if type(value) is not int:
            raise _invalid(name, "must be a whole number")
        return min(value, most) if value > 0 else default

    return optional(check, {"type": "integer", **(schema or {"maximum": most})}, default)


def _check_share(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise _invalid(name, "must be a number from 0 to 1")
    return float(value)


def _check_object(value: Any, name: str) -> Json:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name} must be a JSON object", field=name)
    check_storable(value, name)
    return value


def _time_rule(default: str | None = None) -> FieldRule:
    def check(value: Any, name: str) -> str:
        moment(value, field=name, now=0)
        return str(value)

    return optional(check, TEXT | {"examples": ["24h", "7d", "2026-03-19T20:00:00Z"]}, default)


OptionalId = Annotated[str | None, _pattern_rule(_ID)]
RequiredId = Annotated[str, _pattern_rule(_ID, required=True)]
OptionalSession = Annotated[str | None, _pattern_rule(_SESSION)]
RequiredSession = Annotated[str, _pattern_rule(_SESSION, required=True)]
Content = Annotated[str, _required(lambda value, name: check_text(value, name, MAX_CONTENT), TEXT | {"minLength": 1})]
ShortText = Annotated[str | None, optional_text(MAX_SHORT)]
LongText = Annotated[str | None, optional_text(MAX_TEXT)]
EventType = Annotated[str, _pattern_rule(_TYPE, default=DEFAULT_EVENT_TYPE)]
Object = Annotated[Json | None, optional(_check_object, {"type": "object"}, blanks=NULL)]
Tags = Annotated[tuple[str, ...] | None, _names_rule(_TAG, "tags", _list_schema(_TAG))]
Types = Annotated[tuple[str, ...] | None, _names_rule(_TYPE, "types", _list_schema(_TYPE))]
OneType = Annotated[tuple[str, ...] | None, _names_rule(_TYPE, "types", TEXT | {"pattern": f"^({_TYPE})?$"})]
Importance = Annotated[float | None, optional(_check_share, {"type": "number", "minimum": 0, "maximum": 1})]
Time = Annotated[str | None, _time_rule()]
TimeOfLate = Annotated[str | None, _time_rule(DEFAULT_SINCE)]
Ordering = Annotated[Literal["asc", "desc"], _choice_rule(("asc", "desc"), "desc")]
Listed = Annotated[int, _bound_rule(DEFAULT_LISTED, MAX_LISTED)]
Found = Annotated[int, _bound_rule(DEFAULT_FOUND, MAX_LISTED)]
Cursor = Annotated[str | None, optional_text(MAX_CURSOR)]
Offset = Annotated[int | None, _bound_rule(None, MAX_OFFSET)]


_FILTERS = {"memory_type": "memory_types", "include_types": "memory_types", "event_type": "event_types"} | {
    "content_contains": "contains"
}
"""Fields that filters name otherwise."""


class _FilteringInput(Input):
    """What asks for memories by filters."""

    def filters(self, **more: Any) -> MemoryFilters:
        """Return the filters; what is empty asks for any, and `more` takes the place of what is given."""
        values = {_FILTERS.get(name, name): value or None for name, value in self.__dict__.items()} | more
        now = time.time_ns() // 1000
        since, until = values.get("since"), values.get("until")
        values["since"] = None if since is None else moment(since, field="since", now=now)
        # What is imported may lie in the future: "now" bounds nothing.
        values["until"] = None if until in (None, "now") else moment(until, field="until", now=now)
        return MemoryFilters(
            **{filter_field.name: values.get(filter_field.name) for filter_field in fields(MemoryFilters)}
        )


def moment(text: str, *, field: str, now: int) -> int:
    """Return the moment that a text names, in microseconds since 1970 UTC.

    Args:
        text: `now`, so many hours, days or minutes before it (`24h`, `7d`, `30m`), or an ISO 8601 time; without a zone,
            UTC, without seconds, the beginning of the minute, and without a clock, that of the day.
        now: in microseconds since 1970 UTC.

    Raises:
        InvalidTimestamp: none of these.
    """
    if text == "now":
        return now
    if isinstance(text, str) and (relative := re.fullmatch(r"([0-9]{1,4})([hdm])", text)):
        number, (seconds, most) = int(relative[1]), _UNITS[relative[2]]
        if 0 < number <= most:
            return now - number * seconds * 1_000_000
    if isinstance(text, str):
        for ending in ("", "Z", ":00Z", "T00:00:00Z"):
            try:
                return parse_timestamp(text + ending, field)
            except InvalidTimestamp:
                continue
    raise InvalidTimestamp(
        f"invalid {field}: it must be a time such as 2026-03-19T20:00:00Z, or 24h, 7d or 30m before now", field=field
    )


class MemoryInput(Input):
    """One memory, as its writer gives it."""

    agent_id: RequiredId = Field(description="Who keeps it, registered or not")
    content: Content = Field(description="What is to be remembered")
    session_id: OptionalSession = Field(default=None, description="In which session")
    memory_type: Annotated[MemoryType, _choice_rule(MEMORY_TYPES, "episodic")] = "episodic"
    event_type: EventType = Field(default=DEFAULT_EVENT_TYPE, description="What happened, in your own words")
    metadata: Object = Field(default=None, description="Whatever belongs to it")
    tags: Tags = None
    dedup_key: ShortText = Field(
        default=None, description="Your own key of a repeat; left out: agent, event type and the beginning"
    )
    importance: Importance = None
    parent_id: ShortText = Field(default=None, description="The memory that this one goes on from")

    def draft(self) -> MemoryDraft:
        """Return it as the domain keeps it."""
        return MemoryDraft(**{**self.__dict__, "tags": self.tags or ()})


class MemoriesInput(Input):
    """Several memories in one call."""

    memories: list[Any] = Field(
        description="Memories, in order",
        min_length=1,
        json_schema_extra={"items": {"type": "object"}},  # each is a MemoryInput, read by itself
    )
    atomic: Annotated[bool | None, optional(check_flag, {"type": "boolean"}, blanks=NULL)] = Field(
        default=None,
        description="true: a duplicate refuses all. false: each by itself, and results says what became of it. Left "
        "out: duplicates are left out, and anything else that is wrong refuses all",
    )


class MemoryChangeInput(Input):
    """Changes of a memory; what is left out stays, an empty object or list takes it away."""

    content: Annotated[str | None, optional_text(MAX_CONTENT, TEXT | {"minLength": 1})] = None
    event_type: Annotated[str | None, _pattern_rule(_TYPE)] = None
    metadata: Object = None
    tags: Tags = None
    importance: Importance = None
    version: Annotated[int | None, _bound_rule(None, 2**31 - 1, {"minimum": 1})] = Field(
        default=None, description="The version that you saw: where there is a newer one, nothing is changed"
    )


class ListInput(_FilteringInput):
    """Which memories are listed."""

    agent_id: OptionalId = None
    session_id: OptionalSession = None
    memory_type: OneType = None
    event_type: OneType = None
    tags: Annotated[tuple[str, ...] | None, _names_rule(_TAG, "tags", TEXT)] = Field(
        default=None, description="With commas between them: what has all of these"
    )
    since: Time = Field(default=None, description="Later than this: 24h, 7d or 30m ago, or an ISO 8601 time")
    until: Time = Field(default=None, description="Before this")
    limit: Listed = DEFAULT_LISTED
    offset: Offset = None
    cursor: Cursor = Field(default=None, description="next_cursor of the page before")
    order: Ordering = "desc"


class AgentListInput(ListInput):
    """Which memories of an agent are listed."""

    since: TimeOfLate = DEFAULT_SINCE


class SearchInput(_FilteringInput):
    """What is searched for; everything that is given must hold.

    With `query` the best come first, on one page: `order` and `cursor` are for answers by time.
    """

    query: LongText = Field(default=None, description="What it is about: the best come first, in words of your own")

    agent_id: OptionalId = None
    session_id: OptionalSession = None
    memory_types: Types = None
    event_types: Types = None
    tags: Tags = None
    content_contains: LongText = Field(default=None, description="What the content holds, as it is written")
    since: Time = None
    until: Time = None
    min_importance: Importance = None
    limit: Found = DEFAULT_FOUND
    offset: Offset = None
    cursor: Cursor = None
    order: Ordering = "desc"


class NewAgentInput(Input):
    """An agent that is registered."""

    name: RequiredId = Field(description="No two agents have the same")
    description: LongText = None
    config: Object = None


class RegistryInput(Input):
    """Which agents are listed."""

    limit: Annotated[int, _bound_rule(MAX_LISTED, MAX_LISTED)] = MAX_LISTED
    offset: Offset = None


class SessionsInput(RegistryInput):
    """Which sessions are listed."""

    agent_id: OptionalId = None


class NewSessionInput(Input):
    """A session that is opened."""

    agent_id: RequiredId = Field(description="A registered agent, by its id or name")
    metadata: Object = None


class SessionChangeInput(Input):
    """Changes of a session; what is left out stays."""

    status: Annotated[Literal["active", "closed"] | None, _choice_rule(SESSION_STATUSES)] = Field(
        default=None, description="closed ends it, active opens it again"
    )
    metadata: Object = Field(default=None, description="Takes the place of all that was there")


class SessionContextInput(_FilteringInput):
    """How the context of a session is made."""

    max_tokens: Annotated[int | None, _bound_rule(None, 1_000_000)] = Field(
        default=None, description="Bound of the text"
    )
    include_types: Types = None
    since: TimeOfLate = DEFAULT_SINCE
    query: LongText = Field(
        default=None, description="What it is needed for: where not all fit, what is most about it is shown"
    )


class RecallToolInput(Input):
    agent_id: RequiredId = Field(description="Whose memories")
    since: TimeOfLate = Field(default=DEFAULT_SINCE, description="24h, 7d or 30m ago, or an ISO 8601 time")
    session_id: OptionalSession = None
    memory_type: Annotated[str | None, _choice_rule(MEMORY_TYPES)] = None
    limit: Found = DEFAULT_FOUND


class SearchToolInput(Input):
    agent_id: OptionalId = Field(default=None, description="Left out: of all agents")
    query: LongText = Field(default=None, description="What it is about: the best come first")
    content_contains: LongText = Field(default=None, description="What the content holds, as it is written")
    memory_types: Types = None
    tags: Tags = Field(default=None, description="What has all of these")
    since: Time = Field(default=None, description="24h, 7d or 30m ago, or an ISO 8601 time")
    min_importance: Importance = None
    limit: Found = DEFAULT_FOUND


class DecideInput(Input):
    agent_id: RequiredId = Field(description="Who decided")
    decision: Content = Field(description="What was decided")
    reasoning: Content = Field(description="Why")


class ContextToolInput(SessionContextInput):
    session_id: RequiredSession = Field(description="Of which session")


class RegisterToolInput(Input):
    name: RequiredId = Field(description="No two agents have the same")
    description: LongText = None
