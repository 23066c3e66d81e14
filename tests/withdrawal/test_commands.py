"""Withdrawing, replacing and restoring events: who may, who loses, and the projection that each append folds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from myria import errors
from myria.access import journal
from myria.db.database import Database as Pool
from myria.log.event import NewEvent, parse_event
from myria.log.limits import Limits
from myria.log.masks import Mask
from myria.log.withdrawal.commands import Withdrawals
from myria.log.withdrawal.model import Withdrawal, withdrawal_event
from myria.notes.folding import event_log
from tests.support.postgres import Database

TENANT = "default"


def event(text: str, *, who: Sequence[str] = ("ann", "bob"), **more: Any) -> NewEvent:
    arguments = {
        "timestamp": "2026-01-02T03:04:05Z",
        "channel": "chat",
        "participants": list(who),
        "payload": {"text": text},
        **more,
    }
    return parse_event(arguments, Limits(), importing="event_id" in more)


def as_whom(*participants: str) -> Any:
    return Mask(tuple(participants)).sees


class Log:
    """The write side over one database, and what it holds."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.ingest = event_log(pool)
        self.withdrawals = Withdrawals(self.ingest)

    async def append(self, *events: NewEvent) -> list[str]:
        return [result.event_id for result in await self.ingest.append_events(TENANT, events)]

    async def states(self) -> dict[str, str]:
        """Return what withdrawals say of each event that they ever named, by its text."""
        async with self.pool.read(TENANT) as connection:
            rows = await connection.fetch(
                "SELECT DISTINCT ON (w.event_seq) e.payload->>'text' AS text, w.reason"
                " FROM myria.withdrawn w JOIN myria.events e USING (tenant_id, event_seq)"
                " ORDER BY w.event_seq, w.by_event_seq DESC"
            )
        return {row["text"]: row["reason"] for row in rows}

    async def rows(self, relation: str) -> set[asyncpg.Record]:
        columns = "scope_id, event_seq, by_event_seq, reason, superseded_by"
        async with self.pool.read(TENANT) as connection:
            return set(await connection.fetch(f"SELECT {columns} FROM myria.{relation}"))

    async def is_folded(self) -> bool:
        """Whether the projection is what the log gives when it is folded anew."""
        return await self.rows("withdrawn") == await self.rows("withdrawn_of_log")

    async def count(self) -> int:
        async with self.pool.read(TENANT) as connection:
            counted: int = await connection.fetchval("SELECT count(*) FROM myria.events")
            return counted


@pytest.fixture
async def log(database: Database) -> AsyncIterator[Log]:
    async with Pool(database.server_dsn) as pool:
        made = Log(pool)
        yield made
        await made.ingest.close()


async def test_withdrawn_and_restored(log: Log) -> None:
    """Events of several scopes are withdrawn at once, one withdrawal per scope, and restored; a repeat adds nothing."""
    one, two, three = await log.append(event("one"), event("two"), event("three", who=("ann",)))
    sees = as_whom("ann")
    dry = await log.withdrawals.withdraw(TENANT, [one, three], "forgotten", may_see=sees, dry_run=True)
    before = await log.count()
    done = await log.withdrawals.withdraw(TENANT, [one, three, one], "forgotten", may_see=sees)
    again = await log.withdrawals.withdraw(TENANT, [one, three], "forgotten", may_see=sees)

    assert (dry.changed, dry.dry_run, before) == ((one, three), True, 3)
    assert (done.changed, done.unchanged) == ((one, three), ())
    assert (again.changed, again.unchanged) == ((), (one, three))
    assert await log.count() == 5
    assert await log.states() == {"one": "forgotten", "three": "forgotten"}

    back = await log.withdrawals.restore(TENANT, [one, two], may_see=sees)
    assert (back.changed, back.unchanged) == ((one,), (two,))
    assert await log.states() == {"one": "restored", "three": "forgotten"}
    assert await log.is_folded()


async def test_absent_and_forbidden_alike(log: Log) -> None:
    """Who may not see an event gets the answer for one that is not there, and nothing is withdrawn beside it."""
    own, other = await log.append(event("own"), event("other", who=("carol",)))
    refusals = []
    for named in (other, "evt_" + 32 * "0"):
        with pytest.raises(errors.EventNotFound) as caught:
            await log.withdrawals.withdraw(TENANT, [own, named], "forgotten", may_see=as_whom("ann"))
        refusals.append(str(caught.value.to_json()).replace(named, "ID"))
        with pytest.raises(errors.EventNotFound):
            await log.withdrawals.append(TENANT, event("x"), supersedes=[named], may_see=as_whom("ann"))

    assert refusals[0] == refusals[1]
    assert await log.states() == {}
    assert await log.count() == 2


async def test_a_withdrawal_cannot_be_named(log: Log) -> None:
    """Withdrawals are no events that anybody could withdraw, and nobody can append one."""
    (one,) = await log.append(event("one"))
    await log.withdrawals.withdraw(TENANT, [one], "forgotten", may_see=as_whom("ann"))
    async with log.pool.read(TENANT) as connection:
        withdrawal = await connection.fetchval("SELECT event_id FROM myria.events WHERE internal")

    with pytest.raises(errors.EventNotFound):
        await log.withdrawals.restore(TENANT, [withdrawal], may_see=as_whom("ann"))
    with pytest.raises(errors.ReservedType):
        event("mine", type="myria.withdrawal")


async def test_a_supersession_that_loses_is_told_so(log: Log) -> None:
    """Of writers that replace one event at once exactly one succeeds, the others store nothing."""
    (old,) = await log.append(event("old"))
    outcomes = await asyncio.gather(
        *(
            Withdrawals(event_log(log.pool)).append(
                TENANT, event(f"new {number}"), supersedes=[old], may_see=as_whom("ann")
            )
            for number in range(8)
        ),
        return_exceptions=True,
    )
    lost = [outcome for outcome in outcomes if isinstance(outcome, errors.AlreadySuperseded)]

    assert len(lost) == 7
    assert await log.count() == 3
    assert await log.states() == {"old": "superseded"}
    assert await log.is_folded()


async def test_who_withdrew_an_event_is_told_to_those_who_see_it(log: Log, database: Database) -> None:
    """Newest first, with when; an import brings what was done elsewhere, and is no act of anybody here."""
    (event_id,) = await log.append(event("red"))
    await log.withdrawals.withdraw(TENANT, [event_id], "forgotten", may_see=as_whom("ann"), by="key:a")
    await log.withdrawals.restore(TENANT, [event_id], may_see=as_whom("ann"), by="key:b")
    elsewhere = Withdrawal(reason="forgotten", events=(event_id,), by="key:c")
    await log.ingest.import_events(TENANT, [withdrawal_event(elsewhere, ("ann", "bob"), timestamp=0)])
    acts = await log.withdrawals.acts(TENANT, event_id, may_see=as_whom("bob"))
    assert [(act.reason, act.by) for act in acts] == [
        ("forgotten", "key:c"),
        ("restored", "key:b"),
        ("forgotten", "key:a"),
    ]
    assert [act.at for act in acts] == sorted((act.at for act in acts), reverse=True)
    assert not await log.withdrawals.acts(TENANT, event_id, may_see=as_whom("eve"))
    async with Pool(database.operator_dsn) as control:
        entries = await journal.entries(control, TENANT, 10)
    assert [(entry["actor"], entry["action"]) for entry in entries] == [
        ("key:b", "memory.restored"),
        ("key:a", "memory.forgotten"),
    ]


async def test_writers_of_one_commit_lose_alone(log: Log) -> None:
    """In a shared commit the loser of two supersessions is refused, and the other events of that commit are kept."""
    (old,) = await log.append(event("old"))
    outcomes = await asyncio.gather(
        *(
            log.withdrawals.append(TENANT, event(f"new {number}"), supersedes=[old], may_see=as_whom("ann"))
            for number in range(4)
        ),
        *(log.append(event(f"other {number}")) for number in range(4)),
        return_exceptions=True,
    )

    assert sum(isinstance(outcome, errors.AlreadySuperseded) for outcome in outcomes) == 3
    assert await log.count() == 1 + 2 + 4
    assert await log.is_folded()


async def test_a_repeated_supersession_answers_the_first(log: Log) -> None:
    """A repeat by source key of an append that replaces an event finds it, also once the replaced one is forgotten."""
    (old,) = await log.append(event("old"))

    async def replaced() -> tuple[str, bool]:
        new = event("new", source_event_key="k")
        result = await log.withdrawals.append(TENANT, new, supersedes=[old], may_see=as_whom("ann"))
        return result.event_id, result.deduplicated

    first = await replaced()
    assert await replaced() == (first[0], True)
    await log.withdrawals.withdraw(TENANT, [old], "forgotten", may_see=as_whom("ann"))
    assert await replaced() == (first[0], True)
    assert await log.states() == {"old": "forgotten"}
    await log.withdrawals.restore(TENANT, [old], may_see=as_whom("ann"))
    await replaced()
    assert await log.states() == {"old": "restored"}
    assert await log.count() == 5
    assert await log.is_folded()


async def test_a_successor_stored_before_is_named(log: Log) -> None:
    """An event that was stored already can replace another: the projection names it, not an id that never was."""
    old, new = await log.append(event("old"), event("new", source_event_key="k"))
    result = await log.withdrawals.append(
        TENANT, event("new", source_event_key="k"), supersedes=[old], may_see=as_whom("ann")
    )
    async with log.pool.read(TENANT) as connection:
        named = await connection.fetchval(
            "SELECT e.event_id FROM myria.withdrawn w JOIN myria.events e ON e.event_seq = w.superseded_by"
        )

    assert result.event_id == new == named


async def test_what_is_gone_cannot_be_replaced(log: Log) -> None:
    """A forgotten event is absent for whoever would replace it; one that was replaced names its visible successor."""
    old, gone = await log.append(event("old"), event("gone"))
    await log.withdrawals.withdraw(TENANT, [gone], "forgotten", may_see=as_whom("ann"))
    new = await log.withdrawals.append(TENANT, event("new"), supersedes=[old], may_see=as_whom("ann"))
    (secret,) = await log.append(event("base"))
    hidden = await log.withdrawals.append(
        TENANT, event("hidden", who=("ann",)), supersedes=[secret], may_see=as_whom("ann")
    )

    with pytest.raises(errors.EventNotFound):
        await log.withdrawals.append(TENANT, event("x"), supersedes=[gone], may_see=as_whom("ann"))
    with pytest.raises(errors.AlreadySuperseded) as told:
        await log.withdrawals.append(TENANT, event("x"), supersedes=[old], may_see=as_whom("bob"))
    assert told.value.details["superseded_by"] == new.event_id
    with pytest.raises(errors.AlreadySuperseded) as silent:
        await log.withdrawals.append(TENANT, event("x"), supersedes=[secret], may_see=as_whom("bob"))
    assert hidden.event_id not in str(silent.value.to_json())


async def test_channels_bound_withdrawals(log: Log) -> None:
    """Who may append to some channels alone withdraws events of those alone."""
    chat, mail = await log.append(event("chat"), event("mail", channel="mail"))

    def only_chat(channel: str) -> None:
        if channel != "chat":
            raise errors.ChannelNotAllowed("no", field="channel")

    with pytest.raises(errors.ChannelNotAllowed):
        await log.withdrawals.withdraw(TENANT, [chat, mail], "forgotten", may_see=as_whom("ann"), may_append=only_chat)
    await log.withdrawals.withdraw(TENANT, [chat], "forgotten", may_see=as_whom("ann"), may_append=only_chat)
    assert await log.states() == {"chat": "forgotten"}
