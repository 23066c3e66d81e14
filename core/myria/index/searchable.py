"""What the search index holds of the log and of the trees: documents of event rows, and the tree under a block.

Builders make search blocks of it, serving processes loose blocks, and what a build has not made yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import orjson

from myria.db.clock import to_microseconds
from myria.db.database import Connection
from myria.db.queries import sql
from myria.index import BlockNode, Doc
from myria.topics.model import LEAF, PlanEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class Covered:
    """What the search block of a rendering covers.

    `nodes` stand parents first, `leaf_of` gives the index in `nodes` of each event's leaf by event_seq, and `leaf_ids`
    are the node_ids of all leaves, concatenated.
    """

    nodes: Sequence[BlockNode]
    leaf_of: Mapping[int, int]
    leaf_ids: bytes


async def covered(connection: Connection, tenant: str, rendering_id: bytes) -> Covered:
    """Read what the search block of a rendering covers: the tree below the rendering, and the events of its leaves."""
    rows = await connection.fetch(sql("trees.under"), tenant, rendering_id)
    index_of = {row["rendering_id"]: index for index, row in enumerate(rows)}
    nodes = [
        BlockNode(
            rendering_id=row["rendering_id"],
            parent=index_of[row["parent_id"]] if row["parent_id"] is not None else -1,
            level=row["level"],
        )
        for row in rows
    ]
    leaf_of = {
        event_seq: index_of[row["rendering_id"]]
        for row in rows
        if row["node_type"] == LEAF
        for event_seq in row["event_seqs"]
    }
    leaf_ids = b"".join([row["leaf_id"] for row in rows if row["node_type"] == LEAF])
    return Covered(nodes=nodes, leaf_of=leaf_of, leaf_ids=leaf_ids)


def document(row: asyncpg.Record, *, leaf: int = -1, xid: int = 0, scope_id: int = 0) -> Doc:
    """Build the document of an event row; only blocks of trees need `leaf`, only loose blocks `xid` and `scope_id`."""
    return Doc.of_payload(
        orjson.loads(row["payload"]),
        event_seq=row["event_seq"],
        timestamp=to_microseconds(row["occurred_at"]),
        channel=row["channel"],
        type=row["type"],
        context_id=row["context_id"],
        hints=hints_of(row["topic_hints"]),
        utc_offset=row["utc_offset"] or 0,
        leaf=leaf,
        xid=xid,
        scope_id=scope_id,
    )


def document_of(event: PlanEvent) -> Doc:
    """Build the document of a planned event, the same as `document` builds from its row, without splitting it again."""
    return Doc.of_text(
        event.text,
        event_seq=event.event_seq,
        timestamp=event.timestamp,
        channel=event.channel,
        speaker=event.speaker,
        type=event.type,
        context_id=event.context_id,
        picture_text=event.described,
        hints=event.hints,
        utc_offset=event.utc_offset,
        words=event.all_words,
    )


def hints_of(raw: str) -> tuple[tuple[str, int], ...]:
    """Parse stored topic hints; return (hint, confidence in permille), in their order."""
    if raw == "[]":
        return ()
    return tuple((hint["hint"], round(hint["confidence"] * 1000)) for hint in orjson.loads(raw))
