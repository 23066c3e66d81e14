"""Which notes a new one is like: the newest of the same people, told by the commit that keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random

import pytest

from myria.db.database import Database as Pool
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.folding import event_log
from myria.notes.kinds import Lifetime
from myria.notes.likeness import ALIKE, LOOKED_AT, MOST, NewestNotes, said_by, those_alike
from myria.notes.model import Changes, Remembered
from myria.notes.similar import Similar
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")
FRIDAY = "the kiln opens on friday at nine"
MONDAY = "the kiln opens on monday at nine"


class Keeper:
    """What one process keeps, and what it finds alike."""

    def __init__(self, pool: Pool, *, writers: int = 2) -> None:
        self.ingest = event_log(pool, writers=writers)
        self.similar = Similar(pool)
        self.notes = Notes(self.ingest, content_characters=10_000)

    async def keep(
        self,
        content: str,
        *,
        who: tuple[str, ...] = US,
        session: str | None = None,
        beside: tuple[tuple[str, ...], ...] = (),
        keywords: tuple[str, ...] = (),
    ) -> Remembered:
        lifetime: Lifetime = "permanent" if session is None else "session"
        draft = Draft(content=content, session_id=session, lifetime=lifetime, keywords=keywords)
        return await self.notes.remember(TENANT, who, draft, contract="004", compare=True, beside_in=beside)

    async def like(self, kept: Remembered) -> list[tuple[str, float]]:
        """Return the texts that a kept note is like; where it was not compared, that fails."""
        assert kept.alike is not None
        return await self.looked_up(kept, [])

    async def looked_up(self, kept: Remembered, scopes: list[tuple[str, ...]]) -> list[tuple[str, float]]:
        """Return the texts of these people that a kept note is like, read where it was not compared."""
        return [(other.text, other.similarity) for other in await self.similar.of(TENANT, kept, scopes)]


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
    assert await keeper.looked_up(replace(kept, alike=None), [US]) == [(FRIDAY, 0.75)]


async def test_what_no_longer_stands_is_not_named(keeper: Keeper) -> None:
    """A forgotten note is not compared, nor the text before an amendment, nor what ends with a session."""
    forgotten = await keeper.keep("the oven opens on friday at nine")
    amended = await keeper.keep("the shop opens on friday at nine")
    await keeper.keep("the door opens on friday at nine", session="talk")
    await keeper.notes.forget(TENANT, forgotten.note_id, may_see=lambda _: True, force=True)
    changes = Changes(content="rain is likely")
    await keeper.notes.amend(TENANT, amended.note_id, changes, may_see=lambda _: True, contract="004")
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
    assert len(await keeper.looked_up(replace(kept, note=other, alike=None), [US])) == 1
    assert said_by("x", "kiln").keywords == said_by("x", [7]).keywords == frozenset()


async def test_a_pool_is_compared_beside(keeper: Keeper) -> None:
    """Where the caller sees one, its notes are named like its own, also when both are kept at once."""
    planner, pool = (*US, "planner"), (US,)
    assert await keeper.like(await keeper.keep("tea is green", who=planner, beside=pool)) == []
    await keeper.keep(FRIDAY)
    for day, others in (("monday", [FRIDAY]), ("sunday", [MONDAY, FRIDAY])):
        kept = await keeper.keep(f"the kiln opens on {day} at nine", who=planner, beside=pool)
        assert sorted(text for text, _ in await keeper.like(kept)) == sorted(others)
    assert [text for text, _ in await keeper.like(await keeper.keep("the kiln opens on tuesday at nine"))] == [FRIDAY]
    both = await asyncio.gather(
        keeper.keep("the kiln opens at ten", who=planner, beside=pool), keeper.keep("the kiln opens at noon")
    )
    assert all([await keeper.like(kept) for kept in both])
    other = replace(kept, note_id="", note=kept.note._replace(content="the kiln opens on saturday at nine"), alike=None)
    assert len(await keeper.looked_up(other, [planner, *pool])) == MOST


async def test_other_processes_notes_are_compared(pool: Pool, keeper: Keeper) -> None:
    """A process that has not seen a note reads it; it is enough to do so once."""
    await keeper.keep(FRIDAY)
    other = Keeper(pool)
    assert [text for text, _ in await other.like(await other.keep(MONDAY))] == [FRIDAY]
    assert [text for text, _ in await keeper.like(await keeper.keep("the kiln opens on sunday at nine"))] == [
        MONDAY,
        FRIDAY,
    ]
    await other.ingest.close()


async def test_notes_of_one_commit_are_compared(pool: Pool) -> None:
    """Of notes that are kept at once the later one names the earlier."""
    keeper = Keeper(pool, writers=1)
    await keeper.keep("something else")
    kept = await asyncio.gather(*(keeper.keep(f"the kiln opens on {day} at nine") for day in ("friday", "monday")))
    likes = sorted([len(await keeper.like(each)) for each in kept])
    assert likes == [0, 1]
    await keeper.ingest.close()


async def test_the_newest_are_looked_at(keeper: Keeper) -> None:
    """A bounded number of notes is compared, however many there are."""
    await keeper.keep(FRIDAY)
    for number in range(LOOKED_AT - 1):
        await keeper.keep(f"word{number} alone")
    assert [text for text, _ in await keeper.like(await keeper.keep(MONDAY))] == [FRIDAY]
    for number in range(LOOKED_AT):
        await keeper.keep(f"further{number} one{number}")
    assert await keeper.like(await keeper.keep("the kiln opens on tuesday at nine")) == []


def test_what_is_remembered_is_bounded() -> None:
    """Old versions of a scope are forgotten, those that stand last; scopes not asked of are forgotten whole."""
    newest = NewestNotes()
    for number in range(500):
        newest.learn(TENANT, 1, {number: said_by(f"text {number}")}, standing=(3,))
    assert 2 * LOOKED_AT <= len(newest.of(TENANT, 1)) <= 4 * LOOKED_AT
    assert {3, 499} <= newest.of(TENANT, 1).keys()
    long = said_by(" ".join(f"w{number}" for number in range(400)))
    for scope in range(2, 600):
        newest.learn(TENANT, scope, {scope * 10: long, scope * 10 + 1: long})
    known = [scope for scope in range(1, 600) if newest.of(TENANT, scope)]
    assert known == list(range(known[0], 600))
    assert 1 < known[0] < 599
    assert sum(said.size for scope in known for said in newest.of(TENANT, scope).values()) <= 200_000


def test_no_note_that_is_like_another_is_passed_over() -> None:
    """Whatever marks their words share: those found are those of which enough words are the same."""
    random = Random(7)
    vocabulary = [f"w{number}" for number in range(2_000)]
    for words in (4, 16, 300):
        text = random.sample(vocabulary, words)
        others = []
        for number in range(60):
            kept = random.sample(text, random.randint(0, words))
            further = random.sample(vocabulary, random.randint(0, words))
            others.append((number, said_by(" ".join(kept + further), kept[:4])))
        said = said_by(" ".join(text), text[:4])
        expected = {
            number
            for number, other in others
            if 2 * len(said.words & other.words) >= len(said.words | other.words)
            or (
                len(other.keywords) > 2
                and 2 * len(said.keywords & other.keywords) >= len(said.keywords | other.keywords)
            )
        }
        assert ALIKE == 0.5
        assert expected
        assert {number for number, _ in those_alike(said, others)} == expected
