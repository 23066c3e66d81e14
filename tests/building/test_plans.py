"""Every statement that grows with the log is served by an index, under row-level security, as the role that runs it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from myria.db.database import Database as Pool
from myria.db.queries import sql
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database

MOMENT = datetime(2026, 1, 1, 12, tzinfo=UTC)
IDS = [bytes(32), bytes(range(32))]

BUILDER: dict[str, tuple[Any, ...]] = {
    "trees.scope_root": (1, "snap_x"),
    "trees.renderings": (IDS,),
    "trees.leaf_node_ids": (IDS[0],),
    "trees.block_nodes": (IDS[0], 2048, 4096, 1),
    "trees.under": (IDS[0],),
    "trees.changes": (1, "700", 5, 50),
    "trees.count_events": (1, 50),
    "trees.events_after": (1, MOMENT, 5, 50, 256, 3),
    "trees.events_before": (1, MOMENT, 5, 50, 64, 3),
    "trees.place": (1, MOMENT, 5),
    "trees.events_by_seq": ([1, 2, 3],),
    "builds.high_water_mark": (),
    "builds.list_dirty_scopes": ("bld_x", 5, 50),
    "builds.claim_task": ("bld_x", "worker", 15.0),
    "builds.divide_scope": ("bld_x", 1, 50, 64),
    "builds.claim_part": ("bld_x", None, "worker", 15.0, 3),
    "builds.renew_parts": ("bld_x", "worker", 15.0),
    "builds.part_counts": ("bld_x", 1),
    "builds.part_results": ("bld_x", 1),
    "builds.any_open_task": ("bld_x",),
    "builds.open_tasks": ("bld_x",),
    "builds.newest": (),
    "builds.page": (MOMENT, "bld_x", 20),
    "builds.failed_tasks": ("bld_x",),
    "browse.event_ids": ([1, 2, 3],),
    "browse.renderings": (IDS,),
    "llm.spent_by_build": ("bld_x",),
    "snapshots.active": (),
    "snapshots.page": (None, None, 20),
    "triggers.count_tail": (5,),
    "triggers.last_tail_event": (5,),
    "snapshots.freshness": ("snap_x", 1_000),
    "snapshots.moves_to": (["snap_x"], 3),
    "subjects.along": (IDS[0], ["6b", "7a"]),
}
OPERATOR: dict[str, tuple[Any, ...]] = {
    "triggers.reaches": (5, 100),
    "triggers.state": (),
    "collect.scopes": (0, 500),
    "collect.roots": ([1, 2],),
    "collect.outlines": (IDS,),
    "collect.delete_renderings": (IDS,),
    "collect.delete_nodes": (IDS,),
    "collect.delete_blocks": (IDS,),
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_nothing_scans_a_whole_table(database: Database, mode: str) -> None:
    """With sequential scans priced out no statement needs one: the policies leave every index condition usable."""
    await append(database.server_dsn, conversation(200))
    await builds.build(database)

    for dsn, statements in ((database.builder_dsn, BUILDER), (database.operator_dsn, OPERATOR)):
        async with Pool(dsn) as pool:
            for name, arguments in statements.items():
                async with pool.write(TENANT) as connection:
                    await connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
                    await connection.execute("SET LOCAL enable_seqscan = off")
                    plan = await connection.fetch(f"EXPLAIN (COSTS OFF) {sql(name)}", TENANT, *arguments)
                lines = [row[0].strip() for row in plan]
                assert not [line for line in lines if "Seq Scan" in line], (name, lines)
                reads = [line for line in lines if line.startswith(("Index Cond", "Recheck Cond"))]
                assert any("tenant_id" in line for line in reads), (name, lines)


async def test_dirty_scopes_are_found_in_the_index_alone(database: Database) -> None:
    """Listing the scopes with news reads the primary key's index and no event."""
    await append(database.server_dsn, conversation(400))
    async with Pool(database.dsn) as pool, pool.connection() as connection:
        await connection.execute("VACUUM ANALYZE myria.events")
    async with Pool(database.builder_dsn) as pool, pool.write(TENANT) as connection:
        await connection.execute("SET LOCAL enable_seqscan = off")
        await connection.execute("SET LOCAL enable_bitmapscan = off")
        plan = await connection.fetch(f"EXPLAIN (COSTS OFF) {sql('builds.list_dirty_scopes')}", TENANT, "bld_x", 5, 50)

    assert any("Index Only Scan using events_pkey" in row[0] for row in plan)
