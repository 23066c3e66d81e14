"""What is kept again after something else was said counts as of now: on every face, once, and with its history."""

from __future__ import annotations

import asyncio

import pytest

from myria.builds.verify import verify
from myria.log.fields import parse_timestamp
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.model import Remembered, note_event
from myria.notes.questions import RecallQuery
from myria.settings.planner import PlannerSettings
from tests.support.building import build_now
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")

STATES = (
    ("The default branch is main", "The default branch is release", "What is the default branch?"),
    ("Der Müll wird dienstags geholt.", "Der Müll wird freitags geholt.", "Wann wird der Müll geholt?"),
    ("El mercado cierra los lunes.", "El mercado cierra los martes.", "¿Cuándo cierra el mercado?"),
    ("Le bus part à 7h.", "Le bus part à 8h.", "Quand part le bus ?"),
    ("会議室は三階です", "会議室は五階です", "会議室は何階ですか"),
)


async def keep(memory: Memory, content: str, moment: str | None = None, key: str | None = None) -> Remembered:
    notes = Notes(memory.log, content_characters=4_000)
    return await notes.remember(
        TENANT,
        US,
        Draft(content=content, kind="fact"),
        contract="memento",
        speaker="bot",
        now=None if moment is None else parse_timestamp(moment),
        key=key,
    )


async def recalled(memory: Memory, asked: str, moment: str) -> list[str]:
    query = RecallQuery(masks=Masks.containing(US), now=parse_timestamp(moment), text=asked)
    return [fragment.written() for fragment in await memory.recall.find(TENANT, query)]


async def opened(memory: Memory, moment: str) -> str:
    return (await memory.openings.gather(TENANT, Masks.containing(US), now=parse_timestamp(moment), budget=2_000)).text


async def events(memory: Memory) -> int:
    async with memory.appending.read(TENANT) as connection:
        count: int = await connection.fetchval("SELECT count(*) FROM myria.events")
        return count


async def test_an_attempt_does_not_replace_what_another_of_its_call_restated(memory: Memory) -> None:
    """An attempt that was refused before the other had committed makes no version of the other's version."""
    kept = await keep(memory, "The kiln is hot", "2026-03-01T09:00:00Z")
    await keep(memory, "The kiln is cold", "2026-03-02T09:00:00Z")
    await keep(memory, "The kiln is hot", "2026-03-03T09:00:00Z", key="k")
    async with memory.appending.read(TENANT) as connection:
        key = await connection.fetchval(
            "SELECT source_event_key FROM myria.events WHERE source_event_key LIKE 'note:%' ORDER BY event_seq DESC"
        )
    refused = note_event(
        kept.note,
        US,
        note_id="note_other",
        version=1,
        timestamp=parse_timestamp("2026-03-03T09:00:01Z"),
        speaker="bot",
        key=key,
    )
    notes = Notes(memory.log, content_characters=4_000)
    assert await notes.keeper.restating_events(TENANT, kept.note_id, refused) == []


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(("first", "then", "asked"), STATES)
async def test_what_is_said_again_is_the_newest_state(
    memory: Memory, database: Database, first: str, then: str, asked: str, *, is_built: bool
) -> None:
    """It is told first, with the day on which it was said last; what came between is older."""
    kept = await keep(memory, first, "2026-03-01T09:00:00Z")
    await keep(memory, then, "2026-04-01T09:00:00Z")
    if is_built:
        await build_now(database.builder_dsn)
    again = await keep(memory, first, "2026-05-01T09:00:00Z")
    assert (again.note_id, again.created) == (kept.note_id, False)
    best, *others = await recalled(memory, asked, "2026-05-02T09:00:00Z")
    assert first in best
    assert best.startswith("2026-05-01")
    assert [then in line and "(older)" in line for line in others] == [True]
    opening = await opened(memory, "2026-05-02T09:00:00Z")
    assert f"- 2026-05-01 {first}" in opening
    assert opening.index(first) < opening.index("[OLDER]") < opening.index(then)
    assert (await verify(memory.appending, TENANT, PlannerSettings())).failed == 0


async def test_a_repeat_of_one_request_renews_nothing(memory: Memory) -> None:
    """Whatever was said since: its key tells that it was said before."""
    first, then, asked = STATES[0]
    await keep(memory, first, "2026-03-01T09:00:00Z", key="a")
    await keep(memory, then, "2026-04-01T09:00:00Z", key="b")
    await keep(memory, first, "2026-05-01T09:00:00Z", key="c")
    await keep(memory, then, "2026-05-03T09:00:00Z", key="d")
    before = await events(memory)
    for moment, text, key in (("05", first, "a"), ("06", then, "b"), ("07", first, "c"), ("08", then, "d")):
        repeat = await keep(memory, text, f"2026-05-{moment}T09:00:00Z", key=key)
        assert not repeat.created
    assert await events(memory) == before
    best, *_ = await recalled(memory, asked, "2026-05-09T09:00:00Z")
    assert best.startswith("2026-05-03")
    assert then in best


async def test_a_retry_without_a_key_costs_nothing(memory: Memory) -> None:
    """Where nothing else was said in between, on the same day; nor does what was said earlier than what stands."""
    await keep(memory, "The kiln is hot.", "2026-03-01T09:00:00Z")
    for moment in ("2026-03-01T09:00:01Z", "2026-02-01T09:00:00Z"):
        await keep(memory, "The kiln is hot.", moment)
    assert await events(memory) == 1
    await keep(memory, "The kiln is hot.", "2026-03-02T09:00:00Z")
    assert "- 2026-03-02 The kiln is hot." in await opened(memory, "2026-03-03T09:00:00Z")


async def test_each_time_that_it_was_said_stays_known(memory: Memory) -> None:
    """As it was known at a moment, it is told of that moment; the note's history has both days."""
    first, then, asked = STATES[0]
    kept = await keep(memory, first, "2026-03-01T09:00:00Z")
    await keep(memory, then, "2026-04-01T09:00:00Z")
    await keep(memory, first, "2026-05-01T09:00:00Z")
    moment = parse_timestamp("2026-04-15T09:00:00Z")
    query = RecallQuery(masks=Masks.containing(US), now=moment, text=asked, as_of=moment)
    told = [fragment.written() for fragment in await memory.recall.find(TENANT, query)]
    assert then in told[0]
    assert told[1].startswith("2026-03-01")
    async with memory.appending.read(TENANT) as connection:
        rows = await connection.fetch(
            "SELECT payload->>'text' AS text, occurred_at::date::text AS day FROM myria.events "
            "WHERE payload->'note'->>'id' = $1 ORDER BY event_seq",
            kept.note_id,
        )
    assert [(row["text"], row["day"]) for row in rows] == [(first, "2026-03-01"), (first, "2026-05-01")]


async def test_what_many_say_again_at_once_is_kept_for_all(memory: Memory) -> None:
    """Among much else that is said meanwhile nobody is refused, and there is one note."""
    first = await keep(memory, "The kiln is free on Mondays", "2026-05-01T10:00:00Z")
    for round_ in range(3):
        others = (keep(memory, f"Shelf {shelf} holds glaze {round_}") for shelf in range(64))
        again = (keep(memory, "The kiln is free on Mondays") for _ in range(64))
        kept = await asyncio.gather(*(one for pair in zip(again, others, strict=True) for one in pair))
        assert {one.note_id for one in kept[::2]} == {first.note_id}
