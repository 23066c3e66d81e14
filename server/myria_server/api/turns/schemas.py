"""The tools of turns (memory-tools): their arguments, answers and refusals.

Nothing is required in a schema, and what is blank is left out. What an item has beside the fields of the contract is
dropped. Refusals are the contract's own: `{code, message, retryable}`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, WithJsonSchema

from myria.errors import (
    AccessError,
    InternalError,
    InvalidArgument,
    MyriaError,
    QuotaExceeded,
    RateLimited,
    ToolNotEnabled,
    UnavailableError,
)
from myria.log.fields import check_name, check_text
from myria.log.scopes import MAX_PARTICIPANT_CHARACTERS
from myria.notes.turns.shadow import ClientResult
from myria_server.api.answers import Answer, OpenAnswer
from myria_server.api.core.inputs import Input
from myria_server.api.fields import TEXT, Check, FieldRule, Json, check_list

DEFAULT_NAME = "default"
DEFAULT_MAX_TOKENS = 120_000
DEFAULT_DEPTH, MAX_DEPTH = 8, 64
DEFAULT_LIMIT, MAX_LIMIT = 200, 10_000
MAX_NAME = 90
"""Characters of a project and of a session: both are one context."""

MAX_TURN_ID = 200
MAX_TOKEN = 8 * 1024 * 1024
MAX_TEXT = 16 * 1024 * 1024
"""Characters of any text; `mcp.body_bytes` bounds a request, and the settings of turns those that are kept."""

_MAX_ITEMS = 10_000
_MAX_PARTS = 1_000
_MAX_METADATA = 64
_MAX_LABEL = 2_000

PLUGINS = ("auto", "rag", "pageindex")
"""Plugins of the contract: here all are one search."""

CODES = Literal["INVALID_ARGUMENT", "PERMISSION_DENIED", "RESOURCE_BUSY", "INTERNAL_ERROR"]

_PART_TEXTS = ("text", "image_url", "file_id", "filename")


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _optional(check: Check, schema: Json, default: Any = None) -> FieldRule:
    """Return the rule of a field whose null or blank text means its default."""

    def read(value: Any, info: ValidationInfo) -> Any:
        return default if _is_blank(value) else check(value, info.field_name or "")

    return FieldRule(read, schema=schema)


def _name_or(default: str | None, limit: int) -> FieldRule:
    def check(value: Any, name: str) -> str:
        return check_name(value.strip() if isinstance(value, str) else value, name, limit)

    return _optional(check, TEXT, default)


def _optional_text(limit: int) -> FieldRule:
    return _optional(lambda value, name: check_text(value, name, limit), TEXT)


def _whole_number(default: int | None, most: int, *, least: int | None = 1) -> FieldRule:
    """Return the rule of a whole number: one below `least` is the default, one above `most` is refused."""

    def check(value: Any, name: str) -> int | None:
        if type(value) is not int:
            raise InvalidArgument(f"{name} must be a whole number", field=name)
        if value > most:
            raise InvalidArgument(f"{name} must be at most {most}", field=name, maximum=most)
        return default if least is not None and value < least else value

    return _optional(check, {"type": "integer"}, default)


def _read_plugin(value: Any, _name: str) -> str:
    if value not in PLUGINS:
        raise InvalidArgument(f"plugin must be one of {', '.join(PLUGINS)}", available_plugins=list(PLUGINS))
    return str(value)


def _read_items(value: Any, name: str) -> tuple[Json, ...]:
    """Return a list of items, or the one item or text that was sent in its place, in the form of the contract."""
    items = check_list([value] if isinstance(value, str | dict) else value, name, _MAX_ITEMS, "items")
    return tuple(_read_item(item, f"{name}[{index}]") for index, item in enumerate(items))


def _read_item(value: Any, field: str) -> Json:
    """Return one item with the fields that are kept of it; a text stands for a message of the user."""
    if isinstance(value, str):
        value = {"type": "message", "role": "user", "content": value}
    if not isinstance(value, dict):
        raise InvalidArgument(f"{field} must be an object", field=field)
    item: Json = {"type": _read_label(value.get("type"), f"{field}.type") or "message"}
    for name in ("role", "call_id"):
        if text := _read_label(value.get(name), f"{field}.{name}"):
            item[name] = text
    if (parts := value.get("content")) not in (None, [], ""):
        item["content"] = _read_parts(parts, f"{field}.content", item.get("role"))
    if (output := value.get("output")) not in (None, ""):
        item["output"] = check_text(output, f"{field}.output", MAX_TEXT)
    if metadata := value.get("metadata"):
        item["metadata"] = _read_metadata(metadata, f"{field}.metadata")
    return item


def _read_parts(value: Any, field: str, role: str | None) -> list[dict[str, str]]:
    """Return the parts of a message; a text stands for one part, whose type the role decides."""
    if isinstance(value, str):
        kind = "output_text" if role == "assistant" else "input_text"
        return [{"type": kind, "text": check_text(value, field, MAX_TEXT)}]
    parts = []
    for index, raw_part in enumerate(check_list(value, field, _MAX_PARTS, "parts")):
        part_field = f"{field}[{index}]"
        if not isinstance(raw_part, dict):
            raise InvalidArgument(f"{part_field} must be an object", field=part_field)
        part = {"type": _read_label(raw_part.get("type"), f"{part_field}.type") or "input_text"}
        for name in _PART_TEXTS:
            if raw_part.get(name) not in (None, ""):
                part[name] = check_text(raw_part[name], f"{part_field}.{name}", MAX_TEXT)
        parts.append(part)
    return parts


def _read_metadata(value: Any, field: str) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > _MAX_METADATA:
        raise InvalidArgument(f"{field} must be an object of at most {_MAX_METADATA} texts", field=field)
    return {
        check_text(name, field, _MAX_LABEL): "" if text == "" else check_text(text, f"{field}.{name[:50]}", _MAX_LABEL)
        for name, text in value.items()
    }


def _read_label(value: Any, field: str) -> str | None:
    return None if value in (None, "") else check_text(value, field, _MAX_LABEL)


_ITEMS = {"type": "array", "items": {"type": "object"}}
_ITEMS_OR_TEXT = {"type": ["array", "string", "object"], "items": {"type": ["object", "string"]}}

Items = Annotated[tuple[Json, ...], _optional(_read_items, _ITEMS, ())]
Start = Annotated[int | None, _whole_number(None, _MAX_ITEMS, least=None)]
Count = Annotated[int | None, _whole_number(None, _MAX_ITEMS)]


class SessionInput(Input):
    """Arguments that every tool of turns takes."""

    project: Annotated[str, _name_or(DEFAULT_NAME, MAX_NAME)] = DEFAULT_NAME
    plugin: Annotated[str | None, _optional(_read_plugin, TEXT | {"enum": list(PLUGINS)})] = None
    session_id: Annotated[str, _name_or(DEFAULT_NAME, MAX_NAME)] = DEFAULT_NAME


def client_result(value: Any) -> ClientResult | None:
    """Return the host's own result from a field `client_result`; None where it cannot be read."""
    if not isinstance(value, dict):
        return None
    items, fact_ids, facts, tokens = (
        value.get(name) for name in ("input_items", "recall_fact_ids", "facts", "context_token_count")
    )
    try:
        read_items = None if items is None else AfterTurnInput(input_items=items).input_items
    except (MyriaError, ValidationError):
        return None
    if not _is_list_of(fact_ids, str) or not _is_list_of(facts, dict) or not (tokens is None or type(tokens) is int):
        return None
    fact_texts = None
    if facts is not None:
        fact_texts = tuple(
            (str(fact.get("tier", "")), str(fact.get("key", "")), str(fact.get("value", ""))) for fact in facts
        )
    return ClientResult(
        items=read_items, fact_ids=None if fact_ids is None else tuple(fact_ids), facts=fact_texts, tokens=tokens
    )


def _is_list_of(value: Any, kind: type) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and len(value) <= _MAX_ITEMS and all(isinstance(item, kind) for item in value)


class TurnInput(SessionInput):
    """Arguments of the tools about one turn."""

    turn_id: Annotated[str | None, _name_or(None, MAX_TURN_ID)] = Field(
        default=None, description="Yours, and the same when you retry; made up where it is left out"
    )
    user_id: Annotated[str | None, _name_or(None, MAX_PARTICIPANT_CHARACTERS)] = Field(
        default=None, description="Who speaks: it is their memory too"
    )
    client_result: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        default=None, description="What you computed yourself for this call; compared in shadow mode, never used"
    )
    conversation_items: Items = Field(default=(), description="The whole conversation, where you have it")
    current_input_start: Start = Field(default=None, description="Where in conversation_items this turn begins")
    current_input_count: Count = Field(default=None, description="How many of its items are this turn's")

    def split(self) -> tuple[list[Json], list[Json]]:
        """Return the conversation without this turn's items, and these items: by default its last one.

        A range that reaches beyond the conversation is cut to it, as the contract has it.
        """
        items = list(self.conversation_items)
        count = len(items) if self.current_input_count is None else self.current_input_count
        if self.current_input_start is not None:
            start = min(max(self.current_input_start, 0), len(items))
        else:
            start = len(items) - (1 if self.current_input_count is None else min(count, len(items)))
        end = min(start + count, len(items))
        return items[:start] + items[end:], items[start:end]


class BeforeTurnInput(TurnInput):
    current_input: Annotated[tuple[Json, ...], _optional(_read_items, _ITEMS_OR_TEXT, ())] = Field(
        default=(), description="What is said now: items, one item, or a text"
    )
    current_input_text: Annotated[str | None, _optional_text(MAX_TEXT)] = Field(
        default=None, description="The same as a text"
    )
    base_instructions: Annotated[str | None, _optional_text(MAX_TEXT)] = Field(default=None, description="Not used")
    max_input_tok: Annotated[int, _whole_number(DEFAULT_MAX_TOKENS, 1_000_000_000)] = DEFAULT_MAX_TOKENS

    def parts(self) -> tuple[list[Json], list[Json]]:
        """Return the items before a turn, and the current input: given by itself, or as part of the conversation.

        Raises:
            InvalidArgument: there is no current input.
        """
        current = list(self.current_input)
        if not current and self.current_input_text:
            current = [_read_item(self.current_input_text, "current_input")]
        if not self.conversation_items:
            if not current:
                raise InvalidArgument(
                    "current_input is required when conversation_items is empty", field="current_input"
                )
            return [], current
        if current and self.current_input_start is None and self.current_input_count is None:
            return list(self.conversation_items), current
        history, of_conversation = self.split()
        if not current and not of_conversation:
            raise InvalidArgument(
                "current_input is required: current_input_start lies behind all of conversation_items",
                field="current_input_start",
            )
        return history, current or of_conversation


class AfterTurnInput(TurnInput):
    input_items: Items = Field(default=(), description="What went into the model, as memory_before_turn gave it")
    output_items: Items = Field(default=(), description="What came out of it")


class RunTurnInput(BeforeTurnInput):
    operation_token: Annotated[str | None, _optional_text(MAX_TOKEN)] = Field(
        default=None, description="What the first call gave: with it output_items are kept"
    )
    output_items: Items = Field(default=(), description="What came out of the model")


class ListDirInput(SessionInput):
    path: Annotated[str | None, _optional_text(1_000)] = Field(
        default=None, description="Below the session's root; absolute ones too"
    )
    depth: Annotated[int, _whole_number(DEFAULT_DEPTH, MAX_DEPTH)] = DEFAULT_DEPTH
    limit: Annotated[int, _whole_number(DEFAULT_LIMIT, MAX_LIMIT)] = DEFAULT_LIMIT


class PreparedAnswer(Answer):
    input_items: list[Json]
    recall_fact_ids: list[str]
    recall_insight_ids: list[str] = Field(description="Of insights: that a fact changed, or was said again")
    context_token_count: int


class DoneAnswer(OpenAnswer):
    ok: Literal[True]


class RunTurnAnswer(Answer):
    """memory_run_turn: what it prepared and the token of the second call, or that the turn is kept."""

    OPEN = frozenset({"operation_token", "turn_id", "ok"})

    input_items: list[Json] | None = None
    recall_fact_ids: list[str] | None = None
    recall_insight_ids: list[str] | None = None
    context_token_count: int | None = None
    operation_token: str | None = None
    turn_id: str | None = None
    ok: Literal[True] | None = None


class DirectoryBody(Answer):
    """One directory."""

    path: str
    abstract: str
    updated_at: str
    has_overview: bool


class ListDirAnswer(Answer):
    summaries: list[DirectoryBody]


class TurnRefusal(Answer):
    """What a refused call answers on this API."""

    code: CODES
    message: str
    retryable: bool
    available_plugins: list[str] | None = None


def refused(error: MyriaError) -> Json:
    """Return an error in the contract's form."""
    code: CODES = "INVALID_ARGUMENT"
    if isinstance(error, RateLimited | QuotaExceeded | UnavailableError) or error.retryable:
        code = "RESOURCE_BUSY"
    elif isinstance(error, AccessError | ToolNotEnabled):
        code = "PERMISSION_DENIED"
    elif isinstance(error, InternalError):
        code = "INTERNAL_ERROR"
    retryable = error.retryable or code == "INTERNAL_ERROR"
    body: Json = {"code": code, "message": error.message, "retryable": retryable}
    if "available_plugins" in error.details:
        body["available_plugins"] = error.details["available_plugins"]
    return body
