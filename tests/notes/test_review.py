"""Notes that the policy of review holds back: what they leave standing, what a decision does, and who wins."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest

from myria import errors
from myria.builds.verify import verify
from myria.db.clock import to_microseconds
from myria.db.queries import sql
from myria.erasure.model import Selection
from myria.log import transfer
from myria.log.limits import Limits
from myria.log.withdrawal.model import Reason, ReviewDecision, Withdrawal, withdrawal_event
from myria.memory import Memory
from myria.notes.drafting import Draft
from myria.notes.kinds import kinds_of
from myria.notes.memories.model import MemoryChanges, MemoryDraft
from myria.notes.memories.sharing import Keeping
from myria.notes.model import Amended, Changes, Remembered
from myria.search.queries import EventNodesQuery
from myria.settings import ReviewSettings, Settings, TurnsSettings
from myria.settings.planner import PlannerSettings
from tests.erasure.test_erasure import PHRASE, erase, traces
from tests.support.postgres import Database, Databases
from tests.turns.hosts import Host

TENANT = "default"
US = ("ana", "bot")
NOW = time.time_ns() // 1000 - 3_600 * 10**6

HOLDS_DECISIONS = Settings(review=ReviewSettings(kinds=("decision",)))


def may_see(who: Any) -> bool:
    return set(US) <= set(who)


class Desk:
    """What agents and reviewers do over one memory, at times that go on by a second."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.now = NOW

    async def remember(self, content: str, *, kind: str = "decision", **more: Any) -> Remembered:
        self.now += 10**6
        said = {name: more.pop(name) for name in ("source", "session_id", "lifetime") if name in more}
        return await self.memory.notes.remember(
            TENANT,
            US,
            Draft(content=content, kind=kind, **said),
            contract="memento",
            now=self.now,
            may_see=may_see,
            **more,
        )

    async def amend(self, note_id: str, content: str) -> Amended:
        self.now += 10**6
        return await self.memory.notes.amend(
            TENANT, note_id, Changes(content=content), may_see=may_see, contract="memento", now=self.now
        )

    async def decide(self, note_id: str, verdict: Any, *, by: str = "key:rev", why: str = "") -> Any:
        return await self.memory.review.decide(TENANT, note_id, verdict, by=by, why=why)

    async def listed(self, *states: Any, **more: Any) -> list[dict[str, Any]]:
        answer = await self.memory.review.listed(TENANT, states=states or ("held",), **more)
        notes: list[dict[str, Any]] = answer["under_review"]
        return notes

    async def texts(self) -> list[str]:
        """Return the texts that questions find."""
        query = EventNodesQuery(participants=US, limit=100)
        answer = await self.memory.retrieval.query_event_nodes(TENANT, query)
        return sorted(node["payload"]["text"] for node in answer["root"]["children"])

    async def live(self) -> list[str]:
        """Return the texts of live notes."""
        async with self.memory.database.read(TENANT) as connection:
            rows = await connection.fetch(
                "SELECT e.payload->>'text' AS text FROM myria.notes n JOIN myria.events e USING (tenant_id, event_seq)"
                " WHERE n.tenant_id = 'default' AND n.live ORDER BY 1"
            )
        return [row["text"] for row in rows]

    async def holds_up(self) -> bool:
        """Whether the tables are what the log gives."""
        report = await verify(self.memory.database, TENANT, PlannerSettings())
        return report.failed == 0


@pytest.fixture
def settings() -> Settings:
    return HOLDS_DECISIONS


@pytest.fixture
async def desk(database: Database, settings: Settings) -> AsyncIterator[Desk]:
    async with Memory(database.server_dsn, settings) as memory:
        yield Desk(memory)


async def test_a_held_note_is_there_after_its_approval_alone(desk: Desk) -> None:
    """Held, refused and taken back it is nowhere; approved it is everywhere; the log says who decided and why."""
    kept = await desk.remember("We decided to fire the kiln on Friday")
    assert (kept.created, kept.held) == (True, True)
    assert await desk.live() == []
    assert await desk.texts() == []
    (waiting,) = await desk.listed()
    assert (waiting["note_id"], waiting["rule"], waiting["state"]) == (kept.note_id, "review.kinds=decision", "held")
    assert await desk.memory.review.waiting(TENANT) == 1

    await desk.decide(kept.note_id, "refuse", why="not agreed")
    assert (await desk.texts(), await desk.listed()) == ([], [])
    (refused,) = await desk.listed("approved", "refused")
    assert (refused["state"], refused["decided_by"], refused["reason"]) == ("refused", "key:rev", "not agreed")

    await desk.decide(kept.note_id, "hold")
    assert (await desk.texts(), len(await desk.listed())) == ([], 1)

    decided = await desk.decide(kept.note_id, "approve")
    assert (decided.state, decided.changed) == ("approved", True)
    assert await desk.texts() == await desk.live() == ["We decided to fire the kiln on Friday"]
    assert await desk.holds_up()

    await desk.decide(kept.note_id, "hold")
    assert (await desk.texts(), await desk.live()) == ([], [])
    assert await desk.holds_up()


async def test_other_notes_are_kept_as_ever(desk: Desk) -> None:
    """The rule names a kind; a note of another kind is found at once."""
    kept = await desk.remember("The kiln is blue", kind="fact")
    assert not kept.held
    assert await desk.live() == ["The kiln is blue"]
    with pytest.raises(errors.NoteDecided):
        await desk.decide(kept.note_id, "refuse")
    with pytest.raises(errors.NoteNotFound):
        await desk.decide("note_" + "0" * 32, "approve")


async def test_what_a_held_note_replaces_stands_until_its_approval(desk: Desk) -> None:
    """Its approval replaces it in the same append, and taking the approval back brings it back."""
    old = await desk.remember("The kiln opens on Friday", kind="fact")
    kept = await desk.remember("We decided that the kiln opens on Monday", supersedes=[old.note_id])
    assert await desk.live() == ["The kiln opens on Friday"]
    (waiting,) = await desk.listed()
    assert [(other["note_id"], other["stands"]) for other in waiting["replaces"]] == [(old.note_id, True)]
    decided = await desk.decide(kept.note_id, "approve")
    assert decided.replaced == (old.note_id,)
    assert await desk.live() == await desk.texts() == ["We decided that the kiln opens on Monday"]
    await desk.decide(kept.note_id, "hold")
    assert await desk.live() == await desk.texts() == ["The kiln opens on Friday"]
    await desk.decide(kept.note_id, "approve")
    assert await desk.live() == ["We decided that the kiln opens on Monday"]
    assert await desk.holds_up()


async def test_a_replaced_note_that_ended_otherwise_is_left_alone(desk: Desk) -> None:
    """What was forgotten before the approval stays forgotten, also after the approval was taken back."""
    old = await desk.remember("The kiln opens on Friday", kind="fact")
    kept = await desk.remember("We decided on Monday", supersedes=[old.note_id])
    await desk.memory.notes.forget(TENANT, old.note_id, may_see=may_see, now=desk.now, force=True)
    assert (await desk.decide(kept.note_id, "approve")).replaced == ()
    await desk.decide(kept.note_id, "hold")
    assert await desk.live() == []


async def test_what_holds_from_a_later_day_on_ends_the_old_note_on_that_day(desk: Desk) -> None:
    """The old note stands until then, and for good once the approval is taken back."""
    old = await desk.remember("The shop closes at five", kind="fact")
    kept = await desk.remember("We decided that from 1 May 2090 on the shop closes at six", supersedes=[old.note_id])
    await desk.decide(kept.note_id, "approve")
    assert len(await desk.live()) == 2
    async with desk.memory.database.read(TENANT) as connection:
        ends = "SELECT lasts_days FROM myria.notes WHERE note_id = $1"
        assert await connection.fetchval(ends, old.note_id) is not None
        await desk.decide(kept.note_id, "hold")
    async with desk.memory.database.read(TENANT) as connection:
        assert await connection.fetchval(ends, old.note_id) is None
    assert await desk.live() == ["The shop closes at five"]
    assert await desk.holds_up()


async def test_an_amendment_waits_as_a_note_of_its_own(desk: Desk) -> None:
    """The note stays as it is; the approved amendment takes its place; its repeat waits once."""
    async with Memory(desk.memory.database.dsn, Settings()) as unheld:
        free = Desk(unheld)
        old = await free.remember("We decided on Friday")
    amended = await desk.amend(old.note_id, "We decided on Monday")
    assert (amended.changed, amended.held_for) == (False, old.note_id)
    assert (await desk.amend(old.note_id, "We decided on Monday")).note_id == amended.note_id
    assert await desk.live() == ["We decided on Friday"]
    assert len(await desk.listed()) == 1
    await desk.decide(amended.note_id, "approve")
    assert await desk.live() == await desk.texts() == ["We decided on Monday"]
    assert await desk.holds_up()


async def test_a_restatement_is_held_and_takes_the_place_of_the_old_words(desk: Desk) -> None:
    """Saying again what stands makes it the newest statement, so that waits, too; both have equal text."""
    async with Memory(desk.memory.database.dsn, Settings()) as unheld:
        free = Desk(unheld)
        old = await free.remember("We decided on Friday")
        await free.remember("We decided on Monday")
        desk.now = free.now
    kept = await desk.remember("We decided on Friday")
    assert (kept.held, kept.note_id != old.note_id) == (True, True)
    assert len(await desk.live()) == 2
    assert (await desk.decide(kept.note_id, "approve")).replaced == (old.note_id,)
    assert await desk.live() == ["We decided on Friday", "We decided on Monday"]
    await desk.decide(kept.note_id, "hold")
    assert await desk.live() == ["We decided on Friday", "We decided on Monday"]
    assert await desk.holds_up()


async def test_the_same_waits_once(desk: Desk) -> None:
    """A repeat, one with a key, eight at once, and one in a batch get the id of the note that waits."""
    first = await desk.remember("We decided on Friday")
    again = await desk.remember("We decided on Friday")
    keyed = await desk.remember("We decided on Friday", key="k")
    assert [again.note_id, keyed.note_id] == [first.note_id] * 2
    assert [again.created, again.held] == [False, True]
    at_once = await asyncio.gather(*(desk.remember("We decided on Sunday") for _ in range(8)))
    assert len({kept.note_id for kept in at_once}) == 1
    assert [kept.created for kept in at_once].count(True) == 1
    assert await desk.memory.review.waiting(TENANT) == 2
    assert await desk.holds_up()


async def test_a_retry_by_key_gets_the_note_whatever_became_of_it(desk: Desk) -> None:
    """It never fails, and appends nothing, neither while the note waits nor after a decision."""
    first = await desk.remember("We decided on Friday", key="k")
    assert (await desk.remember("We decided on Friday", key="k")).note_id == first.note_id
    await desk.decide(first.note_id, "refuse")
    refused = await desk.remember("We decided on Friday", key="k")
    assert (refused.note_id, refused.created, refused.held) == (first.note_id, False, True)
    await desk.decide(first.note_id, "hold")
    await desk.decide(first.note_id, "approve")
    approved = await desk.remember("We decided on Friday", key="k")
    assert (approved.note_id, approved.created, approved.held) == (first.note_id, False, False)
    with pytest.raises(errors.IdempotencyKeyReused):
        await desk.remember("We decided on Sunday", key="k")


async def test_only_a_reviewer_brings_a_held_note_back_or_changes_it(desk: Desk) -> None:
    """Restoring, amending, forgetting, linking and replacing it are refused with a code, held as refused."""
    notes, withdrawals, links = desk.memory.notes, desk.memory.withdrawals, desk.memory.links
    kept = await desk.remember("We decided on Friday")
    other = await desk.remember("The kiln is blue", kind="fact")
    forgotten: Reason = "forgotten"
    for verdict in ("refuse", "hold"):
        for attempt in (
            lambda: notes.restore(TENANT, kept.note_id, may_see=may_see),
            lambda: desk.amend(kept.note_id, "We decided on Sunday"),
            lambda: notes.forget(TENANT, kept.note_id, may_see=may_see),
            lambda: notes.withdraw(TENANT, kept.note_id, may_see=may_see, key="w"),
            lambda: links.link(TENANT, other.note_id, [kept.note_id], "related", may_see=may_see),
            lambda: desk.remember("The kiln is red", kind="fact", supersedes=[kept.note_id]),
            lambda: withdrawals.restore(TENANT, [kept.event_id or ""], may_see=may_see),
            lambda: withdrawals.withdraw(TENANT, [kept.event_id or ""], forgotten, may_see=may_see),
        ):
            with pytest.raises(errors.NoteHeld):
                await attempt()
        await desk.decide(kept.note_id, verdict)
    with pytest.raises(errors.NoteNotFound):
        await notes.restore(TENANT, kept.note_id, may_see=lambda _: False)
    assert await desk.live() == ["The kiln is blue"]


async def test_of_two_decisions_in_one_commit_the_first_counts(desk: Desk) -> None:
    """Appends of several callers share a commit: the later decision is refused, whatever either says."""
    reasons: tuple[Reason, ...] = ("restored", "refused")
    for first, second in product(reasons, repeat=2):
        kept = await desk.remember(f"We decided on {first} before {second}")
        async with desk.memory.database.read(TENANT) as connection:
            row = await connection.fetchrow(sql("review.state"), TENANT, kept.note_id)
        assert row is not None
        decisions = [
            withdrawal_event(
                Withdrawal(
                    reason=reason,
                    events=(row["event_id"],),
                    decision=ReviewDecision(before="held", by=by, why=""),
                ),
                row["participants"],
                timestamp=to_microseconds(row["occurred_at"]),
                source_event_key=f"review:{kept.note_id}:{by}",
            )
            for reason, by in ((first, "ana"), (second, "ben"))
        ]
        with pytest.raises(errors.NoteDecided):
            await desk.memory.log.append_events(TENANT, decisions)
        await desk.memory.log.append_events(TENANT, decisions[:1])
        await desk.memory.log.append_events(TENANT, decisions[:1])  # a repeat is none


async def test_of_two_reviewers_at_once_one_wins(desk: Desk) -> None:
    """The other is told; the same decision twice is one."""
    kept = await desk.remember("We decided on Friday")
    outcomes = await asyncio.gather(
        *(desk.decide(kept.note_id, verdict, by=verdict) for verdict in ("approve", "refuse") * 3),
        return_exceptions=True,
    )
    changed = [outcome for outcome in outcomes if not isinstance(outcome, BaseException) and outcome.changed]
    told = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert len(changed) == 1
    assert told
    assert all(isinstance(outcome, errors.NoteDecided) for outcome in told)
    verdict = {"approved": "approve", "refused": "refuse"}[changed[0].state]
    again = await desk.decide(kept.note_id, verdict)
    assert (again.state, again.changed) == (changed[0].state, False)
    assert await desk.holds_up()


async def test_an_approval_is_not_taken_back_once_the_note_has_changed(desk: Desk) -> None:
    """What the reviewer approved is not what stands, so the reviewer is told."""
    async with Memory(desk.memory.database.dsn, Settings()) as unheld:
        kept = await desk.remember("We decided on Friday")
        await desk.decide(kept.note_id, "approve")
        free = Desk(unheld)
        free.now = desk.now
        await free.amend(kept.note_id, "We decided on Sunday")
    with pytest.raises(errors.NoteDecided):
        await desk.decide(kept.note_id, "hold")
    assert await desk.live() == ["We decided on Sunday"]


async def test_an_approved_note_ends_as_its_kind_says(desk: Desk) -> None:
    """A review lets it in as it was said: unlike a restored note, it ends with its session."""
    kept = await desk.remember("We decided on tea", session_id="s", lifetime="session")
    await desk.decide(kept.note_id, "approve")
    assert await desk.live() == ["We decided on tea"]
    async with desk.memory.database.read(TENANT) as connection:
        reason = await connection.fetchval("SELECT reason FROM myria.standing_notes WHERE note_id = $1", kept.note_id)
    assert reason is None
    await desk.memory.consolidation.run(TENANT, now=desk.now + 10**6 * 86_400)
    assert await desk.live() == []


async def test_lists_are_filtered_and_paged(desk: Desk) -> None:
    """By kind, by who may see them, a page at a time, and each page is bounded."""
    for number in range(5):
        await desk.remember(f"We decided on {number}")
    assert len(await desk.listed(kind="decision")) == 5
    assert await desk.listed(kind="fact") == []
    assert len(await desk.listed(participant="ana")) == 5
    assert await desk.listed(participant="eva") == []
    seen: list[str] = []
    cursor = None
    while True:
        answer = await desk.memory.review.listed(TENANT, limit=2, cursor=cursor)
        seen += [note["text"] for note in answer["under_review"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [f"We decided on {number}" for number in reversed(range(5))]
    for wrong in ("x", "review:-1", "review:" + "9" * 40, "review:१", "12"):
        with pytest.raises(errors.CursorInvalid):
            await desk.memory.review.listed(TENANT, cursor=wrong)


async def test_an_export_and_its_import_keep_held_notes_held(desk: Desk, databases: Databases) -> None:
    """With withdrawn events nothing is lost, and the reviewer decides there; without, held notes stay behind."""
    old = await desk.remember("The kiln opens on Friday", kind="fact")
    held = await desk.remember("We decided on Monday", supersedes=[old.note_id])
    refused = await desk.remember("We decided on Sunday")
    await desk.decide(refused.note_id, "refuse", why="no")
    database = desk.memory.database
    bound = await transfer.export_bound(database, TENANT)
    whole = b"".join([page.text async for page in transfer.export_pages(database, TENANT, bound, withdrawn=True)])
    plain = b"".join([page.text async for page in transfer.export_pages(database, TENANT, bound)])
    assert b"Monday" in whole
    assert b"Monday" not in plain
    other = databases.create()
    async with Memory(other.server_dsn, Settings()) as memory:
        lines = transfer.read_lines(io.BytesIO(whole).readline, transfer.longest_line(Limits()))
        count = await transfer.import_lines(
            memory.log, TENANT, lines, Limits(), on_refused=lambda line: pytest.fail(str(line))
        )
        assert count.refused == 0
        there = Desk(memory)
        assert await there.live() == ["The kiln opens on Friday"]
        assert [note["note_id"] for note in await there.listed()] == [held.note_id]
        assert [note["reason"] for note in await there.listed("refused")] == ["no"]
        assert await there.holds_up()
        await there.decide(held.note_id, "approve")
        assert await there.live() == ["We decided on Monday"]
        assert await there.holds_up()


async def test_an_erasure_takes_held_notes_and_reasons_that_quote_them(desk: Desk, database: Database) -> None:
    """Held, refused and approved ones go from every place, and from lists; nothing brings one back."""
    kept = [await desk.remember(f"We decided {n} on {PHRASE}", key=f"{n} {PHRASE}") for n in range(3)]
    await desk.decide(kept[1].note_id, "refuse", why=f"no {PHRASE}")
    await desk.decide(kept[2].note_id, "approve", why=f"a {PHRASE}")
    assert await traces(database.dsn)
    receipt = await erase(database.dsn, Selection(notes=tuple(note.note_id for note in kept)))
    assert receipt.content["rows"]["events"] == 3
    assert await traces(database.dsn) == []
    assert await desk.listed("held", "refused", "approved") == []
    for note in kept:
        for verdict in ("approve", "hold"):
            with pytest.raises(errors.NoteNotFound):
                await desk.decide(note.note_id, verdict)
    assert await desk.holds_up()


async def test_a_decision_while_a_replaced_note_changes(desk: Desk) -> None:
    """Whoever changes the note meanwhile, the approval replaces what it says then."""
    old = await desk.remember("The kiln is blue 0", kind="fact")
    kept = await desk.remember("We decided that it is red", supersedes=[old.note_id])
    changes = [desk.amend(old.note_id, f"The kiln is blue {number}") for number in range(1, 5)]
    outcomes = await asyncio.gather(desk.decide(kept.note_id, "approve"), *changes, return_exceptions=True)
    assert not isinstance(outcomes[0], BaseException)
    refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert all(isinstance(outcome, errors.AlreadySuperseded | errors.NoteNotFound) for outcome in refused)
    assert await desk.live() == ["We decided that it is red"]
    assert await desk.holds_up()


async def test_a_held_note_without_what_hides_it_waits(desk: Desk, databases: Databases) -> None:
    """An import that was cut off behind a held note keeps it no live note, and a reviewer lets it in."""
    held = await desk.remember("We decided on Monday")
    bound = await transfer.export_bound(desk.memory.database, TENANT)
    pages = transfer.export_pages(desk.memory.database, TENANT, bound, withdrawn=True)
    lines = b"".join([page.text async for page in pages]).splitlines(keepends=True)
    other = databases.create()
    async with Memory(other.server_dsn, Settings()) as memory:
        await transfer.import_lines(
            memory.log, TENANT, lines[:1], Limits(), on_refused=lambda line: pytest.fail(str(line))
        )
        there = Desk(memory)
        assert await there.live() == []
        assert [note["note_id"] for note in await there.listed()] == [held.note_id]
        await there.decide(held.note_id, "approve")
        assert await there.live() == ["We decided on Monday"]
        assert await there.holds_up()


class TestFacts:
    """Facts of turns have a confidence."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(turns=TurnsSettings(enabled=True), review=ReviewSettings(confidence_below=1.0))

    async def test_a_fact_below_the_confidence_waits(self, desk: Desk) -> None:
        """The turn is stored, the fact counts as none, is recalled after its approval, and waits once."""
        host = Host(desk.memory)
        stored = await host.after("t1", "Hello, my name is Ada.")
        assert (stored.is_new, dict(stored.facts)) == (True, {})
        await host.after("t2", "My name is Ada.")
        assert await host.facts() == []
        (waiting,) = await desk.listed()
        assert waiting["rule"] == "review.confidence_below=1"
        assert waiting["speaker"] == "ana"
        assert [said["text"] for said in waiting["evidence"]] == ["Hello, my name is Ada.", "I see."]
        await desk.decide(waiting["note_id"], "approve")
        assert await host.facts() == ["L0 name=ada"]
        await host.after("t3", "My name is Ada.")
        assert await desk.listed() == []
        assert await desk.holds_up()

    async def test_a_newer_fact_replaces_the_older_at_its_approval(self, desk: Desk) -> None:
        """Of one identity one value stands, in whichever order they were said and approved."""
        host = Host(desk.memory)
        await host.after("t1", "My name is Ada.")
        await host.after("t2", "My name is Eva.")
        newer, older = await desk.listed()
        await desk.decide(older["note_id"], "approve")
        (waiting,) = await desk.listed()
        assert [other["note_id"] for other in waiting["replaces"]] == [older["note_id"]]
        await desk.decide(newer["note_id"], "approve")
        assert await host.facts() == ["L0 name=eva"]
        await desk.decide(newer["note_id"], "hold")
        assert await host.facts() == ["L0 name=ada"]
        assert await desk.holds_up()


class TestRest:
    """Memories of REST are held like notes."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(review=ReviewSettings(sources=("api:rest",)))

    async def test_a_memory_waits_and_its_change_too(self, desk: Desk) -> None:
        """A retry gets it, a duplicate is one, and a held change leaves the memory as it is."""
        memories, keeping = desk.memory.memories, Keeping(own=US, shared="org")
        draft = MemoryDraft(content="The kiln is blue", agent_id="bot", event_type="fact")
        first = await memories.keep(TENANT, keeping, draft, key="k", now=NOW)
        assert first.memory is not None
        assert first.memory.held
        again = await memories.keep(TENANT, keeping, draft, key="k", now=NOW)
        assert again.memory is not None
        assert (again.memory.memory_id, again.memory.held) == (first.memory.memory_id, True)
        with pytest.raises(errors.DuplicateMemory):
            await memories.keep(TENANT, keeping, draft, now=NOW + 1)
        with pytest.raises(errors.NoteHeld):
            await memories.withdraw(TENANT, first.memory.memory_id, may_see=may_see)
        assert await desk.live() == []
        await desk.decide(first.memory.memory_id, "approve")
        changes = MemoryChanges(content="The kiln is red")
        for _ in range(2):
            changed = await memories.amend(
                TENANT, first.memory.memory_id, changes, may_see=may_see, key="c", now=NOW + 2
            )
            assert (changed.held, changed.draft.content, changed.version) == (True, "The kiln is blue", 1)
        (waiting,) = await desk.listed()
        await desk.decide(waiting["note_id"], "approve")
        assert await desk.live() == ["The kiln is red"]
        assert await desk.holds_up()


@pytest.mark.parametrize(
    ("review", "said", "is_held"),
    [
        (ReviewSettings(sources=("speaker:mallory",)), {"speaker": "mallory"}, True),
        (ReviewSettings(sources=("speaker:mallory",)), {"speaker": "ana"}, False),
        (ReviewSettings(sources=("speaker:ana",)), {}, True),
        (ReviewSettings(sources=("speaker:ana",)), {"speaker": "bot"}, False),
        (ReviewSettings(sources=("source:web",)), {"source": "web"}, True),
        (ReviewSettings(sources=("source:web",)), {"speaker": "web"}, False),
        (ReviewSettings(sources=("api:reflect",)), {"api": "reflect"}, True),
        (ReviewSettings(sources=("api:reflect",)), {}, False),
        (ReviewSettings(confidence_below=1.0), {}, False),
    ],
)
async def test_a_rule_names_whose_notes_are_held(
    database: Database, review: ReviewSettings, said: dict[str, Any], is_held: bool
) -> None:
    """By API, by who says it, or by the note's own source; a note that is no fact has no confidence."""
    async with Memory(database.server_dsn, Settings(review=review)) as memory:
        kept = await Desk(memory).remember("The kiln is blue", kind="fact", **said)
    assert kept.held is is_held


def test_settings_that_name_nothing_are_refused() -> None:
    """A source without its sort, an API or a kind that there is not."""
    for source in ("mallory", "api:web", "speaker:", "who:ana"):
        with pytest.raises(errors.ConfigurationError):
            ReviewSettings(sources=(source,))
    with pytest.raises(errors.ConfigurationError, match=kinds_of("memento")[0]):
        Memory("postgresql://nowhere", Settings(review=ReviewSettings(kinds=("opinion",))))
