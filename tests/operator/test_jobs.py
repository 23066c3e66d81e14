"""The Job of a build: from the installation's pod template and the resource's few fields."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from myria.errors import ConfigurationError
from myria.settings import OperatorSettings
from myria_operator.jobs import checked_pod_template, job_change, manifest, read_pod_template
from myria_operator.ledger import ToMake
from myria_operator.naming import job_name, rebuild_name
from myria_operator.requests import manifest as rebuild_manifest
from tests.operator.test_decide import UID, build, job, rebuild

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "pod-template.yaml"
SETTINGS = OperatorSettings()


def made(spec: dict[str, Any] | None = None, *, pods: int = 1) -> dict[str, Any]:
    """The Job of a resource, from the example's template."""
    return manifest(rebuild(spec), build("queued"), read_pod_template(EXAMPLE), SETTINGS, pods=pods)


@pytest.mark.parametrize("version", ["1.31", "1.34", "1.37"])
def test_newer_kubernetes_accepts_the_job(version: str) -> None:
    """Strictly: no field of the Job is unknown to any version that is meant to run it."""
    full = {
        "parallelism": 4,
        "deadlineSeconds": 60,
        "backoffLimit": 0,
        "jobTTLSeconds": 5,
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "priorityClassName": "low",
    }
    for one in (made(), made({"build": full}, pods=4)):
        kubernetes_validate.validate(one, version, strict=True)


def test_the_job_says_what_was_asked() -> None:
    """Names, owner, pods, limits and the build's arguments are there; defaults where nothing was asked."""
    one = made({"build": {"parallelism": 3, "deadlineSeconds": 90}}, pods=2)
    assert one["metadata"]["name"] == job_name("one", UID)
    (owner,) = one["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("MyriaRebuild", UID, True)
    spec = one["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (2, 2, "NonIndexed")
    assert (spec["activeDeadlineSeconds"], spec["backoffLimit"]) == (90, SETTINGS.backoff_limit)
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"] == ["--tenant", "default", "--build", "bld_1"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    named = {one["name"]: one.get("value") for one in container["env"]}
    assert (named["MYRIA_REBUILD_NAMESPACE"], named["MYRIA_REBUILD_NAME"], named["MYRIA_REBUILD_UID"]) == (
        "ns",
        "one",
        UID,
    )


def test_pods_fail_fast_or_are_forgiven() -> None:
    """Bad input and an ended build fail the Job at once; a disruption counts for nothing."""
    second, first = made()["spec"]["podFailurePolicy"]["rules"]
    assert (first["action"], first["onExitCodes"]["values"]) == ("FailJob", [2, 3, 4, 6, 7])
    assert second == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def test_the_resource_cannot_choose_what_runs() -> None:
    """Image, command, volumes and account are the template's, whatever a resource holds."""
    plain = made()["spec"]["template"]["spec"]
    spec = {"build": {"image": "evil", "command": ["sh"], "volumes": [], "serviceAccountName": "admin"}}
    assert made(spec)["spec"]["template"]["spec"] == plain


def test_making_a_job_changes_nothing_else() -> None:
    """The template and the resource are read, not changed."""
    template = read_pod_template(EXAMPLE)
    before = copy.deepcopy(template)
    resource = rebuild({"build": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"}}})
    kept = copy.deepcopy(resource.spec)
    manifest(resource, build("queued"), template, SETTINGS, pods=1)
    assert (template, resource.spec) == (before, kept)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one.update(kind="Pod"), "kind PodTemplate"),
        (lambda one: one["template"]["spec"].update(containers=[]), "exactly one container named builder"),
        (lambda one: one["template"]["spec"]["containers"].append({"name": "side", "image": "x"}), "beside builder"),
        (lambda one: one["template"]["spec"]["containers"][0].pop("image"), "no image"),
        (lambda one: one["template"]["spec"]["containers"][0].update(args=["x"]), "args"),
        (lambda one: one["template"]["spec"].update(restartPolicy="OnFailure"), "restartPolicy"),
        (lambda one: one["template"]["spec"].update(activeDeadlineSeconds=5), "activeDeadlineSeconds"),
        (
            lambda one: one["template"]["spec"]["containers"][0]["env"].append({"name": "MYRIA_REBUILD_UID"}),
            "MYRIA_REBUILD_UID",
        ),
        (lambda one: one.pop("template"), "template.spec"),
    ],
)
def test_a_bad_template_is_refused_at_the_start(change: Any, told: str) -> None:
    """The message says what to change."""
    document = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    change(document)
    with pytest.raises(ConfigurationError, match=told):
        checked_pod_template(document, "x.yaml")


def test_an_unreadable_template_is_refused(tmp_path: Path) -> None:
    """A missing file and one that is no YAML say so."""
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_pod_template(tmp_path / "absent.yaml")
    (tmp_path / "bad.yaml").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="not YAML"):
        read_pod_template(tmp_path / "bad.yaml")


def test_a_job_is_changed_where_the_spec_says_otherwise() -> None:
    """Suspension is said in both ways, as old API servers drop `suspend`; a deadline only where one was asked for."""
    runs = job(parallelism=4, completions=4, deadline_s=60)
    suspended = job(parallelism=0, completions=4, deadline_s=60)
    longer = {"build": {"deadlineSeconds": 90}}
    assert job_change(rebuild({"suspend": True}), runs) == {"spec": {"suspend": True, "parallelism": 0}}
    assert job_change(rebuild(), suspended) == {"spec": {"suspend": False, "parallelism": 4}}
    assert job_change(rebuild(longer), runs) == {"spec": {"activeDeadlineSeconds": 90}}
    assert job_change(rebuild(), runs) == {"spec": {}}


@given(name=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True), uid=st.uuids().map(str))
def test_job_names_are_names(name: str, uid: str) -> None:
    """At most 52 characters, a DNS label, the same each time, another one for another uid."""
    found = job_name(name, uid)
    assert len(found) <= 52
    assert found == job_name(name, uid) != job_name(name, uid + "x")
    assert found.replace("-", "a").isalnum()
    assert found == found.lower()
    assert not found.startswith("-")


@given(tenant=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True), cause=st.text(max_size=20))
def test_names_from_causes_are_names(tenant: str, cause: str) -> None:
    """Whatever the tenant is called, the resource's name is a DNS label, and tells tenants apart."""
    found = rebuild_name(tenant, "tail-threshold", cause)
    assert len(found) <= 63
    assert found.replace("-", "a").isalnum()
    assert found != rebuild_name(tenant + "x", "tail-threshold", cause)


def test_a_request_becomes_a_resource() -> None:
    """Trigger, reason, full and hold are in the spec; a plain one says no more than it must."""
    common: dict[str, Any] = {"tenant": "t", "request_id": "req_1", "cause_key": "k", "name": None}
    plain = ToMake(**common, trigger="inactivity", is_full=False, hold=False, reason=None)
    assert rebuild_manifest(plain, "n", "ns")["spec"] == {"tenant": "t", "trigger": "Inactivity"}
    held = ToMake(**common, trigger="manual", is_full=True, hold=True, reason="r")
    assert rebuild_manifest(held, "n", "ns")["spec"] == {
        "tenant": "t",
        "trigger": "Manual",
        "reason": "r",
        "build": {"full": True, "publish": "Hold"},
    }
