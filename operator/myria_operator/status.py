"""The status of a MyriaRebuild as a pure function of (spec, Job, build): the heart of the operator.

The status is derived from scratch each time and does not depend on what the operator did before, with two exceptions
that the resource itself carries: an end is kept, and so is the snapshot to which a rollback's `previous` was resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from myria.builds.model import Degraded, Outcome
from myria.db.clock import to_microseconds, to_rfc3339
from myria.errors import ModelFailed
from myria_operator import reasons, rules
from myria_operator.facts import Job, Rebuild, Situation, Target
from myria_operator.naming import job_name
from myria_rebuilds.report import BuildFacts, status_fields
from myria_rebuilds.resource import Json

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

_MESSAGE: Final = 1024

INTERRUPTIONS: Final = frozenset(
    {
        reasons.WORKER_LOST,
        reasons.UNINSTALLED,
        reasons.DEADLINE_EXCEEDED,
        reasons.BACKOFF_LIMIT_EXCEEDED,
        reasons.BAD_INPUT,
        reasons.JOB_CONFLICT,
        reasons.JOB_REFUSED,
        reasons.PODS_REFUSED,
        reasons.POD_NOT_STARTING,
    }
)
"""Reasons with which the operator itself ends a build; the details of the build's error hold them."""

_JOB_FAILURES: Final = {
    "DeadlineExceeded": reasons.DEADLINE_EXCEEDED,
    "BackoffLimitExceeded": reasons.BACKOFF_LIMIT_EXCEEDED,
    "PodFailurePolicy": reasons.BAD_INPUT,
}

_ADVICE: Final = {
    reasons.WORKER_LOST: "create another MyriaRebuild to build again",
    reasons.UNINSTALLED: "create another MyriaRebuild to build again",
    reasons.DEADLINE_EXCEEDED: "give the next one more deadlineSeconds or more parallelism",
    reasons.BACKOFF_LIMIT_EXCEEDED: "the logs of the Job's pods say why they failed",
    reasons.BAD_INPUT: "the logs of the Job's pods say what is wrong with their configuration",
    reasons.JOB_CONFLICT: "delete that Job, then create another MyriaRebuild",
    reasons.JOB_REFUSED: "mend the quota, the admission policy or the pod template, then create another MyriaRebuild",
    reasons.PODS_REFUSED: (
        "mend the quota, the priority class, the admission policy or the pod template, then create another MyriaRebuild"
    ),
    reasons.POD_NOT_STARTING: "mend what keeps its pods from starting, then create another MyriaRebuild",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildView:
    """Everything from which a resource's status and next step are derived.

    The Job was read before the database: a Job that is complete has its build's end in `build`. `trouble` is a reason
    and a message that keep the operator from going on now (a missing permission, a database that is away).
    `pod_problem`: the reason (PODS_REFUSED, POD_NOT_STARTING) and the message of why no pod of the Job works.
    `is_surplus`: the operator made it for a request that another resource has fulfilled.
    """

    rebuild: Rebuild
    installation: str
    situation: Situation
    job: Job | None = None
    build: BuildFacts | None = None
    target: Target | None = None
    pod_problem: tuple[str, str] | None = None
    pod_start_timeout_s: float = 600.0
    max_builds: int = 4
    is_surplus: bool = False
    trouble: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One condition without its time."""

    kind: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Derived:
    """What a status should say; `with_times` makes the object out of it."""

    fields: Mapping[str, Any]
    conditions: tuple[Condition, ...]

    @property
    def succeeded(self) -> Condition:
        """The summary."""
        return self.conditions[0]


def settled(rebuild: Rebuild) -> bool:
    """Tell whether a resource has ended for good: its status stays, whatever becomes of its Job and build."""
    if rebuild.condition(reasons.SUCCEEDED).get("status") not in {TRUE, FALSE}:
        return False
    return not awaits_approval(rebuild)


def awaits_approval(rebuild: Rebuild) -> bool:
    """Tell whether its build is held and nothing was decided yet."""
    return rebuild.condition(reasons.PUBLISHED).get("reason") == reasons.AWAITING_APPROVAL


def derive(view: RebuildView) -> Derived:
    """Return what the status should say."""
    rebuild = view.rebuild
    fields: Json = {"observedGeneration": rebuild.generation, "installationID": view.installation}
    earlier = {key: value for key, value in rebuild.status.items() if key not in {*fields, "conditions"}}
    if settled(rebuild):
        conditions = tuple(_as_written(rebuild, kind) for kind in reasons.CONDITION_TYPES)
        return Derived(fields={**earlier, **fields}, conditions=conditions)
    if view.trouble is not None:
        return Derived(fields={**earlier, **fields}, conditions=_in_trouble(rebuild, *view.trouble))
    if rebuild.rollback_to is not None:
        more, succeeded, published = _rollback(view)
    else:
        more, succeeded, published = _build(view)
    # Fields written earlier stay even if their source is gone (tasks that retention deleted), but for the snapshot of a
    # build that had begun one and then found nothing to do.
    if view.build is not None and view.build.outcome is Outcome.NOTHING_TO_DO:
        earlier.pop("snapshotID", None)
    return Derived(fields={**earlier, **fields, **more}, conditions=(succeeded, published, _suspended(view, succeeded)))


def with_times(derived: Derived, rebuild: Rebuild, now: str) -> Json:
    """Return the status to write: a condition's time is that of its last change of status.

    An end has a time: a build's is the database's, any other is when the operator saw it.
    """
    conditions = []
    for condition in derived.conditions:
        before = rebuild.condition(condition.kind)
        conditions.append(
            {
                "type": condition.kind,
                "status": condition.status,
                "observedGeneration": rebuild.generation,
                "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == condition.status else now,
                "reason": condition.reason,
                "message": condition.message,
            }
        )
    ended = {"completedAt": now} if derived.succeeded.status != UNKNOWN else {}
    return {**ended, **derived.fields, "conditions": conditions}


def transitions(derived: Derived, rebuild: Rebuild) -> list[Condition]:
    """Return the conditions whose status or reason is news, for Kubernetes Events."""
    return [
        condition
        for condition in derived.conditions
        if (rebuild.condition(condition.kind).get("status"), rebuild.condition(condition.kind).get("reason"))
        != (condition.status, condition.reason)
        and condition.reason not in {reasons.NOT_SUSPENDED, reasons.PENDING, reasons.NOT_SUCCEEDED}
    ]


def job_failure(job: Job) -> tuple[str, str]:
    """Return the reason and the message of a Job that failed."""
    reason = _JOB_FAILURES.get(job.failed_reason, reasons.BACKOFF_LIMIT_EXCEEDED)
    return reason, f"the Job {job.name} failed: {job.failed_message or job.failed_reason or 'no reason given'}"


def pods_overdue(view: RebuildView) -> tuple[str, str] | None:
    """Return reason and message for giving up a build whose pods could not work for too long, else None."""
    build = view.build
    if view.pod_problem is None or build is None or build.podless_s is None or view.rebuild.wants("suspend"):
        return None
    if build.alive or build.podless_s < view.pod_start_timeout_s:
        return None
    reason, problem = view.pod_problem
    return reason, f"given up after {build.podless_s:.0f} s without a pod at work: {problem}"


def wants_job(view: RebuildView) -> bool:
    """Tell whether the resource's build is to have a Job now: it is its turn, and nothing keeps it."""
    return (
        view.build is not None
        and view.build.outcome is None
        and view.build.job_uid is None
        and not view.rebuild.wants("suspend")
        and not view.rebuild.wants("abort")
        and view.situation.ahead < _slots(view)
    )


def _slots(view: RebuildView) -> int:
    """Return of how many slots the resource's build may have one: the last is for tenants that do not fail."""
    return max(1, view.max_builds - 1) if view.situation.failed_last else view.max_builds


_Parts = tuple[Json, Condition, Condition]


def _build(view: RebuildView) -> _Parts:
    rebuild, situation, build = view.rebuild, view.situation, view.build
    if build is not None:
        fields = status_fields(build)
        if view.job is not None or build.job_uid is not None or wants_job(view):
            fields["jobName"] = job_name(rebuild.name, rebuild.uid)
        outcome = build.outcome
        if outcome is None:
            return fields, _unfinished(view, build), _published(UNKNOWN, reasons.PENDING, "the build has not ended")
        return fields, *_ended(view, build, outcome)
    problem = _problem(view)
    if problem is not None:
        return {}, _succeeded(FALSE, *problem), _published(FALSE, reasons.NOT_SUCCEEDED, "nothing was built")
    pending = _published(UNKNOWN, reasons.PENDING, "the build has not begun")
    if rebuild.wants("abort") or situation.closed:
        return (
            {},
            _succeeded(FALSE, reasons.ABORTED, "aborted before it began"),
            _published(FALSE, reasons.ABORTED, "aborted before it began"),
        )
    if rebuild.wants("suspend"):
        return (
            {},
            _succeeded(UNKNOWN, reasons.SUSPEND_REQUESTED, "waits until suspend is false"),
            pending,
        )
    if situation.request_id is None:
        return {}, _succeeded(UNKNOWN, reasons.PENDING, "about to be queued"), pending
    if situation.unfinished_build_id is not None:
        message = f"waits for the tenant's build {situation.unfinished_build_id} to end"
        if situation.unfinished_resource is not None:
            message = f"waits for the MyriaRebuild {situation.unfinished_resource} of the same tenant to end"
    elif situation.paused and rebuild.trigger != "manual":
        message = "automatic builds pause since a rollback, until a manual build, a publish or `myria resume`"
    else:
        message = "waits for its turn among the tenant's builds"
    return {}, _succeeded(UNKNOWN, reasons.QUEUED, message), pending


def _unfinished(view: RebuildView, build: BuildFacts) -> Condition:
    rebuild, job = view.rebuild, view.job
    if rebuild.wants("abort"):
        return _succeeded(UNKNOWN, reasons.ABORTING, "the build is about to be ended")
    if rebuild.wants("suspend"):
        return _succeeded(UNKNOWN, reasons.SUSPEND_REQUESTED, "stopped until suspend is false; what is done is kept")
    if job is None and build.job_uid is None:
        slots = _slots(view)
        if view.situation.ahead >= slots:
            message = (
                f"waits for one of the installation's {slots} slots; "
                f"{view.situation.ahead - slots + 1} must end before it of {_names(view.situation)}"
            )
            return _succeeded(UNKNOWN, reasons.QUEUED, message)
        return _succeeded(UNKNOWN, reasons.PENDING, "its Job is about to be made")
    if build.alive:
        if build.row.snapshot_id is None:
            return _succeeded(UNKNOWN, reasons.BUILDING, "a pod captures the cutoff")
        return _succeeded(
            UNKNOWN, reasons.BUILDING, f"{build.done} of {build.tasks} scopes up to event {build.row.cutoff}"
        )
    if view.pod_problem is not None:
        reason, problem = view.pod_problem
        return _succeeded(
            UNKNOWN, reason, f"{problem}; given up after {view.pod_start_timeout_s:.0f} s without a pod at work"
        )
    return _succeeded(UNKNOWN, reasons.STARTING, "its Job exists; no pod was seen at work yet")


def _names(situation: Situation) -> str:
    """Return the resources whose builds come first, by name, as far as they were read."""
    more = situation.ahead - len(situation.ahead_names)
    return ", ".join(situation.ahead_names) + (f" and {more} more" if more > 0 else "")


def _ended(view: RebuildView, build: BuildFacts, outcome: Outcome) -> tuple[Condition, Condition]:
    row = build.row
    snapshot = row.snapshot_id or "none"
    degraded = Degraded.of_build(row.counts, build.degraded_reason)
    remark = "" if degraded is None else f"; {degraded}"
    has_failed = row.error is not None and row.error.get("code") != ModelFailed.code
    if row.error is not None and not has_failed:
        remark += f"; {row.error['message']}"
    if outcome is Outcome.SUCCEEDED:
        if row.hold or view.rebuild.condition(reasons.SUCCEEDED).get("reason") == reasons.HELD:
            return (
                _succeeded(TRUE, reasons.HELD, f"snapshot {snapshot} is valid, was held and then published{remark}"),
                _published(TRUE, reasons.APPROVED, f"snapshot {snapshot} became the active one when it was approved"),
            )
        return (
            _succeeded(TRUE, reasons.BUILD_PUBLISHED, f"snapshot {snapshot} is valid and was published{remark}"),
            _published(TRUE, reasons.BUILD_PUBLISHED, f"snapshot {snapshot} became the active one"),
        )
    if outcome is Outcome.NOTHING_TO_DO:
        message = (
            f"nothing is new since snapshot {row.parent_snapshot_id}; build.force: true builds all the same{remark}"
        )
        return _succeeded(TRUE, reasons.NOTHING_TO_DO, message), _published(FALSE, reasons.NOTHING_TO_DO, message)
    if outcome is Outcome.HELD:
        held = _succeeded(TRUE, reasons.HELD, f"snapshot {snapshot} is valid and held{remark}")
        if not build.parent_is_active or view.situation.closed:
            message = "another snapshot became active since it was built; build again"
            return held, _published(FALSE, reasons.PARENT_MOVED, message)
        message = f"set approve: true to publish snapshot {snapshot}, or abort: true to give it up"
        return held, _published(FALSE, reasons.AWAITING_APPROVAL, message)
    if outcome is Outcome.SUPERSEDED and build.completed and not has_failed:
        message = "another snapshot was published while it was held; build again"
        held = _succeeded(TRUE, reasons.HELD, f"snapshot {snapshot} was valid and held")
        return held, _published(FALSE, reasons.PARENT_MOVED, message)
    if outcome is Outcome.SUPERSEDED:
        message = "another snapshot became active while it was built; create another MyriaRebuild"
        return _succeeded(FALSE, reasons.PARENT_MOVED, message), _published(FALSE, reasons.PARENT_MOVED, message)
    if outcome is Outcome.ABORTED:
        if build.completed:
            return (
                _succeeded(TRUE, reasons.HELD, f"snapshot {snapshot} was valid and held"),
                _published(FALSE, reasons.ABORTED, "aborted: the held snapshot was given up"),
            )
        message = "aborted; nothing was published"
        if (row.error or {}).get("reason") == "paused":
            message = "automatic builds of the tenant pause since a rollback; nothing was published"
        return _succeeded(FALSE, reasons.ABORTED, message), _published(FALSE, reasons.ABORTED, message)
    reason, message = _failure(row.error or {})
    return _succeeded(FALSE, reason, message), _published(FALSE, reasons.NOT_SUCCEEDED, "nothing was published")


def _failure(error: Mapping[str, Any]) -> tuple[str, str]:
    message = str(error.get("message") or "the build failed")
    reason = (error.get("details") or {}).get("reason")
    if reason in INTERRUPTIONS:
        return str(reason), f"{message}; {_ADVICE[str(reason)]}"
    return reasons.BUILD_FAILED, f"{error.get('code', 'internal_error')}: {message}"


def _rollback(view: RebuildView) -> _Parts:
    rebuild, situation = view.rebuild, view.situation
    fields: Json = {}
    if situation.moved_to is not None:
        fields = {"snapshotID": situation.moved_to}
        if situation.moved_from is not None:
            fields["previousSnapshotID"] = situation.moved_from
        if situation.moved_at is not None:
            moved_at = to_microseconds(situation.moved_at)
            at = to_rfc3339(moved_at - moved_at % 1_000_000)
            fields |= {"startedAt": at, "completedAt": at, "durationSeconds": 0}
        message = f"snapshot {situation.moved_to} is active again; automatic builds of the tenant pause"
        return fields, _succeeded(TRUE, reasons.ROLLED_BACK, message), _published(TRUE, reasons.ROLLED_BACK, message)
    problem = _problem(view)
    target = view.target
    if problem is None and target is not None and target.problem is not None:
        problem = target.problem, target.message
    if problem is not None:
        message = "the pointer was not moved"
        return fields, _succeeded(FALSE, *problem), _published(FALSE, reasons.NOT_SUCCEEDED, message)
    pending = _published(UNKNOWN, reasons.PENDING, "the pointer was not moved yet")
    is_here = target is not None and target.snapshot_id in {None, situation.active_snapshot_id}
    if rebuild.wants("abort") or (situation.closed and not is_here):
        message = "aborted before the pointer moved"
        return fields, _succeeded(FALSE, reasons.ABORTED, message), _published(FALSE, reasons.ABORTED, message)
    if rebuild.wants("suspend"):
        return fields, _succeeded(UNKNOWN, reasons.SUSPEND_REQUESTED, "waits until suspend is false"), pending
    if target is None or target.snapshot_id is None:
        return fields, _succeeded(UNKNOWN, reasons.PENDING, "about to look for the snapshot"), pending
    fields["snapshotID"] = target.snapshot_id
    if target.snapshot_id == situation.active_snapshot_id:
        message = f"snapshot {target.snapshot_id} is active already"
        return (
            fields,
            _succeeded(TRUE, reasons.NOTHING_TO_DO, message),
            _published(FALSE, reasons.NOTHING_TO_DO, message),
        )
    if situation.active_snapshot_id is not None:
        fields["previousSnapshotID"] = situation.active_snapshot_id
    return fields, _succeeded(UNKNOWN, reasons.PENDING, f"about to go back to snapshot {target.snapshot_id}"), pending


def _problem(view: RebuildView) -> tuple[str, str] | None:
    """Return why nothing can be done for a resource, or None."""
    broken = rules.violations(None, view.rebuild.spec)
    if broken:
        return reasons.INVALID_SPEC, "; ".join(broken)
    if not view.situation.tenant_known:
        message = f"the database has no tenant {view.rebuild.tenant!r}; correct the name, or append an event first"
        return reasons.UNKNOWN_TENANT, message
    return None


def _suspended(view: RebuildView, succeeded: Condition) -> Condition:
    wanted = view.rebuild.wants("suspend") and succeeded.status == UNKNOWN
    has_pods = view.job is not None and not view.job.finished and (not view.job.halted or view.job.active > 0)
    if wanted and not has_pods:
        return Condition(
            kind=reasons.SUSPENDED, status=TRUE, reason=reasons.SUSPEND_REQUESTED, message="no pod works for it"
        )
    message = "its pods are being stopped" if wanted else "suspend is not set"
    if view.rebuild.wants("suspend") and not wanted:
        message = "suspend came after the end"
    return Condition(kind=reasons.SUSPENDED, status=FALSE, reason=reasons.NOT_SUSPENDED, message=message)


def _in_trouble(rebuild: Rebuild, reason: str, message: str) -> tuple[Condition, ...]:
    """Return the conditions of a resource that cannot be examined now: only the reason changes."""
    published = _published(UNKNOWN, reasons.PENDING, "the build has not begun")
    if rebuild.condition(reasons.PUBLISHED):
        published = _as_written(rebuild, reasons.PUBLISHED)
    return _succeeded(UNKNOWN, reason, message), published, _as_written(rebuild, reasons.SUSPENDED)


def _as_written(rebuild: Rebuild, kind: str) -> Condition:
    written = rebuild.condition(kind)
    if not written:
        return Condition(kind=kind, status=FALSE, reason=reasons.NOT_SUSPENDED, message="suspend is not set")
    return Condition(kind=kind, status=written["status"], reason=written["reason"], message=written.get("message", ""))


def _succeeded(status: str, reason: str, message: str) -> Condition:
    return Condition(kind=reasons.SUCCEEDED, status=status, reason=reason, message=message[:_MESSAGE])


def _published(status: str, reason: str, message: str) -> Condition:
    return Condition(kind=reasons.PUBLISHED, status=status, reason=reason, message=message[:_MESSAGE])
