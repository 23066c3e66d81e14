"""Prometheus metrics of the serving plane, and the hooks by which the domain reports into them.

Memory and builds have no metrics here: every serving process would report the same figures, and they would be counted
several times. The control plane reports them; in `myria up`, where all planes are one program, its text is appended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import product
from typing import get_args

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from myria.access.journal import Dropped
from myria.access.principal import ApiName
from myria.llm.failures import Kind
from myria.notes.turns.facts import Tier
from myria.notes.turns.shadow import Aspect, Call, Outcome
from myria.settings.database import KINDS
from myria_monitoring.exposition import OTHER, about_process, counter, gauge, make_counter, make_histogram, text_of
from myria_server.api.tools import TOOLS
from myria_server.api.turns.handlers import TurnConflict
from myria_server.readiness import Readiness

logger = logging.getLogger(__name__)


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_EVENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CHECK_AGE_S = 5.0
"""Seconds for which a scrape may repeat an earlier answer of the database."""

DEGRADED_REASONS: tuple[str, ...] = tuple(sorted(Kind))
"""Why an answer may be degraded; any other reason is counted as `other`."""

MAX_TENANTS = 1_000
"""Tenants that have series of their own in one process, where the setting gives them any."""

OTHER_TENANTS = "(other)"
"""The label of the others together, which no tenant can be called."""

_BESIDE_TIMEOUT_S = 2.5

Figures = Callable[[], Mapping[str, int]]


class ServerMetrics:
    """Everything one server process measures.

    The domain reports through `commit_done` and `redacted` (give them to the memory as its hooks). Other figures are
    read at each scrape, from functions that are set here: of `caches` by name (`bytes`, and `hits` and `misses` since
    the start), of database `pools` by name (`used`, `idle`, `limit`, `waits`), of vectors of `questions` (`computed`,
    `failed`) and of second `looks` of a model (`looked`, `failed`). `beside` returns the text of another process that
    is to be scraped here as well.

    Args:
        tenant_label: whether tenants have series of their own.
    """

    def __init__(self, *, tenant_label: bool = False) -> None:
        self._tenant_label = tenant_label
        self.caches: dict[str, Figures] = {}
        self.pools: dict[str, Figures] = {}
        self.questions: Figures = lambda: {"computed": 0, "failed": 0}
        self.looks: Figures = lambda: {"looked": 0, "failed": 0}
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._tenants: set[str] = set()
        self.requests = make_counter(registry, "myria_requests_total")
        self.durations = make_histogram(registry, "myria_request_duration_seconds", SECONDS)
        self.refusals = make_counter(registry, "myria_http_refusals_total")
        self.dropped = make_counter(registry, "myria_audit_dropped_total")
        self.commits = make_histogram(registry, "myria_append_batch_events", BATCH_EVENTS)
        self.appended = make_counter(registry, "myria_appended_events_total", by_tenant=tenant_label)
        self.redactions = make_counter(registry, "myria_redactions_total")
        self.degraded = make_counter(registry, "myria_answers_degraded_total")
        self.turn_facts = make_counter(registry, "myria_turn_facts_total")
        self.turn_conflicts = make_counter(registry, "myria_turn_conflicts_total")
        self.turn_comparisons = make_counter(registry, "myria_turn_comparisons_total")
        self.turn_compactions = make_counter(registry, "myria_turn_compactions_total")
        self._create_series()
        self.in_flight = 0
        self.beside: Callable[[], Awaitable[bytes]] | None = None

    def _create_series(self) -> None:
        """Create at zero all series whose labels are known: a rate needs the zero before the first count."""
        for tool in TOOLS:
            for api in tool.apis:
                self.requests.labels(api, tool.name, "ok")
            if "degraded" in tool.answer.model_fields:
                for reason in (*DEGRADED_REASONS, OTHER):
                    self.degraded.labels(tool.name, reason)
        for call, aspect, outcome in product(get_args(Call), get_args(Aspect), ("same", "different")):
            if aspect != "all":
                self.turn_comparisons.labels(call, aspect, outcome)
        for family, values in (
            (self.dropped, get_args(Dropped)),
            (self.redactions, KINDS),
            (self.turn_facts, get_args(Tier)),
            (self.turn_conflicts, get_args(TurnConflict)),
        ):
            for value in values:
                family.labels(value)

    def request_done(self, api: ApiName, tool: str, outcome: str, seconds: float) -> None:
        """Count one call of a tool of an API; `outcome` is `ok` or an error's code."""
        self.requests.labels(api, tool, outcome).inc()
        self.durations.labels(api, tool).observe(seconds)

    def refused(self, reason: str) -> None:
        """Count a request that never became a tool call: too large, malformed, from a foreign host."""
        self.refusals.labels(reason).inc()

    def record_dropped(self, log: Dropped, count: int) -> None:
        """Count records of calls, or of refused attempts, that found no room."""
        self.dropped.labels(log).inc(count)

    def answered_degraded(self, tool: str, reason: str | None) -> None:
        """Count a degraded answer under its reason."""
        self.degraded.labels(tool, reason if reason in DEGRADED_REASONS else OTHER).inc()

    def redacted(self, kind: str, count: int) -> None:
        """Count what was taken out of payloads before they were stored."""
        self.redactions.labels(kind).inc(count)

    def turn_stored(self, facts: Mapping[str, int]) -> None:
        """Count the facts, by tier, that a turn brought when it was stored."""
        for tier, count in facts.items():
            self.turn_facts.labels(tier).inc(count)

    def turn_conflicted(self, state: TurnConflict) -> None:
        """Count a turn that came again: it was stored already, or another request was storing it."""
        self.turn_conflicts.labels(state).inc()

    def turn_compared(self, call: Call, aspect: Aspect, outcome: Outcome) -> None:
        """Count an aspect in which an answer was compared with what the host computed itself."""
        self.turn_comparisons.labels(call, aspect, outcome).inc()

    def turn_compacted(self) -> None:
        """Count a prompt in which a summary stands for earlier items."""
        self.turn_compactions.inc()

    def commit_done(self, tenant: str, events: int) -> None:
        """Count one commit of a tenant's events; those beyond `MAX_TENANTS` count together as `OTHER_TENANTS`."""
        self.commits.observe(events)
        if not self._tenant_label:
            self.appended.inc(events)
            return
        if tenant not in self._tenants and len(self._tenants) >= MAX_TENANTS:
            tenant = OTHER_TENANTS
        else:
            self._tenants.add(tenant)
        self.appended.labels(tenant).inc(events)

    async def text(self, readiness: Readiness) -> bytes:
        """Return the metrics as text, after checking the database, unless that was within `CHECK_AGE_S`."""
        _, beside = await asyncio.gather(readiness.check(max_age_s=CHECK_AGE_S), self._text_beside())
        return generate_latest(self._registry) + text_of(self.families(readiness)) + beside

    async def _text_beside(self) -> bytes:
        """Return the text of the other process that is scraped here, empty where there is none or it fails."""
        if self.beside is None:
            return b""
        try:
            async with asyncio.timeout(_BESIDE_TIMEOUT_S):
                return await self.beside()
        except Exception as error:  # noqa: BLE001 - a scrape of ours does not fail for another process
            logger.info("nothing beside: %s", error or type(error).__name__, extra={"action": "metrics_beside_failed"})
            return b""

    def families(self, readiness: Readiness) -> Iterator[Metric]:
        """Yield the figures that are read at each scrape; those counted as they happen are in the registry."""
        yield from about_process("serving", database_up=readiness.database_up)
        yield gauge("myria_ready", float(readiness.ready))
        yield gauge("myria_requests_in_flight", self.in_flight)
        vectors = self.questions()
        yield counter("myria_question_vectors_total", {(outcome,): vectors[outcome] for outcome in sorted(vectors)})
        looks = self.looks()
        yield counter("myria_second_looks_total", {(outcome,): looks[outcome] for outcome in sorted(looks)})
        yield from self._cache_families()
        if self.pools:
            pools = {name: read() for name, read in self.pools.items()}
            yield gauge(
                "myria_pool_connections",
                {(name, state): pool[state] for name, pool in pools.items() for state in ("idle", "used")},
            )
            yield gauge("myria_pool_limit", {(name,): pool["limit"] for name, pool in pools.items()})
            yield counter("myria_pool_waits_total", {(name,): pool["waits"] for name, pool in pools.items()})

    def _cache_families(self) -> Iterator[Metric]:
        figures = {name: cache() for name, cache in sorted(self.caches.items())}
        yield gauge("myria_cache_bytes", {(name,): cache.get("bytes", 0) for name, cache in figures.items()})
        lookups: dict[tuple[str, ...], float] = {}
        for name, cache in figures.items():
            lookups[name, "hit"] = cache.get("hits", 0)
            lookups[name, "miss"] = cache.get("misses", 0)
        yield counter("myria_cache_lookups_total", lookups)
