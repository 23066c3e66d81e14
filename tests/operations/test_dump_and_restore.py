"""The advice of docs/operations-local.md about pg_dump, tried out."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import asyncpg

from myria.contract.event import parse_event
from myria.contract.limits import Limits
from myria.contract.queries import EventNodesQuery
from myria.memory import Memory
from myria.settings import Settings
from myria_cli.embedded.account import server_account
from myria_cli.embedded.find import find_binaries
from tests.support.postgres import Database, Databases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations-local.md"
OTHER_CLUSTERS_XID = "4000000000"


def advice() -> str:
    """Return the SQL that the page tells to run after a restore."""
    block = re.search(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    return block[1].split("VACUUM")[0]


async def remember(memory: Memory, *texts: str) -> None:
    """Append one event for each text."""
    for text in texts:
        arguments = {
            "timestamp": "2026-01-02T03:04:05Z",
            "channel": "chat",
            "participants": ["ann", "bob"],
            "payload": {"text": text},
        }
        await memory.append_events("default", [parse_event(arguments, Limits())])


async def found(memory: Memory, query: str | None, **more: Any) -> tuple[set[str], str | None]:
    """Return the texts that a page of an answer holds, and its cursor."""
    answer = await memory.query_event_nodes("default", EventNodesQuery(participants=("ann",), query=query, **more))
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


async def test_what_the_page_says_to_run_makes_a_restored_tail_whole(database: Database) -> None:
    """Without it new events are hidden; with it old and new ones are found, on every page."""
    async with Memory(database.server_dsn, Settings()) as memory:
        await remember(memory, "indexed", "restored one", "restored two")
        await as_if_restored(database.superuser_dsn)
        await remember(memory, "appended here")
    async with Memory(database.server_dsn, Settings()) as memory:
        hidden, _ = await found(memory, None)
        assert "appended here" not in hidden

    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute(advice())
    await connection.close()

    async with Memory(database.server_dsn, Settings()) as memory:
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(3):
            page, cursor = await found(memory, None, limit=1, cursor=cursor)
            seen |= page
        assert seen == {"restored one", "restored two", "appended here"}
        assert cursor is None


async def test_a_dump_needs_a_superuser_and_restores_every_event(
    database: Database, databases: Databases, tmp_path: Path
) -> None:
    """pg_dump refuses as the owner, who is bound by row-level security, and is complete as the superuser."""
    async with Memory(database.server_dsn, Settings()) as memory:
        await remember(memory, "one", "two", "three")
    file = tmp_path / "memory.dump"

    with file.open("wb") as out:
        refused = program("pg_dump", "--format=custom", f"--dbname={database.dsn}", stdout=out)
    assert refused.returncode != 0
    assert "row-level security" in refused.stderr

    with file.open("wb") as out:
        dumped = program("pg_dump", "--format=custom", f"--dbname={database.superuser_dsn}", stdout=out)
    assert dumped.returncode == 0, dumped.stderr

    other = databases.create_empty()
    try:
        with file.open("rb") as dump:
            restored = program("pg_restore", "--exit-on-error", f"--dbname={other.superuser_dsn}", stdin=dump)
        assert restored.returncode == 0, restored.stderr
        connection = await asyncpg.connect(other.superuser_dsn)
        await connection.execute(advice())
        await connection.close()
        async with Memory(other.server_dsn, Settings()) as memory:
            assert (await found(memory, None))[0] == {"one", "two", "three"}
    finally:
        databases.drop(other)
