"""Metrics of the catalogue for prometheus-client: its counters and histograms for what a process counts, and families
made from plain numbers for what is read elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from itertools import accumulate, product
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from myria.builds.model import Outcome
from myria.llm.failures import Kind
from myria.log.withdrawal.model import ReviewState
from myria.notes.feedback import RATED_TOOLS
from myria.notes.turns.facts import Tier
from myria.topics.validation import RULE_NAMES
from myria_monitoring.catalogue import BY_NAME
from myria_monitoring.figures import Figures, TenantFigures

BUILD_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds of the buckets of durations, in seconds; the migration that counts them in SQL has the same ones."""

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
"""Numbers by label values; the values are in the order of the metric's labels in the catalogue."""

Groups = Mapping[tuple[str, ...], Sequence[TenantFigures]]
"""Tenants by label values, without the label `tenant`."""

Totals = Mapping[tuple[str, tuple[str, ...]], int]
"""Sums since the database was made, by family and label values."""


disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series of each, which nothing reads


def make_counter(registry: CollectorRegistry, name: str, *, by_tenant: bool = False) -> Counter:
    """Return a new counter of the catalogue; `by_tenant` adds the label `tenant`."""
    return Counter(name, BY_NAME[name].meaning, _labels(name, by_tenant), registry=registry)


def make_histogram(registry: CollectorRegistry, name: str, bounds: Sequence[float]) -> Histogram:
    """Return a new histogram of the catalogue with these upper bounds of its buckets."""
    return Histogram(name, BY_NAME[name].meaning, BY_NAME[name].labels, buckets=bounds, registry=registry)


def counter(name: str, values: Values) -> Metric:
    """Return a counter with values by its labels' values, in the catalogue's order."""
    family = CounterMetricFamily(name.removesuffix("_total"), BY_NAME[name].meaning, labels=BY_NAME[name].labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def gauge(name: str, values: Values | float, *, by_tenant: bool = False) -> Metric:
    """Return a gauge; `values` is a plain number where it has no labels. `by_tenant` adds the label `tenant`."""
    family = GaugeMetricFamily(name, BY_NAME[name].meaning, labels=_labels(name, by_tenant))
    for key, value in sorted(values.items()) if isinstance(values, Mapping) else [((), values)]:
        family.add_metric(key, value)
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
    yield from (gauge(name, value) for name, value in figures.gauges.items())
    yield from _about_tenants(figures.tenants, tenant_label)
    yield gauge("myria_builds", {("queued",): figures.queued, ("running",): figures.running})
    yield gauge("myria_snapshots", {(status,): figures.snapshots.get(status, 0) for status in STATUSES})
    yield from _about_totals(figures.totals)


def text_of(families: Iterable[Metric]) -> bytes:
    """Return Prometheus' text format, version 0.0.4."""
    return generate_latest(registry_of(lambda: families))


def registry_of(collect: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """Return a registry that calls `collect` for its families at every scrape."""
    registry = CollectorRegistry()
    registry.register(_Collector(collect))
    return registry


class _Collector:
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self.collect = collect

    def describe(self) -> list[Metric]:
        return []


def _about_tenants(tenants: Sequence[TenantFigures], tenant_label: bool) -> Iterator[Metric]:
    """Yield what concerns tenants: a series for each, or one for all of them without `tenant_label`."""
    paused = [figures for figures in tenants if figures.paused_reason is not None]
    everyone: Groups = {(): tenants}
    waiting: Groups = {(): [one for one in tenants if one.tail_events and one.snapshot_age_s is not None]}
    by_pause: Groups = {("false",): [one for one in tenants if one.paused_reason is None], ("true",): paused}
    greatest: Callable[[Iterable[float]], float] = partial(max, default=0.0)

    def tenant_gauge(
        name: str,
        groups: Groups,
        figure: Callable[[TenantFigures], float],
        merge: Callable[[Iterable[float]], float],
    ) -> Metric:
        """Return a gauge: a series per tenant, or one per group, with the value that `merge` makes of its tenants'."""
        if tenant_label:
            values = {(*labels, one.tenant): figure(one) for labels, group in groups.items() for one in group}
        else:
            values = {labels: merge(map(figure, group)) for labels, group in groups.items()}
        return gauge(name, values, by_tenant=tenant_label)

    yield tenant_gauge("myria_stored_payload_bytes", everyone, lambda one: one.stored_bytes, sum)
    yield tenant_gauge("myria_tail_events", everyone, lambda one: one.tail_events, sum)
    yield tenant_gauge("myria_memory_lag_seconds", by_pause, lambda one: one.lag_s, greatest)
    yield tenant_gauge("myria_snapshot_age_seconds", waiting, lambda one: one.snapshot_age_s or 0.0, greatest)
    yield tenant_gauge("myria_last_build_success_timestamp_seconds", everyone, lambda one: one.succeeded_at, greatest)
    yield tenant_gauge("myria_held_notes", everyone, lambda one: one.held_notes, sum)
    yield tenant_gauge("myria_oldest_held_note_seconds", everyone, lambda one: one.held_s, greatest)
    tails: Values = {labels: greatest(one.tail_events for one in group) for labels, group in by_pause.items()}
    yield gauge("myria_tail_events_max", tails)
    reasons = [_known(figures.paused_reason, PAUSES) for figures in paused]
    yield gauge("myria_tenants_paused", {(reason,): reasons.count(reason) for reason in PAUSES})
    yield gauge("myria_oldest_pause_seconds", greatest(figures.paused_s for figures in paused))
    yield gauge("myria_tenants_backing_off", sum(figures.failures > 0 for figures in tenants))


def _about_totals(totals: Totals) -> Iterator[Metric]:
    """Yield the counters and histograms whose sums are kept in the database."""
    yield counter("myria_builds_finished_total", _sums(totals, "builds_finished", TRIGGERS, OUTCOMES))
    yield _durations("myria_build_duration_seconds", totals, "build_duration", OUTCOMES)
    yield _durations("myria_build_phase_duration_seconds", totals, "build_phase", PHASES)
    yield counter("myria_build_tasks_total", _sums(totals, "build_tasks", ("done", "degraded")))
    yield counter("myria_validation_failures_total", _sums(totals, "validation_failures", (*RULE_NAMES, OTHER)))
    yield counter("myria_pointer_moves_total", _sums(totals, "pointer_moves", MOVES))
    yield counter("myria_llm_calls_total", _sums(totals, "llm_calls", WORKFLOWS, LLM_OUTCOMES))
    yield counter("myria_llm_tokens_total", _sums(totals, "llm_tokens", WORKFLOWS, ("input", "output")))
    costs = _sums(totals, "llm_cost", WORKFLOWS)
    yield counter("myria_llm_cost_usd_total", {labels: micros / 1_000_000 for labels, micros in costs.items()})
    yield _durations("myria_llm_call_duration_seconds", totals, "llm_call_duration", WORKFLOWS)
    yield counter("myria_llm_units_total", _sums(totals, "llm_units", ("planned", "reused", "degraded")))
    yield counter("myria_llm_plan_repairs_total", _sums(totals, "llm_repairs"))
    yield counter("myria_turn_facts_found_total", _sums(totals, "found_facts", get_args(Tier)))
    yield counter("myria_tool_feedback_total", _sums(totals, "tool_feedback", (*RATED_TOOLS, OTHER), FLAGS, FLAGS))
    yield counter("myria_review_decisions_total", _sums(totals, "review_decisions", get_args(ReviewState)))
    yield counter("myria_erasures_total", _sums(totals, "erasures", STAGES))
    yield counter("myria_erased_rows_total", _sums(totals, "erased_rows", (*PLACES, OTHER)))
    yield _durations("myria_erasure_duration_seconds", totals, "erasure_duration", ("done",))


def _sums(totals: Totals, family: str, *known: Sequence[str]) -> Values:
    """Return the sums of a family by label values.

    Every combination of `known` values (one sequence per label) is present, with 0 at first: Prometheus' rates need a
    series to begin there. An unknown value counts as `OTHER` if its label has that.
    """
    sums: dict[tuple[str, ...], float] = dict.fromkeys(product(*known), 0)
    for (name, values), amount in totals.items():
        if name == family:
            labels = tuple(
                _known(value, among) if OTHER in among else value for value, among in zip(values, known, strict=True)
            )
            sums[labels] = sums.get(labels, 0) + amount
    return sums


def _durations(name: str, totals: Totals, family: str, labels: Sequence[str]) -> Metric:
    """Return a histogram from the database's sums, which have a count for each bound, and a sum in microseconds."""
    durations = HistogramMetricFamily(name, BY_NAME[name].meaning, labels=BY_NAME[name].labels)
    bounds = (*map(str, BUILD_SECONDS), "+Inf")
    for label in labels:
        counts = accumulate(totals.get((family, (label, bound)), 0) for bound in bounds)
        seconds = totals.get((family, (label, "sum")), 0) / 1_000_000
        durations.add_metric((label,) if BY_NAME[name].labels else (), list(zip(bounds, counts, strict=True)), seconds)
    return durations


def _labels(name: str, by_tenant: bool) -> tuple[str, ...]:
    return (*BY_NAME[name].labels, "tenant") if by_tenant else BY_NAME[name].labels


def _known(label: str | None, known: Sequence[str]) -> str:
    """Return a label value if it is known, else `OTHER`."""
    return label if label is not None and label in known else OTHER
