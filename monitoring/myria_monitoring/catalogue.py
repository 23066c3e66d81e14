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
    _gauge("process", "myria_build_info", "1; which version runs, and which plane it is", "version", "plane"),
    _gauge(
        "process",
        "myria_database_up",
        "1 if the database answered when it was last asked, within the last seconds; 0 also before it ever did",
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
        "Records of calls, or of refused attempts, that were left out or lost",
        "log",
    ),
    _gauge("serving", "myria_requests_in_flight", "Tool calls being worked on"),
    _histogram("serving", "myria_append_batch_events", "Events that shared one commit"),
    _counter(
        "serving",
        "myria_appended_events_total",
        "Events of appends that were committed, repeated ones included; the sum over tenants",
        per_tenant=True,
    ),
    _counter("serving", "myria_redactions_total", "What was taken out of payloads before they were stored", "kind"),
    _counter(
        "serving",
        "myria_answers_degraded_total",
        "Answers that were given without the model that was asked for",
        "tool",
        "reason",
    ),
    _counter("serving", "myria_turn_facts_total", "Facts that turns brought by rule; tier is L0, L1 or L2", "tier"),
    _counter(
        "serving",
        "myria_turn_conflicts_total",
        "Turns that came again; state is stored (nothing is done) or under_way (refused, to be tried again)",
        "state",
    ),
    _counter(
        "serving",
        "myria_turn_comparisons_total",
        "Shadow mode: answers compared with what hosts computed themselves, by aspect; outcome is same, different, "
        "unreadable (their result) or dropped (too many at once)",
        "call",
        "aspect",
        "outcome",
    ),
    _counter("serving", "myria_turn_compactions_total", "Prompts in which a summary stands for earlier items"),
    _counter(
        "serving",
        "myria_question_vectors_total",
        "Vectors of questions; outcome is computed, or failed: such a question was answered by its words alone",
        "outcome",
    ),
    _counter(
        "serving",
        "myria_second_looks_total",
        "Second looks at the hits of a question; outcome is looked, or failed: such a question was answered as ranked",
        "outcome",
    ),
    _gauge("serving", "myria_cache_bytes", "Bytes held by a cache", "cache"),
    _counter("serving", "myria_cache_lookups_total", "Cache look-ups; result is hit or miss", "cache", "result"),
    _gauge(
        "serving",
        "myria_pool_connections",
        "Connections of a database pool; pool is reads or appends, state idle or used",
        "pool",
        "state",
    ),
    _gauge("serving", "myria_pool_limit", "Most connections a pool may hold", "pool"),
    _counter("serving", "myria_pool_waits_total", "Times a connection was wanted while all were in use", "pool"),
    _gauge("serving", "myria_ready", "1 while /readyz says yes; 0 when it drains, or the database is away or outdated"),
    _gauge("memory", "myria_tenants", "Tenants"),
    _gauge(
        "memory",
        "myria_log_events",
        "The greatest event number: at least the events in the log, for a repeated append takes a number too",
    ),
    _gauge("memory", "myria_log_bytes", "Size on disk of the event log with its indexes"),
    _gauge(
        "memory",
        "myria_stored_payload_bytes",
        "Bytes of the payloads of events, as the quota `bytes_stored` counts them; the sum over tenants",
        per_tenant=True,
    ),
    _gauge("memory", "myria_database_bytes", "Size on disk of the whole database"),
    _gauge(
        "memory",
        "myria_tail_events",
        "Events past the active cutoff that a build would take; the sum over tenants",
        per_tenant=True,
    ),
    _gauge(
        "memory",
        "myria_tail_events_max",
        "The longest tail of one tenant, among those that are paused and those that are not",
        "paused",
    ),
    _gauge(
        "memory",
        "myria_memory_lag_seconds",
        "Age of the oldest event that no active snapshot holds, 0 with an empty tail; the greatest over tenants that "
        "are paused and those that are not",
        "paused",
        per_tenant=True,
    ),
    _gauge(
        "memory",
        "myria_snapshot_age_seconds",
        "Since the active snapshot was activated; the greatest over tenants that have a tail, 0 with none",
        per_tenant=True,
    ),
    _gauge(
        "memory",
        "myria_tenants_paused",
        "Tenants whose automatic builds are paused; reason is rollback, held_snapshot or other",
        "reason",
    ),
    _gauge("memory", "myria_tenants_backing_off", "Tenants whose last build failed, until one succeeds"),
    _gauge("memory", "myria_oldest_pause_seconds", "Age of the oldest pause, 0 with none"),
    _gauge(
        "memory",
        "myria_builds",
        "Unfinished builds, and requests that are none yet; state is queued or running. Those that were suspended, or "
        "wait for a pause to end, are left out",
        "state",
    ),
    _gauge("memory", "myria_oldest_queued_build_seconds", "How long the oldest queued build has waited, 0 with none"),
    _gauge("memory", "myria_oldest_running_build_seconds", "How long the oldest running build has run, 0 with none"),
    _counter("memory", "myria_builds_finished_total", "Builds that ended", "trigger", "outcome"),
    _histogram("memory", "myria_build_duration_seconds", "From the capture of a build's cutoff to its end", "outcome"),
    _histogram(
        "memory",
        "myria_build_phase_duration_seconds",
        "Parts of a build: queue (asked for, until it is the tenant's turn), start (a slot, a Job, a pod, the cutoff), "
        "compile (planning, validation, publishing)",
        "phase",
    ),
    _counter(
        "memory",
        "myria_build_tasks_total",
        "Tasks (scopes) of ended builds; outcome is done, or degraded where a model was asked for and did not answer",
        "outcome",
    ),
    _counter("memory", "myria_validation_failures_total", "Violations for which builds failed", "rule"),
    _counter("memory", "myria_pointer_moves_total", "Moves of the active pointer; kind is publish or rollback", "kind"),
    _counter(
        "memory",
        "myria_llm_calls_total",
        "Requests to language models; workflow is build, walk, evaluate, extract or look, outcome is ok or a failure",
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
        "Units of ended builds that had or should have had a model's plan; result is planned, reused or degraded",
        "result",
    ),
    _counter(
        "memory", "myria_turn_facts_found_total", "Facts that a model found in turns; tier is L0, L1 or L2", "tier"
    ),
    _counter(
        "memory",
        "myria_tool_feedback_total",
        "What agents say of answers with tool_feedback: whether one was relevant, and whether it was enough",
        "tool",
        "relevant",
        "sufficient",
    ),
    _counter(
        "memory",
        "myria_erasures_total",
        "Erasures; stage is begun, or done when everything is gone and the receipt is made",
        "stage",
    ),
    _counter(
        "memory",
        "myria_erased_rows_total",
        "Rows that erasures which are done emptied or removed, by place, a table of the database",
        "place",
    ),
    _histogram(
        "memory", "myria_erasure_duration_seconds", "From the beginning of an erasure to its receipt, waits included"
    ),
    _gauge("memory", "myria_erasures_open", "Erasures that have begun and are not done"),
    _gauge(
        "memory", "myria_oldest_open_erasure_seconds", "How long ago the oldest of those began; 0 when there is none"
    ),
    _gauge(
        "memory",
        "myria_last_receipt_timestamp_seconds",
        "When the last erasure was done, as Unix time; 0 before the first",
    ),
    _counter("memory", "myria_llm_plan_repairs_total", "Times a build told a model what was wrong with its plan"),
    _gauge("memory", "myria_snapshots", "Snapshots that are kept", "status"),
    _gauge(
        "memory",
        "myria_last_build_success_timestamp_seconds",
        "When a build last succeeded or was held, as Unix time; the newest over tenants, 0 before the first",
        per_tenant=True,
    ),
    _histogram(
        "operator",
        "myria_operator_reconcile_duration_seconds",
        "One pass over one resource; outcome is ok, or retry when it failed and will be repeated",
        "outcome",
    ),
    _gauge("operator", "myria_operator_queue_length", "Resources that wait or are worked on"),
    _histogram(
        "operator",
        "myria_operator_event_latency_seconds",
        "From what a watch told of a resource, or of its Job, to the end of the first pass after it that succeeded",
    ),
    _counter(
        "operator",
        "myria_operator_api_requests_total",
        "Requests to the API server; code is the HTTP status, or error when there was no answer",
        "verb",
        "resource",
        "code",
    ),
    _gauge("operator", "myria_operator_last_progress_timestamp_seconds", "When the queue last ticked, as Unix time"),
    _gauge(
        "operator",
        "myria_operator_last_sweep_timestamp_seconds",
        "When a sweep last succeeded, as Unix time; 0 before the first",
    ),
    _gauge(
        "operator",
        "myria_operator_rebuilds",
        "MyriaRebuilds as the last sweep saw them, by the reason of their condition Succeeded",
        "reason",
    ),
)
"""In the order in which docs/metrics.md lists them."""

BY_NAME: Mapping[str, Described] = {metric.name: metric for metric in METRICS}
