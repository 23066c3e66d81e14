"""What is counted, and that scraping is valid Prometheus text."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from myria.memory import Memory
from myria_server import ServerMetrics
from myria_server.metrics import Tally
from tests.server.wire import Served, event, serving


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_calls_are_counted_by_tool_and_outcome(served: Served) -> None:
    """Good calls as ok, refused ones under their code, also those whose JSON was refused; and how long they took."""
    for version in ("2026-07-28", "2025-06-18"):
        await served.call("append_event", event(), version=version)
        await served.call("append_event", event(channel=""), version=version)
    await served.call("append_event", event(payload={"a": float("nan")}))
    await served.call("get_event", {"event_id": "evt_none", "participants": ["a"]})
    await served.post(b"{", {"content-type": "application/json"})
    await served.post({}, {"content-type": "application/json", "host": "evil.example"})
    seen = samples((await served.client.get("/metrics")).text)
    assert seen["myria_requests_total", (("outcome", "ok"), ("tool", "append_event"))] == 2
    assert seen["myria_requests_total", (("outcome", "invalid_text"), ("tool", "append_event"))] == 2
    assert seen["myria_requests_total", (("outcome", "malformed_json"), ("tool", "append_event"))] == 1
    assert seen["myria_requests_total", (("outcome", "event_not_found"), ("tool", "get_event"))] == 1
    assert seen["myria_http_refusals_total", (("reason", "malformed_json"),)] == 1
    assert seen["myria_http_refusals_total", (("reason", "foreign_host"),)] == 1
    assert seen["myria_request_duration_seconds_count", (("tool", "append_event"),)] == 5
    assert seen["myria_requests_in_flight", ()] == 0
    assert seen["myria_tail_events", ()] == 2
    assert seen["process_resident_memory_bytes", ()] > 0


async def test_the_domain_reports_into_them(memory: Memory) -> None:
    """Commits and caches are told by whoever makes them."""
    metrics = ServerMetrics()
    metrics.commit_done(3)
    metrics.commit_done(200)
    metrics.watch_cache("segments", lambda: {"bytes": 10, "hits": 4, "misses": 1})
    async with serving(memory, metrics=metrics) as served:
        seen = samples((await served.client.get("/metrics")).text)
    assert seen["myria_append_batch_events_count", ()] == 2
    assert seen["myria_append_batch_events_sum", ()] == 203
    assert seen["myria_append_batch_events_bucket", (("le", "4.0"),)] == 1
    assert seen["myria_cache_bytes", (("cache", "segments"),)] == 10
    assert seen["myria_cache_lookups_total", (("cache", "segments"), ("result", "hit"))] == 4


def test_a_tally_counts_like_a_histogram() -> None:
    """Values fall into the first bucket whose bound they do not exceed."""
    tally = Tally((1, 2))
    for value in (0.5, 1, 1.5, 2, 3):
        tally.observe(value)
    assert tally.buckets() == [("1.0", 2.0), ("2.0", 4.0), ("+Inf", 5.0)]
    assert tally.total == 8
