"""Reads and writes the nodes of a scope's tree of time and of its subjects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import asyncpg
import orjson

from myria import errors
from myria.builds.events import ScopeReads
from myria.builds.model import RunningBuild
from myria.db.clock import to_microseconds
from myria.db.database import Database
from myria.db.fence import adding_to
from myria.db.queries import sql
from myria.log.payloads import content_key
from myria.topics.model import SUBJECT, Node, Outline, Participants, Ref, Unit, leaf_ids_of
from myria.versions import SEARCH_VERSION

BATCH_NODES = 500
"""Nodes read by one statement, and written by one transaction."""


class ScopeTree:
    """Reads the stored trees of one scope; implements `myria.topics.model.TreeReader`. `read` counts the nodes read."""

    def __init__(self, reads: ScopeReads, participants: Participants) -> None:
        self._reads = reads
        self._tenant = reads.tenant
        self._participants = participants
        self.read = 0

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[Node]:
        """Return the nodes of these renderings, in this order.

        Raises:
            InternalError: one is not stored.
        """
        nodes: list[Node] = []
        for start in range(0, len(rendering_ids), BATCH_NODES):
            async with self._reads.reading() as connection:
                rows = await connection.fetch(
                    sql("trees.renderings"), self._tenant, rendering_ids[start : start + BATCH_NODES]
                )
            nodes.extend(node_from_row(row, self._participants) for row in rows)
        if len(nodes) != len(rendering_ids):
            raise errors.InternalError(
                "a tree names a rendering that is not stored", missing=len(rendering_ids) - len(nodes)
            )
        self.read += len(nodes)
        return nodes

    async def units(self, tops: Sequence[bytes]) -> list[Unit]:
        """Return the units of these top nodes, in this order."""
        return [
            Unit(top=Outline.of(node), leaf_ids=leaf_ids_of(node) or await self.leaf_node_ids(node.rendering_id))
            for node in await self.nodes(tops)
        ]

    async def leaf_node_ids(self, rendering_id: bytes) -> bytes:
        """Return the node_ids of all leaves under (or at) a rendering, joined into one bytes value, in any order."""
        async with self._reads.reading() as connection:
            ids: bytes = await connection.fetchval(sql("trees.leaf_node_ids"), self._tenant, rendering_id)
        return ids


class TreeWriter:
    """Collects the nodes of one scope and writes them in batches; `rows` counts the new rows by table.

    Nodes are content-addressed, so writing them again changes nothing. Each batch is fenced: once the build has ended,
    `LeaseLost` is raised and nothing is written.

    Args:
        statement: the SQL statement that writes a batch: `trees.write_nodes` or `subjects.write_nodes`.
    """

    def __init__(
        self, database: Database, build: RunningBuild, scope_id: int, statement: str = "trees.write_nodes"
    ) -> None:
        self._database = database
        self._build = build
        self._scope_id = scope_id
        self._statement = statement
        self._waiting: list[Node] = []
        self.rows: Counter[str] = Counter()

    async def add(self, nodes: Iterable[Node]) -> None:
        """Take nodes, children before their parents; write each full batch."""
        self._waiting.extend(nodes)
        while len(self._waiting) >= BATCH_NODES:
            batch, self._waiting = self._waiting[:BATCH_NODES], self._waiting[BATCH_NODES:]
            await self._write(batch)

    async def flush(self) -> None:
        """Write the nodes that wait for a full batch."""
        batch, self._waiting = self._waiting, []
        if batch:
            await self._write(batch)

    async def add_blocks(self, blocks: Mapping[bytes, tuple[bytes, bytes]]) -> None:
        """Write search blocks by rendering id, each with the node_ids of its leaves joined into one bytes value."""
        tenant = self._build.tenant
        async with adding_to(self._database, tenant, self._build.build_id) as connection:
            for rendering_id, (block, leaf_ids) in sorted(blocks.items()):
                columns = (rendering_id, SEARCH_VERSION, self._scope_id, block, leaf_ids)
                self.rows["search_blocks"] += await connection.fetchval(sql("trees.write_block"), tenant, *columns) or 0

    async def _write(self, batch: Sequence[Node]) -> None:
        tenant, nodes = self._build.tenant, list(map(_node_fields, batch))
        async with adding_to(self._database, tenant, self._build.build_id) as connection:
            written = await connection.fetchrow(sql(self._statement), tenant, self._scope_id, nodes)
        self.rows.update(dict(written or {}))


_SAME_COLUMNS = (
    *("rendering_id", "node_id", "level", "topic_id", "anchor_seq", "anchor_event_id", "label", "summary"),
    *("events", "leaves", "units", "is_unit", "key_event_id"),
)
"""Fields of a node that a row of either kind of tree has under the same name, and as they are."""


def _node_fields(node: Node) -> dict[str, Any]:
    """Return a node as a value of PostgreSQL's type `myria.new_node`; times are microseconds since 1970."""
    names = (*_SAME_COLUMNS, "node_type", "children", "child_leaves", "key_digest", "first_at", "last_at")
    return {name: getattr(node, name) for name in names} | {
        "metadata": orjson.dumps(node.metadata).decode(),
        "event_seqs": [ref.event_seq for ref in node.refs],
        "weights": [ref.weight for ref in node.refs],
        "key_at": node.key_timestamp,
    }


def node_from_row(row: asyncpg.Record, participants: Participants) -> Node:
    """Return the node of a row of `trees.renderings` of a scope."""
    key_digest = content_key(
        dedupe=row["key_dedupe"],
        timestamp=to_microseconds(row["key_at"]),
        participants=participants,
        payload=orjson.loads(row["key_payload"]) if row["key_dedupe"] is None else {},
        place=row["key_place"] or 0,
    )
    refs = zip(row["event_seqs"], row["event_ids"] or (), row["weights"], strict=True)
    return Node(
        node_type=row["node_type"],
        child_leaves=tuple(row["child_leaves"]),
        refs=tuple(Ref(event_seq=seq, event_id=event_id, weight=weight) for seq, event_id, weight in refs),
        key_digest=key_digest,
        **_common_fields(row),
    )


def subject_from_row(row: asyncpg.Record) -> Node:
    """Return the node of a row of `subjects.nodes`."""
    return Node(node_type=SUBJECT, key_digest=row["key_digest"], **_common_fields(row))


def _common_fields(row: asyncpg.Record) -> dict[str, Any]:
    """Return the fields that nodes of both kinds of trees share."""
    return {name: row[name] for name in _SAME_COLUMNS} | {
        "metadata": orjson.loads(row["metadata"]),
        "children": tuple(row["children"]),
        "key_timestamp": to_microseconds(row["key_at"]),
        "first_at": to_microseconds(row["first_at"]),
        "last_at": to_microseconds(row["last_at"]),
    }
