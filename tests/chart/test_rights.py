"""What pods may do in the cluster, over the network, and when the release goes."""

from __future__ import annotations

from typing import Any

import cel
import pytest

from tests.chart.rendering import (
    NAMESPACE,
    SETS,
    environment_of,
    render,
    rendered,
    values_of,
)


@pytest.mark.parametrize("name", SETS)
def test_only_the_control_plane_has_tokens(name: str) -> None:
    """Serving pods, PostgreSQL and `helm test` have none; Services put no variables into any pod."""
    with_token = {pod.component for pod in rendered(name).pods() if pod.spec["automountServiceAccountToken"]}
    assert with_token <= {"operator", "builder", "logins", "admin-key"}
    assert all(pod.spec["enableServiceLinks"] is False for pod in rendered(name).pods())
    assert all(one["automountServiceAccountToken"] is False for one in rendered(name).of("ServiceAccount"))


@pytest.mark.parametrize("name", SETS)
def test_accounts_secrets_and_config_maps_that_pods_name_are_there(name: str) -> None:
    """Every ServiceAccount and ConfigMap that a pod names is rendered too, unless the values bring it."""
    objects = rendered(name)
    accounts = {one["metadata"]["name"] for one in objects.of("ServiceAccount")}
    config_maps = {one["metadata"]["name"] for one in objects.of("ConfigMap")} | {"trust"}
    for pod in objects.pods():
        assert pod.spec["serviceAccountName"] in accounts or name == "no-crds"
        for volume in pod.spec["volumes"]:
            assert volume.get("configMap", {"name": "trust"})["name"] in config_maps
        mounted = {one["name"] for container in pod.containers for one in container.get("volumeMounts", ())}
        claims = {"data"} if objects.of("StatefulSet") else set()
        assert mounted <= {one["name"] for one in pod.spec["volumes"]} | claims


def test_network_policies_cover_every_pod() -> None:
    """Each pod has a policy for both directions; nobody enters but those who must."""
    makes_key = {("admin-key", name) for name in ("everything", "network-policy", "openshift")}
    for name in ("everything", "network-policy", "openshift", "own-key", "unauthenticated"):
        policies = {
            one["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: one["spec"]
            for one in rendered(name).of("NetworkPolicy")
        }
        assert set(policies) == {pod.component for pod in rendered(name).pods()}
        for component, spec in policies.items():
            assert spec["policyTypes"] == ["Ingress", "Egress"]
            may_enter = {"server", "trial-db"} | ({"operator"} if name == "everything" else set())
            assert bool(spec["ingress"]) == (component in may_enter)
            ports = {port["port"] for rule in spec["egress"] for port in rule.get("ports", ())}
            to_api = component in {"operator", "builder", "logins"} or (component, name) in makes_key
            assert bool(ports & {6443}) == to_api
            assert (443 in ports) == (
                (to_api and name != "network-policy") or (component == "server" and name == "everything")
            )
    named = {one["metadata"]["name"]: one["spec"] for one in rendered("network-policy").of("NetworkPolicy")}
    rule = {"ports": [{"protocol": "TCP", "port": 6432}], "to": [{"ipBlock": {"cidr": "10.0.0.2/32"}}]}
    assert rule in named["memory-myria-server"]["egress"]


POLICY_CASES: tuple[tuple[str | None, list[str] | None, bool], ...] = (
    # What the resource says, which pod asks, whether it may.
    ("rebuild-abc", ["rebuild-abc-x7k2p"], True),
    ("rebuild-abc", ["rebuild-abd-x7k2p"], False),
    ("rebuild", ["rebuild-abc-x7k2p"], False),
    ("rebuild-abc", ["rebuild-abc"], False),
    ("rebuild-abc", [], False),
    ("rebuild-abc", None, False),
    (None, ["rebuild-abc-x7k2p"], False),
)


@pytest.mark.parametrize(("job", "pods", "may"), POLICY_CASES)
def test_a_build_may_only_write_the_status_of_its_own_resource(
    job: str | None, pods: list[str] | None, may: bool
) -> None:
    """The admission policy's CEL admits the pods of the Job that status.jobName names, and nobody else's."""
    spec = rendered("default").of("ValidatingAdmissionPolicy")[0]["spec"]
    extra = {} if pods is None else {"authentication.kubernetes.io/pod-name": pods}
    account = f"system:serviceaccount:{NAMESPACE}:memory-myria-builder"
    status = {} if job is None else {"status": {"jobName": job}}
    activation: dict[str, Any] = {
        "request": {"userInfo": {"username": account, "extra": extra}},
        "oldObject": status,
        "object": status,
    }
    (matches,) = spec["matchConditions"]
    assert cel.evaluate(matches["expression"], activation) is True
    others = {**activation, "request": {"userInfo": {"username": "anna", "extra": {}}}}
    assert cel.evaluate(matches["expression"], others) is False
    activation["variables"] = {one["name"]: cel.evaluate(one["expression"], activation) for one in spec["variables"]}
    assert all(cel.evaluate(one["expression"], activation) for one in spec["validations"]) is may
    told = cel.evaluate(spec["validations"][0]["messageExpression"], activation)
    assert "its own MyriaRebuild" in told


def test_a_build_cannot_give_its_resource_to_another_job() -> None:
    """status.jobName stays as it is."""
    spec = rendered("default").of("ValidatingAdmissionPolicy")[0]["spec"]
    second = spec["validations"][1]["expression"]
    for new, may in (("a", True), ("b", False), (None, False)):
        status = {} if new is None else {"jobName": new}
        activation = {"object": {"status": status}, "variables": {"job": "a"}}
        assert cel.evaluate(second, activation) is may


def test_the_policy_is_bound_to_the_namespace_alone() -> None:
    """Other installations have their own."""
    (binding,) = rendered("default").of("ValidatingAdmissionPolicyBinding")
    (policy,) = rendered("default").of("ValidatingAdmissionPolicy")
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["matchResources"]["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": NAMESPACE
    }
    assert NAMESPACE in policy["metadata"]["name"]


@pytest.mark.parametrize("name", SETS)
def test_uninstalling_needs_no_pod(name: str) -> None:
    """No hook runs before or after an uninstall: one whose image cannot be pulled would keep the release for ever."""
    hooks = [one["metadata"].get("annotations", {}).get("helm.sh/hook", "") for one in rendered(name).objects]
    assert {hook for hook in hooks if hook} <= {"test"}


def test_the_operator_knows_its_own_deployment() -> None:
    """It may look for its Deployment alone, so that it can tell an uninstall from a restart."""
    default = rendered("default")
    name = "memory-myria-operator"
    assert environment_of(default.pod("operator").container("operator"))["MYRIA_OPERATOR_DEPLOYMENT"] == name
    role = default.one("Role", name)
    own = {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": [name], "verbs": ["get"]}
    assert own in role["rules"]
    off = render({"operator": {"stopBuildsOnUninstall": False}})
    assert "MYRIA_OPERATOR_DEPLOYMENT" not in environment_of(off.pod("operator").container("operator"))
    assert "deployments" not in str(off.one("Role", name)["rules"])


def test_an_uninstalled_operator_keeps_what_it_needs_to_end_builds() -> None:
    """Helm leaves its account and rights, which it removes itself; without that, they go with the release."""
    name = "memory-myria-operator"
    for values, policy in (({}, "keep"), ({"operator": {"stopBuildsOnUninstall": False}}, None)):
        rendered_ = render(values)
        for kind in ("ServiceAccount", "Role", "RoleBinding"):
            annotations = rendered_.one(kind, name)["metadata"].get("annotations", {})
            assert annotations.get("helm.sh/resource-policy") == policy


def test_a_policy_lets_serving_pods_fetch_the_keys_of_issuers() -> None:
    """Only where ports are named; without them the notes warn."""
    policies = {one["metadata"]["name"]: one["spec"] for one in rendered("tokens").of("NetworkPolicy")}
    assert {"ports": [{"protocol": "TCP", "port": 443}]} in policies["memory-myria-server"]["egress"]
    assert {"ports": [{"protocol": "TCP", "port": 443}]} not in policies["memory-myria-test"]["egress"]
    warning = "keeps serving pods from the keys of auth.issuers"
    assert warning not in rendered("tokens").notes
    values = values_of("tokens")
    del values["networkPolicy"]["issuers"]
    assert warning in render(values).notes
