"""The manifests for people: examples, RBAC, and how a MyriaRebuild reads in kubectl."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import kubernetes_validate
import pytest

from myria_operator import reasons
from myria_operator.app import NEEDED
from myria_operator.decide import violations
from myria_operator.jobs import read_pod_template
from tests.kubernetes import manifests
from tests.kubernetes.api import Api, ApiError, Json
from tests.kubernetes.place import Place, rebuild
from tests.support.processes import wait_until

FILES = sorted(manifests.EXAMPLES.rglob("*.yaml"))
REBUILDS = [path for path in FILES if manifests.read(path)[0]["kind"] == "MyriaRebuild"]
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RESOURCES = (
    ("myria.dev", "myriarebuilds"),
    ("myria.dev", "myriarebuilds/status"),
    ("myria.dev", "myriarebuilds/finalizers"),
    ("batch", "jobs"),
    ("batch", "jobs/status"),
    ("", "pods"),
    ("", "pods/exec"),
    ("", "pods/log"),
    ("", "secrets"),
    ("", "configmaps"),
    ("", "events"),
    ("", "serviceaccounts/token"),
    ("rbac.authorization.k8s.io", "roles"),
)


def allowed(api: Api, namespace: str) -> dict[str, set[str]]:
    """Return what an identity may do in a namespace: verbs by resource."""
    kind = "SelfSubjectRulesReview"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {"namespace": namespace}}
    answer = api.request("POST", f"/apis/authorization.k8s.io/v1/{kind.lower()}s", review)
    rules = [rule for rule in answer["status"]["resourceRules"] if "resourceNames" not in rule]
    found: dict[str, set[str]] = {}
    for (group, resource), verb in product(RESOURCES, VERBS):
        for rule in rules:
            asked = ((group, rule["apiGroups"]), (resource, rule["resources"]), (verb, rule["verbs"]))
            if all({one, "*"} & set(listed) for one, listed in asked):
                found.setdefault(resource, set()).add(verb)
    return found


def wait_until_seen(place: Place, *people: str) -> None:
    """Return once these people see rebuilds: the cluster's roles take ours in a moment after they are written."""
    for name in people:
        api = place.person(name)
        wait_until(lambda api=api: place._may(api, "list", "myria.dev", "myriarebuilds"), 20, "the aggregated roles")  # type: ignore[misc]


def condition(kind: str, status: str, reason: str, message: str = "as told") -> Json:
    """Return a condition."""
    moment = "2026-11-21T12:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}


def report(place: Place, name: str, **status: object) -> None:
    """Write a status, as the operator would."""
    place.admin.patch("MyriaRebuild", name, {"status": status}, place.name, subresource="status")


def test_the_operator_may_do_what_it_needs_and_nothing_else(place: Place) -> None:
    """It makes and prunes resources, writes their status and its Jobs; it sees no Secret and edits no spec."""
    assert allowed(place.operator, place.name) == {
        "myriarebuilds": {"get", "list", "watch", "create", "delete"},
        "myriarebuilds/status": {"patch"},
        "jobs": {"get", "list", "watch", "create", "patch", "delete"},
        "pods": {"list"},
        "events": {"list", "create"},
    }
    assert allowed(place.operator, "default") == {}


def test_the_operators_role_is_what_it_asks_for_at_its_start() -> None:
    """The Role grants exactly the permissions that the operator reviews, so that neither outgrows the other."""
    (role,) = [one for one in manifests.read(manifests.EXAMPLES / "rbac" / "operator.yaml") if one["kind"] == "Role"]
    rules = [rule for rule in role["rules"] if "resourceNames" not in rule]
    granted = {each for rule in rules for each in product(rule["apiGroups"], rule["resources"], rule["verbs"])}
    assert granted == set(NEEDED)
    own = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert {name for rule in own for name in rule["resourceNames"]} == {"myria-operator"}
    changed = {"get", "patch", "delete"}
    assert {resource: set(rule["verbs"]) for rule in own for resource in rule["resources"]} == {
        "deployments": {"get"},
        "roles": changed,
        "rolebindings": changed,
        "serviceaccounts": changed,
    }


def test_a_job_may_only_report(place: Place) -> None:
    """A build's pods may patch the status of MyriaRebuilds of their namespace, and nothing else anywhere."""
    assert allowed(place.builder, place.name) == {"myriarebuilds/status": {"patch"}}
    assert allowed(place.builder, "default") == {}


def test_people_get_it_with_the_clusters_own_roles(place: Place) -> None:
    """Who may view the namespace sees rebuilds, who may edit it asks for them; neither writes status."""
    wait_until_seen(place, "vera", "anna")
    vera, anna = (allowed(place.person(name), place.name) for name in ("vera", "anna"))
    assert vera["myriarebuilds"] == vera["myriarebuilds/status"] == {"get", "list", "watch"}
    assert anna["myriarebuilds"] == set(VERBS)
    assert anna["myriarebuilds/status"] == {"get", "list", "watch"}
    assert allowed(place.person("otto"), place.name) == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_manifest_is_valid_for_new_and_old_versions(path: Path) -> None:
    """Strict schemas of Kubernetes know every field of the examples; our own kind obeys the operator's rules."""
    for manifest in manifests.read(path):
        if manifest["kind"] == "MyriaRebuild":
            assert violations(manifest["spec"]) == []
            continue
        for version in ("1.29", "1.37"):
            kubernetes_validate.validate(manifest, version, strict=True)


def test_every_example_can_be_applied_with_kubectl(place: Place) -> None:
    """`kubectl apply -f` makes the resources as they are written, and a second time changes nothing.

    approve.yaml is held.yaml and `approve: true`, so that applying it after it approves.
    """
    approving = manifests.EXAMPLES / "approve.yaml"
    others = [path for path in REBUILDS if path != approving]
    files = [f"--filename={path}" for path in others]
    for done in ("created", "unchanged"):
        said = place.kubectl("apply", *files).stdout.splitlines()
        assert [line.split()[-1] for line in said] == [done] * len(others), said
    for (manifest,) in map(manifests.read, others):
        assert place.get(manifest["metadata"]["name"])["spec"] == manifest["spec"]
    (held,), (approved,) = manifests.read(manifests.EXAMPLES / "held.yaml"), manifests.read(approving)
    assert {**held["spec"], "approve": True} == approved["spec"]
    assert held["metadata"] == approved["metadata"]
    assert violations(approved["spec"]) == []
    assert "configured" in place.kubectl("apply", "-f", approving).stdout


def test_the_example_of_a_pod_template_is_one_that_the_operator_takes() -> None:
    """The operator's own check of pod templates accepts the example."""
    template = read_pod_template(manifests.EXAMPLES / "pod-template.yaml")
    assert template["spec"]["serviceAccountName"] == "myria-builder"


@pytest.fixture
def finished(place: Place) -> Place:
    """One published and one failed rebuild."""
    place.rebuild("good")
    place.rebuild("bad")
    report(
        place,
        "good",
        conditions=[condition(reasons.SUCCEEDED, "True", reasons.BUILD_PUBLISHED)],
        snapshotID="snap_1",
        previousSnapshotID="snap_0",
        jobName="good-abc",
        cutoff=99,
        counts={"events": 5120, "events_new": 42},
        durationSeconds=7,
    )
    report(
        place,
        "bad",
        conditions=[condition(reasons.SUCCEEDED, "False", reasons.WORKER_LOST, "The Job went away; build again.")],
    )
    return place


def test_kubectl_get_tells_the_story(finished: Place) -> None:
    """One line tells what, why, how it ended and for how long; -o wide adds Job, Previous and Cutoff."""
    header, bad, good = finished.kubectl("get", "mrb").stdout.splitlines()
    assert header.split() == [
        "NAME",
        "TENANT",
        "TRIGGER",
        "SUCCEEDED",
        "REASON",
        "SNAPSHOT",
        "EVENTS",
        "DURATION",
        "AGE",
    ]
    assert good.split()[:8] == ["good", "default", "Manual", "True", "BuildPublished", "snap_1", "42", "7"]
    assert bad.split()[:5] == ["bad", "default", "Manual", "False", "WorkerLost"]
    header, _, good = finished.kubectl("get", "myria", "-o", "wide").stdout.splitlines()
    assert header.split()[-3:] == ["JOB", "PREVIOUS", "CUTOFF"]
    assert good.split()[-3:] == ["good-abc", "snap_0", "99"]


def test_kubectl_describe_and_explain_help(finished: Place) -> None:
    """describe shows the message that says what to do; explain shows the fields' descriptions."""
    assert "The Job went away; build again." in finished.kubectl("describe", "mrb", "bad").stdout
    explained = finished.kubectl("explain", "mrb.spec.build.deadlineSeconds").stdout
    assert "may be changed while it runs" in " ".join(explained.split())


def test_kubectl_wait_works_for_success_and_for_failure(finished: Place) -> None:
    """`--for=condition=Succeeded` and `=Succeeded=False` return when it has ended so, and time out otherwise."""
    finished.kubectl("wait", "mrb/good", "--for=condition=Succeeded", "--timeout=20s")
    finished.kubectl("wait", "mrb/bad", "--for=condition=Succeeded=False", "--timeout=20s")
    late = finished.kubectl("wait", "mrb/bad", "--for=condition=Succeeded", "--timeout=1s", check=False)
    assert late.returncode == 1
    assert "timed out" in late.stderr


def test_nobody_forges_a_status(place: Place) -> None:
    """Somebody who may edit rebuilds cannot write their status; a Job cannot write their spec."""
    wait_until_seen(place, "anna")
    place.rebuild("one")
    for api, subresource, body in (
        (place.person("anna"), "status", {"status": {"snapshotID": "snap_forged"}}),
        (place.builder, None, {"spec": {"abort": True}}),
        (place.operator, None, {"spec": {"abort": True}}),
    ):
        with pytest.raises(ApiError, match="forbidden"):
            api.patch("MyriaRebuild", "one", body, place.name, subresource=subresource)


def test_the_audit_log_knows_who_it_was(place: Place) -> None:
    """With the policy of docs/kubernetes.md, the audit log joins a verified person to a resource by its uid."""
    wait_until_seen(place, "anna")
    manifest = {**rebuild("unused"), "metadata": {"generateName": "held-"}}
    created = place.person("anna").create(manifest, place.name)["metadata"]
    place.person("anna").patch("MyriaRebuild", created["name"], {"spec": {"approve": True}}, place.name)

    def asked() -> list[tuple[str, str, bool]]:
        requests, _ = place.control_plane.audit()
        return [
            (one["user"]["username"], one["verb"], one["requestObject"]["spec"].get("approve", False))
            for one in requests
            if one.get("responseObject", {}).get("metadata", {}).get("uid") == created["uid"]
        ]

    wait_until(lambda: asked() == [("anna", "create", False), ("anna", "patch", True)], 10, "the audit log")
