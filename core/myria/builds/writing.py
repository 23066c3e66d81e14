"""Writing what was planned: content-addressed rows in sorted batches, idempotent and safe to repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from myria.builds.model import RunningBuild
from myria.db.arrays import byte_strings, plain, plains, texts
from myria.db.database import Connection, Database
from myria.db.fence import adding_to
from myria.db.queries import sql
from myria.topics.model import Node
from myria.versions import SEARCH_VERSION

BATCH_NODES = 500
"""Nodes written by one transaction."""

Writing = Callable[[Connection], Awaitable[Counter[str]]]
"""Writes rows inside a transaction that adds to a build, and returns how many were new, as a task counts them."""

Blocks = Mapping[bytes, tuple[bytes, bytes]]
"""Search blocks by their renderings, each with its leaves' node_ids in a row."""


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

    async def add_blocks(self, blocks: Blocks) -> None:
        """Write search blocks."""
        async with adding_to(self._database, self._tenant, self._build_id) as connection:
            await self.insert_blocks(blocks, connection)

    async def insert_blocks(self, blocks: Blocks, connection: Connection) -> Counter[str]:
        """Write search blocks inside a transaction that adds to the build; return how many were new."""
        before = self.rows["search_blocks"]
        for rendering_id, (block, leaf_ids) in sorted(blocks.items()):
            columns = (rendering_id, SEARCH_VERSION, self._scope_id, block, leaf_ids)
            await self._insert(connection, "search_blocks", "trees.write_block", *columns)
        return Counter(rows_search_blocks=self.rows["search_blocks"] - before)

    async def note_leaf_ids(self, rendering_id: bytes, leaf_ids: bytes) -> None:
        """Add its leaves to a search block that an older version wrote."""
        async with adding_to(self._database, self._tenant, self._build_id) as connection:
            await connection.execute(sql("trees.note_leaf_ids"), self._tenant, rendering_id, SEARCH_VERSION, leaf_ids)

    async def _write(self, batch: Sequence[Node]) -> None:
        by_node = {node.node_id: node for node in batch}
        by_rendering = {node.rendering_id: node for node in batch}
        by_topic = {node.topic_id: node for node in batch}
        nodes = [by_node[key] for key in sorted(by_node)]
        renderings = [by_rendering[key] for key in sorted(by_rendering)]
        topics = [by_topic[key] for key in sorted(by_topic)]
        async with adding_to(self._database, self._tenant, self._build_id) as connection:
            await self._insert(
                connection,
                "nodes",
                "trees.write_nodes",
                self._scope_id,
                byte_strings([node.node_id for node in nodes]),
                texts([node.node_type for node in nodes]),
                plains([[ref.event_seq for ref in node.refs] for node in nodes]),
                plains([[ref.weight for ref in node.refs] for node in nodes]),
            )
            await self._insert(
                connection,
                "renderings",
                "trees.write_renderings",
                self._scope_id,
                byte_strings([node.rendering_id for node in renderings]),
                byte_strings([node.node_id for node in renderings]),
                texts([node.node_type for node in renderings]),
                plain([node.level for node in renderings]),
                texts([node.topic_id for node in renderings]),
                plain([node.anchor_seq for node in renderings]),
                texts([node.anchor_event_id for node in renderings]),
                texts([node.label for node in renderings]),
                texts([node.summary for node in renderings]),
                orjson.dumps([node.metadata for node in renderings]).decode(),
                texts([byte_strings(node.children) for node in renderings]),
                texts([byte_strings(node.child_leaves) for node in renderings]),
                plain([node.is_unit for node in renderings]),
                plain([node.events for node in renderings]),
                plain([node.leaves for node in renderings]),
                plain([node.units for node in renderings]),
                plain([node.key_timestamp for node in renderings]),
                texts([node.key_event_id for node in renderings]),
                plain([node.first_at for node in renderings]),
                plain([node.last_at for node in renderings]),
            )
            await self._insert(
                connection,
                "topics",
                "trees.write_topics",
                self._scope_id,
                texts([node.topic_id for node in topics]),
                texts([node.node_type for node in topics]),
                plain([node.level for node in topics]),
                plain([node.anchor_seq for node in topics]),
                texts([node.anchor_event_id for node in topics]),
            )

    async def _insert(self, connection: Connection, table: str, statement: str, *arguments: Any) -> None:
        status: str = await connection.execute(sql(statement), self._tenant, *arguments)
        self.rows[table] += int(status.rpartition(" ")[2])
