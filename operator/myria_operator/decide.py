"""Decide about a MyriaRebuild: its status and the next step, as a pure function of what was observed.

Nothing depends on what the operator did before, with two exceptions, both stored in the resource's status: a final
status is kept, and so is the snapshot to which a rollback's `previous` was resolved. A step may be repeated or lost
without harm: everything is observed again after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from myria.builds.model import Degraded, Outcome
from myria.db.clock import to_microseconds, to_rfc3339
from myria.errors import ModelFailed
from myria_operator import reasons
from myria_operator.naming import job_name
from myria_operator.observed import Observed, Rebuild
from myria_rebuilds.report import BuildFacts, status_fields
from myria_rebuilds.resource import Json

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"

EXCLUSIVE: Final = "build and rollback exclude each other; leave one of them out"
NO_APPROVAL: Final = "approve publishes a held build, and a rollback needs no approval; leave approve out"
"""Messages of the CustomResourceDefinition's rules about a spec, which API servers before 1.25 do not evaluate."""

_MESSAGE: Final = 1024
"""Most characters of a condition's message."""

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
"""Advice for people, by the reason with which the operator itself ended a build (in `details` of the build's error)."""

_ENDS_BY_ITSELF: Final = frozenset({Outcome.SUCCEEDED, Outcome.HELD, Outcome.NOTHING_TO_DO})
"""Outcomes of a build after which its pods exit without being stopped."""


class Do(StrEnum):
    """A step's kind."""

    NOTHING = "nothing"
    DELETE = "delete"
    """Delete a resource that the operator made a second time for one request."""
    ASK = "ask"
    """Write the resource's request."""
    SUSPEND_REQUEST = "suspend_request"
    CLOSE_REQUEST = "close_request"
    TAKE_UP = "take_up"
    """Turn the tenant's next request into its build; it may be another resource's."""
    SUSPEND_BUILD = "suspend_build"
    MAKE_JOB = "make_job"
    NOTE_JOB = "note_job"
    """Record in the database that the Job was made."""
    CHANGE_JOB = "change_job"
    """Make the Job's deadline and suspension what the spec says."""
    STOP_JOB = "stop_job"
    """Let the Job end at once and stay, with its logs."""
    END_BUILD = "end_build"
    ABORT = "abort"
    PUBLISH = "publish"
    ROLL_BACK = "roll_back"
    GIVE_UP = "give_up"
    """Keep an ended rollback or held build from moving the pointer."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do next; `reason` and `message` are set for `END_BUILD`, and say why the build ends."""

    do: Do
    reason: str = ""
    message: str = ""


NOTHING: Final = Step(Do.NOTHING)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a resource's status, without its time."""

    kind: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What a status should say (`with_times` makes the object out of it), and what to do once it is written."""

    fields: Mapping[str, Any]
    conditions: tuple[Condition, ...]
    step: Step

    @property
    def succeeded(self) -> Condition:
        """The condition Succeeded, which sums up the others."""
        return self.conditions[0]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A decision in the making: two conditions, the next step, and the status fields beside the conditions."""

    succeeded: Condition
    published: Condition
    step: Step = NOTHING
    fields: Json = field(default_factory=dict)


def decide(observed: Observed) -> Decision:
    """Return what the status should say, and the next step."""
    rebuild = observed.rebuild
    fields: Json = {"observedGeneration": rebuild.generation, "installationID": observed.installation}
    earlier = {key: value for key, value in rebuild.status.items() if key not in {*fields, "conditions"}}
    if rebuild.settled:
        conditions = tuple(_as_written(rebuild, kind) for kind in reasons.CONDITION_TYPES)
        step = Step(Do.STOP_JOB) if _has_pods_to_stop(observed) else NOTHING
        return Decision({**earlier, **fields}, conditions, step)
    if observed.trouble is not None:
        return Decision({**earlier, **fields}, _trouble_conditions(rebuild, *observed.trouble), NOTHING)
    if rebuild.rollback_to is not None:
        verdict = _verdict_on_rollback(observed)
    elif observed.build is None:
        verdict = _verdict_before_build(observed)
    elif observed.build.outcome is None:
        verdict = _verdict_during_build(observed, observed.build)
    else:
        verdict = _verdict_after_build(observed, observed.build, observed.build.outcome)
    step = Step(Do.DELETE) if observed.is_surplus else verdict.step
    if _has_pods_to_stop(observed):
        step = Step(Do.STOP_JOB)
    succeeded = verdict.succeeded
    if step.do is not Do.NOTHING and succeeded.status == UNKNOWN:
        # A missing permission stays reported until the step that it blocks is done: otherwise each attempt would
        # withdraw the report and make it again.
        reported = _as_written(rebuild, reasons.SUCCEEDED)
        succeeded = reported if reported.reason == reasons.PERMISSION_MISSING else succeeded
    # Fields written earlier stay even if their source is gone (tasks that retention deleted). The exception: a build
    # that found nothing to do gives up the snapshot it had begun.
    if observed.build is not None and observed.build.outcome is Outcome.NOTHING_TO_DO:
        earlier.pop("snapshotID", None)
    conditions = (succeeded, verdict.published, _suspended_condition(observed, succeeded))
    return Decision({**earlier, **fields, **verdict.fields}, conditions, step)


def with_times(decision: Decision, rebuild: Rebuild, now: str) -> Json:
    """Return the status to write, `now` being the time of every condition whose status changed.

    An ended resource gets `completedAt`: the database's time where the decision has it, else `now`.
    """
    conditions = []
    for condition in decision.conditions:
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
    ended = {"completedAt": now} if decision.succeeded.status != UNKNOWN else {}
    return {**ended, **decision.fields, "conditions": conditions}


def transitions(decision: Decision, rebuild: Rebuild) -> list[Condition]:
    """Return the conditions that need a Kubernetes Event: those whose status or reason is new and worth one."""
    return [
        condition
        for condition in decision.conditions
        if (rebuild.condition(condition.kind).get("status"), rebuild.condition(condition.kind).get("reason"))
        != (condition.status, condition.reason)
        and condition.reason not in {reasons.NOT_SUSPENDED, reasons.PENDING, reasons.NOT_SUCCEEDED}
    ]


def violations(spec: Mapping[str, Any]) -> list[str]:
    """Return a message for each rule that a spec breaks; types and required fields are checked by the API server."""
    rules = (
        (EXCLUSIVE, "build" in spec and "rollback" in spec),
        (NO_APPROVAL, "rollback" in spec and bool(spec.get("approve"))),
    )
    return [message for message, is_broken in rules if is_broken]


def _problem(observed: Observed) -> tuple[str, str] | None:
    """Return the reason and message for which nothing can be done for a resource, or None."""
    broken = violations(observed.rebuild.spec)
    if broken:
        return reasons.INVALID_SPEC, "; ".join(broken)
    if not observed.situation.tenant_known:
        message = f"the database has no tenant {observed.rebuild.tenant!r}; correct the name, or append an event first"
        return reasons.UNKNOWN_TENANT, message
    return None


def _verdict_before_build(observed: Observed) -> _Verdict:
    """Decide about a resource that has no build yet: it is queued, waits, or ends without a build."""
    rebuild, situation = observed.rebuild, observed.situation
    is_open = situation.request_id is not None and not situation.closed
    close_request = Step(Do.CLOSE_REQUEST) if is_open else NOTHING
    if (problem := _problem(observed)) is not None:
        published = _published(FALSE, reasons.NOT_SUCCEEDED, "nothing was built")
        return _Verdict(_succeeded(FALSE, *problem), published, close_request)
    if rebuild.wants("abort") and is_open:
        # The request becomes a build that was given up, so that the history has it; the status then follows from that.
        aborting = _succeeded(UNKNOWN, reasons.ABORTING, "the request is about to be given up")
        return _Verdict(aborting, _published(UNKNOWN, reasons.PENDING, "the build has not begun"), Step(Do.ABORT))
    if rebuild.wants("abort") or situation.closed:
        return _Verdict(*_both(FALSE, reasons.ABORTED, "aborted before it began"))
    not_published = _published(UNKNOWN, reasons.PENDING, "the build has not begun")
    if situation.request_id is None:
        step = Step(Do.ASK)
    elif situation.suspended != rebuild.wants("suspend"):
        step = Step(Do.SUSPEND_REQUEST)
    elif rebuild.wants("suspend") or situation.unfinished_build_id is not None:
        step = NOTHING
    else:
        step = Step(Do.TAKE_UP)
    if rebuild.wants("suspend"):
        not_ended = _succeeded(UNKNOWN, reasons.SUSPEND_REQUESTED, "waits until suspend is false")
    elif situation.request_id is None:
        not_ended = _succeeded(UNKNOWN, reasons.PENDING, "about to be queued")
    else:
        message = "waits for its turn among the tenant's builds"
        if situation.unfinished_resource is not None:
            message = f"waits for the MyriaRebuild {situation.unfinished_resource} of the same tenant to end"
        elif situation.unfinished_build_id is not None:
            message = f"waits for the tenant's build {situation.unfinished_build_id} to end"
        elif situation.paused and rebuild.trigger != "manual":
            message = "automatic builds pause since a rollback, until a manual build, a publish or `myria resume`"
        not_ended = _succeeded(UNKNOWN, reasons.QUEUED, message)
    return _Verdict(not_ended, not_published, step)


def _verdict_during_build(observed: Observed, build: BuildFacts) -> _Verdict:
    """Decide about a resource whose build has not ended: say how far it is, and take the next step."""
    rebuild, situation = observed.rebuild, observed.situation
    if rebuild.wants("abort"):
        reason, message = reasons.ABORTING, "the build is about to be ended"
    elif rebuild.wants("suspend"):
        reason, message = reasons.SUSPEND_REQUESTED, "stopped until suspend is false; what is done is kept"
    elif observed.job is None and build.job_uid is None and situation.ahead < observed.slots:
        reason, message = reasons.PENDING, "its Job is about to be made"
    elif observed.job is None and build.job_uid is None:
        unnamed = situation.ahead - len(situation.ahead_names)
        names = ", ".join(situation.ahead_names) + (f" and {unnamed} more" if unnamed > 0 else "")
        reason, message = (
            reasons.QUEUED,
            f"waits for one of the installation's {observed.slots} slots; "
            f"{situation.ahead - observed.slots + 1} must end before it of {names}",
        )
    elif build.alive and build.row.snapshot_id is None:
        reason, message = reasons.BUILDING, "a pod captures the cutoff"
    elif build.alive:
        reason, message = reasons.BUILDING, f"{build.done} of {build.tasks} scopes up to event {build.row.cutoff}"
    elif observed.pod_problem is not None:
        reason, problem = observed.pod_problem
        message = f"{problem}; given up after {observed.pod_start_timeout_s:.0f} s without a pod at work"
    else:
        reason, message = reasons.STARTING, "its Job exists; no pod was seen at work yet"
    published = _published(UNKNOWN, reasons.PENDING, "the build has not ended")
    step = _next_step(observed, build)
    return _Verdict(_succeeded(UNKNOWN, reason, message), published, step, _build_fields(observed, build))


def _next_step(observed: Observed, build: BuildFacts) -> Step:
    """Return the next step of an unfinished build."""
    rebuild, job = observed.rebuild, observed.job
    if rebuild.wants("abort"):
        return Step(Do.ABORT)
    if build.suspended != rebuild.wants("suspend"):
        return Step(Do.SUSPEND_BUILD)
    if job is None and build.job_uid is None:
        return Step(Do.MAKE_JOB) if observed.wants_job else NOTHING
    if job is None:
        message = f"the Job {rebuild.status.get('jobName', '')} is gone, and nobody works on the build"
        return NOTHING if build.alive else Step(Do.END_BUILD, reasons.WORKER_LOST, message)
    if job.owner_uid != rebuild.uid:
        message = f"a Job {job.name} exists already, and is not this resource's"
        return Step(Do.END_BUILD, reasons.JOB_CONFLICT, message)
    if build.job_uid is None:
        return Step(Do.NOTE_JOB)
    if job.failed:
        reason = _JOB_FAILURES.get(job.failed_reason, reasons.BACKOFF_LIMIT_EXCEEDED)
        message = f"the Job {job.name} failed: {job.failed_message or job.failed_reason or 'no reason given'}"
        return Step(Do.END_BUILD, reason, message)
    if job.complete:
        message = f"the Job {job.name} is complete, and the build has not ended"
        return Step(Do.END_BUILD, reasons.WORKER_LOST, message)
    if job.deleting:
        return NOTHING
    if observed.pod_problem is not None and _is_overdue(observed, build):
        reason, problem = observed.pod_problem
        message = f"given up after {build.podless_s:.0f} s without a pod at work: {problem}"
        return Step(Do.END_BUILD, reason, message)
    deadline_s = rebuild.build.get("deadlineSeconds", job.deadline_s)
    if job.halted != rebuild.wants("suspend") or job.deadline_s != deadline_s:
        return Step(Do.CHANGE_JOB)
    return NOTHING


def _is_overdue(observed: Observed, build: BuildFacts) -> bool:
    """Tell whether a build must be given up because no pod has worked on it for `pod_start_timeout_s`."""
    if build.alive or build.podless_s is None or observed.rebuild.wants("suspend"):
        return False
    return build.podless_s >= observed.pod_start_timeout_s


def _has_pods_to_stop(observed: Observed) -> bool:
    """Tell whether a build has ended in a way that leaves its Job running."""
    build, job = observed.build, observed.job
    if build is None or build.outcome is None or build.outcome in _ENDS_BY_ITSELF or build.completed:
        return False
    # The deadline of a Job that was already stopped is STOP_DEADLINE_S, one second.
    return (
        job is not None and job.uid == build.job_uid and not job.finished and not job.deleting and job.deadline_s != 1
    )


def _build_fields(observed: Observed, build: BuildFacts) -> Json:
    """Return the status fields about a build and its Job."""
    fields = status_fields(build)
    # The Job's name is written before the Job is made: an operator that is stopped in between finds the Job by it.
    if observed.job is not None or build.job_uid is not None or observed.wants_job:
        fields["jobName"] = job_name(observed.rebuild.name, observed.rebuild.uid)
    return fields


def _verdict_after_build(observed: Observed, build: BuildFacts, outcome: Outcome) -> _Verdict:
    """Decide about a resource whose build has ended; only a held build may need another step."""
    succeeded, published = _end_conditions(observed, build, outcome)
    step = NOTHING
    if outcome is Outcome.HELD and not observed.situation.closed:
        if observed.rebuild.wants("abort"):
            step = Step(Do.ABORT)
        elif not build.parent_is_active:
            step = Step(Do.GIVE_UP)
        elif observed.rebuild.wants("approve"):
            step = Step(Do.PUBLISH)
    return _Verdict(succeeded, published, step, _build_fields(observed, build))


def _end_conditions(observed: Observed, build: BuildFacts, outcome: Outcome) -> tuple[Condition, Condition]:
    """Return the conditions Succeeded and Published of an ended build."""
    row = build.row
    snapshot = row.snapshot_id or "none"
    degraded = Degraded.of_build(row.counts, build.degraded_reason)
    remark = "" if degraded is None else f"; {degraded}"
    has_failed = row.error is not None and row.error.get("code") != ModelFailed.code
    if row.error is not None and not has_failed:
        remark += f"; {row.error['message']}"
    if outcome is Outcome.SUCCEEDED:
        if row.hold or observed.rebuild.condition(reasons.SUCCEEDED).get("reason") == reasons.HELD:
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
        if not build.parent_is_active or observed.situation.closed:
            message = "another snapshot became active since it was built; build again"
            return held, _published(FALSE, reasons.PARENT_MOVED, message)
        message = f"set approve: true to publish snapshot {snapshot}, or abort: true to give it up"
        return held, _published(FALSE, reasons.AWAITING_APPROVAL, message)
    was_held = _succeeded(TRUE, reasons.HELD, f"snapshot {snapshot} was valid and held")
    if outcome is Outcome.SUPERSEDED:
        if build.completed and not has_failed:
            message = "another snapshot was published while it was held; build again"
            return was_held, _published(FALSE, reasons.PARENT_MOVED, message)
        message = "another snapshot became active while it was built; create another MyriaRebuild"
        return _both(FALSE, reasons.PARENT_MOVED, message)
    if outcome is Outcome.ABORTED:
        why = str((row.error or {}).get("message") or "aborted")
        if build.completed:
            return was_held, _published(FALSE, reasons.ABORTED, f"its snapshot is not published: {why}")
        return _both(FALSE, reasons.ABORTED, f"nothing was published: {why}")
    reason, message = _failure(row.error or {})
    return _succeeded(FALSE, reason, message), _published(FALSE, reasons.NOT_SUCCEEDED, "nothing was published")


def _failure(error: Mapping[str, Any]) -> tuple[str, str]:
    """Return reason and message of a failed build, with advice if the operator ended it."""
    message = str(error.get("message") or "the build failed")
    reason = (error.get("details") or {}).get("reason")
    if reason in _ADVICE:
        return str(reason), f"{message}; {_ADVICE[reason]}"
    return reasons.BUILD_FAILED, f"{error.get('code', 'internal_error')}: {message}"


def _verdict_on_rollback(observed: Observed) -> _Verdict:
    """Decide about a resource that asks for a rollback."""
    rebuild, situation, target = observed.rebuild, observed.situation, observed.target
    if situation.moved_to is not None:
        fields: Json = {"snapshotID": situation.moved_to}
        if situation.moved_from is not None:
            fields["previousSnapshotID"] = situation.moved_from
        if situation.moved_at is not None:
            moved_at = to_microseconds(situation.moved_at)
            at = to_rfc3339(moved_at - moved_at % 1_000_000)
            fields |= {"startedAt": at, "completedAt": at, "durationSeconds": 0}
        message = f"snapshot {situation.moved_to} is active again; automatic builds of the tenant pause"
        return _Verdict(*_both(TRUE, reasons.ROLLED_BACK, message), fields=fields)
    give_up = Step(Do.GIVE_UP) if situation.tenant_known and not situation.closed else NOTHING
    problem = _problem(observed)
    if problem is None and target is not None and target.problem is not None:
        problem = target.problem, target.message
    if problem is not None:
        published = _published(FALSE, reasons.NOT_SUCCEEDED, "the pointer was not moved")
        return _Verdict(_succeeded(FALSE, *problem), published, give_up)
    needs_no_move = target is not None and target.snapshot_id in {None, situation.active_snapshot_id}
    if rebuild.wants("abort") or (situation.closed and not needs_no_move):
        return _Verdict(*_both(FALSE, reasons.ABORTED, "aborted before the pointer moved"), give_up)
    not_published = _published(UNKNOWN, reasons.PENDING, "the pointer was not moved yet")
    if rebuild.wants("suspend"):
        return _Verdict(_succeeded(UNKNOWN, reasons.SUSPEND_REQUESTED, "waits until suspend is false"), not_published)
    if target is None or target.snapshot_id is None:
        return _Verdict(_succeeded(UNKNOWN, reasons.PENDING, "about to look for the snapshot"), not_published)
    fields = {"snapshotID": target.snapshot_id}
    if target.snapshot_id == situation.active_snapshot_id:
        message = f"snapshot {target.snapshot_id} is active already"
        published = _published(FALSE, reasons.NOTHING_TO_DO, message)
        return _Verdict(_succeeded(TRUE, reasons.NOTHING_TO_DO, message), published, give_up, fields)
    if situation.active_snapshot_id is not None:
        fields["previousSnapshotID"] = situation.active_snapshot_id
    succeeded = _succeeded(UNKNOWN, reasons.PENDING, f"about to go back to snapshot {target.snapshot_id}")
    return _Verdict(succeeded, not_published, Step(Do.ROLL_BACK), fields)


def _suspended_condition(observed: Observed, succeeded: Condition) -> Condition:
    """Return the condition Suspended: true once `suspend` is set, nothing has ended and no pod works."""
    job, is_requested = observed.job, observed.rebuild.wants("suspend")
    has_pods = job is not None and not job.finished and (not job.halted or job.active > 0)
    if is_requested and succeeded.status == UNKNOWN and not has_pods:
        return Condition(reasons.SUSPENDED, TRUE, reasons.SUSPEND_REQUESTED, "no pod works for it")
    message = "suspend is not set"
    if is_requested:
        message = "its pods are being stopped" if succeeded.status == UNKNOWN else "suspend came after the end"
    return Condition(reasons.SUSPENDED, FALSE, reasons.NOT_SUSPENDED, message)


def _trouble_conditions(rebuild: Rebuild, reason: str, message: str) -> tuple[Condition, ...]:
    """Return the conditions of a resource that cannot be examined now: Succeeded gets the reason, the others stay."""
    published = _published(UNKNOWN, reasons.PENDING, "the build has not begun")
    if rebuild.condition(reasons.PUBLISHED):
        published = _as_written(rebuild, reasons.PUBLISHED)
    return _succeeded(UNKNOWN, reason, message), published, _as_written(rebuild, reasons.SUSPENDED)


def _as_written(rebuild: Rebuild, kind: str) -> Condition:
    """Return a condition as it stands in the resource's status."""
    written = rebuild.condition(kind)
    if not written:
        return Condition(kind, FALSE, reasons.NOT_SUSPENDED, "suspend is not set")
    return Condition(kind, written["status"], written["reason"], written.get("message", ""))


def _succeeded(status: str, reason: str, message: str) -> Condition:
    return Condition(reasons.SUCCEEDED, status, reason, message[:_MESSAGE])


def _published(status: str, reason: str, message: str) -> Condition:
    return Condition(reasons.PUBLISHED, status, reason, message[:_MESSAGE])


def _both(status: str, reason: str, message: str) -> tuple[Condition, Condition]:
    """Return the conditions Succeeded and Published with the same content."""
    return _succeeded(status, reason, message), _published(status, reason, message)
