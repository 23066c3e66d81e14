"""Reflecting over a real database: all or nothing, once, whoever repeats it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from myria import errors
from myria.builds.verify import verify
from myria.erasure.model import Selection
from myria.memory import Memory
from myria.notes.sessions.reflecting import Part, Reflection, reflect
from myria.settings.planner import PlannerSettings
from tests.erasure.test_erasure import erase
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")
NOW = 1_772_000_000_000_000


async def reflected(memory: Memory, *, at: int = NOW, **given: Any) -> list[tuple[Part, str]]:
    notes = memory.notes
    made = await reflect(
        notes, memory.database, TENANT, US, Reflection(**{"summary": "s", **given}), idle_s=3600, now=at
    )
    return [(part, note.note_id) for part, note in made]


async def stored(memory: Memory) -> list[str]:
    async with memory.database.read(TENANT) as connection:
        return [row["type"] for row in await connection.fetch("SELECT type FROM myria.events ORDER BY event_seq")]


async def test_all_of_it_is_one_transaction(memory: Memory) -> None:
    """Notes and the session's end have one transaction id; the same text twice is one note."""
    await reflected(memory, session_id="s1", decisions=["one", "two", "two"], questions=["three"])
    async with memory.database.read(TENANT) as connection:
        assert await connection.fetchval("SELECT count(DISTINCT xid) FROM myria.events") == 1
    assert await stored(memory) == ["myria.note"] * 4 + ["myria.session"]
    assert (await verify(memory.database, TENANT, PlannerSettings())).failed == 0


async def test_of_a_text_that_is_refused_nothing_is_kept(memory: Memory) -> None:
    """A text too long in any part leaves nothing of the others behind."""
    with pytest.raises(errors.InvalidArgument):
        await reflected(memory, session_id="s1", decisions=["one", "x" * 10_001])
    assert await stored(memory) == []


async def test_a_repeat_stores_nothing(memory: Memory) -> None:
    """Also eight of them at once; what comes later in the session, and its next end, is stored."""
    first = await reflected(memory, session_id="s1", decisions=["one"])
    repeats = await asyncio.gather(*[reflected(memory, session_id="s1", decisions=["one"]) for _ in range(8)])
    assert all(repeat == first for repeat in repeats)
    assert await stored(memory) == ["myria.note", "myria.note", "myria.session"]
    await reflected(memory, session_id="s1", decisions=["two"])
    assert (await stored(memory))[3:] == ["myria.note", "myria.session"]
    assert (await verify(memory.database, TENANT, PlannerSettings())).failed == 0


async def test_a_session_of_an_erased_name_ends_again(memory: Memory, database: Database) -> None:
    """Also once more: the end that was erased is not in the way, and the same reflection at once is kept once."""
    for words in ("one", "two"):
        made = await asyncio.gather(*[reflected(memory, session_id="s1", decisions=[words]) for _ in range(2)])
        assert made[0] == made[1]
        await erase(database.dsn, Selection(contexts=("s1",)))
    await reflected(memory, session_id="s1", decisions=["three"])
    assert (await stored(memory))[-3:] == ["myria.note", "myria.note", "myria.session"]
    async with memory.database.read(TENANT) as connection:
        assert await connection.fetchval("SELECT count(*) FROM myria.sessions WHERE ended_seq IS NOT NULL") == 1


async def test_the_same_reflection_at_once_is_kept_once(memory: Memory) -> None:
    """Of eight that say the same before any is stored, all answer the same notes."""
    made = await asyncio.gather(*[reflected(memory, session_id="s1", decisions=["one"]) for _ in range(8)])
    assert all(each == made[0] for each in made)
    assert sorted(await stored(memory)) == ["myria.note", "myria.note", "myria.session"]


async def test_what_is_said_of_no_session_is_kept_beside_the_notes(memory: Memory) -> None:
    """How the task went is in the log once, and ends no session."""
    for _ in range(2):
        await reflected(memory, effectiveness={"overall_success": True})
    assert await stored(memory) == ["myria.note", "myria.session"]
    async with memory.database.read(TENANT) as connection:
        assert await connection.fetchval("SELECT count(*) FROM myria.sessions") == 0
    assert (await verify(memory.database, TENANT, PlannerSettings())).failed == 0
