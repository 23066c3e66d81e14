"""Consolidation over a real database: what is due is done, once, within bounds, and reads agree with it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from myria.builds.verify import verify
from myria.control import ControlLoop
from myria.db.database import Database as Pool
from myria.errors import MyriaError, NoteExists, NoteNotFound
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.masks import Mask, Masks
from myria.memory import Memory
from myria.notes import consolidating
from myria.notes.consolidating import STAGES, Consolidated, Consolidation
from myria.notes.drafting import Draft, completed
from myria.notes.folding import event_log
from myria.notes.links import link_event
from myria.notes.model import Changes, note_event
from myria.settings import Settings
from myria.settings.planner import PlannerSettings
from tests.sessions.test_expiry import DAY, MINUTE, NOW, TENANT, US, Desk
from tests.support.postgres import Database, Databases

THEM = ("zoe",)


class Killed(Exception):
    """The process died."""


class Keeper(Desk):
    """A desk whose notes are consolidated."""

    def consolidation(self, *, most: int = 500, killed_at: int | None = None) -> Consolidation:
        """Return one that dies at an append, before or after it was stored, where a number says so."""
        log = event_log(self.memory.appending)
        appends, stored = 0, log.append_events

        async def append(tenant: str, events: Sequence[NewEvent]) -> list[AppendResult]:
            nonlocal appends
            appends += 1
            if killed_at == 2 * appends:
                raise Killed
            results = await stored(tenant, events)
            if killed_at == 2 * appends + 1:
                raise Killed
            return results

        log.append_events = append  # type: ignore[method-assign]
        return Consolidation(log, most=most)

    async def run(self, *, at: int, masks: Masks | None = None, most: int = 500) -> Consolidated:
        return await self.consolidation(most=most).run(TENANT, masks=masks, now=at)

    async def live(self) -> set[str]:
        """Return the texts of the notes that no withdrawal takes away."""
        async with self.memory.database.read(TENANT) as connection:
            rows = await connection.fetch(
                "SELECT e.payload->>'text' AS text FROM myria.notes n JOIN myria.events e USING (event_seq)"
                " WHERE n.live"
            )
        return {row["text"] for row in rows}

    async def withdrawn(self) -> dict[str, str]:
        """Return the reason of each withdrawn event, by its text."""
        async with self.memory.database.read(TENANT) as connection:
            rows = await connection.fetch(
                "SELECT e.payload->>'text' AS text, w.reason FROM myria.withdrawn w"
                " JOIN myria.events e USING (event_seq) ORDER BY w.by_event_seq"
            )
        return {row["text"]: row["reason"] for row in rows}


@pytest.fixture
async def keeper(database: Database) -> AsyncIterator[Keeper]:
    async with Memory(database.server_dsn, Settings()) as memory:
        yield Keeper(memory)


async def test_the_stages_are_those_of_the_contract(keeper: Keeper) -> None:
    """A run reports ten stages and every key, also where nothing is due."""
    shown = (await keeper.run(at=NOW)).to_json()
    assert [stage["name"] for stage in shown["stages"]] == list(STAGES)
    assert shown == {
        **dict.fromkeys(
            (
                "ttlTransitions",
                "importanceDecay",
                "expiredDeleted",
                "duplicatesMerged",
                "embeddingsAdded",
                "utilityUpdated",
                "contradictionsFound",
                "indexesPruned",
            ),
            0,
        ),
        "embeddingsAdded": "off",
        "feedbackReportGenerated": False,
        "stale_fragments": [],
        "contradictions": [],
        "stages": shown["stages"],
        "remaining": False,
    }


async def test_a_note_passes_through_its_tiers(keeper: Keeper) -> None:
    """Each change is counted by the run that first sees it; in the end the note expires; anchors stay."""
    await keeper.keep("To deploy, tag first", session=None, kind="procedure", importance=0.5)
    await keeper.keep("The studio is in Porto", session=None, importance=0.1, anchor=True)
    seen = []
    for days in (0, 2, 31, 40, 323, 324):
        counts = (await keeper.run(at=NOW + days * DAY)).counts
        seen.append((counts["hot_to_warm"], counts["warm_to_cold"], counts["expiry"]))
    assert seen == [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 0), (0, 0, 1), (0, 0, 0)]
    assert await keeper.withdrawn() == {"To deploy, tag first": "expired"}
    assert await keeper.live() == {"The studio is in Porto"}
    assert await keeper.is_folded()


async def test_what_is_stale_is_listed_and_stays(keeper: Keeper) -> None:
    """A cold note that was not used for as long as its kind allows is named, longest first."""
    note_id = await keeper.keep("The kiln is old", session=None, kind="fact")
    assert (await keeper.run(at=NOW + 59 * DAY)).stale == []
    (stale,) = (await keeper.run(at=NOW + 61 * DAY)).stale
    assert stale == {
        "id": note_id,
        "content": "The kiln is old",
        "type": "fact",
        "topic": "kiln",
        "days_since_use": 61,
    }
    assert await keeper.live() == {"The kiln is old"}


async def test_notes_that_say_the_same_are_merged(keeper: Keeper) -> None:
    """The newest stays, an anchor before it; other kinds, sessions and scopes keep their own."""
    await keeper.keep("The kiln is hot", session=None, kind="fact")
    await keeper.keep("The kiln is hot.", session=None, kind="fact", at=NOW + 1)
    await keeper.keep("The kiln is hot.", session=None, kind="error", at=NOW + 2)
    await keeper.keep("The kiln is hot", kind="fact", at=NOW + 3)
    await keeper.keep("Clay is wet", session=None, kind="fact", anchor=True)
    await keeper.keep("Clay is wet.", session=None, kind="fact", at=NOW + 1)
    report = await keeper.run(at=NOW + MINUTE)
    assert report.counts["deduplication"] == 2
    assert await keeper.withdrawn() == {"The kiln is hot": "superseded", "Clay is wet.": "superseded"}
    assert (await keeper.run(at=NOW + MINUTE)).counts["deduplication"] == 0
    await keeper.keep(" The kiln is hot ", session=None, kind="fact", at=NOW + 5)
    assert (await keeper.run(at=NOW + MINUTE)).counts["deduplication"] == 1
    assert await keeper.is_folded()


DIFFERENT = (
    ("The locker code of Piet is aB7", "The locker code of Piet is Ab7."),
    ("The relay draws 5 mW in standby", "The relay draws 5 MW in standby."),
    ("Log in as Root", "Log in as root"),
    ("Export PATH before path", "export path before PATH"),
    ("The file is named  a b", "The file is named a  b"),
    ("Go to the folder .", "Go to the folder .."),
    ("Wait...", "Wait"),
    ("He lives in Polish Street", "He lives in polish street。"),
)


async def test_notes_that_differ_in_more_than_a_final_stop_are_never_merged(keeper: Keeper) -> None:
    """Case, space within and marks that say something make another text: all stand, whatever runs."""
    for text in chain.from_iterable(DIFFERENT):
        await keeper.keep(text, session=None, kind="fact")
    assert (await keeper.run(at=NOW + MINUTE)).counts["deduplication"] == 0
    assert await keeper.live() == set(chain.from_iterable(DIFFERENT))


async def test_what_was_marked_when_case_did_not_count_is_not_merged_now(keeper: Keeper) -> None:
    """An upgrade finds old marks beside new ones."""
    await keeper.keep("the code is ab7", session=None, kind="fact")
    await keeper.run(at=NOW + MINUTE)
    old = hashlib.sha256(b"fact\n\nthe code is ab7").digest()
    async with keeper.memory.database.write(TENANT) as connection:
        await connection.execute("UPDATE myria.note_looks SET likeness = $1", old)
    await keeper.keep("The code is Ab7.", session=None, kind="fact", at=NOW + 1)
    assert (await keeper.run(at=NOW + 2 * MINUTE)).counts["deduplication"] == 0


async def test_a_note_takes_over_however_many_links(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read some at a time; types of one pair add up, and none leads to itself."""
    monkeypatch.setattr(consolidating, "MAX_LINKS", 2)
    links = keeper.memory.links
    first = await keeper.keep("Clay is wet", session=None, kind="fact")
    same, also = [await keeper.keep(text, session=None, kind="fact") for text in ("Clay is wet。", "Clay is wet.")]
    others = [await keeper.keep(f"Rain fell on day {day}", session=None, kind="fact") for day in range(5)]
    await links.link(TENANT, first, others[:1], "related", may_see=_anybody)
    await links.link(TENANT, same, others, "caused_by", may_see=_anybody)
    await links.link(TENANT, also, others[1:2], "part_of", may_see=_anybody)
    await links.link(TENANT, also, [same], "related", may_see=_anybody)
    assert (await keeper.run(at=NOW + MINUTE)).counts["deduplication"] == 2
    graph = await links.around(TENANT, also, may_see=_anybody)
    assert {(link.to_id, link.relation) for link in graph.links} == {
        (others[0], "related"),
        (others[1], "part_of"),
        *((other, "caused_by") for other in others),
    }
    assert await keeper.is_folded()


async def test_imported_notes_of_somebody_named_like_a_key_are_merged_with_their_links(keeper: Keeper) -> None:
    """Nobody may name so in an append; but what consolidation appends repeats a name that an import has kept."""
    named = ("ana", "sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3")
    texts = ("Clay is wet", "Clay is wet.", "Rain fell")
    notes = [completed(Draft(content=text, kind="fact"), "memento") for text in texts]
    versions = [
        note_event(note, named, note_id=f"note_{place}", version=1, timestamp=NOW + place, speaker="ana")
        for place, note in enumerate(notes)
    ]
    link = link_event(named, "note_0", "note_2", "related")
    await keeper.memory.log.import_events(TENANT, [*versions, link])
    assert (await keeper.run(at=NOW + MINUTE)).counts["deduplication"] == 1
    graph = await keeper.memory.links.around(TENANT, "note_1", may_see=_anybody)
    assert [link.to_id for link in graph.links] == ["note_2"]
    assert await keeper.is_folded()


async def test_a_run_by_an_agent_touches_what_it_sees(keeper: Keeper) -> None:
    """Of notes of others it neither reports nor withdraws anything."""
    await keeper.keep("ours one")
    theirs = Keeper(keeper.memory)
    await theirs.notes.remember(TENANT, THEM, _session_draft("theirs one"), contract="memento", now=NOW)
    for masks in (Masks.of([Mask(US, exact=True)]), Masks.containing(US)):
        report = await keeper.run(at=NOW + DAY, masks=masks)
    assert report.looked_at == 0
    assert await keeper.withdrawn() == {"ours one": "expired"}
    assert (await keeper.run(at=NOW + DAY)).counts["expiry"] == 1
    assert await keeper.live() == set()


async def test_a_run_is_bounded_and_the_next_goes_on(keeper: Keeper) -> None:
    """However many are due, a run looks at so many; the longest due come first; nothing is looked at in vain."""
    for number in range(7):
        await keeper.keep(f"note {number}", at=NOW + number)
    seen = []
    for _ in range(4):
        report = await keeper.run(at=NOW + DAY, most=3)
        seen.append((report.looked_at, report.counts["expiry"], report.more))
    assert seen == [(3, 3, True), (3, 3, True), (1, 1, False), (0, 0, False)]


async def test_what_is_not_due_costs_nothing(keeper: Keeper) -> None:
    """A run looks at no note twice between two changes of it, however many there are."""
    for number in range(20):
        await keeper.keep(f"note {number}", session=None)
    assert (await keeper.run(at=NOW)).looked_at == 20
    assert (await keeper.run(at=NOW + MINUTE)).looked_at == 0


async def test_the_control_plane_consolidates_every_tenant(database: Database) -> None:
    """As its own role, which appends withdrawals and links alone; a second look finds nothing more to do."""

    async def launch(_tenant: str, _build_id: str) -> int:
        raise AssertionError("no build is due")

    async with Memory(database.server_dsn, Settings()) as memory:
        for tenant in ("one", "two"):
            await (memory.notes).remember(tenant, US, _session_draft(f"of {tenant}"), contract="memento", now=NOW)
        notes = memory.notes
        same = [
            (await notes.remember("one", US, Draft(content=text, kind="fact"), contract="memento")).note_id
            for text in ("Clay is wet", "Clay is wet.", "Rain fell")
        ]
        await memory.links.link("one", same[0], [same[2]], "caused_by", may_see=lambda _: True)
        async with Pool(database.operator_dsn) as pool:
            loop = ControlLoop(pool, Settings(), launch=launch)
            assert [await loop.consolidate() for _ in range(2)] == [5, 0]
            said = NewEvent(timestamp=NOW, channel="chat", participants=US, payload_json=b'{"text":"x"}')
            with pytest.raises(MyriaError, match="row-level security"):
                await event_log(pool).append_events("one", [said])
        for tenant in ("one", "two"):
            async with memory.database.read(tenant) as connection:
                rows = await connection.fetch("SELECT reason FROM myria.withdrawn ORDER BY reason")
            assert [row["reason"] for row in rows] == ["expired", "superseded"][: 2 if tenant == "one" else 1]
        graph = await memory.links.around("one", same[1], may_see=lambda _: True)
        assert [(link.from_id, link.to_id) for link in graph.links] == [(same[1], same[2])]


def _anybody(_: Sequence[str]) -> bool:
    return True


def _session_draft(content: str) -> Draft:
    return Draft(content=content, lifetime="session", session_id="s1")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), st.integers(0, 5), st.sampled_from([None, "s1", "s2"])),
        st.tuples(st.just("amend"), st.integers(0, 5), st.none()),
        st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(["s1", "s2"])),
        st.tuples(st.just("wait"), st.sampled_from([20 * MINUTE, 61 * MINUTE, 40 * DAY, 400 * DAY]), st.none()),
        st.tuples(st.just("restore"), st.integers(0, 5), st.none()),
    ),
    min_size=1,
    max_size=12,
)


@given(steps=steps, killed_at=st.integers(2, 7))
@examples(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reads_agree_with_maintenance_and_kills_change_nothing(
    databases: Databases, steps: list[tuple[str, Any, Any]], killed_at: int
) -> None:
    """What recall shows before a run is what no withdrawal takes away after it, also where the run was killed."""

    async def check(database: Database) -> None:
        async with Memory(database.server_dsn, Settings()) as memory:
            keeper = Keeper(memory)
            now = await _played(keeper, steps)
            before = {s: await keeper.texts(at=now, session=s) for s in ("s1", "s2")}
            with suppress(Killed):
                await keeper.consolidation(killed_at=killed_at, most=3).run(TENANT, now=now)
            while (await keeper.run(at=now, most=3)).more:
                pass
            assert {s: await keeper.texts(at=now, session=s) for s in ("s1", "s2")} == before
            assert await keeper.live() == before["s1"] | before["s2"]
            assert (await verify(memory.database, TENANT, PlannerSettings())).failed == 0

    database = databases.create()
    try:
        databases.loop.run(check(database))
    finally:
        databases.drop(database)


async def _played(keeper: Keeper, steps: Sequence[tuple[str, Any, Any]]) -> int:
    """Play steps, and return the time after them."""

    now = NOW
    ids: list[str] = []
    for number, (what, value, session) in enumerate(steps):
        now += MINUTE
        named = ids[value % len(ids)] if ids and what in ("amend", "restore") else None
        with suppress(NoteNotFound, NoteExists):
            if what == "keep":
                ids.append(await keeper.keep(f"note {value}", at=now, session=session, kind="fact", importance=0.3))
            elif what == "end":
                await keeper.end(at=now, session=session, key=str(number))
            elif what == "wait":
                now += value
            elif what == "amend" and named is not None:
                await keeper.notes.amend(
                    TENANT,
                    named,
                    Changes(content=f"changed {number}"),
                    may_see=lambda _: True,
                    contract="memento",
                    now=now,
                )
            elif named is not None:
                await keeper.notes.restore(TENANT, named, may_see=lambda _: True, now=now)
    return now
