"""What the control plane tells of memory and builds: read out of PostgreSQL, exact, cheap, never going backwards."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from typing import Any, get_args

import asyncpg
import pytest

from myria.builds.collect import collect_garbage
from myria.builds.snapshots import Registry
from myria.db.database import ALL_TENANTS
from myria.db.database import Database as Pool
from myria.erasure.commands import Erasures
from myria.erasure.model import Selection
from myria.log.withdrawal.model import ReviewState
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.feedback import RATED_TOOLS, Feedback
from myria.notes.folding import event_log
from myria.notes.holding import Holding
from myria.notes.model import Changes
from myria.notes.reviewing import Review
from myria.settings import RetentionSettings, Settings
from myria_migrations import functions
from myria_monitoring import figures as reading
from myria_monitoring.catalogue import BY_NAME
from myria_monitoring.exposition import BUILD_SECONDS, about_memory, text_of
from myria_monitoring.figures import FigureReader, sql
from myria_server.api.tools import TOOLS
from tests.metrics.scraping import Samples, samples
from tests.support import builds
from tests.support.events import TENANT, append, conversation, event
from tests.support.postgres import Database

DECIDED = get_args(ReviewState)


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    """The control plane's connections."""
    async with Pool(database.operator_dsn) as one:
        yield one


async def told(pool: Pool, *, tenant_label: bool = False) -> Samples:
    """Return what a scrape would show now."""
    return samples(text_of(about_memory(await FigureReader(pool).read(), tenant_label=tenant_label)).decode())


async def test_an_empty_database_has_every_series(pool: Pool) -> None:
    """Whatever can be foreseen is there with a zero before the first event: a rate needs where it began."""
    seen = await told(pool)
    assert seen["myria_tenants"] == 0
    assert seen["myria_tail_events"] == 0
    assert seen["myria_memory_lag_seconds", "paused=false"] == 0
    assert seen["myria_builds_finished_total", "outcome=failed", "trigger=tail_threshold"] == 0
    assert seen["myria_pointer_moves_total", "kind=rollback"] == 0
    assert seen["myria_validation_failures_total", "rule=no_cross_scope"] == 0
    assert seen["myria_build_duration_seconds_count", "outcome=succeeded"] == 0
    assert seen["myria_log_bytes"] > 0
    assert seen["myria_database_bytes"] > seen["myria_log_bytes"]
    memory = {one.name for one in BY_NAME.values() if one.plane == "memory"}
    assert {key[0] for key in seen} == {name for one in memory for name in BY_NAME[one].series}


async def test_the_tail_and_its_age(database: Database, pool: Pool) -> None:
    """Events that a build would take are counted, internal ones are not; a build empties the tail."""
    await append(database.server_dsn, [event(n, f"word {n}") for n in range(5)])
    await append(database.server_dsn, [event(9, "quiet", internal=True)])
    await append(database.server_dsn, [event(1, "elsewhere")], tenant="other")
    age = "SELECT extract(epoch FROM clock_timestamp() - min(ingested_at))::double precision FROM myria.events"
    at_least = await builds.value(database, age)
    seen = await told(pool)
    at_most = await builds.value(database, age)
    assert seen["myria_tenants"] == 2
    assert seen["myria_tail_events"] == 6
    assert seen["myria_tail_events_max", "paused=false"] == 5
    assert seen["myria_log_events"] >= 7
    assert at_least <= seen["myria_memory_lag_seconds", "paused=false"] <= at_most
    assert seen["myria_snapshot_age_seconds"] == 0
    began = time.time()
    await builds.build(database)
    await builds.build(database, tenant="other")
    seen = await told(pool)
    assert seen["myria_tail_events"] == 0
    assert seen["myria_memory_lag_seconds", "paused=false"] == 0
    assert seen["myria_snapshots", "status=active"] == 2
    assert seen["myria_last_build_success_timestamp_seconds"] >= began - 1
    await append(database.server_dsn, [event(20, "more")], tenant="other")
    assert (await told(pool))["myria_snapshot_age_seconds"] > 0


async def test_tenants_are_labels_only_by_setting(database: Database, pool: Pool) -> None:
    """Without metrics.tenant_label no tenant's name leaves; with it each has its own series."""
    await append(database.server_dsn, [event(n, "x") for n in range(3)], tenant="acme")
    await append(database.server_dsn, [event(1, "y")], tenant="beta")
    assert not [key for key in await told(pool) if any("acme" in part for part in key)]
    stored = "SELECT octet_length(payload::text) FROM myria.events WHERE tenant_id = $1"
    each = {tenant: await builds.value(database, stored, tenant, tenant=tenant) for tenant in ("acme", "beta")}
    assert (await told(pool))["myria_stored_payload_bytes"] == 3 * each["acme"] + each["beta"]
    seen = await told(pool, tenant_label=True)
    assert seen["myria_stored_payload_bytes", "tenant=acme"] == 3 * each["acme"]
    assert seen["myria_stored_payload_bytes", "tenant=beta"] == each["beta"]
    assert seen["myria_tail_events", "tenant=acme"] == 3
    assert seen["myria_tail_events", "tenant=beta"] == 1
    assert seen["myria_memory_lag_seconds", "paused=false", "tenant=acme"] > 0
    assert seen["myria_tail_events_max", "paused=false"] == 3


async def test_builds_are_counted_as_they_end(database: Database, pool: Pool) -> None:
    """By trigger and outcome, with their durations, phases and tasks; the pointer's moves by kind."""
    await append(database.server_dsn, conversation(60))
    await builds.build(database)
    await append(database.server_dsn, [event(100_000, "new")])
    await builds.build(database, trigger="inactivity", hold=True)
    seen = await told(pool)
    assert seen["myria_builds_finished_total", "outcome=succeeded", "trigger=manual"] == 1
    assert seen["myria_builds_finished_total", "outcome=held", "trigger=inactivity"] == 1
    assert seen["myria_build_duration_seconds_count", "outcome=succeeded"] == 1
    assert seen["myria_build_duration_seconds_bucket", "le=+Inf", "outcome=held"] == 1
    assert seen["myria_build_duration_seconds_sum", "outcome=held"] > 0
    assert seen["myria_build_phase_duration_seconds_count", "phase=start"] == 2
    assert seen["myria_build_phase_duration_seconds_count", "phase=compile"] == 2
    assert seen["myria_build_phase_duration_seconds_count", "phase=queue"] == 0
    assert seen["myria_build_tasks_total", "outcome=done"] >= 2
    assert seen["myria_build_tasks_total", "outcome=degraded"] == 0
    assert seen["myria_pointer_moves_total", "kind=publish"] == 1
    assert seen["myria_tenants_paused", "reason=held_snapshot"] == 1
    assert seen["myria_tail_events_max", "paused=true"] == 1
    assert seen["myria_oldest_pause_seconds"] > 0


async def test_queued_and_running_builds(database: Database, pool: Pool) -> None:
    """A request that nobody took up counts as queued, and so does a build without a worker; both have an age."""
    registry = Registry(pool, Settings())
    await registry.request_build(TENANT)
    await builds.queue(database, tenant="other")
    await asyncio.sleep(0.05)
    seen = await told(pool)
    assert seen["myria_builds", "state=queued"] == 2
    assert seen["myria_builds", "state=running"] == 0
    assert seen["myria_oldest_queued_build_seconds"] >= 0.05
    assert seen["myria_oldest_running_build_seconds"] == 0
    async with pool.write("other") as connection:
        await connection.execute("UPDATE myria.builds SET status = 'running', started_at = clock_timestamp()")
    seen = await told(pool)
    assert seen["myria_builds", "state=running"] == 1
    assert seen["myria_oldest_running_build_seconds"] > 0


async def test_a_rollback_and_a_failure_show(database: Database, pool: Pool) -> None:
    """A rolled-back tenant is paused and its lag is told apart; one whose build failed backs off until a success."""
    registry = Registry(pool, Settings())
    await append(database.server_dsn, conversation(20))
    await builds.build(database)
    await append(database.server_dsn, [event(100_000, "new")])
    await builds.build(database)
    await registry.rollback(TENANT)
    seen = await told(pool)
    assert seen["myria_tenants_paused", "reason=rollback"] == 1
    assert seen["myria_pointer_moves_total", "kind=rollback"] == 1
    assert seen["myria_memory_lag_seconds", "paused=true"] > 0
    assert seen["myria_memory_lag_seconds", "paused=false"] == 0
    build_id = await builds.queue(database)
    await _fail(pool, build_id, ["no_dust", "no_dust", "made_up"])
    seen = await told(pool)
    assert seen["myria_validation_failures_total", "rule=no_dust"] == 2
    assert seen["myria_validation_failures_total", "rule=other"] == 1
    assert seen["myria_builds_finished_total", "outcome=failed", "trigger=manual"] == 1
    assert seen["myria_tenants_backing_off"] == 1
    await builds.build(database)
    assert (await told(pool))["myria_tenants_backing_off"] == 0


async def test_totals_survive_retention_and_folding(database: Database, pool: Pool) -> None:
    """Builds that are collected and totals that are folded, also by two at once, leave every counter as it was."""
    retention = RetentionSettings(keep_snapshots=1, min_archived_s=0, keep_failed=0)
    for number in range(6):
        await append(database.server_dsn, [event(number * 10_000, f"word {number}")])
        await builds.build(database)
    before = _counters(await told(pool))
    await collect_garbage(pool, TENANT, retention)
    async with pool.read(ALL_TENANTS) as connection:
        assert await connection.fetchval("SELECT count(*) FROM myria.builds") < 6
    assert _counters(await told(pool)) == before
    admin = await asyncpg.connect(database.superuser_dsn)
    try:
        await admin.execute(
            "INSERT INTO myria.tallies SELECT 'pointer_moves', ARRAY['publish'], 1 FROM generate_series(1, 1500)"
        )
        await asyncio.gather(*(_fold(pool) for _ in range(3)))
        assert await admin.fetchval("SELECT count(*) FROM myria.tallies") < 60
    finally:
        await admin.close()
    after = _counters(await told(pool))
    assert after.pop(("myria_pointer_moves_total", "kind=publish")) == 1506
    assert before.pop(("myria_pointer_moves_total", "kind=publish")) == 6
    assert after == before


async def test_a_build_that_is_undone_is_not_counted(pool: Pool, database: Database) -> None:
    """The totals change in the transaction that ends the build, or not at all."""
    await append(database.server_dsn, [event(1, "x")])
    build_id = await builds.queue(database)

    async def half_way() -> None:
        async with pool.write(TENANT) as connection:
            await connection.fetchval(sql("builds.abort"), TENANT, build_id, None)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await half_way()
    assert (await told(pool))["myria_builds_finished_total", "outcome=aborted", "trigger=manual"] == 0


async def test_a_long_tail_is_counted_bit_by_bit(
    database: Database, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look counts so much and no more; the next goes on from there, and appended events are found as ever."""
    monkeypatch.setattr(reading, "COUNTED_AT_ONCE", 40)
    monkeypatch.setattr(reading, "_LEAST_COUNTED", 10)
    monkeypatch.setattr(reading, "_SETTLED", timedelta(0))
    await append(database.server_dsn, conversation(100))
    reader = FigureReader(pool)
    seen = [(await reader.read()).tenants[0].tail_events for _ in range(4)]
    assert seen == [40, 80, 100, 100]
    await append(database.server_dsn, [event(900_000, "new")])
    assert (await reader.read()).tenants[0].tail_events == 101
    await builds.build(database)
    assert (await reader.read()).tenants[0].tail_events == 0


async def test_many_tenants_cost_a_look_up_each(database: Database, pool: Pool) -> None:
    """With 1,000 tenants and a long log a look reads by index: each event of a tail once, and little more."""
    admin = await asyncpg.connect(database.superuser_dsn)
    try:
        await admin.execute(_CROWD)
        await admin.execute("VACUUM ANALYZE myria.events")
    finally:
        await admin.close()
    reader = FigureReader(pool)
    found = await reader.read()
    assert len(found.tenants) == 1000
    assert sum(one.tail_events for one in found.tenants) == 30_000
    after, touched = [0] * 1000, 0
    for name, arguments in (
        ("tenants", ()),
        ("tails", ([one.tenant for one in found.tenants], after, 500)),
        ("gauges", ()),
    ):
        async with pool.read(ALL_TENANTS) as connection:
            row = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql(f'monitoring.{name}')}", *arguments)
        for node in _nodes(json.loads(row)[0]["Plan"]):
            if node.get("Relation Name") == "events":
                assert "Index" in node["Node Type"], (name, node)
                touched += node["Actual Rows"] * node["Actual Loops"]
                if name == "tenants":
                    assert node["Actual Rows"] <= 1, node
    assert touched <= 30_000 + 5 * 1000  # the tails once, and a few looks at each tenant


async def test_an_outage_is_told_and_waits_for_nobody() -> None:
    """A database that cannot be reached gives no figures, and no error."""
    async with Pool("postgresql://nobody@127.0.0.1:1/nothing") as pool:
        reader = FigureReader(pool)
        assert await reader.latest() is None
        assert text_of(about_memory(None)) == b""
        await reader.close()


async def test_looks_are_seconds_apart(database: Database, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is scraped, also at once, the database is asked once in a while."""
    monkeypatch.setattr(reading, "PATIENCE_S", 60.0)
    monkeypatch.setattr(reading, "LOOK_S", (600.0, 600.0))
    await append(database.server_dsn, [event(1, "x")])
    reader = FigureReader(pool)
    first = await asyncio.gather(*(reader.latest() for _ in range(5)))
    assert first[0] is not None
    assert all(one is first[0] for one in first)
    await append(database.server_dsn, [event(2, "y")])
    assert await reader.latest() is first[0]


async def test_a_look_that_hangs_holds_no_scrape(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape gives up after its patience, the look goes on, and the next scrapes have its answer."""
    monkeypatch.setattr(reading, "PATIENCE_S", 0.2)
    admin = await asyncpg.connect(database.superuser_dsn)
    async with Pool(database.operator_dsn) as pool:
        reader = FigureReader(pool)
        await admin.execute("BEGIN; LOCK TABLE myria.snapshots IN ACCESS EXCLUSIVE MODE")
        assert await reader.latest() is None  # nobody lets go of the lock before
        assert await reader.latest() is None
        await admin.execute("ROLLBACK")
        async with asyncio.timeout(60):
            while await reader.latest() is None:
                pass
    await admin.close()


def test_schema_and_text_have_the_same_buckets() -> None:
    """The bounds by which the database counts are those that are told."""
    text = functions().sql
    bounds = re.search(r"unnest\(ARRAY\[('0\.1.*?)\]\)", text, re.DOTALL)
    assert bounds is not None
    assert tuple(float(one) for one in re.findall(r"'([0-9.]+)'", bounds[1])) == BUILD_SECONDS
    assert re.findall(r"'([0-9.]+)'", bounds[1]) == [str(one) for one in BUILD_SECONDS]


_CROWD = """
SELECT set_config('myria.tenant', '*', false);
INSERT INTO myria.tenants (tenant_id) SELECT 't' || n FROM generate_series(1, 500) n;
INSERT INTO myria.events (tenant_id, event_seq, event_id, scope_id, occurred_at, channel, payload)
SELECT 't' || (1 + n % 1000), n, 'evt_' || n, 1, now(), 'c', '{}' FROM generate_series(1, 30000) n;
INSERT INTO myria.builds (tenant_id, build_id, status, trigger, finished_at)
SELECT 't' || (1 + n % 1000), 'bld_' || n, 'succeeded', 'manual', now() FROM generate_series(1, 20000) n;
INSERT INTO myria.snapshots (tenant_id, snapshot_id, number, build_id, status, cutoff, tail_xid, planner_version,
    planner_settings, builder_version, summarizer_version, merge_policy_version)
SELECT 't' || (1 + n % 1000), 'snap_' || n, n, 'bld_' || n, 'archived', 0, '0', 1, '', '', '', ''
FROM generate_series(1, 20000) n;
ANALYZE myria.builds; ANALYZE myria.snapshots; ANALYZE myria.tenants;
"""


async def _fail(pool: Pool, build_id: str, rules: list[str]) -> None:
    from myria import errors
    from myria.builds import Outcome
    from myria.builds.finish import end_without_result

    error = errors.BuildInvalid("broken", violations=[{"rule": rule, "message": "x"} for rule in rules])
    await end_without_result(pool, TENANT, build_id, Outcome.FAILED, error=error, settings=Settings().builder)


async def _fold(pool: Pool) -> None:
    async with pool.write(ALL_TENANTS) as connection:
        await connection.execute(sql("triggers.fold_totals"))


def _counters(seen: Samples) -> dict[tuple[str, ...], float]:
    return {
        key: value for key, value in seen.values.items() if key[0].endswith(("_total", "_bucket", "_count", "_sum"))
    }


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


async def test_feedback_is_counted_by_tool(database: Database, pool: Pool) -> None:
    """Each of the agent's tools has a label of its own, whatever else an agent names has one together."""
    said = [(tool, relevant, False) for tool in (*RATED_TOOLS, "my own tool", "x" * 90) for relevant in (True, False)]
    async with Pool(database.server_dsn) as serving:
        await event_log(serving).append_events(
            TENANT,
            [
                Feedback(tool=tool, relevant=relevant, sufficient=sufficient).event(
                    ("ana",), timestamp=10**15 + at, speaker=None
                )
                for at, (tool, relevant, sufficient) in enumerate(said)
            ],
        )
    seen = await told(pool)
    for tool in (*RATED_TOOLS, "other"):
        for flag in ("true", "false"):
            labels = (f"relevant={flag}", "sufficient=false", f"tool={tool}")
            assert seen["myria_tool_feedback_total", *labels] == (2 if tool == "other" else 1), tool
            assert seen["myria_tool_feedback_total", labels[0], "sufficient=true", labels[2]] == 0


async def test_what_waits_for_a_review_is_counted_and_what_was_decided(database: Database, pool: Pool) -> None:
    """Held notes show with the wait of the oldest, of all tenants or of each; decisions count, repeats do not."""
    held = Draft(content="We close the kiln", kind="decision")
    async with Pool(database.server_dsn) as serving:
        log = event_log(serving)
        notes = Notes(log, content_characters=1_000, holding=Holding(kinds=frozenset({"decision"})))
        review = Review(log, page_bytes=100_000)
        kept = [
            (await notes.remember(tenant, (who,), held, contract="memento")).note_id
            for tenant, who in ((TENANT, "ana"), (TENANT, "ben"), (TENANT, "cy"), ("other", "ana"))
        ]
        await notes.remember(TENANT, ("ana",), Draft(content="The kiln is hot", kind="fact"), contract="memento")
        seen = await told(pool)
        assert (seen["myria_held_notes"], seen["myria_oldest_held_note_seconds"] > 0) == (4, True)
        assert {seen["myria_review_decisions_total", f"decision={one}"] for one in DECIDED} == {0}
        each = await told(pool, tenant_label=True)
        assert (each["myria_held_notes", f"tenant={TENANT}"], each["myria_held_notes", "tenant=other"]) == (3, 1)
        for verdict in ("approve", "approve", "hold", "refuse"):
            await review.decide_all(TENANT, kept[:1], verdict, by="reviewer")
        await review.decide_all(TENANT, kept[1:3], "approve", by="reviewer")
        await review.decide_all("other", kept[3:], "refuse", by="reviewer")
        await notes.amend(TENANT, kept[1], Changes(content="We sell it"), may_see=lambda _: True, contract="memento")
    seen = await told(pool)
    assert {one: seen["myria_review_decisions_total", f"decision={one}"] for one in DECIDED} == {
        "approved": 3,
        "refused": 2,
        "held": 1,
    }


async def test_erasures_are_counted_and_the_oldest_that_waits_shows(database: Database, pool: Pool) -> None:
    """From its beginning on one is open; with its receipt it is done, and its rows and duration count."""
    results = await append(database.server_dsn, [event(n, f"word {n}") for n in range(3)])
    erasures = Erasures(pool, Registry(pool, Settings()), event_log(pool), TENANT, actor="officer")
    erasure_id = await erasures.start(Selection(events=(results[0].event_id, results[1].event_id)), reason="r")
    seen = await told(pool)
    assert (seen["myria_erasures_open"], seen["myria_last_receipt_timestamp_seconds"]) == (1, 0)
    assert seen["myria_oldest_open_erasure_seconds"] > 0
    assert (seen["myria_erasures_total", "stage=begun"], seen["myria_erasures_total", "stage=done"]) == (1, 0)
    await erasures.run(erasure_id)
    finished = await builds.value(database, "SELECT extract(epoch FROM finished_at)::float8 FROM myria.erasures")
    seen = await told(pool)
    assert (seen["myria_erasures_open"], seen["myria_oldest_open_erasure_seconds"]) == (0, 0)
    assert seen["myria_last_receipt_timestamp_seconds"] == pytest.approx(finished)
    assert seen["myria_erasures_total", "stage=done"] == 1
    assert seen["myria_erased_rows_total", "place=events"] == 2
    assert seen["myria_erasure_duration_seconds_count"] == 1


def test_feedback_is_counted_by_the_name_of_each_tool_of_an_agent() -> None:
    """Every tool of the agent's API has a series of its own."""
    assert {tool.name for tool in TOOLS if "agent" in tool.apis} == set(RATED_TOOLS)
