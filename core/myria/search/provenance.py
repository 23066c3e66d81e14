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

LATER_WITHDRAWALS = 1_000
"""Withdrawals after an event that are looked at for what it replaced. An append stores them right behind the event;
only an import may bring them later."""

NEWEST_WITHDRAWALS = 2_000
"""Withdrawals of one scope, the newest, that are looked at for what several events replaced."""

MOST_OLDER = 20
"""Older states of one event that are shown."""

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
        "replaces": [_brief(old) for old in replaced if snapshot.masks.sees(old["participants"])],
        "path": shown_path,
        "subjects": subjects,
    }


async def older_states(
    connection: Connection, snapshot: SnapshotView, event_seqs: Sequence[int]
) -> Mapping[int, list[Json]]:
    """Return, by event, the visible events that it replaced, and those that these replaced in their turn; newest first.

    Only what the newest withdrawals of the events' own scopes say counts; an event that replaced nothing is left out.
    """
    visible = snapshot.visible.ids.tolist()
    rows = await connection.fetch(sql("events.texts"), snapshot.tenant, list(event_seqs), visible)
    scopes = sorted({row["scope_id"] for row in rows})
    said = await connection.fetch(sql("retrieval.said_of_scopes"), snapshot.tenant, scopes, NEWEST_WITHDRAWALS)
    newest = {row["event_seq"]: row for row in reversed(said)}  # of each event the last one said remains
    replaced_by: dict[int, list[int]] = {}
    for seq, row in newest.items():
        if row["reason"] == "superseded" and row["superseded_by"] is not None:
            replaced_by.setdefault(row["superseded_by"], []).append(seq)
    chains = {row["event_seq"]: _chain(replaced_by, row["event_seq"]) for row in rows}
    wanted = sorted({seq for chain in chains.values() for seq in chain})
    if not wanted:
        return {}
    found = await connection.fetch(sql("events.by_seqs"), snapshot.tenant, wanted, visible)
    old_of = {row["event_seq"]: _brief(row) for row in found if not row["internal"]}
    states = {seq: [old_of[old] for old in chain if old in old_of] for seq, chain in chains.items()}
    return {seq: olds for seq, olds in states.items() if olds}


def _chain(replaced_by: Mapping[int, Sequence[int]], event_seq: int) -> list[int]:
    """Return what an event replaced, directly and in turn, the newest first."""
    chain: set[int] = set()
    waiting = [event_seq]
    while waiting and len(chain) < MOST_OLDER:
        further = [old for old in replaced_by.get(waiting.pop(), ()) if old not in chain and old != event_seq]
        chain.update(further)
        waiting += further
    return sorted(chain, reverse=True)[:MOST_OLDER]


def _brief(row: asyncpg.Record) -> Json:
    return {
        "event_id": row["event_id"],
        "timestamp": rfc3339_of(row["occurred_at"], row["utc_offset"]),
        "snippet": passage(whole_text(orjson.loads(row["payload"])), frozenset(), _SNIPPET),
    }
