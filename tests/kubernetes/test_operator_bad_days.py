"""Bad input, and what people and clusters do to a build: each ends in a state that says what happened."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from myria.builds.model import Outcome
from myria_builder.reporting import ReportTarget, report
from myria_rebuilds.report import BuildFacts
from myria_rebuilds.statements import sql
from tests.kubernetes.api import ApiError, Json
from tests.kubernetes.instant import play_pods
from tests.kubernetes.node import as_written
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.place import BUILDER, OPERATOR
from tests.support.processes import wait_until


def has_pod(installation: Installation) -> bool:
    """Tell whether a pod runs."""
    return bool(installation.node.running())


def dawdle(installation: Installation) -> None:
    """Make the pods that come dawdle for an hour before they build: a test ends them before."""
    installation.node.rewrites = lambda _pod, command: ["/bin/sh", "-c", 'sleep 3600; exec "$@"', "sh", *command]


def event_reasons(installation: Installation, name: str) -> set[str]:
    """Return the reasons of the Kubernetes Events about a resource."""
    events = installation.place.admin.objects("Event", installation.place.name)
    return {one["reason"] for one in events if one["involvedObject"]["name"] == name}


def test_bad_input_is_refused_or_ends_with_a_reason(installation: Installation) -> None:
    """What the API server lets through ends as failed, and says what to change."""
    place = installation.place
    installation.append(4)
    installation.start()
    for spec in (
        {"build": {}, "rollback": {"to": "previous"}},
        {"build": {"parallelism": 1000}},
        {"build": {"deadlineSeconds": 1}},
        {"tenant": "x" * 64},
        {"rollback": {"to": "nonsense"}},
    ):
        with pytest.raises(ApiError) as refused:
            place.rebuild("refused", spec)
        assert refused.value.status == 422
    place.rebuild("unknown-tenant", tenant="nobody")
    place.rebuild("unknown-snapshot", rollback={"to": "snap_" + "0" * 32})
    place.rebuild("no-previous", rollback={"to": "previous"})
    place.rebuild("approved-rollback", approve=True, rollback={"to": "previous"})
    long = "n" * 240
    place.rebuild(long)
    assert reason(place.wait_terminal("unknown-tenant")) == ("False", "UnknownTenant")
    assert reason(place.wait_terminal("unknown-snapshot")) == ("False", "UnknownSnapshot")
    assert reason(place.wait_terminal("no-previous")) == ("False", "NoPreviousSnapshot")
    assert reason(place.wait_terminal("approved-rollback")) == ("False", "InvalidSpec")
    assert reason(place.wait_terminal(long)) == ("True", "BuildPublished")
    assert len(place.get(long)["status"]["jobName"]) <= 52
    assert "UnknownTenant" in event_reasons(installation, "unknown-tenant")


def test_a_deleted_resource_takes_its_build_along(installation: Installation) -> None:
    """Deleting a resource mid-build ends build, Job and pods; what was published stays, and the slot is free."""
    place = installation.place
    installation.append(12)
    installation.start()
    place.rebuild("first")
    place.wait_terminal("first")
    kept = installation.active()
    installation.append(12, start=50_000)
    dawdle(installation)
    place.rebuild("second")
    wait_until(lambda: any(one.name.startswith("second-") for one in installation.node.running()), 30, "the pod")
    place.admin.delete("MyriaRebuild", "second", place.name)
    wait_until(lambda: installation.builds()[-1]["status"] == "aborted", 20, "the end of the build")
    wait_until(lambda: not has_pod(installation), 40, "the end of the pod")
    wait_until(lambda: len(place.admin.objects("Job", place.name)) == 1, 20, "the end of the Job")
    assert installation.active() == kept
    play_pods(installation)
    place.rebuild("third")
    assert reason(place.wait_terminal("third")) == ("True", "BuildPublished")


def test_a_job_deleted_by_hand_is_not_made_again(installation: Installation) -> None:
    """The build fails as WorkerLost once nobody works on it, and no second Job is made."""
    place = installation.place
    installation.append(12)
    dawdle(installation)
    installation.start()
    place.rebuild("lost")
    wait_until(lambda: has_pod(installation), 30, "the pod")
    job = place.get("lost")["status"]["jobName"]
    place.admin.delete("Job", job, place.name)
    ended = place.wait_terminal("lost")
    assert reason(ended) == ("False", "WorkerLost")
    time.sleep(3.0)
    assert place.jobs_of(ended) == []


def test_an_evicted_pod_is_replaced(installation: Installation) -> None:
    """Another pod goes on, and the build is published."""
    place = installation.place
    installation.append(12)
    dawdle(installation)
    installation.start()
    place.rebuild("evicted")
    wait_until(lambda: has_pod(installation), 30, "the pod")
    play_pods(installation)
    installation.node.evict(installation.node.running()[0].name)
    ended = place.wait_terminal("evicted", 60)
    assert reason(ended) == ("True", "BuildPublished")
    (job,) = place.jobs_of(ended)
    assert job["status"].get("failed") == 1


def test_an_image_that_cannot_be_pulled_shows_and_the_deadline_ends_it(installation: Installation) -> None:
    """PodNotStarting names the kubelet's words; a deadline shortened meanwhile ends it as DeadlineExceeded."""
    place = installation.place
    installation.append(4)

    def bad_image(template: Json) -> None:
        template["template"]["spec"]["containers"][0]["image"] = "missing/myria:none"

    installation.write_template(bad_image)
    installation.start()
    place.rebuild("stuck")

    def told() -> bool:
        return reason(place.get("stuck")) == ("Unknown", "PodNotStarting")

    wait_until(told, 40, "PodNotStarting")
    assert "ImagePullBackOff" in place.get("stuck")["status"]["conditions"][0]["message"]
    place.admin.patch("MyriaRebuild", "stuck", {"spec": {"build": {"deadlineSeconds": 10}}}, place.name)
    assert reason(place.wait_terminal("stuck", 60)) == ("False", "DeadlineExceeded")
    assert [one["status"] for one in installation.builds()] == ["failed"]


def test_pods_that_fail_end_the_build(installation: Installation) -> None:
    """Too many failed pods: BackoffLimitExceeded, the slot is free, and the next failure waits longer."""
    place = installation.place
    installation.append(4)
    installation.node.rewrites = lambda _pod, _command: ["/bin/sh", "-c", "exit 6"]
    installation.start()
    place.rebuild("bad", build={"backoffLimit": 0})
    assert reason(place.wait_terminal("bad")) == ("False", "BackoffLimitExceeded")
    (tenant,) = installation.query("SELECT consecutive_failures, retry_at FROM myria.tenants")
    assert tenant["consecutive_failures"] == 1
    assert tenant["retry_at"] is not None


def test_a_spec_edited_mid_build_changes_nothing(installation: Installation) -> None:
    """An old API server lets a tenant be changed; the build that began is the one that ends."""
    place = installation.place
    installation.append(12)
    installation.node.accepts = lambda _pod: False
    installation.start()
    place.rebuild("edited")
    wait_until(lambda: place.admin.objects("Pod", place.name), 30, "the pod")
    place.admin.patch("MyriaRebuild", "edited", {"spec": {"tenant": "other"}}, place.name)
    installation.node.accepts = lambda _pod: True
    ended = place.wait_terminal("edited")
    assert reason(ended) == ("True", "BuildPublished")
    (build,) = installation.builds()
    assert (build["tenant_id"], build["build_id"]) == ("default", ended["status"]["buildID"])


def test_what_pods_report_changes_no_end(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither words of a pod that arrive after the end do, nor that a Job's pods may not report at all."""
    place = installation.place
    installation.node.rewrites = as_written
    installation.append(12)
    installation.start()
    place.rebuild("heard")
    told = place.wait_terminal("heard")["status"]
    (row,) = installation.query(sql("rebuilds.facts"), "default", installation.builds()[0]["build_id"])
    now = BuildFacts.from_row(row)  # type: ignore[arg-type]
    early = replace(now, done=0, row=replace(now.row, status="building", finished_at=None, counts={}))
    assert (now.outcome, early.outcome) == (Outcome.SUCCEEDED, None)

    def has_told_the_end() -> bool:
        entries = place.get("heard")["metadata"]["managedFields"]
        return any(one["manager"] == BUILDER and "f:counts" in one["fieldsV1"].get("f:status", {}) for one in entries)

    wait_until(has_told_the_end, 60, "the last report of the pod")
    before = place.get("heard")
    assert before["status"] == told
    monkeypatch.setenv("KUBECONFIG", str(place.kubeconfig(BUILDER)))
    target = ReportTarget(namespace=place.name, name="heard", uid=before["metadata"]["uid"])
    asyncio.run(report(target, early))
    after = place.get("heard")
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert after["status"] == told

    place.admin.delete("RoleBinding", BUILDER, place.name)
    place.rebuild("untold", build={"full": True, "force": True})
    untold = place.wait_terminal("untold")
    assert BUILDER not in {entry["manager"] for entry in untold["metadata"]["managedFields"]}
    assert set(untold["status"]) - {"previousSnapshotID"} == set(told)
    assert reason(untold) == ("True", "BuildPublished")


def test_a_missing_permission_is_named_and_nothing_is_lost(installation: Installation) -> None:
    """Without the right to make Jobs the resource says which verb on which resource; with it, it goes on by itself."""
    place = installation.place
    installation.append(4)
    role = place.admin.get("Role", OPERATOR, place.name)
    rules = role["rules"]
    cut = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]} if "jobs" in rule["resources"] else rule
        for rule in rules
    ]
    place.admin.patch("Role", OPERATOR, {"rules": cut}, place.name)
    operator = installation.start()
    operator.wait_for("missing permission: create jobs", 20)
    place.rebuild("waits")

    wait_until(lambda: reason(place.get("waits")) == ("Unknown", "PermissionMissing"), 30, "PermissionMissing")
    waiting = place.get("waits")
    message = waiting["status"]["conditions"][0]["message"]
    assert "create" in message
    assert "jobs" in message
    time.sleep(3.0)  # it is tried again meanwhile, and nothing is said twice
    assert place.get("waits")["metadata"]["resourceVersion"] == waiting["metadata"]["resourceVersion"]
    place.admin.patch("Role", OPERATOR, {"rules": rules}, place.name)
    assert reason(place.wait_terminal("waits", 60)) == ("True", "BuildPublished")


def test_suspend_takes_the_pods_away_and_gives_them_back(installation: Installation) -> None:
    """A suspended build has no pods and keeps what is done; without suspend it goes on to its end."""
    place = installation.place
    installation.append(12)
    dawdle(installation)
    installation.start()
    place.rebuild("paused")
    wait_until(lambda: has_pod(installation), 30, "the pod")
    place.admin.patch("MyriaRebuild", "paused", {"spec": {"suspend": True}}, place.name)
    place.wait_condition("paused", "Suspended", ("True",))
    wait_until(lambda: not has_pod(installation), 40, "the end of the pod")
    play_pods(installation)
    time.sleep(2.0)
    assert reason(place.get("paused")) == ("Unknown", "SuspendRequested")
    place.admin.patch("MyriaRebuild", "paused", {"spec": {"suspend": False}}, place.name)
    assert reason(place.wait_terminal("paused", 60)) == ("True", "BuildPublished")
