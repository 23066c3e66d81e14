"""What the tools of the agent's face have in common: the names of Memento's contract, refusals, and fields.

Names are on the wire as the contract has them, most in camel case. Schemas are bare on purpose: a model reads them with
every conversation, so bounds that no honest call reaches are checked and not published.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from myria.errors import InvalidArgument
from myria.log.fields import check_text, parse_timestamp, utc_offset_of
from myria.log.limits import MAX_ID, MAX_QUERY
from myria.log.scopes import MAX_PARTICIPANT_CHARACTERS
from myria_server.api.answers import Answer
from myria_server.api.core.inputs import Input
from myria_server.api.schemas import HIDDEN

CONTRACT: Literal["004"] = "004"
"""Whose kinds of notes this face knows."""

KINDS = ("fact", "decision", "error", "preference", "procedure", "relation", "episode")
"""Those kinds; a test holds them to notes/kinds.toml."""

MAX_TOPIC = 200
MAX_KEYWORD = 100
MAX_KEYWORDS = 32
MAX_SOURCE = 500
MAX_IDS = 100
MAX_CIRCUMSTANCE = 2_000
MAX_BUDGET = 100_000

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)

_Checked = Callable[[Any, ValidationInfo], Any]


def field_name(info: ValidationInfo) -> str:
    """Return the name of the field that is checked."""
    return info.field_name or ""


def _text(limit: int) -> _Checked:
    return lambda value, info: check_text(value, field_name(info), limit)


def _optional_text(limit: int) -> _Checked:
    return lambda value, info: None if value in (None, "") else check_text(value, field_name(info), limit)


def _texts(limit: int, longest: int) -> _Checked:
    def check(value: Any, info: ValidationInfo) -> tuple[str, ...] | None:
        name = field_name(info)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise InvalidArgument(f"{name} must be a list of texts", field=name)
        if len(value) > limit:
            raise InvalidArgument(f"{name} may hold at most {limit}", field=name, limit=limit)
        return tuple(check_text(item, f"{name}[{at}]", longest) for at, item in enumerate(value)) or None

    return check


def _text_or_texts(limit: int, longest: int) -> _Checked:
    several = _texts(limit, longest)
    return lambda value, info: several([value] if isinstance(value, str) and value else value or None, info)


def moment(name: str, *, whole_day: bool = False) -> BeforeValidator:
    """Return the validator of a time that callers know by this name; empty means none.

    A date alone is its beginning in UTC, or its end where the whole day is meant.
    """

    def check(value: Any, info: ValidationInfo) -> int | None:
        return None if value in (None, "") else parse_timestamp(_whole(value, info.context, whole_day=whole_day), name)

    return BeforeValidator(check)


def local_moment(name: str) -> BeforeValidator:
    """Return the validator of a time by which days are reckoned: as `moment` of a whole day, with its offset from UTC.

    What it gives is (microseconds since 1970 UTC, minutes east of UTC).
    """

    def check(value: Any, info: ValidationInfo) -> tuple[int, int] | None:
        if value in (None, ""):
            return None
        whole = _whole(value, info.context, whole_day=True)
        return parse_timestamp(whole, name), utc_offset_of(whole)

    return BeforeValidator(check)


def _whole(value: Any, zone: ZoneInfo | None, *, whole_day: bool) -> Any:
    """Return a time as it was given, a date alone with the time of day that it means, in a zone or UTC."""
    if not isinstance(value, str) or _DATE.fullmatch(value) is None:
        return value
    whole = f"{value}T23:59:59.999999" if whole_day else f"{value}T00:00:00"
    try:
        return datetime.fromisoformat(whole).replace(tzinfo=zone or UTC).isoformat()
    except ValueError:
        return f"{whole}Z"  # it is refused with what is wrong


def choice(default: Any) -> BeforeValidator:
    """Return the validator of a field whose null or empty text means its default: agents fill in all they see."""
    return BeforeValidator(lambda value: default if value is None or value == "" else value)


_TEXT = WithJsonSchema({"type": "string"})
_TEXTS = WithJsonSchema({"type": "array", "items": {"type": "string"}})

Id = Annotated[str, BeforeValidator(_text(MAX_ID)), _TEXT]
OptionalId = Annotated[str | None, BeforeValidator(_optional_text(MAX_ID)), _TEXT]
Ids = Annotated[tuple[str, ...] | None, BeforeValidator(_texts(MAX_IDS, MAX_ID)), _TEXTS]
Content = Annotated[str, BeforeValidator(_text(10_000_000)), _TEXT]
OptionalContent = Annotated[str | None, BeforeValidator(_optional_text(10_000_000)), _TEXT]
Topic = Annotated[str | None, BeforeValidator(_optional_text(MAX_TOPIC)), _TEXT]
Source = Annotated[str | None, BeforeValidator(_optional_text(MAX_SOURCE)), _TEXT]
Circumstance = Annotated[str | None, BeforeValidator(_optional_text(MAX_CIRCUMSTANCE)), _TEXT]
Query = Annotated[str | None, BeforeValidator(_optional_text(MAX_QUERY)), _TEXT]
Moods = Annotated[tuple[str, ...] | None, BeforeValidator(_text_or_texts(MAX_KEYWORDS, MAX_TOPIC)), _TEXTS]
"""Several of which each will do, or one as a text."""
Keywords = Annotated[tuple[str, ...] | None, BeforeValidator(_texts(MAX_KEYWORDS, MAX_KEYWORD)), _TEXTS]
AgentId = Annotated[str | None, BeforeValidator(_optional_text(MAX_PARTICIPANT_CHARACTERS)), _TEXT]
SessionId = Annotated[str | None, BeforeValidator(_optional_text(MAX_ID)), _TEXT]
Time = Annotated[int | None, _TEXT]
"""A moment: give it its validator, `moment`."""
LocalTime = Annotated[tuple[int, int] | None, _TEXT]
"""A moment with its offset: give it its validator, `local_moment`."""
Share = Annotated[Annotated[float, Field(ge=0, le=1)] | None, WithJsonSchema({"type": "number"})]
No = Annotated[bool, choice(False), WithJsonSchema({"type": "boolean"})]
OptionalFlag = Annotated[bool | None, WithJsonSchema({"type": "boolean"})]
_KIND = WithJsonSchema({"type": "string", "enum": list(KINDS)})
Kind = Annotated[str | None, BeforeValidator(_optional_text(MAX_TOPIC)), _KIND]
Budget = Annotated[Annotated[int, Field(ge=1, le=MAX_BUDGET)], WithJsonSchema({"type": "integer"})]
Format = Literal["text", "json"]


def _agent_last(schema: dict[str, Any]) -> None:
    """Put what a tool is about before who uses it: small models write arguments in the order of the schema."""
    properties = schema.get("properties", {})
    if "agentId" in properties:
        properties["agentId"] = properties.pop("agentId")


class AgentInput(Input):
    """Base of the arguments on this face.

    `agentId` is the agent that acts; `format` says what the text of the answer is: every tool takes it, but only those
    whose text is worth choosing publish it.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_agent_last)

    agentId: AgentId = Field(default=None, description="only if told one")
    format: Annotated[Format | None, choice(None), HIDDEN] = None


class AgentAnswer(Answer):
    """Base of what this face answers."""

    success: bool


class AgentRefusal(Answer):
    """What a refused call answers on this face."""

    success: Literal[False]
    error: str
    code: str
    retryable: bool
    details: dict[str, Any]
