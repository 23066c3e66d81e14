"""The raw scan: what was erased is in no table and no dump, and receipts hold in a database and in a restored one."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import orjson
import pytest

from myria.db.database import Database as Pool
from myria.erasure.model import Receipt, Selection
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from scripts.drill_backup import back_up
from scripts.drilling import postgres_program, run
from tests.erasure.test_digests import SETTINGS as WITH_TURNS
from tests.erasure.test_digests import kept_by_every_face
from tests.erasure.test_erasure import (
    PHRASE,
    SETTINGS,
    WORDS,
    _write,
    dumped,
    erase,
    erasures,
    failed,
    held_by_blocks,
    seeded,
    traces,
)
from tests.support import builds
from tests.support.counts import SOAK
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database, Databases

SCOPES = 200 if SOAK else 2
EVENTS_EACH = 500 if SOAK else 100
OTHERS = ("carla",)


async def answers(database: Database) -> list[bytes]:
    """Return what a scope is answered that has no erased event: by the phrase, and by what is said there."""
    async with Memory(database.server_dsn, SETTINGS) as memory:
        found = []
        for query in (PHRASE, "piano garden"):
            answer = await memory.retrieval.query_event_nodes(TENANT, EventNodesQuery(participants=OTHERS, query=query))
            found.append(orjson.dumps(answer["root"]))
        return found


async def problems(database: Database, receipt: Receipt) -> tuple[str, ...]:
    async with Pool(database.dsn) as pool:
        return (await erasures(pool).verify(receipt)).problems


def said_in(dump: str) -> set[str]:
    """Return the words of the phrase that a dump holds, in text and in bytes, which it writes as hexadecimals."""
    bytes_of_it = (bytes.fromhex(found[1]).lower() for found in re.finditer(r"\\\\x((?:[0-9a-f]{2})+)", dump))
    return {word for word in WORDS if word in dump} | {
        word for part in bytes_of_it for word in WORDS if word.encode() in part
    }


def restored(databases: Databases, dump: Path) -> Database:
    """Restore a dump into a database of its own."""
    database = databases.create_empty()
    run(postgres_program("pg_restore"), "--exit-on-error", "--no-owner", f"--dbname={database.dsn}", dump)
    return database


@pytest.mark.processes
async def test_what_was_erased_is_nowhere_and_what_stays_is_sound(
    database: Database, databases: Databases, tmp_path: Path
) -> None:
    """In a memory with the phrase in events, notes, snapshots, search blocks, audits, and all that the faces keep
    beside them: after erasing, no column of any table and no dump has a word of it. The receipt holds, there and in a
    restored dump, but not in one from before. Others are answered byte for byte alike. The next build's trees are those
    of a full one, and verify is content."""
    await seeded(database)
    async with Memory(database.server_dsn, WITH_TURNS) as memory:
        await kept_by_every_face(memory)
    for number in range(SCOPES):
        people = (f"p{number}", f"p{number + 1}")
        await append(database.dsn, conversation(EVENTS_EACH, seed=number, participants=people))
    await builds.build(database)
    assert {
        "events.payload",
        "renderings.summary",
        "search_blocks.block",
        "llm_calls.prompt",
        "sessions.context_id",
        "registrations.name",
        "notes.tags",
    } <= {*await traces(database.dsn)}
    assert said_in(await asyncio.to_thread(dumped, database.dsn)) == {*WORDS}
    await asyncio.to_thread(back_up, database.dsn, tmp_path / "before.dump")
    others = await answers(database)
    chosen = Selection(query=WORDS[0])
    async with Pool(database.dsn) as pool:
        planned = (await erasures(pool).plan(chosen)).counts["events"]
    receipt = await erase(database.dsn, chosen)

    assert await traces(database.dsn) == []
    assert said_in(await asyncio.to_thread(dumped, database.dsn)) == set()
    erased = {row["event_seq"] for row in await builds.rows(database, "SELECT event_seq FROM myria.erased")}
    assert receipt.content["rows"]["events"] == len(erased) == planned
    assert not erased & await held_by_blocks(database.dsn)
    assert await failed(database.dsn) == {}
    assert await answers(database) == others
    assert await problems(database, receipt) == ()

    await asyncio.to_thread(back_up, database.dsn, tmp_path / "after.dump")
    copies = [await asyncio.to_thread(restored, databases, tmp_path / f"{when}.dump") for when in ("before", "after")]
    assert "knows no receipt" in (await problems(copies[0], receipt))[0]
    assert await problems(copies[1], receipt) == ()
    await append(copies[1].dsn, [*conversation(3, seed=9)])
    assert await problems(copies[1], receipt) == ()
    await _write(copies[1].dsn, "UPDATE myria.renderings SET summary = summary || $1::text", f" {PHRASE}")
    assert "erased words are in renderings" in " ".join(await problems(copies[1], receipt))
    for copy in copies:
        databases.drop(copy)

    await builds.build(database)
    incremental = await builds.roots(database)
    await builds.build(database, full=True)
    assert await builds.roots(database) == incremental
    assert await traces(database.dsn) == []
    assert await failed(database.dsn) == {}
    assert await problems(database, receipt) == ()
