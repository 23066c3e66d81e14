"""Where events stand: what they replaced, and the topics of the active snapshot that hold one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import orjson

from myria.db.clock import rfc3339_of
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.payloads import whole_text
from myria.search.snapshot_view import SnapshotView
from myria.search.topics import Path, TopicReader
from myria.text.passages import passage

Json = dict[str, Any]

MOST_OLDER = 20
"""Older states of one event that are shown."""

_SNIPPET = 240
"""Characters of a replaced event that are shown."""


async def event_provenance(
    connection: Connection, snapshot: SnapshotView, event_id: str, topics: TopicReader
) -> Json | None:
    """Return what an event replaced, and where the snapshot's trees hold it; None for an event that may not be seen.

    Returns:
        `replaces`: the visible ones of the newest hundred events that it replaced, newest first; `path`: the topics of
        time that hold it, from the top down, empty where no tree holds it; `subjects`: the subjects that hold its leaf,
        best first.
    """
    tenant = snapshot.tenant
    row = await connection.fetchrow(sql("events.by_id"), tenant, event_id)
    is_withdrawn = row is not None and row["reason"] not in (None, "restored", "superseded")
    if row is None or is_withdrawn or not snapshot.masks.sees(row["participants"]):
        return None
    replaced = await connection.fetch(sql("retrieval.replaced_by"), tenant, row["event_seq"])
    path: Path = ()
    subjects: list[Json] = []
    shown_path: list[Json] = []
    scope = snapshot.scope(row["scope_id"])
    if scope is not None and scope.root is not None and snapshot.hidden.shows(row["event_seq"]):
        path = await topics.locate(connection, tenant, scope, row["event_seq"]) or ()
    if scope is not None and path:
        words = await topics.found(connection, tenant, [(scope, path)])
        shown_path = [words[rendering_id].shown(snapshot.hidden) for rendering_id in path]
        of_leaf = await topics.subjects_of(connection, snapshot, [(scope, path)], words)
        subjects = [of_leaf.topics[subject].shown(snapshot.hidden) for subject in of_leaf.of_leaf.get(path[-1], ())]
    return {
        "replaces": [_brief(old) for old in replaced if snapshot.masks.sees(old["participants"])],
        "path": shown_path,
        "subjects": subjects,
    }


async def older_states(
    connection: Connection, snapshot: SnapshotView, event_seqs: Sequence[int]
) -> Mapping[int, list[Json]]:
    """Return, by event, the visible events that it replaced, and those that these replaced in their turn; newest first.

    At most `MOST_OLDER` of each; an event that replaced nothing is left out.
    """
    rows = await connection.fetch(sql("retrieval.older"), snapshot.tenant, list(event_seqs), MOST_OLDER)
    older_seqs = sorted({row["event_seq"] for row in rows})
    visible = snapshot.visible.ids.tolist()
    found = await connection.fetch(sql("events.by_seqs"), snapshot.tenant, older_seqs, visible)
    brief_of = {row["event_seq"]: _brief(row) for row in found if not row["internal"]}
    states: dict[int, list[Json]] = {}
    for row in rows:
        if row["event_seq"] in brief_of:
            states.setdefault(row["newer_seq"], []).append(brief_of[row["event_seq"]])
    return states


def _brief(row: asyncpg.Record) -> Json:
    return {
        "event_id": row["event_id"],
        "timestamp": rfc3339_of(row["occurred_at"], row["utc_offset"]),
        "snippet": passage(whole_text(orjson.loads(row["payload"])), frozenset(), _SNIPPET),
    }
