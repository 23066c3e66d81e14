"""Recalling over a real database: what is found at once, what never is, in which order, and within which bound."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from myria.contract.event import NewEvent
from myria.masks import Mask, Masks
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.model import Changes
from myria.notes.recalling import Fragment, Recall, RecallQuery
from myria.redaction.redactor import PayloadRedactor
from myria.settings import Settings
from myria.tokens import token_counter
from tests.support.builds import build
from tests.support.postgres import Database

TENANT = "default"
US = ("ana", "bot")
DAY = 86_400 * 10**6
NOW = 1_772_000_000_000_000


def may_see(who: Any) -> bool:
    return set(US) <= set(who)


class Recaller:
    """Keeps and recalls over one memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.notes = Notes(
            memory.appending, memory.append_events, PayloadRedactor(()), content_characters=4_000, payload_bytes=99_999
        )
        self.recall = Recall(memory.database, memory.query_event_nodes, token_counter())

    async def keep(self, content: str, who: tuple[str, ...] = US, *, days_ago: int = 0, **more: Any) -> str:
        kept = await self.notes.remember(
            TENANT, who, Draft(content=content, **more), contract="004", speaker="bot", now=NOW - days_ago * DAY
        )
        return kept.note_id

    async def say(self, text: str, who: tuple[str, ...] = US) -> None:
        payload = orjson.dumps({"speaker": "Inês", "text": text})
        said = NewEvent(timestamp=NOW - DAY, channel="chat", participants=who, payload_json=payload)
        await self.memory.append_events(TENANT, [said])

    async def find(self, masks: Masks | None = None, **more: Any) -> tuple[Fragment, ...]:
        query = RecallQuery(masks=masks or Masks.containing(US), now=NOW, **more)
        return await self.recall.find(TENANT, query)

    async def texts(self, masks: Masks | None = None, **more: Any) -> list[str]:
        return [fragment.text for fragment in await self.find(masks, **more)]


@pytest.fixture
async def recaller(database: Database) -> AsyncIterator[Recaller]:
    async with Memory(database.server_dsn, Settings()) as memory:
        yield Recaller(memory)


async def test_notes_and_events_are_one_ranking(recaller: Recaller) -> None:
    """Both are found at once, by who may see them; a filter of notes leaves notes alone."""
    note_id = await recaller.keep("We decided that the kiln opens on Friday", topic="kiln")
    await recaller.say("The kiln was repaired by Ben")
    await recaller.keep("The kiln of others", ("zoe", "bot"))
    fragments = await recaller.find(text="kiln")
    assert {fragment.text for fragment in fragments} == {
        "We decided that the kiln opens on Friday",
        "The kiln was repaired by Ben",
    }
    note = next(fragment for fragment in fragments if fragment.note_id is not None)
    assert (note.note_id, note.kind, note.topic, note.tier) == (note_id, "decision", "kiln", "permanent")
    for only in ({"kind": "decision"}, {"topic": "Kiln"}, {"min_importance": 0.5}):
        assert await recaller.texts(**only) == ["We decided that the kiln opens on Friday"]
    assert await recaller.texts(kind="error") == []


async def test_masks_are_the_readers(recaller: Recaller) -> None:
    """A pool and an agent's own memory are one question under two masks."""
    await recaller.keep("pool kiln")
    await recaller.keep("planner kiln", ("ana", "bot", "planner"))
    await recaller.keep("critic kiln", ("ana", "bot", "critic"))
    pool = Mask(US, exact=True)
    assert await recaller.texts(Masks.of([pool]), text="kiln") == ["pool kiln"]
    both = Masks.of([pool, Mask((*US, "planner"))])
    assert sorted(await recaller.texts(both, text="kiln")) == ["planner kiln", "pool kiln"]


@pytest.mark.parametrize("is_built", [False, True])
async def test_only_current_versions_of_kept_notes_come_back(
    recaller: Recaller, database: Database, is_built: bool
) -> None:
    """What was amended comes in its new form, what was forgotten not at all, also where a snapshot has it."""
    amended = await recaller.keep("The kiln opens on Friday")
    forgotten = await recaller.keep("The kiln is haunted")
    if is_built:
        await build(database)
    changes = Changes(content="The kiln opens on Monday")
    await recaller.notes.amend(TENANT, amended, changes, may_see=may_see, contract="004", now=NOW)
    await recaller.notes.forget(TENANT, forgotten, may_see=may_see)
    (fragment,) = await recaller.find(text="kiln")
    assert (fragment.note_id, fragment.text) == (amended, "The kiln opens on Monday")
    await recaller.notes.restore(TENANT, forgotten, may_see=may_see)
    assert len(await recaller.find(text="kiln")) == 2


async def test_the_handle_of_a_note_is_stable(recaller: Recaller) -> None:
    """An amendment keeps id and handle."""
    note_id = await recaller.keep("The kiln opens on Friday")
    (before,) = await recaller.find(text="kiln")
    changes = Changes(content="The kiln opens on Monday")
    await recaller.notes.amend(TENANT, note_id, changes, may_see=may_see, contract="004", now=NOW)
    (after,) = await recaller.find(text="kiln")
    assert (after.note_id, after.handle) == (before.note_id, before.handle)


async def test_notes_of_a_session_stay_in_it(recaller: Recaller) -> None:
    """They are recalled where their session is named, and nowhere else."""
    await recaller.keep("The kiln is warming up", lifetime="session", session_id="s1")
    assert await recaller.texts(text="kiln") == []
    assert await recaller.texts(text="kiln", session_id="s2") == []
    assert await recaller.texts(text="kiln", session_id="s1") == ["The kiln is warming up"]


async def test_importance_and_recency_move_equals(recaller: Recaller) -> None:
    """Of notes with the same words the important come first, then the recent; time alone never filters."""
    await recaller.keep("kiln one", kind="fact", importance=0.2, days_ago=100)
    await recaller.keep("kiln two", kind="fact", importance=0.2, days_ago=1)
    await recaller.keep("kiln six", kind="fact", importance=1.0, days_ago=1)
    assert await recaller.texts(text="kiln") == ["kiln six", "kiln two", "kiln one"]
    assert (await recaller.texts())[-1] == "kiln one"


async def test_text_and_json_are_each_within_the_budget(recaller: Recaller) -> None:
    """Whatever the script; and most of the text is memories."""
    for i in range(30):
        await recaller.keep(f"窯の記録{i}: 金曜日に青磁の釉薬をかけて、千二百度で焼いた。")
        await recaller.keep(
            f"Firing {i}: the kiln reached {1_000 + i} degrees 🔥 after nine hours, and Inês wants the next one "
            f"slower, since two of the tall vases cracked near the flue; `kiln.fire(step={i})`"
        )
    fragments = await recaller.find(text="kiln 窯")
    counter = token_counter()
    for budget in (10, 100, 800):
        text = recaller.recall.as_text(fragments, budget)
        shown = recaller.recall.as_json(fragments, budget)
        assert text.tokens == (counter.count(text.text) if text.text else 0) <= budget
        assert counter.count(orjson.dumps(shown).decode()) <= budget
        if budget == 800:
            assert text.shown > len(shown) > 0
            said = sum(counter.count(fragment.text) for fragment in fragments[: text.shown - 1])
            assert said >= 0.6 * text.tokens
