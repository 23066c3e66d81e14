"""Amending, forgetting and restoring notes: versions, who loses, and that nothing of a forgotten note stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from myria import errors
from myria.db.database import Database as Pool
from myria.log.withdrawal.commands import Withdrawals
from myria.notes.histories import history
from myria.notes.model import Amended, Amendment, Changes, Forgotten
from tests.notes.test_remembering import TENANT, US, Keeper
from tests.support.counts import examples
from tests.support.postgres import Database, Databases

NOW = 10**15 + 10**6


def may_see(who: Any) -> bool:
    return set(US) <= set(who)


@pytest.fixture
async def keeper(database: Database) -> AsyncIterator[Keeper]:
    async with Pool(database.server_dsn) as pool:
        made = Keeper(pool)
        yield made
        await made.ingest.close()


async def amend(keeper: Keeper, note_id: str, content: str, **more: Any) -> Amended:
    changes = Changes(content=content, **more)
    return await keeper.notes.amend(TENANT, note_id, changes, may_see=may_see, contract="memento", now=NOW)


async def forget(keeper: Keeper, note_id: str, **more: Any) -> Forgotten:
    return await keeper.notes.forget(TENANT, note_id, may_see=may_see, now=NOW, **more)


async def told_versions(keeper: Keeper, note_id: str) -> list[str]:
    """Return what the versions in the history of a note say, newest first."""
    told = await history(keeper.pool, TENANT, note_id, may_see=may_see, now=NOW)
    return [version.note.content for version in told.versions]


async def visible_texts(keeper: Keeper) -> list[str]:
    """Return the texts of all events that no withdrawal takes away."""
    async with keeper.pool.read(TENANT) as connection:
        rows = await connection.fetch(
            "SELECT e.payload->>'text' AS text FROM myria.events e WHERE NOT e.internal AND coalesce((SELECT w.reason"
            " FROM myria.withdrawn w WHERE w.event_seq = e.event_seq ORDER BY w.by_event_seq DESC LIMIT 1), 'restored')"
            " = 'restored' ORDER BY e.event_seq"
        )
    return [row["text"] for row in rows]


async def test_an_amendment_is_a_version_with_the_same_id(keeper: Keeper) -> None:
    """What was not changed stays; the version before is superseded; redaction holds for the new text too."""
    kept = await keeper.remember("The kiln opens on Friday", importance=0.4, topic="shop")
    amended = await amend(keeper, kept.note_id, "The kiln opens on Monday, ask ana@example.com")
    (row,) = await keeper.rows()
    assert (amended.note_id, amended.version, amended.changed) == (kept.note_id, 2, True)
    assert (amended.note.topic, amended.note.importance, amended.redacted) == ("shop", 0.4, {"email": 1})
    assert "monday" in amended.note.keywords
    assert (row["version"], row["live"]) == (2, True)
    assert await visible_texts(keeper) == ["The kiln opens on Monday, ask [REDACTED_EMAIL]"]
    assert await keeper.is_folded()


async def test_the_loser_of_two_amendments_is_told_so(keeper: Keeper) -> None:
    """Of eight that amend one version at once, one wins; nothing of the others is stored."""
    kept = await keeper.remember("The kiln opens on Friday")
    outcomes = await asyncio.gather(
        *[amend(keeper, kept.note_id, f"The kiln opens at {hour}") for hour in range(8)], return_exceptions=True
    )
    won = [outcome for outcome in outcomes if isinstance(outcome, Amended)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, errors.AlreadySuperseded | errors.NoteNotFound)]
    versions = sorted(outcome.version for outcome in won)
    assert versions == list(range(2, len(won) + 2))
    assert len(won) + len(lost) == 8
    assert (await visible_texts(keeper)) == [max(won, key=lambda outcome: outcome.version).note.content]
    assert await keeper.is_folded()


async def test_an_amendment_that_says_nothing_new_stores_nothing(keeper: Keeper) -> None:
    """Neither the same text again, nor what another note says."""
    first = await keeper.remember("The kiln is hot")
    second = await keeper.remember("The kiln is cold")
    assert not (await amend(keeper, first.note_id, "The kiln is hot")).changed
    merged = await amend(keeper, second.note_id, "The kiln is hot")
    assert (merged.changed, merged.same_as) == (False, first.note_id)
    assert len(await keeper.events()) == 2
    assert await keeper.is_folded()


async def test_an_amendment_says_who_and_why(keeper: Keeper) -> None:
    """Both stay, redacted, with the version that it made alone; one of a version that is gone is refused."""
    kept = await keeper.remember("The kiln opens on Friday")
    said = Amendment(by="key:ana", why="ana@example.com said so")
    more: dict[str, Any] = {"may_see": may_see, "contract": "memento", "now": NOW}
    monday = Changes(content="The kiln opens on Monday")
    for _ in range(2):  # the repeat finds nothing to change
        await keeper.notes.amend(TENANT, kept.note_id, monday, amendment=said, version=1, **more)
    with pytest.raises(errors.AlreadySuperseded):
        await keeper.notes.amend(TENANT, kept.note_id, Changes(content="Sunday"), version=1, **more)
    await amend(keeper, kept.note_id, "The kiln opens on Tuesday")
    versions = (await history(keeper.pool, TENANT, kept.note_id, may_see=may_see, now=NOW)).versions
    assert [(one.version, one.amendment and one.amendment.by) for one in versions] == [
        (3, None),
        (2, "key:ana"),
        (1, None),
    ]
    assert versions[1].amendment is not None
    assert "ana@" not in versions[1].amendment.why
    assert "said so" in versions[1].amendment.why


async def test_a_note_that_becomes_an_anchor_meanwhile_is_not_forgotten(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt asks anew whether the note is protected; with force it goes all the same."""
    kept = await keeper.remember("The kiln opens on Friday", importance=0.4)
    withdraw_versions = Withdrawals.withdraw_versions

    async def amended_before(*arguments: Any, **more: Any) -> None:
        monkeypatch.setattr(Withdrawals, "withdraw_versions", withdraw_versions)
        await amend(keeper, kept.note_id, "The kiln opens on Friday, always", anchor=True)
        await withdraw_versions(*arguments, **more)

    monkeypatch.setattr(Withdrawals, "withdraw_versions", amended_before)
    assert await forget(keeper, kept.note_id) == Forgotten(
        note_id=kept.note_id, text="The kiln opens on Friday", forgotten=False, protected=True
    )
    assert await visible_texts(keeper) == ["The kiln opens on Friday, always"]
    assert (await forget(keeper, kept.note_id, force=True)).forgotten
    assert await visible_texts(keeper) == []


async def test_forgetting_takes_all_versions(keeper: Keeper) -> None:
    """No version of a forgotten note is left; restoring brings the last one back into answers, with its history."""
    kept = await keeper.remember("one")
    await amend(keeper, kept.note_id, "two")
    await amend(keeper, kept.note_id, "three")
    expected = Forgotten(note_id=kept.note_id, text="three", forgotten=True, protected=False)
    assert await forget(keeper, kept.note_id) == expected
    assert await visible_texts(keeper) == []
    with pytest.raises(errors.NoteNotFound):
        await forget(keeper, kept.note_id)
    with pytest.raises(errors.NoteNotFound):
        await amend(keeper, kept.note_id, "four")
    for _ in range(2):
        await keeper.notes.restore(TENANT, kept.note_id, may_see=may_see, now=NOW)
        assert await visible_texts(keeper) == ["three"]
        assert await told_versions(keeper, kept.note_id) == ["three", "two", "one"]
    assert await keeper.is_folded()


async def test_a_version_that_was_forgotten_alone_stays_so(keeper: Keeper) -> None:
    """Restoring the note brings back what went with it: no words that somebody took out of its history before."""
    kept = await keeper.remember("one")
    await amend(keeper, kept.note_id, "two")
    await amend(keeper, kept.note_id, "three")
    _, second, _ = [one for one in await keeper.events() if one["type"] == "myria.note"]
    await keeper.withdrawals.withdraw(TENANT, [second["event_id"]], "forgotten", may_see=may_see)
    await forget(keeper, kept.note_id)
    await keeper.notes.restore(TENANT, kept.note_id, may_see=may_see, now=NOW)
    assert await told_versions(keeper, kept.note_id) == ["three", "one"]
    assert await keeper.is_folded()


@pytest.mark.parametrize("more", [{"anchor": True}, {"kind": "preference"}, {"importance": 0.8}])
async def test_a_permanent_note_wants_force(keeper: Keeper, more: dict[str, Any]) -> None:
    """Anchors, permanent kinds and important notes are protected; a dry run of any only says what would happen."""
    kept = await keeper.remember("The kiln is in the shed", **more)
    assert (await forget(keeper, kept.note_id)).protected
    assert await forget(keeper, kept.note_id, force=True, dry_run=True) == Forgotten(
        note_id=kept.note_id, text="The kiln is in the shed", forgotten=False, protected=False
    )
    assert len(await keeper.events()) == 1
    assert (await forget(keeper, kept.note_id, force=True)).forgotten


async def test_a_note_of_others_is_absent(keeper: Keeper) -> None:
    """Who may not see a note can neither amend, nor forget, nor restore it, nor learn that it is there."""
    kept = await keeper.remember("The kiln is hot", ("zoe",))
    for note_id in (kept.note_id, "note_nothing"):
        for attempt in (
            amend(keeper, note_id, "x"),
            forget(keeper, note_id, force=True),
            keeper.notes.restore(TENANT, note_id, may_see=may_see, now=NOW),
        ):
            with pytest.raises(errors.NoteNotFound, match=note_id):
                await attempt
    assert len(await keeper.events()) == 1


_STEPS = st.lists(
    st.tuples(st.sampled_from(["remember", "amend", "forget", "restore"]), st.integers(0, 3), st.integers(0, 4)),
    max_size=14,
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=_STEPS)
def test_any_sequence_leaves_what_the_log_says(databases: Databases, steps: list[tuple[str, int, int]]) -> None:
    """After every sequence the projection equals the fold of the log, and only the newest of live notes are visible."""

    async def run() -> None:
        database = databases.create()
        try:
            async with Pool(database.server_dsn) as pool:
                keeper = Keeper(pool)
                texts: dict[str, str] = {}
                gone: dict[str, str] = {}
                for step, which, text in steps:
                    content = f"text {text}"
                    known = [*texts, *gone]
                    note_id = known[which % len(known)] if known else "note_none"
                    if step == "remember":
                        kept = await keeper.remember(content)
                        assert kept.created == (content not in texts.values())
                        texts[kept.note_id] = content
                    elif step == "amend" and note_id in texts:
                        amended = await amend(keeper, note_id, content)
                        assert amended.changed == (content not in texts.values())
                        texts[note_id] = content if amended.changed else texts[note_id]
                    elif step == "forget" and note_id in texts:
                        assert (await forget(keeper, note_id)).forgotten
                        gone[note_id] = texts.pop(note_id)
                    elif step == "restore" and note_id in gone:
                        if gone[note_id] in texts.values():
                            with pytest.raises(errors.NoteExists):
                                await keeper.notes.restore(TENANT, note_id, may_see=may_see, now=NOW)
                        else:
                            await keeper.notes.restore(TENANT, note_id, may_see=may_see, now=NOW)
                            texts[note_id] = gone.pop(note_id)
                assert sorted(await visible_texts(keeper)) == sorted(texts.values())
                assert {row["note_id"] for row in await keeper.rows() if row["live"]} == set(texts)
                assert await keeper.is_folded()
                await keeper.ingest.close()
        finally:
            databases.drop(database)

    asyncio.run(run())
