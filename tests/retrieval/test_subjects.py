"""Subjects in answers: what hits share gathers them, and every rule of what may be shown holds there too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from myria import errors
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.log.masks import Masks
from myria.log.withdrawal.commands import Withdrawals
from myria.log.withdrawal.model import NEUTRAL_LABEL
from myria.memory import Memory
from myria.notes.folding import event_log
from myria.notes.questions import RecallQuery
from myria.notes.recalling import Recalled
from myria.search import read_slots
from myria.search.queries import ReferencesQuery
from myria.search.read_slots import ReadSlot
from myria.search.topics import Subjects, Topic
from tests.support import builds
from tests.support.events import TENANT, append, event
from tests.support.postgres import Database, Databases

Json = dict[str, Any]

WITH = builds.settings(planner={"subjects": True})
DAY = 86_400
PAIR = ("ana", "ben")
OTHERS = ("cleo", "dan")
MANY = ("edo", "fay")
SAID = (
    "The Kickstarter campaign needs a film of the workshop.",
    "Our Kickstarter campaign starts with four hundred boxes.",
    "We stop the Kickstarter campaign and open a page of our own.",
)
BESIDE = ("The greenhouse leaks at the door.", "My sister plays the trombone.", "The bakery sells rye bread.")


def talks(participants: Sequence[str]) -> list[Any]:
    """Three conversations, two weeks apart, each about one thing that all share and about one that none does."""
    return [
        event(14 * DAY * talk + 60 * at, text, participants=participants)
        for talk, (shared, alone) in enumerate(zip(SAID, BESIDE, strict=True))
        for at, text in enumerate((shared, f"{shared} That is settled.", alone, f"{alone} Again and again."))
    ]


def many_talks() -> list[Any]:
    """Conversations, a week apart, about one thing and one of four others: more than stand beside each other."""
    besides = ("printer", "poster", "courier", "invoice")
    return [
        event(7 * DAY * talk + 60 * at, f"The Kickstarter campaign needs the {besides[talk % 4]}.", participants=MANY)
        for talk in range(22)
        for at in range(2)
    ]


@pytest.fixture(scope="module")
def told(databases: Databases) -> Iterator[Database]:
    """A database with the same conversations in two scopes, built with subjects."""
    database = databases.create()

    async def fill() -> None:
        for participants in (PAIR, OTHERS):
            await append(database.server_dsn, talks(participants))
        await append(database.server_dsn, many_talks())
        built = await builds.build(database, configured=WITH)
        assert built.error is None

    databases.loop.run(fill())
    yield database
    databases.drop(database)


async def ask(database: Database, who: Sequence[str], **arguments: Any) -> Json:
    """The root of the answer to the question about the campaign."""
    query = ReferencesQuery(participants=tuple(who), query="What about the Kickstarter campaign?", **arguments)
    async with Memory(database.server_dsn, WITH) as memory:
        answer = await memory.retrieval.query_references(TENANT, query)
    root: Json = answer["root"]
    return root


def subject_of(root: Json) -> Json:
    """The only subject of an answer."""
    subject: Json
    (subject,) = [child for child in root["children"] if child["kind"] == "subject"]
    return subject


async def test_hits_that_share_a_subject_stand_under_it_in_the_order_of_time(told: Database) -> None:
    """What three conversations say about one thing is one topic, named once, whose children tell its history."""
    subject = subject_of(await ask(told, PAIR))
    assert "kickstarter" in subject["label"].casefold()
    said = [child["children"][0]["snippet"] for child in subject["children"]]
    assert [text.removesuffix(" That is settled.") for text in said] == list(SAID)
    assert "page of our own" in subject["summary"].partition("Before:")[0]


async def recalled(database: Database, who: Sequence[str]) -> Recalled:
    """What recall finds of the campaign."""
    query = RecallQuery(masks=Masks.containing(tuple(who)), now=1_800_000_000_000_000, text="the Kickstarter campaign")
    async with Memory(database.server_dsn, WITH) as memory:
        return await memory.recall.page(TENANT, query)


async def test_recall_knows_what_its_memories_share(told: Database) -> None:
    """Their subject with its latest state; the memories stay in the order in which they were ranked."""
    page = await recalled(told, PAIR)
    (subject,) = page.subjects
    assert "kickstarter" in subject.label.casefold()
    assert "page of our own" in subject.latest
    assert "Before:" not in subject.latest
    found = [fragment.event_seq for fragment in page.fragments if fragment.topic_id is None]
    assert set(subject.event_seqs) <= set(found)
    assert len(subject.event_seqs) > 2
    keys = [fragment.key for fragment in page.fragments]
    assert keys == sorted(keys)
    assert (await recalled(told, ("zoe",))).subjects == ()


async def test_a_subject_can_be_the_root_of_an_answer(told: Database) -> None:
    """Asked for below a subject, an answer holds the events of its leaves and no others."""
    subject = subject_of(await ask(told, PAIR))
    query = ReferencesQuery(participants=PAIR, root=subject["topic_id"])
    async with Memory(told.server_dsn, WITH) as memory:
        below = (await memory.retrieval.query_references(TENANT, query))["root"]
        topic = (await memory.retrieval.get_topic(TENANT, subject["topic_id"], Masks.containing(PAIR)))["topic"]
    (again,) = below["children"]
    assert again["topic_id"] == subject["topic_id"]
    leaves = [child["topic_id"] for child in again["children"]]
    assert leaves == topic["children"]
    assert sum(len(child["children"]) for child in again["children"]) == topic["counts"]["events"] < 12
    async with Memory(told.server_dsn, WITH) as memory:
        query = ReferencesQuery(participants=PAIR, root=subject["node_id"])
        assert (await memory.retrieval.query_references(TENANT, query))["root"] == below


async def test_a_subject_of_very_many_events_is_a_heavy_root(told: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a slot as other heavy reads do, before its leaves are read, and reads them once."""
    subject = subject_of(await ask(told, PAIR))
    query = ReferencesQuery(participants=PAIR, root=subject["topic_id"])
    heavy: list[int] = []
    weigh = ReadSlot.weigh

    def weighed(slot: ReadSlot, *, scopes: int = 0, events: int = 0) -> None:
        heavy.append(events)
        weigh(slot, scopes=scopes, events=events)

    async with Memory(told.server_dsn, WITH) as memory:
        light = await memory.retrieval.query_references(TENANT, query)
        monkeypatch.setattr(read_slots, "HEAVY_EVENTS", 3)
        monkeypatch.setattr(ReadSlot, "weigh", weighed)
        assert await memory.retrieval.query_references(TENANT, query) == light
    assert heavy.count(subject["counts"]["events"]) >= 2


async def test_the_last_leaves_of_a_large_subject_are_found_across_its_divisions(told: Database) -> None:
    """However few are asked for, a subject that divides by content names those of its leaves that were said last."""
    subject = subject_of(await ask(told, MANY))
    async with Pool(told.server_dsn) as pool, pool.read(TENANT) as connection:

        async def last(most: int | None) -> list[str]:
            rows = await connection.fetch(sql("retrieval.leaves_of_subject"), TENANT, rendering_id, most)
            return [row["topic_id"] for row in rows]

        rendering_id = await connection.fetchval(
            "SELECT rendering_id FROM myria.subject_nodes WHERE node_id = $1", bytes.fromhex(subject["node_id"])
        )
        leaves = await last(None)
        assert len(leaves) == subject["counts"]["leaves"] > 16
        for most in (1, 2, 7, 16, 17, 100):
            assert await last(most) == leaves[-most:]


async def test_a_subject_of_others_is_no_topic(told: Database) -> None:
    """Who does not see a scope cannot tell its subjects from those that never were."""
    subject = subject_of(await ask(told, PAIR))
    async with Memory(told.server_dsn, WITH) as memory:
        with pytest.raises(errors.TopicNotFound):
            await memory.retrieval.get_topic(TENANT, subject["topic_id"], Masks.containing(OTHERS))
        with pytest.raises(errors.TopicNotFound):
            await memory.retrieval.query_references(
                TENANT, ReferencesQuery(participants=OTHERS, root=subject["topic_id"])
            )


async def test_a_subject_around_what_was_withdrawn_says_nothing(told: Database) -> None:
    """Until the next build a subject that may quote a forgotten event has neutral words, wherever it is shown."""
    subject = subject_of(await ask(told, OTHERS))
    assert (await recalled(told, OTHERS)).subjects
    forgotten = subject["children"][1]["children"][0]["event_id"]
    async with Pool(told.server_dsn) as pool:
        ingest = event_log(pool)
        await Withdrawals(ingest).withdraw(TENANT, [forgotten], "forgotten", may_see=lambda _: True)
        await ingest.close()
    after = subject_of(await ask(told, OTHERS))
    assert (after["topic_id"], after["label"]) == (subject["topic_id"], NEUTRAL_LABEL)
    assert (await recalled(told, OTHERS)).subjects == ()
    async with Memory(told.server_dsn, WITH) as memory:
        topic = (await memory.retrieval.get_topic(TENANT, subject["topic_id"], Masks.containing(OTHERS)))["topic"]
    assert topic["label"] == NEUTRAL_LABEL


def test_the_subject_that_most_hits_share_takes_them_all() -> None:
    """A leaf stands in one place: under the subject of most leaves; what shares none stays where time has it."""
    topic = Topic(body={}, scope_id=1, first_at=0, last_at=0, words="{}")
    few, many, alone = b"few", b"many", b"alone"
    of_leaf = {b"1": (few, many), b"2": (few, many), b"3": (many,), b"4": (alone,), b"late": (few, many)}
    subjects = Subjects(of_leaf=of_leaf, topics=dict.fromkeys((few, many, alone), topic))
    places = subjects.places([b"1", b"2", b"3", b"4"])
    assert places == {b"1": many, b"2": many, b"3": many, b"late": many}
