"""What a MyriaRebuild's status says, for every situation: a table over a pure function."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.builds.model import BuildRow
from myria_operator import reasons
from myria_operator.decide import Do, decide, transitions, with_times
from myria_operator.naming import job_name
from myria_operator.observed import Job, Observed, Rebuild, Situation, Target
from myria_operator.reconcile import newest_refusal
from myria_rebuilds.report import BuildFacts, pod_fields, status_fields

NOW = "2026-01-02T03:04:05Z"
STARTED = datetime(2026, 1, 1, 10, 0, 0, 400_000, tzinfo=UTC)
FINISHED = datetime(2026, 1, 1, 10, 0, 7, 300_000, tzinfo=UTC)
UID, SNAPSHOT, PARENT, INSTALLATION = "uid-1", "snap_" + "a" * 32, "snap_" + "b" * 32, "inst"


def rebuild(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **fields: Any) -> Rebuild:
    """A resource of tenant `default`."""
    values: dict[str, Any] = {
        "namespace": "ns",
        "name": "one",
        "uid": UID,
        "generation": 3,
        "resource_version": "7",
        "created_at": NOW,
        "deleting": False,
        "labels": {},
        "spec": {"tenant": "default", **(spec or {})},
        "status": status or {"installationID": INSTALLATION},
    }
    return Rebuild(**{**values, **fields})


def row(status: str = "running", **fields: Any) -> BuildRow:
    """A build that began, or ended with the status."""
    ended = status not in {"queued", "running"}
    values: dict[str, Any] = {
        "build_id": "bld_1",
        "status": status,
        "trigger": "manual",
        "is_full": False,
        "hold": False,
        "reason": None,
        "request_id": "req_1",
        "parent_snapshot_id": PARENT,
        "snapshot_id": SNAPSHOT if status != "queued" else None,
        "cutoff": 90 if status != "queued" else None,
        "created_at": STARTED,
        "started_at": STARTED if status != "queued" else None,
        "finished_at": FINISHED if ended else None,
        "lease_until": None,
        "error": None,
        "counts": {"events": 12} if ended else {},
    }
    return BuildRow(**{**values, **fields})


def build(status: str = "running", *, facts: dict[str, Any] | None = None, **fields: Any) -> BuildFacts:
    """A build with what belongs to it."""
    values: dict[str, Any] = {
        "tenant": "default",
        "row": row(status, **fields),
        "job_uid": "job-1",
        "suspended": False,
        "alive": status == "running",
        "podless_s": None,
        "tasks": 4,
        "done": 2,
        "degraded": 0,
        "first_event_seq": 1,
        "completed": status in {"succeeded", "held"},
        "published": status == "succeeded",
        "parent_is_active": status != "superseded",
        "requested_at": STARTED - timedelta(seconds=2),
    }
    return BuildFacts(**{**values, **(facts or {})})


def job(**fields: Any) -> Job:
    """The resource's Job, with one pod."""
    values: dict[str, Any] = {
        "name": job_name("one", UID),
        "uid": "job-1",
        "owner_uid": UID,
        "active": 1,
        "complete": False,
        "failed": False,
    }
    return Job(**{**values, **fields})


def view(spec: dict[str, Any] | None = None, *, status: dict[str, Any] | None = None, **fields: Any) -> Observed:
    """A view; by default of a known tenant whose request waits."""
    values: dict[str, Any] = {
        "rebuild": rebuild(spec, status),
        "installation": INSTALLATION,
        "situation": Situation(tenant_known=True, request_id="req_1"),
    }
    return Observed(**{**values, **fields})


def situation(**fields: Any) -> Situation:
    """A situation of a known tenant whose request waits."""
    return Situation(**{"tenant_known": True, "request_id": "req_1", **fields})


def failed(reason: str) -> dict[str, Any]:
    """The error of a build that the operator ended."""
    return {"code": "build_interrupted", "message": "it went away", "details": {"reason": reason}}


NO_IMAGE = ("PodNotStarting", "pod one-1: ErrImagePull")
NO_QUOTA = ("PodsRefused", "Error creating: pods one-1 is forbidden: exceeded quota")
BACK = {"rollback": {"to": "previous"}}
HELD_BEFORE = {
    "installationID": INSTALLATION,
    "conditions": [
        {"type": "Succeeded", "status": "True", "reason": "Held", "lastTransitionTime": NOW},
        {"type": "Published", "status": "False", "reason": "AwaitingApproval", "lastTransitionTime": NOW},
    ],
}

TABLE: list[tuple[str, Observed, str, str, Do]] = [
    (
        "held while another was published",
        view(
            build=build("superseded", facts={"completed": True}, hold=True), job=job(complete=True), status=HELD_BEFORE
        ),
        "True Held",
        "False ParentMoved",
        Do.NOTHING,
    ),
    (
        "nothing new",
        view(build=build("nothing_to_do", snapshot_id=None), job=job()),
        "True NothingToDo",
        "False NothingToDo",
        Do.NOTHING,
    ),
    ("made too often", view(is_surplus=True), "Unknown Queued", "Unknown Pending", Do.DELETE),
    ("new", view(situation=situation(request_id=None)), "Unknown Pending", "Unknown Pending", Do.ASK),
    ("asked", view(), "Unknown Queued", "Unknown Pending", Do.TAKE_UP),
    (
        "the tenant builds",
        view(situation=situation(unfinished_build_id="bld_0")),
        "Unknown Queued",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "no such tenant",
        view(situation=Situation(tenant_known=False)),
        "False UnknownTenant",
        "False NotSucceeded",
        Do.NOTHING,
    ),
    (
        "both",
        view({"build": {}, **BACK}, situation=situation()),
        "False InvalidSpec",
        "False NotSucceeded",
        Do.GIVE_UP,
    ),
    ("aborted while it waits", view({"abort": True}), "Unknown Aborting", "Unknown Pending", Do.ABORT),
    (
        "aborted while it waits, and closed meanwhile",
        view({"abort": True}, situation=situation(closed=True)),
        "False Aborted",
        "False Aborted",
        Do.NOTHING,
    ),
    (
        "aborted at once",
        view({"abort": True}, situation=situation(request_id=None)),
        "False Aborted",
        "False Aborted",
        Do.NOTHING,
    ),
    (
        "suspended while it waits",
        view({"suspend": True}),
        "Unknown SuspendRequested",
        "Unknown Pending",
        Do.SUSPEND_REQUEST,
    ),
    (
        "suspended and passed over",
        view({"suspend": True}, situation=situation(suspended=True)),
        "Unknown SuspendRequested",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "no slot",
        view(situation=situation(ahead=4), build=build("queued", facts={"job_uid": None})),
        "Unknown Queued",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "its turn",
        view(build=build("queued", facts={"job_uid": None})),
        "Unknown Pending",
        "Unknown Pending",
        Do.MAKE_JOB,
    ),
    (
        "the Job is made, and that is not noted",
        view(build=build("queued", facts={"job_uid": None}), job=job()),
        "Unknown Starting",
        "Unknown Pending",
        Do.NOTE_JOB,
    ),
    ("no pod yet", view(build=build("queued"), job=job()), "Unknown Starting", "Unknown Pending", Do.NOTHING),
    (
        "an image is missing",
        view(build=build("queued", facts={"podless_s": 9.0}), job=job(), pod_problem=NO_IMAGE),
        "Unknown PodNotStarting",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "an image is missing for too long",
        view(build=build("queued", facts={"podless_s": 601.0}), job=job(), pod_problem=NO_IMAGE),
        "Unknown PodNotStarting",
        "Unknown Pending",
        Do.END_BUILD,
    ),
    (
        "pods are refused",
        view(build=build("queued", facts={"podless_s": 9.0}), job=job(active=0), pod_problem=NO_QUOTA),
        "Unknown PodsRefused",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "pods are refused for too long",
        view(build=build("queued", facts={"podless_s": 601.0}), job=job(active=0), pod_problem=NO_QUOTA),
        "Unknown PodsRefused",
        "Unknown Pending",
        Do.END_BUILD,
    ),
    (
        "pods are refused for too long, one works",
        view(build=build("running", facts={"podless_s": 601.0}), job=job(), pod_problem=NO_QUOTA),
        "Unknown Building",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "pods are refused, and the Job was made by an operator of before",
        view(build=build("queued"), job=job(active=0), pod_problem=NO_QUOTA),
        "Unknown PodsRefused",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "no pod for long, and nothing is known to keep it",
        view(build=build("queued", facts={"podless_s": 9_000.0}), job=job()),
        "Unknown Starting",
        "Unknown Pending",
        Do.NOTHING,
    ),
    ("at work", view(build=build(), job=job()), "Unknown Building", "Unknown Pending", Do.NOTHING),
    (
        "the deadline was changed",
        view({"build": {"deadlineSeconds": 99}}, build=build(), job=job(deadline_s=3600)),
        "Unknown Building",
        "Unknown Pending",
        Do.CHANGE_JOB,
    ),
    ("abort", view({"abort": True}, build=build(), job=job()), "Unknown Aborting", "Unknown Pending", Do.ABORT),
    (
        "suspend",
        view({"suspend": True}, build=build(), job=job()),
        "Unknown SuspendRequested",
        "Unknown Pending",
        Do.SUSPEND_BUILD,
    ),
    (
        "suspend the Job",
        view({"suspend": True}, build=build(facts={"suspended": True}), job=job()),
        "Unknown SuspendRequested",
        "Unknown Pending",
        Do.CHANGE_JOB,
    ),
    (
        "suspended",
        view({"suspend": True}, build=build(facts={"suspended": True}), job=job(parallelism=0, active=0)),
        "Unknown SuspendRequested",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "suspended before it had a Job",
        view({"suspend": True}, build=build("queued", facts={"suspended": True, "job_uid": None})),
        "Unknown SuspendRequested",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "goes on",
        view(build=build(), job=job(suspend=True, active=0)),
        "Unknown Building",
        "Unknown Pending",
        Do.CHANGE_JOB,
    ),
    (
        "the Job is gone, a pod still works",
        view(build=build(), job=None),
        "Unknown Building",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "the Job is gone",
        view(build=build(facts={"alive": False}), job=None),
        "Unknown Starting",
        "Unknown Pending",
        Do.END_BUILD,
    ),
    (
        "complete without an end",
        view(build=build(), job=job(complete=True, active=0)),
        "Unknown Building",
        "Unknown Pending",
        Do.END_BUILD,
    ),
    (
        "another one's Job",
        view(build=build(facts={"job_uid": None}), job=job(owner_uid="other")),
        "Unknown Building",
        "Unknown Pending",
        Do.END_BUILD,
    ),
    (
        "published",
        view(build=build("succeeded"), job=job(complete=True)),
        "True BuildPublished",
        "True BuildPublished",
        Do.NOTHING,
    ),
    (
        "published, and the Job is gone",
        view(build=build("succeeded")),
        "True BuildPublished",
        "True BuildPublished",
        Do.NOTHING,
    ),
    ("held", view(build=build("held")), "True Held", "False AwaitingApproval", Do.NOTHING),
    ("approve", view({"approve": True}, build=build("held")), "True Held", "False AwaitingApproval", Do.PUBLISH),
    ("give it up", view({"abort": True}, build=build("held")), "True Held", "False AwaitingApproval", Do.ABORT),
    (
        "given up",
        view({"abort": True}, build=build("aborted", facts={"completed": True})),
        "True Held",
        "False Aborted",
        Do.NOTHING,
    ),
    (
        "approved",
        view({"approve": True}, status=HELD_BEFORE, build=build("succeeded")),
        "True Held",
        "True Approved",
        Do.NOTHING,
    ),
    (
        "held, and overtaken",
        view({"approve": True}, build=build("held", facts={"parent_is_active": False})),
        "True Held",
        "False ParentMoved",
        Do.GIVE_UP,
    ),
    (
        "held, overtaken and given up, and the pointer moved back",
        view({"approve": True}, situation=situation(closed=True), build=build("held")),
        "True Held",
        "False ParentMoved",
        Do.NOTHING,
    ),
    ("overtaken", view(build=build("superseded")), "False ParentMoved", "False ParentMoved", Do.NOTHING),
    ("aborted", view({"abort": True}, build=build("aborted")), "False Aborted", "False Aborted", Do.NOTHING),
    ("given up by another way", view(build=build("aborted"), job=job()), "False Aborted", "False Aborted", Do.STOP_JOB),
    (
        "aborted, and pods still run",
        view({"abort": True}, build=build("aborted"), job=job()),
        "False Aborted",
        "False Aborted",
        Do.STOP_JOB,
    ),
    (
        "abort lost against publish",
        view({"abort": True}, build=build("succeeded")),
        "True BuildPublished",
        "True BuildPublished",
        Do.NOTHING,
    ),
    (
        "failed",
        view(build=build("failed", error={"code": "build_invalid", "message": "two refs"})),
        "False BuildFailed",
        "False NotSucceeded",
        Do.NOTHING,
    ),
    *(
        (
            f"ended as {reason}",
            view(build=build("failed", error=failed(reason))),
            f"False {reason}",
            "False NotSucceeded",
            Do.NOTHING,
        )
        for reason in (
            "WorkerLost",
            "DeadlineExceeded",
            "BackoffLimitExceeded",
            "BadInput",
            "JobConflict",
            "JobRefused",
            "PodsRefused",
            "PodNotStarting",
        )
    ),
    (
        "the database is away",
        view(trouble=(reasons.DATABASE_UNAVAILABLE, "connection refused")),
        "Unknown DatabaseUnavailable",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "abort while the database is away",
        view({"abort": True}, trouble=(reasons.DATABASE_UNAVAILABLE, "connection refused")),
        "Unknown DatabaseUnavailable",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "back, abort while the database is away",
        view({**BACK, "abort": True}, trouble=(reasons.DATABASE_UNAVAILABLE, "connection refused")),
        "Unknown DatabaseUnavailable",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "back, not resolved",
        view(BACK, situation=situation(request_id=None)),
        "Unknown Pending",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "back",
        view(BACK, situation=situation(active_snapshot_id=SNAPSHOT), target=Target(snapshot_id=PARENT)),
        "Unknown Pending",
        "Unknown Pending",
        Do.ROLL_BACK,
    ),
    (
        "back, suspended",
        view({**BACK, "suspend": True}, target=Target(snapshot_id=PARENT)),
        "Unknown SuspendRequested",
        "Unknown Pending",
        Do.NOTHING,
    ),
    (
        "back, aborted",
        view({**BACK, "abort": True}, target=Target(snapshot_id=PARENT)),
        "False Aborted",
        "False Aborted",
        Do.GIVE_UP,
    ),
    (
        "back, given up",
        view({**BACK, "abort": True}, situation=situation(closed=True), target=Target(snapshot_id=PARENT)),
        "False Aborted",
        "False Aborted",
        Do.NOTHING,
    ),
    (
        "back, given up where it was, and the pointer moved since",
        view(BACK, situation=situation(closed=True, active_snapshot_id=SNAPSHOT), target=Target(snapshot_id=PARENT)),
        "False Aborted",
        "False Aborted",
        Do.NOTHING,
    ),
    (
        "back of nobody",
        view(BACK, situation=Situation(tenant_known=False)),
        "False UnknownTenant",
        "False NotSucceeded",
        Do.NOTHING,
    ),
    (
        "back, moved",
        view(BACK, situation=situation(moved_from=SNAPSHOT, moved_to=PARENT, moved_at=FINISHED)),
        "True RolledBack",
        "True RolledBack",
        Do.NOTHING,
    ),
    (
        "back to where it is",
        view(BACK, situation=situation(active_snapshot_id=PARENT), target=Target(snapshot_id=PARENT)),
        "True NothingToDo",
        "False NothingToDo",
        Do.GIVE_UP,
    ),
    (
        "back to nowhere",
        view(BACK, target=Target(problem="NoPreviousSnapshot", message="there is none")),
        "False NoPreviousSnapshot",
        "False NotSucceeded",
        Do.GIVE_UP,
    ),
]


@pytest.mark.parametrize(
    ("looked", "succeeded", "published", "do"), [one[1:] for one in TABLE], ids=[one[0] for one in TABLE]
)
def test_each_situation(looked: Observed, succeeded: str, published: str, do: Do) -> None:
    """Summary, publication and the next step follow from what is seen alone."""
    decision = decide(looked)
    found = {one.kind: f"{one.status} {one.reason}" for one in decision.conditions}
    assert found["Succeeded"] == succeeded
    assert found["Published"] == published
    assert decision.step.do is do
    assert all(one.message for one in decision.conditions)


@pytest.mark.parametrize("looked", [one[1] for one in TABLE], ids=[one[0] for one in TABLE])
def test_what_was_written_is_derived_again(looked: Observed) -> None:
    """A status that was written is no difference: the operator comes to rest."""
    written = with_times(decide(looked), looked.rebuild, NOW)
    again = dataclasses.replace(looked, rebuild=rebuild(dict(looked.rebuild.spec), written))
    assert with_times(decide(again), again.rebuild, "2030-01-01T00:00:00Z") == written
    assert transitions(decide(again), again.rebuild) == []


@pytest.mark.parametrize("looked", [one[1] for one in TABLE], ids=[one[0] for one in TABLE])
def test_an_end_is_an_end(looked: Observed) -> None:
    """Once a resource has ended for good, nothing that becomes of Job, build or tenant changes it."""
    written = with_times(decide(looked), looked.rebuild, NOW)
    ended = rebuild(dict(looked.rebuild.spec), written)
    if not ended.settled:
        return
    for later in TABLE:
        changed = dataclasses.replace(later[1], rebuild=ended)
        assert with_times(decide(changed), ended, "2030-01-01T00:00:00Z") == written
        assert decide(changed).step.do in {Do.NOTHING, Do.STOP_JOB}


def test_the_build_determines_the_fields() -> None:
    """Ids, range, progress, counts and times are the build's, in whole seconds and within bounds."""
    fields = status_fields(build("succeeded", counts={f"c{number:03d}": number for number in range(100)}))
    assert len(fields.pop("counts")) == 64
    assert fields == {
        "buildID": "bld_1",
        "snapshotID": SNAPSHOT,
        "previousSnapshotID": PARENT,
        "cutoff": 90,
        "eventRange": {"first": 1, "last": 90},
        "progress": {"tasks": 4, "done": 2, "degraded": 0},
        "startedAt": "2026-01-01T10:00:00Z",
        "completedAt": "2026-01-01T10:00:07Z",
        "durationSeconds": 8.9,
    }


@pytest.mark.parametrize("status", ["running", "succeeded", "held", "failed", "aborted"])
def test_a_pod_reports_neither_end_nor_progress(status: str) -> None:
    """What a pod reports goes with any condition: the end and the progress come from the operator, with its words."""
    reported = set(pod_fields(build(status)))
    assert {"buildID", "startedAt", "cutoff"} <= reported
    assert not reported & {"completedAt", "durationSeconds", "progress"}
    assert ("counts" in reported) == ("snapshotID" in reported) == (status != "running")


def test_a_build_with_nothing_to_do_names_no_snapshot() -> None:
    """The snapshot that it had begun is taken back, whoever reported it; what it compared with stays."""
    begun = {"installationID": INSTALLATION, "buildID": "bld_1", "snapshotID": SNAPSHOT, "previousSnapshotID": PARENT}
    fields = decide(view(status=begun, build=build("nothing_to_do", snapshot_id=None), job=job())).fields
    assert "snapshotID" not in fields
    assert fields["previousSnapshotID"] == PARENT


def test_who_waits_says_for_whom() -> None:
    """A queued resource names the one of its tenant that builds, or those that hold the installation's slots."""
    tenant = view(situation=situation(unfinished_build_id="bld_0", unfinished_resource="nightly"))
    assert "the MyriaRebuild nightly of" in decide(tenant).succeeded.message
    nobody = view(situation=situation(unfinished_build_id="bld_0"))
    assert "the tenant's build bld_0" in decide(nobody).succeeded.message
    slots = view(
        situation=situation(ahead=7, ahead_names=("a", "b", "c", "d", "e")),
        build=build("queued", facts={"job_uid": None}),
    )
    assert decide(slots).succeeded.message.endswith("4 must end before it of a, b, c, d, e and 2 more")


def test_a_build_that_was_given_up_says_what_kept_it() -> None:
    """The message of the step has the cluster's words, and the advice fits the reason."""
    looked = view(build=build("queued", facts={"podless_s": 700.2}), job=job(active=0), pod_problem=NO_QUOTA)
    step = decide(looked).step
    assert step.reason == "PodsRefused"
    assert step.message == f"given up after 700 s without a pod at work: {NO_QUOTA[1]}"
    ended = decide(view(build=build("failed", error=failed("PodsRefused"))))
    assert ended.succeeded.message.startswith("it went away; mend the quota, the priority class")


def test_only_a_refusal_newer_than_the_newest_pod_counts() -> None:
    """Events stay for an hour: once a pod came after a refusal, the refusal is history."""
    old = {"lastTimestamp": "2026-01-01T10:00:00Z", "message": "old"}
    new = {"lastTimestamp": None, "series": {"lastObservedTime": "2026-01-01T10:05:00.000000Z"}, "message": "new"}
    assert newest_refusal([], since="") is None
    assert newest_refusal([old], since="") == "old"
    assert newest_refusal([new, old], since="2026-01-01T10:01:00Z") == "new"
    assert newest_refusal([old], since="2026-01-01T10:01:00Z") is None


def test_the_job_is_named_before_it_is_made() -> None:
    """The status that is written before the step MAKE_JOB holds the Job's name."""
    looked = view(build=build("queued", facts={"job_uid": None}))
    assert decide(looked).fields["jobName"] == job_name("one", UID)


def test_times_tell_when_a_status_changed() -> None:
    """A condition's time stays while only reason and message change."""
    first = with_times(decide(view()), rebuild(), NOW)
    looked = view(status=first, build=build())
    second = with_times(decide(looked), looked.rebuild, "2026-06-01T00:00:00Z")
    assert second["conditions"][0]["reason"] == "Building"
    assert second["conditions"][0]["lastTransitionTime"] == NOW


def test_who_asked_is_read_from_managed_fields() -> None:
    """The manager of a field is the last one that wrote it."""
    entries = [
        {"manager": "argo", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:tenant": {}, "f:approve": {}}}},
        {"manager": "kubectl-patch", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {"f:approve": {}}}},
    ]
    one = rebuild(managed_fields=entries)
    assert one.manager_of("approve") == "kubectl-patch"
    assert one.manager_of("tenant") == "argo"
    assert one.manager_of("rollback") is None


def test_a_missing_permission_stays_reported_until_its_step_is_done() -> None:
    """While the step is only tried again the words stay; what comes of it, or an end, replaces them."""
    trouble = view(build=build("queued", facts={"job_uid": None}), trouble=(reasons.PERMISSION_MISSING, "create jobs"))
    written = with_times(decide(trouble), trouble.rebuild, NOW)
    again = view(status=written, build=build("queued", facts={"job_uid": None}))
    assert decide(again).step.do is Do.MAKE_JOB
    assert (decide(again).succeeded.reason, decide(again).succeeded.message) == ("PermissionMissing", "create jobs")
    done = view(status=written, build=build("queued"), job=job())
    assert decide(done).succeeded.reason == "Starting"


@given(
    spec=st.fixed_dictionaries(
        {},
        optional={
            "suspend": st.booleans(),
            "abort": st.booleans(),
            "approve": st.booleans(),
            "build": st.just({}),
            "rollback": st.sampled_from([{"to": "previous"}, {"to": SNAPSHOT}]),
        },
    ),
    known=st.booleans(),
    ahead=st.integers(0, 9),
    built=st.none()
    | st.builds(
        lambda status, job_uid, alive, active: build(
            status, facts={"job_uid": job_uid, "alive": alive, "parent_is_active": active}
        ),
        st.sampled_from(["queued", "running", "succeeded", "held", "superseded", "failed", "aborted"]),
        st.sampled_from([None, "job-1"]),
        st.booleans(),
        st.booleans(),
    ),
    ran=st.none()
    | st.builds(
        lambda complete, failed, active: job(complete=complete, failed=failed, active=active),
        st.booleans(),
        st.booleans(),
        st.integers(0, 3),
    ),
)
def test_every_situation_has_a_status(
    spec: dict[str, Any], known: bool, ahead: int, built: BuildFacts | None, ran: Job | None
) -> None:
    """Whatever is seen: known types and reasons, an end only with an ended build, and a Job only when none was made."""
    looked = view(spec, situation=Situation(tenant_known=known, ahead=ahead), build=built, job=ran)
    decision = decide(looked)
    known_reasons = {value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert [one.kind for one in decision.conditions] == list(reasons.CONDITION_TYPES)
    assert {one.reason for one in decision.conditions} <= known_reasons
    if built is not None and "rollback" not in spec:
        assert (decision.succeeded.status == "Unknown") == (built.outcome is None)
    if decision.step.do is Do.MAKE_JOB:
        assert built is not None
        assert built.job_uid is None
        assert ran is None
        assert ahead < 4


@pytest.mark.parametrize(("ended", "hold"), [("succeeded", False), ("held", True)])
def test_a_build_without_its_model_says_so(ended: str, hold: bool) -> None:
    """The message of Succeeded says how many units, and what the provider said; nothing of it where all went well."""
    counts = {"llm_units_degraded": 3, "llm_units_planned": 1, "llm_units_reused": 8}
    reason = "http_4xx (3 units): http_4xx: the provider answered 401: Incorrect API key provided"
    without = build(ended, facts={"degraded": 2, "degraded_reason": reason}, counts=counts, hold=hold)
    for facts, wanted in (
        (
            without,
            f"degraded: 3 of 12 units were planned without the model: {reason}; a full build asks for them again",
        ),
        (
            build(
                "nothing_to_do", facts={"degraded_reason": reason}, counts={"llm_units_degraded_standing": 3}, hold=hold
            ),
            f"degraded: 3 units of builds before stand planned without the model: {reason}; "
            "a full build asks for them again",
        ),
        (build(ended, hold=hold, error={"code": "model_failed", "message": "vectors wait: no"}), "vectors wait: no"),
    ):
        assert message(view(build=facts, job=job(complete=True))).endswith(wanted)
    assert "degraded" not in message(view(build=build(ended, hold=hold), job=job(complete=True)))


def message(seen: Observed) -> str:
    """The message of the condition Succeeded."""
    (found,) = [one for one in decide(seen).conditions if one.kind == "Succeeded"]
    return found.message
