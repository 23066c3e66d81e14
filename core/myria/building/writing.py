"""Writing what was planned: content-addressed rows in sorted batches, idempotent and safe to repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson

from myria.building.model import RunningBuild
from myria.planning.model import Node
from myria.store.database import Connection, Database
from myria.store.fence import hold_build
from myria.store.queries import sql
from myria.versions import SEARCH_VERSION

BATCH_NODES = 500
"""Nodes written by one transaction."""


class TreeWriter:
    """Collects the nodes of one scope and writes them a batch at a time; `rows` counts what was new, by table.

    Each batch is fenced: once the build has ended, `LeaseLost` is raised and nothing is written.
    """

    def __init__(self, database: Database, build: RunningBuild, scope_id: int) -> None:
        self._database = database
        self._tenant = build.tenant
        self._build_id = build.build_id
        self._scope_id = scope_id
        self._waiting: list[Node] = []
        self.rows: Counter[str] = Counter()

    async def add(self, nodes: Sequence[Node]) -> None:
        """Take nodes, children before parents; write when a batch is full."""
        self._waiting.extend(nodes)
        while len(self._waiting) >= BATCH_NODES:
            batch, self._waiting = self._waiting[:BATCH_NODES], self._waiting[BATCH_NODES:]
            await self._write(batch)

    async def flush(self) -> None:
        """Write what waits."""
        batch, self._waiting = self._waiting, []
        if batch:
            await self._write(batch)

    async def add_block(self, rendering_id: bytes, block: bytes) -> None:
        """Write one search block."""
        async with self._database.write(self._tenant) as connection:
            await hold_build(connection, self._tenant, self._build_id)
            await self._insert(
                connection, "search_blocks", "trees.write_block", rendering_id, SEARCH_VERSION, self._scope_id, block
            )

    async def _write(self, batch: Sequence[Node]) -> None:
        by_node = {node.node_id: node for node in batch}
        by_rendering = {node.rendering_id: node for node in batch}
        by_topic = {node.topic_id: node for node in batch}
        nodes = [by_node[key] for key in sorted(by_node)]
        renderings = [by_rendering[key] for key in sorted(by_rendering)]
        topics = [by_topic[key] for key in sorted(by_topic)]
        async with self._database.write(self._tenant) as connection:
            await hold_build(connection, self._tenant, self._build_id)
            await self._insert(
                connection,
                "nodes",
                "trees.write_nodes",
                self._scope_id,
                [node.node_id for node in nodes],
                [node.node_type for node in nodes],
                [_integers(ref.event_seq for ref in node.refs) for node in nodes],
                [_integers(ref.weight for ref in node.refs) for node in nodes],
            )
            await self._insert(
                connection,
                "renderings",
                "trees.write_renderings",
                self._scope_id,
                [node.rendering_id for node in renderings],
                [node.node_id for node in renderings],
                [node.node_type for node in renderings],
                [node.level for node in renderings],
                [node.topic_id for node in renderings],
                [node.anchor_seq for node in renderings],
                [node.anchor_event_id for node in renderings],
                [node.label for node in renderings],
                [node.summary for node in renderings],
                [orjson.dumps(node.metadata).decode() for node in renderings],
                [byte_strings(node.children) for node in renderings],
                [byte_strings(node.child_leaves) for node in renderings],
                [node.is_unit for node in renderings],
                [node.events for node in renderings],
                [node.leaves for node in renderings],
                [node.units for node in renderings],
                [node.key_timestamp for node in renderings],
                [node.key_event_id for node in renderings],
                [node.first_at for node in renderings],
                [node.last_at for node in renderings],
            )
            await self._insert(
                connection,
                "topics",
                "trees.write_topics",
                self._scope_id,
                [node.topic_id for node in topics],
                [node.node_type for node in topics],
                [node.level for node in topics],
                [node.anchor_seq for node in topics],
                [node.anchor_event_id for node in topics],
            )

    async def _insert(self, connection: Connection, table: str, statement: str, *arguments: Any) -> None:
        status: str = await connection.execute(sql(statement), self._tenant, *arguments)
        self.rows[table] += int(status.rpartition(" ")[2])


def _integers(values: Any) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def byte_strings(values: Sequence[bytes]) -> str:
    """Return byte strings as PostgreSQL reads an array of them from text."""
    return "{" + ",".join(f'"\\\\x{value.hex()}"' for value in values) + "}"
