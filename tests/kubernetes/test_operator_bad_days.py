"""Bad input, and what people and clusters do to a build: each ends in a state that says what happened."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from myria.builds.model import Outcome
from myria_builder.reporting import ReportTarget, report
from myria_rebuilds.report import BuildFacts
from myria_rebuilds.statements import sql
from tests.kubernetes import manifests
from tests.kubernetes.api import ApiError, Json
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.place import BUILDER, OPERATOR
from tests.support.processes import wait_until


def has_pod(installation: Installation) -> bool:
    """Tell whether a pod runs."""
    return bool(installation.node.running())


def dawdle(installation: Installation) -> None:
    """Make the pods that come dawdle for an hour before they build: a test ends them before."""
    installation.node.rewrites = lambda _pod, command: ["/bin/sh", "-c", 'sleep 3600; exec "$@"', "sh", *command]


def until_let(installation: Installation, folder: Path) -> Path:
    """Make the pods that come wait for a file before they build; return its path."""
    gate = folder / "go"
    waiting = f'until [ -e {gate} ]; do sleep 0.05; done; exec "$@"'
    installation.node.rewrites = lambda _pod, command: ["/bin/sh", "-c", waiting, "sh", *command]
    return gate


def managers(resource: Json) -> set[str]:
    """Return the names under which a resource's fields were written."""
    return {entry["manager"] for entry in resource["metadata"]["managedFields"]}


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
    place.kubectl("wait", "mrb/unknown-tenant", "--for=condition=Succeeded=False", "--timeout=240s")
    assert "UnknownTenant" in event_reasons(installation, "unknown-tenant")
    table = place.kubectl("get", "mrb", "-o", "wide", who="vera").stdout
    assert "UnknownTenant" in table
    assert "TENANT" in table


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
    place.kubectl("delete", "mrb", "second", "--wait=false")
    wait_until(lambda: installation.builds()[-1]["status"] == "aborted", 20, "the end of the build")
    wait_until(lambda: not has_pod(installation), 40, "the end of the pod")
    wait_until(lambda: len(place.admin.objects("Job", place.name)) == 1, 20, "the end of the Job")
    assert installation.active() == kept
    installation.node.rewrites = lambda _pod, command: command
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
    place.kubectl("delete", "job", job, "--wait=false")
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
    installation.node.rewrites = lambda _pod, command: command
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
    place.kubectl("patch", "mrb", "stuck", "--type=merge", "-p", '{"spec": {"build": {"deadlineSeconds": 10}}}')
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


def test_a_spec_edited_mid_build_changes_nothing(installation: Installation, tmp_path: Path) -> None:
    """An old API server lets a tenant be changed; the build that began is the one that ends."""
    place = installation.place
    installation.append(12)
    gate = until_let(installation, tmp_path)
    installation.start()
    place.rebuild("edited")
    wait_until(lambda: has_pod(installation), 30, "the pod")
    place.admin.patch("MyriaRebuild", "edited", {"spec": {"tenant": "other"}}, place.name)
    gate.touch()
    ended = place.wait_terminal("edited")
    assert reason(ended) == ("True", "BuildPublished")
    (build,) = installation.builds()
    assert (build["tenant_id"], build["build_id"]) == ("default", ended["status"]["buildID"])


def test_a_build_whose_pods_may_not_report_ends_identically(installation: Installation) -> None:
    """Without its right to the status the Job ends the same: the operator derives everything from the database."""
    place = installation.place
    installation.append(12)
    installation.start()
    place.rebuild("told")
    told = place.wait_terminal("told")["status"]

    wait_until(lambda: BUILDER in managers(place.get("told")), 20, "the report of the pod")
    assert place.get("told")["status"] == told
    place.admin.delete("RoleBinding", BUILDER, place.name)
    place.rebuild("untold", build={"full": True, "force": True})
    untold = place.wait_terminal("untold")
    assert BUILDER not in managers(untold)
    assert set(untold["status"]) - {"previousSnapshotID"} == set(told)
    assert reason(untold) == ("True", "BuildPublished")


def test_a_pod_that_is_heard_after_the_end_changes_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod looked at the build while it ran, and its words arrive when the resource has ended: the end stands."""
    place = installation.place
    installation.append(12)
    installation.start()
    place.rebuild("heard")
    place.wait_terminal("heard")
    (row,) = installation.query(sql("rebuilds.facts"), "default", installation.builds()[0]["build_id"])
    now = BuildFacts.from_row(row)  # type: ignore[arg-type]
    early = replace(now, done=0, row=replace(now.row, status="building", finished_at=None, counts={}))
    assert (now.outcome, early.outcome) == (Outcome.SUCCEEDED, None)

    def has_told_the_end() -> bool:
        entries = place.get("heard")["metadata"]["managedFields"]
        return any(one["manager"] == BUILDER and "f:counts" in one["fieldsV1"].get("f:status", {}) for one in entries)

    wait_until(has_told_the_end, 60, "the last report of the pod")
    before = place.get("heard")
    monkeypatch.setenv("KUBECONFIG", str(place.kubeconfig(BUILDER)))
    told = ReportTarget(namespace=place.name, name="heard", uid=before["metadata"]["uid"])
    asyncio.run(report(told, early))
    after = place.get("heard")
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert after["status"] == before["status"]


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


def test_an_older_definition_is_noticed(installation: Installation) -> None:
    """A definition that drops status fields is told of by an Event and in the log, and builds go on."""
    place, shipped = installation.place, manifests.definition()
    installation.append(4)
    older = manifests.without_cel(manifests.without_status_field(shipped, "cutoff"))
    place.control_plane.install(older)
    try:
        operator = installation.start()
        place.rebuild("old")
        assert reason(place.wait_terminal("old")) == ("True", "BuildPublished")
        operator.wait_for("drops status.cutoff", 10)
        assert "cutoff" not in place.get("old")["status"]
        assert "CRDOutdated" in event_reasons(installation, "old")
    finally:
        place.control_plane.install(manifests.without_cel(shipped))


def test_a_namespace_that_goes_away_leaves_no_build(installation: Installation) -> None:
    """The build of a namespace that is deleted ends, and the operator neither dies nor makes anything new."""
    place = installation.place
    installation.append(12)
    dawdle(installation)
    operator = installation.start()
    place.rebuild("going")
    wait_until(lambda: has_pod(installation), 30, "the pod")
    for kind in ("MyriaRebuild", "Job"):
        for one in place.admin.objects(kind, place.name):
            place.admin.delete(kind, one["metadata"]["name"], place.name)
    place.admin.delete("Namespace", place.name)
    wait_until(lambda: installation.builds()[-1]["status"] in {"aborted", "failed"}, 40, "the end of the build")
    assert operator.process.poll() is None


def test_suspend_takes_the_pods_away_and_gives_them_back(installation: Installation) -> None:
    """A suspended build has no pods and keeps what is done; without suspend it goes on to its end."""
    place = installation.place
    installation.append(12)
    dawdle(installation)
    installation.start()
    place.rebuild("paused")
    wait_until(lambda: has_pod(installation), 30, "the pod")
    place.kubectl("patch", "mrb", "paused", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    place.wait_condition("paused", "Suspended", ("True",))
    wait_until(lambda: not has_pod(installation), 40, "the end of the pod")
    installation.node.rewrites = lambda _pod, command: command
    time.sleep(2.0)
    assert reason(place.get("paused")) == ("Unknown", "SuspendRequested")
    place.kubectl("patch", "mrb", "paused", "--type=merge", "-p", '{"spec": {"suspend": false}}')
    assert reason(place.wait_terminal("paused", 60)) == ("True", "BuildPublished")
