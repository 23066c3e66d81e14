"""Days as people mean them, through the whole of a memory: in the tail, after builds, and out of an export again."""

from __future__ import annotations

import asyncpg
import pytest

from myria.log.event import NewEvent, parse_event
from myria.log.fields import parse_timestamp, utc_offset_of
from myria.log.limits import Limits
from myria.memory import Memory
from myria.notes.model import NOTE_TYPE
from myria.search.queries import EventNodesQuery
from tests.reads.asking import append, ask, events_of, texts_of
from tests.support.building import build_now
from tests.support.events import TENANT
from tests.support.postgres import Database

ANA = ("ana",)
TOLD = (
    ("2026-03-09T10:00:00-07:00", "Ana painted the big door green."),
    ("2026-03-10T10:00:00-07:00", "Ana painted the small door red."),
    ("2026-03-12T22:30:00-07:00", "Ana painted the gate blue."),
    ("2026-03-13T09:00:00-07:00", "Tomorrow Ana paints the fence white."),
    ("2026-03-16T09:00:00+01:00", "Bo counted the chairs."),
)


def _event(moment: str, text: str) -> NewEvent:
    told = {"timestamp": moment, "channel": "chat", "participants": list(ANA), "payload": {"text": text}}
    return parse_event(told, Limits())


async def _first(memory: Memory, text: str, now: str | None = None) -> str:
    query = EventNodesQuery(
        participants=ANA,
        query=text,
        now=None if now is None else parse_timestamp(now),
        utc_offset=0 if now is None else utc_offset_of(now),
    )
    return texts_of(await ask(memory, query))[0]


ASKED = (
    ("What did Ana paint yesterday?", "2026-03-10T22:00:00-07:00", "big door"),
    ("What did Ana paint today?", "2026-03-10T22:00:00-07:00", "small door"),
    ("What did Ana paint on 12 March?", None, "gate"),
    ("What does Ana paint on 14 March?", None, "fence"),
)


async def test_the_tail_and_every_build_know_the_same_days(memory: Memory, database: Database) -> None:
    """In the tail, built, and built anew: what was told of a day, or on it, comes first."""
    events = [_event(*told) for told in TOLD]

    async def check() -> None:
        for text, now, first in ASKED:
            assert first in await _first(memory, text, now)

    await append(memory, events)
    await check()
    await build_now(database.builder_dsn)
    await check()
    whole = [await ask(memory, EventNodesQuery(participants=ANA, query=text)) for text, _, _ in ASKED]
    await build_now(database.builder_dsn, full=True)
    for (text, _, _), before in zip(ASKED, whole, strict=True):
        after = await ask(memory, EventNodesQuery(participants=ANA, query=text))
        assert [event["score"] for event in events_of(after)] == [event["score"] for event in events_of(before)]


async def test_days_are_kept_when_a_block_is_spliced(memory: Memory, database: Database) -> None:
    """A build takes documents over from the block before: their days and offsets come along."""
    for part in (TOLD[:2], TOLD[2:4], TOLD[4:]):
        await append(memory, [_event(*told) for told in part])
        await build_now(database.builder_dsn)
    for text, now, first in ASKED:
        assert first in await _first(memory, text, now)


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2026-03-12T22:30:00-07:00", "2026-03-12T22:30:00-07:00"),
        ("2026-03-12T22:30:00.250+05:45", "2026-03-12T22:30:00.25+05:45"),
        ("2026-03-12T22:30:00+00:00", "2026-03-12T22:30:00Z"),
        ("2026-03-12t22:30:00z", "2026-03-12T22:30:00Z"),
        ("0001-01-02T00:00:00+23:59", "0001-01-02T00:00:00+23:59"),
        ("0001-01-01T00:30:00-01:00", "0001-01-01T00:30:00-01:00"),
    ],
)
async def test_an_event_is_shown_by_its_own_clock(memory: Memory, moment: str, shown: str) -> None:
    """The instant and the offset are those that were given, alone and in a batch."""
    alone = await memory.log.append_events(TENANT, [_event(moment, "alone")])
    batch = await memory.log.append_events(TENANT, [_event(moment, "first"), _event("2026-01-01T00:00:00Z", "second")])
    answer = await ask(memory, EventNodesQuery(participants=ANA))
    times = {event["event_id"]: event["timestamp"] for event in events_of(answer)}
    assert [times[one.event_id] for one in (*alone, batch[0])] == [shown] * 2
    assert times[batch[1].event_id] == "2026-01-01T00:00:00Z"


async def test_an_offset_is_no_part_of_what_an_event_is(memory: Memory, database: Database) -> None:
    """The same instant by another clock is the same event for whoever sends it again; trees do not depend on it."""
    told = {"channel": "chat", "participants": list(ANA), "payload": {"text": "a"}, "source_event_key": "k"}
    first, again = (
        parse_event(told | {"timestamp": moment}, Limits())
        for moment in ("2026-03-12T22:30:00-07:00", "2026-03-13T05:30:00Z")
    )
    await memory.log.append_events(TENANT, [first])
    (acknowledged,) = await memory.log.append_events(TENANT, [again])
    assert (acknowledged.deduplicated, acknowledged.payload_differs) == (True, False)
    (event,) = events_of(await ask(memory, EventNodesQuery(participants=ANA)))
    assert event["timestamp"] == "2026-03-12T22:30:00-07:00"


async def test_events_beside_notes_keep_their_offset(memory: Memory, database: Database) -> None:
    """A commit that folds rows of projections, too, stores offsets as any other does."""
    note = {"text": "tea", "note": {"id": "n", "version": 1, "kind": "fact", "topic": "t", "importance": 0.5}}
    kept = parse_event(
        {"timestamp": "2026-03-12T05:00:00Z", "channel": "notes", "participants": list(ANA), "payload": note}, Limits()
    )
    await memory.log.append_events(TENANT, [kept._replace(type=NOTE_TYPE), _event(*TOLD[2])])
    connection = await asyncpg.connect(database.superuser_dsn)
    offsets = await connection.fetch("SELECT utc_offset FROM myria.events ORDER BY event_seq")
    await connection.close()
    assert [row["utc_offset"] for row in offsets] == [None, -7 * 60]
