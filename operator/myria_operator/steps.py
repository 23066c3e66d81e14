"""What is done next for a resource: a pure function beside `status.derive`, one step at a time.

Each step may be repeated or lost without harm: everything is read again after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from myria.builds.model import Outcome
from myria_operator import reasons
from myria_operator.status import RebuildView, job_failure, pods_overdue, settled, wants_job


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What to do; `reason` and `message` are those of a build that is ended."""

    do: Do
    reason: str = ""
    message: str = ""


NOTHING = Step(do=Do.NOTHING)

_FINE: Final = frozenset({Outcome.SUCCEEDED, Outcome.HELD, Outcome.NOTHING_TO_DO})
"""Outcomes of a build after which its pods end by themselves."""


def next_step(view: RebuildView, succeeded: str) -> Step:
    """Return what is next, once the status that was derived from the same view is written.

    Args:
        view: what was looked at.
        succeeded: the derived status of the condition Succeeded.
    """
    rebuild = view.rebuild
    if view.trouble is not None:
        return NOTHING
    build, job = view.build, view.job
    if build is not None and build.outcome is not None and job is not None and job.uid == build.job_uid:
        is_running = not job.finished and not job.deleting and job.deadline_s != 1
        if is_running and build.outcome not in _FINE and not build.completed:
            return Step(do=Do.STOP_JOB)
    if settled(rebuild):
        return NOTHING
    if view.is_surplus:
        return Step(do=Do.DELETE)
    if rebuild.rollback_to is not None:
        return _rollback(view, succeeded)
    if build is None:
        return _before_the_build(view, succeeded)
    if build.outcome is not None:
        if build.outcome is Outcome.HELD:
            if view.situation.closed:
                return NOTHING
            if rebuild.wants("abort"):
                return Step(do=Do.ABORT)
            if not build.parent_is_active:
                return Step(do=Do.GIVE_UP)
            if rebuild.wants("approve"):
                return Step(do=Do.PUBLISH)
        return NOTHING
    if rebuild.wants("abort"):
        return Step(do=Do.ABORT)
    if build.suspended != rebuild.wants("suspend"):
        return Step(do=Do.SUSPEND_BUILD)
    if job is None:
        if build.job_uid is None:
            return Step(do=Do.MAKE_JOB) if wants_job(view) else NOTHING
        if build.alive:
            return NOTHING
        message = f"the Job {rebuild.status.get('jobName', '')} is gone, and nobody works on the build"
        return Step(do=Do.END_BUILD, reason=reasons.WORKER_LOST, message=message)
    if job.owner_uid != rebuild.uid:
        message = f"a Job {job.name} exists already, and is not this resource's"
        return Step(do=Do.END_BUILD, reason=reasons.JOB_CONFLICT, message=message)
    if build.job_uid is None:
        return Step(do=Do.NOTE_JOB)
    if job.failed:
        reason, message = job_failure(job)
        return Step(do=Do.END_BUILD, reason=reason, message=message)
    if job.complete:
        message = f"the Job {job.name} is complete, and the build has not ended"
        return Step(do=Do.END_BUILD, reason=reasons.WORKER_LOST, message=message)
    if job.deleting:
        return NOTHING
    if (overdue := pods_overdue(view)) is not None:
        reason, message = overdue
        return Step(do=Do.END_BUILD, reason=reason, message=message)
    if job.halted != rebuild.wants("suspend") or _deadline_differs(view):
        return Step(do=Do.CHANGE_JOB)
    return NOTHING


def _rollback(view: RebuildView, succeeded: str) -> Step:
    rebuild, situation = view.rebuild, view.situation
    if succeeded != "Unknown":
        is_open = situation.tenant_known and situation.moved_to is None and not situation.closed
        return Step(do=Do.GIVE_UP) if is_open else NOTHING
    has_target = view.target is not None and view.target.snapshot_id is not None
    return Step(do=Do.ROLL_BACK) if has_target and not rebuild.wants("suspend") else NOTHING


def _before_the_build(view: RebuildView, succeeded: str) -> Step:
    rebuild, situation = view.rebuild, view.situation
    if succeeded != "Unknown":
        return Step(do=Do.CLOSE_REQUEST) if situation.request_id is not None and not situation.closed else NOTHING
    if situation.request_id is None:
        return Step(do=Do.ASK)
    if situation.suspended != rebuild.wants("suspend"):
        return Step(do=Do.SUSPEND_REQUEST)
    if rebuild.wants("suspend") or situation.unfinished_build_id is not None:
        return NOTHING
    return Step(do=Do.TAKE_UP)


def _deadline_differs(view: RebuildView) -> bool:
    wanted = view.rebuild.build.get("deadlineSeconds")
    return wanted is not None and view.job is not None and view.job.deadline_s != wanted
