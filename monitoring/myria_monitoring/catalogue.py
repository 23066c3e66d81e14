"""Every metric that Myria exposes: its name, type, labels and meaning, once.

Dashboards and alert rules refer to these names, docs/metrics.md lists them, and nothing is exposed that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Plane = Literal["serving", "memory", "operator", "process"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """One metric. `per_tenant`: with metrics.tenant_label it has one series per tenant and a label `tenant`."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    plane: Plane
    meaning: str
    labels: tuple[str, ...] = ()
    per_tenant: bool = False

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its samples."""
        if self.type == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


def _counter(plane: Plane, name: str, meaning: str, *labels: str, per_tenant: bool = False) -> Described:
    return Described(name=name, type="counter", plane=plane, meaning=meaning, labels=labels, per_tenant=per_tenant)


def _gauge(plane: Plane, name: str, meaning: str, *labels: str, per_tenant: bool = False) -> Described:
    return Described(name=name, type="gauge", plane=plane, meaning=meaning, labels=labels, per_tenant=per_tenant)


def _histogram(plane: Plane, name: str, meaning: str, *labels: str) -> Described:
    return Described(name=name, type="histogram", plane=plane, meaning=meaning, labels=labels)


METRICS: tuple[Described, ...] = (
    _gauge("process", "myria_build_info", "1, with version and plane", "version", "plane"),
    _gauge(
        "process",
        "myria_database_up",
        "1 if the database answered within the last seconds",
    ),
    _counter(
        "serving", "myria_requests_total", "Tool calls; outcome is ok or an error's code", "face", "tool", "outcome"
    ),
    _histogram("serving", "myria_request_duration_seconds", "Time from a tool call to its answer", "face", "tool"),
    _counter(
        "serving", "myria_http_refusals_total", "HTTP requests refused before a tool: too large, malformed", "reason"
    ),
    _counter(
        "serving",
        "myria_audit_dropped_total",
        "Records of calls or refusals that were left out or lost",
        "log",
    ),
    _gauge("serving", "myria_requests_in_flight", "Tool calls being worked on"),
    _histogram("serving", "myria_append_batch_events", "Events that shared one commit"),
    _counter(
        "serving",
        "myria_appended_events_total",
        "Events of committed appends, repeated ones included",
        per_tenant=True,
    ),
    _counter("serving", "myria_redactions_total", "Texts redacted in payloads, also of dry runs and repeats", "kind"),
    _counter(
        "serving",
        "myria_answers_degraded_total",
        "Answers without the model that was asked for",
        "tool",
        "reason",
    ),
    _counter("serving", "myria_turn_facts_total", "Facts found by rule; tier is L0, L1 or L2", "tier"),
    _counter(
        "serving",
        "myria_turn_conflicts_total",
        "Repeated turns; state is stored or under_way",
        "state",
    ),
    _counter(
        "serving",
        "myria_turn_comparisons_total",
        "Answers compared in shadow mode; outcome is same, different, unreadable or dropped",
        "call",
        "aspect",
        "outcome",
    ),
    _counter("serving", "myria_turn_compactions_total", "Prompts with a summary of earlier items"),
    _counter(
        "serving",
        "myria_question_vectors_total",
        "Vectors of questions; outcome is computed or failed",
        "outcome",
    ),
    _counter(
        "serving",
        "myria_second_looks_total",
        "Second looks; outcome is looked or failed",
        "outcome",
    ),
    _gauge("serving", "myria_cache_bytes", "Bytes held by a cache", "cache"),
    _counter("serving", "myria_cache_lookups_total", "Cache look-ups; result is hit or miss", "cache", "result"),
    _gauge(
        "serving",
        "myria_pool_connections",
        "Database connections; pool is reads or appends, state idle or used",
        "pool",
        "state",
    ),
    _gauge("serving", "myria_pool_limit", "Most connections a pool may hold", "pool"),
    _counter("serving", "myria_pool_waits_total", "Requests that waited for a connection", "pool"),
    _gauge("serving", "myria_ready", "1 while /readyz succeeds"),
    _gauge("memory", "myria_tenants", "Tenants"),
    _gauge(
        "memory",
        "myria_log_events",
        "The greatest event number; repeated appends take numbers too",
    ),
    _gauge("memory", "myria_log_bytes", "Disk size of the log with indexes"),
    _gauge(
        "memory",
        "myria_stored_payload_bytes",
        "Payload bytes, as the quota `bytes_stored` counts them",
        per_tenant=True,
    ),
    _gauge("memory", "myria_database_bytes", "Disk size of the database"),
    _gauge(
        "memory",
        "myria_tail_events",
        "Events that a build would take",
        per_tenant=True,
    ),
    _gauge(
        "memory",
        "myria_tail_events_max",
        "The longest tail of one tenant",
        "paused",
    ),
    _gauge(
        "memory",
        "myria_memory_lag_seconds",
        "Age of the oldest event that no active snapshot holds; the greatest over tenants",
        "paused",
        per_tenant=True,
    ),
    _gauge(
        "memory",
        "myria_snapshot_age_seconds",
        "Time since the active snapshot was activated; the greatest over tenants with a tail",
        per_tenant=True,
    ),
    _gauge(
        "memory",
        "myria_tenants_paused",
        "Tenants with paused builds; reason is rollback, held_snapshot or other",
        "reason",
    ),
    _gauge("memory", "myria_tenants_backing_off", "Tenants whose last build failed"),
    _gauge("memory", "myria_oldest_pause_seconds", "Age of the oldest pause, 0 with none"),
    _gauge(
        "memory",
        "myria_builds",
        "Unfinished builds and requests; state is queued or running. Suspended and paused ones do not count",
        "state",
    ),
    _gauge("memory", "myria_oldest_queued_build_seconds", "Wait of the oldest queued build, 0 with none"),
    _gauge("memory", "myria_oldest_running_build_seconds", "Age of the oldest running build, 0 with none"),
    _counter("memory", "myria_builds_finished_total", "Builds that ended", "trigger", "outcome"),
    _histogram("memory", "myria_build_duration_seconds", "From the capture of a build's cutoff to its end", "outcome"),
    _histogram(
        "memory",
        "myria_build_phase_duration_seconds",
        "Parts of a build: queue (until its turn), start (slot, Job, pod, cutoff), compile (plan, validate, publish)",
        "phase",
    ),
    _counter(
        "memory",
        "myria_build_tasks_total",
        "Tasks (scopes) of ended builds; outcome is done, or degraded without the model's answer",
        "outcome",
    ),
    _counter("memory", "myria_validation_failures_total", "Violations for which builds failed", "rule"),
    _counter("memory", "myria_pointer_moves_total", "Moves of the active pointer; kind is publish or rollback", "kind"),
    _counter(
        "memory",
        "myria_llm_calls_total",
        "Requests to language models; workflow is build, walk, evaluate, extract or look",
        "workflow",
        "outcome",
    ),
    _counter(
        "memory", "myria_llm_tokens_total", "Tokens of these; direction is input or output", "workflow", "direction"
    ),
    _counter("memory", "myria_llm_cost_usd_total", "What they cost, in US dollars", "workflow"),
    _histogram("memory", "myria_llm_call_duration_seconds", "How long they took", "workflow"),
    _counter(
        "memory",
        "myria_llm_units_total",
        "Units of ended builds for a model's plan; result is planned, reused or degraded",
        "result",
    ),
    _counter("memory", "myria_turn_facts_found_total", "Facts that a model found; tier is L0, L1 or L2", "tier"),
    _counter(
        "memory",
        "myria_tool_feedback_total",
        "Feedback of agents: whether an answer was relevant, and sufficient",
        "tool",
        "relevant",
        "sufficient",
    ),
    _gauge(
        "memory",
        "myria_held_notes",
        "Notes that wait for a review; of each tenant at most 1,000 are counted",
        per_tenant=True,
    ),
    _gauge(
        "memory",
        "myria_oldest_held_note_seconds",
        "Wait of the oldest of them, 0 with none; the greatest over tenants",
        per_tenant=True,
    ),
    _counter(
        "memory",
        "myria_review_decisions_total",
        "Reviewers' decisions; decision is approved, refused, or held where one was taken back",
        "decision",
    ),
    _counter(
        "memory",
        "myria_erasures_total",
        "Erasures; stage is begun, or done with its receipt",
        "stage",
    ),
    _counter(
        "memory",
        "myria_erased_rows_total",
        "Rows that finished erasures emptied or removed, by table",
        "place",
    ),
    _histogram("memory", "myria_erasure_duration_seconds", "Time from the begin of an erasure to its receipt"),
    _gauge("memory", "myria_erasures_open", "Unfinished erasures"),
    _gauge("memory", "myria_oldest_open_erasure_seconds", "Age of the oldest of them, 0 with none"),
    _gauge(
        "memory",
        "myria_last_receipt_timestamp_seconds",
        "Unix time of the last finished erasure, 0 before the first",
    ),
    _counter("memory", "myria_llm_plan_repairs_total", "Times a model was told what is wrong with its plan"),
    _gauge("memory", "myria_snapshots", "Snapshots that are kept", "status"),
    _gauge(
        "memory",
        "myria_last_build_success_timestamp_seconds",
        "Unix time when a build last succeeded or was held; the newest over tenants",
        per_tenant=True,
    ),
    _histogram(
        "operator",
        "myria_operator_reconcile_duration_seconds",
        "One pass over a resource; outcome is ok or retry",
        "outcome",
    ),
    _gauge("operator", "myria_operator_queue_length", "Resources waiting or worked on"),
    _histogram(
        "operator",
        "myria_operator_event_latency_seconds",
        "Time from a watch's event to the end of the first pass after it that succeeded",
    ),
    _counter(
        "operator",
        "myria_operator_api_requests_total",
        "Requests to the API server; code is the HTTP status, or error without an answer",
        "verb",
        "resource",
        "code",
    ),
    _gauge("operator", "myria_operator_last_progress_timestamp_seconds", "Unix time when the queue last ticked"),
    _gauge(
        "operator",
        "myria_operator_last_sweep_timestamp_seconds",
        "Unix time when a sweep last succeeded, 0 before the first",
    ),
    _gauge(
        "operator",
        "myria_operator_rebuilds",
        "MyriaRebuilds at the last sweep, by the reason of Succeeded",
        "reason",
    ),
)
"""In the order in which docs/metrics.md lists them."""

BY_NAME: Mapping[str, Described] = {metric.name: metric for metric in METRICS}
