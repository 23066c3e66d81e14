"""Prometheus' metric families, made from plain numbers.

Counting happens on the event loop in plain dictionaries; prometheus-client turns them into text when scraped. Its own
counters take a lock and cost more per call than everything else on the fast path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from itertools import product
from typing import Final, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from myria.builds.model import Outcome
from myria.llm.failures import Kind
from myria.notes.feedback import RATED_TOOLS
from myria.notes.turns.facts import Tier
from myria.topics.validation import RULE_NAMES
from myria_monitoring.catalogue import BY_NAME
from myria_monitoring.figures import Figures, TenantFigures

BUILD_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds of the buckets of builds' durations, as the migration that counts them has them."""

TRIGGERS: Final = ("inactivity", "manual", "tail_threshold")
OUTCOMES: Final = tuple(sorted(Outcome))
PHASES: Final = ("compile", "queue", "start")
MOVES: Final = ("publish", "rollback")
PAUSES: Final = ("held_snapshot", "other", "rollback")
STATUSES: Final = ("active", "archived", "failed", "held", "staging", "superseded")
STAGES: Final = ("begun", "done")
PLACES: Final = (
    "access_log",
    "build_tasks",
    "build_units",
    "builds",
    "call_log",
    "erasures",
    "events",
    "llm_calls",
    "note_relations",
    "notes",
    "pointer_moves",
    "rebuild_requests",
    "renderings",
    "search_blocks",
    "sessions",
    "snapshots",
    "subject_nodes",
    "tenants",
    "tool_feedback",
    "turns",
    "unit_plans",
    "withdrawals",
)
FLAGS: Final = ("false", "true")
WORKFLOWS: Final = ("build", "walk", "evaluate", "extract", "look")
OTHER: Final = "other"
"""The label of unforeseen values, which keeps the number of labels bounded."""

LLM_OUTCOMES: Final = ("ok", *sorted(Kind), OTHER)
"""How a request to a language model may end."""

Values = Mapping[tuple[str, ...], float]
"""Numbers by the values of the labels, in the catalogue's order."""


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
        return _cumulative(self.bounds, self.counts)


def counter(name: str, values: Values, *, by_tenant: bool = False) -> Metric:
    """Return a counter of the catalogue; `values` by its labels' values, in the catalogue's order.

    `by_tenant` adds the label `tenant`.
    """
    described = BY_NAME[name]
    labels = (*described.labels, "tenant") if by_tenant else described.labels
    family = CounterMetricFamily(name.removesuffix("_total"), described.meaning, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def gauge(name: str, values: Values | float, *, by_tenant: bool = False) -> Metric:
    """Return a gauge of the catalogue; a plain number when it has no labels. `by_tenant` adds the label `tenant`."""
    described = BY_NAME[name]
    labels = (*described.labels, "tenant") if by_tenant else described.labels
    family = GaugeMetricFamily(name, described.meaning, labels=labels)
    for key, value in sorted(values.items()) if isinstance(values, Mapping) else [((), values)]:
        family.add_metric(key, value)
    return family


def histogram(name: str, tallies: Mapping[tuple[str, ...], Tally]) -> Metric:
    """Return a histogram of the catalogue."""
    described = BY_NAME[name]
    family = HistogramMetricFamily(name, described.meaning, labels=described.labels)
    for labels, tally in sorted(tallies.items()):
        family.add_metric(labels, tally.buckets(), tally.total)
    return family


def about_process(plane: str, *, database_up: bool) -> Iterator[Metric]:
    """Yield what every process reports of itself."""
    yield gauge("myria_build_info", {(metadata.version("myria"), plane): 1.0})
    yield gauge("myria_database_up", float(database_up))


def about_memory(figures: Figures | None, *, tenant_label: bool = False) -> Iterator[Metric]:
    """Yield the figures from PostgreSQL; nothing when it did not answer, so that no old number passes for a new one."""
    if figures is None:
        return
    yield gauge("myria_tenants", len(figures.tenants))
    yield gauge("myria_log_events", figures.last_event_seq)
    yield gauge("myria_log_bytes", figures.log_bytes)
    yield gauge("myria_database_bytes", figures.database_bytes)
    yield from _about_tenants(figures.tenants, tenant_label)
    yield gauge("myria_builds", {("queued",): figures.queued, ("running",): figures.running})
    yield gauge("myria_oldest_queued_build_seconds", figures.oldest_queued_s)
    yield gauge("myria_oldest_running_build_seconds", figures.oldest_running_s)
    yield gauge("myria_snapshots", {(status,): figures.snapshots.get(status, 0) for status in STATUSES})
    yield gauge("myria_erasures_open", figures.open_erasures)
    yield gauge("myria_oldest_open_erasure_seconds", figures.oldest_erasure_s)
    yield gauge("myria_last_receipt_timestamp_seconds", figures.last_receipt_at)
    yield from _totals(figures.totals)


def text_of(families: Iterable[Metric]) -> bytes:
    """Return Prometheus' text format, version 0.0.4."""
    return generate_latest(registry_of(lambda: families))


def registry_of(collect: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """Return a registry that asks for its families whenever it is read."""
    registry = CollectorRegistry()
    registry.register(_Collector(collect))
    return registry


class _Collector:
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self.collect = collect

    def describe(self) -> list[Metric]:
        return []


def _about_tenants(tenants: Sequence[TenantFigures], tenant_label: bool) -> Iterator[Metric]:
    by_pause = {
        flag: [figures for figures in tenants if (figures.paused_reason is not None) is paused]
        for flag, paused in (("false", False), ("true", True))
    }
    waiting = [figures for figures in tenants if figures.tail_events and figures.snapshot_age_s is not None]
    if tenant_label:
        tails: Values = {(figures.tenant,): figures.tail_events for figures in tenants}
        lags: Values = {(flag, figures.tenant): figures.lag_s for flag, group in by_pause.items() for figures in group}
        ages: Values = {(figures.tenant,): figures.snapshot_age_s or 0.0 for figures in waiting}
        successes: Values = {(figures.tenant,): figures.succeeded_at for figures in tenants}
        stored: Values = {(figures.tenant,): figures.stored_bytes for figures in tenants}
        yield gauge("myria_stored_payload_bytes", stored, by_tenant=True)
        yield gauge("myria_tail_events", tails, by_tenant=True)
        yield gauge("myria_memory_lag_seconds", lags, by_tenant=True)
        yield gauge("myria_snapshot_age_seconds", ages, by_tenant=True)
        yield gauge("myria_last_build_success_timestamp_seconds", successes, by_tenant=True)
    else:
        yield gauge("myria_stored_payload_bytes", sum(figures.stored_bytes for figures in tenants))
        yield gauge("myria_tail_events", sum(figures.tail_events for figures in tenants))
        yield gauge(
            "myria_memory_lag_seconds",
            {(flag,): max((figures.lag_s for figures in group), default=0.0) for flag, group in by_pause.items()},
        )
        yield gauge(
            "myria_snapshot_age_seconds", max((figures.snapshot_age_s or 0.0 for figures in waiting), default=0.0)
        )
        yield gauge(
            "myria_last_build_success_timestamp_seconds",
            max((figures.succeeded_at for figures in tenants), default=0.0),
        )
    yield gauge(
        "myria_tail_events_max",
        {(flag,): max((figures.tail_events for figures in group), default=0) for flag, group in by_pause.items()},
    )
    reasons = [_known(figures.paused_reason, PAUSES) for figures in by_pause["true"]]
    yield gauge("myria_tenants_paused", {(reason,): reasons.count(reason) for reason in PAUSES})
    yield gauge("myria_oldest_pause_seconds", max((figures.paused_s for figures in by_pause["true"]), default=0.0))
    yield gauge("myria_tenants_backing_off", sum(figures.failures > 0 for figures in tenants))


def _totals(totals: Mapping[tuple[str, tuple[str, ...]], int]) -> Iterator[Metric]:
    """Yield the counters; every known label is there from the start with a zero, which rates need."""
    finished: dict[tuple[str, ...], float] = dict.fromkeys(product(TRIGGERS, OUTCOMES), 0)
    tasks: dict[tuple[str, ...], float] = {("done",): 0, ("degraded",): 0}
    rules: dict[tuple[str, ...], float] = {(rule,): 0 for rule in (*RULE_NAMES, OTHER)}
    moves: dict[tuple[str, ...], float] = {(kind,): 0 for kind in MOVES}
    for (family, labels), amount in totals.items():
        if family == "builds_finished":
            finished[labels] = finished.get(labels, 0) + amount
        elif family == "build_tasks":
            tasks[labels] = tasks.get(labels, 0) + amount
        elif family == "validation_failures":
            rules[_known(labels[0], RULE_NAMES),] += amount
        elif family == "pointer_moves":
            moves[labels] = moves.get(labels, 0) + amount
    yield counter("myria_builds_finished_total", finished)
    yield _durations("myria_build_duration_seconds", totals, "build_duration", OUTCOMES)
    yield _durations("myria_build_phase_duration_seconds", totals, "build_phase", PHASES)
    yield counter("myria_build_tasks_total", tasks)
    yield counter("myria_validation_failures_total", rules)
    yield counter("myria_pointer_moves_total", moves)
    yield from _llm_totals(totals)
    found: Values = {(tier,): totals.get(("found_facts", (tier,)), 0) for tier in get_args(Tier)}
    yield counter("myria_turn_facts_found_total", found)
    yield from _feedback(totals)
    yield from _erasures(totals)


def _feedback(totals: Mapping[tuple[str, tuple[str, ...]], int]) -> Iterator[Metric]:
    """Yield what agents say of answers."""
    said: dict[tuple[str, ...], float] = dict.fromkeys(product((*RATED_TOOLS, OTHER), FLAGS, FLAGS), 0)
    for (family, labels), amount in totals.items():
        if family == "tool_feedback":
            said[_known(labels[0], RATED_TOOLS), *labels[1:]] += amount
    yield counter("myria_tool_feedback_total", said)


def _erasures(totals: Mapping[tuple[str, tuple[str, ...]], int]) -> Iterator[Metric]:
    """Yield what was erased."""
    stages: Values = {(stage,): totals.get(("erasures", (stage,)), 0) for stage in STAGES}
    rows: dict[tuple[str, ...], float] = {(place,): 0 for place in (*PLACES, OTHER)}
    for (family, labels), amount in totals.items():
        if family == "erased_rows":
            rows[_known(labels[0], PLACES),] += amount
    yield counter("myria_erasures_total", stages)
    yield counter("myria_erased_rows_total", rows)
    took = _tally(totals, "erasure_duration", "done")
    yield histogram("myria_erasure_duration_seconds", {(): took})


def _llm_totals(totals: Mapping[tuple[str, tuple[str, ...]], int]) -> Iterator[Metric]:
    """Yield what language models were asked and what it cost."""
    calls: dict[tuple[str, ...], float] = dict.fromkeys(product(WORKFLOWS, LLM_OUTCOMES), 0)
    for (family, labels), amount in totals.items():
        if family == "llm_calls":
            calls[labels[0], _known(labels[1], LLM_OUTCOMES)] += amount
    yield counter("myria_llm_calls_total", calls)
    tokens: Values = {
        labels: totals.get(("llm_tokens", labels), 0) for labels in product(WORKFLOWS, ("input", "output"))
    }
    yield counter("myria_llm_tokens_total", tokens)
    costs: Values = {(workflow,): totals.get(("llm_cost", (workflow,)), 0) / 1_000_000 for workflow in WORKFLOWS}
    yield counter("myria_llm_cost_usd_total", costs)
    yield _durations("myria_llm_call_duration_seconds", totals, "llm_call_duration", WORKFLOWS)
    units: Values = {(result,): totals.get(("llm_units", (result,)), 0) for result in ("planned", "reused", "degraded")}
    yield counter("myria_llm_units_total", units)
    yield counter("myria_llm_plan_repairs_total", {(): totals.get(("llm_repairs", ()), 0)})


def _durations(
    name: str, totals: Mapping[tuple[str, tuple[str, ...]], int], family: str, labels: Sequence[str]
) -> Metric:
    return histogram(name, {(label,): _tally(totals, family, label) for label in labels})


def _tally(totals: Mapping[tuple[str, tuple[str, ...]], int], family: str, label: str) -> Tally:
    tally = Tally(BUILD_SECONDS)
    bounds = [str(bound) for bound in BUILD_SECONDS]
    tally.counts = [totals.get((family, (label, bound)), 0) for bound in (*bounds, "+Inf")]
    tally.total = totals.get((family, (label, "sum")), 0) / 1_000_000
    return tally


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    running = 0
    out = []
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        running += count
        out.append(("+Inf" if bound == float("inf") else str(float(bound)), float(running)))
    return out


def _known(label: str | None, known: Sequence[str]) -> str:
    return label if label is not None and label in known else OTHER
