"""The events by which a note takes the place of others: at once, or from the later day on that its text names."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import orjson

from myria.log.event import NewEvent
from myria.log.ids import new_id
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.expiry import Lasting
from myria.notes.finding import anybody
from myria.notes.kinds import FACT_KINDS
from myria.notes.model import ending_version
from myria.text.announcing import holds_later
from myria.text.dates import local_day


async def replacing_events(
    withdrawals: Withdrawals,
    tenant: str,
    event: NewEvent,
    replaced: Sequence[asyncpg.Record],
    *,
    now: int | None = None,
) -> list[NewEvent]:
    """Return a note's event with the events that replace other notes by it, in the order of the append.

    Where its text says that it holds from a later day on, each replaced note gets a version that ends on that day,
    and maintenance then lets the new note supersede it. Notes of a session and facts end by themselves, so they
    get no such version.

    Args:
        replaced: current rows of the notes to replace.
        now: in microseconds since 1970 UTC; left out, the time of the event.

    Raises:
        AlreadySuperseded: another call replaced one of them meanwhile.
    """
    if not replaced:
        return [event]
    if event.event_id is None:
        event = event._replace(event_id=new_id("evt"))
    text = orjson.loads(event.payload_json)["text"]
    moment = event.timestamp if now is None else now
    day = holds_later(text, at=event.timestamp, utc_offset=event.utc_offset or 0, now=moment)
    if day is None:
        superseding, superseded = await withdrawals.superseding(
            tenant, event, [row["event_id"] for row in replaced], may_see=anybody
        )
        return [superseding, *superseded]
    events = [event]
    for row in replaced:
        lasting = Lasting.of(row)
        if lasting.session_ends_at is None and row["kind"] not in FACT_KINDS:
            version = ending_version(row, day - local_day(lasting.changed_at, 0), by=event)
            ending, superseded = await withdrawals.superseding(tenant, version, [row["event_id"]], may_see=anybody)
            events += [ending, *superseded]
    return events
