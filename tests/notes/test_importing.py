"""Fragments of another memory, imported long after they were made."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from myria.db.database import Database as Pool
from myria.errors import MyriaError
from myria.notes.consolidating import Consolidation
from myria.notes.details import Details
from myria.notes.expiry import DAY_US
from myria_cli.importers.frame import Importing
from myria_cli.importers.memento import fragment_of, import_fragments
from tests.notes.test_remembering import TENANT, US, Keeper
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
