"""Fragments of another memory, imported long after they were made."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

import pytest

from myria.memento import import_fragments
from myria.notes.consolidating import Consolidation
from myria.notes.expiry import DAY_US
from myria.store.database import Database as Pool
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
    count = await import_fragments(keeper.notes, keeper.pool, TENANT, lines, US, on_refused=lambda _: None)
    consolidation = Consolidation(keeper.pool, keeper.ingest.append_events)
    now = time.time_ns() // 1000
    assert count.imported == 3
    assert (await consolidation.run(TENANT)).counts["expiry"] == 0
    assert (await consolidation.run(TENANT, now=now + 100 * DAY_US)).counts["expiry"] == 0
    assert (await consolidation.run(TENANT, now=now + 200 * DAY_US)).counts["expiry"] == 3
