"""What a look at a note's history costs, however many versions it has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.notes.model import Changes
from tests.notes.test_remembering import TENANT, Keeper
from tests.support.postgres import Database


@pytest.fixture
async def keeper(database: Database) -> AsyncIterator[Keeper]:
    async with Pool(database.server_dsn) as pool:
        made = Keeper(pool)
        yield made
        await made.ingest.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


async def test_the_walk_ends_with_what_is_shown(keeper: Keeper) -> None:
    """Of a note with thirty versions the newest three are asked for: no more are looked up, and they come in order."""
    kept = await keeper.remember("The kiln opens on day 0")
    for day in range(1, 30):
        changes = Changes(content=f"The kiln opens on day {day}")
        await keeper.notes.amend(
            TENANT, kept.note_id, changes, may_see=lambda _: True, contract="memento", now=10**15 + day
        )
    async with keeper.pool.read(TENANT) as connection:
        rows = await connection.fetch(sql("notes.history"), TENANT, kept.note_id, 3)
        text = await connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {sql('notes.history')}", TENANT, kept.note_id, 3
        )
    said = [json.loads(row["payload"])["text"] for row in rows]
    assert said == [f"The kiln opens on day {day}" for day in (29, 28, 27)]
    (walk,) = [node for node in nodes(json.loads(text)[0]["Plan"]) if node["Node Type"] == "Recursive Union"]
    assert walk["Actual Rows"] <= 4
