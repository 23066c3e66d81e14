"""What each part of the chart promises."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cel
import pytest
import yaml

from myria.access.issuers import load_issuers
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_operator.jobs import COMPONENT_LABELS
from myria_server.app import build_app
from myria_server.http.sse import MESSAGE_PATH, STREAM_PATH
from tests.chart.rendering import CHART, NAMESPACE, SETS, Json, Pod, render, rendered, values_of

VARIABLE = "MYRIA_POSTGRES_DSN"


def dsn_of(pod: Pod, container: str, variable: str = VARIABLE) -> tuple[str, str] | None:
    """Return Secret and key of a container's connection string."""
    for one in pod.container(container).get("env", []):
        if one["name"] == variable:
            reference = one["valueFrom"]["secretKeyRef"]
            return reference["name"], reference["key"]
    return None


def environment(pod: Pod, container: str) -> dict[str, str]:
    """Return the plain variables of a container."""
    return {one["name"]: one["value"] for one in pod.container(container)["env"] if "value" in one}


def keys_read(pod: Pod) -> set[tuple[str, str]]:
    """Return every key of a Secret that a pod reads, through whatever."""
    found = set()
    for container in pod.containers:
        for one in container.get("env", []):
            if reference := (one.get("valueFrom") or {}).get("secretKeyRef"):
                found.add((reference["name"], reference["key"]))
    assert not any("secret" in volume for volume in pod.spec["volumes"])
    return found


def test_each_plane_reads_its_own_connection_string_and_no_other() -> None:
    """The owner's string reaches only the container that migrates; `helm test` gets none, and the first key."""
    read = {pod.component: keys_read(pod) for pod in rendered("four-dsns").pods()}
    secret = "memory-database"
    assert read == {
        "server": {(secret, "app")},
        "operator": {(secret, "owner"), (secret, "control")},
        "builder": {(secret, "build")},
        "admin-key": {(secret, "control"), ("memory-myria-admin-key", "key")},
        "test": {("memory-myria-admin-key", "key")},
    }
    operator = rendered("four-dsns").pod("operator")
    assert dsn_of(operator, "migrate") == (secret, "owner")
    assert dsn_of(operator, "operator") == (secret, "control")


def test_cloudnativepg_gets_roles_with_secrets_and_migrations_its_own() -> None:
    """Each plane's role is managed by the Cluster out of a Secret of its own; migrations use the Cluster's owner."""
    (cluster,) = rendered("cnpg").of("Cluster")
    roles = {one["name"]: one for one in cluster["spec"]["managed"]["roles"]}
    assert set(roles) == {"myria_server", "myria_operator", "myria_builder"}
    assert all(one["login"] and not one["superuser"] for one in roles.values())
    server = rendered("cnpg").pod("server")
    assert dsn_of(server, "server") == (roles["myria_server"]["passwordSecret"]["name"], "dsn")
    assert dsn_of(rendered("cnpg").pod("operator"), "migrate") == ("memory-myria-db-app", "uri")
    assert cluster["spec"]["bootstrap"]["initdb"]["owner"] == "myria_owner"
    assert cluster["spec"]["enableSuperuserAccess"] is False
    assert cluster["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    command = rendered("cnpg").pod("logins").containers[-1]["command"]
    assert command[command.index("--host") + 1] == f"memory-myria-db-rw.{NAMESPACE}"
    assert "cnpg.io/reload=true" in command


def test_a_cluster_that_is_there_is_used_as_it_is() -> None:
    """With create=false there is neither a Cluster nor a Job that makes logins."""
    assert rendered("cnpg-existing").of("Cluster") == []
    assert "logins" not in {pod.component for pod in rendered("cnpg-existing").pods()}
    assert dsn_of(rendered("cnpg-existing").pod("operator"), "migrate") == ("shared-postgres-app", "uri")


@pytest.mark.parametrize("name", SETS)
def test_no_password_is_rendered_that_nobody_gave(name: str) -> None:
    """The only Secret of the chart holds the connection string that stands in the values."""
    given = {"minimal", "proxy"}
    assert len(rendered(name).of("Secret")) == (1 if name in given else 0)
    text = "".join(rendered(name).files.values())
    assert ("secret@" in text) == (name in given)


def test_the_trial_database_is_marked_and_its_passwords_are_made_in_the_cluster() -> None:
    """One pod with one volume; a Job that may only create Secrets makes what all pods log in with."""
    trial = rendered("trial")
    (stateful,) = trial.of("StatefulSet")
    assert stateful["spec"]["replicas"] == 1
    assert "not-for-production" in next(iter(stateful["metadata"]["annotations"]))
    assert "single pod" in trial.notes
    pod = trial.pod("trial-db")
    assert pod.spec["securityContext"]["fsGroup"] == 10001
    made = {word.split("=")[0] for word in trial.pod("logins").containers[-1]["command"] if "=myria_" in word}
    assert {name for name, _ in keys_read(pod)} == made
    first_key = {("memory-myria-admin-key", "key")}
    assert {pair for one in trial.pods() for pair in keys_read(one)} == keys_read(pod) | first_key
    role = trial.one("Role", "memory-myria-logins")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]
    host = trial.pod("logins").containers[-1]["command"][3]
    (service,) = [one for one in trial.of("Service") if one["metadata"]["name"] == host.split(".")[0]]
    assert service["spec"]["selector"].items() <= pod.metadata["labels"].items()
    assert "volumeClaimTemplates" not in rendered("trial-without-volume").of("StatefulSet")[0]["spec"]
    assert "fsGroup" not in rendered("openshift").pod("trial-db").spec["securityContext"]


def test_migrations_run_before_the_operator_and_grant_where_there_are_roles() -> None:
    """An init container of the one operator pod migrates; grants are left out where one string serves all."""
    (operator,) = [one for one in rendered("default").of("Deployment") if "operator" in one["metadata"]["name"]]
    assert operator["spec"]["replicas"] == 1
    assert operator["spec"]["strategy"] == {"type": "Recreate"}
    assert [pod.component for pod in rendered("default").pods() if pod.source.startswith("Job/")] == ["admin-key"]
    assert "--grant" in rendered("default").pod("operator").container("migrate")["command"]
    for name in ("minimal", "one-key"):
        assert "--grant" not in rendered(name).pod("operator").container("migrate")["command"]


def test_without_an_operator_each_revision_has_its_migration_job() -> None:
    """The Job is no hook, its name changes with revision and content, and nothing of the operator is left."""
    serving = rendered("no-operator")
    job, _ = sorted(serving.of("Job"), key=lambda one: "migrate" not in one["metadata"]["name"])
    assert "annotations" not in job["metadata"]
    assert job["metadata"]["name"].startswith("memory-myria-migrate-1-")
    assert dsn_of(serving.pod("migrate"), "migrate") == ("memory-myria-postgres", "migrate-dsn")
    assert {pod.component for pod in serving.pods()} == {"server", "migrate", "admin-key", "test"}
    assert dsn_of(serving.pod("admin-key"), "key") == ("memory-myria-postgres", "migrate-dsn")
    assert {one["metadata"]["name"] for one in serving.of("ConfigMap")} == set()
    off = {"operator": {"enabled": False}}
    names = {
        one["metadata"]["name"]
        for values, revision in ((off, 1), (off, 2), ({**off, "image": {"tag": "2"}}, 1))
        for one in render(values, revision=revision).of("Job")
    }
    assert len(names) == 6
    assert "--no-build" in serving.pod("test").containers[0]["command"]


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


def environment_of(container: Json) -> dict[str, str]:
    """Return a container's variables, those from Secrets with a text in their place."""
    return {one["name"]: one.get("value", "postgresql://a:b@c/d") for one in container.get("env", [])}


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


def test_the_server_accepts_the_names_it_is_called_by() -> None:
    """Host headers of the Service, of the Ingress and of the route pass, so that no client is refused."""
    hosts = json.loads(environment(rendered("everything").pod("server"), "server")["MYRIA_MCP_ALLOWED_HOSTS"])
    service = f"{'memory-store'}.{NAMESPACE}"
    assert hosts == [
        "memory-store",
        service,
        f"{service}.svc",
        f"{service}.svc.cluster.local",
        "memory.example.org",
        "memory2.example.org",
        "route.example.org",
        "memory.internal",
    ]
    command = rendered("everything").pod("test").containers[0]["command"]
    assert command[command.index("--url") + 1] == f"http://{service}:8321/mcp"


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


def test_whoever_needs_the_schema_waits_for_it_and_only_looks() -> None:
    """Serving pods, operator and builds wait for migrations in the process; nobody but the migration migrates."""
    pods = rendered("default")
    for component, container in (("server", "server"), ("operator", "operator"), ("builder", "builder")):
        assert environment(pods.pod(component), container)["MYRIA_MIGRATE_WAIT_S"] == "300"
    migrating = [one["name"] for pod in pods.pods() for one in pod.containers if "migrate" in one["command"]]
    assert migrating == ["migrate"]


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


def test_monitors_scrape_ports_that_exist() -> None:
    """Both planes are scraped once, by Services or by pods; alerts and dashboards come with them."""
    services = {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one for one in rendered("everything").of("Service")
    }
    for monitor in rendered("everything").of("ServiceMonitor"):
        component = monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in services[component]["spec"]["ports"]}
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
    for monitor in rendered("monitoring").of("PodMonitor"):
        pod = rendered("monitoring").pod(monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"])
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in {port["name"] for one in pod.containers for port in one.get("ports", ())}
    assert len(rendered("everything").of("ServiceMonitor")) == len(rendered("monitoring").of("PodMonitor")) == 2


def test_alerts_keep_their_templates_and_get_their_runbooks() -> None:
    """What stands between double braces is Prometheus' own; the runbooks' place is the value; labels are added."""
    files = sorted((CHART / "files" / "alerts").glob("*.yaml"))
    rules = rendered("everything").of("PrometheusRule")
    assert len(rules) == len(files) > 0
    groups = [group for path in files for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]]
    shipped = [rule for group in groups for rule in group["rules"]]
    ours = [rule for one in rules for group in one["spec"]["groups"] for rule in group["rules"]]
    assert len(ours) == len(shipped)
    for rule, installed in zip(shipped, ours, strict=True):
        assert installed["expr"].strip() == str(rule["expr"]).strip()
        if "alert" not in rule:
            assert installed == {**rule, "expr": installed["expr"]}
            continue
        assert installed["labels"] == {**rule.get("labels", {}), "team": "agents"}
        for key, text in rule["annotations"].items():
            filled = text.replace("__RUNBOOK_BASE__", "https://docs.example.org/runbooks")
            assert installed["annotations"][key] == filled
    assert "{{" in json.dumps(ours)


def test_without_an_operator_nobody_is_told_that_it_does_nothing() -> None:
    """The rules about the operator are left out with it, and only those."""
    with_it, without = (
        {
            rule["alert"]
            for one in render({"monitoring": {"prometheusRule": {"enabled": True}}, **more}).of("PrometheusRule")
            for group in one["spec"]["groups"]
            for rule in group["rules"]
            if "alert" in rule
        }
        for more in (values_of("default"), {**values_of("default"), **values_of("no-operator")})
    )
    assert with_it - without == {"MyriaOperatorNotProgressing"}
    assert without < with_it


def test_dashboards_are_the_files() -> None:
    """Each dashboard is one ConfigMap, byte for byte, with the label that Grafana's sidecar looks for."""
    files = {path.name: path.read_text(encoding="utf-8") for path in (CHART / "files" / "dashboards").glob("*.json")}
    found = {
        name: text
        for one in rendered("monitoring").of("ConfigMap")
        for name, text in one["data"].items()
        if one["metadata"]["labels"].get("grafana_dashboard") == "1"
    }
    assert {name: json.loads(text) for name, text in found.items()} == {
        name: json.loads(text) for name, text in files.items()
    }
    assert files


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


def test_two_operators_stand_on_two_nodes_where_there_are_two() -> None:
    """One is the default; of two, the loss of a node takes one."""
    spec = render({"operator": {"replicas": 2}}).one("Deployment", "memory-myria-operator")["spec"]
    assert spec["replicas"] == 2
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    alone = rendered("default").one("Deployment", "memory-myria-operator")["spec"]
    assert (alone["replicas"], "topologySpreadConstraints" in alone["template"]["spec"]) == (1, False)


def test_a_broken_trial_database_can_be_mended() -> None:
    """Its pod is replaced by an upgrade though it never was ready."""
    assert rendered("trial").one("StatefulSet", "memory-myria-trial-db")["spec"]["podManagementPolicy"] == "Parallel"


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


def test_callers_need_keys_unless_the_values_say_otherwise() -> None:
    """Serving pods are told how callers prove who they are; without keys there is neither a Job nor a key to test."""
    for name, mode in (("default", "keys"), ("everything", "keys"), ("unauthenticated", "none")):
        server = rendered(name).pod("server")
        assert environment(server, "server")["MYRIA_AUTH_MODE"] == mode
        assert ("--insecure" in server.container("server")["command"]) == (mode == "none")
    assert "admin-key" not in {pod.component for pod in rendered("unauthenticated").pods()}
    assert keys_read(rendered("unauthenticated").pod("test")) == set()


def test_tokens_of_its_own_and_of_other_issuers_can_be_taken(tmp_path: Path) -> None:
    """Serving pods read the issuers from their file, and clients outside find where to get a token, and get one."""
    given = rendered("tokens")
    server = given.pod("server")
    variables = environment(server, "server")
    (held,) = [one["data"]["issuers.yaml"] for one in given.of("ConfigMap") if "issuers.yaml" in one["data"]]
    mounts = {one["mountPath"]: one["name"] for one in server.container("server")["volumeMounts"]}
    assert mounts[variables["MYRIA_AUTH_ISSUERS_FILE"].rpartition("/")[0]] == "issuers"
    (tmp_path / "issuers.yaml").write_text(held)
    (issuer,) = load_issuers(str(tmp_path / "issuers.yaml"))
    assert (issuer.name, issuer.issuer) == ("login", "https://login.example.org/realms/a")
    read = {key: one for key, one in environment_of(server.container("server")).items() if key.startswith("MYRIA_")}
    auth = Settings.load(None, environ=read).auth
    assert (auth.public_url, auth.server, auth.mode) == ("https://memory.example.org", True, "keys")
    assert "memory.example.org" in json.loads(variables["MYRIA_MCP_ALLOWED_HOSTS"])
    paths = [
        "/mcp",
        "/api/v1",
        "/v1",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server",
        "/oauth",
    ]
    (ingress,) = given.of("Ingress")
    assert [one["path"] for one in ingress["spec"]["rules"][0]["http"]["paths"]] == paths
    (routed,) = given.of("HTTPRoute")
    assert [one["path"]["value"] for one in routed["spec"]["rules"][0]["matches"]] == paths
    plain = rendered("default").pod("server")
    assert not [name for name in environment(plain, "server") if name.startswith("MYRIA_AUTH_") and "MODE" not in name]
    ingress = {"ingress": {"enabled": True, "hosts": [{"host": "memory.example.org"}]}}
    (plain_ingress,) = render(ingress).of("Ingress")
    assert [one["path"] for one in plain_ingress["spec"]["rules"][0]["http"]["paths"]] == ["/mcp", "/api/v1", "/v1"]
    notes = given.notes
    assert "https://memory.example.org/mcp alone" in " ".join(notes.split())


def test_every_path_that_is_open_to_clients_is_led_to_the_service() -> None:
    """What the server answers outside the cluster, but for probes and figures, lies below one of the default paths."""
    (ingress,) = rendered("tokens").of("Ingress")
    led = [one["path"] for one in ingress["spec"]["rules"][0]["http"]["paths"]]
    settings = Settings(auth=AuthSettings(mode="keys", public_url="https://memory.example.org", server=True))
    app = build_app(Memory("postgresql://a:b@c/d", settings), settings)
    inside = {"/livez", "/healthz", "/readyz", "/metrics", "/health", "/ready"}
    paths = {*app.at} | {str(getattr(route, "path", "")) for route in app.beside.routes}
    # The transport of 2024 is off; who switches it on leads these two to the pods as well.
    by_hand = {STREAM_PATH, MESSAGE_PATH}
    for path in paths - inside - by_hand:
        assert any(path == prefix or path.startswith(prefix + "/") for prefix in led), path


def test_a_changed_issuer_restarts_the_serving_pods_alone() -> None:
    """They read the file once, at their start."""
    (issuer,) = values_of("tokens")["auth"]["issuers"]
    auth = {"publicUrl": "https://memory.example.org"}
    sets = [render({"auth": {**auth, "issuers": [{**issuer, "leeway_s": leeway}]}}).pods() for leeway in (10, 20)]
    before, after = [{pod.component: pod.metadata.get("annotations") for pod in pods} for pods in sets]
    assert [component for component in before if before[component] != after[component]] == ["server"]


def test_with_a_certificate_everything_speaks_https() -> None:
    """Probes, the Service, scrapes of serving pods and `helm test`, which alone is given the authority and no key."""
    given = rendered("tokens")
    server = given.pod("server")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert server.container("server")[probe]["httpGet"]["scheme"] == "HTTPS"
        assert "scheme" not in rendered("default").pod("server").container("server")[probe]["httpGet"]
    read = {key: one for key, one in environment_of(server.container("server")).items() if key.startswith("MYRIA_")}
    assert Settings.load(None, environ=read).mcp.scheme == "https"
    services = {one["metadata"]["name"]: one for one in given.of("Service")}
    assert services["memory-myria"]["spec"]["ports"][0]["appProtocol"] == "https"
    schemes = {
        monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]: endpoint.get("scheme")
        for monitor in given.of("ServiceMonitor")
        for endpoint in monitor["spec"]["endpoints"]
    }
    assert schemes == {"server": "https", "operator": None}
    test = given.pod("test")
    command = test.containers[0]["command"]
    assert command[command.index("--url") + 1] == f"https://memory-myria.{NAMESPACE}:8321/mcp"
    assert environment_of(test.containers[0])["SSL_CERT_FILE"] == "/etc/myria/authority/ca.crt"
    (volume,) = [one for one in test.spec["volumes"] if one["name"] == "authority"]
    assert volume["secret"] == {"secretName": "memory-certificate", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    for pod in given.pods():
        holds_key = "tls" in [one["name"] for one in pod.spec["volumes"]]
        assert holds_key == (pod.component == "server")
    assert "https://memory-myria" in given.notes


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


def test_the_first_key_is_made_by_who_can_only_make_secrets() -> None:
    """One container creates the Secret, the next has it as a variable and the control plane's connection string."""
    default = rendered("default")
    pod = default.pod("admin-key")
    assert default.one("Role", "memory-myria-admin-key")["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
    ]
    assert pod.spec["serviceAccountName"] == "memory-myria-admin-key"
    assert pod.container("secret")["command"][:3] == ["myria", "make-key-secret", "memory-myria-admin-key"]
    assert dsn_of(pod, "secret") is None
    assert dsn_of(pod, "key") == ("memory-myria-postgres", "operator-dsn")
    assert dsn_of(pod, "key", "FIRST_KEY") == ("memory-myria-admin-key", "key")
    assert environment(pod, "key")["MYRIA_MIGRATE_WAIT_S"] == "300"
    full = rendered("everything").pod("admin-key").container("key")["command"]
    assert full[:6] == ["myria", "key", "create", "admin", "--key-env", "FIRST_KEY"]
    pairs = list(zip(full[6::2], full[7::2], strict=True))
    assert pairs == [
        ("--tenant", "team_a"),
        *(("--role", role) for role in ("append", "read", "admin")),
        *(("--face", face) for face in ("core", "admin")),
        *(("--as", participant) for participant in ("ops", "team:a")),
    ]
    assert dsn_of(rendered("everything").pod("test"), "smoke", "MYRIA_KEY") == ("memory-first-key", "token")


def test_a_key_of_ones_own_needs_no_rights() -> None:
    """With auth.existingSecret nothing is made: no account, no Role, no token; the key is only made known."""
    own = rendered("own-key")
    pod = own.pod("admin-key")
    assert [one["name"] for one in pod.containers] == ["key"]
    assert pod.spec["automountServiceAccountToken"] is False
    assert pod.spec["serviceAccountName"] == own.pod("server").spec["serviceAccountName"]
    assert not [
        one for one in own.objects if one["metadata"]["name"] == "memory-myria-admin-key" and one["kind"] == "Role"
    ]
    for component, container, variable in (("admin-key", "key", "FIRST_KEY"), ("test", "smoke", "MYRIA_KEY")):
        assert dsn_of(own.pod(component), container, variable) == ("keys-from-the-vault", "key")


def test_without_a_first_key_nothing_is_made_or_tested() -> None:
    """auth.adminKey.create=false leaves the Job and `helm test` out; callers need keys all the same."""
    without = render({"auth": {"adminKey": {"create": False}}, "networkPolicy": {"enabled": True}})
    assert {pod.component for pod in without.pods()} == {"server", "operator", "builder"}
    assert environment(without.pod("server"), "server")["MYRIA_AUTH_MODE"] == "keys"
    assert "helm test" not in without.notes
    assert "get secret memory-myria-admin-key" not in without.notes
    assert "myria key create ada" in without.notes
    policies = {one["metadata"]["name"] for one in without.of("NetworkPolicy")}
    assert policies == {f"memory-myria-{component}" for component in ("server", "operator", "builder")}


def test_settings_do_not_restart_the_trial_database() -> None:
    """Its pod is the same with and without settings: it reads none, and its restart is an outage."""
    trial = {"postgres": {"mode": "trial"}}
    changed = {**trial, "settings": {"builder": {"processes": 2}}}
    assert render(trial).pod("trial-db") == render(changed).pod("trial-db")
    assert render(trial).pod("server") != render(changed).pod("server")


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


@pytest.mark.parametrize("kind", ["serviceMonitor", "podMonitor"])
def test_monitors_behind_a_policy_without_scrapers_warn(kind: str) -> None:
    """Prometheus could not reach what it is told to scrape; once its pods are named, it can."""
    values: Json = {"networkPolicy": {"enabled": True}, "monitoring": {kind: {"enabled": True}}}
    warning = "name its pods in networkPolicy.scrapers"
    assert warning in render(values).notes
    values["networkPolicy"]["scrapers"] = [{"namespaceSelector": {}}]
    assert warning not in render(values).notes
