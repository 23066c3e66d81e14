"""Looking at snapshots and the log as an administrator: whole trees, and how two snapshots differ.

Nothing here is masked but by the participants that are asked for; agents go through `myria.search`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

import orjson
from asyncpg import Record

from myria import errors
from myria.db.clock import rfc3339_of, to_microseconds, to_rfc3339
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.log.scopes import canonical_participants
from myria.log.withdrawal.model import NEUTRAL_LABEL, NEUTRAL_SUMMARY
from myria.topics.model import LEAF, SUBJECT

Json = dict[str, Any]

PAGE = 500

FOLLOW_EVERY_S = 0.5
LATE_COMMITS_S = 30.0
"""Seconds for which a follower looks again for events that were committed after events of higher numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotRow:
    """A snapshot as the tree walker needs it; `lineage` is PostgreSQL's multirange of numbers.

    Withdrawals past its cutoff are not in its trees.
    """

    snapshot_id: str
    status: str
    cutoff: int
    lineage: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopeRoot:
    """One scope of a snapshot."""

    scope_id: int
    participants: tuple[str, ...]
    root: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeNode:
    """One rendering of a snapshot; `event_seqs` are a leaf's refs in order, times are microseconds since 1970 UTC.

    `is_subject` is true of all above the leaves in a tree of subjects: of groups of them and parts of large ones, too.
    """

    rendering_id: bytes
    node_id: bytes
    is_leaf: bool
    is_subject: bool
    level: int
    topic_id: str
    label: str
    summary: str
    children: tuple[bytes, ...]
    events: int
    leaves: int
    units: int
    first_at: int
    last_at: int
    event_seqs: tuple[int, ...]

    def to_json(self) -> Json:
        """Return the topic for a program, without what is below it."""
        kind = "leaf_topic" if self.is_leaf else "subject" if self.is_subject else "internal_topic"
        return {
            "kind": kind,
            "topic_id": self.topic_id,
            "node_id": self.node_id.hex(),
            "rendering_id": self.rendering_id.hex(),
            "level": self.level,
            "label": self.label,
            "summary": self.summary,
            "first_at": to_rfc3339(self.first_at),
            "last_at": to_rfc3339(self.last_at),
            "events": self.events,
            "leaves": self.leaves,
            **({"event_seqs": list(self.event_seqs)} if self.is_leaf else {}),
        }


async def find_snapshot(connection: Connection, tenant: str, name: str | None) -> SnapshotRow:
    """Return a snapshot by id or number, or the active one when `name` is None or "active".

    Raises:
        SnapshotNotFound: there is none.
    """
    wanted = None if name in (None, "active") else name
    number = int(wanted) if wanted is not None and wanted.isdecimal() and len(wanted) < 10 else None
    snapshot_id = wanted if number is None else None
    row = await connection.fetchrow(sql("browse.snapshot"), tenant, snapshot_id, number)
    if row is None:
        raise errors.SnapshotNotFound(
            f"no snapshot {wanted} is kept; `myria snapshots` lists those that are"
            if wanted
            else "no snapshot is active yet; `myria rebuild` makes one",
            snapshot_id=wanted,
        )
    return SnapshotRow(**row)


async def scope_roots(
    connection: Connection, tenant: str, snapshot: SnapshotRow, *, participants: Sequence[str] = ()
) -> AsyncIterator[ScopeRoot]:
    """Yield a snapshot's scopes with their roots; with `participants`, those visible to all of them."""
    members = list(canonical_participants(list(participants))) if participants else []
    after = 0
    while True:
        rows = await connection.fetch(sql("browse.roots"), tenant, snapshot.lineage, after, members, PAGE)
        for row in rows:
            yield ScopeRoot(
                scope_id=row["scope_id"], participants=tuple(row["participants"]), root=row["root_rendering_id"]
            )
        if len(rows) < PAGE:
            return
        after = rows[-1]["scope_id"]


async def subject_root(connection: Connection, tenant: str, snapshot: SnapshotRow, scope_id: int) -> bytes | None:
    """Return the root of a scope's tree of subjects in a snapshot; None for a scope without subjects."""
    root: bytes | None = await connection.fetchval(sql("subjects.root"), tenant, scope_id, snapshot.snapshot_id)
    return root


async def tree_nodes(
    connection: Connection, tenant: str, rendering_ids: Sequence[bytes], *, floor: int
) -> list[TreeNode]:
    """Return renderings in the order asked for.

    Args:
        floor: withdrawals past this number are not in the trees; what may cover such an event has no words of its own.

    Raises:
        InternalError: one is missing; `myria verify` says which.
    """
    nodes: dict[bytes, TreeNode] = {}
    for start in range(0, len(rendering_ids), PAGE):
        part = list(rendering_ids[start : start + PAGE])
        for row in await connection.fetch(sql("browse.renderings"), tenant, part, floor):
            nodes[row["rendering_id"]] = _node(row)
    missing = [rendering_id for rendering_id in rendering_ids if rendering_id not in nodes]
    if missing:
        raise errors.InternalError(
            "a rendering of the snapshot is missing; `myria verify` says more", rendering_id=missing[0].hex()
        )
    return [nodes[rendering_id] for rendering_id in rendering_ids]


async def differing_scopes(
    connection: Connection, tenant: str, before: SnapshotRow, after: SnapshotRow
) -> AsyncIterator[Json]:
    """Yield what differs between two snapshots, scope by scope, JSON-ready.

    Of each: its `participants`; `topics` of time from the top down, and `subjects`, each `before` and `after`, null on
    the side that lacks it; and the `events` that are in another leaf topic than before, by number.
    """
    last = 0
    while True:
        rows = await connection.fetch(sql("browse.differing_roots"), tenant, before.lineage, after.lineage, last, PAGE)
        for row in rows:
            of_time = (row["before"], row["after"])
            of_subjects = [
                await subject_root(connection, tenant, snapshot, row["scope_id"]) for snapshot in (before, after)
            ]
            if of_time[0] == of_time[1] and of_subjects[0] == of_subjects[1]:
                continue
            floor = min(before.cutoff, after.cutoff)
            old, new = await _opened(connection, tenant, *of_time, floor=floor)
            old_subjects, new_subjects = await _opened(connection, tenant, *of_subjects, floor=floor)
            yield {
                "participants": list(row["participants"]),
                "topics": _topics(old, new),
                "subjects": _topics(_subjects_of(old_subjects), _subjects_of(new_subjects)),
                "events": _events(old, new),
            }
        if len(rows) < PAGE:
            return
        last = rows[-1]["scope_id"]


async def _opened(
    connection: Connection, tenant: str, before: bytes | None, after: bytes | None, *, floor: int
) -> tuple[dict[str, TreeNode], dict[str, TreeNode]]:
    """Walk two trees from the top, level by level, of subjects down to these; return what each has alone, by topic.

    A rendering fixes its level, so one that both trees hold waits on both sides when its level is reached.
    """

    async def read(rendering_ids: Sequence[bytes]) -> dict[bytes, TreeNode]:
        nodes = await tree_nodes(connection, tenant, rendering_ids, floor=floor)
        return {node.rendering_id: node for node in nodes}

    waiting = [await read([root] if root is not None else []) for root in (before, after)]
    opened: tuple[dict[str, TreeNode], dict[str, TreeNode]] = ({}, {})
    while any(waiting):
        level = max(node.level for nodes in waiting for node in nodes.values())
        at_level = [{key: node for key, node in nodes.items() if node.level == level} for nodes in waiting]
        for side, here, there in zip((0, 1), at_level, reversed(at_level), strict=True):
            alone = [node for key, node in here.items() if key not in there]
            opened[side].update({node.topic_id: node for node in alone})
            inner = [child for node in alone if not _is_one_subject(node) for child in node.children]
            lower = {key: node for key, node in waiting[side].items() if key not in here}
            waiting[side] = {**lower, **await read(inner)}
    return opened


def _is_one_subject(node: TreeNode) -> bool:
    return node.is_subject and node.units == 1


def _subjects_of(opened: dict[str, TreeNode]) -> dict[str, TreeNode]:
    return {topic_id: node for topic_id, node in opened.items() if _is_one_subject(node)}


def _topics(before: dict[str, TreeNode], after: dict[str, TreeNode]) -> list[Json]:
    changes: list[Json] = []
    newest = sorted({**before, **after}.values(), key=lambda node: (-node.level, node.first_at, node.topic_id))
    for topic_id in (node.topic_id for node in newest):
        old, new = before.get(topic_id), after.get(topic_id)
        changes.append(
            {
                "change": "added" if old is None else "gone" if new is None else "changed",
                "topic_id": topic_id,
                "before": None if old is None else old.to_json(),
                "after": None if new is None else new.to_json(),
            }
        )
    return changes


def _events(before: dict[str, TreeNode], after: dict[str, TreeNode]) -> list[Json]:
    was, now = _leaf_of_event(before), _leaf_of_event(after)
    return [
        {"event_seq": seq, "before": was.get(seq), "after": now.get(seq)}
        for seq in sorted(was.keys() | now.keys())
        if was.get(seq) != now.get(seq)
    ]


def _leaf_of_event(topics: dict[str, TreeNode]) -> dict[int, str]:
    return {seq: topic_id for topic_id, node in topics.items() if node.is_leaf for seq in node.event_seqs}


def _node(row: Any) -> TreeNode:
    return TreeNode(
        rendering_id=row["rendering_id"],
        node_id=row["node_id"],
        is_leaf=row["node_type"] == LEAF,
        is_subject=row["node_type"] == SUBJECT,
        level=row["level"],
        topic_id=row["topic_id"],
        label=NEUTRAL_LABEL if row["covers_withdrawn"] else row["label"],
        summary=NEUTRAL_SUMMARY if row["covers_withdrawn"] else row["summary"],
        children=tuple(row["children"]),
        events=row["events"],
        leaves=row["leaves"],
        units=row["units"],
        first_at=to_microseconds(row["first_at"]),
        last_at=to_microseconds(row["last_at"]),
        event_seqs=tuple(row["event_seqs"] or ()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFilter:
    """Which events of the log an administrator wants: of scopes of all `participants`, from `since` to before `until`.

    `internal` asks for internal events alone, or for none of them.
    """

    participants: Sequence[str] = ()
    channel: str | None = None
    type: str | None = None
    context_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    internal: bool | None = None

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the statements that list events."""
        return (
            list(self.participants),
            *(self.channel, self.type, self.context_id),
            *(self.since, self.until),
            self.internal,
        )


async def newest_events(
    database: Database, tenant: str, wanted: EventFilter, *, limit: int
) -> tuple[list[Record], int]:
    """Return the newest events in the log's order, and the number of its last event, from which to follow."""
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("browse.events"), tenant, 0, [], *wanted.arguments(), limit)
        newest = await connection.fetchval(sql("transfer.newest_event_seq"), tenant)
    return rows[::-1], newest


async def follow_events(database: Database, tenant: str, wanted: EventFilter, *, after: int) -> AsyncIterator[Record]:
    """Yield events as they are committed; a number may be committed after a later one, so the follower looks back."""
    seen: dict[int, float] = {}
    while True:
        found: list[Record] = []
        more = True
        while more:
            async with database.read(tenant) as connection:
                page = await connection.fetch(
                    sql("browse.events"), tenant, after, list(seen), *wanted.arguments(), PAGE
                )
            found.extend(page)
            seen |= dict.fromkeys([row["event_seq"] for row in page], time.monotonic())
            more = len(page) == PAGE
        for row in sorted(found, key=itemgetter("event_seq")):
            yield row
        old = [seq for seq, at in seen.items() if time.monotonic() - at > LATE_COMMITS_S]
        if old:
            after = max(old)
            seen = {seq: at for seq, at in seen.items() if seq > after}
        await asyncio.sleep(FOLLOW_EVERY_S)


def event_json(row: Record) -> Json:
    """Return an event of these lists for a program."""
    return {
        "event_id": row["event_id"],
        "event_seq": row["event_seq"],
        "timestamp": rfc3339_of(row["occurred_at"], row["utc_offset"]),
        "ingested_at": rfc3339_of(row["ingested_at"]),
        "channel": row["channel"],
        "participants": list(row["participants"]),
        "source_event_key": row["source_event_key"],
        "type": row["type"],
        "context_id": row["context_id"],
        "internal": row["internal"],
        "topic_hints": orjson.loads(row["topic_hints"]),
        "payload": orjson.loads(row["payload"]),
    }
