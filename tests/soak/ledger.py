"""What was appended and acknowledged, and whether the memory shows exactly that."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from tests.soak.wire import Client

Json = dict[str, Any]

OBSERVER = "observer"
"""Belongs to every scope, so one query sees the whole log."""

CROWDS = (
    (OBSERVER,),
    (OBSERVER, "ana"),
    (OBSERVER, "ben"),
    (OBSERVER, "ana", "ben"),
    (OBSERVER, "ana", "ben", "agent_1"),
)
PLACED = """
WITH RECURSIVE pinned AS (
    SELECT lineage FROM myria.snapshots WHERE snapshot_id = $1
), below (rendering_id) AS (
    SELECT root.root_rendering_id
    FROM myria.scopes s CROSS JOIN LATERAL (
        SELECT x.root_rendering_id FROM myria.scope_roots x, pinned
        WHERE x.scope_id = s.scope_id AND x.number::bigint <@ pinned.lineage ORDER BY x.number DESC LIMIT 1) root
    UNION ALL
    SELECT child FROM below JOIN myria.renderings USING (rendering_id) CROSS JOIN unnest(children) AS child
)
SELECT unnest(n.event_seqs) FROM below JOIN myria.renderings r USING (rendering_id) JOIN myria.nodes n USING (node_id)
"""
"""Every reference of every leaf under every root of a snapshot, once for each way that leads to it."""

_WORDS = [
    "garden",
    "tomato",
    "bridge",
    "river",
    "bread",
    "oven",
    "piano",
    "lesson",
    "train",
    "ticket",
    "doctor",
    "school",
    "camera",
    "photo",
    "trail",
    "tent",
]


@dataclass(slots=True)
class Ledger:
    """Keys that were sent, and for those that were acknowledged, the event they were told."""

    sent: set[str] = field(default_factory=set)
    acknowledged: dict[str, tuple[str, int]] = field(default_factory=dict)
    internal: set[str] = field(default_factory=set)
    duplicates: int = 0

    def event(self, key: str, rng: random.Random) -> Json:
        """Return the event of a key, always the same for the same generator state; note that it was sent."""
        self.sent.add(key)
        if rng.random() < 0.05:
            self.internal.add(key)
        moment = rng.randrange(30 * 24 * 3600)
        return {
            "timestamp": f"2026-04-{1 + moment // 86_400:02d}T"
            f"{moment // 3600 % 24:02d}:{moment // 60 % 60:02d}:{moment % 60:02d}Z",
            "channel": "soak",
            "source_event_key": key,
            "participants": list(rng.choice(CROWDS)),
            "payload": {"text": " ".join(rng.choices(_WORDS, k=6)), "key": key},
            "internal": key in self.internal,
        }

    def acknowledge(self, key: str, answer: Json) -> None:
        """Note an acknowledgement; every one of a key must name the same event."""
        told = (answer["event_id"], answer["event_seq"])
        assert self.acknowledged.setdefault(key, told) == told, f"{key} was acknowledged as two events"
        assert not answer["payload_differs"]
        self.duplicates += answer["deduplicated"]


async def check_database(dsn: str, ledger: Ledger) -> Json:
    """Check, in one REPEATABLE READ transaction, that the snapshot and the tail hold each event exactly once."""
    must = dict(ledger.acknowledged)
    connection = await asyncpg.connect(dsn, timeout=30)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute("SELECT set_config('myria.tenant', 'default', true)")
            active = await connection.fetchrow(
                "SELECT s.snapshot_id, s.cutoff FROM myria.active_snapshots a JOIN myria.snapshots s "
                "USING (tenant_id, snapshot_id)"
            )
            log = await connection.fetch("SELECT event_seq, event_id, source_event_key, internal FROM myria.events")
            placed: list[int] = []
            if active is not None:
                placed = [row[0] for row in await connection.fetch(PLACED, active["snapshot_id"])]
    finally:
        await connection.close()
    cutoff = active["cutoff"] if active is not None else 0
    stored = {row["source_event_key"]: row for row in log}
    assert len(stored) == len(log), "a key is in the log twice"
    assert stored.keys() <= ledger.sent
    for key, (event_id, event_seq) in must.items():
        assert key in stored, f"{key} was acknowledged and is not in the log"
        assert (stored[key]["event_id"], stored[key]["event_seq"]) == (event_id, event_seq), key
    counted = {row["event_seq"] for row in log if not row["internal"]}
    tail = {seq for seq in counted if seq > cutoff}
    shown = Counter(placed) + Counter(tail)
    assert shown == Counter(counted), _difference(shown, Counter(counted))
    return {"log": len(log), "indexed": len(placed), "tail": len(tail)}


async def check_pages(client: Client, ledger: Ledger, tool: str, size: int) -> int:
    """Page through everything over MCP: each event acknowledged before the first page is there exactly once."""
    must = set(ledger.acknowledged)
    asked: Json = {"participants": [OBSERVER], "include_internal": True}
    asked |= {"limit": size} if tool == "query_event_nodes" else {"max_nodes": size, "include_payload": True}
    seen: Counter[str] = Counter()
    snapshots = set()
    pages = 0
    while True:
        reply = await client.call_until_answered(tool, asked)
        assert not reply.is_error, reply.content
        pages += 1
        snapshots.add(reply.content["snapshot_id"])
        for event in events_of(reply.content["root"]):
            key = event["payload"]["key"]
            seen[key] += 1
            if key in ledger.acknowledged:
                assert (event["event_id"], event["event_seq"]) == ledger.acknowledged[key]
            assert event["internal"] == (key in ledger.internal)
        if reply.content["next_cursor"] is None:
            break
        asked["cursor"] = reply.content["next_cursor"]
    assert len(snapshots) == 1, "the pages are of several snapshots"
    twice = [key for key, count in seen.items() if count > 1]
    assert not twice, f"shown twice: {twice[:5]}"
    missing = must - seen.keys()
    assert not missing, f"{len(missing)} acknowledged events are missing from {len(seen)}: {sorted(missing)[:5]}"
    assert seen.keys() <= ledger.sent
    return pages


def events_of(node: Json) -> Iterator[Json]:
    """Yield the events and references of an answer's tree."""
    for child in node["children"]:
        if child["kind"] in ("event", "event_ref"):
            yield child
        else:
            yield from events_of(child)


def _difference(shown: Counter[int], counted: Counter[int]) -> str:
    return f"missing {sorted(counted - shown)[:10]}, too many {sorted(shown - counted)[:10]}"
