"""Fragments of another memory, imported long after they were made."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.errors import MyriaError
from myria.log.masks import Masks
from myria.memory import Memory
from myria.notes.consolidating import Consolidation
from myria.notes.details import Details
from myria.notes.expiry import DAY_US
from myria.notes.memories.reading import MemoryFilters
from myria.notes.model import NOTE_CHANNEL, NOTE_TYPE
from myria.settings import Settings
from myria.settings.planner import PlannerSettings
from myria_cli.importers.importing import Importing
from myria_cli.importers.memento import fragment_of, import_fragments
from tests.notes.test_remembering import TENANT, US, Keeper
from tests.support.events import event
from tests.support.postgres import Database


@pytest.fixture
async def keeper(database: Database) -> AsyncIterator[Keeper]:
    async with Pool(database.server_dsn) as pool:
        made = Keeper(pool)
        yield made
        await made.ingest.close()


async def test_old_fragments_last_from_their_import_on(keeper: Keeper) -> None:
    """None expires on arrival for its age; without a use it does so as late as a note that was kept with the import."""
    fragment = {"type": "fact", "importance": 0.2, "created_at": "2020-01-02T03:04:05Z"}
    lines = [json.dumps(fragment | {"id": f"frag-{at}", "content": f"The kiln {at}"}).encode() for at in range(3)]
    importing = Importing(on_refused=lambda _: None)
    await import_fragments(keeper.notes, keeper.pool, TENANT, lines, US, importing=importing)
    consolidation = Consolidation(keeper.ingest)
    now = time.time_ns() // 1000
    assert importing.count.imported == 3
    assert (await consolidation.run(TENANT)).counts["expiry"] == 0
    assert (await consolidation.run(TENANT, now=now + 59 * DAY_US)).counts["expiry"] == 0
    assert (await consolidation.run(TENANT, now=now + 61 * DAY_US)).counts["expiry"] == 3


def test_details_of_a_fragment_are_the_note_s() -> None:
    """Its circumstances and its case come along; what is no text there is refused with its name."""
    fragment = {"content": "The kiln is hot", "created_at": "2026-01-05T10:00:00Z", "case_id": "c1", "outcome": None}
    assert fragment_of(fragment | {"phase": "done"}).draft.details == Details(case_id="c1", phase="done")
    with pytest.raises(MyriaError, match="goal"):
        fragment_of(fragment | {"goal": 7})


def test_details_of_a_note_are_texts() -> None:
    """Whoever can write an event may write anything: what is no detail, or no text, is none."""
    strange: tuple[Any, ...] = (None, [], "x", {"goal": 7, "phase": None, "else": "x"})
    for given in strange:
        assert Details.of(given) == Details()
    assert Details.of({"goal": "g", "phase": ["p"]}) == Details(goal="g")


STRANGE_MEMORIES: tuple[Any, ...] = (
    {},
    [],
    {"event_type": "x", "tags": []},
    {"agent_id": 3, "event_type": "x", "tags": []},
    {"agent_id": "bot", "event_type": "x", "tags": "hot"},
    {"agent_id": "bot", "event_type": "x", "tags": [], "importance": "high"},
)


@pytest.mark.parametrize("strange", STRANGE_MEMORIES, ids=str)
async def test_a_strange_memory_is_listed_as_a_note(database: Database, strange: Any) -> None:
    """An import may bring any `memory` and keywords; the list still answers, and the log folds to the same rows."""
    about = {"id": "note_1", "version": 1, "kind": "fact", "topic": "kiln", "importance": 0.9, "keywords": 7}
    payload = {"text": "The kiln is hot", "speaker": "ana", "note": about | {"memory": strange}}
    line = event(1, payload=payload, participants=US, channel=NOTE_CHANNEL)._replace(type=NOTE_TYPE)
    async with Memory(database.server_dsn, Settings()) as memory:
        await memory.log.import_events(TENANT, [line])
        filters = MemoryFilters(agent_id="ana", event_types=("fact",))
        (listed,) = (await memory.memory_reader.page(TENANT, Masks.containing(US), filters)).memories
        assert (listed.draft.agent_id, listed.draft.tags, listed.kind) == ("ana", (), "fact")
        assert (await verify(memory.database, TENANT, PlannerSettings())).failed == 0
