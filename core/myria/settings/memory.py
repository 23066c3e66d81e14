"""Settings of memory: notes, recall, builds and their planner, questions, and the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from myria.errors import ConfigurationError
from myria.settings import schedule
from myria.settings.sections import Section, section

if TYPE_CHECKING:
    from pydantic import Field

_DAY_S = 86_400.0


@section
class NotesSettings(Section):
    """What agents keep on purpose."""

    content_characters: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Longest text of a note; a longer one is refused."""
    session_idle_s: Annotated[int, Field(ge=60, le=86_400 * 365)] = 3600
    """Time after a session's last note at which the session ends, and its own notes expire."""
    consolidate_s: Annotated[float, Field(ge=0, le=86_400 * 30)] = 300.0
    """How often the control plane withdraws expired notes and merges equal ones. 0: never."""
    consolidate_notes: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Most notes of a tenant in one run."""
    evaluate: bool = False
    """Whether the model of llm.template rates notes; see docs/llm.md."""
    evaluate_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 60.0
    """How often the control plane looks for unrated notes."""
    evaluate_notes: Annotated[int, Field(ge=1, le=1_000)] = 24
    """Most notes of a tenant in one run."""


@section
class ReviewSettings(Section):
    """Which notes wait for a reviewer before anybody sees them (docs/tools.md: `decide_notes`). One of the three rules
    is enough. All are off by default. Imports are not held."""

    kinds: tuple[str, ...] = ()
    """Kinds of notes that are held, such as `decision`, or `fact_l0` for a fact of a turn."""
    sources: tuple[str, ...] = ()
    """Whose notes are held: `api:agent`, `api:reflect`, `api:turns`, `api:rest`, `speaker:NAME` for who says it (or
    whose it is, where nobody is named), or `source:TEXT` for the note's own source."""
    confidence_below: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Facts of turns with a lower confidence are held. Other notes have no confidence. 0: none."""

    def rules(self) -> None:
        """A source must say what it names."""
        for source in self.sources:
            sort, colon, name = source.partition(":")
            if sort not in ("api", "speaker", "source") or not colon or not name:
                raise ConfigurationError(
                    f"review.sources has {source!r}; write api:NAME, speaker:NAME or source:TEXT.",
                    field="review.sources",
                )
            if sort == "api" and name not in ("agent", "reflect", "turns", "rest"):
                raise ConfigurationError(
                    f"review.sources has {source!r}; the APIs are agent, reflect, turns and rest.",
                    field="review.sources",
                )


@section
class RecallSettings(Section):
    """What moves a memory up or down in recall besides its match; a share of 0.1 is worth a tenth of the match."""

    importance: Annotated[float, Field(ge=0, le=10)] = 0.15
    """Share that a note of importance 1 gains, others in proportion."""
    recency: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Share that a memory of this moment gains. It halves every recall.recency_days."""
    recency_days: Annotated[float, Field(gt=0, le=36_500)] = 90.0
    """Days in which the gain of recent memories halves."""
    keywords: Annotated[float, Field(ge=0, le=10)] = 0.3
    """Share that a note gains if it has all keywords asked for."""
    context: Annotated[float, Field(ge=0, le=10)] = 0.3
    """Share that a memory gains if it has all words of contextText, or six of them."""
    topics: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of its best event's score that a topic gets if its label holds all words of the question. 0: no topics."""
    quality: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share that a note rated 1 gains and a note rated 0 loses (notes.evaluate)."""
    use: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Most that a note of importance 1 gains by being recalled often; half of it after three times."""
    linked_limit: Annotated[int, Field(ge=0, le=200)] = 10
    """Most notes added because a link leads to them."""
    stale_after_fact_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """Days after which recall calls an unchanged fact old. 0: never. Unset: 60 for facts, 90 for decisions, 30 for
    procedures."""
    stale_after_decision_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same for a decision."""
    stale_after_procedure_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same for a procedure."""
    stale_after_other_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same for every other kind."""

    def stale_after(self, kind: str, default: int) -> int:
        """Return after how many days a note of a kind is called old, 0 for never; `default` is the kind's own."""
        chosen = {
            "fact": self.stale_after_fact_days,
            "decision": self.stale_after_decision_days,
            "procedure": self.stale_after_procedure_days,
        }.get(kind, self.stale_after_other_days)
        return default if chosen is None else chosen


@section
class BuilderSettings(Section):
    """When a build starts, how it works, what happens with its result."""

    inactivity_timeout_s: Annotated[float, Field(ge=0, le=86_400 * 365)] = 30.0
    """Silence after which Myria builds what waits. 0: never."""
    max_unindexed_events: Annotated[int, Field(ge=0, le=1_000_000_000)] = 100
    """Waiting events that start a build, without internal ones. 0: never."""
    min_interval_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Shortest time between a tenant's builds that max_unindexed_events starts, unless the tail is as long as
    everything in topics."""
    time_share: Annotated[float, Field(ge=0.001, le=1)] = 0.1
    """Largest share of time for a tenant's automatic builds: after one of 10 s, the next begins 90 s later."""
    long_tail_events: Annotated[int, Field(ge=1, le=1_000_000_000)] = 50_000
    """Waiting events from which long_tail_time_share applies instead."""
    long_tail_time_share: Annotated[float, Field(ge=0.001, le=1)] = 0.25
    """Share of time for builds while the tail is that long."""
    full_rebuild_schedule: str | None = None
    """When to rebuild every tenant in full: a cron expression in UTC, such as `0 3 * * SUN`. It finds rows changed by
    hand. Unset: never."""
    auto_publish: bool = True
    """Whether a valid snapshot is published at once. False holds it until `myria publish`."""
    allow_manual_trigger: bool = True
    """Whether `trigger_build` and `myria rebuild` work; else `manual_trigger_disabled`."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes per build, on one machine or in one pod. Leave PostgreSQL a core."""
    task_lease_s: Annotated[float, Field(ge=1, le=3600)] = 15.0
    """Time after which another worker may take over a silent worker's task."""
    turn_s: Annotated[float, Field(ge=0.01, le=86_400)] = 20.0
    """Time after which a build yields to others. On one machine it stops and continues later; on Kubernetes it goes on
    beside them (operator.overtime_builds)."""
    timeout_s: Annotated[float, Field(ge=0.1, le=31_536_000)] = 3600.0
    """Longest working time of a build on one machine; then it fails. On Kubernetes operator.deadline_s applies."""
    max_task_attempts: Annotated[int, Field(ge=1, le=1000)] = 20
    """Times a task may start before its build fails."""
    backoff_base_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    """Wait after the first failed build. It doubles with each further one."""
    backoff_max_s: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
    """Longest such wait."""
    poll_s: Annotated[float, Field(ge=0.05, le=60)] = 0.5
    """How often Myria looks for due triggers and requests."""

    def rules(self) -> None:
        """The backoff's base must not exceed its maximum, and a long tail must not slow builds down."""
        if self.time_share > self.long_tail_time_share:
            raise ConfigurationError(
                f"builder.time_share ({self.time_share}) exceeds builder.long_tail_time_share "
                f"({self.long_tail_time_share}); raise the second, or lower the first.",
                field="builder.time_share",
            )
        if self.full_rebuild_schedule is not None:
            schedule.check(self.full_rebuild_schedule, "builder.full_rebuild_schedule")
        if self.backoff_base_s > self.backoff_max_s:
            raise ConfigurationError(
                f"builder.backoff_base_s ({self.backoff_base_s}) exceeds builder.backoff_max_s ({self.backoff_max_s}).",
                field="builder.backoff_base_s",
            )


@section
class RetrievalSettings(Section):
    """What reading may use."""

    cache_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 256 * 1024 * 1024
    """Memory per process for cached parts of snapshots."""
    cursor_lifetime_s: Annotated[float, Field(ge=1, le=86_400 * 30)] = 3600.0
    """How long a cursor surely works. Keep retention.min_archived_s at least as long."""
    answer_bytes: Annotated[int, Field(ge=16 * 1024, le=1 << 30)] = 1024 * 1024
    """Largest answer of a query or list as JSON; the next page has the rest. A request gets at most four times this or
    ingest.payload_bytes, then `answer_too_large`. A process holds sixteen times this of unread answers, half for one
    tenant, then `overloaded`."""
    ranking_threads: Annotated[int, Field(ge=1, le=64)] = 2
    """Threads that rank."""
    reads_at_once: Annotated[int, Field(ge=1, le=1000)] = 4
    """Reads at once per process; credentials take turns. More than two per core rarely helps."""
    heavy_reads: Annotated[int, Field(ge=1, le=64)] = 1
    """Heavy reads at once: thousands of scopes, or more than 20,000 events."""


@section
class TopicsSettings(Section):
    """When a topic's state changes, measured against the newest visible event that is not ahead of the clock."""

    dormant_after_s: Annotated[float, Field(ge=0)] = 14 * _DAY_S
    """Silence after which a topic is shown as dormant."""
    archived_after_s: Annotated[float, Field(ge=0)] = 90 * _DAY_S
    """Silence after which a topic is shown as archived; merged topics are archived at once."""

    def rules(self) -> None:
        """A topic is dormant before it is archived."""
        if self.dormant_after_s > self.archived_after_s:
            raise ConfigurationError(
                "topics.dormant_after_s must not exceed topics.archived_after_s.",
                field="topics.dormant_after_s",
            )


@section
class OperatorSettings(Section):
    """The control plane on Kubernetes (`myria operate`)."""

    namespace: str = ""
    """The namespace to watch and change. Empty: that of the pod or of the kubeconfig's context."""
    deployment: str = ""
    """Name of the operator's own Deployment. If it was deleted when the operator ends, running builds end too."""
    pod_template: str = "/etc/myria/pod-template.yaml"
    """File with the PodTemplate of build pods."""
    max_builds: Annotated[int, Field(ge=1, le=1000)] = 4
    """Builds at once, over all tenants."""
    overtime_builds: Annotated[int, Field(ge=0, le=1000)] = 2
    """Builds beyond that number that may go on after builder.turn_s."""
    default_parallelism: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods per build, if the resource does not say; never more than changed scopes."""
    deadline_s: Annotated[int, Field(ge=10, le=604_800)] = 3600
    """Longest build, if the resource does not say."""
    pod_start_timeout_s: Annotated[int, Field(ge=1, le=604_800)] = 600
    """Time after which a build fails whose pods are refused or cannot start."""
    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 6
    """Failed pods per build, if the resource does not say."""
    job_ttl_s: Annotated[int, Field(ge=0, le=2_592_000)] = 3600
    """Time for which an ended Job and its logs stay, if the resource does not say."""
    keep_succeeded: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Succeeded MyriaRebuilds of the operator's own making to keep per tenant."""
    keep_failed: Annotated[int, Field(ge=0, le=100_000)] = 20
    """The same for failed ones."""
    sweep_s: Annotated[float, Field(ge=0.2, le=3600)] = 30.0
    """How often the operator compares all resources, Jobs and builds."""
    poll_s: Annotated[float, Field(ge=0.05, le=60)] = 1.0
    """How often the operator looks for changed builds and requests."""
    workers: Annotated[int, Field(ge=1, le=256)] = 8
    """Resources worked on at once."""
    probe_port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """TCP port of the liveness probe (/healthz). 0: none."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 8081
    """TCP port of /metrics, another than probe_port. 0: none."""

    def rules(self) -> None:
        """Probe and metrics are two ports."""
        if self.probe_port and self.probe_port == self.metrics_port:
            raise ConfigurationError(
                f"operator.probe_port and operator.metrics_port are both {self.probe_port}; choose two ports.",
                field="operator.metrics_port",
            )
