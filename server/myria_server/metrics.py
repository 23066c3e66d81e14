"""Prometheus metrics of the serving plane, and the hooks by which the domain reports into them.

Counting happens on the event loop in plain dictionaries; prometheus-client turns them into text when scraped. Its own
counters take a lock and cost more per call than everything else on the fast path.

Tail, snapshot age and builds are read from the memory itself when scraped, at most once in `STATUS_SECONDS`: builds run
in other processes, and a build that both began and ended between two scrapes shows only as the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from myria.contract.memory import MemoryApi
from myria.errors import MyriaError

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BUILD_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
BATCH_EVENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
STATUS_SECONDS = 5.0
_STATUS_TIMEOUT_S = 2.0


class Tally:
    """A histogram that only its event loop touches."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulative buckets as prometheus-client wants them."""
        running = 0
        out = []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            out.append(("+Inf" if bound == float("inf") else str(float(bound)), float(running)))
        return out


class ServerMetrics:
    """Everything one server process measures.

    The domain reports through `commit_done` (give it to the memory as its hook) and `watch_cache`.
    """

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], int] = {}
        self.refusals: dict[str, int] = {}
        self.durations: dict[str, Tally] = {}
        self.commits = Tally(BATCH_EVENTS)
        self.in_flight = 0
        self._builds: dict[tuple[str, str], Tally] = {}
        self._last_build: object = None
        self._status: Mapping[str, Any] = {}
        self._activated_at: float | None = None
        self._database_up: bool | None = None
        self._status_read = float("-inf")
        self._caches: dict[str, Callable[[], Mapping[str, int]]] = {}
        self.registry = CollectorRegistry()
        self.registry.register(_Collector(self))
        ProcessCollector(registry=self.registry)

    def request_done(self, tool: str, outcome: str, seconds: float) -> None:
        """Count one tool call; `outcome` is `ok` or an error's code."""
        key = (tool, outcome)
        self.requests[key] = self.requests.get(key, 0) + 1
        tally = self.durations.get(tool)
        if tally is None:
            tally = self.durations[tool] = Tally(SECONDS)
        tally.observe(seconds)

    def refused(self, reason: str) -> None:
        """Count a request that never became a tool call: too large, malformed, from a foreign host."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def commit_done(self, events: int) -> None:
        """Count one commit of appended events."""
        self.commits.observe(events)

    def watch_cache(self, name: str, read: Callable[[], Mapping[str, int]]) -> None:
        """Export a cache: `read` returns its `bytes`, and `hits` and `misses` since the start."""
        self._caches[name] = read

    async def text(self, memory: MemoryApi, tenant: str) -> bytes:
        """Return the exposition, after asking the memory for its status."""
        now = time.monotonic()
        if now - self._status_read >= STATUS_SECONDS:
            self._status_read = now
            await self._read_status(memory, tenant)
        return generate_latest(self.registry)

    async def _read_status(self, memory: MemoryApi, tenant: str) -> None:
        try:
            async with asyncio.timeout(_STATUS_TIMEOUT_S):
                self._status = await memory.get_snapshot_status(tenant)
                active = (await memory.get_active_snapshot(tenant)).get("snapshot")
        except (MyriaError, TimeoutError):
            self._database_up = False
            return
        self._database_up = True
        activated = active and active.get("activated_at")
        self._activated_at = _seconds(activated) if activated else None
        build = self._status.get("last_build") or {}
        if build.get("finished_at") and build.get("build_id") != self._last_build:
            self._last_build = build["build_id"]
            key = (str(build.get("trigger")), str(build.get("status")))
            tally = self._builds.setdefault(key, Tally(BUILD_SECONDS))
            with contextlib.suppress(KeyError, TypeError, ValueError):
                tally.observe(_seconds(build["finished_at"]) - _seconds(build["started_at"]))

    def families(self) -> Iterator[Metric]:
        """Yield everything as metric families."""
        calls = CounterMetricFamily("myria_requests", "Tool calls by outcome", labels=["tool", "outcome"])
        for (tool, outcome), count in sorted(self.requests.items()):
            calls.add_metric([tool, outcome], count)
        yield calls
        refusals = CounterMetricFamily("myria_http_refusals", "HTTP requests refused before a tool", labels=["reason"])
        for reason, count in sorted(self.refusals.items()):
            refusals.add_metric([reason], count)
        yield refusals
        yield GaugeMetricFamily("myria_requests_in_flight", "Tool calls being worked on", value=self.in_flight)
        durations = HistogramMetricFamily("myria_request_duration_seconds", "Tool call latency", labels=["tool"])
        for tool, tally in sorted(self.durations.items()):
            durations.add_metric([tool], tally.buckets(), tally.total)
        yield durations
        commits = HistogramMetricFamily("myria_append_batch_events", "Events that shared one commit")
        commits.add_metric([], self.commits.buckets(), self.commits.total)
        yield commits
        yield from self._memory_families()
        yield from self._cache_families()

    def _memory_families(self) -> Iterator[Metric]:
        if self._database_up is not None:
            yield GaugeMetricFamily("myria_database_up", "1 if the database answered", value=float(self._database_up))
        if self._activated_at is not None:
            age = max(0.0, time.time() - self._activated_at)
            yield GaugeMetricFamily("myria_snapshot_age_seconds", "Age of the active snapshot", value=age)
        for name, help_text, key in (
            ("myria_tail_events", "Events that no snapshot holds yet", "tail_events"),
            ("myria_build_running", "1 while a build runs", "building"),
            ("myria_builds_queued", "Builds that wait", "queued"),
            ("myria_builds_paused", "1 while automatic builds are paused", "paused"),
        ):
            if isinstance(self._status.get(key), int):
                yield GaugeMetricFamily(name, help_text, value=float(self._status[key]))
        builds = HistogramMetricFamily(
            "myria_build_duration_seconds", "Builds seen to end, by trigger and outcome", labels=["trigger", "outcome"]
        )
        for (trigger, outcome), tally in sorted(self._builds.items()):
            builds.add_metric([trigger, outcome], tally.buckets(), tally.total)
        yield builds

    def _cache_families(self) -> Iterator[Metric]:
        size = GaugeMetricFamily("myria_cache_bytes", "Bytes held by a cache", labels=["cache"])
        lookups = CounterMetricFamily("myria_cache_lookups", "Cache look-ups", labels=["cache", "result"])
        for name, read in sorted(self._caches.items()):
            seen = read()
            size.add_metric([name], seen.get("bytes", 0))
            lookups.add_metric([name, "hit"], seen.get("hits", 0))
            lookups.add_metric([name, "miss"], seen.get("misses", 0))
        yield size
        yield lookups


class _Collector:
    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families()

    def describe(self) -> list[Metric]:
        return []


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
