"""The search blocks of a scope's tree: which nodes carry one, and the bytes of those that are new.

A block covers the highest node with at most 2,048 events; a unit may have twice as many before its parts take its
place. So a change rewrites the blocks above it and no others, and a block found under its rendering's id is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from myria.building.reading import ScopeEvents
from myria.building.versions import ANALYZER_VERSION
from myria.building.writing import TreeWriter
from myria.index import MAX_DOCS, BlockNode, build
from myria.planning.model import LEAF
from myria.store.database import Database
from myria.store.queries import sql

BLOCK_EVENTS = MAX_DOCS // 2
"""Events of a block's node, unless it is a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockNodes:
    """The renderings whose blocks cover a tree, in time order, and which of them have none yet."""

    covering: list[bytes]
    missing: list[bytes]


async def block_nodes(database: Database, tenant: str, root: bytes) -> BlockNodes:
    """Return which renderings carry the search blocks of the tree at `root`, all of whose nodes are stored."""
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("trees.block_nodes"), tenant, root, BLOCK_EVENTS, MAX_DOCS, ANALYZER_VERSION)
    return BlockNodes(
        covering=[row["rendering_id"] for row in rows],
        missing=[row["rendering_id"] for row in rows if not row["present"]],
    )


async def write_block(
    database: Database, tenant: str, rendering_id: bytes, events: ScopeEvents, writer: TreeWriter
) -> int:
    """Write the search block of one rendering from its events; return how many they are."""
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("trees.under"), tenant, rendering_id)
    at = {row["rendering_id"]: position for position, row in enumerate(rows)}
    nodes = [
        BlockNode(
            rendering_id=row["rendering_id"],
            parent=at[row["parent_id"]] if row["parent_id"] is not None else -1,
            level=row["level"],
        )
        for row in rows
    ]
    leaf_of = {
        event_seq: at[row["rendering_id"]]
        for row in rows
        if row["node_type"] == LEAF
        for event_seq in row["event_seqs"]
    }
    await writer.add_block(rendering_id, build(await events.docs(leaf_of), nodes))
    return len(leaf_of)
