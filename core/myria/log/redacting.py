"""Redacting events on their way into the log: the one gate for whatever a writer stores, at every face.

Texts lose what must not be kept. Names, by which events are found and told apart, cannot: two that hold different keys
would become one. An event with such a name is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from myria.errors import InvalidArgument, PayloadTooLarge
from myria.log.event import NewEvent
from myria.log.fields import RESERVED_TYPES
from myria.log.limits import MAX_HINT
from myria.log.payloads import TopicHint
from myria.log.redaction.redactor import PayloadRedactor
from myria.log.withdrawal.model import WITHDRAWAL_TYPE

BIG_BYTES = 16 * 1024
"""Suspected payloads of a request, in bytes, from which they are redacted in a thread: it may take milliseconds."""

_TOGETHER_BYTES = 32 * 1024
"""What one look sees of several events."""

Counts = Mapping[str, int]


def redacted_event(event: NewEvent, redactor: PayloadRedactor, *, payload_bytes: int) -> tuple[NewEvent, Counts]:
    """Return an event without what must not be kept, and how much of each kind was taken out.

    Raises:
        PayloadTooLarge: what stands in place of the removed makes the payload too large to be exported and imported.
    """
    if event.type == WITHDRAWAL_TYPE:
        return event, {}  # ids of events, none of which anybody wrote
    redacted = redactor.payload(event.payload_json)
    hints, counts = _redacted_hints(event.topic_hints, redactor)
    counts.update(redacted.counts)
    if not counts:
        return event, {}
    if redacted.counts and len(redacted.payload_json) > payload_bytes:
        raise PayloadTooLarge(
            f"payload is {len(redacted.payload_json)} bytes of JSON once secrets are taken out; at most "
            f"{payload_bytes} are stored: leave the secrets out yourself, or keep the blob elsewhere",
            field="payload",
            limit=payload_bytes,
        )
    return event._replace(payload_json=redacted.payload_json, topic_hints=hints), dict(counts)


def _check_names(event: NewEvent, redactor: PayloadRedactor) -> None:
    """Return when none of an event's names holds a key or token.

    Raises:
        InvalidArgument: one does.
    """
    for field, what, name in (
        ("context_id", "the name of the context or session", event.context_id),
        ("source_event_key", "the source key", event.source_event_key),
        ("type", "the type", event.type),
        ("channel", "the channel", event.channel),
        *(("participants", "the name of a participant, agent or user", name) for name in event.participants),
    ):
        if name and redactor.names_secret(name):
            raise InvalidArgument(
                f"{what} ({field}) holds an API key or token; names are stored as they are given, so use another",
                field=field,
            )


def _redacted_hints(
    hints: Sequence[TopicHint], redactor: PayloadRedactor
) -> tuple[tuple[TopicHint, ...], Counter[str]]:
    counts: Counter[str] = Counter()
    kept = []
    for hint in hints:
        text, taken = redactor.text(hint.hint)
        counts.update(taken)
        kept.append(hint._replace(hint=text[:MAX_HINT]) if taken else hint)
    return tuple(kept), counts


async def redacted_events(
    events: Sequence[NewEvent], redactor: PayloadRedactor, *, payload_bytes: int
) -> tuple[Sequence[NewEvent], dict[int, Counts]]:
    """Return events without what must not be kept, and by position what was taken out of those that held something.

    Internal events of reserved types are Myria's own and name other events by ids: only their names are looked at.

    Raises:
        InvalidArgument: the name of something holds a key or token.
        PayloadTooLarge: see `redacted_event`. Of several events, the detail `index` says which, for both.
    """
    for position, event in enumerate(events):
        try:
            _check_names(event, redactor)
        except InvalidArgument as error:
            raise error if len(events) == 1 else error.at_index(position) from error
    suspected = [position for position in _suspected(events, redactor) if not _is_our_own(events[position])]
    if not suspected:
        return events, {}

    def work() -> tuple[list[NewEvent], dict[int, Counts]]:
        kept, counts = list(events), {}
        for position in suspected:
            try:
                kept[position], taken = redacted_event(events[position], redactor, payload_bytes=payload_bytes)
            except PayloadTooLarge as error:
                raise error if len(events) == 1 else error.at_index(position) from error
            if taken:
                counts[position] = taken
        return kept, counts

    if sum(len(events[position].payload_json) for position in suspected) < BIG_BYTES:
        return work()
    return await asyncio.to_thread(work)


def _suspected(events: Sequence[NewEvent], redactor: PayloadRedactor) -> Iterator[int]:
    """Yield the positions of events that may hold something to take out.

    Several are looked at together, each text on a line of its own: nearly always one look finds nothing.
    """
    begin = size = 0
    for end, event in enumerate(events, 1):
        size += len(event.payload_json)
        if size >= _TOGETHER_BYTES or end == len(events):
            together = events[begin:end]
            if redactor.suspects(_looked_at(together)):
                yield from (begin + place for place, one in enumerate(together) if redactor.suspects(_looked_at([one])))
            begin, size = end, 0


def _looked_at(events: Sequence[NewEvent]) -> bytes:
    payloads = b"\n".join([event.payload_json for event in events])
    hints = "\n".join([hint.hint for event in events for hint in event.topic_hints])
    return payloads + b"\n" + hints.encode("utf-8", "surrogatepass") if hints else payloads


def _is_our_own(event: NewEvent) -> bool:
    return event.internal and event.type is not None and event.type.startswith(RESERVED_TYPES)
