"""Keeping notes over a real database: once, for whom, under concurrency, and always what the log says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from myria import errors
from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.log.event import NewEvent
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.folding import event_log
from myria.notes.model import Remembered
from myria.settings.database import KINDS
from myria.settings.planner import PlannerSettings
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")


class Keeper:
    """The write side over one database, and what it holds."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.ingest = event_log(pool)
        self.withdrawals = Withdrawals(self.ingest)
        self.notes = Notes(self.ingest, content_characters=1_000, redaction_kinds=KINDS)

    async def remember(self, content: str, who: tuple[str, ...] = US, **more: Any) -> Remembered:
        return await self.notes.remember(TENANT, who, Draft(content=content, **more), contract="memento", now=10**15)

    async def rows(self, relation: str = "notes") -> list[dict[str, Any]]:
        async with self.pool.read(TENANT) as connection:
            return [dict(row) for row in await connection.fetch(f"SELECT * FROM myria.{relation} ORDER BY note_id")]

    async def events(self) -> list[dict[str, Any]]:
        async with self.pool.read(TENANT) as connection:
            return [dict(row) for row in await connection.fetch("SELECT * FROM myria.events ORDER BY event_seq")]

    async def is_folded(self) -> bool:
        """Whether the projection is what the log gives, and `myria verify` says so."""
        report = await verify(self.pool, TENANT, PlannerSettings())
        return await self.rows() == await self.rows("notes_of_log") and report.failed == 0


@pytest.fixture
async def keeper(database: Database) -> AsyncIterator[Keeper]:
    async with Pool(database.server_dsn) as pool:
        made = Keeper(pool)
        yield made
        await made.ingest.close()


async def test_a_note_is_an_event_with_its_policy(keeper: Keeper) -> None:
    """Its text is an ordinary payload; what was left out is filled in, and said."""
    kept = await keeper.remember("We decided to fire the kiln on Friday, the kiln is ready.")
    (event,) = await keeper.events()
    (row,) = await keeper.rows()
    assert kept.created
    assert (kept.note.kind, kept.note.topic, kept.note.importance) == ("decision", "kiln", 0.8)
    assert kept.note.inferred == ("type", "topic", "keywords", "importance")
    assert (event["event_id"], event["type"], event["internal"]) == (kept.event_id, "myria.note", False)
    assert (row["note_id"], row["kind"], row["version"], row["live"]) == (kept.note_id, "decision", 1, True)
    assert await keeper.is_folded()


async def test_several_notes_are_kept_with_one_key(keeper: Keeper) -> None:
    """A repeat of the call returns the same notes, and each is one of its own."""
    drafts = [Draft(content=f"The kiln {number}") for number in range(3)]
    for is_first in (True, False):
        kept = await keeper.notes.remember_all(TENANT, US, drafts, contract="memento", now=10**15, key="k")
        assert [note.created for note in kept] == [is_first] * 3
        assert len({note.note_id for note in kept}) == len(await keeper.rows()) == 3
    alone = await keeper.notes.remember(TENANT, US, drafts[0], contract="memento", now=10**15, key="k")
    assert alone.note_id == kept[0].note_id


async def test_the_same_note_is_kept_once_for_the_same_people(keeper: Keeper) -> None:
    """Equal texts meet within scope, kind and session, whoever else has kept the same."""
    first = await keeper.remember("The kiln is hot.")
    again = await keeper.remember("  The kiln is hot. ")
    others = [
        await keeper.remember("The kiln is hot.", ("ana",)),
        await keeper.remember("The kiln is hot.", kind="error"),
        await keeper.remember("The kiln is hot.", lifetime="session", session_id="s1"),
        await keeper.remember("The kiln is hot.", lifetime="session", session_id="s2"),
    ]
    assert (again.created, again.note_id) == (False, first.note_id)
    assert all(other.created for other in others)
    assert len(await keeper.events()) == 5
    assert await keeper.is_folded()


async def test_what_is_compared_is_what_is_stored(keeper: Keeper) -> None:
    """Two notes that differ in what was taken out of them are the same note; nothing of it is stored."""
    first = await keeper.remember("Ana's mail is ana@example.com")
    again = await keeper.remember("Ana's mail is ana@example.org")
    assert (again.created, again.note_id) == (False, first.note_id)
    assert first.redacted == again.redacted == {"email": 1}
    assert [b"example" in str(event["payload"]).encode() for event in await keeper.events()] == [False]


async def test_a_withdrawn_note_can_be_kept_anew(keeper: Keeper) -> None:
    """Dedupe ignores what was withdrawn, and restoring it beside a live duplicate is refused."""
    first = await keeper.remember("The kiln is hot.")
    assert first.event_id is not None

    def may_see(who: Any) -> bool:
        return set(US) <= set(who)

    await keeper.withdrawals.withdraw(TENANT, [first.event_id], "forgotten", may_see=may_see)
    second = await keeper.remember("The kiln is hot.")
    assert second.created
    with pytest.raises(errors.NoteExists):
        await keeper.withdrawals.restore(TENANT, [first.event_id], may_see=may_see)
    assert {row["note_id"]: row["live"] for row in await keeper.rows()} == {first.note_id: False, second.note_id: True}
    assert await keeper.is_folded()


async def test_writers_of_the_same_and_of_different_notes(keeper: Keeper) -> None:
    """Of 32 writers that keep eight notes at once each note is made once, and all are told which."""
    kept = await asyncio.gather(*[keeper.remember(f"Note number {i % 8} of the kiln") for i in range(32)])
    by_text: dict[str, set[str]] = {}
    for one in kept:
        by_text.setdefault(one.note.content, set()).add(one.note_id)
    assert [len(ids) for ids in by_text.values()] == [1] * 8
    assert Counter(one.created for one in kept) == {True: 8, False: 24}
    assert len(await keeper.events()) == 8
    assert await keeper.is_folded()


async def test_a_duplicate_never_fails_another_callers_commit(keeper: Keeper) -> None:
    """Events that share a commit with a note that is refused are stored."""
    await keeper.remember("The kiln is hot.")
    plain = NewEvent(timestamp=1, channel="chat", participants=US, payload_json=b'{"text":"hello"}')
    repeat = asyncio.create_task(keeper.remember("The kiln is hot."))
    await asyncio.gather(*[keeper.ingest.append_events(TENANT, [plain._replace(timestamp=i)]) for i in range(10)])
    assert not (await repeat).created
    assert len(await keeper.events()) == 11


@pytest.mark.parametrize("content", ["", "   ", "x" * 1_001])
async def test_what_is_no_note_is_refused(keeper: Keeper, content: str) -> None:
    """Nothing, and more than is kept, is refused, and nothing is stored."""
    with pytest.raises(errors.InvalidArgument):
        await keeper.remember(content)
    with pytest.raises(errors.InvalidArgument):
        await keeper.remember("fine", kind="gossip")
    assert await keeper.events() == []


async def test_verify_finds_a_row_that_the_log_does_not_give(keeper: Keeper, database: Database) -> None:
    """A note that somebody changed by hand is named."""
    kept = await keeper.remember("The kiln is hot.")
    async with keeper.pool.write(TENANT) as connection:
        await connection.execute("UPDATE myria.notes SET importance = 0.1")
    report = await verify(keeper.pool, TENANT, PlannerSettings())
    (failed,) = [check for check in report.checks if check.failed]
    assert failed.name == "notes"
    assert kept.note_id in failed.failures[0]
