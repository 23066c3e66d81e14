"""Dumps, and what makes one of another server this one's own. The whole path is drilled in tests/drills."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from myria.builds.verify import verify
from myria.db import schema
from myria.db.database import Database as StoreDatabase
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.search.queries import EventNodesQuery
from myria.settings import Settings
from myria_embedded.account import server_account
from myria_embedded.find import find_binaries
from tests.support.builds import build, rows
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Database, Databases

pytestmark = pytest.mark.processes

OTHER_CLUSTERS_XID = "4000000000"


async def remember(memory: Memory, *texts: str) -> None:
    """Append one event for each text."""
    for text in texts:
        arguments = {
            "timestamp": "2026-01-02T03:04:05Z",
            "channel": "chat",
            "participants": ["ann", "bob"],
            "payload": {"text": text},
        }
        await memory.log.append_events("default", [parse_event(arguments, Limits())])


async def found(memory: Memory, query: str | None, **more: Any) -> tuple[set[str], str | None]:
    """Return the texts that a page of an answer holds, and its cursor."""
    answer = await memory.retrieval.query_event_nodes(
        "default", EventNodesQuery(participants=("ann",), query=query, **more)
    )
    return {child["payload"]["text"] for child in answer["root"]["children"]}, answer["next_cursor"]


def program(name: str, *arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's own programs."""
    path = find_binaries(server_account(Path("/nonexistent")))[name]
    return subprocess.run([path, *arguments], stderr=subprocess.PIPE, text=True, check=False, **streams)


async def as_if_restored(dsn: str) -> None:
    """Make every row look as a dump of a much older cluster leaves it: transactions that have not happened here."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            f"""
            INSERT INTO myria.builds (tenant_id, build_id, status, trigger, cutoff, finished_at)
            SELECT 'default', 'bld_1', 'succeeded', 'manual', min(event_seq), now() FROM myria.events;
            INSERT INTO myria.snapshots (tenant_id, snapshot_id, number, build_id, status, cutoff, tail_xid, lineage,
                planner_version, planner_settings, builder_version, summarizer_version, merge_policy_version)
            SELECT 'default', 'snp_1', 1, 'bld_1', 'active', min(event_seq), '{OTHER_CLUSTERS_XID}', '{{[1,2)}}',
                1, '', '', '', '' FROM myria.events;
            INSERT INTO myria.active_snapshots (tenant_id, snapshot_id) VALUES ('default', 'snp_1');
            UPDATE myria.events SET xid = '{OTHER_CLUSTERS_XID}';
            """
        )
    finally:
        await connection.close()


async def test_adopting_makes_a_restored_tail_whole(database: Database) -> None:
    """Before it, new events are hidden; after it all are found, on every page. A second time changes nothing."""
    async with Memory(database.server_dsn, Settings()) as memory:
        await remember(memory, "indexed", "restored one", "restored two")
        await as_if_restored(database.superuser_dsn)
        await remember(memory, "appended here")
    async with Memory(database.server_dsn, Settings()) as memory:
        hidden, _ = await found(memory, None)
        assert "appended here" not in hidden

    assert await schema.adopt(database.dsn) == 3
    assert await schema.adopt(database.dsn) is None

    async with Memory(database.server_dsn, Settings()) as memory:
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(3):
            page, cursor = await found(memory, None, limit=1, cursor=cursor)
            seen |= page
        assert seen == {"restored one", "restored two", "appended here"}
        assert cursor is None


async def test_adopting_leaves_a_memory_alone_that_was_never_restored(database: Database) -> None:
    """Cursors, builds and events of the server's own are none of its business."""
    await append(database.server_dsn, conversation(60))
    built = await build(database)
    assert built.snapshot_id is not None
    await append(database.server_dsn, [event(9999, "and one more")])
    before = await rows(database, "SELECT event_seq, xid::text FROM myria.events ORDER BY event_seq")
    assert await schema.adopt(database.dsn) is None
    assert await rows(database, "SELECT event_seq, xid::text FROM myria.events ORDER BY event_seq") == before


async def test_scans_of_a_restored_tail_are_bounded_as_before(database: Database) -> None:
    """tail_xid of each snapshot lies past every event that it holds and before every one that it does not."""
    for start in (0, 5000, 10000):
        await append(database.server_dsn, conversation(40, seed=start + 1, start=start))
        assert (await build(database)).outcome == "succeeded"
    await append(database.server_dsn, [event(20000, "the tail")])
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute(
        f"UPDATE myria.events SET xid = '{OTHER_CLUSTERS_XID}';"
        f"UPDATE myria.snapshots SET tail_xid = '{OTHER_CLUSTERS_XID}'"
    )
    await connection.close()

    assert await schema.adopt(database.dsn) == 121
    wrong = await rows(
        database,
        "SELECT s.number, e.event_seq FROM myria.snapshots s JOIN myria.events e USING (tenant_id) "
        "WHERE (e.event_seq > s.cutoff) <> (e.xid >= s.tail_xid)",
    )
    assert wrong == []
    async with StoreDatabase(database.server_dsn) as store:
        report = await verify(store, TENANT, Settings().planner, deep=True, all_snapshots=True)
    assert not report.failed


@pytest.mark.parametrize("who", ["owner", "superuser"])
async def test_a_dump_as_the_pages_say_restores_every_event(
    database: Database, databases: Databases, tmp_path: Path, who: str
) -> None:
    """pg_dump refuses as the owner, who is bound by row-level security, until she names all tenants."""
    async with Memory(database.server_dsn, Settings()) as memory:
        await remember(memory, "one", "two", "three")
    file = tmp_path / "memory.dump"

    with file.open("wb") as out:
        refused = program("pg_dump", "--format=custom", f"--dbname={database.dsn}", stdout=out)
    assert refused.returncode != 0
    assert "row-level security" in refused.stderr

    named = {**os.environ, "PGOPTIONS": "-c myria.tenant=*"}
    asked = ["--enable-row-security"] if who == "owner" else []
    dsn = database.dsn if who == "owner" else database.superuser_dsn
    with file.open("wb") as out:
        dumped = program("pg_dump", "--format=custom", *asked, f"--dbname={dsn}", stdout=out, env=named)
    assert dumped.returncode == 0, dumped.stderr

    other = databases.create_empty()
    try:
        target = other.dsn if who == "owner" else other.superuser_dsn
        with file.open("rb") as dump:
            restored = program("pg_restore", "--exit-on-error", f"--dbname={target}", stdin=dump)
        assert restored.returncode == 0, restored.stderr
        await schema.adopt(other.dsn)
        async with Memory(other.server_dsn, Settings()) as memory:
            assert (await found(memory, None))[0] == {"one", "two", "three"}
    finally:
        databases.drop(other)
