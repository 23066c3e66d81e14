"""What people see who look with psql: a snapshot's tree and the refs of its leaves."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from tests.reads.asking import append, ask, events_of, walk
from tests.support.building import build_now
from tests.support.events import TENANT, conversation
from tests.support.postgres import Database


async def _reader(database: Database, role_dsn: str) -> asyncpg.Connection[Any]:
    connection = await asyncpg.connect(role_dsn)
    await connection.execute("SELECT set_config('myria.tenant', 'default', false)")
    await connection.execute("SET statement_timeout = '20s'")
    return connection


@pytest.mark.parametrize("role", ["owner", "server"])
async def test_a_snapshot_is_drawn_from_top_to_bottom(memory: Memory, database: Database, role: str) -> None:
    """snapshot_tree gives every node of the trees of time once, parents first, in order, for any kept snapshot."""
    await append(memory, conversation(60, seed=1))
    await build_now(database.builder_dsn)
    older = (await memory.registry.active_snapshot(TENANT))["snapshot"]["snapshot_id"]
    await append(memory, conversation(40, seed=2, participants=("ana", "ben", "carol")))
    await append(memory, conversation(20, seed=3, start=100_000))
    await build_now(database.builder_dsn)
    answer = await ask(memory, ReferencesQuery(participants=("ana",), max_nodes=500))
    shown = {node["node_id"] for node in walk(answer["root"]) if node["kind"] in ("internal_topic", "leaf_topic")}

    connection = await _reader(database, database.dsn if role == "owner" else database.server_dsn)
    tree = "SELECT * FROM myria.snapshot_tree('default', $1)"
    rows = await connection.fetch(tree, answer["snapshot_id"])
    before = await connection.fetch(tree, older)
    assert await connection.fetch("SELECT * FROM myria.snapshot_tree('other', $1)", older) == []
    await connection.close()

    nodes = [row["node_id"].hex() for row in rows]
    assert len(nodes) == len(set(nodes))
    assert shown <= set(nodes)
    roots = [row for row in rows if row["depth"] == 0]
    assert [row["events"] for row in roots] == [80, 40]
    assert sum(row["events"] for row in rows if row["node_type"] == "leaf_topic") == 120
    assert [row["events"] for row in before if row["depth"] == 0] == [60]
    stack: list[asyncpg.Record] = []
    for row in rows:
        del stack[row["depth"] :]
        assert len(stack) == row["depth"]
        for above in stack:
            assert above["first_at"] <= row["first_at"] <= row["last_at"] <= above["last_at"]
            assert above["participants"] == row["participants"]
        stack.append(row)


async def test_refs_are_rows(memory: Memory, database: Database) -> None:
    """node_refs shows each leaf's events with their weights, in order."""
    await append(memory, conversation(40, seed=1))
    await build_now(database.builder_dsn)
    answer = await ask(memory, ReferencesQuery(participants=("ana",), max_nodes=500))
    connection = await _reader(database, database.server_dsn)
    rows = await connection.fetch("SELECT * FROM myria.node_refs ORDER BY node_id, position")
    await connection.close()
    assert {row["event_id"] for row in rows} == {one["event_id"] for one in events_of(answer)}
    assert len(rows) == 40
    assert all(0 < row["weight"] <= 1000 for row in rows)
    leaves = {node["node_id"]: node for node in walk(answer["root"]) if node["kind"] == "leaf_topic"}
    for node_id, leaf in leaves.items():
        refs = [row["event_id"] for row in rows if row["node_id"].hex() == node_id]
        assert set(refs) == {child["event_id"] for child in leaf["children"]}
