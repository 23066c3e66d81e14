"""Every value set: it renders, lints, and gives objects that every supported Kubernetes takes."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import helm_python as helm
import kubernetes_validate
import pytest

from myria_operator.jobs import checked_pod_template
from tests.chart import pod_security
from tests.chart.rendering import AS_SUBCHART, CHART, NAMESPACE, SETS, Json, rendered, values_of
from tests.clients import toolchain
from tests.support.counts import crossed
from tests.support.skips import missing

VERSIONS = ("1.37", "1.35", "1.33")
FOREIGN = ("postgresql.cnpg.io/", "monitoring.coreos.com/", "gateway.networking.k8s.io/", "myria.dev/")
"""API groups that are not Kubernetes' own."""
NOT_NAMESPACED = {
    "ClusterRole",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@cache
def violation(text: str, version: str) -> str | None:
    """Return what a version of Kubernetes has against an object."""
    try:
        kubernetes_validate.validate(json.loads(text), version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return f"{version}: {error}"
    return None


FOREIGN_FOLDER = Path(__file__).parent / "foreign"


def foreign_violations(objects: list[Json]) -> list[str]:
    """Return what the published schemas of the Prometheus Operator and of the Gateway API have against objects."""
    try:
        packages, node = toolchain.node_folder(FOREIGN_FOLDER), toolchain.node()
    except RuntimeError as absent:  # neither npm's registry nor a cache of it
        missing(f"no schemas of foreign kinds: {absent}")
    program = packages / "validate.mjs"  # beside its node_modules, where Node looks for them
    program.write_text((FOREIGN_FOLDER / "validate.mjs").read_text(encoding="utf-8"), encoding="utf-8")
    done = subprocess.run(
        [node, program], input=json.dumps(objects), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.processes
def test_foreign_kinds_are_valid_too() -> None:
    """Monitors, rules and routes obey the schemas that their makers publish; a wrong one does not."""
    kinds = ("ServiceMonitor", "PodMonitor", "PrometheusRule", "HTTPRoute")
    objects = [one for name in ("everything", "monitoring") for kind in kinds for one in rendered(name).of(kind)]
    assert {one["kind"] for one in objects} == set(kinds)
    assert foreign_violations(objects) == []
    (route,) = rendered("everything").of("HTTPRoute")
    wrong = {**route, "spec": {**route["spec"], "hostnames": "memory.example.org"}}
    assert len(foreign_violations([wrong])) == 1


def test_there_are_enough_value_sets() -> None:
    """The default and at least twelve others are checked."""
    assert len(SETS) >= 13
    assert "default" in SETS


@pytest.mark.parametrize("name", [one for one in SETS if one not in AS_SUBCHART])
def test_lint_has_nothing_to_say(name: str) -> None:
    """`helm lint --strict` finds neither error nor warning."""
    report = helm.lint(CHART, values_of(name), strict=True, namespace=NAMESPACE)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


@pytest.mark.soak
@pytest.mark.parametrize(("name", "version"), crossed(SETS, VERSIONS))
def test_every_object_is_valid_for_every_supported_version(name: str, version: str) -> None:
    """Strict schemas of Kubernetes 1.33, 1.35 and 1.37 know every field; pod templates in ConfigMaps as well."""
    found = [
        violation(json.dumps(one, sort_keys=True), version)
        for one in (*rendered(name).objects, *rendered(name).pod_templates())
        if not one["apiVersion"].startswith(FOREIGN)
    ]
    assert [one for one in found if one] == []


@pytest.mark.parametrize("name", SETS)
def test_every_pod_is_restricted(name: str) -> None:
    """Each rule of the Pod Security Standard `restricted` holds for each pod, Jobs and builds included."""
    pods = list(rendered(name).pods())
    assert {one.source: pod_security.broken(one.spec) for one in pods} == {one.source: [] for one in pods}
    for pod in pods:
        assert all("runAsUser" not in (one.get("securityContext") or {}) for one in (pod.spec, *pod.containers))
        ours = [one for one in pod.containers if "myria" in one["image"]]
        assert ours
        assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in ours)


def test_the_rules_of_restricted_do_refuse() -> None:
    """The checks themselves: a pod that breaks a rule is found, rule by rule."""
    good = next(rendered("default").pods()).spec
    container = good["containers"][0]
    security = container["securityContext"]
    worse: dict[str, dict[str, object]] = {
        "host_process": {"securityContext": {**good["securityContext"], "windowsOptions": {"hostProcess": True}}},
        "host_namespaces": {"hostPID": True},
        "privileged": {"containers": [{**container, "securityContext": {**security, "privileged": True}}]},
        "capabilities": {
            "containers": [{**container, "securityContext": {**security, "capabilities": {"drop": ["NET_RAW"]}}}]
        },
        "volumes": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]},
        "host_ports": {"containers": [{**container, "ports": [{"containerPort": 1, "hostPort": 1}]}]},
        "host_probes": {"containers": [{**container, "livenessProbe": {"tcpSocket": {"host": "a", "port": 1}}}]},
        "app_armor": {"securityContext": {**good["securityContext"], "appArmorProfile": {"type": "Unconfined"}}},
        "selinux": {"securityContext": {**good["securityContext"], "seLinuxOptions": {"role": "admin"}}},
        "proc_mount": {"containers": [{**container, "securityContext": {**security, "procMount": "Unmasked"}}]},
        "sysctls": {"securityContext": {**good["securityContext"], "sysctls": [{"name": "kernel.msgmax"}]}},
        "privilege_escalation": {
            "containers": [{**container, "securityContext": {**security, "allowPrivilegeEscalation": True}}]
        },
        "non_root": {"securityContext": {**good["securityContext"], "runAsNonRoot": False}},
        "non_root_user": {"securityContext": {**good["securityContext"], "runAsUser": 0}},
        "seccomp": {"securityContext": {**good["securityContext"], "seccompProfile": {"type": "Unconfined"}}},
    }
    assert set(worse) == {rule.__name__ for rule in pod_security.RULES}
    for rule, change in worse.items():
        assert pod_security.broken({**good, **change}) == [rule]


@pytest.mark.parametrize("name", SETS)
def test_names_are_unique_and_short_enough(name: str) -> None:
    """No two objects share kind and name, all are in the release's namespace, and a pod's name still fits a label."""
    objects = rendered(name).objects
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))
    for one in objects:
        assert (one["metadata"].get("namespace") == NAMESPACE) != (one["kind"] in NOT_NAMESPACED), one["metadata"]
        if one["kind"] in ("Job", "StatefulSet"):
            assert len(one["metadata"]["name"]) <= 52


@pytest.mark.parametrize("name", SETS)
def test_rendering_is_deterministic(name: str) -> None:
    """The same values give the same bytes, so GitOps tools see no difference where there is none."""
    again = rendered.__globals__["_rendered"].__wrapped__(name)
    assert again.files == rendered(name).files


@pytest.mark.parametrize("name", SETS)
def test_the_operator_takes_the_pod_template(name: str) -> None:
    """The operator's own check accepts the template of builds, and it is the only thing that names their image."""
    for template in rendered(name).pod_templates():
        assert checked_pod_template(template, "pod-template.yaml")["spec"]["restartPolicy"] == "Never"
