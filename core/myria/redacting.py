"""Redacting events on their way into the log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from myria.contract.event import NewEvent
from myria.contract.fields import RESERVED_TYPES
from myria.errors import PayloadTooLarge
from myria.redaction.redactor import PayloadRedactor
from myria.withdrawal.model import WITHDRAWAL_TYPE

BIG_BYTES = 16 * 1024
"""Suspected payloads of a request, in bytes, from which they are redacted in a thread: it may take milliseconds."""

Counts = Mapping[str, int]


def redacted_event(event: NewEvent, redactor: PayloadRedactor, *, payload_bytes: int) -> tuple[NewEvent, Counts]:
    """Return an event without what must not be kept, and how much of each kind was taken out.

    Raises:
        PayloadTooLarge: what stands in place of the removed makes the payload too large to be exported and imported.
    """
    if event.type == WITHDRAWAL_TYPE:
        return event, {}  # ids of events, none of which anybody wrote
    redacted = redactor.payload(event.payload_json)
    if not redacted.counts:
        return event, {}
    if len(redacted.payload_json) > payload_bytes:
        raise PayloadTooLarge(
            f"payload is {len(redacted.payload_json)} bytes of JSON once secrets are taken out; at most "
            f"{payload_bytes} are stored: leave the secrets out yourself, or keep the blob elsewhere",
            field="payload",
            limit=payload_bytes,
        )
    return replace(event, payload_json=redacted.payload_json), dict(redacted.counts.items())


async def redacted_events(
    events: Sequence[NewEvent], redactor: PayloadRedactor, *, payload_bytes: int
) -> tuple[Sequence[NewEvent], dict[int, Counts]]:
    """Return events without what must not be kept, and by position what was taken out of those that held something.

    Internal events of reserved types are Myria's own and name other events by their ids: they are left as they are.

    Raises:
        PayloadTooLarge: see `redacted_event`; of several events, the detail `index` says which.
    """
    suspected = [
        position
        for position, event in enumerate(events)
        if redactor.suspects(event.payload_json) and not _is_our_own(event)
    ]
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


def _is_our_own(event: NewEvent) -> bool:
    return event.internal and event.type is not None and event.type.startswith(RESERVED_TYPES)
