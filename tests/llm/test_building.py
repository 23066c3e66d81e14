"""Builds that a model helps with: its plans are published as they are, kept, and used again without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import asyncpg
import orjson
import pytest

from myria.builds import Outcome
from myria.builds.collect import collect_garbage, tenants_with_garbage
from myria.builds.replay import replay
from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.errors import InternalError
from myria.settings import RetentionSettings, Settings
from tests.cli.conftest import Called, call
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import Oracle
from tests.llm.provider import Answer, Asked, calling
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database, Databases

PAIRS = (("ana", "ben"), ("ana", "ben", "chloé"), ("agent_1", "ana"))


def with_model(llm: Any, **sections: Mapping[str, Any]) -> Settings:
    """Return settings with a model."""
    return replace(builds.settings(**sections), llm=llm)


async def leaves_of(database: Database) -> dict[str, tuple[list[str], str, str]]:
    """Return the active snapshot's leaves of a model: events, label and summary by their first event."""
    snapshot_id = await builds.value(database, "SELECT snapshot_id FROM myria.active_snapshots")
    reached = {one for content in (await builds.contents(database, snapshot_id)).values() for one, _, _ in content[1]}
    rows = await builds.rows(
        database,
        "SELECT r.rendering_id, r.label, r.summary, r.metadata, (SELECT array_agg(e.event_id ORDER BY f.n) "
        "FROM unnest(n.event_seqs) WITH ORDINALITY f (seq, n) JOIN myria.events e ON e.event_seq = f.seq) AS ids "
        "FROM myria.renderings r JOIN myria.nodes n ON n.node_id = r.node_id WHERE r.node_type = 'leaf_topic'",
    )
    return {
        row["ids"][0]: (row["ids"], row["label"], row["summary"])
        for row in rows
        if row["rendering_id"] in reached and "written_by" in orjson.loads(row["metadata"])
    }


async def sound(database: Database, *, deep: bool = False) -> None:
    """Fail when `verify` finds anything."""
    async with Pool(database.dsn) as pool:
        report = await verify(pool, TENANT, Settings().planner, deep=deep)
    assert report.failed == 0, [check.failures for check in report.checks if check.failed]


@pytest.mark.parametrize("structure", ["tools", "json_schema"])
async def test_what_is_published_is_the_plan(
    database: Database, provide: Starting, configured: Configuring, structure: str
) -> None:
    """Each planned leaf is in the snapshot with its events, label and summary; every call is in the audit."""
    for number, pair in enumerate(PAIRS):
        await append(database.server_dsn, conversation(60, seed=number, participants=pair))
    oracle = Oracle()
    provider = provide(oracle)

    built = await builds.build(database, configured=with_model(configured(provider, structure=structure)))

    assert built.outcome is Outcome.SUCCEEDED
    assert not provider.errors
    planned = sum(len(arguments["leaves"]) for _, arguments in oracle.plans)
    leaves = await leaves_of(database)
    assert len(leaves) == planned
    expected = {leaf["summary"] for _, arguments in oracle.plans for leaf in arguments["leaves"]}
    assert {summary for _, _, summary in leaves.values()} == expected
    calls = await builds.rows(database, "SELECT * FROM myria.llm_calls ORDER BY created_at")
    assert len(calls) == len(provider.asked)
    assert {call["outcome"] for call in calls} == {"ok"}
    assert {tuple(call["mask"]) for call in calls} <= set(PAIRS)
    assert built.counts["llm_calls"] == len(calls)
    assert built.counts["llm_tokens"] == 120 * len(calls)
    assert "llm_units_degraded" not in built.counts
    await sound(database, deep=True)


async def test_a_full_build_without_the_model_uses_the_plans(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """With the provider gone a full build gives the same roots; with no model configured too."""
    await append(database.server_dsn, conversation(80, seed=4))
    provider = provide(Oracle())
    with_oracle = with_model(configured(provider))
    await builds.build(database, configured=with_oracle)
    before, asked = await builds.roots(database), len(provider.asked)

    again = await builds.build(database, configured=with_oracle, full=True)
    without = await builds.build(database, full=True)

    assert await builds.roots(database) == before
    assert len(provider.asked) == asked
    assert again.counts["llm_units_reused"] == without.counts["llm_units_reused"] > 0
    assert again.counts["scopes_changed"] == without.counts["scopes_changed"] == 0
    await sound(database, deep=True)


async def test_only_changed_units_are_asked_about(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """An incremental build asks about the units that new events changed, and shows neighbouring topics."""
    await append(database.server_dsn, conversation(120, seed=5))
    oracle = Oracle()
    llm = with_model(configured(provide(oracle)))
    await builds.build(database, configured=llm)
    first = len(oracle.plans)
    await append(database.server_dsn, conversation(12, seed=6, start=10_000_000))

    built = await builds.build(database, configured=llm)

    assert 0 < len(oracle.plans) - first < first
    assert built.counts["llm_units_planned"] == built.counts["units_planned"] <= 4
    data, _ = oracle.plans[first]
    assert data["earlier_topics"]
    assert len(await leaves_of(database)) > 0
    await sound(database, deep=True)


async def test_a_build_without_a_template_never_looks_for_plans(database: Database) -> None:
    """Without a model nothing is written, looked up or counted."""
    await append(database.server_dsn, conversation(60))
    built = await builds.build(database)

    assert not {name for name in built.counts if name.startswith("llm")}
    assert await builds.value(database, "SELECT llm_planned_at FROM myria.tenants") is None
    for table in ("llm_calls", "unit_plans", "build_units"):
        assert await builds.value(database, f"SELECT count(*) FROM myria.{table}") == 0


async def test_repairs_are_told_precisely(database: Database, provide: Starting, configured: Configuring) -> None:
    """A plan that breaks rules is refused with each violation by the names the model knows; the repaired one counts."""
    await append(database.server_dsn, conversation(30, seed=7))
    oracle = Oracle()
    told: list[str] = []

    def script(asked: Asked) -> Answer:
        if asked.body["messages"][-1]["role"] == "tool":
            told.append(asked.texts[-1])
            return oracle(asked)
        answer = oracle(asked)
        _, arguments = oracle.plans[-1]
        broken = orjson.loads(orjson.dumps(arguments))
        broken["leaves"][0]["events"] = [*broken["leaves"][0]["events"][1:], "e1", "e1"]
        return calling(asked, ("submit_plan", broken)) if answer.status == 200 else answer

    built = await builds.build(database, configured=with_model(configured(provide(script))))

    assert built.counts["llm_repairs"] == len(told) == built.counts["llm_units_planned"]
    assert all("e1 is in 2 leaves instead of one" in text for text in told)
    kinds = await builds.rows(
        database, "SELECT tools->0->>'outcome' AS outcome FROM myria.llm_calls ORDER BY created_at, call_id"
    )
    assert {row["outcome"] for row in kinds} == {"invalid_plan", "ok"}
    await sound(database)


async def test_a_hopeless_model_leaves_the_deterministic_plan(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """When the repairs are used up the deterministic tree stands, marked degraded with the reason."""
    await append(database.server_dsn, conversation(40, seed=8))
    provider = provide(lambda asked: calling(asked, ("submit_plan", {"leaves": []})))

    built = await builds.build(database, configured=with_model(configured(provider, repairs=1)))

    assert built.outcome is Outcome.SUCCEEDED
    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert await builds.roots(database) == await builds.planned(database, cutoff)
    reason = await builds.value(database, "SELECT degraded_reason FROM myria.build_tasks")
    assert reason.startswith("schema (")
    assert built.counts["llm_units_degraded"] == built.counts["units_planned"]
    await sound(database, deep=True)


async def test_a_replay_gives_the_same_roots(database: Database, provide: Starting, configured: Configuring) -> None:
    """First, incremental, partly degraded and full builds are repeated from their plans with the provider gone."""
    oracle = Oracle()

    def script(asked: Asked) -> Answer:
        return Answer(status=500) if asked.number % 3 == 0 else oracle(asked)

    provider = provide(script)
    llm = with_model(configured(provider, retries=0, breaker_failures=1000))
    built = []
    for part in range(4):
        for number, pair in enumerate(PAIRS):
            await append(
                database.server_dsn,
                conversation(25, seed=10 * part + number, participants=pair, start=part * 5000),
            )
        built.append(await builds.build(database, configured=llm, full=part == 3))
    asked = len(provider.asked)
    before = await builds.rows(database, "SELECT count(*) AS n FROM myria.renderings")

    assert sum(one.counts.get("llm_units_degraded", 0) for one in built) > 3
    async with Pool(database.server_dsn) as pool:
        for one in built:
            repeated = await replay(pool, TENANT, one.build_id, Settings().planner)
            assert repeated["equal"], repeated
            assert len(repeated["scopes"]) == len(PAIRS)
            assert all(scope["root"] is not None for scope in repeated["scopes"])

    assert len(provider.asked) == asked
    assert await builds.rows(database, "SELECT count(*) AS n FROM myria.renderings") == before
    await sound(database, deep=True)


async def test_a_replay_notices_a_difference(database: Database, provide: Starting, configured: Configuring) -> None:
    """When a stored plan is not what the build used, the replay says which scope differs."""
    await append(database.server_dsn, conversation(25, seed=3))
    built = await builds.build(database, configured=with_model(configured(provide(Oracle()))))
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute("DELETE FROM myria.build_units WHERE ctid = (SELECT ctid FROM myria.build_units LIMIT 1)")
    await connection.close()

    async with Pool(database.server_dsn) as pool:
        # The deterministic plan of that unit was never stored: the difference shows at the latest when it is read.
        try:
            repeated = await replay(pool, TENANT, built.build_id, Settings().planner)
        except InternalError:
            return
    assert not repeated["equal"]


async def test_the_audit_says_as_much_as_it_is_told_to(
    databases: Databases, provide: Starting, configured: Configuring
) -> None:
    """`full` keeps the texts, `hashed` their hashes, `off` sizes alone; old calls are collected."""
    for detail in ("full", "hashed", "off"):
        with databases.fresh() as database:
            await append(database.server_dsn, conversation(15, seed=3))
            await builds.build(database, configured=with_model(configured(provide(Oracle()), audit=detail)))
            rows = await builds.rows(database, "SELECT * FROM myria.llm_calls")
            assert rows
            for row in rows:
                assert (row["prompt"] is not None) == (row["reply"] is not None) == (detail == "full")
                assert (row["prompt_sha256"] is not None) == (row["reply_sha256"] is not None) == (detail != "off")
                assert row["prompt_bytes"] > 100
                (tool,) = orjson.loads(row["tools"])
                assert ("arguments" in tool, "arguments_sha256" in tool) == (detail == "full", detail == "hashed")
            async with Pool(database.operator_dsn) as pool:
                retention = replace(RetentionSettings(), llm_calls_s=3600.0)
                assert TENANT not in await tenants_with_garbage(pool, retention)
                await collect_garbage(pool, TENANT, retention)
                assert await builds.value(database, "SELECT count(*) FROM myria.llm_calls") == len(rows)
                none = replace(RetentionSettings(), llm_calls_s=0.0)
                assert TENANT in await tenants_with_garbage(pool, none)
                collected = await collect_garbage(pool, TENANT, none)
            assert collected.rows["llm_calls"] == len(rows)
            assert await builds.value(database, "SELECT count(*) FROM myria.llm_calls") == 0


def test_the_command_line_shows_audit_and_replay(
    databases: Databases,
    database: Database,
    provide: Starting,
    configured: Configuring,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`myria audit` lists the calls, with their texts where asked, and `myria replay` proves a build."""
    monkeypatch.setenv("COLUMNS", "200")
    databases.loop.run(append(database.server_dsn, conversation(15, seed=3)))
    built = databases.loop.run(builds.build(database, configured=with_model(configured(provide(Oracle())))))

    def myria(*arguments: str) -> Called:
        called = call(*arguments, "--dsn", database.dsn)
        assert called.status in (0, 3), called.err
        return called

    listed = myria("audit")
    short = myria("audit", "--json", "--build", built.build_id).json
    full = myria("audit", "--json", "--full").json
    drawn = myria("audit", "--full", "--workflow", "build")
    none = myria("audit", "--json", "--failed").json
    replayed = myria("replay", built.build_id)
    missing = myria("replay", "bld_none", "--json")

    assert listed.status == 0
    assert "ana, ben" in listed.out
    assert short["calls"][0]["build_id"] == built.build_id
    assert "prompt" not in short["calls"][0]
    assert "=== data" in full["calls"][0]["prompt"]
    assert "submit_plan" in drawn.out
    assert none == {"calls": []}
    assert replayed.status == 0
    assert "equal" in replayed.out
    assert missing.status == 3
