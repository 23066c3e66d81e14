"""What each pod is given, and how pods are spread, probed, replaced and tested."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from myria.settings import Settings
from myria_operator.jobs import COMPONENT_LABELS
from tests.chart.rendering import (
    CHART,
    SETS,
    dsn_of,
    environment,
    environment_of,
    render,
    rendered,
)


def test_extra_init_containers_come_first_on_every_pod() -> None:
    """A database proxy starts before whatever needs it, builds and Jobs included."""
    for pod in rendered("proxy").pods():
        first = pod.spec["initContainers"][0]
        assert (first["name"], first["restartPolicy"]) == ("database-proxy", "Always")
        assert [one["name"] for one in pod.spec["containers"]] == [pod.spec["containers"][0]["name"]]
    names = [one["name"] for one in rendered("proxy").pod("server").spec["initContainers"]]
    assert names[:2] == ["database-proxy", "warm-up"]


def test_what_is_given_for_all_pods_reaches_all_pods() -> None:
    """Labels, annotations, environment, volumes and scheduling of `pods` are on each; a component's own win."""
    for pod in rendered("everything").pods():
        assert pod.metadata["labels"]["tier"] == "memory"
        assert pod.metadata["labels"]["team"] == "agents"
        assert pod.metadata["annotations"]["example.org/scrape"] == "no"
        assert pod.spec["nodeSelector"]["kubernetes.io/arch"] == "amd64"
        assert pod.spec["tolerations"][0]["key"] == "dedicated"
        assert "nodeAffinity" in pod.spec["affinity"]
        assert pod.spec["imagePullSecrets"] == [{"name": "pull"}]
        assert pod.spec["priorityClassName"] == ("important" if pod.component == "server" else "normal")
        assert {"name": "trust", "configMap": {"name": "trust"}} in pod.spec["volumes"]
        for container in pod.containers:
            assert {"name": "trust", "mountPath": "/etc/trust", "readOnly": True} in container["volumeMounts"]
            assert environment(pod, container["name"])["HTTPS_PROXY"].startswith("http://proxy")
            assert container["envFrom"]
            assert container["image"] == f"images/myria@sha256:{'0123456789abcdef' * 4}"
    server = rendered("everything").pod("server")
    assert server.spec["nodeSelector"] == {"kubernetes.io/arch": "amd64", "pool": "serving"}
    assert [one["key"] for one in server.spec["tolerations"]] == ["dedicated", "serving"]
    assert server.metadata["annotations"]["example.org/role"] == "serving"


def test_as_a_subchart_it_obeys_global_and_its_parents_condition() -> None:
    """`global` may hold anything; the registry and pull secrets in it are used."""
    for pod in rendered("subchart").pods():
        assert pod.spec["imagePullSecrets"] == [{"name": "pull-everything"}, {"name": "pull-more"}]
        assert all(one["image"] == f"images.internal:5000/myria:{version('myria')}" for one in pod.containers)
    assert dsn_of(rendered("subchart").pod("server"), "server") == ("platform-database", "server-dsn")


@pytest.mark.parametrize("name", SETS)
def test_selectors_find_their_pods_and_no_others(name: str) -> None:
    """Deployments, Services, budgets and policies select exactly the pods of one component."""
    pods = list(rendered(name).pods())
    for one in rendered(name).objects:
        selector = one.get("spec", {}).get("selector") if one["kind"] == "Service" else None
        if one["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            selector = one["spec"]["selector"]["matchLabels"]
        if one["kind"] == "NetworkPolicy":
            selector = one["spec"]["podSelector"]["matchLabels"]
        if selector is not None:
            chosen = {pod.component for pod in pods if selector.items() <= pod.metadata["labels"].items()}
            assert len(chosen) == 1, (one["kind"], one["metadata"]["name"], chosen)


def test_the_variables_are_settings_that_exist() -> None:
    """Every MYRIA_ variable of every pod is one that the program reads, with a value it takes."""
    for name in SETS:
        for pod in rendered(name).pods():
            for container in pod.containers:
                given = environment_of(container)
                given.pop("MYRIA_CONFIG", None)
                given.pop("MYRIA_KEY", None)
                Settings.load(None, environ={key: one for key, one in given.items() if key.startswith("MYRIA_")})


@pytest.mark.parametrize("off", ["off", False])
def test_embeddings_are_switched_off_by_a_bare_off(off: object, tmp_path: Path) -> None:
    """Helm reads it as false; the pods take either for off."""
    release = render({"settings": {"embeddings": {"model": off}}})
    (held,) = [one for one in release.of("ConfigMap") if "myria.yaml" in one["data"]]
    path = tmp_path / "myria.yaml"
    path.write_text(held["data"]["myria.yaml"], encoding="utf-8")
    assert Settings.load(path, environ={}).embeddings.model == "off"


def test_the_settings_file_is_what_was_given() -> None:
    """`settings` reaches every pod of the program as one file, and the program reads it."""
    (held,) = [one for one in rendered("everything").of("ConfigMap") if "myria.yaml" in one["data"]]
    given = yaml.safe_load(held["data"]["myria.yaml"])
    assert given["retrieval"] == {"cache_bytes": 536870912}
    assert given["builder"]["auto_publish"] is False
    for pod in rendered("everything").pods():
        for container in pod.containers if pod.component != "trial-db" else ():
            path = environment(pod, container["name"])["MYRIA_CONFIG"]
            mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
            assert mounts[path.rpartition("/")[0]] == "settings"


def test_a_changed_setting_restarts_what_reads_it() -> None:
    """Pods carry a digest of the settings and of the pod template, so a change rolls them."""
    before = {pod.component: pod.metadata.get("annotations") for pod in render().pods()}
    after = {
        pod.component: pod.metadata.get("annotations")
        for pod in render({"settings": {"builder": {"processes": 2}}}).pods()
    }
    assert before["server"] != after["server"]
    assert before["operator"] != after["operator"]
    other = {
        pod.component: pod.metadata.get("annotations") for pod in render({"builder": {"labels": {"a": "b"}}}).pods()
    }
    assert other["operator"] != before["operator"]
    assert other["server"] == before["server"]


def test_probes_are_where_the_programs_answer() -> None:
    """Liveness never looks at the database; readiness does; every probed port is one that the container names."""
    for pod in rendered("default").pods():
        for container in pod.containers:
            ports = {one["name"] for one in container.get("ports", ())}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container:
                    assert container[probe]["httpGet"]["port"] in ports
    server = rendered("default").pod("server").container("server")
    assert server["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert server["livenessProbe"]["httpGet"]["path"] == server["startupProbe"]["httpGet"]["path"] == "/livez"


@pytest.mark.parametrize("given", [{}, {"drain_s": 0, "linger_s": 0}, {"drain_s": 42.5}, {"linger_s": 12}])
def test_grace_periods_add_up(given: dict[str, float]) -> None:
    """The kubelet waits longer than a serving pod lingers and drains, and not for ever."""
    mcp = Settings.load(None, environ={f"MYRIA_MCP_{key.upper()}": str(value) for key, value in given.items()}).mcp
    grace = render({"settings": {"mcp": given}}).pod("server").spec["terminationGracePeriodSeconds"]
    assert mcp.linger_s + mcp.drain_s + 10 <= grace <= mcp.linger_s + mcp.drain_s + 12


def test_one_pod_gets_no_budget_and_a_scaled_one_no_replicas() -> None:
    """A budget over a single pod would block every drain; with an autoscaler the Deployment names no number."""
    assert rendered("trial-without-volume").of("PodDisruptionBudget") == []
    assert rendered("default").of("PodDisruptionBudget")[0]["spec"]["maxUnavailable"] == 1
    (server,) = [one for one in rendered("everything").of("Deployment") if one["metadata"]["name"] == "memory-store"]
    assert "replicas" not in server["spec"]


def test_recreating_needs_no_more_than_saying_so() -> None:
    """The default's rollingUpdate does not get in the way of another strategy."""
    objects = render({"server": {"strategy": {"type": "Recreate"}}})
    assert objects.one("Deployment", "memory-myria")["spec"]["strategy"] == {"type": "Recreate"}


def test_helm_test_keeps_its_pod_for_its_logs() -> None:
    """The pod of `helm test` goes when the next one comes: Helm 3.14 and 4 ask for its logs after its end."""
    (pod,) = rendered("default").of("Pod")
    annotations = pod["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "test"
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation"


def test_helm_test_looks_at_the_console_where_it_is_on() -> None:
    """Only there: elsewhere it has no page."""
    (pod,) = render({"settings": {"console": {"enabled": True}}}).of("Pod")
    assert "--console" in pod["spec"]["containers"][0]["command"]
    (pod,) = rendered("default").of("Pod")
    assert "--console" not in pod["spec"]["containers"][0]["command"]


def test_pods_spread_over_nodes_and_zones() -> None:
    """By default, where possible."""
    spread = rendered("default").pod("server").spec["topologySpreadConstraints"]
    assert {one["topologyKey"] for one in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert {one["whenUnsatisfiable"] for one in spread} == {"ScheduleAnyway"}


def test_what_looks_twice_reaches_its_endpoint_with_the_template() -> None:
    """The values of docs/second-look.md: serving pods have the setting, the template, the key and a way out."""
    text = (CHART.parents[1] / "docs" / "second-look.md").read_text(encoding="utf-8")
    given = yaml.safe_load(text.partition("```yaml\n# values.yaml\n")[2].partition("```")[0])
    shown = render({**given, "networkPolicy": {"enabled": True, **given["networkPolicy"]}})
    (container,) = shown.pod("server").spec["containers"]
    template = environment(shown.pod("server"), container["name"])["MYRIA_SECOND_LOOK_TEMPLATE"]
    assert template.rpartition("/")[0] in {mount["mountPath"] for mount in container["volumeMounts"]}
    (port,) = given["networkPolicy"]["modelEndpoint"]["ports"]
    (server,) = [one for one in shown.of("NetworkPolicy") if one["metadata"]["name"].endswith("-server")]
    assert port in [rule["port"] for rules in server["spec"]["egress"] for rule in rules["ports"]]
    (held,) = [one for one in shown.of("ConfigMap") if "myria.yaml" in one["data"]]
    assert yaml.safe_load(held["data"]["myria.yaml"])["second_look"] == given["settings"]["second_look"]


def test_what_embeds_reaches_its_endpoint_with_the_template() -> None:
    """The values of docs/embeddings.md: serving pods, builds and the operator have template, key and a way out."""
    text = (CHART.parents[1] / "docs" / "embeddings.md").read_text(encoding="utf-8")
    given = yaml.safe_load(text.partition("```yaml\n# values.yaml\n")[2].partition("```")[0])
    shown = render({**given, "networkPolicy": {"enabled": True, **given["networkPolicy"]}})
    policies = {
        one["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: one["spec"]["egress"]
        for one in shown.of("NetworkPolicy")
    }
    (port,) = given["networkPolicy"]["modelEndpoint"]["ports"]
    for component in ("server", "operator", "builder"):
        pod = shown.pod(component)
        (container,) = pod.spec["containers"]
        template = environment(pod, container["name"])["MYRIA_EMBEDDINGS_TEMPLATE"]
        assert template.rpartition("/")[0] in {mount["mountPath"] for mount in container["volumeMounts"]}
        ports = [rule["port"] for rules in policies[component] for rule in rules["ports"]]
        assert port in ports
    (held,) = [one for one in shown.of("ConfigMap") if "myria.yaml" in one["data"]]
    assert yaml.safe_load(held["data"]["myria.yaml"])["embeddings"] == given["settings"]["embeddings"]
    closed = render({**given, "settings": {}, "networkPolicy": {"enabled": True, **given["networkPolicy"]}})
    (operator,) = [one for one in closed.of("NetworkPolicy") if one["metadata"]["name"].endswith("-operator")]
    assert port not in [rule["port"] for rules in operator["spec"]["egress"] for rule in rules["ports"]]


def test_builds_carry_the_labels_that_policies_and_the_operator_know() -> None:
    """What the operator writes over a build's labels leaves the chart's selectors true."""
    labels = {**rendered("everything").pod("builder").metadata["labels"], **COMPONENT_LABELS}
    selectors = [one["spec"]["podSelector"]["matchLabels"] for one in rendered("everything").of("NetworkPolicy")]
    assert [one for one in selectors if one.items() <= labels.items()]


def test_two_operators_stand_on_two_nodes_where_there_are_two() -> None:
    """One is the default; of two, the loss of a node takes one."""
    spec = render({"operator": {"replicas": 2}}).one("Deployment", "memory-myria-operator")["spec"]
    assert spec["replicas"] == 2
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    alone = rendered("default").one("Deployment", "memory-myria-operator")["spec"]
    assert (alone["replicas"], "topologySpreadConstraints" in alone["template"]["spec"]) == (1, False)


def test_the_notes_give_commands_and_warnings_that_fit() -> None:
    """What to do next is in the notes, with this release's names; warnings appear where they apply."""
    notes = {name: rendered(name).notes for name in SETS}
    assert "helm test memory --namespace agents" in notes["default"]
    assert "create secret generic memory-myria-postgres" in notes["default"]
    assert "does not authenticate callers" in notes["unauthenticated"]
    assert [name for name in SETS if "does not authenticate" in notes[name]] == ["unauthenticated"]
    assert "get secret memory-myria-admin-key --output=jsonpath='{.data.key}'" in notes["default"]
    assert "get secret memory-first-key --output=jsonpath='{.data.token}'" in notes["everything"]
    assert "get secret keys-from-the-vault --output" in notes["own-key"]
    assert "exec deployment/memory-store-operator --container=operator -- myria key create" in notes["everything"]
    assert "--tenant=team_a --as=ada" in notes["everything"]
    assert '--dsn="$(kubectl --namespace agents get secret memory-myria-postgres' in notes["no-operator"]
    assert "CALLERS NEED A KEY" not in "".join(notes.values())
    assert "one connection string serves every pod" not in " ".join(notes["default"].split())
    for name in ("minimal", "one-key"):
        assert "one connection string serves every pod" in " ".join(notes[name].split())
    assert "port-forward service/memory-store 8321:8321" in notes["everything"]
    assert "the Ingress makes it reachable" in notes["unauthenticated"]
    assert "makes it reachable" not in notes["everything"]
    assert "crds.keep is false" in notes["everything"]
    assert "There is no operator" in notes["no-operator"]
    assert "myriarebuilds" not in notes["no-operator"]
    assert "delete pvc,secret" in notes["trial"]
    assert "gone with the pod" in notes["trial-without-volume"]


def test_the_charts_jobs_go_after_a_day() -> None:
    """An ended Job does not stay for ever, unless somebody wants it to."""
    for values in ({"postgres": {"mode": "trial"}}, {"operator": {"enabled": False}}):
        jobs = render(values).of("Job")
        assert len(jobs) == 2
        assert all(job["spec"]["ttlSecondsAfterFinished"] == 86400 for job in jobs)
        kept = render({**values, "jobs": {"ttlSecondsAfterFinished": None}}).of("Job")
        assert not any("ttlSecondsAfterFinished" in job["spec"] for job in kept)


def test_replicas_are_named_only_where_the_values_do() -> None:
    """null leaves the field to others, as an autoscaler does; the budget stays."""
    named = render().one("Deployment", "memory-myria")
    assert named["spec"]["replicas"] == 2
    assert named["metadata"]["annotations"] == {"myria.dev/replicas": "2"}
    left = render({"server": {"replicas": None}})
    assert "replicas" not in left.one("Deployment", "memory-myria")["spec"]
    assert "annotations" not in left.one("Deployment", "memory-myria")["metadata"]
    assert len(left.of("PodDisruptionBudget")) == 1
