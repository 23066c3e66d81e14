"""One snapshot per request: nobody who reads during publishes and rollbacks sees a mixed answer (§14.3)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg

from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.search.queries import EventNodesQuery, ReferencesQuery
from myria.settings import BuilderSettings, Settings
from tests.reads.asking import append, ask, events_of, walk
from tests.soak.ledger import PLACED
from tests.support.building import build_now
from tests.support.counts import SOAK
from tests.support.events import TENANT, conversation, event
from tests.support.looping import CountedLoop
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

MOVES = 50 if SOAK else 12
"""Publishes and rollbacks in all; every sixth one publishes."""

READERS = 3

BEFORE = 3
"""Snapshots published before anybody reads; the others are waited for until somebody has read them."""

TREE = """
WITH RECURSIVE pinned AS (
    SELECT lineage FROM myria.snapshots WHERE snapshot_id = $1
), below (rendering_id) AS (
    SELECT root.root_rendering_id
    FROM myria.scopes s CROSS JOIN LATERAL (
        SELECT x.root_rendering_id FROM myria.scope_roots x, pinned
        WHERE x.scope_id = s.scope_id AND x.number::bigint <@ pinned.lineage ORDER BY x.number DESC LIMIT 1) root
    UNION ALL
    SELECT child FROM below JOIN myria.renderings USING (rendering_id) CROSS JOIN unnest(children) AS child
), about (rendering_id) AS (
    SELECT root.root_rendering_id
    FROM myria.scopes s CROSS JOIN LATERAL (
        SELECT x.root_rendering_id FROM myria.subject_roots x, pinned
        WHERE x.scope_id = s.scope_id AND x.number::bigint <@ pinned.lineage ORDER BY x.number DESC LIMIT 1) root
    UNION ALL
    SELECT child FROM about JOIN myria.subject_nodes USING (rendering_id) CROSS JOIN unnest(children) AS child
)
SELECT encode(r.node_id, 'hex') AS node_id, r.topic_id, r.label, r.summary
FROM below JOIN myria.renderings r USING (rendering_id)
UNION ALL
SELECT encode(n.node_id, 'hex'), n.topic_id, n.label, n.summary
FROM about JOIN myria.subject_nodes n USING (rendering_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """What a snapshot is, read from the database when nothing moves."""

    cutoff: int
    nodes: frozenset[tuple[str, str, str, str]]
    placed: frozenset[int]


@dataclass(slots=True)
class Watch:
    """Everything the readers saw, and what may be expected of each answer."""

    oracles: dict[str, Oracle] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[int, bool] = field(default_factory=dict)
    """event_seq -> internal."""

    def check(self, answer: dict[str, Any], must: set[int], *, whole: bool) -> None:
        """Check one answer against the snapshot it names."""
        oracle = self.oracles[answer["snapshot_id"]]
        self.answers[answer["snapshot_id"]] += 1
        seen = set()
        for node in walk(answer["root"]):
            if node["kind"] in ("event", "event_ref"):
                seq = node["event_seq"]
                assert seq not in seen
                seen.add(seq)
                assert node["indexed"] == (not node["internal"] and seq <= oracle.cutoff), (node, oracle.cutoff)
                if node["kind"] == "event_ref":
                    assert seq in oracle.placed
            elif node["kind"] != "root":
                told = (node["node_id"], node["topic_id"], node["label"], node["summary"])
                assert told in oracle.nodes, (node, answer["snapshot_id"])
                for child in node["children"]:
                    assert child["kind"] != "event", "a fresh event under a topic"
        if whole:
            assert must <= seen, f"missing {sorted(must - seen)[:5]} of {len(must)}"


async def _learn(connection: asyncpg.Connection[Any], watch: Watch, snapshot_id: str) -> None:
    """Read a snapshot whole; it is immutable, so any time will do."""
    cutoff = await connection.fetchval("SELECT cutoff FROM myria.snapshots WHERE snapshot_id = $1", snapshot_id)
    nodes = await connection.fetch(TREE, snapshot_id)
    placed = await connection.fetch(PLACED, snapshot_id)
    watch.oracles[snapshot_id] = Oracle(
        cutoff=cutoff, nodes=frozenset(tuple(row) for row in nodes), placed=frozenset(row[0] for row in placed)
    )


async def test_readers_never_see_a_mixed_answer(memory: Memory, database: Database) -> None:
    """During many publishes and rollbacks, under appends, each answer is of one snapshot and whole."""
    connection = await asyncpg.connect(database.superuser_dsn)
    watch = Watch()
    rng = random.Random(50)

    async def add(count: int, seed: int) -> None:
        events = [
            *conversation(count, seed=seed, start=seed * 50_000, internal_share=0.1),
            *conversation(count, seed=seed + 500, participants=("ana", "carol"), start=seed * 50_000),
        ]
        for event_, result in zip(events, await append(memory, events), strict=True):
            watch.acknowledged[result.event_seq] = event_.internal

    async def snapshot(number: int) -> str:
        await add(2, number)
        await build_now(database.builder_dsn, hold=True)
        held: str = (await memory.registry.status(TENANT))["held_snapshot_id"]
        await _learn(connection, watch, held)
        return held

    await add(15, 1)
    published = []
    for number in range(2, 2 + BEFORE):
        published.append(await snapshot(number))
        await memory.registry.publish(TENANT, published[-1])

    stop = asyncio.Event()
    readers = [asyncio.create_task(_read(memory, watch, number, stop)) for number in range(READERS)]
    try:
        for number in range(MOVES):
            await asyncio.sleep(rng.uniform(0, 0.05))
            if number % 6 == 0:
                published.append(await snapshot(number + 8))
                await memory.registry.publish(TENANT, published[-1])
                async with asyncio.timeout(PATIENCE_S):
                    while published[-1] not in watch.answers and not any(reader.done() for reader in readers):
                        await asyncio.sleep(0.005)
                continue
            active = (await memory.registry.active_snapshot(TENANT))["snapshot"]["snapshot_id"]
            others = [one for one in published if one != active]
            to = rng.choice(others if active == published[0] else [None, *others])
            moved = await memory.registry.rollback(TENANT, to)
            assert moved["previous_snapshot_id"] == active
            # What the abandoned snapshot covered is in the tail again.
            cutoff = watch.oracles[moved["snapshot_id"]].cutoff
            fresh = {seq for seq, internal in watch.acknowledged.items() if seq > cutoff and not internal}
            assert (await memory.registry.status(TENANT))["tail_events"] == len(fresh)
    finally:
        stop.set()
        await asyncio.gather(*readers)
        await connection.close()
    assert set(published[BEFORE:]) <= watch.answers.keys() <= set(published)


async def _read(memory: Memory, watch: Watch, number: int, stop: asyncio.Event) -> None:
    rng = random.Random(number)
    while not stop.is_set():
        internal = rng.random() < 0.3
        must = {seq for seq, is_internal in watch.acknowledged.items() if internal or not is_internal}
        participants = ("ana",)
        if rng.random() < 0.5:
            query = EventNodesQuery(participants=participants, limit=200, include_internal=internal)
            answer = await ask(memory, query)
        else:
            answer = await ask(
                memory, ReferencesQuery(participants=participants, max_nodes=500, include_internal=internal)
            )
        watch.check(answer, must, whole=answer["next_cursor"] is None)
        asked = ReferencesQuery(participants=participants, query="garden bread river", max_nodes=60)
        watch.check(await ask(memory, asked), set(), whole=False)
        await asyncio.sleep(0.01)


async def test_after_a_rollback_the_tail_holds_what_was_covered(memory: Memory, database: Database) -> None:
    """The same events answer before and after a rollback; what the abandoned snapshot covered is no longer indexed."""
    await append(memory, conversation(30, seed=1))
    await build_now(database.builder_dsn)
    first = (await memory.registry.active_snapshot(TENANT))["snapshot"]
    await append(memory, conversation(30, seed=2, start=100_000))
    await build_now(database.builder_dsn)
    query = EventNodesQuery(participants=("ana", "ben"), limit=200)
    before = await ask(memory, query)

    moved = await memory.registry.rollback(TENANT)
    after = await ask(memory, query)
    assert moved["snapshot_id"] == after["snapshot_id"] == first["snapshot_id"]
    assert [one["event_id"] for one in events_of(after)] == [one["event_id"] for one in events_of(before)]
    assert all(one["indexed"] for one in events_of(before))
    assert {one["event_seq"] for one in events_of(after) if one["indexed"]} == {
        one["event_seq"] for one in events_of(after) if one["event_seq"] <= first["cutoff"]
    }
    status = await memory.registry.status(TENANT)
    assert (status["tail_events"], status["paused"], status["paused_reason"]) == (30, True, "rollback")


async def test_nothing_is_rebuilt_after_a_rollback_until_resumed(memory: Memory, database: Database) -> None:
    """Triggers that are due a hundred times over start no build while a rollback pauses them; then they do."""
    settings = replace(
        Settings(),
        builder=BuilderSettings(
            max_unindexed_events=1,
            inactivity_timeout_s=0.05,
            poll_s=0.05,
            min_interval_s=0,
            time_share=1,
            long_tail_time_share=1,
        ),
    )
    launched: list[str] = []

    async def launch(tenant: str, build_id: str) -> int:
        from myria.builds.run import run_build

        launched.append(build_id)
        return (await run_build(settings, database.builder_dsn, tenant, build_id)).exit_status

    async with Pool(database.operator_dsn) as pool:
        control = CountedLoop(pool, settings, launch)
        task = asyncio.create_task(control.run())
        try:
            await append(memory, [event(1, "one"), event(2, "two")])
            await _until(memory, tail=0, active=True)
            await append(memory, [event(3, "three"), event(4, "four")])
            await _until(memory, tail=0, active=True)
            built = len(launched)
            await memory.registry.rollback(TENANT)
            await append(memory, [event(5, "five")])
            await control.looks(5)
            assert len(launched) == built
            status = await memory.registry.status(TENANT)
            assert (status["tail_events"], status["paused"], status["building"], status["queued"]) == (
                3,
                True,
                False,
                0,
            )

            await memory.registry.resume(TENANT)
            await _until(memory, tail=0, active=True)
            assert len(launched) > built
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _until(memory: Memory, *, tail: int, active: bool) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await memory.registry.status(TENANT)
            if status["tail_events"] == tail and (status["active_snapshot_id"] is not None) == active:
                return
            await asyncio.sleep(0.02)
