"""Reads snapshots and the log for an administrator: whole trees, and how two snapshots differ.

Only the participants that the caller asks for limit what is read; agents go through `myria.search`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from asyncpg import Record

from myria import errors
from myria.db.clock import rfc3339_of, to_microseconds, to_rfc3339
from myria.db.database import Connection, Database
from myria.db.queries import sql
from myria.log.scopes import canonical_participants
from myria.log.withdrawal.model import NEUTRAL_LABEL, NEUTRAL_SUMMARY
from myria.search.snapshot_view import ended_now, withdrawn_of_scope
from myria.search.visibility import Hidden
from myria.topics.model import LEAF, SUBJECT

Json = dict[str, Any]

PAGE = 500

FOLLOW_EVERY_S = 0.5
LATE_COMMITS_S = 30.0
"""Seconds for which a follower looks again for events that were committed after events of higher numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotRow:
    """What a walk through a snapshot's trees needs of it; `lineage` is PostgreSQL's multirange of numbers."""

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

    `label`, `summary`, `events` and `event_seqs` are as `ShownTrees` shows them. `is_subject` is true for all nodes
    above the leaves in a tree of subjects, so also for groups of subjects and for parts of large ones.
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
        """Return the topic as JSON values, without what is below it."""
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
    id_or_number = None if name in (None, "active") else name
    number = (
        int(id_or_number) if id_or_number is not None and id_or_number.isdecimal() and len(id_or_number) < 10 else None
    )
    snapshot_id = id_or_number if number is None else None
    row = await connection.fetchrow(sql("browse.snapshot"), tenant, snapshot_id, number)
    if row is None:
        raise errors.SnapshotNotFound(
            f"no snapshot {id_or_number} is kept; `myria snapshots` lists those that are"
            if id_or_number
            else "no snapshot is active yet; `myria rebuild` makes one",
            snapshot_id=id_or_number,
        )
    return SnapshotRow(**row)


async def scope_roots(
    connection: Connection, tenant: str, snapshot: SnapshotRow, *, participants: Sequence[str] = (), after: int = 0
) -> AsyncIterator[ScopeRoot]:
    """Yield a snapshot's scopes with their roots by ascending id; with `participants`, only scopes all of them can see.

    Args:
        after: only scopes of greater ids.
    """
    members = list(canonical_participants(list(participants))) if participants else []
    after_scope = after
    while True:
        rows = await connection.fetch(sql("browse.roots"), tenant, snapshot.lineage, after_scope, members, PAGE)
        for row in rows:
            yield ScopeRoot(
                scope_id=row["scope_id"], participants=tuple(row["participants"]), root=row["root_rendering_id"]
            )
        if len(rows) < PAGE:
            return
        after_scope = rows[-1]["scope_id"]


async def subject_root(connection: Connection, tenant: str, snapshot: SnapshotRow, scope_id: int) -> bytes | None:
    """Return the root of a scope's tree of subjects in a snapshot; None for a scope without subjects."""
    root: bytes | None = await connection.fetchval(sql("subjects.root"), tenant, scope_id, snapshot.snapshot_id)
    return root


class ShownTrees:
    """Reads the trees of a snapshot as questions are answered from it now: without what was withdrawn since its build.

    A topic whose time holds such an event gets neutral words instead of its own, and counts the other events.
    """

    def __init__(self, connection: Connection, tenant: str, snapshot: SnapshotRow, ended: Hidden) -> None:
        self._connection = connection
        self._tenant = tenant
        self._cutoff = snapshot.cutoff
        self._ended = ended
        # Of a scope it is read with the scope's first topic: withdrawals of the whole tenant may be very many.
        self._withdrawn: dict[int, Hidden] = {}
        self._hidden_seqs = set(ended.late.tolist())
        self._hidden_below: dict[bytes, frozenset[int]] = {}

    @classmethod
    async def of(cls, connection: Connection, tenant: str, snapshot: SnapshotRow) -> ShownTrees:
        """Return a reader of one snapshot."""
        return cls(connection, tenant, snapshot, await ended_now(connection, tenant))

    async def nodes(self, rendering_ids: Sequence[bytes]) -> list[TreeNode]:
        """Return renderings in the order asked for.

        Raises:
            InternalError: one is missing; `myria verify` says which.
        """
        found: dict[bytes, TreeNode] = {}
        for page in _pages(rendering_ids):
            rows = await self._rows(page)
            await self._look_below(rows)
            found.update({row["rendering_id"]: self._node(row) for row in rows})
        return [found[rendering_id] for rendering_id in rendering_ids]

    async def _rows(self, rendering_ids: Sequence[bytes]) -> list[Record]:
        rows: list[Record] = await self._connection.fetch(sql("browse.renderings"), self._tenant, rendering_ids)
        missing = set(rendering_ids).difference(row["rendering_id"] for row in rows)
        if missing:
            raise errors.InternalError(
                "a rendering of the snapshot is missing; `myria verify` says more", rendering_id=min(missing).hex()
            )
        for scope_id in {row["scope_id"] for row in rows}.difference(self._withdrawn):
            withdrawn = await withdrawn_of_scope(self._connection, self._tenant, scope_id, self._cutoff)
            self._withdrawn[scope_id] = withdrawn
            self._hidden_seqs.update(withdrawn.seqs.tolist())
        return rows

    def _covers_hidden(self, row: Record) -> bool:
        span = (row["scope_id"], to_microseconds(row["first_at"]), to_microseconds(row["last_at"]))
        return self._withdrawn[row["scope_id"]].covers(*span) or self._ended.covers(*span)

    async def _look_below(self, rows: Sequence[Record]) -> None:
        """Find the hidden events below renderings; only branches whose time holds one are walked."""
        for row in filter(self._covers_hidden, rows):
            if row["rendering_id"] in self._hidden_below:
                continue
            below = frozenset(row["event_seqs"] or ()) & self._hidden_seqs
            for page in _pages([child for child in row["children"] if child not in self._hidden_below]):
                await self._look_below(await self._rows(page))
            self._hidden_below[row["rendering_id"]] = below.union(
                *(self._hidden_below.get(child, ()) for child in row["children"])
            )

    def _node(self, row: Record) -> TreeNode:
        is_neutral = self._covers_hidden(row)
        hidden_below = self._hidden_below.get(row["rendering_id"], frozenset())
        return TreeNode(
            rendering_id=row["rendering_id"],
            node_id=row["node_id"],
            is_leaf=row["node_type"] == LEAF,
            is_subject=row["node_type"] == SUBJECT,
            level=row["level"],
            topic_id=row["topic_id"],
            label=NEUTRAL_LABEL if is_neutral else row["label"],
            summary=NEUTRAL_SUMMARY if is_neutral else row["summary"],
            children=tuple(row["children"]),
            events=row["events"] - len(hidden_below),
            leaves=row["leaves"],
            units=row["units"],
            first_at=to_microseconds(row["first_at"]),
            last_at=to_microseconds(row["last_at"]),
            event_seqs=tuple(seq for seq in row["event_seqs"] or () if seq not in hidden_below),
        )


def _pages(rendering_ids: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (rendering_ids[start : start + PAGE] for start in range(0, len(rendering_ids), PAGE))


async def differing_scopes(
    connection: Connection,
    tenant: str,
    before: SnapshotRow,
    after: SnapshotRow,
    *,
    after_scope: int = 0,
    most_nodes: int | None = None,
) -> AsyncIterator[tuple[int, Json]]:
    """Yield what differs between two snapshots: each scope's id, ascending, and its differences, JSON-ready.

    What no answer holds now, as it was withdrawn or erased, is in neither; nor are topics of nothing else.

    For each scope: its `participants`; the `topics` of time that differ, from the top down, and the `subjects`, each as
    `before` and `after`, null on the side that lacks it; and the `events` whose leaf topic differs, by number.

    Args:
        after_scope: only scopes of greater ids.
        most_nodes: about how many nodes of a tree are read. Where more differ, `is_cut` is true, the lower levels are
            left out of `topics` and `subjects`, and `events` is empty.
    """
    readers = [await ShownTrees.of(connection, tenant, snapshot) for snapshot in (before, after)]
    while True:
        rows = await connection.fetch(
            sql("browse.differing_roots"), tenant, before.lineage, after.lineage, after_scope, PAGE
        )
        for row in rows:
            time_roots = (row["before"], row["after"])
            subject_roots = [
                await subject_root(connection, tenant, snapshot, row["scope_id"]) for snapshot in (before, after)
            ]
            if time_roots[0] == time_roots[1] and subject_roots[0] == subject_roots[1]:
                continue
            old_topics, new_topics, are_topics_cut = await _differing_nodes(readers, time_roots, most=most_nodes)
            old_subjects, new_subjects, are_subjects_cut = await _differing_nodes(
                readers, subject_roots, most=most_nodes
            )
            difference = {
                "participants": list(row["participants"]),
                "topics": _topic_changes(old_topics, new_topics),
                "subjects": _topic_changes(_subjects_of(old_subjects), _subjects_of(new_subjects)),
                "events": [] if are_topics_cut else _moved_events(old_topics, new_topics),
                "is_cut": are_topics_cut or are_subjects_cut,
            }
            if difference["topics"] or difference["subjects"] or difference["events"] or difference["is_cut"]:
                yield row["scope_id"], difference
        if len(rows) < PAGE:
            return
        after_scope = rows[-1]["scope_id"]


async def _differing_nodes(
    readers: Sequence[ShownTrees], roots: Sequence[bytes | None], *, most: int | None = None
) -> tuple[dict[str, TreeNode], dict[str, TreeNode], bool]:
    """Walk two trees from the top, level by level; return the nodes that only one of them has, by topic id.

    Nodes without a visible event are left out, with all below them. A tree of subjects is walked down to the subjects
    only. A rendering fixes its level, so one that both trees hold is in `waiting` on both sides when its level is
    reached, and is not opened. The walk ends, and true is returned as the third, before more than `most` nodes are
    read.
    """
    waiting: list[dict[bytes, TreeNode]] = [{}, {}]
    differing: tuple[dict[str, TreeNode], dict[str, TreeNode]] = ({}, {})
    to_read = [[root] if root is not None else [] for root in roots]
    read = 0
    while True:
        # What stands on both sides is the same, with all below it: most of a large tree is never read.
        shared = set(to_read[0]) & set(to_read[1])
        for side in (0, 1):
            wanted = [key for key in to_read[side] if key not in shared]
            read += len(wanted)
            if most is not None and read > most:
                return *differing, True
            nodes = await readers[side].nodes(wanted)
            waiting[side].update({node.rendering_id: node for node in nodes if node.events})
        if not any(waiting):
            return *differing, False
        level = max(node.level for nodes in waiting for node in nodes.values())
        at_level = [{key: node for key, node in nodes.items() if node.level == level} for nodes in waiting]
        for side, own_nodes, other_nodes in zip((0, 1), at_level, reversed(at_level), strict=True):
            only_here = [node for key, node in own_nodes.items() if key not in other_nodes]
            differing[side].update({node.topic_id: node for node in only_here})
            to_read[side] = [child for node in only_here if not _is_one_subject(node) for child in node.children]
            waiting[side] = {key: node for key, node in waiting[side].items() if key not in own_nodes}


def _is_one_subject(node: TreeNode) -> bool:
    return node.is_subject and node.units == 1


def _subjects_of(nodes_by_topic: dict[str, TreeNode]) -> dict[str, TreeNode]:
    return {topic_id: node for topic_id, node in nodes_by_topic.items() if _is_one_subject(node)}


def _topic_changes(before: dict[str, TreeNode], after: dict[str, TreeNode]) -> list[Json]:
    """Return the changes of topics, JSON-ready, from the highest level down and in order of time."""
    changes: list[Json] = []
    either = sorted({**before, **after}.values(), key=lambda node: (-node.level, node.first_at, node.topic_id))
    for topic_id in (node.topic_id for node in either):
        old_node, new_node = before.get(topic_id), after.get(topic_id)
        if old_node is not None and new_node is not None and _differ_by_hidden(old_node, new_node):
            continue
        changes.append(
            {
                "change": "added" if old_node is None else "gone" if new_node is None else "changed",
                "topic_id": topic_id,
                "before": None if old_node is None else old_node.to_json(),
                "after": None if new_node is None else new_node.to_json(),
            }
        )
    return changes


def _differ_by_hidden(before: TreeNode, after: TreeNode) -> bool:
    """Tell whether a topic's words are hidden on one side, and nothing else is known to differ."""
    return NEUTRAL_LABEL in (before.label, after.label) and before.events == after.events


def _moved_events(before: dict[str, TreeNode], after: dict[str, TreeNode]) -> list[Json]:
    """Return the events whose leaf topic differs, each with the topic ids before and after, null where it has none."""
    old_leaf_of, new_leaf_of = _leaf_of_event(before), _leaf_of_event(after)
    return [
        {"event_seq": seq, "before": old_leaf_of.get(seq), "after": new_leaf_of.get(seq)}
        for seq in sorted(old_leaf_of.keys() | new_leaf_of.keys())
        if old_leaf_of.get(seq) != new_leaf_of.get(seq)
    ]


def _leaf_of_event(topics: dict[str, TreeNode]) -> dict[int, str]:
    return {seq: topic_id for topic_id, node in topics.items() if node.is_leaf for seq in node.event_seqs}


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFilter:
    """Which events of the log to list: of scopes that all `participants` can see, from `since` to before `until`.

    `internal`: only internal events where true, none of them where false, both where None.
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
    database: Database, tenant: str, event_filter: EventFilter, *, limit: int
) -> tuple[list[Record], int]:
    """Return the newest events in the log's order, and the number of the log's last event, after which to follow."""
    async with database.read(tenant) as connection:
        rows = await connection.fetch(sql("browse.events"), tenant, 0, [], *event_filter.arguments(), limit, False)
        last_seq = await connection.fetchval(sql("transfer.newest_event_seq"), tenant)
    return rows[::-1], last_seq


async def follow_events(
    database: Database, tenant: str, event_filter: EventFilter, *, after: int
) -> AsyncIterator[Record]:
    """Yield events after the number `after` as they are committed, in the log's order.

    An event may be committed after one of a higher number, so this looks back for `LATE_COMMITS_S`.
    """
    yielded_at: dict[int, float] = {}
    while True:
        async with database.read(tenant) as connection:
            page = await connection.fetch(
                sql("browse.events"), tenant, after, list(yielded_at), *event_filter.arguments(), PAGE, True
            )
        now = time.monotonic()
        for row in page:
            yielded_at[row["event_seq"]] = now
            yield row
        # By now no event of a lower number is expected: the next look starts after these.
        settled = [seq for seq, seen_at in yielded_at.items() if now - seen_at > LATE_COMMITS_S]
        if settled:
            after = max(settled)
            yielded_at = {seq: seen_at for seq, seen_at in yielded_at.items() if seq > after}
        if len(page) < PAGE:
            await asyncio.sleep(FOLLOW_EVERY_S)


def event_json(row: Record) -> Json:
    """Return a row of these lists of events as JSON values."""
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
