"""From the arguments of an append to an event that can be stored.

This is the hottest path of the service, so it is written by hand; `contract.inputs` describes the same rules as a
model for JSON Schema, and a test holds the two together.

Optional fields may be null, which is as good as absent. Empty text is refused: an empty source_event_key would
quietly switch idempotency off. Texts other than participants are stored exactly as given; names must not hold
characters that nobody sees (`myria.names`).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

import orjson

from myria.access.principal import Principal
from myria.contract.fields import (
    MAX_TIMESTAMP,
    check_event_id,
    check_flag,
    check_name,
    check_type,
    parse_hints,
    parse_timestamp,
    refuse_unknown,
    required,
)
from myria.contract.limits import (
    MAX_CHANNEL,
    MAX_CONTEXT_ID,
    MAX_HINT,
    MAX_SOURCE_EVENT_KEY,
    MAX_TOPIC_HINTS,
    MAX_TYPE,
    Limits,
)
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
from myria.events import TopicHint
from myria.jsontext import check_storable, nul, path_of_nul
from myria.scopes import canonical_participants

REQUIRED = ("timestamp", "channel", "participants", "payload")
_REQUIRED_OF_A_PRINCIPAL = tuple(name for name in REQUIRED if name != "participants")
FIELDS = frozenset(REQUIRED) | {"source_event_key", "context_id", "type", "topic_hints", "internal"}
_IMPORT_FIELDS = FIELDS | {"event_id"}
_CANONICAL = orjson.OPT_SORT_KEYS
_MICROSECONDS = 1_000_000
_EVENT_BYTES = 512
"""As how many bytes an event counts beside its payload where a batch is read in steps."""

STEP_BYTES = 16 * 1024
"""Bytes of events that are read in one step: some twenty small ones, or a large one."""


class NewEvent(NamedTuple):
    """An event on its way into the log, checked and normalised.

    `timestamp` is in microseconds since 1970 UTC. `participants` are canonical. `payload_json` is the payload as
    canonical JSON in UTF-8 (keys sorted, no white space): what is stored, measured and compared. `internal` is the
    effective flag. Only an import sets `event_id`. `said` is what `payload_json` says, where this process made it and
    folds it at once, and `row` what its projection writes of it: whoever replaces one replaces all. Of other payloads
    an event that waits for its commit holds the JSON alone.
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
    said: Mapping[str, Any] | None = None
    row: tuple[Any, ...] | None = None


_made = NewEvent._make


def parse_event(
    arguments: Any, limits: Limits, *, importing: bool = False, principal: Principal | None = None
) -> NewEvent:
    """Return the event that the arguments of append_event describe.

    Args:
        arguments: a decoded JSON object.
        importing: whether the arguments may name an event_id (a line of an export does).
        principal: who appends: its participants are the event's too. None for an import, which names all itself.

    Raises:
        InputError: coded, with the path of the field as detail `field`.
    """
    return _EventReader(limits, principal, importing=importing).read(arguments)


def parse_events(arguments: Mapping[str, Any], limits: Limits, *, principal: Principal | None = None) -> list[NewEvent]:
    """Return the events that the arguments of append_events describe; see `each_event`."""
    steps = each_event(arguments, limits, principal=principal)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        events: list[NewEvent] = end.value
        return events


def each_event(
    arguments: Mapping[str, Any], limits: Limits, *, principal: Principal | None = None
) -> Generator[None, None, list[NewEvent]]:
    """Read the events that the arguments of append_events describe, a few at each step; return all of them.

    Args:
        principal: who appends; see `parse_event`.

    Raises:
        BatchTooLarge: more than `limits.batch_events`.
        InputError: of the first refused event, its index in message and details.
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
    reader = _EventReader(limits, principal)
    events: list[NewEvent] = []
    size = 0
    for index, item in enumerate(items):
        try:
            event = reader.read(item)
        except MyriaError as error:
            raise error.at_index(index) from error
        events.append(event)
        size += _EVENT_BYTES + len(event.payload_json)
        if size > STEP_BYTES:
            size = 0
            yield
    return events


class _EventReader:
    """Reads the events of one request, of one time.

    Events of a request mostly share channel, type, context and participants: what is equal to that of the event before
    is good, and is not looked at again.

    Args:
        principal, importing: see `parse_event`.
    """

    __slots__ = ("_before", "_importing", "_internal_types", "_known", "_latest", "_limits", "_names", "_principal")

    def __init__(self, limits: Limits, principal: Principal | None, *, importing: bool = False) -> None:
        self._limits = limits
        self._principal = principal
        self._importing = importing
        self._known = _IMPORT_FIELDS if importing else FIELDS
        self._internal_types = limits.internal_types
        self._latest = _latest(limits)
        self._names: Any = None
        self._before: NewEvent | None = None

    def read(self, arguments: Any) -> NewEvent:
        """Return the next event of the request; see `parse_event`."""
        if not isinstance(arguments, dict):
            raise InvalidArgument("an event must be an object", field="")
        if not self._known.issuperset(arguments):
            refuse_unknown(arguments, self._known)
        get, principal, before = arguments.get, self._principal, self._before
        at, channel, names, payload = get("timestamp"), get("channel"), get("participants"), get("payload")
        if at is None or channel is None or payload is None or (names is None and principal is None):
            raise required(arguments, REQUIRED if principal is None else _REQUIRED_OF_A_PRINCIPAL)
        timestamp = parse_timestamp(at)
        if timestamp > self._latest:
            raise _in_the_future(self._limits)
        known_channel = before is not None and channel == before.channel
        if not known_channel:
            check_name(channel, "channel", MAX_CHANNEL)
        if before is not None and names == self._names:
            participants = before.participants
        else:
            participants = _participants(names, principal)
        if principal is not None and not known_channel:
            principal.need_channel(channel)
        payload_json = _payload_json(payload, self._limits)
        source_event_key, context_id, kind = get("source_event_key"), get("context_id"), get("type")
        if source_event_key is not None:
            check_name(source_event_key, "source_event_key", MAX_SOURCE_EVENT_KEY)
        if context_id is not None and (before is None or context_id != before.context_id):
            check_name(context_id, "context_id", MAX_CONTEXT_ID)
        if kind is not None and (before is None or kind != before.type):
            check_name(kind, "type", MAX_TYPE)
            if not self._importing:
                check_type(kind, "type")
        hints, flag, event_id = get("topic_hints"), get("internal"), get("event_id")
        if event_id is not None:
            check_event_id(event_id)
        event = _made(
            (
                timestamp,
                channel,
                participants,
                payload_json,
                source_event_key,
                context_id,
                kind,
                () if hints is None else _hints(hints),
                (flag is not None and check_flag(flag, "internal")) or kind in self._internal_types,
                event_id,
                None,
                None,
            )
        )
        self._names, self._before = names, event
        return event


def _participants(names: Any, principal: Principal | None) -> tuple[str, ...]:
    if principal is None:
        return canonical_participants(names)
    return principal.appending_as(None if names is None else canonical_participants(names))


def _hints(hints: Any) -> tuple[TopicHint, ...]:
    return parse_hints(hints, "topic_hints", limit=MAX_TOPIC_HINTS, longest=MAX_HINT, texts=False)


def _latest(limits: Limits) -> int:
    """Return the latest time that an event may have which is read now."""
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
    if type(payload) is not dict:
        raise InvalidPayload("payload must be a JSON object", field="payload")
    try:
        written = orjson.dumps(payload, option=_CANONICAL)
    except (orjson.JSONEncodeError, TypeError) as error:
        raise _unwritable(payload, limits, error) from error
    if (
        written.rfind(b"{") <= 0
        and written.find(b"[") < 0
        and written.find(b"\\") < 0
        and written.find(b"null") < 0
        and len(written) <= limits.payload_bytes
    ):
        return written  # nothing but plain texts, numbers and truth values side by side
    if len(written) > limits.payload_bytes:
        raise PayloadTooLarge(
            f"payload is {len(written)} bytes of JSON; at most {limits.payload_bytes} are stored: "
            "keep the blob elsewhere and send a reference",
            field="payload",
            limit=limits.payload_bytes,
        )
    if written.count(b"{") + written.count(b"[") > limits.payload_depth and _deeper(payload, limits.payload_depth):
        raise _too_deep(limits)
    # orjson writes NaN as null: a value that did not come through `jsontext.decode` is looked at closely.
    if b"\\u0000" in written and (where := path_of_nul(payload, "payload")) is not None:
        raise nul(where)
    if b"null" in written and orjson.loads(written) != payload:
        try:
            check_storable(payload, "payload")
        except MalformedJson as error:
            raise InvalidPayload(error.message, field="payload") from error
    return written


def _unwritable(payload: Any, limits: Limits, error: Exception) -> MyriaError:
    if _deeper(payload, limits.payload_depth):
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


def _deeper(value: Any, limit: int) -> bool:
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
