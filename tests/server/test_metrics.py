"""What is counted, and that scraping is valid Prometheus text."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from myria.log.event import parse_event
from myria.log.limits import limits_of
from myria.memory import Memory
from myria.settings import PostgresSettings, Settings
from myria_monitoring.catalogue import BY_NAME, METRICS
from myria_monitoring.exposition import gauge, text_of
from myria_server import metrics as metrics_module
from myria_server.metrics import ServerMetrics
from tests.metrics.scraping import samples
from tests.server.wire import Served, event, serving
from tests.support.patience import until
from tests.support.postgres import Database


async def test_calls_are_counted_by_face_tool_and_outcome(served: Served) -> None:
    """Good calls as ok, refused ones under their code, also those whose JSON was refused; and how long they took."""
    for version in ("2026-07-28", "2025-06-18"):
        await served.call("append_event", event(), version=version)
        await served.call("append_event", event(channel=""), version=version)
    await served.call("append_event", event(payload={"a": float("nan")}))
    await served.call("get_event", {"event_id": "evt_none", "participants": ["a"]})
    await served.post(b"{", {"content-type": "application/json"})
    await served.call("trigger_build", {})
    await served.post({}, {"content-type": "application/json", "host": "evil.example"})
    seen = samples((await served.client.get("/metrics")).text)
    assert seen["myria_requests_total", "face=core", "outcome=ok", "tool=append_event"] == 2
    assert seen["myria_requests_total", "face=core", "outcome=invalid_text", "tool=append_event"] == 2
    assert seen["myria_requests_total", "face=core", "outcome=malformed_json", "tool=append_event"] == 1
    assert seen["myria_requests_total", "face=core", "outcome=event_not_found", "tool=get_event"] == 1
    assert seen["myria_requests_total", "face=admin", "outcome=ok", "tool=trigger_build"] == 1
    assert seen["myria_requests_total", "face=admin", "outcome=ok", "tool=get_snapshot_status"] == 0
    assert seen["myria_http_refusals_total", "reason=malformed_json"] == 1
    assert seen["myria_http_refusals_total", "reason=foreign_host"] == 1
    assert seen["myria_request_duration_seconds_count", "face=core", "tool=append_event"] == 5
    assert seen["myria_requests_in_flight"] == 0
    assert seen["process_resident_memory_bytes"] > 0


async def test_the_domain_reports_into_them(memory: Memory) -> None:
    """Commits and caches are told by whoever makes them."""
    metrics = ServerMetrics()
    metrics.commit_done("acme", 3)
    metrics.commit_done("beta", 200)
    metrics.caches["segments"] = lambda: {"bytes": 10, "hits": 4, "misses": 1}
    metrics.questions = lambda: {"computed": 3, "failed": 1}
    metrics.looks = lambda: {"looked": 2, "failed": 1}
    async with serving(memory, metrics=metrics) as served:
        seen = samples((await served.client.get("/metrics")).text)
    assert seen["myria_append_batch_events_count"] == 2
    assert seen["myria_append_batch_events_sum"] == 203
    assert seen["myria_appended_events_total",] == 203
    assert seen["myria_append_batch_events_bucket", "le=4.0"] == 1
    assert seen["myria_question_vectors_total", "outcome=failed"] == 1
    assert seen["myria_second_looks_total", "outcome=looked"] == 2
    assert seen["myria_cache_bytes", "cache=segments"] == 10
    assert seen["myria_cache_lookups_total", "cache=segments", "result=hit"] == 4


async def test_tenants_have_series_of_their_own_by_setting(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each appended, with repeats; those who come beyond the bound are counted together."""
    monkeypatch.setattr(metrics_module, "MAX_TENANTS", 2)
    metrics = ServerMetrics(tenant_label=True)
    async with Memory(database.server_dsn, settings, on_commit=metrics.commit_done) as memory:
        for tenant in ("acme", "beta", "acme", "gamma", "delta"):
            await memory.log.append_events(tenant, [parse_event(event(), limits_of(settings))])
        async with serving(memory, settings, metrics=metrics) as served:
            seen = samples((await served.client.get("/metrics")).text)
    told = {key[1]: seen[key] for key in seen if key[0] == "myria_appended_events_total"}
    assert told == {"tenant=acme": 2, "tenant=beta": 1, "tenant=(other)": 2}


async def test_what_a_serving_process_tells(memory: Memory, settings: Settings) -> None:
    """Itself, every family of its plane and nothing about memory or builds, which would be told as often as it runs."""
    metrics = ServerMetrics()
    metrics.caches["retrieval"] = memory.retrieval.cache.figures
    for name, pool in memory.pools.items():
        metrics.pools[name] = pool.figures
    metrics.refused("batch")
    async with serving(memory, settings, metrics=metrics) as served:
        await served.call("query_event_nodes", {"participants": ["a"]})
        seen = samples((await served.client.get("/metrics")).text)
    told = {one.name for one in METRICS if one.plane in {"serving", "process"}}
    assert {key[0] for key in seen if not key[0].startswith("process_")} == {
        name for one in told for name in BY_NAME[one].series
    }
    assert seen["myria_database_up"] == 1
    assert seen["myria_ready"] == 1
    assert seen["myria_pool_limit", "pool=reads"] == settings.postgres.pool_size
    assert seen["myria_pool_limit", "pool=appends"] == settings.postgres.append_pool_size
    assert seen["myria_pool_connections", "pool=reads", "state=idle"] >= 1
    assert seen["myria_pool_connections", "pool=reads", "state=used"] == 0
    assert seen["myria_requests_total", "face=admin", "outcome=ok", "tool=rollback"] == 0
    assert seen["myria_answers_degraded_total", "reason=other", "tool=query_references"] == 0


async def test_waits_for_a_connection_are_counted(database: Database) -> None:
    """The second of two that want the only connection waits, and the pool says so."""
    settings = replace(Settings(), postgres=PostgresSettings(pool_size=1))
    async with Memory(database.server_dsn, settings) as memory:
        async with memory.database.connection():
            other = asyncio.create_task(memory.registry.active_snapshot("default"))
            await until(lambda: memory.database.figures()["waits"], "the wait")
            assert memory.database.figures() == {"used": 1, "idle": 0, "limit": 1, "waits": 1}
        await other
        assert memory.database.figures() == {"used": 0, "idle": 1, "limit": 1, "waits": 1}


async def test_degraded_answers_are_counted_with_bounded_reasons(served: Served) -> None:
    """An answer that says degraded is counted by tool; a reason nobody foresaw is other."""
    metrics = served.server.app.metrics
    metrics.answered_degraded("query_references", "the moon")
    seen = samples((await served.client.get("/metrics")).text)
    assert seen["myria_answers_degraded_total", "reason=other", "tool=query_references"] == 1


async def test_another_process_is_scraped_beside(served: Served) -> None:
    """Its text follows ours; when it does not answer, ours comes alone."""
    metrics = served.server.app.metrics

    async def beside() -> bytes:
        return text_of([gauge("myria_tenants", 3)])

    async def broken() -> bytes:
        raise OSError("gone")

    metrics.beside = beside
    assert samples((await served.client.get("/metrics")).text)["myria_tenants"] == 3
    metrics.beside = broken
    assert "myria_tenants" not in samples((await served.client.get("/metrics")).text)
