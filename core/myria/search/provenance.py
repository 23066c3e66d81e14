"""Where one event stands: what it replaced, and the topics of the active snapshot that hold it."""

from __future__ import annotations

from typing import Any

import orjson

from myria.db.clock import rfc3339_of
from myria.db.database import Connection
from myria.db.queries import sql
from myria.log.payloads import whole_text
from myria.search.snapshot_view import SnapshotView
from myria.search.topics import Path, TopicReader
from myria.text.passages import passage

Json = dict[str, Any]

LATER_WITHDRAWALS = 1_000
"""Withdrawals after an event that are looked at for what it replaced. An append stores them right behind the event;
only an import may bring them later."""

_SNIPPET = 240
"""Characters of a replaced event that are shown."""


async def event_provenance(
    connection: Connection, snapshot: SnapshotView, event_id: str, topics: TopicReader
) -> Json | None:
    """Return what an event replaced, and where the snapshot's trees hold it; None for an event that may not be seen.

    Returns:
        `replaces`: the visible events that it replaced, the newest first; `path`: the topics of time that hold it, from
        the top down, empty where no tree holds it; `subjects`: the subjects that hold its leaf, best first.
    """
    tenant = snapshot.tenant
    row = await connection.fetchrow(sql("events.by_id"), tenant, event_id)
    is_withdrawn = row is not None and row["reason"] not in (None, "restored", "superseded")
    if row is None or is_withdrawn or not snapshot.masks.sees(row["participants"]):
        return None
    replaced = await connection.fetch(sql("retrieval.replaced_by"), tenant, row["event_seq"], LATER_WITHDRAWALS)
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
        "replaces": [
            {
                "event_id": old["event_id"],
                "timestamp": rfc3339_of(old["occurred_at"], old["utc_offset"]),
                "snippet": passage(whole_text(orjson.loads(old["payload"])), frozenset(), _SNIPPET),
            }
            for old in replaced
            if snapshot.masks.sees(old["participants"])
        ],
        "path": shown_path,
        "subjects": subjects,
    }
