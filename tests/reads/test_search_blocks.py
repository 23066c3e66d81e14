"""Search blocks: they say of an event what the fresh tail says, and a reader that finds none makes them for itself."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from myria.index import decode
from myria.index.block import ASKS
from myria.log.masks import Masks
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import Settings
from myria.versions import SEARCH_VERSION
from tests.reads.asking import Json, ask, events_of, walk
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Database

WORDS = EventNodesQuery(participants=("ana",), query="garden tomato bread", limit=20)
REFERENCES = ReferencesQuery(participants=("ana",), query="garden tomato bread", max_nodes=60)


async def test_a_question_is_known_as_one_after_a_build_too(database: Database) -> None:
    """Published blocks mark the texts that ask, as the fresh tail does: they rank lower, and what follows higher."""
    texts = ["Where is the spare key?", "At the bakery, as always.", "Did you feed the cat?", "Twice already."]
    await append(
        database.server_dsn, [event(number, payload={"text": text}) for number, text in enumerate(texts, start=1)]
    )
    await builds.build(database)
    rows = await builds.rows(database, "SELECT event_seq, payload ->> 'text' AS text FROM myria.events")
    text_of = {row["event_seq"]: row["text"] for row in rows}
    (written,) = await builds.rows(database, "SELECT block FROM myria.search_blocks")
    view = decode(written["block"])
    marked = {
        text_of[seq]: bool(flags & ASKS) for seq, flags in zip(view.seq.tolist(), view.flags.tolist(), strict=True)
    }
    assert marked == {text: text.endswith("?") for text in texts}


async def test_a_question_finds_other_forms_of_its_words_in_another_language(database: Database) -> None:
    """As soon as they are said, and after a build."""
    texts = ["Wir haben zwei junge Kätzchen aus dem Tierheim.", "Die Häuser sind alt.", "Der Zug war voll.", "Na gut."]
    await append(database.server_dsn, [event(at, payload={"text": text}) for at, text in enumerate(texts, start=1)])
    query = EventNodesQuery(participants=("ana",), query="Welches Haus ist alt geworden?", limit=1)
    async with Memory(database.server_dsn, Settings()) as memory:
        fresh = await ask(memory, query)
    await builds.build(database)
    async with Memory(database.server_dsn, Settings()) as memory:
        built = await ask(memory, query)
    for answer in (fresh, built):
        assert [found["payload"]["text"] for found in events_of(answer)] == ["Die Häuser sind alt."]


async def answers(memory: Memory) -> list[Json]:
    """Return what a memory says, from every way into the blocks; without cursors, which tell when they were made."""
    found = [await ask(memory, WORDS), await ask(memory, REFERENCES)]
    topic = next(node for node in walk(found[1]["root"]) if node["kind"] == "internal_topic")
    found.append(await ask(memory, replace(REFERENCES, root=topic["node_id"])))
    for answer in found:
        answer["next_cursor"] = None
    found.append(await memory.retrieval.get_topic(TENANT, topic["topic_id"], Masks.containing(("ana",))))
    return found


async def test_a_reader_of_another_version_answers_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the blocks of its version would say it reads out of the log, once, and says so once."""
    await append(database.server_dsn, conversation(600, seed=5))
    await builds.build(database)
    async with Memory(database.server_dsn, Settings()) as memory:
        expected = await answers(memory)
        assert list(events_of(expected[0]))
    monkeypatch.setattr("myria.search.visible_blocks.SEARCH_VERSION", SEARCH_VERSION + 1)
    async with Memory(database.server_dsn, Settings()) as memory:
        with caplog.at_level(logging.WARNING, "myria"):
            assert await answers(memory) == expected
            said = [record.getMessage() for record in caplog.records if "search blocks" in record.getMessage()]
            assert len(said) == 1
    async with Memory(database.server_dsn, Settings()) as memory:
        assert await asyncio.gather(*(answers(memory) for _ in range(4))) == [expected] * 4


async def test_a_build_of_another_version_writes_its_blocks(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand beside the old ones, whose readers go on; the new ones need not make any."""
    await append(database.server_dsn, conversation(200, seed=6))
    await builds.build(database)
    for module in ("builds.blocks", "builds.trees"):
        monkeypatch.setattr(f"myria.{module}.SEARCH_VERSION", SEARCH_VERSION + 1)
    await builds.build(database, full=True)
    assert await builds.value(
        database, "SELECT array_agg(DISTINCT analyzer_version ORDER BY analyzer_version) FROM myria.search_blocks"
    ) == [SEARCH_VERSION, SEARCH_VERSION + 1]
