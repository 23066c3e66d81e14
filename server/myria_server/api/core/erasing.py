"""The tools that erase, for the role `erase` alone: arguments and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from myria.errors import InvalidArgument
from myria.log.fields import check_text, refuse_unknown
from myria.log.limits import MAX_CHANNEL, MAX_CONTEXT_ID, MAX_ID, MAX_QUERY, MAX_REASON, MAX_SOURCE_EVENT_KEY
from myria.log.scopes import MAX_PARTICIPANT_CHARACTERS, canonical_participants
from myria_server.api.answers import OpenAnswer
from myria_server.api.core.inputs import Identifier, Input, OptionalIdentifier
from myria_server.api.fields import check_list, needed, optional, optional_text, or_default, texts

MAX_NAMED = 1_000
"""Ids, names or keys of one sort that a selection may name."""

MAX_PAGE = 1_000
DEFAULT_PAGE = 100
DEFAULT_ERASURES, MAX_ERASURES = 20, 200


def _read_source_keys(value: Any, name: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for index, item in enumerate(check_list(value, name, MAX_NAMED, "{channel, source_event_key}")):
        field = f"{name}[{index}]"
        if not isinstance(item, dict):
            raise InvalidArgument(f"{field} must be an object {{channel, source_event_key}}", field=field)
        refuse_unknown(item, ("channel", "source_event_key"), field)
        channel = check_text(item.get("channel"), f"{field}.channel", MAX_CHANNEL)
        key = check_text(item.get("source_event_key"), f"{field}.source_event_key", MAX_SOURCE_EVENT_KEY)
        pairs.append((channel, key))
    return tuple(dict.fromkeys(pairs))


def _read_reason(value: Any, name: str) -> str:
    reason = check_text(value, name, MAX_REASON)
    if not reason.strip():
        raise InvalidArgument(f"{name} must say why", field=name)
    return reason


_SOURCES_SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "channel": {"type": "string", "minLength": 1, "maxLength": MAX_CHANNEL},
            "source_event_key": {"type": "string", "minLength": 1, "maxLength": MAX_SOURCE_EVENT_KEY},
        },
        "required": ["channel", "source_event_key"],
        "additionalProperties": False,
    },
    "maxItems": MAX_NAMED,
}

People = Annotated[
    tuple[str, ...],
    optional(
        lambda value, name: canonical_participants(value, field=name),
        texts(MAX_PARTICIPANT_CHARACTERS, MAX_NAMED, "people").schema,
        (),
        blanks=(None, "", []),
    ),
]
Contexts = Annotated[tuple[str, ...], texts(MAX_CONTEXT_ID, MAX_NAMED, "contexts")]
Ids = Annotated[tuple[str, ...], texts(MAX_ID, MAX_NAMED, "ids")]
SourceKeys = Annotated[tuple[tuple[str, str], ...], optional(_read_source_keys, _SOURCES_SCHEMA, ())]


class ErasureSelection(Input):
    """What is to be erased of the whole tenant, whoever may see it: the union of what is named."""

    event_ids: Ids = Field(default=(), description="Events, by id or handle (e:481920375)")
    note_ids: Ids = Field(default=(), description="Notes, by id: every version, rating and link of each")
    of_participants: People = Field(
        default=(), description="Everything that these people were told alone; shared says what of the rest"
    )
    shared: Annotated[Literal["keep", "remove"], or_default("keep")] = Field(
        default="keep", description="remove also erases, for everybody, what they share with others"
    )
    context_ids: Contexts = Field(default=(), description="Everything of these contexts, or sessions")
    source_keys: SourceKeys = Field(
        default=(), description="Events by the channel and key under which they were appended"
    )
    query: Annotated[str | None, optional_text(MAX_QUERY)] = Field(
        default="", description="Events that say these words in this order"
    )


class PreviewErasureInput(ErasureSelection):
    after: Annotated[int, or_default(0)] = Field(
        default=0, ge=0, le=(1 << 63) - 1, description="next_after of the page before"
    )
    limit: Annotated[int, or_default(DEFAULT_PAGE)] = Field(
        default=DEFAULT_PAGE, ge=1, le=MAX_PAGE, description="How many events to list"
    )


class EraseInput(ErasureSelection):
    expected_events: int = Field(
        ge=1, le=(1 << 63) - 1, description="counts.events of a preview; refused if it is another number by now"
    )
    reason: Annotated[str, needed(_read_reason, {"type": "string", "minLength": 1, "maxLength": MAX_REASON})] = Field(
        description="Why, for the receipt; it stays, so put no names into it"
    )
    idempotency_key: OptionalIdentifier = Field(
        default=None, description="Of your choice: a repetition with the same key and choice begins no other erasure"
    )


class ErasuresInput(Input):
    erasure_id: OptionalIdentifier = Field(default=None, description="Only this one")
    limit: Annotated[int, or_default(DEFAULT_ERASURES)] = Field(
        default=DEFAULT_ERASURES, ge=1, le=MAX_ERASURES, description="How many, newest first"
    )


class ErasureReceiptInput(Input):
    erasure_id: Identifier = Field(description="The erasure")


class PlannedEvent(OpenAnswer):
    """One event that would be erased: never what it says."""

    event_id: str
    timestamp: str
    participants: list[str]


class ErasurePreview(OpenAnswer):
    dry_run: Literal[True]
    counts: dict[str, int] = Field(description="By place; renderings and search blocks are counted as they go")
    shared_events: int = Field(description="Of those people with others: kept, or part of counts with shared=remove")
    events: list[PlannedEvent]
    next_after: int | None = Field(description="null on the last page")


class FailedAttempt(OpenAnswer):
    """Why the last attempt to go on ended."""

    code: str
    message: str


class ErasureState(OpenAnswer):
    """How far one erasure is; also the answer of erase."""

    erasure_id: str
    state: Literal["planned", "withdrawn", "erasing", "done"]
    events: int
    withdrawn: int = Field(description="Of the events: no answer shows these any more")
    erased: int = Field(description="Of the events: only id, number, scope and time of these are left")
    rows: dict[str, int] = Field(description="How many rows were emptied or removed so far, by place")
    selected: dict[str, Any] = Field(description="By what events were chosen, never a word of it")
    by: str
    reason: str
    asked_at: str
    done_at: str | None
    in_progress: bool = Field(description="Whether a process works on it now")
    failure: FailedAttempt | None = Field(description="Of the last attempt; it is tried again")


class ErasureStates(OpenAnswer):
    erasures: list[ErasureState]


class ErasureReceipt(OpenAnswer):
    """get_erasure_receipt: the content of a receipt file, for `myria verify --receipt`."""

    receipt: dict[str, Any]
    mac: str
    key: str | None = Field(
        default=None, description="Keep it: shown for five minutes, to who asked for the erasure, and kept nowhere"
    )
