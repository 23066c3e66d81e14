"""Every limit trips, by its name, and then the deterministic path stands."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from myria.access.store import AccessStore
from myria.builds import Outcome
from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import Settings
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import Oracle
from tests.llm.provider import Answer, Asked, calling
from tests.llm.test_building import sound, with_model
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database, Databases

QUERY = ReferencesQuery(participants=("ana",), query="garden tomato bread", max_nodes=24)


def looking(asked: Asked) -> Answer:
    """Look around for ever, by calls that cost something."""
    if any("earlier_topics" in text for text in asked.texts) and "inspect_subtree" not in asked.tools:
        return Answer(status=500)
    return calling(asked, ("fetch_events", {"event_ids": ["e1", "e2", "e3"]}))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"unit_rounds": 2}, "budget_rounds"),
        ({"task_calls": 3}, "budget_calls"),
        ({"task_tokens": 6_000}, "budget_tokens"),
        ({"task_bytes": 3_000}, "budget_bytes"),
        ({"task_usd": 0.0003}, "budget_cost"),
        ({"task_deadline_s": 0.3}, "budget_time"),
    ],
)
async def test_each_limit_of_a_build_task_trips(
    database: Database, provide: Starting, configured: Configuring, limits: dict[str, Any], reason: str
) -> None:
    """Rounds, tokens, bytes, money and time each end a task's use of the model; the deterministic tree is published."""
    await append(database.server_dsn, conversation(60, seed=2))
    slow = "task_deadline_s" in limits
    provider = provide(lambda asked: replace(looking(asked), after_s=0.12 if slow else 0.0))

    llm = configured(provider, **{"max_output_tokens": 500, "unit_rounds": 50, **limits})

    built = await builds.build(database, configured=with_model(llm))

    assert built.outcome is Outcome.SUCCEEDED
    found = await builds.value(database, "SELECT degraded_reason FROM myria.build_tasks")
    assert reason in found or (slow and "timeout" in found)
    cutoff = await builds.value(database, "SELECT max(event_seq) FROM myria.events")
    assert await builds.roots(database) == await builds.planned(database, cutoff)
    if "unit_rounds" not in limits:
        assert len(provider.asked) < 50
    await sound(database)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"walk_rounds": 2}, "budget_rounds"),
        ({"walk_tokens": 9_000}, "budget_tokens"),
        ({"walk_bytes": 3_000}, "budget_bytes"),
        ({"walk_usd": 0.0003}, "budget_cost"),
        ({"walk_deadline_s": 0.3}, "budget_time"),
    ],
)
async def test_each_limit_of_a_walk_trips(
    database: Database, provide: Starting, configured: Configuring, limits: dict[str, Any], reason: str
) -> None:
    """Rounds, tokens, bytes, money and time each end a walk; the deterministic answer comes back."""
    await append(database.server_dsn, conversation(80, seed=2))
    await builds.build(database)
    provider = provide(
        lambda asked: replace(calling(asked, ("fetch_events", {"event_ids": ["e1", "e2"]})), after_s=0.05)
    )
    llm = configured(provider, **{"max_output_tokens": 500, "walk_rounds": 50, **limits})
    async with Memory(database.server_dsn, replace(Settings(), llm=llm)) as memory:
        plain = await memory.retrieval.query_references(TENANT, replace(QUERY, mode="deterministic"))
        walked = await memory.retrieval.query_references(TENANT, QUERY)
    assert walked["degraded_reason"] in {reason, "timeout" if reason == "budget_time" else reason}
    assert walked["root"] == plain["root"]
    # In a time so short the first call may not have been sent.
    assert reason == "budget_time" or walked["walk"]["calls"]
    assert walked["walk"]["calls"] < 25


async def test_a_provider_that_is_down_costs_its_failure_budget_at_most(
    databases: Databases, provide: Starting, configured: Configuring
) -> None:
    """With a hanging provider a build makes the calls until it is left alone, and plans all else without it."""
    log = conversation(600, seed=1)
    timeout, failures = 2.0, 3
    provider = provide(lambda _: Answer(hang=True))
    llm = configured(provider, retries=0, call_timeout_s=timeout, breaker_failures=failures, breaker_pause_s=600)
    counts = {}
    for down in (False, True):
        with databases.fresh() as database:
            await append(database.server_dsn, log)
            counts[down] = (await builds.build(database, configured=with_model(llm) if down else Settings())).counts

    # A call that had no time to be sent is a failure too, which the provider does not hear of.
    assert 0 < len(provider.asked) <= failures
    assert counts[True]["llm_calls"] <= failures
    assert counts[True]["llm_units_degraded"] == counts[True]["units_planned"] > 20
    for work in ("units_planned", "leaves_planned", "events_read", "rows_nodes", "rows_renderings"):
        assert counts[True][work] == counts[False][work], work


async def test_a_hung_provider_never_delays_an_answer(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """Answers asked for at once with a provider that hangs for an hour all come, also those that wait their turn."""
    await append(database.server_dsn, conversation(80, seed=2))
    await builds.build(database)
    provider = provide(lambda _: Answer(hang=True))
    llm = configured(provider, call_timeout_s=3600, walk_deadline_s=2.0, concurrency=2, breaker_failures=1000)
    async with Memory(database.server_dsn, replace(Settings(), llm=llm)) as memory:
        await memory.retrieval.query_references(TENANT, replace(QUERY, mode="deterministic"))
        async with asyncio.timeout(300):
            answers = await asyncio.gather(*(memory.retrieval.query_references(TENANT, QUERY) for _ in range(5)))
    assert all(answer["degraded"] for answer in answers)
    assert 0 < len(provider.asked) <= 5


async def test_a_well_behaved_provider_degrades_nothing(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """With the default limits a sound model plans every unit, long ones page by page."""
    await append(database.server_dsn, conversation(150, seed=12))
    oracle = Oracle()
    llm = configured(provide(oracle), page_events=8)

    built = await builds.build(database, configured=with_model(llm))

    assert "llm_units_degraded" not in built.counts
    assert built.counts["llm_units_planned"] == built.counts["units_planned"]
    assert any(data["pages"] > 1 for data, _ in oracle.plans)
    await sound(database, deep=True)


async def test_a_tenants_tokens_of_a_day_end_walks_and_builds(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """Once they are used up the provider is asked nothing more, whoever asks; another tenant's calls go on."""
    await append(database.server_dsn, conversation(60, seed=2))
    await append(database.server_dsn, conversation(60, seed=2), tenant="other")
    provider = provide(lambda asked: calling(asked, ("choose", {"stop": True})))
    llm = configured(provider)
    settings = replace(Settings(), llm=llm)
    async with Pool(database.operator_dsn) as control, Memory(database.server_dsn, settings) as memory:
        store = AccessStore(control)
        first = await memory.retrieval.query_references(TENANT, QUERY)
        assert memory.retrieval.walker is not None
        await memory.retrieval.walker.settle()
        used = (await store.tenant(TENANT))["use"]["model_tokens_per_day"]
        assert first["walk"]["tokens"] == used > 0
        await store.set_quotas(TENANT, {"model_tokens_per_day": used})
        asked = len(provider.asked)
        walked = await memory.retrieval.query_references(TENANT, QUERY)
        assert walked["degraded_reason"] == "budget_tenant"
        assert (
            walked["root"]
            == (await memory.retrieval.query_references(TENANT, replace(QUERY, mode="deterministic")))["root"]
        )
        built = await builds.build(database, configured=with_model(llm))
        assert built.outcome is Outcome.SUCCEEDED
        assert "budget_tenant" in await builds.value(database, "SELECT degraded_reason FROM myria.build_tasks")
        assert len(provider.asked) == asked
        assert (await memory.retrieval.query_references("other", QUERY))["walk"]["calls"] == 1
    await sound(database)
