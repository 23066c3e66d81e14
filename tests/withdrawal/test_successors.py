"""Where a question would have found what was superseded, its successor stands in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from myria.index.corpus import Corpus, Timeline
from myria.index.searchable import document
from myria.log.masks import Mask, Masks
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.notes.standing import standing
from myria.search import unindexed, visible_blocks
from myria.search.queries import EventNodesQuery
from tests.reads.asking import pages, statements_of
from tests.support import builds
from tests.support.events import TENANT, conversation, event
from tests.support.postgres import Database

SETTINGS = builds.settings(planner={"gap_s": 3_600}, topics={}, mcp={})
US = ("ana", "ben")
OLD = "Ana lives in Lisbon beside the castle"
NEW = "She moved house to Porto in June"
REST = [f"The river {word} is long, and its castle stands" for word in ("Tagus", "Douro", "Minho", "Sado", "Mondego")]


class Replacing:
    """Replaces and asks over one memory."""

    def __init__(self, database: Database, memory: Memory) -> None:
        self.database = database
        self.memory = memory
        self.at = 0

    async def say(self, text: str, *, who: Sequence[str] = US, instead_of: Sequence[str] = ()) -> str:
        self.at += 600
        said = event(self.at, text, participants=who)
        if not instead_of:
            return (await self.memory.log.append_events(TENANT, [said]))[0].event_id
        result = await self.memory.withdrawals.append(TENANT, said, supersedes=instead_of, may_see=Mask(("ana",)).sees)
        return result.event_id

    async def build(self) -> None:
        await builds.build(self.database, configured=SETTINGS)

    async def ask(self, text: str | None, *, who: Sequence[str] = ("ana",), **more: Any) -> list[str]:
        query = EventNodesQuery(masks=Masks.containing(who), query=text, **more)
        answer = await self.memory.retrieval.query_event_nodes(TENANT, query)
        return [node["payload"]["text"] for node in answer["root"]["children"]]


@pytest.fixture(params=["alone", "packed"])
async def replacing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, database: Database
) -> AsyncIterator[Replacing]:
    """Over scopes that are searched one by one, and over packed ones."""
    if request.param == "packed":
        monkeypatch.setattr(visible_blocks, "SHARED_FROM", 1)
        monkeypatch.setattr(unindexed, "FEW_SCOPES", 0)
    async with Memory(database.server_dsn, SETTINGS) as memory:
        yield Replacing(database, memory)


async def test_the_successor_stands_in_its_place(replacing: Replacing) -> None:
    """In the tail, in a snapshot, and after a rollback to one from before the replacement."""
    old = await replacing.say(OLD)
    for text in REST:
        await replacing.say(text)
    before = await replacing.ask("Where is the castle of Lisbon?")
    assert before[0] == OLD
    await replacing.build()
    await replacing.say(NEW, instead_of=[old])
    for step in ("tail", "built", "rolled back"):
        if step == "built":
            await replacing.build()
        if step == "rolled back":
            await replacing.memory.registry.rollback(TENANT)
        after = await replacing.ask("Where is the castle of Lisbon?")
        assert (after[0], OLD in after) == (NEW, False), step
        assert await replacing.ask("Lisbon") == [NEW]
        assert await replacing.ask("Lisbon", order="newest") == [NEW]
        with_old = await replacing.ask("Lisbon", include_superseded=True)
        assert with_old[0] == OLD
        assert sorted(await replacing.ask(None)) == sorted([NEW, *REST])


async def test_a_chain_leads_to_its_end(replacing: Replacing) -> None:
    """Words of any earlier version lead to the last one that stands; one that was forgotten leads nowhere."""
    first = await replacing.say(OLD)
    await replacing.build()
    second = await replacing.say("She moved to Coimbra", instead_of=[first])
    await replacing.build()
    third = await replacing.say(NEW, instead_of=[second])
    for _ in range(2):
        assert await replacing.ask("Lisbon") == await replacing.ask("Coimbra") == [NEW]
        await replacing.build()
    see = Mask(("ana",)).sees
    await replacing.memory.withdrawals.withdraw(TENANT, [second], "forgotten", may_see=see)
    assert (await replacing.ask("Lisbon"), await replacing.ask("Coimbra")) == ([], [])
    await replacing.memory.withdrawals.withdraw(TENANT, [third], "forgotten", may_see=see)
    await replacing.memory.withdrawals.restore(TENANT, [second], may_see=see)
    await replacing.build()
    assert await replacing.ask("Lisbon") == ["She moved to Coimbra"]
    await replacing.memory.withdrawals.restore(TENANT, [first], may_see=see)
    assert (await replacing.ask("Lisbon"))[0] == OLD


async def test_words_that_one_may_not_see_lead_nowhere(replacing: Replacing) -> None:
    """Who sees the successor alone is not led to it by words of a scope that is not theirs."""
    old = await replacing.say(OLD, who=("ana",))
    await replacing.say(NEW, who=US, instead_of=[old])
    for _ in range(2):
        assert await replacing.ask("Lisbon", who=("ana",)) == [NEW]
        assert await replacing.ask("Lisbon", who=("ben",)) == []
        await replacing.build()


async def test_pages_hold_each_once(replacing: Replacing) -> None:
    """A successor that rose stands on one page, and what is replaced between two pages comes on none of them twice."""
    ids = [await replacing.say(f"{text} in Lisbon {number}") for number, text in enumerate(REST * 2)]
    for at in (1, 4, 6):
        await replacing.say(f"instead of {at}", instead_of=[ids[at]])
    await replacing.build()
    seen: list[str] = []
    cursor = None
    for page in range(9):
        query = EventNodesQuery(participants=US, query="castle Lisbon", limit=2, cursor=cursor)
        answer = await replacing.memory.retrieval.query_event_nodes(TENANT, query)
        seen += [node["payload"]["text"] for node in answer["root"]["children"]]
        cursor = answer["next_cursor"]
        if page == 0:
            await replacing.say("instead of 7", instead_of=[ids[7]])
        if cursor is None:
            break
    assert len(set(seen)) == len(seen)
    assert {f"instead of {at}" for at in (1, 4, 6)} <= set(seen)
    assert not [text for text in seen if text.endswith(("Lisbon 1", "Lisbon 4", "Lisbon 6"))]


async def test_what_is_known_is_not_read_again(replacing: Replacing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second question reads no superseded event; one more replacement makes the next read that one alone."""
    ids = [await replacing.say(f"{text} in Lisbon") for text in REST]
    await replacing.build()
    for number, event_id in enumerate(ids[:4]):
        await replacing.say(f"instead {number}", instead_of=[event_id])
    await replacing.ask("Lisbon")
    read: list[int] = []

    def counted(row: Any, **more: Any) -> Any:
        read.append(row["event_seq"])
        return document(row, **more)

    monkeypatch.setattr("myria.search.superseded.document", counted)
    await replacing.ask("Lisbon castle")
    assert read == []
    await replacing.say("instead of the last", instead_of=ids[4:])
    await replacing.ask("Lisbon castle")
    assert len(read) == 1
    await replacing.build()
    await replacing.ask("Lisbon castle")
    assert len(read) == 1


async def test_what_was_replaced_before_the_build_is_read_once(replacing: Replacing) -> None:
    """Neither a later withdrawal nor a later page reads again what was replaced up to the snapshot's cutoff; a later
    page reads no withdrawal again."""
    ids = [await replacing.say(f"{text} in Lisbon") for text in REST]
    await replacing.say("instead of the first", instead_of=ids[:1])
    await replacing.build()
    await replacing.ask("Lisbon")
    read = statements_of(replacing.memory)
    await replacing.memory.withdrawals.withdraw(TENANT, ids[1:2], "forgotten", may_see=Mask(("ana",)).sees)
    query = EventNodesQuery(participants=US, query="castle Lisbon", limit=1)
    first = await replacing.memory.retrieval.query_event_nodes(TENANT, query)
    assert [name for name, _ in read].count("retrieval.withdrawn") == 1
    read.clear()
    found = await pages(replacing.memory, replace(query, cursor=first["next_cursor"]))
    assert len(found) == len(REST) - 2
    assert {"retrieval.replaced", "retrieval.withdrawn"}.isdisjoint(name for name, _ in read)


async def test_what_no_tree_holds_is_not_indexed(replacing: Replacing) -> None:
    """An event that was withdrawn when the snapshot was built is not in it, restored or asked for as superseded."""
    see = Mask(("ana",)).sees
    old = await replacing.say(OLD)
    forgotten = await replacing.say(REST[0])
    await replacing.say(REST[1])
    await replacing.say(NEW, instead_of=[old])
    await replacing.memory.withdrawals.withdraw(TENANT, [forgotten], "forgotten", may_see=see)
    await replacing.build()
    await replacing.memory.withdrawals.restore(TENANT, [forgotten], may_see=see)

    async def indexed(**more: Any) -> dict[str, bool]:
        query = EventNodesQuery(participants=US, **more)
        answer = await replacing.memory.retrieval.query_event_nodes(TENANT, query)
        known = {node["payload"]["text"]: node["indexed"] for node in answer["root"]["children"]}
        for node in answer["root"]["children"]:
            found = await replacing.memory.retrieval.get_event(
                TENANT, node["event_id"], Masks.containing(US), include_superseded=True
            )
            assert found["event"]["indexed"] == node["indexed"]
        return known

    expected = {OLD: False, REST[0]: False, REST[1]: True, NEW: True}
    assert await indexed(include_superseded=True) == expected
    await replacing.build()
    assert await indexed(include_superseded=True) == expected | {REST[0]: True}
    await replacing.memory.withdrawals.withdraw(TENANT, [forgotten], "superseded", may_see=see)
    assert await indexed(include_superseded=True) == expected | {REST[0]: True}


async def test_a_pending_withdrawal_costs_one_layout(replacing: Replacing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fresh tail is laid out anew once after an event of it was withdrawn, not for each question."""
    ids = [await replacing.say(text) for text in REST]
    await replacing.ask("castle")
    made: list[int] = []
    lay_out = Timeline.of.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Timeline], corpus: Corpus) -> Timeline:
        made.append(1)
        timeline: Timeline = lay_out(cls, corpus)
        return timeline

    monkeypatch.setattr(Timeline, "of", classmethod(counted))
    await replacing.memory.withdrawals.withdraw(TENANT, ids[:1], "forgotten", may_see=Mask(("ana",)).sees)
    for question in ("castle", "river", "Douro"):
        assert REST[0] not in await replacing.ask(question)
    assert made == [1]


async def test_what_was_replaced_is_found_among_many_withdrawals(memory: Memory) -> None:
    """However many withdrawals stand between what stays and what it replaced, as after an import, and behind that."""
    see = Mask(("ana",)).sees
    old, new = [
        await memory.notes.remember(TENANT, US, Draft(content=text, kind="fact"), contract="memento")
        for text in ("The kiln burns wood", "The kiln burns gas")
    ]
    others = [result.event_id for result in await memory.log.append_events(TENANT, conversation(500))]

    async def withdraw_and_restore(times: int) -> None:
        for _ in range(times):
            await memory.withdrawals.withdraw(TENANT, others, "forgotten", may_see=see)
            await memory.withdrawals.restore(TENANT, others, may_see=see)

    await withdraw_and_restore(2)
    await memory.withdrawals.replace(TENANT, [old.event_id or ""], new.event_id or "", may_see=see)
    await withdraw_and_restore(3)
    stands = await standing(memory.database, TENANT, new.note_id, may_see=see)
    assert [note.note_id for note in stands.replaced] == [old.note_id]
    masks = Masks.containing(("ana",))
    provenance = await memory.retrieval.event_provenance(TENANT, new.event_id or "", masks)
    assert provenance is not None
    assert [state["event_id"] for state in provenance["replaces"]] == [old.event_id]
    async with memory.database.read(TENANT) as connection:
        event_seq = await connection.fetchval("SELECT event_seq FROM myria.events WHERE event_id = $1", new.event_id)
    (states,) = (await memory.retrieval.older_states(TENANT, [event_seq], masks)).values()
    assert [state["event_id"] for state in states] == [old.event_id]
