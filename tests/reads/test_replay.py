"""The log is the only truth: the same events give the same trees, anywhere, in any order and builds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from myria.db.clock import to_datetime
from myria.log.event import parse_event
from myria.log.ids import new_id
from myria.log.limits import Limits
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import Settings
from tests.reads.asking import ask, walk
from tests.support.building import build_now
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database, Databases
from tests.support.processes import Spawner

CROWDS = (("ana", "ben"), ("ana", "ben", "çelik"), ("agent_1", "İlkay"))
MACHINES = (
    {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "4242", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kolkata"},
    {"PYTHONHASHSEED": "random", "LC_ALL": "C.UTF-8", "TZ": "America/St_Johns"},
)

Trees = dict[tuple[str, ...], tuple[bytes, tuple[bytes, ...]]]


async def trees(database: Database) -> Trees:
    """Return, per participant set, the root rendering and every node_id of the active snapshot."""
    connection = await asyncpg.connect(database.superuser_dsn)
    rows = await connection.fetch(
        """
        WITH RECURSIVE roots AS (
            SELECT s.participants, root.root_rendering_id AS rendering_id
            FROM myria.active_snapshots a JOIN myria.snapshots p USING (tenant_id, snapshot_id)
            CROSS JOIN myria.scopes s CROSS JOIN LATERAL (
                SELECT x.root_rendering_id FROM myria.scope_roots x
                WHERE x.scope_id = s.scope_id AND x.number::bigint <@ p.lineage ORDER BY x.number DESC LIMIT 1) root
        ), below AS (
            SELECT participants, rendering_id AS root, rendering_id FROM roots
            UNION ALL
            SELECT participants, root, child
            FROM below JOIN myria.renderings USING (rendering_id) CROSS JOIN unnest(children) AS child
        )
        SELECT participants, root, array_agg(node_id ORDER BY node_id) AS nodes
        FROM below JOIN myria.renderings USING (rendering_id) GROUP BY participants, root
        """
    )
    await connection.close()
    return {tuple(row["participants"]): (row["root"], tuple(row["nodes"])) for row in rows}


def log() -> list[bytes]:
    """Return lines of an export: three scopes, ids given, no two timestamps alike within a scope."""
    lines = []
    for number, crowd in enumerate(CROWDS):
        for at, one in enumerate(conversation(90, seed=number, participants=crowd, internal_share=0.05)):
            line: dict[str, Any] = {
                "event_id": f"evt_{number:012x}{at:020x}",
                "timestamp": to_datetime(one.timestamp).isoformat(),
                "channel": one.channel,
                "participants": list(one.participants),
                "payload": orjson.loads(one.payload_json),
                "internal": one.internal,
                "topic_hints": [{"hint": hint.hint, "confidence": hint.confidence} for hint in one.topic_hints],
            }
            lines.append(orjson.dumps(line | ({"type": one.type} if one.type else {})))
    return lines


def myria(spawn: Spawner, dsn: str, *arguments: str | Path, **environment: str) -> str:
    """Run the command `myria` on a database and return what it printed."""
    one = spawn.myria(
        *arguments,
        env={"MYRIA_POSTGRES_DSN": dsn, "MYRIA_SERVICE_LOG_LEVEL": "warning", **environment},
    )
    status = one.wait(120)
    assert status == 0, one.output()
    return one.output()


async def bring_in(database: Database, lines: list[bytes]) -> None:
    """Append lines of an export, in their order."""
    events = [parse_event(orjson.loads(line), Limits(), importing=True) for line in lines]
    async with Memory(database.server_dsn, Settings()) as memory:
        for at in range(0, len(events), 100):
            await memory.log.import_events(TENANT, events[at : at + 100])


async def queue_build(database: Database) -> str:
    """Queue an incremental build; return its id."""
    build_id = new_id("bld")
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute(
        "INSERT INTO myria.builds (tenant_id, build_id, trigger) VALUES ('default', $1, 'manual')", build_id
    )
    await connection.close()
    return build_id


@pytest.mark.processes
async def test_any_order_any_builds_any_machine(databases: Databases, spawn: Spawner) -> None:
    """The same lines in other orders, cut into other builds, on machines of other locales: the same roots and nodes."""
    rng = random.Random(8)
    found: list[Trees] = []
    for number, machine in enumerate(MACHINES):
        lines = log()
        if number:
            rng.shuffle(lines)
        cuts = sorted(rng.sample(range(1, len(lines)), number))
        with databases.fresh() as database:
            for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
                await bring_in(database, lines[start:end])
                myria(spawn, database.builder_dsn, "build", "--build", await queue_build(database), **machine)
            found.append(await trees(database))
    assert set(found[0]) == {tuple(sorted(crowd)) for crowd in CROWDS}
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.processes
async def test_an_export_rebuilt_elsewhere_gives_the_same_nodes(
    databases: Databases, spawn: Spawner, tmp_path: Path
) -> None:
    """Export, import into an empty database, build: the same node_ids and renderings, and the same answers."""
    file = tmp_path / "memory.jsonl"
    with databases.fresh() as one, databases.fresh() as other:
        for number, crowd in enumerate(CROWDS):
            await append(one.server_dsn, conversation(60, seed=10 + number, participants=crowd, internal_share=0.1))
            await build_now(one.builder_dsn)
        await append(one.server_dsn, conversation(20, seed=20, start=1000))  # late ones
        await build_now(one.builder_dsn)

        myria(spawn, one.server_dsn, "export", file)
        assert len(file.read_text(encoding="utf-8").splitlines()) == 200
        myria(spawn, other.server_dsn, "import", file)
        await build_now(other.builder_dsn, full=True)
        assert await trees(other) == await trees(one)

        query = ReferencesQuery(participants=("ana",), query="garden tomato bread", max_nodes=200)
        answers = []
        for database in (one, other):
            async with Memory(database.server_dsn, Settings()) as memory:
                answer = await ask(memory, query)
            nodes = [
                {name: node[name] for name in ("node_id", "event_id", "score", "label") if name in node}
                for node in walk(answer["root"])
            ]
            answers.append(json.dumps(nodes))
        assert answers[0] == answers[1]
