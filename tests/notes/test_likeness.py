"""Which notes a new one is like: among the newest of the same people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from myria.db.database import Database as Pool
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.folding import event_log
from myria.notes.kinds import Lifetime
from myria.notes.likeness import said_by, similarity
from myria.notes.model import Changes, Remembered
from myria.notes.similar import LOOKED_AT, MOST, similar_notes
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")
FRIDAY = "the kiln opens on friday at nine"
MONDAY = "the kiln opens on monday at nine"


class Keeper:
    """What one process keeps, and what it finds alike."""

    def __init__(self, pool: Pool) -> None:
        self.ingest = event_log(pool)
        self.pool = pool
        self.notes = Notes(self.ingest, content_characters=10_000)

    async def keep(
        self,
        content: str,
        *,
        who: tuple[str, ...] = US,
        session: str | None = None,
        keywords: tuple[str, ...] = (),
    ) -> Remembered:
        lifetime: Lifetime = "permanent" if session is None else "session"
        draft = Draft(content=content, session_id=session, lifetime=lifetime, keywords=keywords)
        return await self.notes.remember(TENANT, who, draft, contract="memento")

    async def like(self, kept: Remembered, *scopes: tuple[str, ...]) -> list[tuple[str, float]]:
        """Return the texts that a kept note is like, of the same people where no others are named."""
        similar = await similar_notes(self.pool, TENANT, kept, scopes or (US,))
        return [(other.text, other.similarity) for other in similar]


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    async with Pool(database.server_dsn) as made:
        yield made


@pytest.fixture
async def keeper(pool: Pool) -> AsyncIterator[Keeper]:
    made = Keeper(pool)
    yield made
    await made.ingest.close()


async def test_a_note_names_those_that_it_is_like(keeper: Keeper) -> None:
    """By the words that both have, for the same people alone; what is not like it is not named."""
    await keeper.keep("the glaze is blue and dries slowly in winter")
    await keeper.keep(FRIDAY, who=("ana",))
    assert await keeper.like(await keeper.keep(FRIDAY)) == []
    kept = await keeper.keep(MONDAY)
    assert await keeper.like(kept) == [(FRIDAY, 0.75)]


async def test_what_no_longer_stands_is_not_named(keeper: Keeper) -> None:
    """A forgotten note is not compared, nor the text before an amendment, nor what ends with a session."""
    forgotten = await keeper.keep("the oven opens on friday at nine")
    amended = await keeper.keep("the shop opens on friday at nine")
    await keeper.keep("the door opens on friday at nine", session="talk")
    await keeper.notes.forget(TENANT, forgotten.note_id, may_see=lambda _: True, force=True)
    changes = Changes(content="rain is likely")
    await keeper.notes.amend(TENANT, amended.note_id, changes, may_see=lambda _: True, contract="memento")
    assert await keeper.like(await keeper.keep(FRIDAY)) == []
    assert [text for text, _ in await keeper.like(await keeper.keep("rain is very likely"))] == ["rain is likely"]


async def test_keywords_tell_what_is_alike(keeper: Keeper) -> None:
    """Two notes in other words that share most keywords, whatever their case; two keywords alone say too little."""
    named = ("kiln", "opening", "hours")
    await keeper.keep("we fire it from nine", keywords=named)
    await keeper.keep("clay comes on tuesdays", keywords=("kiln", "clay"))
    kept = await keeper.keep("the heater cools down at ten", keywords=("Kiln", "Opening", "hours", "heater"))
    assert await keeper.like(kept) == [("we fire it from nine", 0.75)]
    assert await keeper.like(await keeper.keep("no one may come in", keywords=("kiln", "clay"))) == []
    other = kept.note._replace(content="someone asks", keywords=named)
    assert len(await keeper.like(replace(kept, note=other))) == 1
    assert said_by("x", "kiln") == said_by("x", [7]) == said_by("x")


async def test_a_pool_is_compared_beside(keeper: Keeper) -> None:
    """Where the caller sees one, its notes are named like its own."""
    planner = (*US, "planner")
    assert await keeper.like(await keeper.keep("tea is green", who=planner), planner, US) == []
    await keeper.keep(FRIDAY)
    for day, others in (("monday", [FRIDAY]), ("sunday", [MONDAY, FRIDAY])):
        kept = await keeper.keep(f"the kiln opens on {day} at nine", who=planner)
        assert sorted(text for text, _ in await keeper.like(kept, planner, US)) == sorted(others)
    assert [text for text, _ in await keeper.like(await keeper.keep("the kiln opens on tuesday at nine"))] == [FRIDAY]
    kept = await keeper.keep("the kiln opens on saturday at nine", who=planner)
    assert len(await keeper.like(kept, planner, US)) == MOST


async def test_the_newest_are_looked_at(keeper: Keeper) -> None:
    """A bounded number of notes is compared, however many there are."""
    await keeper.keep(FRIDAY)
    for number in range(LOOKED_AT - 1):
        await keeper.keep(f"word{number} alone")
    assert [text for text, _ in await keeper.like(await keeper.keep(MONDAY))] == [FRIDAY]
    for number in range(LOOKED_AT):
        await keeper.keep(f"further{number} one{number}")
    assert await keeper.like(await keeper.keep("the kiln opens on tuesday at nine")) == []


def test_a_share_of_words_makes_two_notes_alike() -> None:
    """Half of the words of both must be common, whatever their case and order."""
    said = said_by("Ana opens the kiln")
    assert similarity(said, said_by("the KILN opens Ana")) == 1.0
    assert similarity(said, said_by("Ana opens the shop")) == 0.6
    assert similarity(said, said_by("Ben opens the shop")) == 0.0
    assert similarity(said_by(""), said_by("")) == 0.0
