"""The operator's Prometheus metrics: its own, and those of memory and builds, which it reads from PostgreSQL.

A build's pods end too soon to be scraped, so their figures are kept in the database.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from myria_monitoring.exposition import OTHER, about_memory, about_process, counter, gauge, make_histogram
from myria_monitoring.figures import FigureReader
from myria_operator import reasons
from myria_operator.observed import Rebuild

SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_REASONS: Final = tuple(
    sorted(
        value
        for name, value in vars(reasons).items()
        if name.isupper() and isinstance(value, str) and value not in reasons.CONDITION_TYPES
    )
)


class OperatorMetrics:
    """Everything one operator measures.

    Args:
        figures: reads the memory's figures.
        requests: the API client's counts of requests to the API server, by verb, resource and code.
        tenant_label: whether tenants have series of their own.
    """

    def __init__(self, figures: FigureReader, requests: Counter[tuple[str, ...]], *, tenant_label: bool) -> None:
        self._figures = figures
        self._requests = requests
        self._tenant_label = tenant_label
        self._counted = CollectorRegistry()
        passes = make_histogram(self._counted, "myria_operator_reconcile_duration_seconds", SECONDS)
        self._ok, self._retry = passes.labels("ok"), passes.labels("retry")
        self._latency = make_histogram(self._counted, "myria_operator_event_latency_seconds", SECONDS)
        self._heard: dict[str, float] = {}
        self._swept_at = 0.0
        self._rebuilds: Counter[str] = Counter()

    def heard(self, name: str) -> None:
        """Note that a watch reported a resource; its latency ends with the next pass that succeeds."""
        self._heard.setdefault(name, time.monotonic())

    def timed(self, work: Callable[[str], Awaitable[float | None]]) -> Callable[[str], Awaitable[float | None]]:
        """Wrap work on a resource, so that its duration and the latency of the watch's report are measured."""

        async def timed_work(name: str) -> float | None:
            started_at = time.monotonic()
            heard_at = self._heard.pop(name, None)
            try:
                delay_s = await work(name)
            except Exception:
                self._retry.observe(time.monotonic() - started_at)
                if heard_at is not None:
                    self._heard[name] = heard_at
                raise
            now = time.monotonic()
            self._ok.observe(now - started_at)
            if heard_at is not None:
                self._latency.observe(now - heard_at)
            return delay_s

        return timed_work

    def swept(self, rebuilds: Iterable[Rebuild]) -> None:
        """Record that a sweep has succeeded, and count by reason the resources that it saw."""
        self._swept_at = time.time()
        resource_reasons = (
            str(rebuild.condition(reasons.SUCCEEDED).get("reason", reasons.PENDING)) for rebuild in rebuilds
        )
        self._rebuilds = Counter(reason if reason in _REASONS else OTHER for reason in resource_reasons)

    async def families(self, *, queue_length: int, idle_s: float) -> list[Metric]:
        """Return all metrics; the figures from the database are read again if the last ones are old."""
        figures = await self._figures.latest()
        return [
            *about_process("control", database_up=self._figures.up),
            *self._own_families(queue_length, idle_s),
            *about_memory(figures, tenant_label=self._tenant_label),
        ]

    async def close(self) -> None:
        """Close the connection to the database."""
        await self._figures.close()

    def _own_families(self, queue_length: int, idle_s: float) -> Iterator[Metric]:
        yield from self._counted.collect()
        yield gauge("myria_operator_queue_length", queue_length)
        yield counter("myria_operator_api_requests_total", self._requests)
        yield gauge("myria_operator_last_progress_timestamp_seconds", time.time() - idle_s)
        yield gauge("myria_operator_last_sweep_timestamp_seconds", self._swept_at)
        yield gauge("myria_operator_rebuilds", {(reason,): self._rebuilds[reason] for reason in (*_REASONS, OTHER)})
