"""What language models were asked and what it cost is told to Prometheus, and outlives the audit."""

from __future__ import annotations

from dataclasses import replace

from myria.builds.collect import collect_garbage
from myria.db.database import Database as Pool
from myria.memory import Memory
from myria.search.queries import ReferencesQuery
from myria.settings import RetentionSettings, Settings
from myria_monitoring.exposition import about_memory, text_of
from myria_monitoring.figures import FigureReader
from tests.llm.conftest import Configuring, Starting
from tests.llm.oracle import Oracle
from tests.llm.provider import Answer, Asked, calling
from tests.llm.test_building import with_model
from tests.metrics.scraping import Samples, samples
from tests.support import builds
from tests.support.events import TENANT, append, conversation
from tests.support.postgres import Database


async def _told(database: Database) -> Samples:
    async with Pool(database.operator_dsn) as pool:
        return samples(text_of(about_memory(await FigureReader(pool).read())).decode())


async def test_calls_tokens_money_time_failures_units_and_repairs_are_told(
    database: Database, provide: Starting, configured: Configuring
) -> None:
    """A build with a failure and a repair, and a walk, add up in the metrics, before and after the audit is pruned."""
    oracle = Oracle()

    def script(asked: Asked) -> Answer:
        if asked.number == 1:
            return Answer(status=500)
        return calling(asked, ("nonsense", {})) if asked.number == 2 else oracle(asked)

    await append(database.server_dsn, conversation(40, seed=2))
    provider = provide(script)
    llm = configured(provider, breaker_failures=100)
    assert (await _told(database))["myria_llm_calls_total", "outcome=ok", "workflow=walk"] == 0
    built = await builds.build(database, configured=with_model(llm))
    calls = len(provider.asked)
    async with Memory(database.server_dsn, replace(Settings(), llm=llm)) as memory:
        await memory.retrieval.query_references(
            TENANT, ReferencesQuery(participants=("ana",), query="garden", max_nodes=20)
        )
    async with Pool(database.operator_dsn) as pool:
        await collect_garbage(pool, TENANT, replace(RetentionSettings(), llm_calls_s=0.0))

    told = await _told(database)

    assert told["myria_llm_calls_total", "outcome=ok", "workflow=build"] == calls - 2
    assert told["myria_llm_calls_total", "outcome=http_5xx", "workflow=build"] == 1
    assert told["myria_llm_calls_total", "outcome=unknown_tool", "workflow=build"] == 1
    assert told["myria_llm_calls_total", "outcome=ok", "workflow=walk"] == 1
    assert told["myria_llm_tokens_total", "direction=output", "workflow=walk"] == 20
    assert round(told["myria_llm_cost_usd_total", "workflow=walk"], 6) == 0.0001
    assert told["myria_llm_call_duration_seconds_count", "workflow=build"] == calls
    assert told["myria_llm_units_total", "result=planned"] == built.counts["llm_units_planned"]
    assert told["myria_llm_units_total", "result=degraded"] == 0
    assert told["myria_llm_plan_repairs_total"] == 1
