"""Validate the arguments of an append, and make an event that can be stored.

Every append goes through here, so it is written by hand for speed. `EventInput` of the server describes the same rules
as JSON Schema; a test compares the two.

Optional fields may be null, which means absent. Empty text is refused: an empty source_event_key would
quietly switch idempotency off. Texts other than participants are stored exactly as given; names must not hold
characters that nobody sees (`myria.log.names`).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple, Protocol

import orjson

from myria.errors import (
    BatchTooLarge,
    InvalidArgument,
    InvalidPayload,
    InvalidTimestamp,
    MalformedJson,
    MyriaError,
    PayloadTooDeep,
    PayloadTooLarge,
)
from myria.log.fields import (
    MAX_TIMESTAMP,
    check_event_id,
    check_flag,
    check_name,
    check_type,
    parse_hints,
    parse_timestamp,
    refuse_unknown,
    required,
    utc_offset_of,
)
from myria.log.jsontext import check_storable, nul, path_of_nul
from myria.log.limits import (
    MAX_CHANNEL,
    MAX_CONTEXT_ID,
    MAX_HINT,
    MAX_SOURCE_EVENT_KEY,
    MAX_TOPIC_HINTS,
    MAX_TYPE,
    Limits,
)
from myria.log.payloads import TopicHint
from myria.log.scopes import canonical_participants

REQUIRED = ("timestamp", "channel", "participants", "payload")
_REQUIRED_OF_A_PRINCIPAL = tuple(name for name in REQUIRED if name != "participants")
FIELDS = frozenset(REQUIRED) | {"source_event_key", "context_id", "type", "topic_hints", "internal"}
_IMPORT_FIELDS = FIELDS | {"event_id"}
_CANONICAL = orjson.OPT_SORT_KEYS
_MICROSECONDS = 1_000_000


class Appender(Protocol):
    """Whoever appends: adds its participants, and checks its channels. `Principal` is one."""

    def appending_as(self, named: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return the participants of an append; see `Principal.appending_as`."""
        ...

    def need_channel(self, channel: str) -> None:
        """Check that this appender may append to a channel; see `Principal.need_channel`."""
        ...


class NewEvent(NamedTuple):
    """A validated and normalised event that is not stored yet.

    `timestamp` is in microseconds since 1970 UTC. `participants` are canonical. `payload_json` is the payload as
    canonical JSON in UTF-8 (keys sorted, no white space): what is stored, measured and compared. `internal` is the
    effective flag. Only an import sets `event_id`. `utc_offset` is that of the timestamp as it was given, in
    minutes east of UTC; None if it had none.
    """

    timestamp: int
    channel: str
    participants: tuple[str, ...]
    payload_json: bytes
    source_event_key: str | None = None
    context_id: str | None = None
    type: str | None = None
    topic_hints: tuple[TopicHint, ...] = ()
    internal: bool = False
    event_id: str | None = None
    utc_offset: int | None = None


def parse_event(
    arguments: Any, limits: Limits, *, importing: bool = False, principal: Appender | None = None
) -> NewEvent:
    """Return the event that the arguments of append_event describe.

    Args:
        arguments: a decoded JSON object.
        importing: whether the arguments may hold an event_id, as a line of an export does.
        principal: who appends; its participants are added to the event. None for an import, whose lines name all.

    Raises:
        InputError: a field is refused; the detail `field` is its path.
    """
    if not isinstance(arguments, dict):
        raise InvalidArgument("an event must be an object", field="")
    known = _IMPORT_FIELDS if importing else FIELDS
    if not known.issuperset(arguments):
        refuse_unknown(arguments, known)
    get = arguments.get
    at, channel, names, payload = get("timestamp"), get("channel"), get("participants"), get("payload")
    if at is None or channel is None or payload is None or (names is None and principal is None):
        raise required(arguments, REQUIRED if principal is None else _REQUIRED_OF_A_PRINCIPAL)
    timestamp = parse_timestamp(at)
    if timestamp > _latest(limits):
        raise _in_the_future(limits)
    check_name(channel, "channel", MAX_CHANNEL)
    participants = _participants(names, principal)
    if principal is not None:
        principal.need_channel(channel)
    payload_json = _payload_json(payload, limits)
    source_event_key, context_id, kind = get("source_event_key"), get("context_id"), get("type")
    if source_event_key is not None:
        check_name(source_event_key, "source_event_key", MAX_SOURCE_EVENT_KEY)
    if context_id is not None:
        check_name(context_id, "context_id", MAX_CONTEXT_ID)
    if kind is not None:
        check_name(kind, "type", MAX_TYPE)
        if not importing:
            check_type(kind, "type")
    hints, flag, event_id = get("topic_hints"), get("internal"), get("event_id")
    if event_id is not None:
        check_event_id(event_id)
    return NewEvent(
        timestamp=timestamp,
        channel=channel,
        participants=participants,
        payload_json=payload_json,
        source_event_key=source_event_key,
        context_id=context_id,
        type=kind,
        topic_hints=() if hints is None else _hints(hints),
        internal=(flag is not None and check_flag(flag, "internal")) or kind in limits.internal_types,
        event_id=event_id,
        utc_offset=utc_offset_of(at),
    )


def parse_events(arguments: Any, limits: Limits, *, principal: Appender | None = None) -> list[NewEvent]:
    """Return the events that the arguments of append_events describe.

    Args:
        principal: who appends; see `parse_event`.

    Raises:
        BatchTooLarge: more than `limits.batch_events`.
        InputError: of the first refused event; its index is in message and details.
    """
    if not isinstance(arguments, dict):
        raise InvalidArgument("the arguments must be an object", field="")
    refuse_unknown(arguments, ("events",))
    items = arguments.get("events")
    if items is None:
        raise InvalidArgument("events is required", field="events")
    if not isinstance(items, list):
        raise InvalidArgument("events must be a list of events", field="events")
    if not items:
        raise InvalidArgument("events is empty; send at least one event", field="events")
    if len(items) > limits.batch_events:
        raise BatchTooLarge(
            f"events holds {len(items)} events; send at most {limits.batch_events} at once",
            field="events",
            limit=limits.batch_events,
        )
    events: list[NewEvent] = []
    for index, item in enumerate(items):
        try:
            events.append(parse_event(item, limits, principal=principal))
        except MyriaError as error:
            raise error.at_index(index) from error
    return events


def _participants(names: Any, principal: Appender | None) -> tuple[str, ...]:
    if principal is None:
        return canonical_participants(names)
    return principal.appending_as(None if names is None else canonical_participants(names))


def _hints(hints: Any) -> tuple[TopicHint, ...]:
    return parse_hints(hints, "topic_hints", limit=MAX_TOPIC_HINTS, longest=MAX_HINT, texts=False)


def _latest(limits: Limits) -> int:
    """Return the latest timestamp, in microseconds, that an event may have if it is appended now."""
    if not limits.future_seconds:
        return MAX_TIMESTAMP
    return time.time_ns() // 1000 + int(limits.future_seconds * _MICROSECONDS)


def _in_the_future(limits: Limits) -> MyriaError:
    seconds = limits.future_seconds
    return InvalidTimestamp(
        f"timestamp lies more than {seconds:g} s ahead of the server's clock, the limit of the setting "
        "ingest.future_limit_s; correct it, or put the date of what is planned into the payload",
        field="timestamp",
        limit=seconds,
        setting="ingest.future_limit_s",
    )


def _payload_json(payload: Any, limits: Limits) -> bytes:
    """Validate a payload, and return it as canonical JSON; cheap checks of the written JSON come before slow ones."""
    if type(payload) is not dict:
        raise InvalidPayload("payload must be a JSON object", field="payload")
    try:
        written = orjson.dumps(payload, option=_CANONICAL)
    except (orjson.JSONEncodeError, TypeError) as error:
        raise _unwritable(payload, limits, error) from error
    if len(written) > limits.payload_bytes:
        raise PayloadTooLarge(
            f"payload is {len(written)} bytes of JSON; at most {limits.payload_bytes} are stored: "
            "keep the blob elsewhere and send a reference",
            field="payload",
            limit=limits.payload_bytes,
        )
    if written.count(b"{") + written.count(b"[") > limits.payload_depth and _nests_deeper(
        payload, limits.payload_depth
    ):
        raise _too_deep(limits)
    # orjson writes NaN as null, and a value may not have come through `jsontext.decode`: check it again below.
    if b"\\u0000" in written and (where := path_of_nul(payload, "payload")) is not None:
        raise nul(where)
    if b"null" in written and orjson.loads(written) != payload:
        try:
            check_storable(payload, "payload")
        except MalformedJson as error:
            raise InvalidPayload(error.message, field="payload") from error
    return written


def _unwritable(payload: Any, limits: Limits, error: Exception) -> MyriaError:
    """Return the refusal of a payload that orjson cannot write: too deep, not storable, or no JSON."""
    if _nests_deeper(payload, limits.payload_depth):
        return _too_deep(limits)
    try:
        check_storable(payload, "payload")
    except MalformedJson as cause:
        return InvalidPayload(cause.message, field="payload")
    except MyriaError as cause:
        return cause
    return InvalidPayload(f"payload is not JSON: {error}", field="payload")


def _too_deep(limits: Limits) -> MyriaError:
    return PayloadTooDeep(
        f"payload nests deeper than {limits.payload_depth} levels; flatten it",
        field="payload",
        limit=limits.payload_depth,
    )


def _nests_deeper(value: Any, limit: int) -> bool:
    """Tell whether a JSON value nests deeper than `limit` levels; looks level by level, without recursion."""
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True
