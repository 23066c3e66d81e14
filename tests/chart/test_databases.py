"""Which connection string, role and Secret each pod gets, and the trial's database."""

from __future__ import annotations

import pytest

from tests.chart.rendering import (
    NAMESPACE,
    SETS,
    dsn_of,
    environment,
    keys_read,
    render,
    rendered,
)


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


def test_whoever_needs_the_schema_waits_for_it_and_only_looks() -> None:
    """Serving pods, operator and builds wait for migrations in the process; nobody but the migration migrates."""
    pods = rendered("default")
    for component, container in (("server", "server"), ("operator", "operator"), ("builder", "builder")):
        assert environment(pods.pod(component), container)["MYRIA_MIGRATE_WAIT_S"] == "300"
    migrating = [one["name"] for pod in pods.pods() for one in pod.containers if "migrate" in one["command"]]
    assert migrating == ["migrate"]


def test_a_broken_trial_database_can_be_mended() -> None:
    """Its pod is replaced by an upgrade though it never was ready."""
    assert rendered("trial").one("StatefulSet", "memory-myria-trial-db")["spec"]["podManagementPolicy"] == "Parallel"


def test_settings_do_not_restart_the_trial_database() -> None:
    """Its pod is the same with and without settings: it reads none, and its restart is an outage."""
    trial = {"postgres": {"mode": "trial"}}
    changed = {**trial, "settings": {"builder": {"processes": 2}}}
    assert render(trial).pod("trial-db") == render(changed).pod("trial-db")
    assert render(trial).pod("server") != render(changed).pod("server")
